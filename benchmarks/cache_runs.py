"""Programs that write checkpoints, and the ways to serve them: what benchmarks/caches.py runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.cache_nodes import Nodes
from benchmarks.cases import COLLECTIVE, INDEPENDENT, SIEVING
from benchmarks.contestants import BINARIES, SHARED_PROCESSORS, bytes_of, fill
from benchmarks.processes import output_of
from pdla.replicator.backends.base import folder_in
from pdla.units import KiB, MiB, format_bytes

LEASE, IMMEDIATE, ONCLOSE = "S-PDLA, lease", "E10, immediate", "E10, on close"
NATIVE = (INDEPENDENT, SIEVING, COLLECTIVE)
CACHED = (IMMEDIATE, ONCLOSE)
CONTESTANTS = (*NATIVE, LEASE, *CACHED)
TWO_PHASE = {"romio_cb_write": "enable"}
HINTS: Mapping[str, Mapping[str, str]] = {
    INDEPENDENT: {"romio_cb_write": "disable", "romio_ds_write": "disable"},
    SIEVING: {"romio_cb_write": "disable", "romio_ds_write": "enable"},
    COLLECTIVE: TWO_PHASE,
    LEASE: TWO_PHASE,
    IMMEDIATE: {"e10_cache": "enable", "e10_cache_flush_flag": "flush_immediate"},
    ONCLOSE: {"e10_cache": "enable", "e10_cache_flush_flag": "flush_onclose"},
}
"""All contestants make the same collective calls; hints say how the MPI library serves them. E10 exchanges pieces where
that pays."""
FILES = 4
CALLS = (64 * KiB, MiB, 4 * MiB)
"""Bytes of a rank's call: up to the first size of pieces the second, else the third. What is slow can stop earlier."""
DEADLINE = 1
"""Seconds after which a contestant without a cache begins no more calls for a file."""


@dataclass(frozen=True)
class Case:
    """A program that writes files of ``size`` bytes each, in pieces of ``piece`` bytes."""

    name: str
    program: str
    options: tuple[str, ...]
    ranks: int
    size: int
    piece: int
    files: int = FILES

    @property
    def title(self) -> str:
        """The name in rows."""
        return f"{self.name}, {format_bytes(self.piece)}, {self.ranks} ranks"


def ior(size: int, piece: int, ranks: int, files: int = FILES) -> Case:
    """Pieces of all ranks alternate."""
    segments = size // piece // ranks
    options = ("-t", str(piece), "-s", str(segments), "--bufferSize", _call(piece))
    return Case("IOR", "ior", options, ranks, segments * piece * ranks, piece, files)


def coll_perf(size: int, ranks: int) -> Case:
    """An array of ints, a block for each rank: with four ranks its rows are whole, and follow one another."""
    points = round((size / 4) ** (1 / 3)) // 16 * 16
    piece = points * points // 2 * 4 if ranks == 4 else points // 2 * 4
    options = ("--asize", str(points), "--bufferSize", _call(piece))
    return Case("coll_perf", "coll_perf", options, ranks, 4 * points**3, piece)


def flash_io(size: int, ranks: int) -> Case:
    """24 variables, a call for each."""
    blocks = size // 24 // ranks // (32 * KiB)
    part = blocks * 32 * KiB
    options = ("--blocks", str(blocks), "--bufferSize", str(part))
    return Case("Flash-IO", "flash_io", options, ranks, 24 * ranks * part, part)


def _call(piece: int) -> str:
    """The option for the bytes of a rank's call."""
    return str(CALLS[1 + (piece > CALLS[0])])


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        files: of each file the seconds of its open, its writes, the computation, and its close; and the processor time
            of the process's other threads during the computation.
        elapsed: from the first open to the last close, seconds.
        bytes: written.
        memory: the most bytes that a process had in memory.
        report: the exit line of ``pdla run --json``.
    """

    files: Sequence[Sequence[float]]
    elapsed: float
    bytes: int
    memory: int
    report: Mapping[str, Any] = field(repr=False)

    @property
    def waits(self) -> float:
        """Seconds in which the program waits for its output."""
        return sum(opens + writes + closes for opens, writes, _, closes, _ in self.files)

    @property
    def rate(self) -> float:
        """Bytes/s of all that the program waits for."""
        return self.bytes / self.waits

    @property
    def perceived(self) -> float:
        """Bytes/s of Eq. 2, which does not count opens."""
        return self.bytes / sum(writes + closes for _, writes, _, closes, _ in self.files)


class Experiment:
    """A case on nodes: its files, its plan, and the homes of the contestants."""

    def __init__(self, nodes: Nodes, case: Case, programs: Path, directory: Path) -> None:
        self.nodes, self.case, self.programs, self.directory = nodes, case, programs, directory
        self.signature = 0
        # ROMIO's default is an aggregator for each node, which it knows by its hostname; but mpiexec starts all
        # ranks on this one.
        aggregators = {"cb_config_list": "*:*", "cb_nodes": str(len(nodes.launch))}
        for how, hints in HINTS.items():
            given = {**hints, **aggregators}
            (directory / how).write_text("".join(f"{key} {value}\n" for key, value in given.items()))
        (directory / "nodes.toml").write_text(nodes.cluster(case.ranks // len(nodes.launch), "node"))
        for file in self.files:
            nodes.place(file, case.size)
            fill(file, case.size)

    @property
    def files(self) -> list[Path]:
        """The files that the program writes."""
        name = self.nodes.originals / "file"
        return [name.with_name(f"{name.name}.{i}") for i in range(self.case.files)] if self.case.files > 1 else [name]

    def plan(self) -> bool:
        """Trace the program, plan for the lease, and make the replicas. Returns whether there are any."""
        cluster, trace, plan = (self.directory / name for name in ("cluster.toml", "run.h5", "plan.json"))
        cluster.write_text(self.nodes.cluster(self.case.ranks // len(self.nodes.launch), "ssd"))
        self._pdla(LEASE, "trace", "-o", trace, "--", *self._program("--writeFile"))
        asked = ("--cluster", cluster, "--policy", "pdla-s", "--writes", "lease", "--json")
        found = self._pdla(LEASE, "plan", trace, *asked)
        plan.write_text(found)
        self._pdla(LEASE, "replicate", plan)
        return any(one["candidates"][one["chosen"]]["layout"] for one in json.loads(found)["patterns"])

    def remove(self) -> None:
        """Remove the files and replicas from the storage."""
        for device in self.nodes.devices:
            shutil.rmtree(folder_in(device), ignore_errors=True)
        for file in self.files:
            file.unlink(missing_ok=True)

    def run(self, contestant: str, *options: object, reads: bool = False, **hints: object) -> Run:
        """One run, with nothing in memory, and hints besides the contestant's; a wrong byte is an error."""
        self.nodes.drop_caches()
        if not reads:
            self.signature += 1
            options += ("--writeFile",)
            # A sync would begin the lease's write-back; its close makes the bytes durable, as E10's does.
            options += ("--fsync",) if contestant in NATIVE else ()
            options += () if contestant in CACHED else ("--deadlineForStonewalling", DEADLINE)
        command = self._program(*options, "--setTimeStampSignature", self.signature)
        hints = {"e10_cache_path": self.nodes.cache, **hints}
        further = [word for key, value in hints.items() for word in ("--hint", f"{key}={value}")]
        if contestant in NATIVE:
            said = output_of(command, self._variables(contestant))
        elif contestant == LEASE:
            said = self._pdla(contestant, "run", "--json", "--writes", "lease", "--", *command)
        else:
            cluster = "--cluster", self.directory / "nodes.toml"
            said = self._pdla(contestant, "run", "--json", "--policy", "e10", *cluster, *further, "--", *command)
        lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        result, report = lines[0], lines[-1]
        with self.nodes.unlimited():
            if contestant == LEASE:
                self._pdla(contestant, "sync")
            found = sum(bytes_of(file, self.case.size, self.signature) for file in self.files)
        if found != result["bytes"]:
            raise RuntimeError(f"{contestant} of {self.case.title} wrote {result['bytes']} bytes, not {found}")
        return Run(result["files"], result["elapsed"], result["bytes"], result["memory"] * KiB, report)

    def _program(self, *options: object) -> list[str]:
        """The command of all ranks, neighbours on the same node."""
        own = (*self.case.options, "--collective", "--useFileView", "--files", self.case.files, *options)
        program = [str(self.programs / self.case.program), *map(str, own)]
        command = [str(BINARIES / "mpiexec")]
        for number, (node, ranks) in enumerate(groupby(range(self.case.ranks), self._node)):
            share = ["-n", str(len(list(ranks))), *self.nodes.launch[node], *program]
            share += ["--testFile", str(self.nodes.originals / "file")]
            command += [":", *share] if number else share
        return command

    def _node(self, rank: int) -> int:
        return rank * len(self.nodes.launch) // self.case.ranks

    def _variables(self, contestant: str) -> dict[str, str]:
        home, hints = self.directory / f"home-{contestant}", self.directory / contestant
        return SHARED_PROCESSORS | {"PDLA_HOME": str(home), "ROMIO_HINTS": str(hints)}

    def _pdla(self, contestant: str, *words: object) -> str:
        return output_of([BINARIES / "pdla", *map(str, words)], self._variables(contestant))
