"""pdla run --learn --policy auto: each file of a run gets its policy, by its group."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdla.autopilot import file_groups, spool, study
from pdla.autopilot.choosing import choose_policies
from pdla.autopilot.drifts import does_other_work
from pdla.autopilot.file_groups import ALL, OTHERS, group_of, groups_of, part_of, seconds_of
from pdla.autopilot.forecast import Forecast, forecast
from pdla.autopilot.names import pattern_of, without_numbers
from pdla.autopilot.schemes import POLICIES, PROMISE, WORSE
from pdla.catalog import Catalog, Decision, Drift, RunFacts, open_catalog
from pdla.collectors import workloads
from pdla.file_policies import FilePolicies
from pdla.layouts.config import load_cluster
from pdla.simulator.run import simulate
from pdla.simulator.verification import AS_IT_IS
from pdla.simulator.workload import from_trace
from pdla.steps import plan
from pdla.traces.trace import Trace
from pdla.units import KiB, MiB
from tests.support.clusters import described
from tests.support.learning_runs import Application

OWNER = "me"
SECONDS = st.floats(0.1, 100.0)
NATIVE = ""


# ---- which files are a group -----------------------------------------------------------------------------------------


def one_after_another(**files: Trace) -> Trace:
    """A program that accesses files of these names, each as in a trace of one file."""
    traces = list(files.values())
    begins = np.cumsum([0.0, *(trace.records["t_end"].max() for trace in traces)])
    records = [
        trace.records.assign(
            file=np.int32(number),
            call=trace.records["call"] + 1000 * number,
            t_start=trace.records["t_start"] + begin,
            t_end=trace.records["t_end"] + begin,
        )
        for number, (trace, begin) in enumerate(zip(traces, begins[:-1], strict=True))
    ]
    table = pd.concat([trace.files for trace in traces], ignore_index=True)
    table = table.assign(file=range(len(traces)), path=[f"/scratch/{name.replace('_', '.')}" for name in files])
    return replace(traces[0], records=pd.concat(records, ignore_index=True), files=table)


def taking(seconds: float, trace: Trace) -> Trace:
    """The same with calls that take so long altogether."""
    records = trace.records
    each = seconds / len(records)
    begins = np.arange(len(records)) * each
    return replace(trace, records=records.assign(t_start=begins, t_end=begins + each))


def at_random() -> Trace:
    return workloads.ior(4, 64 * 16 * KiB, 16 * KiB, 1, ["write"], random_offset=True)


def in_order() -> Trace:
    return workloads.ior(4, 16 * MiB, 4 * MiB, 1, ["write"])


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20).map("/{}".format))
def test_the_pattern_of_a_path_matches_it_and_paths_with_other_numbers(path: str) -> None:
    pattern = pattern_of(path)
    assert FilePolicies(((pattern, "e10"),)).of(path) == "e10"
    other = without_numbers(path).replace("N", "7") if "N" not in path else path
    if not {"\n", "N"} & set(path) and path.isascii():
        assert FilePolicies(((pattern, "e10"),)).of(other) == "e10"


def test_files_whose_names_differ_in_numbers_are_a_group() -> None:
    trace = one_after_another(
        check_1=taking(4.0, in_order()), check_22=taking(4.0, in_order()), out=taking(3.0, at_random())
    )
    groups = groups_of(trace)
    assert groups == ("/scratch/check.[0-9]*", "/scratch/out")
    assert [group_of(f"/scratch/{name}", groups) for name in ("check.333", "out", "else")] == [*groups, OTHERS]
    whole = trace.records["t_end"] - trace.records["t_start"]
    assert seconds_of(trace, ALL) == {OTHERS: whole.groupby(trace.records["rank"]).sum().max()}
    found = seconds_of(trace, groups)
    ranks = trace.ranks
    assert found == {groups[0]: pytest.approx(8.0 / ranks), groups[1]: pytest.approx(3.0 / ranks)}


@pytest.mark.parametrize(
    ("others", "groups"), [([0.2], ()), ([0.2, 0.2, 0.2], (OTHERS,)), ([0.2, 0.1], ())], ids=["one", "three", "two"]
)
def test_files_that_take_little_are_measured_together(others: list[float], groups: tuple[str, ...]) -> None:
    few = {f"file{chr(97 + number)}": taking(seconds, at_random()) for number, seconds in enumerate(others)}
    trace = one_after_another(check=taking(5.0, in_order()), out=taking(5.0, at_random()), **few)
    assert groups_of(trace) == ("/scratch/check", "/scratch/out", *groups)


def test_a_run_whose_files_are_of_one_kind_has_one_group() -> None:
    trace = one_after_another(check_1=taking(5.0, in_order()), log=taking(0.1, at_random()))
    assert groups_of(trace) == ALL
    assert groups_of(one_after_another(out=at_random())) == ALL


def test_files_without_calls_and_runs_without_files_are_no_trouble() -> None:
    trace = one_after_another(check=taking(1.0, in_order()), out=taking(1.0, at_random()))
    unused = pd.concat([trace.files, trace.files.tail(1).assign(file=7, path="/scratch/unused")], ignore_index=True)
    groups = groups_of(replace(trace, files=unused))
    assert groups == groups_of(trace) == ("/scratch/check", "/scratch/out")
    nothing = replace(trace, records=trace.records[:0], files=trace.files[:0])
    assert groups_of(nothing) == ALL and seconds_of(nothing, ALL) == {}


def test_one_pattern_counts_for_a_file_that_two_match() -> None:
    groups = groups_of(one_after_another(out_1=taking(1.0, in_order()), out_1_index=taking(1.0, in_order())))
    assert groups == ("/scratch/out.[0-9]*.index", "/scratch/out.[0-9]*")
    assert [group_of(f"/scratch/{name}", groups) for name in ("out.5.index", "out.5")] == [*groups]


def test_the_forecast_of_a_group_is_that_of_its_files_alone(tmp_path: Path) -> None:
    cluster = load_cluster(described(tmp_path))
    trace = one_after_another(big=in_order(), small=at_random())
    planned = plan(trace, cluster, hypothetical=True)
    groups = ("/scratch/small", "/scratch/big")
    found = {}
    for group, alone in zip(groups, (at_random(), in_order()), strict=True):
        part, for_it = part_of(trace, planned, group, groups)
        native = simulate(from_trace(part), cluster, AS_IT_IS).slowest
        assert native == pytest.approx(simulate(from_trace(alone), cluster, AS_IT_IS).slowest)
        assert {one.signature.file for one in for_it.patterns} <= {group}
        found[group] = {name: seconds / native for name, seconds in forecast(part, for_it, native).seconds.items()}
    assert found["/scratch/small"]["s4d"] < 0.3
    assert found["/scratch/big"]["s4d"] > PROMISE
    assert part_of(trace, planned, OTHERS, ALL) == (trace, planned)


def test_groups_share_the_room_of_a_pool_by_their_bytes(tmp_path: Path) -> None:
    """What one is forecast to save does not count on room that the others use."""
    cluster = load_cluster(described(tmp_path))
    alone = at_random()
    size = int(alone.records["length"].sum())
    pools = tuple(replace(one, capacity=size) if one.kind == "ssd" else one for one in cluster.pools)
    small = replace(cluster, pools=pools)
    groups = ("/scratch/a", "/scratch/b", "/scratch/c", "/scratch/d")
    trace = one_after_another(**{Path(one).name: alone for one in groups})
    planned = plan(trace, small, hypothetical=True)
    for group in groups:
        _, for_it = part_of(trace, planned, group, groups)
        assert [one.capacity for one in for_it.cluster.pools if one.kind == "ssd"] == [size // 4]


# ---- what is chosen for each -----------------------------------------------------------------------------------------

A, B = "/scratch/a.[0-9]*", "/scratch/b"


def file_of(group: str, number: int = 1) -> str:
    return group.replace("[0-9]*", str(number)) or "/scratch/else"


class Program:
    """A program whose groups of files take ``truth[group][policy]`` seconds; a run with several policies ``more``."""

    def __init__(
        self, catalog: Catalog, truth: Mapping[str, Mapping[str, float]], more: float = 0.0, name: str = "app"
    ) -> None:
        self.catalog, self.truth, self.more, self.name = catalog, truth, more, name
        self.application = catalog.autopilot.application(OWNER, name)
        self.predicted = {group: {name: s for name, s in one.items() if name} for group, one in truth.items()}
        self.policy = ""
        self.drift: list[Drift] = []
        self.io: list[float] = []

    def groups(self) -> tuple[str, ...]:
        return tuple(self.truth)

    def seconds(self, groups: Sequence[str]) -> dict[str, float]:
        if tuple(groups) == ALL:
            return {OTHERS: self.io[-1]}
        return {group: self._takes(group) for group in groups}

    def forecast(self, group: str, groups: Sequence[str], native: float) -> Forecast:
        assert native == self.truth[group][NATIVE]
        return Forecast(self.predicted.get(group, {}))

    def _takes(self, group: str) -> float:
        name = FilePolicies.from_text(self.policy).of(file_of(group))
        return self.truth[group]["" if name == "none" else name]

    def run(self, policy: str | None = None) -> str:
        """Run with what was chosen, or with a policy, and return what is chosen for the next run."""
        self.policy = self.policy if policy is None else policy
        number = len(self.io)
        files = tuple(file_of(group, number) for group in self.truth)
        more = self.more if len(FilePolicies.from_text(self.policy).names) > 1 else 0.0
        self.io.append(sum(map(self._takes, self.truth)) + more)
        old, new = f"/scratch/a.{number - 1}", f"/scratch/a.{number}"
        drift = (Drift("changed", new, "write", f"file {old} -> {new}"), *self.drift) if number else ()
        facts = RunFacts(4, 1000, 0, 0, run=number, files=files, policy=self.policy, io=self.io[-1], drift=drift)
        time = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)
        run = spool.Waiting(
            Path(f"run.{self.name}{number}"), (self.name,), "", True, "", time, {}, policy=self.policy, chosen=True
        )
        found = choose_policies(self.catalog, OWNER, self.application, run, facts, self)
        facts = replace(facts, parts=found.parts)
        self.catalog.autopilot.learn(self.application, run.name, time, facts, OWNER, found.decisions)
        self.policy = found.choice.policy
        return self.policy

    @property
    def log(self) -> list[Decision]:
        return self.catalog.autopilot.decisions(OWNER, kinds=["chose"])


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog(f"sqlite:///{tmp_path / 'catalog.db'}")


TRUTH = {A: {NATIVE: 10.0, "e10": 2.0, "s4d": 9.0}, B: {NATIVE: 20.0, "s4d": 5.0, "e10": 30.0}}


def test_each_group_gets_what_is_best_for_it(catalog: Catalog) -> None:
    program = Program(catalog, TRUTH)
    assert FilePolicies.from_text(program.run()) == FilePolicies(((A, "e10"), (B, "s4d")))
    for _ in range(3):
        assert program.run() == f"e10 {A}\ns4d {B}\nnone"
    assert program.io == [30.0, 7.0, 7.0, 7.0]
    (said,) = program.log
    assert said.why == (
        f"e10 for {A}, s4d for {B}, no policy for other files in the next run ({A}: e10 is predicted to take 2 s; "
        f"native took 10 s; {B}: s4d is predicted to take 5 s; native took 20 s)"
    )


def test_what_is_best_for_all_groups_is_chosen_for_all_files(catalog: Catalog) -> None:
    program = Program(catalog, {A: {NATIVE: 10.0, "s4d": 2.0}, B: {NATIVE: 20.0, "s4d": 5.0}})
    assert program.run() == "s4d"


def test_a_file_for_which_nothing_promises_much_is_left_alone(catalog: Catalog) -> None:
    program = Program(catalog, {A: {NATIVE: 10.0, "s4d": 9.0}, B: {NATIVE: 20.0, "s4d": 5.0}})
    assert program.run() == f"none {A}\ns4d {B}\nnone"
    program = Program(catalog, {A: {NATIVE: 1.0, "s4d": 0.5}, OTHERS: {NATIVE: 2.0, "e10": 1.0}}, name="other")
    assert program.run() == f"s4d {A}\ne10"


@given(st.data())
def test_with_a_true_forecast_each_group_has_its_best_and_no_run_is_slower(data: st.DataObject) -> None:
    names = st.dictionaries(st.sampled_from(POLICIES), SECONDS)
    truth = {group: {**data.draw(names), NATIVE: data.draw(SECONDS)} for group in (A, B, OTHERS)}
    program = Program(open_catalog("sqlite://"), truth)
    for _ in range(5):
        program.run()
    native = sum(one[NATIVE] for one in truth.values())
    assert all(one <= native * (1 + 1e-9) for one in program.io)
    assert program.io[-1] <= sum(min(one.values()) for one in truth.values()) / PROMISE * (1 + 1e-9)


@given(st.data())
def test_with_a_wrong_forecast_each_group_is_tried_twice_at_most(data: st.DataObject) -> None:
    names = st.fixed_dictionaries(dict.fromkeys(POLICIES, SECONDS))
    truth = {group: {**data.draw(names), NATIVE: 10.0} for group in (A, B)}
    program = Program(open_catalog("sqlite://"), truth)
    program.predicted = {group: data.draw(names) for group in truth}
    tried: dict[str, set[str]] = {group: set() for group in truth}
    for _ in range(8):
        policies = FilePolicies.from_text(program.run())
        for group, one in tried.items():
            one |= {policies.of(file_of(group))} - {"none"}
    assert all(len(one) <= 2 for one in tried.values())
    assert program.io[-1] == min(program.io) <= 20.0


def test_what_changes_in_more_than_names_is_forecast_anew(catalog: Catalog) -> None:
    program = Program(catalog, TRUTH)
    program.run()
    program.run()
    assert len(program.log) == 1
    program.drift = [Drift("came", "/scratch/b", "write", "a pattern")]
    program.predicted = {}
    assert program.run("") == ""
    assert len(program.log) == 2
    changed = [Drift("changed", "/b7", "read", text) for text in ("file /a7 -> /b7", "start 0 -> 1, file /b6 -> /b7")]
    renamed = Drift("changed", "/b7", "read", "file /b6 -> /b7")
    assert all(map(does_other_work, [[one] for one in changed]))
    assert does_other_work([renamed, changed[0]]) and does_other_work([renamed] * 20)
    assert not does_other_work([renamed]) and not does_other_work([])


def test_what_is_slower_as_a_whole_is_given_up(catalog: Catalog) -> None:
    """Each file is faster by itself, but what is between them costs more."""
    program = Program(catalog, TRUTH, more=WORSE * 30.0)
    program.run()
    for _ in range(4):
        program.run()
    assert program.io == [30.0, 40.0, 30.0, 30.0, 30.0]
    assert program.log[-1].why == (
        "no policy for all files in the next run: all files took 30 s, and 40 s with "
        f"e10 for {A}, s4d for {B}, no policy for other files"
    )


def test_what_was_undone_or_failed_is_not_chosen_again_for_these_files(catalog: Catalog) -> None:
    """Also after it was measured."""
    program = Program(catalog, TRUTH)
    program.run()
    program.run()
    catalog.autopilot.undo([program.log[-1].id])
    assert program.run("") == ""
    assert program.run() == ""
    other = Program(catalog, TRUTH, name="other")
    other.run()
    facts = {"run": "run.9", "policy": f"e10 {A}\nnone", "command": "other"}
    catalog.autopilot.decide(OWNER, [Decision("ignored:run.9", "ignored", "it failed", facts=facts)])
    assert other.run() == f"none {A}\ns4d {B}\nnone"


def test_runs_and_decisions_of_earlier_versions_are_about_all_files(catalog: Catalog, tmp_path: Path) -> None:
    program = Program(catalog, TRUTH)
    time = datetime(2025, 1, 1, tzinfo=UTC)
    facts = RunFacts(4, 1000, 0, 0, run=77, files=("/scratch/a.0", "/scratch/b"), io=30.0)
    old = {"run": "old", "policy": "s4d", "seconds": {"s4d": 8.0}, "absent": {"e10": "no pool"}}
    said = Decision("chose:old", "chose", "s4d", program.application, facts={**old, "ranks": 4, "bytes": 1000})
    catalog.autopilot.learn(program.application, "old", time, facts, OWNER, [said])
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        ((stored,),) = database.execute("SELECT facts FROM autopilot_runs").fetchall()
        values = json.loads(stored)
        del values["parts"]
        database.execute("UPDATE autopilot_runs SET facts = ?", [json.dumps(values)])
    assert program.run("s4d") == "s4d"
    (run,) = [one for one in catalog.autopilot.runs(program.application) if one.name == "run.app0"]
    assert run.facts.parts == {OTHERS: 14.0}
    assert len(program.log) == 1
    catalog.autopilot.undo([program.log[0].id])
    assert program.run() == ""


# ---- real runs -------------------------------------------------------------------------------------------------------

WRITER = """
import random, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size
data = MPI.File.Open(world, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_WRONLY)
check = MPI.File.Open(world, sys.argv[2], MPI.MODE_CREATE | MPI.MODE_WRONLY)
for place in random.Random(5).sample(range(64), 64):
    data.Write_at((place * ranks + rank) * 5000, bytes([(7 * place + rank) % 256]) * 5000)
for place in range(64):
    check.Write_at_all((place * ranks + rank) * 5000, bytes([(7 * place + rank) % 256]) * 5000)
data.Close()
check.Close()
"""


class TwoFiles(Application):
    """A program that writes at random to one file, and checkpoints, of another name in each run."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        (directory / "writer.py").write_text(WRITER)
        self.check = directory / "check.0"

    def run(self, code: int = 0, *options: str) -> str:
        self.check = self.check.with_name(f"check.{int(self.check.name[6:]) + 1}")
        program = [self.mpi.python, str(self.pdla.directory / "writer.py"), str(self.data), str(self.check)]
        self.data.unlink(missing_ok=True)
        command = [*self.mpi.mpiexec, "-n", "2", *program]
        done = self.pdla.run("run", "--learn", "--policy", "auto", "--json", *options, "--", *command, code=code)
        self.report = json.loads(done.stdout.splitlines()[-1])
        assert self.data.read_bytes() == self.check.read_bytes() and self.data.stat().st_size == 640_000
        return done.stderr


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The disks of this machine are not those of cluster.toml, and may be busy: the forecast is given, and each file's
    share of the seconds counts."""

    def promised(trace: Trace, _: Any, measured: float, *, leased: bool) -> Forecast:
        (number,) = trace.records["file"].unique()
        return Forecast({"e10" if "check" in trace.path(number) else "s4d": measured / 1000})

    (tmp_path / "node").mkdir()
    monkeypatch.setattr(study, "forecast", promised)
    monkeypatch.setattr(file_groups, "LEAST", 1e-9)
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    one = TwoFiles(tmp_path)
    with spool.daemon_learns():  # no process learns in the background
        yield one


def test_the_second_run_has_a_policy_for_each_file(application: TwoFiles) -> None:
    assert "policy" not in application.run()
    ((kind, why),) = application.learned()
    check, data = (pattern_of(str(path)) for path in (application.check, application.data))
    assert kind == "chose" and f"e10 for {check}" in why and f"s4d for {data}" in why
    said = application.run()
    assert "which earlier runs chose (pdla log)" in said and f"{check}=e10" in said and f"{data}=s4d" in said
    served = {Path(one["path"]): (one["policy"], one["written_bytes"]) for one in application.report["caches"]}
    assert served == {application.check: ("e10", 640_000), application.data: ("s4d", 640_000)}
    application.learned()
    first, second = application.pdla.json("history", "1", "--json")["runs"]
    assert first["policy"] == "" and second["policy"].splitlines()[-1] == "none"
    text = application.pdla.run("history", "1").stdout
    assert "e10, s4d" in text and "Run 2 had" in text
    number = next(one["id"] for one in application.pdla.json("log", "--json")["decisions"] if one["kind"] == "chose")
    assert "is not chosen again" in application.pdla.run("undo", str(number)).stdout
    assert "with --policy" not in application.run()
    application.learned()
    assert "with --policy" not in application.run()
