"""Write a file whole or not at all: under a temporary name in the same directory, made durable, then renamed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pdla.errors import PdlaError

_NAME = 50  # characters of the final name in the temporary one, so that the temporary one is not too long


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """The path to write to, for a file that becomes ``path`` when the block ends; the old file stays until then.

    A symbolic link stays a link. A path that is not a regular file (a pipe, a device) is written
    directly.

    Raises:
        PdlaError: the file cannot be written. Nothing is left of it.
    """
    try:
        if path.exists() and not path.is_file():
            yield path
            return
        target = path.resolve()
        temporary = target.with_name(f".{target.name[:_NAME]}.{os.urandom(4).hex()}")
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
    """The operating system's message, which HDF5 hides in a long text."""
    if error.errno:
        return os.strerror(error.errno)
    hidden = re.search(r"error message = '([^']*)'", str(error))
    return hidden[1] if hidden else " ".join(str(error).split())
