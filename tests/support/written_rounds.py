"""A file that ranks write in rounds, and are killed: tests/programs/rounds.c."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pdla.accessmap import AccessMap
from pdla.catalog import Catalog, open_catalog
from pdla.model import Layout, Loop, Pool, Signature
from pdla.replicator.builder import build
from pdla.replicator.journals import paths_in
from pdla.replicator.mapfile import publish
from pdla.replicator.sync import write_back
from pdla.replicator.waiting_writes import waiting_writes
from pdla.replicator.write_targets import journals_of
from tests.support.mpi import REPOSITORY, Mpi
from tests.support.waiting import PATIENCE

RANKS, ROWS, WORDS, HEADER = 3, 200, 64, 512


@dataclass
class Place:
    """A file that is written in rounds, and an empty replica for that."""

    mpi: Mpi
    program: Path
    library: Path
    directory: Path
    catalog: Catalog

    @property
    def original(self) -> Path:
        return self.directory / "data"

    @property
    def map(self) -> Path:
        return self.directory / "home" / "replicas.map"

    @property
    def journals(self) -> list[Path]:
        return paths_in(journals_of(self.map, self.original))

    def words(self, *words: str, writes: str = "close", out: Path | None = None) -> list[str]:
        settings = [f"PDLA_MAP={self.map}", f"PDLA_WRITES={writes}", f"LD_PRELOAD={self.library}"]
        if out is not None:
            settings.append(f"PDLA_REPORT={out}")
        return self.mpi.command(RANKS, "env", *settings, *words)


def pattern(path: Path, start: int = HEADER) -> Signature:
    """Every rank writes ``ROWS`` rows of its column."""
    length = 8 * WORDS
    loops = (Loop(length, RANKS), Loop(RANKS * length, ROWS))
    return Signature(str(path), "write", False, start, length, loops, tuple(range(RANKS)), 1)


def pool_in(directory: Path) -> Pool:
    where = tuple(str(directory / "home" / "pools" / f"{n}") for n in range(2))
    return Pool("disks", "hdd", 2, ((0, 0.0),), 1e-8, 1e-8, 1 << 30, 4096, "directories", where)


@contextmanager
def make_place(
    mpi: Mpi,
    tmp_path: Path,
    library: Path,
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: Callable[[Path], Signature] = pattern,
) -> Iterator[Place]:
    program = programs / f"rounds-{mpi.name}"
    if not program.exists():
        mpi.compile(REPOSITORY / "tests/programs/rounds.c", program, "-Wall", "-Wextra")
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    catalog = open_catalog()
    place = Place(mpi, program, library, tmp_path, catalog)
    signature = written(place.original)
    build(signature, Layout("disks", 2, 1, (4096, 4096), AccessMap.section(signature)), pool_in(tmp_path), catalog)
    publish(catalog)
    yield place
    catalog.close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def said(out: Path, rank: int) -> list[tuple[str, int]]:
    """The output of a rank so far; the last line may be cut."""
    try:
        lines = out.with_name(f"{out.name}.{rank}").read_text().split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [(what, int(number)) for what, number in map(str.split, lines)]


def run_and_kill(place: Place, seed: int, kind: str, writes: str) -> tuple[int, int]:
    """Kill one rank or all of them at a random moment; returns the last round that was acknowledged, and begun."""
    choose = random.Random(seed)
    out = place.directory / f"said{seed}"
    job = subprocess.Popen(
        place.words(str(place.program), str(place.original), str(out), kind, writes=writes),
        env={**os.environ, **place.mpi.env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not all(len(said(out, rank)) >= 2 for rank in range(RANKS)):
            assert job.poll() is None
            time.sleep(0.005)
        pids = [said(out, rank)[0][1] for rank in range(RANKS)]
        time.sleep(choose.uniform(0, 0.3))
        for pid in pids if seed % 2 else [choose.choice(pids)]:
            with suppress(ProcessLookupError):  # the launcher ends the others when one has ended
                os.kill(pid, signal.SIGKILL)
    except BaseException:
        job.kill()
        raise
    job.wait(timeout=PATIENCE)
    while any(map(alive, pids)):
        time.sleep(0.01)
    rounds = [said(out, rank) for rank in range(RANKS)]
    done = max((number for lines in rounds for what, number in lines if what == "done"), default=0)
    return done, max(number for lines in rounds for what, number in lines if what == "begin")


def check(place: Place, done: int, begun: int) -> None:
    """Every word is of the round that was acknowledged last or of the next one, and in its place."""
    data = place.original.read_bytes()
    words = np.zeros(HEADER // 8 + ROWS * RANKS * WORDS, dtype=np.uint64)
    found = np.frombuffer(data[: len(data) // 8 * 8], dtype=np.uint64)
    words[: len(found)] = found
    table = words[HEADER // 8 :].reshape(ROWS, RANKS, WORDS)
    rounds = table >> np.uint64(32)
    assert done <= int(rounds.min()) and int(rounds.max()) <= begun
    rows, ranks = np.indices((ROWS, RANKS))
    places = (ranks << 16 | rows).astype(np.uint64)[:, :, None]
    written = rounds > 0
    assert ((table & np.uint64(0xFFFFFFFF)) == places)[written].all()
    assert (table[~written] == 0).all()


def killed_with_journals(place: Place) -> tuple[int, int]:
    """A run that was killed in a round with bytes only in the replica; returns what ``run_and_kill`` does."""
    for seed in range(100):
        rounds = run_and_kill(place, 2 * seed + 1, "sync", "close")
        if waiting_writes():
            return rounds
        write_back(place.catalog)
    raise AssertionError("nothing was left")
