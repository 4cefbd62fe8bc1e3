"""Files that appear whole or not at all: written beside their final name, made durable, renamed."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pdla.errors import PdlaError

_NAME = 50  # characters of a name in its temporary one, so that this is not too long


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """Where to write what becomes the file ``path`` when the block ends; what is there stays until then.

    A symbolic link stays one. What is no regular file (a pipe, a device) is written itself.

    Raises:
        PdlaError: it cannot be written; nothing is left of it.
    """
    try:
        if path.exists() and not path.is_file():
            yield path
            return
        target = path.resolve()
        temporary = target.with_name(f".{target.name[:_NAME]}.{secrets.token_hex(4)}")
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
        try:
            yield temporary
            descriptor = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            temporary.rename(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise PdlaError(f"cannot write {path}: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    """The operating system's words, which HDF5 hides in a paragraph of its own."""
    if error.errno:
        return os.strerror(error.errno)
    hidden = re.search(r"error message = '([^']*)'", str(error))
    return hidden[1] if hidden else " ".join(str(error).split())
