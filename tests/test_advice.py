"""Advice: in the order of what it saves, each with evidence that is in the trace; and two runs side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pdla.analyzers.analysis import Analysis, analyze
from pdla.analyzers.file_statistics import Summary, summarize
from pdla.analyzers.posix_requests import MadeOf
from pdla.collectors import workloads
from pdla.collectors.tracefile import write_trace
from pdla.layouts.config import load_cluster
from pdla.model import Loop, Signature
from pdla.policies.plan import make_plan
from pdla.report.advice import Advice, advise
from pdla.report.comparison import Contrast
from tests.conftest import Pdla

CLUSTER = load_cluster(None)  # 4 home servers, strips of 64 KiB
NOTHING = Summary((), {}, 0, 0, 0.0)
STRIDED = Signature(
    "/d/a", "read", False, 0, 4096, (Loop(4096, 8), Loop(196608, 1000)), tuple(range(8)), rank_loops=1, calls=80
)


def advice(*signatures: Signature, summary: Summary = NOTHING, library: tuple[MadeOf, ...] = ()) -> list[Advice]:
    return advise(make_plan(Analysis(signatures, (), 0, 0), CLUSTER), summary, library)


def test_a_strided_read_is_advised_a_replica_and_collective_calls_what_saves_most_first() -> None:
    found = advice(STRIDED)
    assert {one.what.split(":")[0].split(",")[0] for one in found} == {
        "Use a replica of /d/a",
        "Make the reads of /d/a collective",
    }
    assert [one.seconds for one in found] == sorted((one.seconds for one in found), reverse=True)
    plan = make_plan(Analysis((STRIDED,), (), 0, 0), CLUSTER)
    (pattern,) = plan.patterns
    saved = {
        one.space: pattern.candidates[0].cost.total - one.cost.total for one in (pattern.choice, pattern.candidates[1])
    }
    assert {one.seconds for one in found} == set(saved.values())
    assert all("8,000 requests in bytes 0 to 196,444,160 of /d/a" in one.evidence for one in found)


def test_requests_over_the_ends_of_strips_are_reported() -> None:
    # Every second one of these requests of 48 KiB lies on two strips of 64 KiB.
    crossing = Signature("/d/b", "read", False, 0, 49152, (Loop(49152, 400),), (0,), calls=400)
    (one,) = [one for one in advice(crossing) if one.what.startswith("Align")]
    assert "the strips of its file system, 64 KiB" in one.what
    assert "50 % of these requests" in one.evidence
    aligned = replace(crossing, loops=(Loop(65536, 400),))
    assert [one for one in advice(aligned) if one.what.startswith("Align")] == []


def test_sieving_and_few_aggregators_are_seen_in_the_librarys_requests() -> None:
    sieved = MadeOf("/d/a", "MPI_File_read", 10, 1000, 2, 3990, 0, (0, 1, 2, 3), 1995.0, 2000)
    gathered = MadeOf("/d/a", "MPI_File_write_all", 10, 1000, 5, 0, 1000, (0,), 200.0, 200)
    fine = MadeOf("/d/a", "MPI_File_write_all", 10, 1000, 5, 0, 1000, (0, 1, 2, 3), 200.0, 200)
    first, second = advice(library=(sieved, gathered, fine))
    assert "3.99 times the bytes that the program asks for: 3.9 KiB for 1000 B" in first.evidence
    assert second.what == "Use more aggregators for MPI_File_write_all on /d/a: the hint cb_nodes = 4."
    assert second.evidence == "all 5 requests are made by rank 0, but the file system has 4 servers."


def test_a_rank_that_does_the_work_of_others_is_reported() -> None:
    uneven = replace(NOTHING, rank_seconds={0: 9.0, 1: 1.0, 2: 1.0, 3: 1.0})
    (one,) = advice(summary=uneven)
    assert one == Advice(
        "Share the work of rank 0 among the ranks.", None, "it spends 9 s in data calls, the mean rank 3 s."
    )
    assert advice(summary=replace(NOTHING, rank_seconds={0: 1.9, 1: 1.0, 2: 1.0})) == []


def test_two_runs_are_set_side_by_side() -> None:
    before = workloads.pio_simple_strided(4, 4096, 100)
    records = before.records.copy()
    records["t_end"] = records["t_start"] + (records["t_end"] - records["t_start"]) / 2
    records["redirected"] = np.arange(len(records)) < 300
    found = Contrast(before, replace(before, records=records))
    rows = {row.what: row[1:] for row in found.rows}
    assert rows["requests (contiguous accesses)"] == ("400", "400", "the same")
    assert rows["redirected calls"] == ("0", "300", "")
    assert rows["reading, slowest rank"][2] == "2.0x faster"
    seconds = summarize(before).io_seconds
    assert seconds > 0
    assert "the slowest rank spent 2.0x less time in data calls" in found.sentence


def test_pdla_report_compares_and_advises(pdla: Pdla) -> None:
    trace = workloads.pio_nested_strided(4, 4096, 20, 10, 1 << 24)
    assert analyze(trace).signatures
    write_trace(trace, pdla.directory / "a.h5")
    write_trace(trace, pdla.directory / "b.h5")
    assert pdla.json("report", "a.h5", "--compare", "b.h5", "-o", "r.html", "--json") == {"report": "r.html"}
    page = (pdla.directory / "r.html").read_text()
    assert page.index("What the program did") < page.index("What the planner compared") < page.index("Before and after")
    assert page.index("Before and after") < page.index("<h2>Advice</h2>") < page.index("Use a replica of")
    assert pdla.run("report", "a.h5", "--compare", "none.h5", code=1).stderr.startswith("pdla: ")
