"""Disks with a head each: originals are striped over them, and each holds replicas. The third kind of storage.

The program in seeking_disk serves images of disks in the time that disks would take. The first part of the four disks
together is one image in strips: a file system on it holds the originals, as the servers of a parallel file system
would hold them. The rest of each is an image with a file system of its own, for replicas. SSDs are the same without
seeks.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.loop_devices import attached, file_system, loop_obstacle, unmount
from benchmarks.processes import ENDED_WITH_US
from benchmarks.storage import DISKS, STRIP, Counted, Directories, capacity, rates

SOURCES = Path(__file__).parent / "seeking_disk"
STRIPS = ("-O", "bigalloc", "-C", str(STRIP))
"""Of mkfs.ext4: files have whole strips."""
POINTS = 8  # of the curve of seeks, in a cluster.toml
STARTS_WITHIN = 30.0  # seconds


class Model(NamedTuple):
    """What a request takes: ``length / bandwidth``, and more where it does not begin at the head (seeking_disk/disk.h).

    Units are bytes/s and seconds. A seek over the whole disk takes ``longest``, one to the next track ``shortest``.
    """

    bandwidth: float
    overhead: float = 0.0
    shortest: float = 0.0
    longest: float = 0.0
    rotation: float = 0.0

    def startup(self, share: float) -> float:
        """Seconds before the first byte, at this distance from the head as a share of the disk."""
        return self.overhead + self.shortest + (self.longest - self.shortest) * math.sqrt(share) + self.rotation


MODELS = {
    "hdd": Model(50e6, shortest=0.001, longest=0.008, rotation=0.00417),  # 7,200 turns a minute
    "ssd": Model(150e6, overhead=0.0005),
}
"""The bytes/s, and for SSDs the requests/s, are those of throttled.py."""


def seeking_obstacle() -> str:
    """Why there can be no disks that seek here; "" if there can."""
    if why := loop_obstacle():
        return why
    if not os.access("/dev/fuse", os.W_OK):
        return "disks that seek need /dev/fuse"
    if missing := [name for name in ("gcc", "pkg-config", "setpriv") if not shutil.which(name)]:
        return f"disks that seek are compiled and run by {missing[0]}, which does not exist"
    if subprocess.run(["pkg-config", "--exists", "fuse3"], check=False).returncode:
        return "disks that seek need libfuse's headers (libfuse3-dev)"
    return ""


class Heads:
    """The running program for disks of one kind.

    Attributes:
        images: of each disk; ``striped``: of the part that they share.
    """

    def __init__(self, directory: Path, count: int, size: int) -> None:
        self.directory = directory
        self.images = [directory / f"disk{number}" for number in range(count)]
        self.striped = directory / "striped"
        self.size = size
        """Bytes of a disk."""

    def set_timed(self, timed: bool) -> None:
        """Whether requests take their time; others are not counted."""
        (self.directory / "timed").write_text(str(int(timed)))

    def counters(self) -> list[dict[str, float]]:
        """Of each disk since its start: requests, bytes, seeks, distance (bytes) and busy (seconds)."""
        found: list[dict[str, float]] = json.loads((self.directory / "counters").read_text())
        return found


def compile_heads(program: Path) -> Path:
    """Compile the program."""
    fuse = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True)
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    sources = sorted(SOURCES.glob("*.c"))
    subprocess.run(["gcc", *flags, *sources, "-o", program, *fuse.stdout.split(), "-lm", "-lpthread"], check=True)
    return program


@contextmanager
def serve(program: Path, directory: Path, count: int, striped: int, own: int, model: Model) -> Iterator[Heads]:
    """So many disks, mounted in ``directory``: ``striped`` bytes or a little more on all, ``own`` on each besides."""
    column = -(-striped // count // STRIP) * STRIP
    size = column + own
    options = {"disks": count, "size": size, "striped": count * column, "strip": STRIP, **model._asdict()}
    words = [f"--{name}={value}" for name, value in options.items()]
    directory.mkdir()
    # In a group of its own a terminal's Ctrl-C does not end it before the file systems on it.
    server = subprocess.Popen(
        [*ENDED_WITH_US, "KILL", program, *words, directory], stdin=subprocess.DEVNULL, process_group=0
    )
    try:
        deadline = time.monotonic() + STARTS_WITHIN
        while not directory.is_mount():
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{program.name} does not serve disks in {directory}")
            time.sleep(0.01)
        yield Heads(directory, count, size)
    finally:
        server.terminate()
        server.wait()
        if directory.is_mount():
            unmount(directory)
        directory.rmdir()


class SeekingDisks(Directories):
    """One directory a disk, and one of each kind for originals, striped over these disks."""

    name = "seeking"
    lacks = "all ranks are on one node: they share its page cache, and what it reads ahead"

    def __init__(self, heads: Mapping[str, Heads], servers: Mapping[str, list[Path]], originals: Mapping[str, Path]):
        sizes = {kind: one.size for kind, one in heads.items()}
        super().__init__(servers, originals, lambda kind: described(kind, sizes[kind]))
        self.heads = heads

    def place(self, kind: str, file: Path, size: int) -> None:
        """Striped over all disks of a kind, in one piece as far as the file system can."""
        with file.open("wb") as opened:
            os.posix_fallocate(opened.fileno(), 0, size)

    @contextmanager
    def unlimited(self) -> Iterator[None]:
        """See Storage."""
        for one in self.heads.values():
            one.set_timed(False)
        try:
            yield
            self.drop_caches()
        finally:
            for one in self.heads.values():
                one.set_timed(True)

    def counted(self) -> Mapping[str, Counted]:
        """By the disks."""
        return {
            f"{kind}{number}": Counted(int(disk["requests"]), int(disk["seeks"]), disk["busy"])
            for kind, one in self.heads.items()
            for number, disk in enumerate(one.counters())
        }


def described(kind: str, size: int) -> str:
    """A pool's devices by their model, for a cluster.toml: of the curve, points that are evenly apart in seconds."""
    model = MODELS[kind]
    shares = [(number / POINTS) ** 2 for number in range(POINTS + 1)]
    points = [[0, 0.0], *([max(1, round(share * size)), model.startup(share)] for share in shares)]
    return f"startup = {json.dumps(points)}\n{rates(1 / model.bandwidth)}"


@contextmanager
def seeking_disks(scratch: Path, size: int) -> Iterator[SeekingDisks]:
    """Four disks and two SSDs, each with its part of originals of ``size`` bytes; all are gone after the block."""
    program = compile_heads(scratch / "heads")
    heads: dict[str, Heads] = {}
    servers: dict[str, list[Path]] = {}
    originals: dict[str, Path] = {}
    with ExitStack() as stack:

        def mounted(image: Path, name: str, *made_with: str) -> Path:
            loop = stack.enter_context(attached(image))
            # Discarded blocks are free memory again.
            return stack.enter_context(file_system(loop, scratch / name, made_with, "noatime,discard"))

        for kind, count in DISKS.items():
            own = capacity(4 * size // count)
            served = serve(program, scratch / f"{kind}-heads", count, capacity(size), own, MODELS[kind])
            one = heads[kind] = stack.enter_context(served)
            one.set_timed(False)
            servers[kind] = [mounted(image, f"{kind}{number}") for number, image in enumerate(one.images)]
            originals[kind] = mounted(one.striped, f"original-{kind}", *STRIPS)
        for one in heads.values():
            one.set_timed(True)
        yield SeekingDisks(heads, servers, originals)
