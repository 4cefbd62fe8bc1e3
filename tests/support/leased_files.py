"""Files under a lease of writes, and what opens them: tests/programs/looks.c."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pdla.replicator.intent import HeldIntent
from pdla.replicator.journals import read_journal
from tests.support.handmade_journals import Image
from tests.support.mpi import REPOSITORY, Mpi, build_coherence_library
from tests.support.written_rounds import RANKS, Place, make_place

ERR_IO = "class=32"  # of MPICH


@dataclass
class Leased:
    """A file that one job has written under a lease, and another one opens."""

    place: Place
    writer: Path
    opener: Path
    beside: Path

    @property
    def original(self) -> Path:
        return self.place.original

    def write(self, writes: str = "lease", journals: int = RANKS) -> None:
        """The first job, and how many journals it leaves; ``writes`` "native" without the library."""
        self.original.unlink(missing_ok=True)
        words = [str(self.writer), str(self.original), str(self.place.directory / "said"), "close"]
        if writes == "native":
            self.place.mpi.run(self.place.mpi.command(RANKS, *words))
        else:
            self.place.mpi.run(self.place.words(*words, writes=writes))
            assert len(self.place.journals) == journals

    def environment(self, how: str) -> list[str]:
        """The variables of a job that is preloaded in some way."""
        home, library = self.place.directory / "home", self.place.library
        variables = {
            "native": [],
            "preloaded": [f"PDLA_HOME={home}"],
            "trace": [f"PDLA_HOME={home}", f"PDLA_TRACE={self.place.directory / 'logs'}"],
        }
        redirected = [f"PDLA_MAP={self.place.map}", f"PDLA_WRITES={how}"]
        preload = [] if how == "native" else [f"LD_PRELOAD={library}:{self.beside}"]
        return ["env", *variables.get(how, redirected), *preload]

    def open(self, how: str, mode: str, *steps: str, ranks: int = 2, extra: Sequence[str] = ()) -> str:
        """The second job; what its ranks saw."""
        (self.place.directory / "logs").mkdir(exist_ok=True)
        out = Path(tempfile.mkdtemp(dir=self.place.directory)) / "rank"
        words = [*self.environment(how), *extra, self.opener, self.original, out, mode, *steps]
        self.place.mpi.run(self.place.mpi.command(ranks, *words))
        return "".join(out.with_name(f"rank.{rank}").read_text() for rank in range(ranks))

    def command(self, how: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """A program that knows nothing of MPI."""
        return subprocess.run(
            [*self.environment(how), *words], capture_output=True, text=True, errors="replace", check=False
        )


def make_leased(
    mpi: Mpi, tmp_path: Path, library: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Leased]:
    for name, source, flag in (("once", "rounds", "-DROUNDS=1"), ("opener", "looks", "-O1")):
        if not (compiled / f"{name}-{mpi.name}").exists():
            mpi.compile(REPOSITORY / f"tests/programs/{source}.c", compiled / f"{name}-{mpi.name}", "-Wall", flag)
    with make_place(mpi, tmp_path, library, compiled, monkeypatch) as place:
        beside = compiled / "libpdla-coherence.so"
        if not beside.exists():
            build_coherence_library(beside)
        yield Leased(place, compiled / f"once-{mpi.name}", compiled / f"opener-{mpi.name}", beside)


def damage(part: str, path: Path) -> None:
    """Change one number of a journal, or one bit of the intent next to it."""
    image = Image(path)
    if part == "intent":
        HeldIntent(path.parents[1], read_journal(path).left)
        intent = path.parents[1] / "intent"
        record = bytearray(intent.read_bytes())
        record[40] ^= 1
        intent.write_bytes(record)
    elif part == "entry":
        image.entries[0]["start"] ^= 1
    elif part == "length":
        image.entries[0]["seal"] -= 1
    elif part == "states":
        image.header["states"]["size"] ^= 1
    elif part == "original":
        image.header["original"]["inode"] ^= 1
    else:
        image.header[part] ^= 1
    path.write_bytes(image.bytes)
