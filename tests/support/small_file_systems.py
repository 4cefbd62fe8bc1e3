"""File systems that are small and alike: a new file gets the number of a removed one, and each has the same numbers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.support.mpi import unavailable

SIZE, NUMBERS = 16 << 20, 512


@contextmanager
def two_file_systems(directory: Path) -> Iterator[tuple[Path, Path]]:
    """Two places, each a file system of its own; where these cannot be had, directories."""
    with ExitStack() as stack:
        one, other = (stack.enter_context(_file_system(directory, name)) for name in ("one", "other"))
        yield one, other


@contextmanager
def _file_system(directory: Path, name: str) -> Iterator[Path]:
    place, image = directory / name, directory / f"{name}.img"
    with image.open("wb") as file:
        file.truncate(SIZE)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", "-N", str(NUMBERS), image], check=True)
        stack = ExitStack()
        stack.enter_context(_mounted(image, place))
    except (OSError, subprocess.CalledProcessError):
        yield place
        return
    with stack:
        yield place


@contextmanager
def clone_of(place: Path) -> Iterator[Path]:
    """Where a copy of the file system at ``place`` is, as a snapshot is one: with the same numbers, times and names.

    Raises:
        OSError, CalledProcessError: it cannot be had.
    """
    image, copy = (place.with_name(f"{name}.img") for name in (place.name, "clone"))
    subprocess.run(["sync", "--file-system", place], check=True)
    copy.unlink(missing_ok=True)  # the loop device of an earlier one may still be there, with what that one had
    shutil.copyfile(image, copy)
    with _mounted(copy, place.with_name("clone")) as clone:
        yield clone


@contextmanager
def _mounted(image: Path, place: Path) -> Iterator[Path]:
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", image, place], check=True, capture_output=True)
    try:
        place.chmod(0o1777)
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def make_twin(path: Path, number: int, content: bytes) -> bool:
    """Make a file with this inode number; False if that cannot be."""
    made = []
    try:
        for i in range(NUMBERS):
            one = path.with_name(f"{path.name}.{i}")
            one.touch()
            made.append(one)
            if one.stat().st_ino == number:
                one.write_bytes(content)
                one.rename(path)
                return True
    except OSError:  # there are no more
        pass
    finally:
        for one in made:
            with suppress(FileNotFoundError):
                one.unlink()
    return False


@contextmanager
def mounted(what: list[str], where: Path) -> Iterator[None]:
    words = ["mount", *what, str(where)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode != 0:
        unavailable("mounting file systems needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", where], check=True)
