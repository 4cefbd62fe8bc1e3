"""pdla month: what the autopilot was worth in a month, as one page."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from pdla.autopilot.learner import Learner
from pdla.autopilot.months import Month
from pdla.autopilot.names import this_user
from pdla.catalog import Catalog, Decision, Drift, RunFacts, open_catalog
from pdla.report.month import sentences, write_month
from tests.support.command_line import Launching

FIRST = date(2026, 10, 1)
GAIN = {"md_run N": 8.0, "climate.x --in=FILE": 2.0, "post.py FILE": 0.9}
"""How many times as fast each application's I/O was with pdla."""


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A month with three applications, of which one became slower, and one run of the month before."""
    (tmp_path / "home").mkdir()
    found = open_catalog(f"sqlite:///{tmp_path}/home/catalog.db")
    for name, gain in GAIN.items():
        learn_from(found, name, gain)
    return found


def learn_from(catalog: Catalog, name: str, gain: float) -> None:
    owner, number = this_user(), catalog.autopilot.application(this_user(), name)
    draw = np.random.default_rng(len(name))
    for day in range(-1, 31):
        time = datetime(2026, 10, 1, 12, tzinfo=UTC) + timedelta(days=day)
        native = 60.0 * (1 + draw.uniform(-0.03, 0.03))
        recorded, served = day < 4 or day % 4 == 0, day > 0
        drift = (Drift("changed", "/f", "read", "start 0 -> 512"),) if day == 12 else ()
        facts = RunFacts(
            *(8, 1 << 30, 1 << 30, (1 << 30) if served else 0),
            seconds=(native / gain if served else native) if recorded else None,
            before=60.0 if served and recorded else None,
            run=day + 2 if recorded else 0,
            drift=drift,
        )
        decisions = [Decision(f"learned:{name}{day}", "learned", "a run", number, facts={"run": str(day)})]
        if day == 0:
            decisions.append(Decision(f"built:{name}", "built", "replica 1 of /data/<in>.nc: 1 GiB", number))
        catalog.autopilot.learn(number, f"run.{name}{day}", time, facts, owner, decisions)


def test_what_was_saved_is_measured_and_for_runs_that_were_not_recorded_estimated(catalog: Catalog) -> None:
    month = Month.of(catalog, this_user(), FIRST)
    assert [one.name for one in month.applications] == list(GAIN), "the one that saved most comes first"
    for one in month.applications:
        gain = GAIN[one.name]
        served = sum(run.facts.hit > 0 for run in one.runs)
        assert len(one.runs) == 31 and served == 30
        assert one.before / one.after == pytest.approx(gain, rel=0.05)
        assert one.saved == pytest.approx(served * 60 * (1 - 1 / gain), rel=0.1)
        assert one.changed == 1
    assert sum(month.days.values()) == pytest.approx(month.saved)
    assert len(month.days) == 31 and month.days[date(2026, 10, 1)] == 0
    before = Month.of(catalog, this_user(), date(2026, 9, 1))
    assert [len(one.runs) for one in before.applications] == [1, 1, 1] and before.saved == 0
    assert Month.of(catalog, "somebody else", FIRST).applications == []


def test_a_run_with_a_policy_is_compared_in_all_its_io(tmp_path: Path) -> None:
    """A cache moves seconds from the writes into the close."""
    with closing(open_catalog(f"sqlite:///{tmp_path}/c.db")) as catalog:
        number = catalog.autopilot.application("me", "app")
        for day, (policy, seconds, io) in enumerate([("", 9.0, 10.0), ("e10", 0.5, 4.0)], 1):
            facts = RunFacts(4, 100, 0, 0, seconds=seconds, run=day, policy=policy, io=io)
            catalog.autopilot.learn(number, f"run.{day}", datetime(2026, 10, day, 12, tzinfo=UTC), facts, "me", [])
        (one,) = Month.of(catalog, "me", FIRST).applications
        assert (one.before, one.after) == (10.0, 4.0)


class Tags(HTMLParser):
    """The tags of a page, and whether each is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        self.open += [tag] if tag not in ("meta", "br") else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_can_be_mailed(catalog: Catalog, tmp_path: Path) -> None:
    """It has no script and nothing to fetch, its bars have words, and names are text."""
    decided = catalog.autopilot.decisions(this_user())  # now, and not in that month
    write_month(tmp_path / "month.html", replace(Month.of(catalog, this_user(), FIRST), decisions=decided))
    text = (tmp_path / "month.html").read_text()
    page = Tags()
    page.feed(text)
    assert not page.open and len(text) < 100_000
    assert not {"script", "img", "link", "svg", "iframe"} & {tag for tag, _ in page.seen}
    assert "http" not in re.sub("<!DOCTYPE html>", "", text)
    assert all(attributes["aria-label"] for _, attributes in page.seen if attributes.get("role") == "img")
    assert "/data/&lt;in&gt;.nc" in text and "3 replicas built" in text
    assert "I/O in October 2026" in text


def test_the_verb_says_what_the_page_says(catalog: Catalog, pdla: Launching) -> None:
    said = pdla.run("month", "2026-10", "-o", "october.html").stdout
    assert said.startswith("pdla: wrote october.html\npdla: 93 runs of 3 applications.")
    assert (pdla.directory / "october.html").exists()
    answer = pdla.json("month", "2026-10", "--json")
    assert (answer["month"], answer["decisions"]) == ("2026-10", {})
    assert [one["runs"] for one in answer["applications"]] == [31, 31, 31]
    assert "No run was learned from in this month" in pdla.run("month", "2025-01").stdout
    assert "'October' is not a month such as 2026-11" in pdla.run("month", "October", code=2).stderr


def test_a_month_without_gain_says_so(tmp_path: Path) -> None:
    with closing(open_catalog(f"sqlite:///{tmp_path}/c.db")) as catalog:
        learn_from(catalog, "app", 0.5)
        said = " ".join(sentences(Month.of(catalog, this_user(), FIRST)))
        assert "it cost" in said and "saved" not in said


def test_the_figures_for_metrics_follow_new_runs(catalog: Catalog) -> None:
    learner = Learner(catalog)
    first = {one.name: one for one in learner.figures()}
    assert first.keys() == GAIN.keys()
    for name, one in first.items():
        assert (one.runs, one.hit_ratio, one.changes) == (32, 1.0, 1)
        assert (one.saved > 0) == (GAIN[name] > 1)
    number = catalog.autopilot.application(this_user(), "md_run N")
    facts = RunFacts(8, 1 << 30, 1 << 30, 1 << 29, seconds=10.0, before=60.0, run=99)
    catalog.autopilot.learn(number, "run.new", datetime.now(UTC), facts, this_user(), [])
    (changed,) = [one for one in learner.figures() if first[one.name] != one]
    assert (changed.runs, changed.hit_ratio) == (33, 0.5)
    assert changed.saved == pytest.approx(first["md_run N"].saved + 50)
