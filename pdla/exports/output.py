"""The file that an export writes, and how it names what the trace names by number."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pandas as pd

from pdla.atomic_files import replacing
from pdla.units import shown

LEVEL = 3
"""Of gzip: the text is three times as fast to compress as at the default, 6, and a tenth larger."""


@contextmanager
def text_file(path: Path) -> Iterator[TextIO]:
    """A text file that becomes ``path`` when it is complete, in UTF-8; compressed if its name ends in ``.gz``.

    Raises:
        PdlaError: the file cannot be written.
    """
    with replacing(path) as temporary, temporary.open("wb") as plain:
        packed = gzip.GzipFile("", "wb", LEVEL, plain, mtime=0) if path.suffix == ".gz" else plain
        with io.TextIOWrapper(packed, "utf-8", newline="\n") as file:
            yield file


def names_of(files: pd.DataFrame) -> Sequence[str]:
    """The path of each file, and at the end the name of none, "", which -1 stands for.

    Bytes that are not UTF-8, and unprintable characters, become escapes.
    """
    return [*map(shown, files["path"]), ""]
