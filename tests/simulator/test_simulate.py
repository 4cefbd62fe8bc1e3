"""pdla simulate: comparisons of schemes, sweeps, pictures, and the catalog."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pdla.analyzers.analysis import analyze
from pdla.analyzers.rank_scaling import scale
from pdla.catalog import open_catalog
from pdla.cli import cli
from pdla.collectors import workloads
from pdla.collectors.tracefile import write_trace
from pdla.errors import ConfigError
from pdla.layouts.config import load_cluster
from pdla.simulator.scheme_comparison import Program, contest
from pdla.simulator.schemes import scheme_names
from pdla.simulator.sweep import Sweep, sweep
from pdla.traces.trace import Trace
from tests.support.waiting import PATIENCE


def program(ranks: int) -> Trace:
    return workloads.pio_nested_strided(ranks, 65536, 4, 4, 64 << 20)


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    paths = [tmp_path / f"run{ranks}.h5" for ranks in (4, 8)]
    for path, ranks in zip(paths, (4, 8), strict=True):
        write_trace(program(ranks), path)
    return [str(path) for path in paths]


def pdla(*words: str) -> str:
    result = CliRunner().invoke(cli, ["simulate", *words], catch_exceptions=False, standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.output


def answer(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pdla(*words, "--json").splitlines()[0])
    return found


def test_all_schemes_are_compared_and_those_that_cannot_be_say_why(traces: list[str]) -> None:
    found = answer(traces[0], "--cluster", "e10")
    named = {one["scheme"] for one in found["schemes"]} | {one["scheme"] for one in found["absent"]}
    assert named == set(scheme_names())
    assert {"scheme": "s-orig", "why": "example e10: s-orig needs a pool of kind 'ssd', but there is none"} in found[
        "absent"
    ]
    for one in found["schemes"]:
        assert one["bytes_read"] == 4 * 4 * 4 * 65536
        assert one["bandwidth"] == pytest.approx(one["bytes_read"] / one["seconds"])
    assert open_catalog().simulations.all()[-1].answer == found


def test_the_table_has_the_fastest_first(traces: list[str]) -> None:
    lines = pdla(traces[0], "--cluster", "pdla", "--policy", "none", "--policy", "pdla-s").splitlines()
    assert [line.split()[0] for line in lines if line.startswith(("none", "pdla-s"))] == ["pdla-s", "none"]


def test_unknown_schemes_and_keys_are_refused(traces: list[str]) -> None:
    with pytest.raises(click.BadParameter, match="unknown scheme 'nonesuch': choose one of none, independent"):
        pdla(traces[0], "--policy", "nonesuch")
    with pytest.raises(click.BadParameter, match="unknown key 'nonesuch'"):
        pdla(traces[0], "--policy", "none", "--sweep", "home.nonesuch=1")
    with pytest.raises(click.BadParameter, match="no table for the key 'nonesuch'"):
        pdla(traces[0], "--policy", "none", "--sweep", "nonesuch=1")
    with pytest.raises(click.BadParameter, match="--sweep takes KEY=V1,V2"):
        pdla(traces[0], "--sweep", "home.strip")
    with pytest.raises(click.BadParameter, match="needs traces of the program at two or more"):
        pdla(traces[0], "--policy", "none", "--sweep", "processes=16")


def test_a_sweep_has_a_point_for_each_value_in_order(traces: list[str], tmp_path: Path) -> None:
    picture = tmp_path / "sweep.svg"
    words = ("--cluster", "pdla", "--policy", "none", "--sweep", "clients.network_seconds_per_byte=8e-9,8e-8,8e-10")
    (swept,) = answer(traces[0], *words, "--plot", str(picture))["sweeps"]
    assert swept["key"] == "clients.network_seconds_per_byte"
    assert [point["value"] for point in swept["points"]] == ["8e-9", "8e-8", "8e-10"]
    seconds = [point["schemes"][0]["seconds"] for point in swept["points"]]
    assert seconds[2] < seconds[0] < seconds[1]
    assert "<svg" in picture.read_text()


def test_a_sweep_over_processes_predicts_the_program(traces: list[str]) -> None:
    words = ("--cluster", "pdla", "--policy", "none", "--sweep", "processes=4,16")
    (swept,) = answer(*traces, *words)["sweeps"]
    assert [point["schemes"][0]["bytes_read"] for point in swept["points"]] == [4 << 20, 16 << 20]


def test_a_scaled_program_does_what_the_program_does_there() -> None:
    """The prediction for 16 ranks from 4 and 8 takes as long as the trace of 16, without its pauses."""
    scaling = scale({ranks: analyze(program(ranks)) for ranks in (4, 8)})
    there = Program.of(program(16))
    there = replace(there, workload=there.workload.at_once())
    names = ("none", "independent", "two-phase", "pdla-h", "pdla-s")
    cluster = load_cluster("pdla", {"clients.jitter_seconds": "0"})
    predicted = contest(Program.of(program(4)).scaled(scaling, 16), cluster, names)
    assert [one.seconds for one in predicted.results] == pytest.approx(
        [one.seconds for one in contest(there, cluster, names).results]
    )


def test_more_servers_of_a_pool_are_more_like_the_others() -> None:
    assert load_cluster("pdla", {"pools.ssd.servers": "6"}).pool("ssd").servers == 6
    assert load_cluster("pdla", {"pools.ssd.servers": "2"}).pool("ssd").servers == 2
    assert load_cluster("pdla", {"pools.ssd.capacity": "1G"}).pool("ssd").capacity == 1 << 30
    with pytest.raises(ConfigError, match=r"pools.ssd.servers must be a whole number of at least 1 \(got 'x'\)"):
        load_cluster("pdla", {"pools.ssd.servers": "x"})


def test_a_picture_of_no_known_kind_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match=r"the name of a picture must end in .png, .svg, .pdf"):
        pdla("nowhere.h5", "--policy", "none", "--plot", str(tmp_path / "plot.nonesuch"))


def test_processes_of_mpiexec_share_a_sweep(traces: list[str]) -> None:
    words = ("simulate", traces[0], "--cluster", "pdla", "--policy", "none", "--sweep", "home.servers=1,2,8", "--json")
    binaries = Path(sys.executable).parent
    command = [binaries / "mpiexec", "-n", "2", binaries / "pdla", *words]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=PATIENCE).stdout
    assert json.loads(said) == answer(*words[1:-1])


def test_the_report_has_what_was_last_simulated_of_the_program(traces: list[str], tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    for cluster in ("pdla", "s4d-cache"):
        pdla(traces[0], "--cluster", cluster, "--policy", "none", "--policy", "two-phase")
    CliRunner().invoke(cli, ["report", traces[0], "-o", str(page)], catch_exceptions=False, standalone_mode=False)
    text = page.read_text()
    assert "Simulated on example s4d-cache" in text
    assert "two-phase" in text.split("How long other schemes would take</h2>")[1]


def test_values_of_a_sweep_are_a_key_and_what_it_may_be() -> None:
    assert Sweep.parse("pools.ssd.capacity = 1G, 2G") == Sweep("pools.ssd.capacity", ("1G", "2G"))
    found = sweep(Sweep("home.servers", ("4",)), Program.of(program(4)), "pdla", ("none",))
    assert [point.value for point in found] == ["4"]
