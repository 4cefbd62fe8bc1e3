"""pdla run --learn --policy auto: the policy of the next run, from what runs took and from a forecast."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdla.autopilot import spool, study
from pdla.autopilot.forecast import Forecast, forecast
from pdla.autopilot.schemes import NATIVE, POLICIES, PROMISE, REPLICAS, Taken, choose
from pdla.collectors import workloads
from pdla.layouts.config import load_cluster
from pdla.model import Cluster
from pdla.simulator.run import simulate
from pdla.simulator.verification import AS_IT_IS
from pdla.simulator.workload import from_trace
from pdla.steps import plan
from pdla.traces.trace import Trace
from pdla.units import KiB, format_seconds
from tests.support.clusters import STORAGE, described
from tests.support.command_line import Launching
from tests.support.learning_runs import WRITER, Application

SECONDS = st.floats(0.1, 100.0)
LEAD = {"s4d": 1, "ibridge": 1, "liu": 2}


def served(runs: int, truth: Mapping[str, float], predicted: Mapping[str, float]) -> list[Taken]:
    """The runs of a program that takes ``truth``; while a policy learns, it takes what it takes natively."""
    done = [Taken(NATIVE, truth[NATIVE])]
    for _ in range(runs - 1):
        policy = choose(done, predicted, LEAD).policy
        scheme = policy or (REPLICAS if REPLICAS in truth else NATIVE)
        earlier = sum(one.scheme == scheme for one in done)
        done.append(Taken(scheme, truth[NATIVE] if earlier < LEAD.get(policy, 0) else truth[scheme]))
    return done


@given(st.dictionaries(st.sampled_from((*POLICIES, REPLICAS)), SECONDS), SECONDS)
def test_with_a_true_forecast_the_best_is_found_and_no_run_is_slower(others: dict[str, float], native: float) -> None:
    """The first run is native. A policy that learns from two runs serves the fourth one."""
    if REPLICAS in others:
        others[REPLICAS] = min(others[REPLICAS], native)  # plans make no others
    truth = {**others, NATIVE: native}
    done = served(8, truth, others)
    assert done[-1].seconds <= min(truth.values()) / PROMISE
    tried = {one.scheme for one in done}
    assert len(tried & set(POLICIES)) <= 1 and all(others[one] <= PROMISE * native for one in tried & set(POLICIES))
    assert all(one.seconds <= native for one in done)


@given(st.fixed_dictionaries(dict.fromkeys(POLICIES, SECONDS)), st.fixed_dictionaries(dict.fromkeys(POLICIES, SECONDS)))
def test_a_wrong_forecast_costs_two_tries(truth: dict[str, float], predicted: dict[str, float]) -> None:
    done = served(12, {**truth, NATIVE: 10.0}, predicted)
    assert len({one.scheme for one in done} & set(POLICIES)) <= 2
    assert done[-1].seconds <= 10.0, "what turned out slower than natively is not used"
    assert done[-1].seconds == min(one.seconds for one in done)


def test_a_policy_that_is_slower_while_it_learns_is_given_up_at_once() -> None:
    runs = [Taken(NATIVE, 10.0), Taken("liu", 11.5)]
    assert choose(runs, {"liu": 2.0}, LEAD).policy == ""
    assert choose([Taken(NATIVE, 10.0), Taken("liu", 10.0)], {"liu": 2.0}, LEAD).policy == "liu"
    assert choose([], {"liu": 2.0}, LEAD).policy == ""


# ---- the forecast --------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return load_cluster(described(tmp_path))


def at_random(op: Any) -> Trace:
    return workloads.ior(4, 256 * 16 * KiB, 16 * KiB, 1, [op], random_offset=True)


def forecast_of(trace: Trace, cluster: Cluster, factor: float = 1.0) -> tuple[float, Forecast]:
    native = simulate(from_trace(trace), cluster, AS_IT_IS).slowest
    return native, forecast(trace, plan(trace, cluster, hypothetical=True), factor * native)


@pytest.mark.parametrize("op", ["read", "write"])
def test_small_requests_at_random_are_faster_on_ssds(cluster: Cluster, op: str) -> None:
    native, found = forecast_of(at_random(op), cluster)
    assert min(found.seconds, key=lambda one: found.seconds[one]) in ("s4d", "ibridge", "liu")
    assert found.seconds["s4d"] < native / 4 and not found.absent
    assert found.seconds.get("e10", native) == pytest.approx(native), "no call is collective"


def test_a_run_that_takes_another_time_than_its_simulation_is_not_forecast(cluster: Cluster) -> None:
    native, found = forecast_of(at_random("write"), cluster, 0.3)
    assert not found.seconds
    assert found.absent[""] == (
        f"the run took {format_seconds(0.3 * native)}, and {format_seconds(native)} in the simulation"
    )


def test_without_their_pools_policies_have_no_forecast(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(STORAGE[: STORAGE.index("[pools.ssd]")])
    _, found = forecast_of(at_random("write"), load_cluster(path))
    assert set(found.absent) == {"e10", "s4d", "ibridge"} and not found.seconds


def test_writes_that_have_replicas_are_not_cached(cluster: Cluster, tmp_path: Path) -> None:
    for name in ("hdd", "ssd0", "ssd1", "node"):
        (tmp_path / name).mkdir()
    trace = workloads.ior(4, 4 * KiB, 4 * KiB, 512, ["write"])
    native = simulate(from_trace(trace), cluster, AS_IT_IS).slowest
    planned = plan(trace, cluster, writes="lease", hypothetical=True)
    seconds = forecast(trace, planned, native, leased=True).seconds
    assert seconds[REPLICAS] < native / 2
    assert {seconds[one] for one in ("e10", "s4d", "ibridge")} == {seconds[REPLICAS]}
    assert REPLICAS not in forecast(trace, plan(trace, cluster, hypothetical=True), native).seconds


# ---- real runs -----------------------------------------------------------------------------------------------------


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The disks of this machine are not those of cluster.toml: the forecast is given."""
    monkeypatch.setattr(study, "forecast", lambda trace, plan, measured, leased: Forecast({"s4d": measured / 4}))
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    one = Application(tmp_path)
    with spool.daemon_learns():  # no process learns in the background
        yield one


def test_the_second_run_has_the_policy_that_the_forecast_promises(application: Application) -> None:
    assert "policy" not in application.run()
    ((kind, why),) = application.learned()
    assert kind == "chose" and why.startswith("s4d for the next run: s4d is predicted to take")
    said = application.run()
    assert "with --policy s4d, which earlier runs chose (pdla log)" in said
    application.learned()
    runs = application.pdla.json("history", "1", "--json")["runs"]
    assert [one["policy"] for one in runs] == ["", "s4d"] and all(one["io"] > 0 for one in runs)
    assert "s4d" in application.pdla.run("history", "1").stdout
    assert "policy" not in application.run(0, "--verify"), "without --policy auto there is none"


def test_a_choice_that_is_undone_is_not_made_again(application: Application) -> None:
    application.run()
    application.learned()
    (number,) = [one["id"] for one in application.pdla.json("log", "--json")["decisions"] if one["kind"] == "chose"]
    said = application.pdla.run("undo", str(number)).stdout
    assert "the next runs have no policy, and s4d is not chosen again" in said
    assert "with --policy" not in application.run()
    application.learned()
    assert "with --policy" not in application.run()


def test_a_policy_with_which_the_program_failed_is_not_chosen_again(application: Application) -> None:
    application.run()
    application.learned()
    program = application.pdla.directory / "writer.py"
    program.write_text(WRITER.replace("int(sys.argv[2])", "3"))
    words = [*application.mpi.mpiexec, "-n", "2", application.mpi.python, str(program), str(application.data), "0"]
    application.pdla.run("run", "--learn", "--policy", "auto", "--", *words, code=3)
    program.write_text(WRITER)
    assert application.learned()[-1][0] == "ignored"
    assert "with --policy" not in application.run()
    application.learned()
    assert "with --policy" not in application.run()


def test_a_policy_that_cannot_serve_is_left_out(application: Application) -> None:
    application.run()
    application.learned()
    for name in ("ssd0", "ssd1"):
        path = application.pdla.directory / name
        path.rmdir() if path.is_dir() else None
        path.write_text("no directory")
    said = application.run()
    assert "without --policy s4d, which earlier runs chose: no directory of an SSD server" in said
    assert application.data.stat().st_size == 640_000


def test_auto_needs_learn_and_takes_no_hints(pdla: Launching) -> None:
    for words in (("--policy", "auto"), ("--learn", "--policy", "auto", "--hint", "cache_bytes=1M")):
        done = pdla.run("run", *words, "--", "true", code=2)
        assert "--policy auto needs --learn, and takes neither --coherence nor --hint" in done.stderr
