"""Findings: each kind is found in a run that has just this fault, and not in its twin that does not have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from pdla.analyzers.analysis import analyze
from pdla.findings import find
from pdla.findings.draft import Draft
from pdla.findings.finding import HARMED, KINDS, Finding, Prediction
from pdla.findings.outlook import Outlook
from pdla.findings.seen import Seen, union
from pdla.layouts.config import load_cluster
from pdla.simulator.run import simulate
from pdla.simulator.verification import AS_IT_IS, verified_plan
from pdla.simulator.workload import from_trace
from pdla.traces.file_views import View
from pdla.traces.tables import DOUBTS, POSIX_COLUMNS, files_frame, records_frame
from pdla.traces.trace import Trace
from pdla.units import KiB, MiB

CLUSTER = load_cluster("pdla")  # several servers with strips of 64 KiB, and SSDs


class Call(NamedTuple):
    """``kind`` without MPI_File_; ``seconds`` from ``begin`` on."""

    rank: int
    kind: str
    offset: int
    length: int
    begin: float
    seconds: float = 1e-3
    file: str = "/data/a"


def run(
    calls: Iterable[Call], *, seconds: float = 0.0, posix: Sequence[tuple[int, int, str, int, float]] = ()
) -> Trace:
    """A trace of these calls. ``posix`` are (rank, call, op, length, seconds) of what the library made in them."""
    calls = sorted(calls, key=lambda call: (call.rank, call.begin))
    paths = sorted({call.file for call in calls})
    ops = ["read" if "read" in call.kind else "write" if "write" in call.kind else "other" for call in calls]
    records = records_frame(
        {
            "rank": np.array([call.rank for call in calls]),
            "kind": pd.Categorical([f"MPI_File_{call.kind}" for call in calls]),
            "file": [paths.index(call.file) for call in calls],
            "op": pd.Categorical(ops, categories=["read", "write", "other"]),
            "collective": ["_all" in call.kind or "ordered" in call.kind for call in calls],
            "offset": [call.offset for call in calls],
            "length": [call.length for call in calls],
            "t_start": [call.begin for call in calls],
            "t_end": [call.begin + call.seconds for call in calls],
        }
    )
    ranks = max(call.rank for call in calls) + 1
    files = files_frame([{"path": path, "size": 1 << 30} for path in paths])
    trace = Trace(records, files, (View.plain(),), command="./app", ranks=ranks, seconds=seconds)
    if not posix:
        return trace
    first = np.searchsorted(records["rank"].to_numpy(), np.arange(ranks))
    rows = [first[rank] + call for rank, call, *_ in posix]
    table = {
        "rank": [one[0] for one in posix],
        "call": [one[1] for one in posix],
        "kind": pd.Categorical([f"p{one[2]}" for one in posix]),
        "file": records["file"].to_numpy()[rows],
        "op": pd.Categorical([one[2] for one in posix], categories=["read", "write", "other"]),
        "offset": records["offset"].to_numpy()[rows],
        "length": [one[3] for one in posix],
        "t_start": records["t_start"].to_numpy()[rows],
        "t_end": records["t_start"].to_numpy()[rows] + [one[4] for one in posix],
        "error": [0] * len(posix),
    }
    return replace(trace, posix=pd.DataFrame({name: table[name] for name in POSIX_COLUMNS}))


def findings(trace: Trace) -> dict[str, Finding]:
    analysis = analyze(trace)
    plan = verified_plan(analysis, CLUSTER, "auto", trace.command, workload=partial(from_trace, trace))
    return {one.kind: one for one in find(trace, plan)}


def loop(
    count: int,
    place: Callable[[int, int], int],
    length: int,
    kind: str = "read_at",
    *,
    ranks: int = 4,
    seconds: float = 1e-3,
    start: float = 0.0,
    file: str = "/data/a",
) -> list[Call]:
    """``count`` calls of each rank, one after the other; call i of a rank begins at byte ``place(rank, i)``."""
    return [
        Call(rank, kind, place(rank, i), length, start + i * seconds, seconds, file)
        for rank in range(ranks)
        for i in range(count)
    ]


def far(rank: int, i: int) -> int:
    """Each rank's own segment, in order, in large steps."""
    return rank * 256 * MiB + i * 4 * MiB


LARGE = loop(8, far, 4 * MiB)
STRIDED = loop(200, lambda rank, i: rank * 256 * MiB + i * 100 * KiB, 4 * KiB)

Twins = Mapping[str, tuple[Trace, Trace]]
TWINS: Twins = {
    "small-strided": (
        run(STRIDED),
        run(LARGE),
    ),
    "small": (
        run([*LARGE, Call(0, "read_at", 2 << 30, 512, 1.0, 5e-3)]),
        run([*LARGE, Call(0, "read_at", 2 << 30, 512, 1.0, 1e-5)]),
    ),
    "independent": (
        run(loop(100, lambda rank, i: (4 * i + rank) * 4 * KiB, 4 * KiB, "write_at")),
        run(loop(100, lambda rank, i: (4 * i + rank) * 4 * KiB, 4 * KiB, "write_at_all")),
    ),
    "interleaved": (
        run(loop(100, lambda rank, i: (4 * i + rank) * 256 * KiB, 256 * KiB)),
        run(loop(100, lambda rank, i: (100 * rank + i) * 256 * KiB, 256 * KiB)),
    ),
    "misaligned": (
        run(loop(50, lambda rank, i: rank * 256 * MiB + i * 64 * KiB + 32 * KiB, 64 * KiB)),
        run(loop(50, lambda rank, i: rank * 256 * MiB + i * 64 * KiB, 64 * KiB)),
    ),
    "fragments": (
        run(loop(50, lambda rank, i: rank * 256 * MiB + i * 128 * KiB, 65 * KiB)),
        run(loop(50, lambda rank, i: rank * 256 * MiB + i * 128 * KiB, 64 * KiB)),
    ),
    "imbalance": (
        run([*LARGE, *(one for one in loop(32, lambda rank, i: far(rank, i + 8), 4 * MiB, ranks=1))]),
        run(LARGE),
    ),
    "straggler": (
        run([call._replace(seconds=call.seconds * (10 if call.rank == 2 else 1)) for call in LARGE]),
        run(LARGE),
    ),
    "collective-useless": (
        run(
            loop(8, far, 4 * MiB, "write_at_all", seconds=1e-2),
            posix=[(rank, i, "write", 4 * MiB, 1e-3) for rank in range(4) for i in range(8)],
        ),
        run(
            loop(8, far, 4 * MiB, "write_at_all", seconds=1e-2),
            posix=[(rank, i, "write", 4 * MiB, 9.9e-3) for rank in range(4) for i in range(8)],
        ),
    ),
    "hints": (
        run(
            loop(8, lambda rank, i: (4 * i + rank) * 512 * KiB, 512 * KiB, "write_at_all", seconds=1e-1),
            posix=[(0, i, "write", 2 * MiB, 1e-3) for i in range(8)],
        ),
        run(
            loop(8, lambda rank, i: (4 * i + rank) * 512 * KiB, 512 * KiB, "write_at_all", seconds=1e-1),
            posix=[(rank, i, "write", 512 * KiB, 1e-3) for rank in range(4) for i in range(8)],
        ),
    ),
    "read-modify-write": (
        run(
            loop(50, lambda rank, i: rank * 256 * MiB + i * 8 * MiB, 2 * MiB, "write_at"),
            posix=[(rank, i, op, 4 * MiB, 4e-4) for rank in range(4) for i in range(50) for op in ("read", "write")],
        ),
        run(
            loop(50, lambda rank, i: rank * 256 * MiB + i * 8 * MiB, 2 * MiB, "write_at"),
            posix=[(rank, i, "write", 2 * MiB, 4e-4) for rank in range(4) for i in range(50)],
        ),
    ),
    "re-read": (run([*LARGE, *loop(8, far, 4 * MiB, start=1.0)]), run(LARGE)),
    "write-then-read": (
        run([*loop(8, far, 4 * MiB, "write_at"), *loop(8, far, 4 * MiB, start=1.0)]),
        # An update: each piece is read before it is written.
        run(
            [
                *loop(8, far, 4 * MiB, seconds=2e-3),
                *(call._replace(begin=call.begin + 1e-3) for call in loop(8, far, 4 * MiB, "write_at", seconds=2e-3)),
            ]
        ),
    ),
    "never-read": (
        run([*loop(8, far, 4 * MiB, "write_at"), *loop(8, far, 4 * MiB, "write_at", start=1.0)]),
        run(
            [
                *loop(8, far, 4 * MiB, "write_at"),
                *loop(8, far, 4 * MiB, start=1.0),
                *loop(8, far, 4 * MiB, "write_at", start=2.0),
            ]
        ),
    ),
    "shared-pointer": (
        run(loop(50, lambda rank, i: (4 * i + rank) * 2 * MiB, 2 * MiB, "write_shared")),
        run(loop(50, lambda rank, i: (4 * i + rank) * 2 * MiB, 2 * MiB, "write_at")),
    ),
    "open-storm": (
        run([*LARGE, *loop(8, lambda *_: 0, 0, "open", start=1.0), *loop(8, lambda *_: 0, 0, "close", start=2.0)]),
        run([*LARGE, *loop(1, lambda *_: 0, 0, "open", start=1.0), *loop(1, lambda *_: 0, 0, "close", start=2.0)]),
    ),
    "hideable": (
        run(loop(8, far, 4 * MiB, "write_at_all"), seconds=5.0),
        run(loop(8, far, 4 * MiB, "write_at_all"), seconds=8e-3),
    ),
}


WAITING = [call._replace(begin=5 * call.begin, seconds=4e-3) for call in loop(8, far, 4 * MiB, "read_at_all", ranks=3)]
LATE = [Call(3, "read_at_all", far(3, i), 4 * MiB, 5e-3 * i + 3e-3) for i in range(8)]
"""The others wait for rank 3 in each call."""

MORE_TWINS: Mapping[str, tuple[str, Trace, Trace]] = {
    "idle ranks wait in the close": (
        "imbalance",
        run([*loop(8, far, 4 * MiB, ranks=1), *(Call(rank, "close", 0, 0, 0, 8e-3) for rank in range(1, 4))]),
        run([*LARGE, *(Call(rank, "close", 0, 0, 1.0, 8e-3) for rank in range(1, 4))]),
    ),
    "as many bytes in more requests": (
        "imbalance",
        run([*loop(8, far, 4 * MiB), *loop(100, lambda rank, i: (2 << 30) + i * 512, 512, ranks=1, start=1.0)]),
        run([*loop(8, far, 4 * MiB), *loop(100, lambda rank, i: (2 << 30) + i * 512, 512, ranks=4, start=1.0)]),
    ),
    "it is not known where calls by the shared pointer lead": (
        "shared-pointer",
        run([*LARGE, *loop(50, lambda *_: -1, 512, "read_shared", start=1.0)]),
        run(LARGE),
    ),
    "requests of several strips with a fragment at each end": (
        "misaligned",
        run(loop(50, lambda rank, i: rank * 256 * MiB + i * 256 * KiB + 512, 256 * KiB)),
        run(loop(50, lambda rank, i: rank * 256 * MiB + i * 256 * KiB, 256 * KiB)),
    ),
    "a request of each rank alternates with others, but none follows it": (
        "interleaved",
        run(loop(2, lambda rank, i: (4 * i + rank) * 256 * KiB, 256 * KiB)),
        run(loop(1, lambda rank, i: (4 * i + rank) * 256 * KiB, 256 * KiB)),
    ),
    "what is between writes is no computation but the open of the next file": (
        "hideable",
        run([*loop(8, far, 4 * MiB, "write_at"), *loop(1, far, 4 * MiB, "write_at", start=2e-2, file="/data/b")]),
        run(
            [
                *loop(8, far, 4 * MiB, "write_at"),
                *loop(1, lambda *_: 0, 0, "open", start=8e-3, seconds=1.2e-2, file="/data/b"),
                *loop(1, far, 4 * MiB, "write_at", start=2e-2, file="/data/b"),
            ]
        ),
    ),
    "metadata are written collectively": (
        "small",
        run(
            [
                *loop(8, far, 4 * MiB, "write_at_all"),
                *loop(1, lambda rank, _: 2**40 + 512 * rank, 512, "write_at_all", start=1.0, seconds=5e-3),
            ]
        ),
        run(loop(8, far, 4 * MiB, "write_at_all")),
    ),
    "ranks without data take part in the collective writes of others": (
        "small",
        run(
            [
                *loop(8, far, 4 * MiB, "write_at_all"),
                Call(0, "write_at_all", 2**40, 512, 1.0, 5e-3),
                *(Call(rank, "write_at_all", 0, 0, 1.0, 5e-3) for rank in range(1, 4)),
            ]
        ),
        run(
            [
                *loop(8, far, 4 * MiB, "write_at_all"),
                Call(0, "write_at_all", 2**40, 4 * MiB, 1.0, 5e-3),
                *(Call(rank, "write_at_all", 2**41 + rank, 1, 1.0, 5e-3) for rank in range(1, 4)),
            ]
        ),
    ),
    "who makes other calls between collective ones is not late": (
        "straggler",
        run([*WAITING, *LATE]),
        run([*WAITING, *LATE, *(Call(3, "read_at", far(3, i), 4 * MiB, 5e-3 * i, 3e-3, "/data/b") for i in range(8))]),
    ),
    "a file is deleted unread": (
        "never-read",
        run([*loop(8, far, 4 * MiB, "write_at"), Call(0, "delete", 0, 0, 1.0)]),
        # An older file is deleted.
        run([*loop(8, far, 4 * MiB, "write_at"), Call(0, "delete", 0, 0, -1.0)]),
    ),
    "a file is deleted after it was read": (
        "never-read",
        run(
            [
                *loop(8, far, 4 * MiB, "write_at"),
                *loop(2, far, 4 * MiB, start=0.5),
                Call(0, "delete", 0, 0, 1.0),
            ]
        ),
        run(
            [
                *loop(8, far, 4 * MiB, "write_at"),
                *loop(8, far, 4 * MiB, start=0.5),
                Call(0, "delete", 0, 0, 1.0),
            ]
        ),
    ),
    "a file is deleted unread and written anew": (
        "never-read",
        run(
            [
                *loop(8, far, 4 * MiB, "write_at"),
                Call(0, "delete", 0, 0, 1.0),
                *loop(8, lambda rank, i: 2**40 + far(rank, i), 4 * MiB, "write_at", start=2.0),
            ]
        ),
        run(
            [
                *loop(8, far, 4 * MiB, "write_at"),
                Call(0, "delete", 0, 0, 1.0, file="/data/b"),
                *loop(8, lambda rank, i: 2**40 + far(rank, i), 4 * MiB, "write_at", start=2.0),
            ]
        ),
    ),
    "the program ends a little after its writes": (
        "hideable",
        run(loop(8, far, 4 * MiB, "write_at"), seconds=2 * 8e-3),
        run(loop(8, far, 4 * MiB, "write_at"), seconds=1.4 * 8e-3),
    ),
}
"""By what a detector must understand: the kind, and a run that has it and one that has not."""


@pytest.mark.parametrize("case", MORE_TWINS)
def test_harder_cases_are_told_apart(case: str) -> None:
    kind, bad, good = MORE_TWINS[case]
    assert kind in findings(bad)
    assert kind not in findings(good)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_found_where_it_is_and_only_there(kind: str) -> None:
    bad, good = TWINS[kind]
    found = findings(bad)
    assert kind in found
    assert kind not in findings(good)
    one = found[kind]
    assert 0 < one.costs <= Seen(bad, verified_plan(analyze(bad), CLUSTER), "a").seconds
    assert one.title.endswith(".") and one.evidence.endswith(".") and one.remedy.endswith((".", ")"))
    assert any(digit in one.evidence for digit in "0123456789")
    assert one.bars and all(bar.value >= 0 for bar in one.bars)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_expected_is_no_more_than_what_was_measured(kind: str) -> None:
    bad, _ = TWINS[kind]
    seconds = Seen(bad, verified_plan(analyze(bad), CLUSTER), "a").seconds
    for one in findings(bad).values():
        assert one.after is None or 0 <= one.after <= seconds
        assert (one.after is None) == (one.confidence == "low")
        assert one.after is not None or one.predicted is None


def seen_of(trace: Trace, cluster: str = "pdla") -> Seen:
    return Seen(trace, verified_plan(analyze(trace), load_cluster(cluster)), "a")


def draft(seen: Seen, predicted: Prediction | None) -> Draft:
    return Draft("hints", "", "", np.full(4, seen.seconds / 2), "", (), "", predict=lambda: predicted)


def test_a_remedy_that_brings_nothing_on_well_known_storage_is_expected_to_bring_nothing() -> None:
    seen = seen_of(run(LARGE))
    one = draft(seen, Prediction(seen.seconds, seen.seconds, "a")).finding(seen)
    assert (one.after, one.severity, one.confidence) == (seen.seconds, "low", "high")
    assert "would bring nothing there" in one.why


def test_an_expectation_is_between_the_simulated_seconds_and_the_share_that_is_left() -> None:
    seen = seen_of(run(LARGE))
    for times in (1.0, 1.2, 0.82):
        said = Prediction(times * seen.seconds, 0.2 * times * seen.seconds, "a")
        for sure in ("high", "medium"):
            one = replace(draft(seen, said), sure=sure).finding(seen)
            assert one.after == pytest.approx(0.2 * seen.seconds * times**0.5)
            assert one.confidence == sure


def test_of_storage_that_is_not_as_described_nothing_is_expected() -> None:
    seen = seen_of(run(LARGE))
    for times in (1.3, 0.77, 9.0):
        one = draft(seen, Prediction(times * seen.seconds, 0.1 * seen.seconds, "a")).finding(seen)
        assert (one.after, one.confidence, one.predicted) == (None, "low", None)
        assert "let pdla calibrate describe your storage" in one.why
        assert one.severity == "high"  # by what it costs
    assert draft(seen, None).finding(seen).after is None
    nominal = Seen(seen.trace, verified_plan(analyze(seen.trace), load_cluster(None)), "a")
    one = draft(nominal, Prediction(seen.seconds, 0.1 * seen.seconds, "a")).finding(nominal)
    assert one.after is None and "nobody has described the storage" in one.why


def test_only_the_storages_part_of_collective_calls_is_expected_to_change() -> None:
    def collective(storage: float) -> Seen:
        calls = loop(8, far, 4 * MiB, "write_at_all", seconds=1e-2)
        return seen_of(run(calls, posix=[(rank, i, "write", 4 * MiB, storage) for rank in range(4) for i in range(8)]))

    seen = collective(8e-3)
    assert seen.storage == pytest.approx(0.064)
    halved = Prediction(0.064, 0.032, "a")
    assert draft(seen, halved).finding(seen).after == pytest.approx(0.016 + 0.032)
    assert draft(seen, replace(halved, exchange="goes")).finding(seen).after == pytest.approx(0.032)
    assert draft(seen, replace(halved, exchange="changes")).finding(seen).after == pytest.approx(0.016 + 0.032)
    # What the remedy makes of most of the time is not known.
    seen = collective(4e-3)
    one = draft(seen, Prediction(0.032, 0.016, "a", "changes")).finding(seen)
    assert one.after is None and "60 %" in one.why
    # Without POSIX calls nobody knows what is the storage's.
    assert seen_of(run(loop(8, far, 4 * MiB, "write_at_all"))).storage == pytest.approx(8e-3)


def test_the_time_of_opens_stays_whatever_the_remedy_brings() -> None:
    opens = loop(1, lambda *_: 0, 0, "open", seconds=0.4, start=-1.0)
    seen = seen_of(run([*STRIDED, *opens]))
    one = draft(seen, Prediction(0.2, 0.1, "a")).finding(seen)
    assert seen.seconds == pytest.approx(0.6)
    assert one.after == pytest.approx(0.4 + 0.1)


def test_what_is_read_ahead_while_a_rank_is_late_is_not_gained() -> None:
    reading = run(loop(200, lambda rank, i: (i * 4 + rank) * 64 * KiB, 64 * KiB))
    ahead = replace(CLUSTER, client_cache=True, client_read_ahead=MiB)
    planned = verified_plan(analyze(reading), ahead)
    expected = Outlook(reading, planned, 800).replicas()
    in_step = simulate(from_trace(reading), ahead, AS_IT_IS, planned).slowest
    assert expected and expected.after == pytest.approx(in_step, rel=0.03)


@pytest.mark.parametrize("ends", ["sync", "close"])
def test_findings_about_writes_cost_also_what_brings_their_bytes_to_the_storage(ends: str) -> None:
    writes = loop(200, lambda rank, i: rank * 256 * MiB + i * 100 * KiB, 4 * KiB, "write_at")
    end = loop(1, lambda *_: 0, 0, ends, start=1.0, seconds=2.0)
    others = loop(1, lambda rank, _: 4 * rank * MiB, 800 * KiB, "write_at", start=0.5, seconds=0.1)
    assert findings(run([*writes, *end]))["small-strided"].costs == pytest.approx(0.2 + 2.0)
    assert findings(run([*writes, *others, *end]))["small-strided"].costs == pytest.approx(0.2 + 1.0)  # half the bytes
    # What came before another sync is not brought by this one; and each file has its own.
    twice = [*writes, *loop(1, lambda *_: 0, 0, "sync", start=0.4, seconds=0.1), *others, *end]
    assert findings(run(twice))["small-strided"].costs == pytest.approx(0.2 + 0.1)
    elsewhere = [call._replace(file="/data/b") for call in end]
    assert findings(run([*writes, *elsewhere]))["small-strided"].costs == pytest.approx(0.2)


def test_writes_that_read_cost_what_a_sync_takes_for_bytes_that_nobody_asked_for() -> None:
    bad, _ = TWINS["read-modify-write"]
    calls = loop(50, lambda rank, i: rank * 256 * MiB + i * 8 * MiB, 2 * MiB, "write_at")
    sieved = [(rank, i, op, 4 * MiB, 4e-4) for rank in range(4) for i in range(50) for op in ("read", "write")]
    synced = run([*calls, *loop(1, lambda *_: 0, 0, "sync", start=1.0, seconds=3.0)], posix=sieved)
    more = findings(synced)["read-modify-write"].costs - findings(bad)["read-modify-write"].costs
    assert more == pytest.approx(1.5)  # half of what is written


def test_aggregators_are_spread_over_the_nodes_as_far_as_these_are_enough() -> None:
    bad, _ = TWINS["hints"]
    commands = {}
    for per_node in (1, bad.ranks):
        nodes = replace(CLUSTER, processes_per_node=per_node)
        found = find(bad, verified_plan(analyze(bad), nodes))
        commands[per_node] = next(one.command for one in found if "cb_nodes" in one.command)
    assert "cb_config_list" not in commands[1]
    assert "cb_config_list *:*" in commands[bad.ranks]


def test_a_fragment_costs_its_share_of_the_devices_time() -> None:
    bad, _ = TWINS["fragments"]  # 64 KiB and 1 KiB
    one = findings(bad)["fragments"]
    home = CLUSTER.pool(CLUSTER.home_pool)
    own, rest = (home.startup[-1][1] + size * home.read_seconds_per_byte for size in (KiB, 64 * KiB))
    assert one.costs == pytest.approx(50e-3 * own / (own + rest))
    assert one.after is None  # reads are served by later runs only


def test_a_program_of_large_contiguous_pieces_has_no_finding() -> None:
    assert findings(run(LARGE)) == {}


def test_the_same_finding_on_many_files_is_one_and_costs_what_the_slowest_rank_spends() -> None:
    calls = [
        call._replace(begin=call.begin + number, file=f"/data/step{number}")
        for number in range(20)
        for call in loop(20, lambda rank, i: rank * 256 * MiB + i * 100 * KiB, 4 * KiB)
    ]
    found = find(run(calls), verified_plan(analyze(run(calls)), CLUSTER))
    assert [one.kind for one in found] == ["small-strided"]
    assert "So it is with 19 more files." in found[0].evidence
    assert found[0].costs == pytest.approx(20 * 20e-3)


def test_calls_of_a_rank_that_overlap_share_their_time() -> None:
    trace = run([Call(0, "iread_at", 0, MiB, 0.0, 2.0), Call(0, "iread_at", MiB, MiB, 1.0, 2.0)])
    assert Seen(trace, verified_plan(analyze(trace), CLUSTER), "a").seconds == pytest.approx(3.0)


def test_the_union_of_ranges_counts_each_byte_once() -> None:
    start, stop = np.array([0, 5, 5, 20]), np.array([10, 7, 12, 30])
    assert union(start, stop) == 22
    assert union(start[:0], stop[:0]) == 0


def test_nominal_storage_says_nothing_about_strips() -> None:
    bad, _ = TWINS["misaligned"]
    assert {one.kind for one in find(bad, verified_plan(analyze(bad), load_cluster(None)))}.isdisjoint(
        {"misaligned", "fragments"}
    )


def test_findings_are_plain_values_and_begin_with_what_saves_most() -> None:
    trace = run([*STRIDED, *loop(80, lambda *_: 0, 0, "open", start=1.0)])
    found = find(trace, verified_plan(analyze(trace), CLUSTER))
    assert len(found) > 1
    saved = [one.saves(Seen(trace, verified_plan(analyze(trace), CLUSTER), "a").seconds) for one in found]
    assert saved == sorted(saved, reverse=True)
    assert found[0].to_json()["kind"] == found[0].kind


def test_what_costs_little_is_no_finding() -> None:
    trace = run(LARGE)
    seen = Seen(trace, verified_plan(analyze(trace), CLUSTER), "a")
    little = Draft("small", "", "", np.array([0.049, 0, 0, 0]) * seen.seconds, "", (), "")
    assert not little.matters(seen)
    assert replace(little, lost=np.array([0.051, 0, 0, 0]) * seen.seconds).matters(seen)


def test_small_collective_calls_cost_what_the_ranks_that_only_take_part_wait() -> None:
    _, bad, _ = MORE_TWINS["ranks without data take part in the collective writes of others"]
    one = findings(bad)["small"]
    assert one.title == "1 small collective write of a takes 5 ms of the slowest rank."
    assert one.costs == pytest.approx(5e-3)
    assert "H5Pset_coll_metadata_write" in one.remedy and "H5Pset_meta_block_size" in one.remedy


def doubtful(trace: Trace, doubt: str) -> Trace:
    return replace(trace, records=trace.records.assign(**{doubt: True}))


@pytest.mark.parametrize("kind", ["independent", "interleaved", "small-strided", "misaligned", "never-read"])
@pytest.mark.parametrize("doubt", DOUBTS)
def test_a_finding_that_rests_on_what_is_not_known_has_low_confidence(kind: str, doubt: str) -> None:
    bad, _ = TWINS[kind]
    text, harmed = HARMED[doubt]
    one = findings(doubtful(bad, doubt))[kind]
    assert (one.why == text) == (kind in harmed)
    assert one.confidence == "low" or kind not in harmed


def test_large_pieces_of_a_view_that_is_not_known_may_be_small() -> None:
    bad, _ = TWINS["collective-useless"]
    assert "collective-useless" not in findings(doubtful(bad, "holes_unknown"))


def test_bytes_of_several_ranks_in_unknown_views_are_not_taken_for_the_same() -> None:
    interleaved = run(loop(8, lambda rank, i: i * 16 * MiB + rank * 4 * KiB, 4 * MiB, "write_at_all"))
    assert "never-read" in findings(interleaved)
    assert "never-read" not in findings(doubtful(interleaved, "holes_unknown"))
    reads = run(loop(8, lambda rank, i: i * 16 * MiB + rank * 4 * KiB, 4 * MiB, "read_at"))
    assert "re-read" in findings(reads)
    assert "re-read" not in findings(doubtful(reads, "holes_unknown"))


def test_lateness_that_moves_between_ranks_may_be_that_of_shared_cores() -> None:
    moving = [
        Call(rank, "read_at_all", far(rank, i), 4 * MiB, 5e-3 * i + 3e-3 * late, 4e-3 - 3e-3 * late)
        for i in range(16)
        for rank in range(4)
        for late in [rank == i % 4]
    ]
    one = findings(run(moving))["straggler"]
    assert one.title == "Ranks wait for others in collective calls, each time for another one."
    assert one.confidence == "low" and "share a core" in one.why
    one = findings(run([*WAITING, *LATE]))["straggler"]
    assert one.title == "Ranks wait for others in collective calls, most for rank 3."
    assert one.after is None and "share a core" not in one.why
