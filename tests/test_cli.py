"""Every verb meets bad input with one clear line and a non-zero exit, and the help is complete."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import PDLA, REPOSITORY, InProcess, Pdla

VERBS = (
    "trace",
    "import",
    "analyze",
    "patterns",
    "calibrate",
    "plan",
    "replicate",
    "daemon",
    "run",
    "report",
    "status",
    "verify",
    "gc",
    "rm",
    "doctor",
    "preload",
    "demo",
)

DEFAULT_CLUSTER = (REPOSITORY / "layouts" / "default_cluster.toml").read_text()

CSV = "rank,file,op,offset,length,t_start,t_end\n" + "".join(
    f"{rank},data.bin,read,{rank * 4096 + row * 16384},4096,{row}.0,{row}.5\n" for rank in range(4) for row in range(32)
)


@pytest.fixture
def pdla(tmp_path: Path) -> InProcess:
    return InProcess(tmp_path, {})


@pytest.fixture
def trace_path(pdla: Pdla) -> Path:
    """A small trace of strided reads."""
    (pdla.directory / "accesses.csv").write_text(CSV)
    pdla.run("import", "csv", "accesses.csv", "-o", "run.h5")
    return pdla.directory / "run.h5"


def fails_with_one_line(pdla: Pdla, *words: str | Path, says: str, code: int = 1) -> None:
    done = pdla.run(*words, code=code)
    if code == 1:
        assert done.stderr.count("\n") == 1, done.stderr
    assert says in done.stderr


@pytest.mark.parametrize("verb", ["analyze", "plan", "report"])
def test_a_missing_trace(pdla: Pdla, verb: str) -> None:
    fails_with_one_line(pdla, verb, "nowhere.h5", says="nowhere.h5")


@pytest.mark.parametrize("verb", ["analyze", "plan", "report"])
def test_a_truncated_trace(pdla: Pdla, trace_path: Path, verb: str) -> None:
    cut = pdla.directory / "cut.h5"
    cut.write_bytes(trace_path.read_bytes()[:-1000])
    fails_with_one_line(pdla, verb, cut, says="cut.h5")


@pytest.mark.parametrize("verb", ["analyze", "plan", "report"])
def test_a_file_that_is_no_trace(pdla: Pdla, verb: str) -> None:
    (pdla.directory / "other.h5").write_text("hello")
    fails_with_one_line(pdla, verb, "other.h5", says="other.h5")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[pools", "cluster.toml"),
        (DEFAULT_CLUSTER + "\n[nonsense]\n", "nonsense"),
        (DEFAULT_CLUSTER.replace('"hdd"', '"tape"', 1), "tape"),
        ("", "home"),
    ],
)
def test_a_wrong_cluster_description(pdla: Pdla, trace_path: Path, text: str, says: str) -> None:
    (pdla.directory / "cluster.toml").write_text(text)
    fails_with_one_line(pdla, "plan", trace_path, "--cluster", "cluster.toml", says=says)


def test_a_missing_cluster_description(pdla: Pdla, trace_path: Path) -> None:
    fails_with_one_line(pdla, "plan", trace_path, "--cluster", "none.toml", says="none.toml")


def test_an_unknown_policy_is_refused_with_the_known_ones(pdla: Pdla, trace_path: Path) -> None:
    fails_with_one_line(pdla, "plan", trace_path, "--policy", "magic", says="pdla-h")


def test_an_unknown_selection(pdla: Pdla, trace_path: Path) -> None:
    fails_with_one_line(pdla, "plan", trace_path, "--selection", "magic", says="optimal, greedy")


def test_a_plan_is_the_same_bytes_again_also_when_it_has_been_carried_out(pdla: Pdla, trace_path: Path) -> None:
    (pdla.directory / "data.bin").write_bytes(bytes(1 << 20))
    for name in ("first", "second"):
        pdla.run("plan", trace_path, "--cluster", "s4d-cache", "-o", f"{name}.json")
    assert pdla.json("replicate", "first.json", "--json")["replicas"]
    pdla.run("plan", trace_path, "--cluster", "s4d-cache", "-o", "third.json")
    first, second, third = ((pdla.directory / f"{name}.json").read_bytes() for name in ("first", "second", "third"))
    assert first == second == third


def test_a_plan_is_a_row_for_a_pattern_or_a_table_that_explains_it(pdla: Pdla, trace_path: Path) -> None:
    short = pdla.run("plan", trace_path, "--cluster", "pdla").stdout.splitlines()
    assert short[0].split() == ["call", "ranks", "file", "before", "after", "choice"]
    assert short[2].split()[:4] == ["1", "read", "0-3", "data.bin"]
    long = pdla.run("plan", trace_path, "--cluster", "pdla", "--explain").stdout
    assert "original, collective calls" in long
    assert "  not original, collective calls: only the program can make its calls collective" in long
    assert max(map(len, [*short, *long.splitlines()])) <= 80


@pytest.mark.parametrize("text", [None, "hello", "{}", '{"version": 99}'])
def test_a_plan_that_is_none(pdla: Pdla, text: str | None) -> None:
    if text is not None:
        (pdla.directory / "plan.json").write_text(text)
    fails_with_one_line(pdla, "replicate", "plan.json", says="plan.json")


def test_a_plan_for_a_file_that_is_gone(pdla: Pdla, trace_path: Path) -> None:
    made = pdla.json("plan", trace_path, "-o", "plan.json", "--json")
    assert made["patterns"][0]["candidates"][0]["space"] == "original"
    assert made["patterns"][0]["chosen"] != 0
    fails_with_one_line(pdla, "replicate", "plan.json", says="data.bin")


@pytest.mark.parametrize("verb", ["trace", "run"])
def test_a_program_that_does_not_exist(pdla: Pdla, verb: str) -> None:
    fails_with_one_line(pdla, verb, "--", "./no-such-program", says="./no-such-program")


@pytest.mark.parametrize("verb", ["trace", "run"])
def test_the_exit_code_is_the_programs_own(pdla: Pdla, verb: str) -> None:
    pdla.run(verb, "--", "sh", "-c", "exit 7", code=7)


def test_a_report_that_cannot_be_kept_does_not_change_the_exit_code(pdla: Pdla) -> None:
    pdla.home.mkdir()
    (pdla.home / "catalog.db").write_bytes(b"hello" * 1000)
    assert "the report of this run is not kept" in pdla.run("run", "--", "sh", "-c", "exit 7", code=7).stderr


def test_a_signal_stops_the_program_and_leaves_nothing(pdla: Pdla) -> None:
    command = [PDLA, "trace", "--", "sh", "-c", "touch started; exec sleep 60"]
    process = subprocess.Popen(command, cwd=pdla.directory, env=pdla.environment, stderr=subprocess.PIPE, text=True)
    while not (pdla.directory / "started").exists():
        time.sleep(0.05)
    process.terminate()
    assert "nothing was recorded: sh ended with exit code 143" in process.communicate(timeout=60)[1]
    assert process.returncode == 143
    assert [path.name for path in pdla.directory.iterdir()] == ["started"]


def test_a_program_without_mpi_is_said_to_have_left_no_records(pdla: Pdla) -> None:
    fails_with_one_line(pdla, "trace", "--", "true", says="MPI")
    assert [path.name for path in pdla.directory.iterdir()] == []


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_option_is_a_usage_error(pdla: Pdla, verb: str) -> None:
    assert "--no-such" in pdla.run(verb, "--no-such", code=2).stderr


@pytest.mark.parametrize("log", ["missing.darshan", "text.darshan"])
def test_a_darshan_log_that_is_none(pdla: Pdla, log: str) -> None:
    (pdla.directory / "text.darshan").write_text("hello")
    fails_with_one_line(pdla, "import", "darshan", log, says=log)


def test_a_csv_with_a_wrong_line_names_the_line(pdla: Pdla) -> None:
    (pdla.directory / "bad.csv").write_text(CSV.replace("4096,3.0", "many,3.0", 1))
    fails_with_one_line(pdla, "import", "csv", "bad.csv", says="5")


def test_a_run_before_there_are_replicas_says_so(pdla: Pdla) -> None:
    assert "no replicas are published yet" in pdla.run("run", "--", "true").stderr


def test_a_replica_that_does_not_exist_cannot_be_removed(pdla: Pdla) -> None:
    fails_with_one_line(pdla, "rm", "42", says="42")


def test_a_damaged_catalog(pdla: Pdla) -> None:
    pdla.home.mkdir()
    (pdla.home / "catalog.db").write_bytes(b"hello" * 1000)
    fails_with_one_line(pdla, "status", says="catalog")


def test_status_without_replicas(pdla: Pdla) -> None:
    assert pdla.json("status", "--json")["replicas"] == []
    assert pdla.run("status").stdout == "No replicas.\n"


def test_every_verb_is_in_the_help_and_in_the_documentation(pdla: Pdla) -> None:
    text = pdla.run("--help").stdout
    documented = (REPOSITORY / "docs" / "cli.md").read_text()
    for verb in VERBS:
        assert f"\n  {verb} " in text
        assert f"## pdla {verb}" in documented


def test_importing_pdla_starts_nothing_heavy() -> None:
    code = "import sys, pdla, pdla.cli; print(*(n for n in sys.argv[1:] if n in sys.modules))"
    heavy = ["mpi4py", "darshan", "sqlalchemy", "h5py", "matplotlib", "pandas", "numpy"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
