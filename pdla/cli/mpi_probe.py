"""Test whether programs can be recorded under an MPI: record a tiny one and compare the records with what it does."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pdla.cli.launch import Ended, Mpi, preloaded, run_bounded
from pdla.errors import PdlaError

if TYPE_CHECKING:
    from pdla.traces.trace import Trace

PROGRAMS = Path(__file__).parent / "probes"
RANKS = 2
SECONDS = 20.0  # for each of compiling and running

FAMILIES = ("MPICH", "Open MPI")
LIBRARY = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"

# Variables that would change what is recorded, or what the program does, if they were set outside.
OURS = {"PDLA_MAP": "", "PDLA_TRACE_INCLUDE": "", "PDLA_TRACE_EXCLUDE": ""}

# What each rank does, in bytes of its view: probes/probe.c and probes/probe.py.
CALLS = (
    *(("open", 0, 0), ("set_view", 0, 0), ("write_at_all", 0, 32), ("write_at", 32, 16), ("iwrite_at", 48, 16)),
    *(("seek", 64, 0), ("write", 64, 16), ("write_all_begin", 80, 16), ("write_at", 96, 16), ("sync", 0, 0)),
    *(("read_at_all", 0, 32), ("read_at", 32, 16), ("iread_at", 48, 16), ("close", 0, 0)),
)
WRITTEN, PIECE, STRIDE = 112, 8, 16


@dataclass(frozen=True)
class Probe:
    """What was captured of the program under one MPI.

    Attributes:
        program: "C" or "mpi4py"; None if neither could be tried.
        library: the name that the MPI library gives itself; empty if the program did not get that
            far.
        large_counts: whether the MPI has the calls with large counts (MPI 4); None if that is not
            known.
        why: what was not captured and why, and other remarks.
    """

    mpi: Mpi
    program: str | None = None
    library: str = ""
    calls_seen: int = 0
    bytes_seen: int = 0
    extents_right: bool = False
    large_counts: bool | None = None
    why: tuple[str, ...] = ()

    @property
    def calls_made(self) -> int:
        """Number of calls of all ranks."""
        return RANKS * len(CALLS)

    @property
    def bytes_made(self) -> int:
        """Bytes read and written by all ranks."""
        return RANKS * sum(length for _, _, length in CALLS)

    @property
    def captured(self) -> bool:
        """Whether everything was captured."""
        made = (self.calls_made, self.bytes_made)
        return (self.calls_seen, self.bytes_seen) == made and self.extents_right


def probe(mpi: Mpi) -> Probe:
    """Run the program under the recorder. Each step that hangs is stopped after 20 s."""
    with tempfile.TemporaryDirectory(prefix="pdla-doctor-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        reasons: list[str] = []
        found = _program(mpi, directory, reasons)
        if found is None:
            return Probe(mpi, why=tuple(reasons))
        tried = _record(mpi, *found, directory)
        return replace(tried, why=(*reasons, *tried.why))


def _program(mpi: Mpi, directory: Path, reasons: list[str]) -> tuple[str, list[str]] | None:
    """The program in the first language that works; ``reasons`` gets why the others do not."""
    if mpi.mpicc is None:
        reasons.append(f"no C program could be tried: there is no mpicc next to {mpi.mpiexec.name}")
    else:
        program = directory / "probe"
        command = [str(mpi.mpicc), str(PROGRAMS / "probe.c"), "-o", str(program)]
        compiled = run_bounded(command, {**os.environ, **mpi.environment}, SECONDS)
        if compiled.code == 0:
            return "C", [str(program)]
        reasons.append(f"no C program could be tried: {_how(str(mpi.mpicc), compiled)}")
    for python in dict.fromkeys((str(mpi.mpiexec.with_name("python")), sys.executable)):
        if not Path(python).exists() or run_bounded([python, "-c", "import mpi4py"], os.environ, SECONDS).code != 0:
            continue
        if not (why := _mismatch(mpi, python)):
            return "mpi4py", [python, str(PROGRAMS / "probe.py")]
        reasons.append(why)
    reasons.append(f"there is no mpi4py {'of this MPI' if len(reasons) > 1 else 'either'} (pip install mpi4py)")
    return None


def _mismatch(mpi: Mpi, python: str) -> str:
    """Why the mpi4py of ``python`` does not fit this MPI, whose launcher it would abort under; "" if it may fit."""
    asked = run_bounded([python, "-c", LIBRARY], {**os.environ, **mpi.environment}, SECONDS)
    if asked.code != 0:
        return _how(f"the mpi4py of {python}", asked)
    families = {name: mpi.version.startswith(name) for name in FAMILIES}
    others = [name for name, launched in families.items() if not launched and asked.stdout.startswith(name)]
    if not (any(families.values()) and others):
        return ""
    return f"the mpi4py of {python} is of another MPI ({others[0]}) than {mpi.mpiexec} ({mpi.version})"


def _how(name: str, ended: Ended) -> str:
    """How a program failed, in one line."""
    if ended.code is None:
        return f"{name} did not end within {SECONDS:g} s"
    lines = [line.strip() for line in (ended.stderr + ended.stdout).splitlines() if not line.startswith("probe ")]
    lines = [line for line in lines if any(map(str.isalpha, line))]
    printed = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "")
    return f"{name} ended with exit code {ended.code}" + (f" ({printed[:200]})" if printed else "")


def _record(mpi: Mpi, language: str, program: Sequence[str], directory: Path) -> Probe:
    logs, data = directory / "logs", directory / "data"
    command = [str(mpi.mpiexec), "-n", str(RANKS), *program, str(data)]
    ended = run_bounded(command, preloaded({**mpi.environment, **OURS, "PDLA_TRACE": str(logs)}), SECONDS)
    printed = [line.split(maxsplit=6) for line in ended.stdout.splitlines() if line.startswith("probe ")]
    # The lines of two ranks may be mixed.
    printed = [words for words in printed if len(words) == 7 and all(map(str.isdigit, words[1:6]))]
    found = Probe(mpi, language)
    if printed:
        found = replace(found, library=" ".join(printed[0][6].split()), large_counts=int(printed[0][5]) >= 4)
    if ended.code != 0:
        found = replace(found, why=(_how(str(mpi.mpiexec), ended),))
    trace = _trace(logs)
    if trace is not None:
        found = replace(
            found, calls_seen=_calls_seen(trace), bytes_seen=_bytes_seen(trace), extents_right=_extents_right(trace)
        )
    return replace(found, why=(*found.why, *_reasons(found, printed, ended)))


def _trace(logs: Path) -> Trace | None:
    from pdla.collectors.rawlog import read_raw

    try:
        return read_raw(logs)
    except PdlaError:
        return None


def _name(kind: str) -> str:
    """mpi4py makes the calls with large counts, where C programs make those without; both have the same names here."""
    return kind.removeprefix("MPI_File_").removesuffix("_c")


def _calls_seen(trace: Trace) -> int:
    made = Counter((rank, name) for rank in range(RANKS) for name, _, _ in CALLS)
    seen = Counter((int(rank), _name(kind)) for rank, kind in trace.records[["rank", "kind"]].itertuples(index=False))
    return (made & seen).total()


def _bytes_seen(trace: Trace) -> int:
    return int(trace.records.loc[trace.records["op"] != "other", "length"].sum())


def _extents_right(trace: Trace) -> bool:
    made = sorted(
        (rank, "read" if "read" in name else "write", PIECE * rank + place // PIECE * STRIDE, PIECE)
        for rank in range(RANKS)
        for name, position, length in CALLS
        for place in range(position, position + length, PIECE)
    )
    accesses = trace.accesses()[["rank", "op", "offset", "length"]]
    return made == sorted(accesses.itertuples(index=False, name=None))


def _reasons(found: Probe, printed: Sequence[Sequence[str]], ended: Ended) -> list[str]:
    """Why not everything was captured, and other remarks; ``printed`` are the words that the program printed."""
    reasons: list[str] = []
    if ended.code == 0 and not printed and not found.calls_seen:
        reasons.append(f"{found.mpi.mpiexec} did not run the program")
    if ended.code == 0 and any(int(words[2]) != RANKS for words in printed):
        reasons.append(
            f"each process ran as a program of its own: {found.mpi.mpiexec} ({found.mpi.version}) is not the launcher "
            f"of the MPI that the program uses ({found.library})"
        )
    if any(words[3] == "0" for words in printed):
        reasons.append("the launcher did not pass LD_PRELOAD on: set it by hand, see pdla preload --help")
    elif not found.captured and any(words[4] == "0" for words in printed):
        reasons.append("MPI is linked statically: pdla cannot trace or redirect such programs")
    elif ended.code == 0 and printed and not found.captured and not reasons:
        reasons.append("the library was preloaded but did not see all calls")
    if found.large_counts is False:
        reasons.append("this MPI has no calls with large counts, so there are none to capture")
    if found.captured and found.mpi.environment and os.geteuid() == 0:
        reasons.append("as root it needs OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
    return reasons
