"""The cost model's accuracy: its seconds for random programs on the papers' clusters, compared with simulated ones.

    python -m benchmarks.model_accuracy [PROGRAMS [SEED]]

For every pattern of the programs, and every way to serve it that storage can hold, this compares the
model's seconds with those of the pattern alone in the simulator, which judge plans
(pdla.simulator.verification). It prints how far the model is off (an error of 25 % is a ratio of 1.25 or
of 1/1.25), by what is served from where, and in how many pairs of candidates the faster one costs less.
It adds rows to build/bench.json.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from benchmarks.random_programs import Case, random_case
from benchmarks.results import keep
from pdla.accessmap import AccessMap
from pdla.errors import PdlaError
from pdla.layouts.candidates import candidates
from pdla.model import Candidate
from pdla.policies import get_policy
from pdla.simulator.verification import Judge

PROGRAMS = 100
UNLIMITED = 1e9  # seconds to simulate
ALIKE = 0.1
"""Candidates whose simulated seconds differ by less than this share have no order."""


@dataclass(frozen=True)
class Compared:
    """The candidates of a pattern that were costed and simulated: ``ratios`` are modelled over simulated seconds."""

    cluster: str
    op: str
    candidates: tuple[Candidate, ...]

    @property
    def ratios(self) -> list[float]:
        """One for each candidate."""
        return [one.cost.total / one.seconds for one in self.candidates]

    @property
    def orders(self) -> list[bool]:
        """For each two candidates that are not alike, whether the model orders them as the simulator does."""
        return [
            (a.cost.total > b.cost.total) == (a.seconds > b.seconds)
            for a, b in itertools.combinations(self.candidates, 2)
            if abs(a.seconds - b.seconds) > ALIKE * max(a.seconds, b.seconds)
        ]


def compared(case: Case) -> Iterator[Compared]:
    """The patterns of a program, each with its candidates."""
    analysis = case.program.analysis
    judge = Judge(case.cluster, analysis, lambda: case.program.workload, case.leased, UNLIMITED)
    pools, hybrids = get_policy("auto").spaces(case.cluster)
    for signature in analysis.signatures:
        try:
            size = AccessMap.from_signature(signature).size
        except PdlaError:  # irregular: not planned for
            continue
        waited = 0.0 if case.leased else None
        found = candidates(signature, size, case.cluster, pools, hybrids, waited)
        found = tuple(one for one in found if one.layout is None or not one.refused)
        simulated = judge.candidates(signature, found)
        yield Compared(case.cluster.source, signature.op, simulated)


def kind(one: Candidate) -> str:
    """What is measured together."""
    if one.layout is None:
        return one.space
    return "disks and SSDs" if "+" in one.space else f"replica in {one.layout.name}"


def off(ratio: float) -> float:
    """How far a ratio is from 1, as a share: 0.25 for 1.25, and for 1/1.25."""
    return max(ratio, 1 / ratio) - 1


def line(name: str, ratios: Iterable[float]) -> str:
    """The errors of some candidates."""
    ratios = list(ratios)
    errors = sorted(map(off, ratios))
    nine = errors[int(0.9 * (len(errors) - 1))]
    return (
        f"{name:32}{len(errors):7,}{statistics.median(errors):9.0%}{nine:8.0%}{1 + errors[-1]:9.2f}"
        f"{statistics.median(ratios):9.2f}{min(ratios):9.2f}{max(ratios):9.2f}"
    )


def main() -> None:
    """Compare, print, write."""
    programs = int(sys.argv[1]) if len(sys.argv) > 1 else PROGRAMS
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    report([one for seed in range(first, first + programs) for one in compared(random_case(seed))])


def report(found: list[Compared]) -> None:
    """Print the errors by kinds, and keep those of all."""
    each = [(of, one, ratio) for of in found for one, ratio in zip(of.candidates, of.ratios, strict=True)]
    groups: tuple[Callable[[Compared, Candidate], str], ...] = (
        lambda of, one: "all",
        lambda of, one: of.cluster,
        lambda of, one: f"{of.op}, {kind(one)}",
    )
    print(f"{'':32}{'number':>7}{'median':>9}{'90 %':>8}{'worst, x':>9}{'ratio':>9}{'least':>9}{'largest':>9}")
    for group in groups:
        names = sorted({group(of, one) for of, one, _ in each})
        for name in names:
            print(line(name, (ratio for of, one, ratio in each if group(of, one) == name)))
    orders = [right for of in found for right in of.orders]
    errors = [off(ratio) for _, _, ratio in each]
    print(f"{statistics.mean(error <= 1 for error in errors):.1%} within 2 times; ", end="")
    print(f"{statistics.mean(orders):.1%} of {len(orders):,} pairs in order")
    common = {"baseline": None, "ratio": None, "spread": None}
    keep(
        [
            {
                "name": "model: median error",
                "value": statistics.median(errors),
                "unit": "share",
                "goal": 0.25,
                **common,
            },
            {"name": "model: largest error", "value": 1 + max(errors), "unit": "times", "goal": 2.0, **common},
            {
                "name": "model: pairs in order",
                "value": statistics.mean(orders),
                "unit": "share",
                "goal": 0.97,
                **common,
            },
        ]
    )


if __name__ == "__main__":
    main()
