"""What remedies bring: the whole run, simulated as it is and with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from pdla.errors import PdlaError
from pdla.findings.finding import Prediction
from pdla.model import Cluster, Plan
from pdla.policies import make_online
from pdla.simulator.online import simulate_online
from pdla.simulator.run import simulate
from pdla.simulator.schemes import Scheme
from pdla.simulator.verification import AS_IT_IS, RATE, TOGETHER
from pdla.simulator.workload import Workload, from_trace
from pdla.traces.trace import Trace

SECONDS = 20.0
"""The budget for simulations, as ``pdla.simulator.verification.RATE`` counts them."""

INDEPENDENT = Scheme("sieving", collective=False)


class Outlook:
    """Simulates remedies until a budget is used up; then nothing is predicted any more.

    A remedy that is asked for again is not simulated again.
    """

    def __init__(self, trace: Trace, plan: Plan, requests: int) -> None:
        self._trace, self._plan, self._requests = trace, plan, requests
        self._left = SECONDS * RATE
        self._known: dict[str, float | None] = {}

    def replicas(self) -> Prediction | None:
        """The replicas of the plan; None if there are none."""
        chosen = any(pattern.choice.layout for pattern in self._plan.patterns)
        seconds = self._plan.simulated or (self._plan.predicted_before, self._plan.predicted_after)
        return self._gain(*seconds) if chosen else None

    def collective(self) -> Prediction | None:
        """All independent calls made collective."""
        return self._against_now("together", lambda run: simulate(run, self._cluster, TOGETHER).seconds)

    def independent(self) -> Prediction | None:
        """All collective calls made independent."""
        return self._against_now("apart", lambda run: simulate(run, self._cluster, INDEPENDENT).seconds)

    def policy(self, name: str) -> Prediction | None:
        """``pdla run --policy``; None if the storage has no pool for it."""
        scheme = Scheme(name)
        return self._against_now(
            name, lambda run: simulate_online(run, self._cluster, make_online(name), scheme).seconds
        )

    def aligned(self) -> Prediction | None:
        """Replicas if the plan has any; otherwise collective calls."""
        return self.replicas() or self.collective()

    def changed(self, before: Callable[[Cluster], Cluster], after: Callable[[Cluster], Cluster]) -> Prediction | None:
        """One description of the storage, or of the MPI library's hints, against another."""
        return self._gain(*(self._as_it_is(change(self._cluster)) for change in (before, after)))

    @property
    def _cluster(self) -> Cluster:
        return self._plan.cluster

    def _against_now(self, name: str, simulated: Callable[[Workload], float]) -> Prediction | None:
        return self._gain(self._as_it_is(self._cluster), self._seconds(name, simulated))

    def _as_it_is(self, cluster: Cluster) -> float | None:
        return self._seconds(repr(cluster), lambda run: simulate(run, cluster, AS_IT_IS).seconds)

    def _gain(self, before: float | None, after: float | None) -> Prediction | None:
        return Prediction(before, after, self._cluster.source) if before and after is not None else None

    def _seconds(self, name: str, simulated: Callable[[Workload], float]) -> float | None:
        if name not in self._known:
            affordable = self._requests <= self._left and self._run is not None
            self._left -= self._requests if affordable else 0
            try:
                self._known[name] = simulated(self._run) if affordable and self._run else None
            except PdlaError:  # the storage lacks what the remedy needs
                self._known[name] = None
        return self._known[name]

    @cached_property
    def _run(self) -> Workload | None:
        try:
            return from_trace(self._trace)
        except PdlaError:  # more loops than the simulator takes, or no core
            return None


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
