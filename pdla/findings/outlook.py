"""What remedies bring: the whole run, simulated as it is and with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from statistics import median

from pdla.errors import PdlaError
from pdla.findings.finding import Exchange, Prediction
from pdla.model import Cluster, Plan
from pdla.policies.cached_writes import CachedWrites
from pdla.policies.e10 import E10
from pdla.simulator.online import simulate_online
from pdla.simulator.run import simulate
from pdla.simulator.schemes import Scheme
from pdla.simulator.verification import AS_IT_IS, RATE, TOGETHER
from pdla.simulator.workload import Workload, from_trace
from pdla.traces.trace import Trace

SECONDS = 20.0
"""The budget for simulations, as ``pdla.simulator.verification.RATE`` counts them."""

ASKED = 50
"""So many times as long as others a simulation takes that asks a policy in Python at each request."""

INDEPENDENT = Scheme("sieving", collective=False)


LATE, SEEDS = 0.02, 9
"""Ranks are late with a call by a random time, this share of a call's on average: so many simulations differ in it.

More lateness would make I/O seem shorter: while a rank is late, the storage goes on, and nobody waits for it."""

Simulated = Callable[[Workload, Cluster, int], float]
"""Seconds of the slowest rank in a run on this storage, with this seed."""


class Outlook:
    """Simulates remedies until a budget is used up; then nothing is predicted any more.

    A remedy that is asked for again is not simulated again.
    """

    def __init__(self, trace: Trace, plan: Plan, requests: int) -> None:
        self._trace, self._plan, self._requests = trace, plan, requests
        self._left = SECONDS * RATE
        self._known: dict[str, tuple[float, ...] | None] = {}

    @property
    def has_replicas(self) -> bool:
        """Whether the plan has any."""
        return any(pattern.choice.layout for pattern in self._plan.patterns)

    def replicas(self) -> Prediction | None:
        """The replicas of the plan; None if there are none. Calls that they serve exchange nothing."""
        served = {pattern.signature.collective for pattern in self._plan.patterns if pattern.choice.layout}
        exchange: Exchange = "goes" if True in served else "stays"
        return self._against_now("replicas", _by_scheme(AS_IT_IS, self._plan), exchange) if served else None

    def collective(self) -> Prediction | None:
        """All independent calls made collective; None if it is not known how fast ranks exchange bytes."""
        known = self._cluster.exchange_seconds_per_byte > 0
        return self._against_now("together", _by_scheme(TOGETHER)) if known else None

    def independent(self) -> Prediction | None:
        """All collective calls made independent."""
        return self._against_now("apart", _by_scheme(INDEPENDENT), "goes")

    def e10(self) -> Prediction | None:
        """``pdla run --policy e10``; None if the storage has no pool for it."""
        return self._against_now(
            "e10",
            lambda run, cluster, seed: simulate_online(run, cluster, E10(), Scheme("e10"), seed=seed).slowest,
            "goes",
        )

    def on_ssds(self, policy: type[CachedWrites], op: str) -> Prediction | None:
        """``pdla run`` with a policy that has bytes on SSD servers; None if the storage has none, and for reads, which
        are served only by later runs."""

        def simulated(run: Workload, cluster: Cluster, seed: int) -> float:
            return simulate_online(run, cluster, policy(), Scheme(policy.name), seed=seed).slowest

        return self._against_now(policy.name, simulated, times=ASKED) if op == "write" else None

    def aligned(self) -> Prediction | None:
        """Replicas if the plan has any; otherwise collective calls."""
        return self.replicas() or self.collective()

    def changed(
        self,
        before: Callable[[Cluster], Cluster],
        after: Callable[[Cluster], Cluster],
        exchange: Exchange = "stays",
    ) -> Prediction | None:
        """One description of the storage, or of the MPI library's hints, against another."""
        seconds = [self._as_it_is(change(self._cluster)) for change in (before, after)]
        return self._gain(seconds[0], seconds[1], exchange)

    @property
    def _cluster(self) -> Cluster:
        return self._plan.cluster

    def _against_now(
        self, name: str, simulated: Simulated, exchange: Exchange = "stays", times: int = 1
    ) -> Prediction | None:
        after = self._seconds(name, self._cluster, simulated, times)
        return self._gain(self._as_it_is(self._cluster), after, exchange)

    def _as_it_is(self, cluster: Cluster) -> tuple[float, ...] | None:
        return self._seconds(repr(cluster), cluster, _by_scheme(AS_IT_IS))

    def _gain(
        self, before: tuple[float, ...] | None, after: tuple[float, ...] | None, exchange: Exchange
    ) -> Prediction | None:
        if not before or not after or not before[0]:
            return None
        spread = after[-1] / after[0] if after[0] else 1.0
        return Prediction(median(before), median(after), self._cluster.source, exchange, spread)

    def _seconds(self, name: str, cluster: Cluster, simulated: Simulated, times: int = 1) -> tuple[float, ...] | None:
        """Those of all seeds, sorted; None: there is no budget any more, or the storage lacks what it needs."""
        if name not in self._known:
            run, costs = self._run, self._requests * times * SEEDS
            affordable = costs <= self._left and run is not None
            self._left -= costs if affordable else 0
            try:
                self._known[name] = self._of_seeds(run, cluster, simulated) if affordable and run else None
            except PdlaError:
                self._known[name] = None
        return self._known[name]

    def _of_seeds(self, run: Workload, cluster: Cluster, simulated: Simulated) -> tuple[float, ...]:
        in_step = simulated(run, cluster, 0)
        calls = self._trace.records.loc[self._trace.records["op"] != "other", "rank"]
        late = LATE * in_step / max(int(calls.value_counts().max()), 1)
        storage = replace(cluster, jitter_seconds=max(cluster.jitter_seconds, late))
        return tuple(sorted([in_step, *(simulated(run, storage, seed) for seed in range(1, SEEDS))]))

    @cached_property
    def _run(self) -> Workload | None:
        try:
            return from_trace(self._trace)
        except PdlaError:  # more loops than the simulator takes, or no core
            return None


def _by_scheme(scheme: Scheme, plan: Plan | None = None) -> Simulated:
    return lambda run, cluster, seed: simulate(run, cluster, scheme, plan, seed=seed).slowest


def with_strips(strip: int) -> Callable[[Cluster], Cluster]:
    """The originals in strips of so many bytes."""
    return lambda cluster: replace(cluster, home_strip=strip)


def with_aggregators(number: int) -> Callable[[Cluster], Cluster]:
    """So many aggregators in collective calls (cb_nodes)."""
    return lambda cluster: replace(cluster, aggregators=number)


def with_buffer(size: int) -> Callable[[Cluster], Cluster]:
    """A buffer of so many bytes for each aggregator (cb_buffer_size)."""
    return lambda cluster: replace(cluster, collective_buffer=size)


def without_sieving(op: str) -> Callable[[Cluster], Cluster]:
    """No data sieving (romio_ds_read, romio_ds_write)."""
    return lambda cluster: replace(cluster, sieve_read=0) if op == "read" else replace(cluster, sieve_write=0)


def as_it_is(cluster: Cluster) -> Cluster:
    """The storage as it is described."""
    return cluster
