"""Compare what the processes of an mpiexec, on one node or several, see of one directory, and how soon."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from pdla.cli.directory_probe import SKEW_SECONDS, SKEWED, Fact, check
from pdla.errors import PdlaError
from pdla.units import format_seconds

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

T = TypeVar("T")

PATIENCE = 65.0
"""Seconds for a change to be seen: nfs(5) has attribute caches of up to 60 s by default."""
AT_ONCE = 0.05
"""Seconds below which a change is seen at once."""
ROUNDS = 10
WORD = b"mapped"


def compare_nodes(directory: Path, processes: Intracomm) -> list[Fact]:
    """What all processes see of the directory. Each of them calls it, and each gets the same.

    Raises:
        PdlaError: on every process; it is not the same directory for all, or cannot be written to.
    """
    comparison = _Comparison(directory / str(processes.bcast(f".pdla-doctor-{uuid4().hex}")), processes)
    try:
        return [
            comparison.nodes(),
            _soon("new files", comparison.appeared(), "what another node made, such as a journal,"),
            _soon("changes", comparison.changed(), "a change that another node made to an original"),
            comparison.locks(),
            comparison.mappings(),
            comparison.clocks(),
        ]
    finally:
        if comparison.first:
            comparison.file.unlink(missing_ok=True)


def _soon(name: str, seconds: float | None, what: str) -> Fact:
    if seconds is None:
        return Fact(name, f"not seen by all within {PATIENCE:.0f} s", f"{what} is missed")
    if seconds < AT_ONCE:
        return Fact(name, "seen at once by all")
    return Fact(name, f"seen by all after {format_seconds(seconds)}", f"{what} may be missed for as long")


class _Comparison:
    def __init__(self, file: Path, processes: Intracomm) -> None:
        self.file, self._processes, self.first = file, processes, not processes.rank

    def nodes(self) -> Fact:
        names = sorted(set(self._all(socket.gethostname)))
        return Fact("compared", f"{self._processes.size} processes on {', '.join(names)}")

    def appeared(self) -> float:
        """Seconds until every process sees a file that the first one makes after all have looked for it."""
        self._all(lambda: check(self.file.parent))
        self._all(self.file.exists)
        self._first(lambda: self.file.write_bytes(bytes(mmap.PAGESIZE)))
        took = self._slowest(self.file.exists)
        if took is None:
            raise PdlaError(
                f"{self.file.parent} is not the same directory for all processes: a file that one made was not seen "
                f"by all within {PATIENCE:.0f} s"
            )
        return took

    def changed(self) -> float | None:
        """Seconds until every process sees that the first one wrote to the file; None: not within ``PATIENCE``."""
        before: list[int] = []
        self._all(lambda: before.append(self.file.stat().st_mtime_ns))

        def change() -> None:
            while self.file.stat().st_mtime_ns == before[0]:
                self.file.write_bytes(b"x" * mmap.PAGESIZE)

        self._first(change)
        return self._slowest(lambda: self.file.stat().st_mtime_ns != before[0])

    def locks(self) -> Fact:
        """The first process locks a byte, then the others try."""
        name, need = "locks of all", "no --writes on several nodes"
        with self.file.open("r+b") as opened:
            refused = "" if not self.first else _locked(opened.fileno())
            (own, *_) = self._all(lambda: refused)
            others = self._all(lambda: "" if self.first else _locked(opened.fileno()))[1:]
            self._all(lambda: None)  # nobody closes before all have tried
        if own:
            return Fact(name, f"refused ({own})", need)
        return Fact(name, "hold between all") if all(others) else Fact(name, "do not hold between all", need)

    def mappings(self) -> Fact:
        """The first process writes through a shared mapping, the others read theirs."""
        name = "mappings of all"
        with self.file.open("r+b") as opened:
            try:
                mapped = mmap.mmap(opened.fileno(), mmap.PAGESIZE)
            except OSError:
                mapped = None
            if mapped is None or not all(self._all(lambda: mapped is not None)):
                return Fact(name, "refused")
            with mapped:
                self._all(lambda: mapped[:6])  # the page is in memory before it changes
                self._first(lambda: mapped.write(WORD))
                same = all(self._all(lambda: mapped[: len(WORD)] == WORD))
        return Fact(name, "coherent" if same else "not coherent: each node sees its own")

    def clocks(self) -> Fact:
        """The largest difference of a clock from that of the first process."""
        skew = max(abs(self._skew(other)) for other in range(self._processes.size))
        (skew, *_) = self._all(lambda: skew)
        return Fact("clocks of all", f"within {format_seconds(skew)}", SKEWED if skew > SKEW_SECONDS else "")

    def _skew(self, other: int) -> float:
        """On the first process: another clock minus its own, by the fastest of some messages to and fro."""
        trips = [(0.0, 0.0)]
        for _ in range(ROUNDS if other else 0):
            if self.first:
                before = time.time()
                self._processes.send(None, other)
                there = self._processes.recv(source=other)
                after = time.time()
                trips.append((after - before, there - (before + after) / 2))
            elif self._processes.rank == other:
                self._processes.recv(source=0)
                self._processes.send(time.time(), 0)
        return min(trips[1:] or trips)[1]

    def _slowest(self, sees: Callable[[], bool]) -> float | None:
        """Seconds until the last process sees something; None if one does not within ``PATIENCE``."""

        def wait() -> float | None:
            begin = time.monotonic()
            while not sees():
                if time.monotonic() - begin > PATIENCE:
                    return None
                time.sleep(0.01)
            return time.monotonic() - begin

        took = [seconds for seconds in self._all(wait) if seconds is not None]
        return max(took) if len(took) == self._processes.size else None

    def _first(self, work: Callable[[], object]) -> None:
        """Work of the first process, for which all wait."""
        self._all(lambda: work() if self.first else None)

    def _all(self, work: Callable[[], T]) -> list[T]:
        """What work brings on each process, after all have done it. If it fails on one, it fails on all."""
        answer: T | str
        try:
            answer, done = work(), True
        except PdlaError as error:
            answer, done = str(error), False
        except OSError as error:
            answer, done = f"{self.file.parent} on {socket.gethostname()}: {error.strerror}", False
        answers = self._processes.allgather((answer, done))
        for problem in (answer for answer, done in answers if not done):
            raise PdlaError(problem)
        return [answer for answer, _ in answers]


def _locked(descriptor: int) -> str:
    """Why the lock was refused; empty if this process holds it now."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    except OSError as error:
        return error.strerror or "error"
    return ""
