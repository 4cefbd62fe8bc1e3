"""The tables of docs/papers-appendix.md: rows are judged as they say, those of formulas are up to date."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.papers.__main__ import Count, counts, summary
from benchmarks.papers.closed import FORMULAS
from benchmarks.papers.plots import FIGURES, measured
from benchmarks.papers.programs import program
from benchmarks.papers.simulate import run
from benchmarks.papers.table import (
    FACTORS,
    KINDS,
    PAPERS,
    Experiment,
    Other,
    Point,
    Row,
    Unstated,
    if_otherwise,
    judge,
    legend,
    line,
    load,
    needed,
    sensitive,
    stated,
    variations,
    varied,
)
from pdla.collectors import workloads
from pdla.traces.trace import Trace
from pdla.units import KiB
from tests.support.compilers import REPOSITORY

PAGE = (REPOSITORY / "docs" / "papers-appendix.md").read_text(encoding="utf-8").splitlines()

EXPERIMENT = Experiment("p/e", "pdla", "Fig. 1", "I", "strided", ("new", "old"), ("read",), "processes", (8, 32), {})
MEASURES = {
    Point("p/e", "8", "read", "new"): {"bandwidth": 150.0},
    Point("p/e", "8", "read", "old"): {"bandwidth": 100.0},
    Point("p/e", "32", "read", "new"): {"bandwidth": 120.0},
    Point("p/e", "32", "read", "old"): {"bandwidth": 60.0},
}


def row(**options: object) -> Row:
    known = {"figure": "Fig. 1", "section": "I", "what": "w", "experiment": EXPERIMENT, "op": "read", "scheme": "new"}
    return Row(**{**known, "only": ("8", "32"), **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "found", "within"),
    [
        ({"base": "old", "compare": "range", "stated": [55, 90], "unit": "%"}, "50 to 100", True),
        ({"base": "old", "compare": "range", "stated": [55, 130], "unit": "%"}, "50 to 100", True),
        ({"base": "old", "compare": "range", "stated": [55, 140], "unit": "%"}, "50 to 100", False),
        ({"base": "old", "compare": "most", "stated": 79, "unit": "%"}, "100", False),
        ({"base": "old", "compare": "most", "stated": 80, "unit": "%"}, "100", True),
        ({"compare": "each", "stated": [150, 100], "unit": "MB/s"}, "150, 120", True),
        ({"compare": "each", "stated": [150, 90], "unit": "MB/s"}, "150, 120", False),
        ({"compare": "falls"}, "150, 120", True),
        ({"compare": "rises"}, "150, 120", False),
        ({"base": "old", "compare": "faster"}, "50 to 100", True),
        ({"base": "old", "compare": "slower once"}, "50 to 100", False),
        ({"base": "old", "compare": "the same"}, "50 to 100", False),
        ({"base": "old", "compare": "steadier"}, "1.25 against 1.67 times", True),
        ({"compare": "steady"}, "-20", False),
        ({"against": "8", "compare": "each", "stated": [100, 60], "unit": "%"}, "100, 80", False),
        ({"base": "old", "measure": "less_time", "compare": "most", "stated": 45, "unit": "%"}, "50", True),
        ({"base": "old", "compare": "below", "stated": 50, "unit": "%"}, "50 to 100", False),
        ({"base": "old", "compare": "below", "stated": 106, "unit": "%"}, "50 to 100", True),
        ({"base": "old", "compare": "above", "stated": 40, "unit": "%"}, "50 to 100", True),
    ],
)
def test_what_is_in_range(options: dict[str, object], found: str, within: bool):
    assert judge(row(**options), MEASURES, {})[:2] == (found, within)


@pytest.mark.parametrize(
    ("compare", "values", "within"),
    [
        ("falls", (100.0, 100.5, 94.0), True),  # against the trend by no more than a hundredth
        ("falls", (100.0, 102.0, 94.0), False),
        ("falls", (100.0, 96.0, 96.0), False),  # not by a twentieth
        ("rises", (100.0, 104.0, 106.0), True),
        ("steady", (100.0, 50.0, 104.0), True),
    ],
)
def test_a_trend_needs_a_margin(compare: str, values: tuple[float, ...], within: bool):
    one = row(compare=compare, only=("8", "32", "128"))
    points = [point for point in needed(one) if point.scheme == "new"]
    assert judge(one, {point: {"bandwidth": b} for point, b in zip(points, values, strict=True)}, {}).within is within


@pytest.mark.parametrize(
    ("new", "old", "compare", "within"),
    [(104.0, 100.0, "faster", False), (105.0, 100.0, "faster", True), (104.0, 100.0, "the same", True)],
)
def test_faster_is_by_a_twentieth(new: float, old: float, compare: str, within: bool):
    one = row(base="old", compare=compare, only=("8",))
    found = {point: {"bandwidth": new if point.scheme == "new" else old} for point in needed(one)}
    assert judge(one, found, {}).within is within


def test_what_hardly_differs_is_not_steadier():
    one = row(base="old", compare="steadier")
    same = {
        point: {"bandwidth": 100.0 if point.value == "8" else 99.0 - (point.scheme == "old")} for point in needed(one)
    }
    assert not judge(one, same, {}).within


def test_a_row_says_its_kind():
    kinds = [row(compare=one).kind for one in ("range", "each", "falls", "steadier", "below")]
    assert kinds == ["quantitative", "quantitative", "trend", "trend", "trend"]
    formulas = [row(experiment=None, formula="f", compare=one).kind for one in ("value", "near", "above")]
    assert formulas == ["arithmetic", "arithmetic", "trend"]


USED = {"served_hdd": 1.0, "served_ssd": 0.0}


def test_a_row_is_varied_in_what_its_runs_use():
    reads = row(compare="each", stated=[150, 120])
    measures = {point: {**value, **USED} for point, value in MEASURES.items()}
    keys = list(dict.fromkeys(other.key for other in variations(reads, measures)))
    assert keys == ["disk start-up", "disk time per byte", "link time per byte"]
    assert len(variations(reads, measures)) == len(FACTORS) * len(keys)


def test_a_row_that_leaves_its_tolerance_is_sensitive():
    """What was not simulated again is as it was."""
    one = row(compare="each", stated=[150, 120])
    measures = {point: {**value, **USED} for point, value in MEASURES.items()}
    slow = Other("disk start-up", 1.2)
    again = {point: {"bandwidth": 100.0} for point in varied(one, slow, measures)}
    assert sensitive(one, measures) == []
    assert sensitive(one, measures | again) == ["disk start-up +20 %"]


def test_a_row_of_the_table():
    one = row(base="old", compare="range", stated=[55, 140], unit="%", reason="because")
    cells = "w | quantitative | 55 to 140 % | 50 to 100 %"
    assert line(one, judge(one, MEASURES, {})) == f"| Fig. 1 (I) | {cells} | no |  | because |"
    met = replace(one, stated=[55, 90])
    assert " | yes, sensitive: memory -20 % |  |  |" in line(met, judge(met, MEASURES, {}), ["memory -20 %"])


def test_what_is_not_stated_is_tried():
    """Ends are those of all values, that which was taken with them; in range are those that were tried."""
    step = Unstated("step", "of so many", (3, 4), ("e",))
    unknown = replace(EXPERIMENT, others=(Other("step", 3), Other("step", 4)))
    measures = MEASURES | {
        Point(*point[:4], other): {"bandwidth": factor * value["bandwidth"]}
        for other, factor in ((Other("step", 3), 0.5), (Other("step", 4), 2.0))
        for point, value in MEASURES.items()
    }
    one = row(experiment=unknown, compare="each", stated=[300, 240], unit="MB/s")
    assert if_otherwise(one, measures, [step]) == "`step` 60 to 300: at 4"
    assert if_otherwise(replace(one, stated=[700, 70]), measures, [step]) == "`step` 60 to 300: never"
    assert if_otherwise(row(compare="falls"), measures, [step]) == ""


def test_formulas_agree_to_the_digits_printed():
    one = row(experiment=None, formula="f", stated=0.6, unit="%")
    assert judge(one, {}, {"f": lambda: 0.586})[:2] == ("0.586", True)
    assert judge(one, {}, {"f": lambda: 0.651})[:2] == ("0.651", False)


@pytest.mark.parametrize("name", PAPERS)
def test_the_rows_that_a_formula_gives_are_on_the_page(name: str):
    for one in load(name).rows:
        if one.formula:
            assert line(one, judge(one, {}, FORMULAS)) in PAGE


def test_some_of_these_rows_literally():
    cells = {one.split(" | ")[1]: one.strip("| ").split(" | ")[3:6] for one in PAGE if one.startswith("| ")}
    assert cells["space of the DMT's entries (6 words of 4 bytes) for requests of 4 KB"] == ["0.6 %", "0.586 %", "yes"]
    assert cells["Eq. 8's benefit of a request of 4 MiB at random: its sign"] == ["not positive", "positive", "no"]


def test_numbers_are_counted_by_kind():
    """Numbers that describe a testbed are not."""
    rows = ["yes", "yes, sensitive: memory -20 %", "no", "parameter"]
    table = "\n".join(["### P", *(f"| Fig. 1 | w | trend | s | f | {within} | o | why |" for within in rows)])
    assert counts(table) == {"P": {"quantitative": Count(), "trend": Count(3, 2, 1), "arithmetic": Count()}}


def test_the_page_has_the_counts_of_its_appendix():
    found = counts("\n".join(PAGE))
    assert list(found) == ["PDLA", "S4D-Cache", "LiU", "iBridge", "E10"]
    page = (REPOSITORY / "docs" / "papers.md").read_text(encoding="utf-8")
    assert summary(found) in page
    text = " ".join(page.split())
    whole = sum((one for of_paper in found.values() for one in of_paper.values()), Count())
    assert f"{whole.numbers} numbers" in text and f"meet {whole.within} of them" in text
    assert f"{sum(of_paper['quantitative'].within for of_paper in found.values())} of these are quantitative" in text


def test_the_pictures_have_what_was_measured_of_the_same_benchmarks():
    found = measured((REPOSITORY / "docs" / "benchmarks-appendix.md").read_text(encoding="utf-8"))
    assert {name: set(of_paper) >= set(expected) for (name, of_paper), expected in zip(
        found.items(), ([f"Fig. {number}" for number in range(6, 13)], [f"Fig. {number}" for number in range(6, 11)]),
        strict=True,
    )} == {"pdla": True, "s4d-cache": True}  # fmt: skip
    assert all(
        f"papers-{name}.svg" in (REPOSITORY / "docs" / "papers.md").read_text(encoding="utf-8") for name in FIGURES
    )


def test_what_is_out_of_range_says_why():
    assert [one for one in PAGE if one.startswith("| ") and one.replace("|  |", "| |").endswith("| no | |")] == []


@pytest.mark.parametrize(
    ("name", "experiment", "what"),
    [
        ("e10", "e10/ior", "file system alone, at best"),
        ("s4d-cache", "s4d-cache/motive", "random against sequential reads of 4 MiB and more: comparable"),
        ("pdla", "pdla/lanl-app2", "S-ORIG against H-PDLA, writes"),
        ("liu", "liu/alone", "gain, writes: mpi-io-test"),
        ("liu", "liu/buffers-sequential", "mpi-io-test with 512 MB over 32 MB: similar"),
    ],
)
def test_rows_that_take_little_time_are_what_the_page_has(name: str, experiment: str, what: str):
    paper = load(name)
    (one,) = (row for row in paper.rows if row.what == what and row.experiment and row.experiment.name == experiment)
    assert one.experiment
    measures = {point: run(point, one.experiment) for point in needed(one)}
    cells = line(one, judge(one, measures, {})).split(" | ")[:5]
    assert cells in [text.split(" | ")[:5] for text in PAGE]


@pytest.mark.thorough
def test_replicas_are_those_of_the_planner():
    """The policies' spaces, Algorithm 1's threshold, and the capacity of the SSDs."""
    experiment = load("pdla").experiments["tile-ssd"]

    def served(scheme: str, other: Other | None = None, value: str = "64K", op: str = "read") -> dict[str, bool]:
        found = run(Point(experiment.name, value, op, scheme, other), experiment)
        return {name: found[f"served_{name}"] > 0 for name in ("hdd", "ssd")}

    assert served("s-pdla") == served("ns-pdla") == {"hdd": False, "ssd": True}
    assert served("s-pdla", Other("pools.ssd.capacity", "16M")) == {"hdd": True, "ssd": False}
    assert served("s-pdla", Other("plan.threshold_seconds", 1e6)) == {"hdd": True, "ssd": False}
    assert served("h-pdla") == {"hdd": True, "ssd": False}
    assert served("s-pdla", value="16K", op="write") == {
        "hdd": False,
        "ssd": True,
    }  # a lease: no way home before the close


@pytest.mark.parametrize("name", ["ior-mixed", "pio-ssd", "tile-ssd"])
def test_the_analyzer_finds_the_patterns_of_a_program(name: str):
    table = {**load("pdla").experiments[name].parameters, "processes": 4, "request": "64K", "bytes_each": "24M"}
    made = program(load("pdla").experiments[name].program, table, "write")
    analysis, writes = made.analyzed
    found, expected = (
        sorted((one.extent, one.requests, one.length) for one in signatures)
        for signatures in (analysis.signatures, made.signatures)
    )
    assert found == expected
    assert writes.dependences == [0] * len(made.signatures)


def accesses(name: str, **table: object) -> list[tuple[int, int, int]]:
    """(rank, offset, length) of a program's accesses, sorted."""
    made = program(name, table, "read")
    if made.trace:
        return of_trace(made.trace)
    expanded = [zip(*(part.tolist() for part in one.expand()), strict=True) for one in made.signatures]
    return sorted((rank, offset, length) for one in expanded for offset, rank, length in one)


def of_trace(trace: Trace) -> list[tuple[int, int, int]]:
    found = trace.accesses()
    return sorted(zip(found["rank"], found["offset"], found["length"], strict=True))


def test_programs_are_those_of_the_benchmarks():
    """Those that are signatures access what the generators' traces do."""
    pio = accesses("nested", processes=4, request="4K", bytes_each="64K", group=4)
    assert pio == of_trace(workloads.pio_nested_strided(4, 4 * KiB, 4, 4, 2 * 4 * 4 * 4 * KiB))
    tiles = accesses("tiles", processes=4, request="4K", bytes_each="16K")
    assert tiles == of_trace(workloads.pio_tiled((2, 2), 4 * KiB, 4, 1))
    every_second = accesses("strided", processes=2, request="4K", bytes_each="8K", step=2)
    assert every_second == [(0, 0, 4096), (0, 8192, 4096), (1, 16384, 4096), (1, 24576, 4096)]


@pytest.mark.parametrize("name", PAPERS)
def test_what_is_tried_is_on_the_page(name: str):
    for text in legend(load(name)):
        assert text in "\n".join(PAGE)


@pytest.mark.parametrize("name", PAPERS)
def test_every_row_can_be_printed(name: str):
    paper = load(name)
    for one in paper.rows:
        assert stated(one)
        assert one.kind in KINDS
        assert one.formula in FORMULAS if one.formula else one.experiment
        if one.experiment:
            assert {one.scheme, one.base} - {""} <= set(one.experiment.schemes)
            assert one.op in one.experiment.ops
            assert set(one.only) <= {str(value) for value in one.experiment.values}
