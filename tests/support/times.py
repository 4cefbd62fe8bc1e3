"""Where the time of the tests goes: a table by module, as a plugin of pytest (``make test-times``).

A row says how long a module took, for how long of that a processor worked for it (in the tests and in the processes
that had ended by then), how many processes its tests started, and how many of these were compilers. Ranks that
``mpiexec`` starts count for the time, not for the number.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.ready_pdla import served_time

COMPILERS = ("cc", "gcc", "g++", "clang", "mpicc", "mpicxx", "mpif90", "h5pcc", "gfortran")


@dataclass
class Cost:
    """What the tests of a module cost, in seconds and numbers."""

    tests: int = 0
    elapsed: float = 0.0
    processor: float = 0.0
    processes: int = 0
    compilers: int = 0

    def add(self, other: Cost) -> None:
        for name, more in asdict(other).items():
            setattr(self, name, getattr(self, name) + more)

    @property
    def waiting(self) -> float:
        return max(0.0, self.elapsed - self.processor)


class Times:
    """Measures in each process; the one that gave out the tests prints the sums."""

    def __init__(self) -> None:
        self.costs: dict[str, Cost] = defaultdict(Cost)
        self.current = Cost()
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            self.current.processes += 1
            self.current.compilers += Path(str(arguments[0])).name.split(".")[0] in COMPILERS

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.current = Cost(tests=1)
        began, worked = time.monotonic(), _processor_time()
        try:
            return (yield)
        finally:
            self.current.elapsed, self.current.processor = time.monotonic() - began, _processor_time() - worked
            self.costs[item.path.stem].add(self.current)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if output := getattr(session.config, "workeroutput", None):
            output["times"] = {name: asdict(cost) for name, cost in self.costs.items()}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for name, cost in getattr(node, "workeroutput", {}).get("times", {}).items():
            self.costs[name].add(Cost(**cost))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("where the time goes")
        for line in table(self.costs):
            terminalreporter.line(line)


def _processor_time() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used) + served_time()


def table(costs: dict[str, Cost]) -> Sequence[str]:
    """The costs, the highest first, and their sum."""
    total = Cost()
    for cost in costs.values():
        total.add(cost)
    rows = sorted(costs.items(), key=lambda row: -row[1].processor)
    head = f"{'module':<28}{'tests':>6}{'seconds':>9}{'processor':>10}{'waiting':>9}{'processes':>10}{'compilers':>10}"
    return [
        head,
        *(
            f"{name:<28}{one.tests:>6}{one.elapsed:>9.1f}{one.processor:>10.1f}{one.waiting:>9.1f}"
            f"{one.processes:>10}{one.compilers:>10}"
            for name, one in [*rows, ("all", total)]
        ),
    ]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Times(), "pdla-times")
