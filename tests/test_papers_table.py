"""The tables of docs/papers-appendix.md: rows are judged as they say, those of formulas are up to date."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.papers.__main__ import summary, sums
from benchmarks.papers.closed import FORMULAS
from benchmarks.papers.programs import program
from benchmarks.papers.simulate import run
from benchmarks.papers.table import (
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
    stated,
)
from pdla.collectors import workloads
from pdla.traces.trace import Trace
from pdla.units import KiB

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "papers-appendix.md").read_text(encoding="utf-8").splitlines()

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
        ({"base": "old", "compare": "steadier"}, "1.25 against 1.67 times", True),
        ({"against": "8", "compare": "each", "stated": [100, 60], "unit": "%"}, "100, 80", False),
        ({"base": "old", "measure": "less_time", "compare": "most", "stated": 45, "unit": "%"}, "50", True),
        ({"base": "old", "compare": "below", "stated": 50, "unit": "%"}, "50 to 100", False),
        ({"base": "old", "compare": "dips", "stated": 60, "unit": "%"}, "50 to 100", True),
    ],
)
def test_what_is_in_range(options: dict[str, object], found: str, within: bool):
    assert judge(row(**options), MEASURES, {})[:2] == (found, within)


def test_a_row_of_the_table():
    one = row(base="old", compare="range", stated=[55, 140], unit="%", reason="because")
    assert line(one, judge(one, MEASURES, {})) == "| Fig. 1 (I) | w | 55 to 140 % | 50 to 100 % | no |  | because |"


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
    cells = {one.split(" | ")[1]: one.strip("| ").split(" | ")[2:5] for one in PAGE if one.startswith("| ")}
    assert cells["space of the DMT's entries (6 words of 4 bytes) for requests of 4 KB"] == ["0.6 %", "0.586 %", "yes"]
    assert cells["Eq. 8's benefit of a request of 4 MiB at random: its sign"] == ["not positive", "positive", "no"]


def test_the_page_has_the_sums_of_its_appendix():
    found = sums("\n".join(PAGE))
    assert list(found) == ["PDLA", "S4D-Cache", "LiU", "iBridge", "E10"]
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert summary(found) in page
    text = " ".join(page.split())
    met, stated_numbers = (sum(one[part] for one in found.values()) for part in (0, 1))
    assert f"{stated_numbers} numbers" in text and f"meet {met} of them." in text


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
        assert one.formula in FORMULAS if one.formula else (one.experiment or one.beyond)
        if one.experiment:
            assert {one.scheme, one.base} - {""} <= set(one.experiment.schemes)
            assert one.op in one.experiment.ops
            assert set(one.only) <= {str(value) for value in one.experiment.values}
