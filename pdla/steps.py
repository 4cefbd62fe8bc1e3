"""Steps from a trace to what is done about it, for the command line and for scripts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

from pdla.analyzers.analysis import PHASES, Analysis, analyze
from pdla.analyzers.aspects import Aspects, describe
from pdla.analyzers.dependence import write_dependences
from pdla.analyzers.phases import Phases, find_phases, write_phases
from pdla.answers import ensure_answers
from pdla.catalog import Catalog, Occurrence, Run, open_catalog
from pdla.catalog.records import Recorded
from pdla.collectors.tracefile import fingerprint, read_trace
from pdla.findings import Finding, Seen, found_in
from pdla.layouts.config import load_cluster
from pdla.model import Cluster, Plan
from pdla.policies.plan import Limits, RedirectedWrites
from pdla.replicator.backends import obstacles
from pdla.replicator.backends.originals import home_of
from pdla.simulator.scheme_comparison import Contest, Program, contest
from pdla.simulator.verification import SECONDS, verified_plan
from pdla.simulator.workload import from_trace
from pdla.traces.trace import Trace

Storage = Cluster | str | os.PathLike[str] | None
"""A cluster, the path of a cluster.toml, or the name of an example; None: the built-in default."""


def plan(
    trace: Trace,
    cluster: Storage = None,
    policy: str = "auto",
    *,
    selection: str = "optimal",
    writes: Literal["original", "close", "lease"] = "original",
    seconds: float = SECONDS,
    hypothetical: bool = False,
    analysis: Analysis | None = None,
    progress: Callable[[str, float, float], None] | None = None,
) -> Plan:
    """What to replicate of the files of a trace, where, and why, as ``pdla plan`` chooses it.

    Args:
        trace: a run of the program.
        cluster: the storage: a cluster, the path of a cluster.toml, or the name of an example;
            None: the built-in default.
        policy: the policy that chooses the replicas.
        selection: how to choose if there is not enough space for all: "optimal" or "greedy".
        writes: where ``pdla run --writes`` will send writes.
        seconds: the budget for simulations of what the cost model proposes; 0: the cost model alone
            decides.
        hypothetical: plan as if the files of the trace existed and no other replicas took space.
        analysis: the signatures of the trace, if they are known already.
        progress: called with the name of the work, the amount done, and the total amount.

    Raises:
        ConfigError: an unknown policy or selection, or a cluster that cannot be used.
        PdlaError: the catalog cannot be used, or the storage of an original or a pool does not answer.
    """
    analysis = analysis or analyze(trace)
    storage = _storage(cluster)
    ensure_answers(
        [one.file for one in analysis.signatures] + [where for pool in storage.pools for where in pool.where]
    )
    storage = home_of(storage, _by_bytes(analysis))
    redirected = None
    if writes != "original":
        phases = write_phases(trace) if writes == "lease" else None
        redirected = RedirectedWrites(write_dependences(analysis, trace), phases)
    limits = Limits() if hypothetical else Limits(open_catalog().replicas.find(), missing_files(analysis))
    return verified_plan(
        *(analysis, storage, policy, trace.command),
        workload=partial(from_trace, trace),
        seconds=seconds,
        selection=selection,
        writes=redirected,
        leased=writes == "lease",
        limits=replace(limits, obstacle=obstacles()),
        progress=progress,
    )


def missing_files(analysis: Analysis) -> list[str]:
    """The files that the program reads and that no longer exist.

    Raises:
        PdlaError: the storage of one does not answer.
    """
    read = dict.fromkeys(one.file for one in analysis.signatures if one.op == "read")
    ensure_answers(read)
    return [path for path in read if not os.path.lexists(path)]


class Findings(tuple[Finding, ...]):
    """The findings of a run, the one that is expected to save most first; ``seen`` is the run."""

    seen: Seen

    @classmethod
    def of(cls, seen: Seen) -> Findings:
        """The findings of this run."""
        found = cls(found_in(seen))
        found.seen = seen
        return found


def diagnose(
    trace: Trace, cluster: Storage = None, *, planned: Plan | None = None, trace_file: str = "RUN.h5"
) -> Findings:
    """What costs time in a run, why, what to do about it, and what that would bring, as ``pdla report`` says it.

    Args:
        trace: the run.
        cluster: the storage on which remedies are simulated: a cluster, the path of a cluster.toml,
            or the name of an example; None: the built-in default.
        planned: the plan for the run, if it is made already; ``cluster`` is then that of the plan.
        trace_file: what the commands call the trace.

    Raises:
        ConfigError: a cluster that cannot be used.
    """
    return Findings.of(Seen(trace, planned or plan(trace, cluster, hypothetical=True), trace_file))


def simulate(
    trace: Trace, cluster: Storage = None, schemes: Sequence[str] = (), *, open_loop: bool = False, seed: int = 0
) -> Contest:
    """The program of a trace with known schemes for parallel I/O, on simulated storage, as ``pdla simulate`` does it.

    Args:
        trace: a run of the program.
        cluster: the storage: a cluster, the path of a cluster.toml, or the name of an example;
            None: the built-in default.
        schemes: their names, or ``FILE.py:CLASS`` for a policy of your own; none: all that the
            cluster can have.
        open_loop: begin calls at the trace's times, not after the previous call.
        seed: of random rotation.

    Raises:
        ConfigError: an unknown scheme, one of ``schemes`` that the cluster cannot have, or a cluster
            that cannot be used.
    """
    storage = home_of(_storage(cluster), map(str, trace.files["path"]))
    return contest(Program.of(trace), storage, schemes, open_loop=open_loop, seed=seed)


def add_run(path: str | os.PathLike[str], catalog: Catalog | None = None) -> Recorded:
    """Analyze the trace in ``path``, and record the run and its patterns in a catalog, as ``pdla analyze`` does.

    ``catalog`` is that of ``open_catalog()`` by default. New patterns enter the replication queue. A
    run that the catalog has already is replaced.

    Raises:
        PdlaError: it is not a trace, or the catalog cannot be used.
    """
    trace = read_trace(path)
    analysis, phases = analyze(trace), find_phases(trace)
    return record_run(Path(path), trace, analysis, describe(trace, analysis, phases), phases, catalog)


def record_run(
    path: Path,
    trace: Trace,
    analysis: Analysis,
    aspects: Sequence[Aspects],
    phases: Phases,
    catalog: Catalog | None = None,
) -> Recorded:
    """As ``add_run``, of a trace that is analyzed already; ``trace`` may be without its calls.

    Raises:
        PdlaError: the catalog cannot be used.
    """
    run = Run(
        command=trace.command,
        ranks=trace.ranks,
        trace=fingerprint(path),
        path=str(path.absolute()),
        source=trace.source,
        started=datetime.fromtimestamp(trace.started, UTC) if trace.started else None,
        mpi=trace.mpi,
        hosts=trace.hosts,
        environment=trace.environment,
        files=tuple(map(str, trace.files["path"])),
        requests=analysis.requests,
        bytes=analysis.bytes,
    )
    found = [
        Occurrence(signature, of_signature.to_json())
        for signature, of_signature in zip(analysis.signatures, aspects, strict=True)
    ]
    return (catalog or open_catalog()).runs.record(run, found, phases.phases[:PHASES])


def _storage(cluster: Storage) -> Cluster:
    if isinstance(cluster, Cluster):
        return cluster
    return load_cluster(None if cluster is None else Path(cluster), originals=True)


def _by_bytes(analysis: Analysis) -> list[str]:
    """The files of patterns, those of which the most bytes are moved first."""
    moved: dict[str, float] = {}
    for one in analysis.signatures:
        moved[one.file] = moved.get(one.file, 0.0) + analysis.share(one).bytes
    return sorted(moved, key=lambda file: -moved[file])
