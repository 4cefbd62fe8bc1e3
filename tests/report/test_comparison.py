"""Two traced runs side by side, and the report that compares them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pdla.analyzers.analysis import analyze
from pdla.analyzers.file_statistics import summarize
from pdla.collectors import workloads
from pdla.collectors.tracefile import write_trace
from pdla.report.comparison import Contrast
from tests.support.command_line import Pdla


def test_two_runs_are_set_side_by_side() -> None:
    before = workloads.pio_simple_strided(4, 4096, 100)
    records = before.records.copy()
    records["t_end"] = records["t_start"] + (records["t_end"] - records["t_start"]) / 2
    records["redirected"] = np.arange(len(records)) < 300
    found = Contrast(before, replace(before, records=records))
    rows = {row.what: row[1:] for row in found.rows}
    assert rows["requests that the program asks for"] == ("400", "400", "the same")
    assert rows["redirected calls"] == ("0", "300", "")
    assert rows["reading, slowest rank"][2] == "2.0x faster"
    seconds = summarize(before).io_seconds
    assert seconds > 0
    assert "the slowest rank spent 2.0x less time in data calls" in found.sentence


def test_redirected_calls_are_one_request_each_whatever_the_program_asked_for() -> None:
    # Each call has 16 pieces, the rows of a part of a tile.
    before = workloads.mpi_tile_io(2, 2, 64, 64, 32)
    after = replace(before, records=before.records.assign(redirected=True))
    rows = {row.what: row[1:] for row in Contrast(before, after).rows}
    assert rows["requests that the program asks for"] == ("256", "256", "the same")
    assert rows["requests to files, at least"] == ("256", "16", "16.0x fewer")


def test_pdla_report_begins_with_what_costs_most_and_ends_with_the_comparison(pdla: Pdla) -> None:
    trace = workloads.pio_nested_strided(4, 4096, 20, 10, 1 << 24)
    assert analyze(trace).signatures
    write_trace(trace, pdla.directory / "a.h5")
    write_trace(trace, pdla.directory / "b.h5")
    answer = pdla.json("report", "a.h5", "--compare", "b.h5", "-o", "r.html", "--json")
    assert answer["report"] == "r.html"
    assert answer["findings"][0]["kind"] == "small-strided"
    page = (pdla.directory / "r.html").read_text()
    heads = (
        "What costs most",
        "Contents",
        ">What the program did</h2>",
        ">What the planner compared</h2>",
        ">Before and after</h2>",
    )
    places = [page.index(head) for head in heads]
    assert places == sorted(places)
    assert (
        "pdla plan a.h5 -o plan.json &amp;&amp; pdla replicate plan.json &amp;&amp; pdla run -- " in page[: places[1]]
    )
    said = pdla.run("report", "a.h5", "-o", "r.html").stdout.splitlines()
    assert said[:2] == ["pdla: wrote r.html", next(line for line in said if line.startswith("pdla: I/O takes "))]
    assert said[2].startswith("pdla: high: 800 reads by ranks 0-3 are small and strided. ")
    assert pdla.run("report", "a.h5", "--compare", "none.h5", code=1).stderr.startswith("pdla: ")
