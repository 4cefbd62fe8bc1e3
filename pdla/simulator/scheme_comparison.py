"""Simulate all schemes: which one would help a program, by how much, and at what cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pdla.analyzers.analysis import Analysis, analyze
from pdla.analyzers.dependence import pattern_dependences
from pdla.analyzers.rank_scaling import Scaling
from pdla.errors import ConfigError
from pdla.model import Cluster, Plan
from pdla.policies import make_online, online_names, policy_names
from pdla.policies.plan import RedirectedWrites
from pdla.simulator.online import simulate_online
from pdla.simulator.run import Result, simulate
from pdla.simulator.schemes import BASELINES, Scheme, check_scheme, scheme_names
from pdla.simulator.verification import verified_plan
from pdla.simulator.workload import Workload, from_signatures, from_trace
from pdla.traces.trace import Trace

_BASELINES = {scheme.name: scheme for scheme in BASELINES}


@dataclass(frozen=True)
class Program:
    """What is simulated: the ranks' calls, and what the planner must know about them.

    ``dependences`` are those of each signature; in a program that was scaled, each signature has
    all of them.
    """

    command: str
    workload: Workload
    analysis: Analysis
    dependences: tuple[int, ...]

    @classmethod
    def of(cls, trace: Trace) -> Program:
        """A traced program."""
        analysis = analyze(trace)
        return cls(trace.command, from_trace(trace), analysis, tuple(pattern_dependences(analysis, trace.accesses())))

    def scaled(self, scaling: Scaling, ranks: int) -> Program:
        """The same program on another number of ranks, without the time between its calls.

        Raises:
            PdlaError: the traces behind ``scaling`` do not determine it.
        """
        signatures = scaling.at(ranks)
        requests, size = sum(one.requests for one in signatures), sum(one.bytes for one in signatures)
        together = 0
        for flags in self.dependences:
            together |= flags
        return replace(
            self,
            workload=from_signatures(signatures, ranks),
            analysis=Analysis(signatures, (), requests, size),
            dependences=(together,) * len(signatures),
        )


@dataclass(frozen=True)
class Absent:
    """A scheme that cannot be simulated on a cluster, and why."""

    scheme: str
    why: str


@dataclass(frozen=True)
class Contest:
    """The results of the schemes on one cluster; schemes that it cannot have are ``absent``."""

    results: tuple[Result, ...]
    absent: tuple[Absent, ...] = ()

    @classmethod
    def of(cls, found: Sequence[Result | Absent]) -> Contest:
        """What was found of each scheme."""
        return cls(
            tuple(one for one in found if isinstance(one, Result)),
            tuple(one for one in found if isinstance(one, Absent)),
        )

    @cached_property
    def none(self) -> Result | None:
        """The result of the program as it is."""
        return next((result for result in self.results if result.scheme == "none"), None)

    def speedup(self, result: Result) -> float | None:
        """How many times as fast as the program as it is, if that was simulated."""
        return self.none.seconds / result.seconds if self.none and result.seconds else None


def contest(
    program: Program,
    cluster: Cluster,
    names: Sequence[str] = (),
    *,
    open_loop: bool = False,
    seed: int = 0,
    progress: Callable[[str, float, float], None] | None = None,
) -> Contest:
    """Simulate ``names``, or all that the cluster has the pools for.

    ``progress`` is called with the name of the work, the schemes done and their number.

    Raises:
        ConfigError: one of ``names`` is unknown, or cannot be simulated on this cluster.
    """
    found: list[Result | Absent] = []
    schemes = names or scheme_names()
    for name in schemes:
        if progress:
            progress("simulating", len(found), len(schemes))
        found.append(attempt(program, cluster, name, required=bool(names), open_loop=open_loop, seed=seed))
    return Contest.of(found)


def attempt(
    program: Program, cluster: Cluster, name: str, *, required: bool, open_loop: bool = False, seed: int = 0
) -> Result | Absent:
    """Simulate one scheme, or say why the cluster cannot have it.

    Raises:
        ConfigError: it is ``required``, but is unknown or cannot be simulated on this cluster.
    """
    try:
        return simulate_scheme(program, cluster, name, open_loop=open_loop, seed=seed)
    except ConfigError as error:
        if required:
            raise
        return Absent(name, str(error))


def simulate_scheme(program: Program, cluster: Cluster, name: str, *, open_loop: bool = False, seed: int = 0) -> Result:
    """Simulate one scheme.

    Raises:
        ConfigError: the scheme is unknown, or cannot be simulated on this cluster.
    """
    workload = program.workload
    if name in _BASELINES:
        return simulate(workload, cluster, _BASELINES[name], open_loop=open_loop, seed=seed)
    if name in policy_names() and name not in online_names():
        return simulate(workload, cluster, Scheme(name), _plan(program, cluster, name), open_loop=open_loop, seed=seed)
    check_scheme(name)
    return simulate_online(workload, cluster, make_online(name), Scheme(name), open_loop=open_loop, seed=seed)


def _plan(program: Program, cluster: Cluster, policy: str) -> Plan:
    return verified_plan(
        program.analysis,
        cluster,
        policy,
        program.command,
        workload=lambda: program.workload,
        writes=RedirectedWrites(program.dependences),
    )
