"""The report: pictures that hide nothing, a self-contained page, tables that fit the terminal."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba

from pdla.accessmap import AccessMap
from pdla.analyzers.analysis import analyze
from pdla.layouts.config import load_cluster
from pdla.model import Candidate, Cost, Layout, Loop, PatternPlan, Plan, Signature
from pdla.policies.plan import make_plan
from pdla.replicator.exit_reports import FileReport, RunReport
from pdla.report.comparison import Comparison
from pdla.report.html import Run, write_report
from pdla.report.pictures import access_picture, order_picture, size_histogram
from pdla.report.plans import cost_picture, layout_picture
from pdla.report.raster import rasterise, weave
from pdla.report.style import PALETTE, rank_colours
from pdla.report.text import comparison_table, plan_table, prediction, signature_table, table
from pdla.traces.file_views import View
from pdla.traces.tables import OPS, POSIX_COLUMNS, categorical, files_frame, records_frame
from pdla.traces.trace import Trace
from pdla.units import ranks_text

KiB, MiB = 1 << 10, 1 << 20
CLUSTER = load_cluster(None)


def strided(ranks: int, each: int, length: int = 4 * KiB, file: int = 0, op: str = "read") -> dict[str, np.ndarray]:
    """Each rank reads ``each`` blocks, dealt to the ranks in turn; a microsecond a call, 2 between their starts."""
    rank = np.repeat(np.arange(ranks), each)
    number = np.tile(np.arange(each), ranks)
    return {
        "rank": rank,
        "file": np.full(len(rank), file),
        "op": np.full(len(rank), OPS.index(op)),
        "offset": (number * ranks + rank) * length,
        "length": np.full(len(rank), length),
        "t_start": number * 2e-6,
        "t_end": number * 2e-6 + 1e-6,
    }


def trace_of(*parts: dict[str, np.ndarray], paths: tuple[str, ...] = ("/data/a.dat",), **about: object) -> Trace:
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(columns["rank"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    columns["op"] = categorical(columns["op"], OPS)
    columns["kind"] = categorical(np.zeros(len(order), dtype=int), ["MPI_File_read_at"])
    return Trace(
        records_frame(columns),
        files_frame([{"path": path} for path in paths]),
        [View.plain()],
        **{"command": "mpiexec -n 4 ./app", "ranks": int(columns["rank"].max()) + 1, "mpi": "MPICH 5.0.0", **about},
    )


def plan_for(signature: Signature) -> Plan:
    layout = Layout("ssd", 4, 2, (64 * KiB, 64 * KiB), AccessMap.section(signature))
    candidates = (
        Candidate("original", None, Cost(0.1, 0.2, 6.0, 1.2)),
        Candidate("ssd", layout, Cost(0.1, 0.2, 0.0, 0.7)),
    )
    pattern = PatternPlan(signature, candidates, 1, "2-D on ssd saves 6.5 s: one start-up instead of thousands <b>")
    return Plan("auto", "app", (pattern,), (("writes of b.dat", "only reads are <i>replicated</i>"),), CLUSTER)


SERVED = RunReport(
    *("app", 4, 1, {"ok": 4}, 0, 0, 1e-5),
    (FileReport("a", 400, 164 * KiB, 40, 36, 160 * KiB, 2, 1, 4 * KiB, (), (), 0, 0, ()),),
)


def full_run() -> Run:
    before = trace_of(
        strided(4, 100),
        strided(4, 10, 16 * KiB, file=1, op="write"),
        paths=("/data/<script>alert(1)</script>&a.dat", "/data/b.dat"),
        dropped=3,
        truncated=(1, 2, 3),
        unrecorded={"MPI_File_read_ordered": 12},
        notes=("times are <coarse>",),
    )
    records = before.records.copy()
    records["redirected"] = records["op"] == "read"
    records["t_end"] = records["t_start"] + (records["t_end"] - records["t_start"]) / 2
    after = replace(before, records=records)
    analysis = analyze(before)
    comparison = Comparison.of(before, after, SERVED, 2.0, 1.5, identical=True)
    return Run(before, analysis, plan_for(analysis.signatures[0]), after, SERVED, comparison)


def alone(trace: Trace) -> Run:
    """A run of which there is only the trace, with the plan for nominal storage."""
    analysis = analyze(trace)
    return Run(trace, analysis, make_plan(analysis, load_cluster(None)))


class Page(HTMLParser):
    """Checks that tags nest, and collects what a test asks for."""

    VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href", "action", "srcset"):
                self.links.append(value or "")
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open:
            self.cells[-1] += data


# --- pictures --------------------------------------------------------------------------------------------------------


def image_of(figure: object) -> np.ndarray:
    return np.asarray(figure.axes[0].images[0].get_array())  # type: ignore[attr-defined]


def shows(image: np.ndarray, colour: object) -> bool:
    return bool((np.abs(image - np.asarray(to_rgba(colour))).max(axis=-1) < 1e-6).any())


@pytest.mark.parametrize("ranks", [4, 10, 32])
def test_every_rank_has_its_colour_in_a_picture_of_100_000_extents_that_share_cells(ranks: int) -> None:
    accesses = trace_of(strided(ranks, 100_000 // ranks)).accesses()
    image = image_of(access_picture(accesses, "a"))
    assert [rank for rank in range(ranks) if not shows(image, rank_colours(ranks)[rank])] == []


def test_a_rank_of_a_single_extent_among_100_000_of_another_is_seen() -> None:
    lone = {name: values[:1] + (1 if name == "rank" else 0) for name, values in strided(1, 1).items()}
    accesses = trace_of(strided(1, 100_000), lone).accesses()
    assert shows(image_of(access_picture(accesses, "a")), PALETTE[1])


def test_ranks_that_access_the_same_bytes_at_the_same_time_are_all_seen() -> None:
    parts = [{**strided(1, 100), "rank": np.full(100, rank)} for rank in range(4)]
    image = image_of(access_picture(trace_of(*parts).accesses(), "a"))
    assert [rank for rank in range(4) if not shows(image, PALETTE[rank])] == []


def test_extents_far_enough_apart_are_drawn_one_by_one_from_start_to_end() -> None:
    accesses = trace_of(
        {**strided(1, 3, MiB), "t_start": np.array([0.0, 2.0, 5.0]), "t_end": np.array([1.0, 4.0, 9.0])}
    )
    (lines,) = [
        c for c in access_picture(accesses.accesses(), "a").axes[0].collections if isinstance(c, LineCollection)
    ]
    assert [segment.tolist() for segment in lines.get_segments()] == [
        [[0.0, 0.0], [1.0, 1.0 * MiB]],
        [[2.0, 1.0 * MiB], [4.0, 2.0 * MiB]],
        [[5.0, 2.0 * MiB], [9.0, 3.0 * MiB]],
    ]


def test_the_axes_cover_the_data() -> None:
    for picture in (access_picture, order_picture):
        axes = picture(trace_of(strided(4, 30_000)).accesses(), "a").axes[0]
        assert axes.get_ylim()[0] <= 0
        assert axes.get_ylim()[1] >= 4 * 30_000 * 4 * KiB
    assert access_picture(trace_of(strided(2, 9)).accesses(), "a").axes[0].get_xlim()[1] >= 17e-6
    assert access_picture(trace_of(strided(2, 9)).accesses(), "a", seconds=3.0).axes[0].get_xlim()[1] >= 3.0


def test_the_caption_says_what_was_binned() -> None:
    figure = access_picture(trace_of(strided(4, 10_000)).accesses(), "a")
    assert figure.get_supxlabel() == (
        "40,000 extents, binned into cells of 1,000 KiB by 50 us; cells of several ranks show their colours in turn."
    )


def test_reads_and_writes_have_their_own_panels() -> None:
    trace = trace_of(strided(2, 9), strided(2, 9, op="write"))
    panels = access_picture(trace.accesses(), "a").axes
    assert [axes.get_ylabel() for axes in panels] == ["offset of reads", "offset of writes"]


def test_ticks_are_binary() -> None:
    axes = access_picture(trace_of(strided(4, 64, MiB)).accesses(), "a").axes[0]
    assert axes.yaxis.get_major_formatter().format_ticks(axes.get_yticks()) == [
        "0 B", "64 MiB", "128 MiB", "192 MiB", "256 MiB",
    ]  # fmt: skip


def test_ticks_far_from_0_are_distinguished() -> None:
    part = strided(1, 8)
    trace = trace_of({**part, "offset": part["offset"] + (1 << 40)})
    axes = access_picture(trace.accesses(), "a").axes[0]
    labels = axes.yaxis.get_major_formatter().format_ticks(axes.get_yticks())
    assert len(set(labels)) == len(labels) >= 4


def test_a_path_with_dollars_is_no_formula() -> None:
    figure = access_picture(trace_of(strided(1, 3)).accesses(), "/data/$\\frac$.dat")
    figure.canvas.draw()
    assert figure.axes[0].get_title(loc="left") == "/data/$\\frac$.dat"


def test_no_accesses_make_an_empty_picture() -> None:
    nothing = trace_of(strided(1, 1)).accesses().iloc[:0]
    for figure in (access_picture(nothing, "a"), order_picture(nothing, "a"), size_histogram(nothing)):
        figure.canvas.draw()


def test_order_picture_counts_the_requests_of_each_rank() -> None:
    (lines,) = order_picture(trace_of(strided(1, 3, MiB)).accesses(), "a").axes[0].collections
    assert [segment[:, 0].tolist() for segment in lines.get_segments()] == [[0, 1], [1, 2], [2, 3]]


def test_a_few_sizes_have_a_bar_each_many_one_per_power_of_two() -> None:
    few = trace_of(strided(1, 3, 4 * KiB), {**strided(1, 2, 16 * KiB), "rank": np.full(2, 1)})
    axes = size_histogram(few.accesses()).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["4 KiB", "16 KiB"]
    assert [bar.get_width() for bar in axes.patches] == [3, 2]
    many = trace_of({**strided(1, 15), "length": np.arange(1, 16)})
    axes = size_histogram(many.accesses()).axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["up to 1 B", "up to 2 B", "up to 4 B", "up to 8 B", "up to 16 B"]
    assert [bar.get_width() for bar in axes.patches] == [1, 1, 2, 4, 7]


def test_a_line_over_several_rows_fills_them_from_corner_to_corner() -> None:
    x = np.array([0.0]), np.array([4.0])
    y = np.array([0]), np.array([4])
    grid = rasterise(x, y, np.array([0]), 1, (0, 4), (0, 4), (4, 4))
    assert grid[0].astype(int).tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


def test_a_gap_of_two_cells_remains_a_gap() -> None:
    x = np.array([0.0, 0.0]), np.array([10.0, 10.0])
    y = np.array([0, 40]), np.array([10, 100])
    grid = rasterise(x, y, np.array([0, 0]), 1, (0, 10), (0, 100), (1, 10))
    assert grid[0, :, 0].astype(int).tolist() == [1, 0, 0, 0, 1, 1, 1, 1, 1, 1]


extents = st.lists(
    st.tuples(st.integers(0, 999), st.integers(0, 300), st.integers(0, 999), st.integers(0, 300), st.integers(0, 5)),
    min_size=1,
    max_size=60,
)


@given(extents)
def test_rasterised_cells_are_those_of_the_lines_ends_and_within_their_boxes(rows: list[tuple[int, ...]]) -> None:
    t, dt, offset, length, group = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    x, y = (t.astype(float), (t + dt).astype(float)), (offset, offset + length)
    grid = rasterise(x, y, group, 6, (0, 1300), (0, 1300), (13, 13))
    boxes = np.zeros_like(grid)
    for x0, x1, y0, y1, k in zip(*x, *y, group, strict=True):
        top, right = max(-(-int(y1) // 100) - 1, int(y0) // 100), max(-(-int(x1) // 100) - 1, int(x0) // 100)
        boxes[k, int(y0) // 100 : top + 1, int(x0) // 100 : right + 1] = True
        assert grid[k, int(y0) // 100, int(x0) // 100]
        assert grid[k, top, right]
    assert not (grid & ~boxes).any()


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_a_weave_shows_only_what_is_present_and_every_group_of_it(seed: int, groups: int) -> None:
    present = np.random.default_rng(seed).random((groups, 6, 7)) < 0.3
    shown = weave(present)
    assert ((shown >= 0) == present.any(axis=0)).all()
    assert all(present[group, row, column] for (row, column), group in np.ndenumerate(shown) if group >= 0)
    if present.any(axis=0).sum() > 3 * groups:
        assert set(np.flatnonzero(present.any(axis=(1, 2)))) == set(np.unique(shown[shown >= 0]))


def test_the_chosen_candidate_is_marked_and_the_bars_add_up() -> None:
    pattern = plan_for(
        Signature("a", "read", False, 0, 4096, (Loop(4096, 4), Loop(16384, 8)), (0, 1, 2, 3), 1)
    ).patterns[0]
    axes = cost_picture(pattern).axes[0]
    assert [text.get_text() for text in axes.texts] == ["7.5 s", "1 s   chosen"]
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(8.5)


def test_a_cost_beyond_four_times_the_original_runs_off_the_scale_but_has_its_number() -> None:
    pattern = plan_for(
        Signature("a", "read", False, 0, 4096, (Loop(4096, 4), Loop(16384, 8)), (0, 1, 2, 3), 1)
    ).patterns[0]
    dear = replace(pattern.candidates[1], cost=Cost(0.1, 0.2, 700.0, 1.2))
    axes = cost_picture(replace(pattern, candidates=(*pattern.candidates, dear))).axes[0]
    assert axes.texts[2].get_text() == "702 s, off the scale"
    assert max(bar.get_x() + bar.get_width() for bar in axes.patches) == pytest.approx(4 * 7.5)


def test_the_title_is_the_command_without_folders(tmp_path: Path) -> None:
    trace = replace(trace_of(strided(1, 2)), command="/opt/mpi/bin/mpiexec -n 4 './my app' /data/a.dat")
    write_report(tmp_path / "r.html", [alone(trace)])
    assert "<h1>mpiexec -n 4 &#39;my app&#39; a.dat</h1>" in (tmp_path / "r.html").read_text()


def with_posix(trace: Trace) -> Trace:
    """Rank 0 reads 48 KiB of every file for its first call."""
    files = len(trace.files)
    zeros = np.zeros(files, dtype=np.int64)
    columns = {name: zeros.astype(dtype) for name, dtype in POSIX_COLUMNS.items() if dtype != "category"}
    columns |= {"file": np.arange(files, dtype=np.int32), "length": zeros + 48 * KiB}
    kinds = {"kind": categorical(zeros, ["pread"]), "op": categorical(zeros, OPS)}
    return replace(trace, posix=pd.DataFrame({**columns, **kinds}))


def test_the_report_says_what_the_mpi_library_made_of_the_calls(tmp_path: Path) -> None:
    trace = trace_of(strided(4, 2))
    write_report(tmp_path / "r.html", [alone(with_posix(trace))])
    section = (tmp_path / "r.html").read_text().split("What the MPI library made of the calls</h2>")[1].split("<h2")[0]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", section, re.DOTALL)
    assert cells == [
        *("/data/a.dat", "MPI_File_read_at", "8", "32 KiB", "1", "48 KiB", "0 B", "1.5", "0", "48 KiB", "48 KiB"),
    ]
    write_report(tmp_path / "r.html", [alone(trace)])
    assert "What the MPI library" not in (tmp_path / "r.html").read_text()


def test_of_many_files_the_report_lists_40_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for most in ("MOST_FILES", "MOST_PATTERNS"):
        monkeypatch.setattr(f"pdla.report.html.{most}", 1)  # pictures take long
    trace = trace_of(*(strided(1, 1, file=file) for file in range(43)), paths=tuple(f"/d/{n}" for n in range(43)))
    write_report(tmp_path / "r.html", [alone(with_posix(trace))])
    assert "and 3 more</td>" in (tmp_path / "r.html").read_text()


def test_a_layout_picture_shows_each_server_with_the_ranks_whose_bytes_it_holds() -> None:
    signature = Signature("a", "read", False, 0, 64 * KiB, (Loop(64 * KiB, 4), Loop(256 * KiB, 64)), (0, 1, 2, 3), 1)
    before, after = layout_picture(plan_for(signature).patterns[0], CLUSTER).axes[:2]

    def colours_by_server(axes: object) -> dict[int, set[int]]:
        (boxes,) = axes.collections  # type: ignore[attr-defined]
        palette = [to_rgba(colour) for colour in PALETTE]
        found: dict[int, set[int]] = {}
        for path, colour in zip(boxes.get_paths(), boxes.get_facecolors(), strict=True):
            found.setdefault(round(path.vertices[:, 1].mean()), set()).add(palette.index(tuple(colour)))
        return found

    # Blocks and strips have one size: the original's server k holds rank k, and the 2-D layout's groups two ranks each.
    assert colours_by_server(before) == {0: {0}, 1: {1}, 2: {2}, 3: {3}}
    assert colours_by_server(after) == {0: {0}, 1: {0}, 2: {1}, 3: {1}}


# --- the page --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, [full_run(), alone(trace_of(strided(2, 8)))])
    return path.read_text(encoding="utf-8")


def test_the_page_nests_and_its_ids_are_unique(page: str) -> None:
    parsed = Page(page)
    assert len(parsed.ids) == len(set(parsed.ids)) > 100
    assert parsed.tags.count("article") == 2


def test_the_page_refers_to_nothing_outside_itself(page: str) -> None:
    parsed = Page(page)
    assert [link for link in parsed.links if not link.startswith(("#", "data:image/png;base64,"))] == []
    assert {"link", "iframe", "img"}.isdisjoint(parsed.tags)
    assert "@import" not in page
    assert re.findall(r"url\((?!#)", page) == []
    named = set(re.findall(r"https?://[^\s\"'<]+", page))
    assert named <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names of XML, fetched by nobody


def test_every_reference_within_a_picture_has_its_target(page: str) -> None:
    parsed = Page(page)
    targets = {link[1:] for link in parsed.links if link.startswith("#")} | set(re.findall(r"url\(#([^)]+)\)", page))
    assert targets
    assert targets <= set(parsed.ids)


def test_paths_and_reasons_are_escaped(page: str) -> None:
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;a.dat" in page
    assert "<i>replicated" not in page
    assert "<b>" not in page
    assert "<coarse>" not in page


def test_warnings_come_before_the_numbers(page: str) -> None:
    head = page[: page.index("What the program did")]
    assert "3 records were dropped" in head
    assert "The records of ranks 1-3 end before MPI_Finalize" in head
    assert "MPI_File_read_ordered (12)" in head
    assert "times are &lt;coarse&gt;" in head


def test_the_totals_of_the_page_are_those_of_the_data(page: str) -> None:
    assert "4 ranks read 1.56 MiB and wrote 640 KiB in 440 calls on 2 files." in page
    assert "In the files these are 440 contiguous requests, of which 91 % are of 4 KiB" in page
    cells = Page(page).cells
    at = cells.index("/data/b.dat")
    assert cells[at : at + 6] == ["/data/b.dat", "write", "40", "40", "640 KiB", "0 %"]


def test_signatures_are_in_the_notation_with_their_shares(page: str) -> None:
    cells = Page(page).cells
    at = cells.index("{READ, 0, 2, ([16384, 4096, 100], [4096, 4096, 4]r), 1}")
    assert cells[at - 7 : at] == ["global", "read", "0-3", "400", "91 %", "1.56 MiB", "71 %"]


def test_plan_and_comparison_are_reported(page: str) -> None:
    for text in (
        "The pattern gets a replica: 7.5 s predicted without, 1 s with.",
        "Reading became 2.0x faster for the slowest rank (100 us before, 50 us after).",
        SERVED.sentence,
        "400 reads by ranks 0-3 are independent, but those of all ranks together are contiguous.",
        "it was measured in the trace, but nobody has described the storage: give --cluster.",
        "pdla plan RUN.h5 -o plan.json &amp;&amp; pdla replicate plan.json",
    ):
        assert text in page


def test_a_trace_without_accesses_still_makes_a_page(tmp_path: Path) -> None:
    trace = trace_of(strided(1, 1))
    write_report(tmp_path / "r.html", [alone(replace(trace, records=trace.records.iloc[:0]))])
    assert "read and wrote nothing through MPI-IO" in (tmp_path / "r.html").read_text()


def test_a_path_that_is_no_text_still_makes_a_page(tmp_path: Path) -> None:
    write_report(tmp_path / "r.html", [alone(trace_of(strided(1, 2), paths=("/data/\udcff.dat",)))])
    assert "/data/?.dat" in (tmp_path / "r.html").read_text()


def test_a_million_accesses_make_a_page_of_six_megabytes_at_most(tmp_path: Path) -> None:
    write_report(tmp_path / "r.html", [alone(trace_of(strided(16, 62_500)))])
    assert (tmp_path / "r.html").stat().st_size < 6_000_000
    assert "1,000,000 contiguous requests" in (tmp_path / "r.html").read_text()


# --- comparison ------------------------------------------------------------------------------------------------------


def test_requests_after_are_those_to_replicas_and_originals_and_of_calls_not_redirected() -> None:
    comparison = full_run().comparison
    assert comparison is not None
    assert (comparison.requests_before, comparison.requests_after) == (440, 40 + 2 + 40)
    assert (comparison.contiguous_before, comparison.contiguous_after) == (0, 36 + 1 + 0)
    assert comparison.bytes_from_replicas == 160 * KiB
    assert comparison.speedup == pytest.approx(2.0)


def test_the_verdict_is_honest() -> None:
    good = full_run().comparison
    assert good is not None
    same = replace(good, reading_after=good.reading_before * 0.98)
    assert same.sentence.startswith("Reading became no faster for the slowest rank")
    slower = replace(good, reading_after=good.reading_before * 2)
    assert slower.sentence.startswith("Reading became 2.0x slower for the slowest rank")
    assert replace(good, bytes_from_replicas=0).sentence.startswith("Nothing was read from replicas")
    assert replace(good, identical=False).sentence.startswith("The redirected run received other bytes")
    assert replace(good, identical=False).rows[-1].after == "DIFFERENT"


# --- terminal tables -------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.lists(st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), max_size=90), min_size=3, max_size=3)
    ),
)
def test_tables_fit_80_columns_and_cut_nothing_off(rows: list[list[str]]) -> None:
    text = table(["a", "b", "c"], rows, "lll", width=80)
    assert max(len(line) for line in text.splitlines()) <= 80
    wanted = sorted("".join(cell for row in rows for cell in row))
    assert sorted("".join(text.splitlines()[2:]).replace(" ", "")) == wanted


def test_the_tables_of_a_run_fit_80_columns() -> None:
    run = full_run()
    assert run.plan is not None
    assert run.comparison is not None
    tables = (
        signature_table(run.analysis),
        plan_table(run.plan),
        comparison_table(run.comparison),
    )
    for text in tables:
        assert [line for line in text.splitlines() if len(line) > 80] == []


def test_the_plan_table_marks_the_choice_and_gives_the_reason() -> None:
    plan = plan_for(Signature("/data/a", "read", False, 0, 4096, (Loop(4096, 4), Loop(16384, 8)), (0, 1, 2, 3), 1))
    assert plan_table(plan).splitlines() == [
        "Pattern 1: read by ranks 0-3 of /data/a",
        "{READ, 0, 2, ([16384, 4096, 8], [4096, 4096, 4]r), 1}",
        "    candidate           total  connect  network  start-up  transfer",
        "--  ------------------  -----  -------  -------  --------  --------",
        "    original            7.5 s   100 ms   200 ms       6 s     1.2 s",
        "->  ssd 2-D (2 groups)    1 s   100 ms   200 ms       0 s    700 ms",
        "2-D on ssd saves 6.5 s: one start-up instead of thousands <b>",
        "",
        "Refused:",
        "  writes of b.dat: only reads are <i>replicated</i>",
        "",
        "The pattern gets a replica: 7.5 s predicted without, 1 s with.",
    ]


def test_a_plan_without_replicas_does_not_say_that_none_would_pay_off() -> None:
    write = Signature("/data/a", "write", False, 0, 4096, (Loop(16384, 8),), (3,))
    refused = plan_for(write)
    assert plan_table(refused).splitlines()[0] == "Pattern 1: write by rank 3 of /data/a"
    original = replace(refused, patterns=tuple(replace(one, chosen=0) for one in refused.patterns))
    assert prediction(original) == "No pattern gets a replica: 7.5 s predicted with the originals as they are."


def test_the_signature_table_lists_the_members_of_a_global_signature_under_it() -> None:
    lines = signature_table(analyze(trace_of(strided(2, 8)))).splitlines()
    assert lines == [
        "/data/a.dat",
        "scope    call  ranks  requests  bytes  signature",
        "-------  ----  -----  --------  -----  -----------------------------------------",
        "global   read  0-1       100 %  100 %  {READ, 0, 2, ([8192, 4096, 8], [4096,",
        "                                       4096, 2]r), 1}",
        "- local  read  0          50 %   50 %  {READ, 0, 1, ([8192, 4096, 8]), 1}",
        "- local  read  1          50 %   50 %  {READ, 4096, 1, ([8192, 4096, 8]), 1}",
        "",
        "16 requests, 64 KiB; signatures stand for 100 % of the requests and 100 % of the",
        "bytes.",
        "",
        "A signature is {operation, first byte, dimension, loops, repeats}; a loop is",
        "[stride, bytes, count], the innermost first, with an r if it runs over the",
        "ranks.",
    ]


@given(st.sets(st.integers(0, 60)))
def test_ranks_in_compact_form_stand_for_the_same_ranks(ranks: set[int]) -> None:
    found: set[int] = set()
    for part in filter(None, ranks_text(ranks).split(", ")):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        found |= set(range(int(low), int(high or low) + 1, int(step or 1)))
    assert found == ranks


def test_a_thousand_files_are_not_printed_a_thousand_times() -> None:
    parts = [strided(1, 2, file=number) for number in range(50)]
    trace = trace_of(*parts, paths=tuple(f"/data/{number}" for number in range(50)))
    assert "... and 30 more files (--json lists all)" in signature_table(analyze(trace))


def test_pandas_frames_of_accesses_are_left_as_they_are() -> None:
    accesses = trace_of(strided(2, 8)).accesses()
    before = accesses.copy()
    access_picture(accesses, "a")
    size_histogram(accesses)
    pd.testing.assert_frame_equal(accesses, before)
