"""The contestants of the bench: ways to serve a program, by methods of the MPI library and by pdla's plans."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import (
    COLLECTIVE,
    INDEPENDENT,
    LEASES,
    NS_PDLA,
    PD,
    REPLICATED,
    S_LEASE,
    S_ORIG,
    S_PDLA,
    SIEVING,
    Case,
)
from benchmarks.processes import output_of
from benchmarks.storage import STRIP, Counted, Storage
from pdla.policies.planfile import plan_from_json
from pdla.replicator.backends.base import folder_in
from pdla.units import MiB

BINARIES = Path(sys.executable).parent
SOURCES = Path(__file__).parent / "workloads"
FILE = "original"
HINTS = {
    INDEPENDENT: {"romio_ds_read": "disable", "romio_ds_write": "disable"},
    SIEVING: {"romio_ds_read": "enable", "romio_ds_write": "enable"},
    COLLECTIVE: {"romio_cb_read": "enable", "romio_cb_write": "enable"},
}
"""Hints of ROMIO. Only hints change programs, and calls through a view if a program has a call for each piece."""
THROUGH_VIEWS = ("--useFileView", "--bufferSize", str(4 * MiB))
"""A call of one rank fills ROMIO's buffer for sieving; a call of four ranks together fills an aggregator's."""
SHARED_PROCESSORS = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1", "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}
"""Make MPICH's waiting ranks yield the processors to working ones: there are fewer processors than ranks here."""
DEADLINE = 3
"""Seconds after which calls stop (IOR's -D), collective ones together: a slow contestant makes only some calls."""
WORD, SPREAD = np.uint64(0x9E3779B97F4A7C15), 0xC2B2AE3D27D4EB4F  # as in workload.c
CHUNK = 2 * MiB  # words


@dataclass(frozen=True)
class Run:
    """The result of one run of a contestant."""

    rate: float
    """Bytes/s, from before the open until after the close."""
    inside: float
    """Bytes/s within the calls that move bytes, of the rank that spent the longest time in them."""
    devices: Sequence[Counted]
    """The requests of each server, or device."""
    bytes: int
    redirected: int
    """Bytes that came from replicas."""


def compile_programs(directory: Path, names: Iterable[str]) -> None:
    """Compile workloads."""
    compiler = BINARIES / "mpicc"
    if not compiler.exists():
        raise RuntimeError(f"programs are compiled by MPICH's {compiler}, which does not exist: make .venv/demo-ready")
    for name in names:
        output_of([compiler, "-O2", SOURCES / f"{name}.c", SOURCES / "workload.c", "-o", directory / name])


class Experiment:
    """One case on one storage: its files, plans and replicas, in ``directory``."""

    def __init__(self, storage: Storage, case: Case, programs: Path, directory: Path) -> None:
        self.storage, self.case, self.programs, self.directory = storage, case, programs, directory
        self.planned: dict[tuple[str, ...], str] = {}  # by what was asked for
        self.plans: dict[str, dict[str, Any]] = {}
        self.homes: dict[str, Path] = {}  # the PDLA_HOME of each contestant; equal plans share their replicas
        self.signature = 0
        placed = {self._node(rank) for rank in range(case.ranks)}
        # ROMIO's default is an aggregator per node; but it takes nodes of the same host name for
        # one node.
        aggregators = {"cb_config_list": "*:*", "cb_nodes": str(len(placed))}
        for how, hints in HINTS.items():
            given = hints | (aggregators if how == COLLECTIVE else {})
            (directory / how).write_text("".join(f"{key} {value}\n" for key, value in given.items()))

    def prepare(self, contestants: Sequence[str]) -> None:
        """Make the originals, trace the program while they are in memory, plan, and build the replicas."""
        (self.directory / "cluster.toml").write_text(self.storage.cluster)
        for kind, where in self.storage.nodes[0].originals.items():
            if kind == "hdd" or S_ORIG in contestants:
                self.storage.place(kind, where / FILE, self.case.size)
                fill(where / FILE, self.case.size)
        wanted = [one for one in REPLICATED if one in contestants]
        if wanted:
            program = self._program("hdd", ("--writeFile",) if self.case.op == "write" else ())
            self._pdla("traced", "trace", "-o", self._trace, "--", *program, hints=INDEPENDENT)
        for one in wanted:
            self.plans[one] = plan = self._plan(one)
            same = [other for other in self.homes if self.plans[other] == plan]
            self.homes[one] = self.homes[same[0]] if same else self.directory / f"home-{one}"
            if not same:
                file = self.directory / f"{one}.json"
                file.write_text(json.dumps(plan))
                self._pdla(one, "replicate", file)

    def remove(self) -> None:
        """Remove the files on the storage."""
        for plan in self.plans.values():
            for where in (Path(one) for pool in plan["cluster"]["pools"] for one in pool["where"]):
                shutil.rmtree(folder_in(where), ignore_errors=True)
        for where in self.storage.nodes[0].originals.values():
            (where / FILE).unlink(missing_ok=True)

    def run(self, contestant: str) -> Run:
        """One run, with nothing in memory; a wrong byte is an error."""
        self.storage.drop_caches()
        before = self.storage.counted()
        command = self._program("ssd" if contestant == S_ORIG else "hdd", self._arguments(contestant))
        hints = contestant if contestant in HINTS else INDEPENDENT
        if contestant in REPLICATED:
            said = self._pdla(contestant, "run", "--json", *self._writes(contestant), "--", *command, hints=hints)
        else:
            said = output_of(command, self._variables(contestant, hints))
        after = self.storage.counted()
        lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        result, report = lines[0], lines[-1] if contestant in REPLICATED else {}
        if contestant in LEASES:
            with self.storage.unlimited():
                self._pdla(contestant, "sync")
        if self.case.op == "write":
            with self.storage.unlimited():
                self._check(contestant, result["bytes"])
        redirected = report.get("redirected_bytes", 0) + sum(
            one["redirected_bytes"] for one in report.get("writes", [])
        )
        devices = [after[one].since(before[one]) for one in after]
        moved = result["bytes"]
        return Run(moved / result["seconds"], moved / result["inside"], devices, moved, redirected)

    def traced(self, contestant: str) -> Path:
        """The trace of one run by a method of the MPI library."""
        program = self._program("hdd", self._arguments(contestant))
        self._pdla("traced", "trace", "-o", self._trace, "--", *program, hints=contestant)
        return self._trace

    def parts(self, contestant: str) -> list[tuple[int, str]]:
        """The bytes of each pattern, and their pools: the original's are on the disks, in S-ORIG on the SSDs."""
        if contestant not in REPLICATED:
            return [(self.case.accessed, "ssd" if contestant == S_ORIG else "hdd")]
        chosen = [(one.signature.bytes, one.choice) for one in plan_from_json(self.plans[contestant]).patterns]
        return [(size, one.space if one.layout else "hdd") for size, one in chosen] or [(self.case.accessed, "hdd")]

    def layouts(self, contestant: str) -> str:
        """The layouts of a contestant's replicas, in words."""
        return ", ".join(sorted({f"{one['layout']} on {one['space']}" for one in self._chosen(contestant)}))

    def _chosen(self, contestant: str) -> list[dict[str, Any]]:
        """The replicas of a contestant's plan."""
        chosen = [pattern["candidates"][pattern["chosen"]] for pattern in self.plans[contestant]["patterns"]]
        return [one for one in chosen if one["layout"]]

    @property
    def _trace(self) -> Path:
        return self.directory / "run.h5"

    def _arguments(self, contestant: str) -> tuple[str, ...]:
        arguments = () if self.case.sizes else ("--deadlineForStonewalling", str(DEADLINE))
        if contestant in (SIEVING, COLLECTIVE):
            arguments += THROUGH_VIEWS
        if contestant == COLLECTIVE:
            arguments += ("--collective",)
        if self.case.op == "write":
            self.signature += 1
            arguments += ("--writeFile", "--setTimeStampSignature", str(self.signature))
            # The close makes the bytes under a lease durable; a sync would begin their write-back.
            arguments += () if contestant in LEASES and self._chosen(contestant) else ("--fsync",)
        return arguments

    def _program(self, kind: str, arguments: Sequence[str]) -> list[str]:
        """The command of all ranks, neighbours on the same node."""
        program = [str(self.programs / self.case.program), *self.case.options, *arguments, "--testFile"]
        command = [str(BINARIES / "mpiexec")]
        for number, (place, ranks) in enumerate(groupby(range(self.case.ranks), self._node)):
            node = self.storage.nodes[place]
            share = ["-n", str(len(list(ranks))), *node.launch, *program, str(node.originals[kind] / FILE)]
            command += [":", *share] if number else share
        return command

    def _node(self, rank: int) -> int:
        """The node of a rank."""
        return rank * len(self.storage.nodes) // self.case.ranks

    def _variables(self, contestant: str, hints: str) -> dict[str, str]:
        home = self.homes.get(contestant, self.directory / "home")
        return SHARED_PROCESSORS | {"PDLA_HOME": str(home), "ROMIO_HINTS": str(self.directory / hints)}

    def _pdla(self, contestant: str, *words: object, hints: str = INDEPENDENT) -> str:
        return output_of([BINARIES / "pdla", *map(str, words)], self._variables(contestant, hints))

    def _plan(self, contestant: str) -> dict[str, Any]:
        """The planner's plan; for PD and NS-PDLA the paper's, whatever it costs."""
        policy = "pdla-s" if contestant in (S_PDLA, NS_PDLA, S_LEASE) else "pdla-h"
        asked = ("--policy", policy, *self._writes(contestant))
        if asked not in self.planned:
            cluster = self.directory / "cluster.toml"
            self.planned[asked] = self._pdla("planned", "plan", self._trace, "--cluster", cluster, *asked, "--json")
        plan: dict[str, Any] = json.loads(self.planned[asked])
        if contestant == PD:
            _choose(plan, _default_layout)
        elif contestant == NS_PDLA:
            _choose(plan, _best_on_ssd)
        return plan

    def _writes(self, contestant: str) -> tuple[str, ...]:
        """When the write-back of a contestant's redirected writes happens."""
        if self.case.op == "read":
            return ()
        return ("--writes", "lease" if contestant in LEASES else "close")

    def _check(self, contestant: str, written: int) -> None:
        """Check that the original has what the program reports as written, and everywhere else its earlier bytes."""
        path = self.storage.nodes[0].originals["ssd" if contestant == S_ORIG else "hdd"] / FILE
        found = bytes_of(path, self.case.size, self.signature)
        if found != written:
            raise RuntimeError(f"{contestant} of {self.case.title} wrote {written} bytes, but the file has {found}")


def bytes_of(path: Path, size: int, signature: int) -> int:
    """How many bytes of a file are of this signature; all others are of earlier ones, or of fill().

    Raises:
        RuntimeError: they are not.
    """
    inverse, found = np.uint64(pow(SPREAD, -1, 1 << 64)), 0
    for start in range(0, size // 8, CHUNK):
        words = np.fromfile(path, np.uint64, min(CHUNK, size // 8 - start), offset=start * 8)
        signs = (words ^ _content(start, len(words))) * inverse
        if int(signs.max(initial=0)) > signature:
            raise RuntimeError(f"{path.name} has bytes that nobody wrote after {start * 8}")
        found += 8 * int(np.count_nonzero(signs == np.uint64(signature)))
    return found


def fill(path: Path, size: int) -> None:
    """Write to every word of a file where it is."""
    with path.open("r+b") as file:
        for start in range(0, size // 8, CHUNK):
            _content(start, min(CHUNK, size // 8 - start)).tofile(file)


def _content(start: int, count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.arange(start + 1, start + 1 + count, dtype=np.uint64) * WORD


def _choose(plan: dict[str, Any], candidate: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> None:
    """Give every pattern of a plan a replica."""
    for pattern in plan["patterns"]:
        chosen = candidate(pattern["candidates"])
        chosen["refused"] = None
        pattern["chosen"] = pattern["candidates"].index(chosen)


def _default_layout(candidates: list[dict[str, Any]]) -> dict[str, Any]:
    """The layout of the original: over all servers, in strips of 64 KiB."""
    found = next(one for one in candidates if one["space"] == "hdd" and one["layout"] == "1-DH")
    found["strips"] = [STRIP] * found["servers"]
    return found


def _best_on_ssd(candidates: list[dict[str, Any]]) -> dict[str, Any]:
    """The cheapest layout on SSDs only, whether it gains anything or not."""
    return min((one for one in candidates if one["space"] == "ssd"), key=lambda one: float(one["seconds"]["total"]))
