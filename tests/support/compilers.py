"""Compilers of the tests. What one has made is kept, by the content of all that it read, and made only once.

It is kept in ``build/made-for-tests``, or in the directory PDLA_TEST_MADE. ``make clean`` removes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

# `make coverage` has the lines counted that ran, by all processes and threads.
COVERAGE = os.environ.get("PDLA_TEST_COVERAGE", "").split()
GCC = ["gcc", *COVERAGE]

MOST_KEPT = 2000
SOURCES = {".c", ".F90", ".cc", ".cpp"}
INCLUDED = re.compile(rb'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)
TEMPORARY = re.compile(r"/pytest-of-|/tmp[a-z0-9_]{8}\b")
# What the compilers of MPIs run, and with which flags.
CHOOSES = re.compile(r"(MPICH|OMPI|I_MPI|MPI)_(CC|CXX|FC|F90|CFLAGS|LDFLAGS|ROOT).*|CPATH|LIBRARY_PATH|C_INCLUDE_PATH")


def compiled(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Path:
    """Run a compiler, whose command names what it makes after "-o"; return that.

    Raises:
        CalledProcessError: it failed.
    """
    words = [str(word) for word in command]
    at = words.index("-o") + 1
    output, environment = Path(words[at]), dict(os.environ if environment is None else environment)
    key = _key([*words[:at], *words[at + 1 :]], environment)
    if key is None:
        subprocess.run(words, check=True, env=environment)
        return output
    kept = _directory() / key
    with kept.with_suffix(".lock").open("w") as lock:  # others may want the same at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            words[at] = str(kept.with_suffix(".new"))
            subprocess.run(words, check=True, env=environment)
            Path(words[at]).rename(kept)
    os.utime(kept)
    output.unlink(missing_ok=True)  # it may be in use
    shutil.copy(kept, output)
    return output


@cache
def _directory() -> Path:
    """Where things are kept, without those that nobody has used for the longest time."""
    place = Path(os.environ.get("PDLA_TEST_MADE") or REPOSITORY / "build/made-for-tests")
    place.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):  # another process does the same
        for old in sorted(place.glob("*[0-9a-f]"), key=lambda path: path.stat().st_mtime)[:-MOST_KEPT]:
            old.unlink()
            old.with_suffix(".lock").unlink()
    return place


def _key(words: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """A digest of all that counts; None: it counts where the output is, or some of it cannot be known."""
    if COVERAGE:  # the counts are written beside the output
        return None
    digest = hashlib.sha256()
    folders = [Path(word.removeprefix("-I")) for word in words if word.startswith("-I")]
    for word in words:
        path = Path(word)
        if path.is_file():
            for read in [path, *_included(path, folders)] if path.suffix in SOURCES else [path]:
                digest.update(read.name.encode() + b"\0" + _digest_of(read, read.stat().st_mtime_ns))
        elif TEMPORARY.search(word) and not word.startswith("-I"):
            return None
        else:
            digest.update(word.removeprefix(f"-I{REPOSITORY}").encode() + b"\0")
    for name in sorted(environment):
        if CHOOSES.fullmatch(name):
            digest.update(f"{name}={environment[name]}\0".encode())
    for name in (words[0], "gcc"):
        digest.update(_version(name))
    return digest.hexdigest()


@cache
def _digest_of(path: Path, _: int) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


@cache
def _version(name: str) -> bytes:
    """Which compiler this is: an update is another one."""
    found = shutil.which(name)
    if found is None:
        return b""
    state = Path(found).resolve().stat()
    return f"{found}\0{state.st_size}\0{state.st_mtime_ns}\0".encode()


def _included(source: Path, folders: Sequence[Path]) -> Iterator[Path]:
    """The files of ours that a source includes, and those that they include."""
    seen, left = {source}, [source]
    while left:
        reader = left.pop()
        for name in INCLUDED.findall(reader.read_bytes()):
            for folder in (reader.parent, *folders):
                path = folder / os.fsdecode(name)
                if path.is_file():
                    if path not in seen:
                        seen.add(path)
                        left.append(path)
                        yield path
                    break
