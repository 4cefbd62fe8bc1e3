"""What a script uses: the functions of the package do what the verbs do."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import pdla
from pdla.errors import ConfigError
from pdla.findings import find
from pdla.policies.planfile import plan_to_json
from pdla.report.scheme_tables import contest_json
from pdla.traces.trace import Trace
from tests.support.command_line import InProcess


@pytest.fixture
def verbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InProcess:
    """The command line, and the functions, with the same catalog."""
    found = InProcess(tmp_path, {})
    monkeypatch.setenv("PDLA_HOME", str(found.home))
    monkeypatch.delenv("PDLA_CATALOG", raising=False)
    return found


def strided(file: Path) -> Trace:
    """Four ranks read small pieces of a file in turns."""
    trace = pdla.workloads.pio_simple_strided(4, 4096, 500)
    return replace(trace, files=trace.files.assign(path=str(file)))


def existing(directory: Path) -> Path:
    path = directory / "data"
    np.zeros(4 * 4096 * 500, np.uint8).tofile(path)
    return path


def test_the_package_imports_nothing_until_a_name_is_used() -> None:
    code = "import sys, pdla; print(*{name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names))"
    code += "; print('pdla.steps' in sys.modules, pdla.plan.__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported, *then = done.stdout.splitlines()
    assert not {"numpy", "pandas", "h5py", "sqlalchemy", "matplotlib"} & set(imported.split())
    assert then == ["False pdla.steps"]


def test_every_public_name_is_there_and_documented() -> None:
    assert set(pdla.__all__) < set(dir(pdla))
    for name in pdla.__all__:
        found = getattr(pdla, name)
        assert inspect.getdoc(found), name
        if inspect.isfunction(found):
            assert "return" in found.__annotations__, name
    with pytest.raises(AttributeError, match="module 'pdla' has no attribute 'nothing'"):
        _ = pdla.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize("writes", ["original", "close", "lease"])
def test_plan_chooses_what_the_verb_chooses(verbs: InProcess, writes: str) -> None:
    trace = strided(existing(verbs.directory))
    pdla.save(trace, verbs.directory / "run.h5")
    answer = verbs.json("plan", "run.h5", "--cluster", "pdla", "--writes", writes, "--json")
    made = pdla.plan(pdla.load(verbs.directory / "run.h5"), "pdla", writes=writes)  # type: ignore[arg-type]
    assert plan_to_json(made) == answer
    assert plan_to_json(pdla.plan(trace, pdla.load_cluster("pdla"), writes=writes))["patterns"] == answer["patterns"]  # type: ignore[arg-type]


def test_a_file_that_is_gone_gets_a_replica_only_in_a_hypothetical_plan(verbs: InProcess) -> None:
    trace = strided(verbs.directory / "gone")
    assert pdla.plan(trace, "pdla").patterns[0].choice.layout is None
    assert pdla.plan(trace, "pdla", hypothetical=True).patterns[0].choice.layout is not None


def test_diagnose_has_the_findings_on_the_storage_of_the_plan(verbs: InProcess) -> None:
    trace = strided(verbs.directory / "data")
    # About as long as it takes on that storage: otherwise nothing is expected.
    times = {name: 0.6 * trace.records[name] for name in ("t_start", "t_end")}
    trace = replace(trace, records=trace.records.assign(**times))
    plan = pdla.plan(trace, "pdla", hypothetical=True)
    found = pdla.diagnose(trace, "pdla")
    assert found == find(trace, plan) == pdla.diagnose(trace, planned=plan)
    assert [one.predicted.storage for one in found if one.predicted] == ["example pdla"]


def test_simulate_finds_what_the_verb_finds(verbs: InProcess) -> None:
    pdla.save(strided(verbs.directory / "data"), verbs.directory / "run.h5")
    answer = verbs.json("simulate", "run.h5", "--cluster", "liu", "--json")
    found = pdla.simulate(pdla.load(verbs.directory / "run.h5"), "liu")
    assert json.loads(json.dumps(contest_json(found))) == {name: answer[name] for name in ("schemes", "absent")}
    with pytest.raises(ConfigError, match="unknown scheme 'x'"):
        pdla.simulate(strided(verbs.directory / "data"), "liu", ["x"])


def test_add_run_records_what_analyze_records(verbs: InProcess) -> None:
    path = verbs.directory / "run.h5"
    pdla.save(strided(verbs.directory / "data"), path)
    added = pdla.add_run(path)
    assert (added.run, added.patterns, added.new) == (1, 1, 1)
    before = pdla.open_catalog().runs.get(1)
    assert verbs.run("analyze", "run.h5").stderr == "pdla: run 1 of application 1: no new pattern\n"
    assert pdla.open_catalog().runs.get(1) == before


def test_runs_are_found_by_file_program_ranks_and_time(verbs: InProcess) -> None:
    catalog, start = pdla.open_catalog(), datetime(2026, 3, 1, tzinfo=UTC)
    for day, (name, ranks) in enumerate([("ocean", 4), ("ocean", 8), ("atmosphere", 4), ("ocean", 4)]):
        trace = replace(
            pdla.workloads.pio_simple_strided(ranks, 4096, 20),
            command=f"./{name} --day {day}",
            started=(start + timedelta(days=day)).timestamp() if day else 0.0,
        )
        path = verbs.directory / f"{day}.h5"
        pdla.save(replace(trace, files=trace.files.assign(path=f"/data/{name}.nc")), path)
        pdla.add_run(path, catalog)
    find = catalog.runs.find
    assert [one.id for one in find()] == [1, 2, 3, 4]
    assert [one.id for one in find(application="*ocean*", ranks=4)] == [1, 4]
    assert [one.id for one in find(file="*/atmosphere.nc")] == [3]
    assert [one.id for one in find(since=start, until=start + timedelta(days=3))] == [2, 3]
    local = (start + timedelta(days=3)).astimezone().replace(tzinfo=None)
    assert [one.id for one in find(since=local)] == [4]
