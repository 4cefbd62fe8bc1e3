"""Programs under the recorder, and their writes as the trace shows them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from pdla.collectors.rawlog import read_raw
from pdla.traces.trace import Trace
from tests.support.mpi import REPOSITORY, Mpi

PROGRAMS = REPOSITORY / "tests/programs"


_compiled: set[Path] = set()


class Recorder(NamedTuple):
    """Compiles and traces programs under one MPI, in a directory of their own."""

    mpi: Mpi
    library: Path
    directory: Path

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    def compile(self, source: str, *flags: str, compiler: str = "mpicc") -> str:
        """The program of ``source`` below tests/programs (".c" may be left out), compiled once."""
        source = source if "." in source else f"{source}.c"
        tool = self.mpi.mpicc if compiler == "mpicc" else self.mpi.tool(compiler)
        large = ["-DLARGE_COUNTS"] if self.mpi.large_counts else []
        program = self.library.parent / "-".join([source.replace(".", "-"), compiler, *flags, self.mpi.name])
        if program not in _compiled:
            self.mpi.run_compiler(tool, "-g", *large, *flags, PROGRAMS / source, "-o", program, "-lpthread")
            _compiled.add(program)
        return str(program)

    def run(self, ranks: int, *words: str | Path, preload: str = "", variables: Mapping[str, str] | None = None) -> str:
        """The program's standard output."""
        preloaded = {"LD_PRELOAD": preload or str(self.library), "PDLA_TRACE": str(self.logs), **(variables or {})}
        return self.mpi.run(self.mpi.command(ranks, *words), self.directory, preloaded)

    def trace(self, ranks: int, *words: str | Path) -> Trace:
        """The trace of a program that must succeed."""
        self.run(ranks, *words)
        return read_raw(self.logs)


def kinds_of(rows: pd.DataFrame) -> list[str]:
    """The calls without the common part of their names."""
    return [kind.removeprefix("MPI_File_") for kind in rows["kind"]]


def rows_of(trace: Trace, table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """The rows of the records, or accesses, of one file."""
    files = trace.files
    return table[table["file"].isin(files.loc[files["path"] == str(path), "file"])]


def replay(trace: Trace, path: Path, streams: Mapping[int, bytes]) -> bytes:
    """The content of ``path`` if the stream of each recorded call (number -> bytes) is written where the trace says.

    Holes do not matter: MPICH leaves in them whatever was in its sieving buffer.
    """
    content = bytearray(path.read_bytes())
    accesses = rows_of(trace, trace.accesses(), path)
    for _, calls in accesses[accesses["op"] == "write"].groupby(["call", "rank"], sort=True):
        place = 0
        for call, offset, length in zip(calls["call"], calls["offset"], calls["length"], strict=True):
            content[offset : offset + length] = streams[call][place : place + length]
            place += length
        assert place == len(streams[int(calls["call"].iloc[0])])
    return bytes(content)
