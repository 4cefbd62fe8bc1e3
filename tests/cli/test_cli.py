"""Every verb meets bad input with one clear line and a non-zero exit, and the help is complete."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import time
from pathlib import Path

import h5py  # type: ignore[import-untyped]
import pytest

from tests.support.command_line import PDLA, InProcess, Pdla, fails_with_one_line
from tests.support.compilers import REPOSITORY
from tests.support.handmade_traces import CSV
from tests.support.waiting import PATIENCE

VERBS = (
    "trace",
    "import",
    "export",
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


@pytest.fixture
def pdla(tmp_path: Path) -> InProcess:
    return InProcess(tmp_path, {})


@pytest.fixture
def trace_path(pdla: Pdla) -> Path:
    """A small trace of strided reads, and the file that they read."""
    (pdla.directory / "accesses.csv").write_text(CSV)
    (pdla.directory / "data.bin").write_bytes(bytes(1 << 20))
    pdla.run("import", "csv", "accesses.csv", "-o", "run.h5")
    return pdla.directory / "run.h5"


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
        ("", "is an empty file, not a cluster file: 'pdla calibrate' writes one, docs/cluster.md describes it"),
    ],
)
def test_a_wrong_cluster_description(pdla: Pdla, trace_path: Path, text: str, says: str) -> None:
    (pdla.directory / "cluster.toml").write_text(text)
    fails_with_one_line(pdla, "plan", trace_path, "--cluster", "cluster.toml", says=says)


def test_a_missing_cluster_description(pdla: Pdla, trace_path: Path) -> None:
    fails_with_one_line(pdla, "plan", trace_path, "--cluster", "none.toml", says="none.toml")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plan", "run.h5", "--policy", "foo"], "unknown policy 'foo': choose one of auto, none, pdla-h"),
        (["plan", "run.h5", "--policy", "ibridge"], "use it with pdla simulate"),
        (["plan", "run.h5", "--selection", "foo"], "'foo' is not one of 'optimal', 'greedy'"),
        (["plan", "run.h5", "--writes", "foo"], "'foo' is not one of 'original', 'close', 'lease'"),
        (["simulate", "run.h5", "--policy", "foo"], "unknown scheme 'foo': choose one of none"),
        (["simulate", "run.h5", "--policy", "none.py:Foo"], "cannot read none.py: No such file"),
        (["simulate", "run.h5", "--policy", "run.h5:Foo"], "run.h5 is a trace, not a Python file"),
        (["simulate", "run.h5", "--sweep", "foo"], "--sweep takes KEY=V1,V2"),
        (["simulate", "run.h5", "--sweep", "foo=1"], "there is no table for the key 'foo'"),
        (["simulate", "run.h5", "--sweep", "home.strip=1M,x"], "strip must be a number of bytes"),
        (["simulate", "run.h5", "--sweep", "processes=4"], "two or more numbers of processes"),
        (["patterns", "scale", "run.h5", "--ranks", "0"], "0 is not in the range"),
        (["patterns", "list", "--ranks", "-1"], "-1 is not in the range"),
        (["patterns", "show", "9" * 20], "is not in the range"),
        (["rm", "9" * 20], "is not in the range"),
        (["calibrate", ".", "--seconds", "inf"], "'inf' is not a finite number"),
        (["daemon", "--once", "--idle-load", "nan"], "'nan' is not a finite number"),
    ],
)
def test_a_wrong_option_value_is_exit_code_2(pdla: Pdla, trace_path: Path, words: list[str], says: str) -> None:
    fails_with_one_line(pdla, *words, says=says, code=2)


def test_help_lists_the_choices(pdla: Pdla) -> None:
    words = pdla.run("plan", "--help").stdout.split()
    assert "[auto|none|pdla-h|pdla-s|ns-pdla|s4d|e10]" in words
    assert "[optimal|greedy]" in words
    assert "s4d|e10|ibridge|liu|FILE.py:CLASS]" in "".join(pdla.run("simulate", "--help").stdout.split())


OUTPUTS = {
    "trace": ["trace", "-o", "{}", "--", "touch", "ran"],
    "import": ["import", "csv", "accesses.csv", "-o", "{}"],
    "pack": ["pack", "nowhere", "-o", "{}"],
    "export": ["export", "nowhere.h5", "--to", "csv", "-o", "{}"],
    "plan": ["plan", "nowhere.h5", "-o", "{}"],
    "report": ["report", "nowhere.h5", "-o", "{}"],
    "simulate": ["simulate", "nowhere.h5", "--plot", "{}"],
    "calibrate": ["calibrate", ".", "--force", "-o", "{}"],
    "daemon": ["daemon", "--once", "--metrics-file", "{}"],
}


@pytest.mark.parametrize("verb", OUTPUTS)
@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("folder.svg", "cannot write folder.svg: it is a directory"),
        ("nowhere/out.svg", "there is no directory"),
        ("accesses.csv/out.svg", "there is no directory"),
        ("/proc/out.svg", "cannot write /proc/out.svg: /proc: "),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    pdla: Pdla, verb: str, output: str, says: str
) -> None:
    (pdla.directory / "folder.svg").mkdir()
    (pdla.directory / "accesses.csv").write_text(CSV)
    fails_with_one_line(pdla, *(word.format(output) for word in OUTPUTS[verb]), says=says, code=2)
    assert sorted(path.name for path in pdla.directory.iterdir()) == ["accesses.csv", "folder.svg"]


READS = {
    "analyze": (["analyze", "{}"], "a trace"),
    "plan": (["plan", "{}"], "a trace"),
    "report": (["report", "{}"], "a trace"),
    "report --compare": (["report", "made/trace", "--compare", "{}"], "a trace"),
    "simulate": (["simulate", "{}"], "a trace"),
    "patterns diff": (["patterns", "diff", "made/trace", "{}"], "a trace"),
    "patterns scale": (["patterns", "scale", "made/trace", "{}", "--ranks", "8"], "a trace"),
    "replicate": (["replicate", "{}"], "a plan"),
    "plan --cluster": (["plan", "made/trace", "--cluster", "{}"], "a cluster file"),
    "report --cluster": (["report", "made/trace", "--cluster", "{}"], "a cluster file"),
    "simulate --cluster": (["simulate", "made/trace", "--cluster", "{}"], "a cluster file"),
    "daemon --cluster": (["daemon", "--once", "--cluster", "{}"], "a cluster file"),
    "export": (["export", "{}", "--to", "csv", "-o", "o.h5"], "a trace"),
    "pack": (["pack", "{}"], "a directory of raw logs"),
    "import darshan": (["import", "darshan", "{}", "-o", "o.h5"], "a Darshan log"),
    "import dftracer": (["import", "dftracer", "{}", "-o", "o.h5"], "a DFTracer trace"),
    "import recorder": (["import", "recorder", "{}", "-o", "o.h5"], "a trace of Recorder"),
    "import otf2": (["import", "otf2", "{}", "-o", "o.h5"], "an OTF2 archive"),
    "import iosig": (["import", "iosig", "{}", "-o", "o.h5"], "an IOSIG trace"),
    "import csv": (["import", "csv", "{}", "-o", "o.h5"], "a CSV file of accesses"),
    "import parquet": (["import", "parquet", "{}", "-o", "o.h5"], "a Parquet file"),
}
KINDS = {
    "trace": "a trace",
    "plan": "a plan",
    "cluster": "a cluster file",
    "logs": "a directory of raw logs",
    "map": "a map of replicas",
    "state": "the state file of a map",
    "journal": "a journal of redirected writes",
    "log": "a raw log",
    "side": "a raw log's list of names",
    "posix": "a raw log of POSIX calls",
    "catalog": "a catalog",
    "page": "an HTML report",
    "exit": "an exit report of a redirected run",
    "csv": "a CSV file of accesses",
    "parquet": "a Parquet file",
    "hdf5": "an HDF5 file of another program",
    "program": "a program",
    "darshan": "a Darshan log",
    "dftracer": "a DFTracer trace",
    "gzip": "a gzip file",
    "otf2": "an OTF2 archive",
    "recorder": "a trace of Recorder",
    "empty": "an empty file",
    "text": "a text file",
    "json": "a JSON file",
    "bytes": "a file of unknown content",
    "directory": "a directory",
    "missing": "No such file or directory",
    "pipe": "not a regular file",
}
DIRECTORIES = ("a directory of raw logs", "an IOSIG trace")
"""What may be a directory of any content."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of every kind, under its name in ``KINDS``."""
    pdla = InProcess(tmp_path_factory.mktemp("kinds"), {})
    made = pdla.directory / "made"
    for name in ("logs", "directory", "recorder"):
        (made / name).mkdir(parents=True)
    (made / "recorder" / "recorder.mt").touch()
    (made / "csv").write_text(CSV)
    (pdla.directory / "data.bin").write_bytes(bytes(1 << 20))
    pdla.run("import", "csv", "made/csv", "-o", "made/trace")
    pdla.run("plan", "made/trace", "-o", "made/plan")
    pdla.run("replicate", "made/plan")
    pdla.run("report", "made/trace", "-o", "made/page")
    for name, found in (("map", "replicas.map"), ("catalog", "catalog.db")):
        (made / name).write_bytes((pdla.home / found).read_bytes())
    (made / "state").write_bytes(next(pdla.home.glob("*.state")).read_bytes())
    for name, start in (("journal", b"PDLAJNL1"), ("log", b"PDLALOG2"), ("side", b"PDLASID1"), ("posix", b"PDLAPSX1")):
        (made / name).write_bytes(start + bytes(4096))
    (made / "logs" / "1.log").write_bytes(b"PDLALOG2")
    (made / "parquet").write_bytes(b"PAR1" + bytes(100))
    (made / "program").write_bytes(b"\x7fELF" + bytes(100))
    (made / "darshan").write_bytes(bytes(8) + (6567223).to_bytes(8, "little"))
    event = '{"id":1,"name":"start","cat":"dftracer","type":1,"pid":7,"tid":7,"ts":1,"dur":0,"ph":1,"args":{}}'
    (made / "dftracer").write_bytes(gzip.compress(event.encode()))
    (made / "otf2").write_bytes(b"\x03BOTF2" + bytes(100))
    (made / "gzip").write_bytes(gzip.compress(b"hello"))
    (made / "exit").write_text('{"version":1,"host":"here","rank":0,"map":"ok","files":[],"writes":[]}')
    (made / "cluster").write_text(DEFAULT_CLUSTER)
    (made / "empty").touch()
    (made / "text").write_text("Dear diary,\n")
    (made / "json").write_text('{"version": 99}')
    (made / "bytes").write_bytes(bytes(range(256)))
    with h5py.File(made / "hdf5", "w") as file:
        file["temperature"] = [1.0]
    os.mkfifo(made / "pipe")
    return made


@pytest.mark.parametrize("verb", READS)
def test_a_file_of_the_wrong_kind_is_named_as_what_it_is(pdla: Pdla, made: Path, verb: str) -> None:
    words, wanted = READS[verb]
    # Whatever text another program writes, its importer says what is wrong with it.
    guessed = {"a CSV file of accesses", "an IOSIG trace"}
    (pdla.directory / "made").symlink_to(made)
    for name, kind in KINDS.items():
        if kind == wanted or (kind == "a directory" and wanted in DIRECTORIES):
            continue
        if (verb, name) == ("analyze", "darshan"):
            continue  # its counters are printed
        done = pdla.run(*(word.format(f"made/{name}") for word in words), code=1)
        assert done.stderr.count("\n") == 1, done.stderr
        assert f"made/{name}" in done.stderr
        if not (wanted in guessed and name in ("text", "json", "cluster", "bytes", "csv", "logs", "recorder")):
            assert kind in done.stderr
            assert wanted in done.stderr
    assert not (pdla.directory / "o.h5").exists()


def test_independent_mistakes_are_all_reported(pdla: Pdla, made: Path) -> None:
    (pdla.directory / "made").symlink_to(made)
    done = pdla.run("plan", "made/plan", "--cluster", "made/text", code=1)
    assert "made/plan is a plan, not a trace" in done.stderr
    assert "made/text is a text file, not a cluster file" in done.stderr
    done = pdla.run("patterns", "scale", "nowhere.h5", "made/json", "--ranks", "8", code=1)
    assert "nowhere.h5: No such file" in done.stderr
    assert "made/json is a JSON file" in done.stderr
    wrong = DEFAULT_CLUSTER.replace('kind = "hdd"', 'kind = "tape"', 1).replace("strip", "stripe") + "\n[nonsense]\n"
    (pdla.directory / "cluster.toml").write_text(wrong)
    done = pdla.run("plan", "made/trace", "--cluster", "cluster.toml", code=1)
    for said in (
        "kind must be",
        "unknown key 'stripe'",
        "unknown key 'nonsense'",
        "docs/cluster.md",
    ):
        assert said in done.stderr
    assert done.stderr.count("\n") == 1


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


def test_a_plan_for_a_file_that_is_gone_is_none(pdla: Pdla, trace_path: Path) -> None:
    (pdla.directory / "data.bin").unlink()
    fails_with_one_line(
        pdla,
        "plan",
        trace_path,
        "-o",
        "plan.json",
        says="nothing can be replicated, because these files no longer exist: data.bin",
    )
    assert not (pdla.directory / "plan.json").exists()
    done = pdla.run("plan", trace_path, "--explain")
    assert "the file no longer exists" in " ".join(done.stdout.split())
    assert done.stderr == "pdla: data.bin no longer exists: its patterns get no replica\n"


def test_a_file_that_is_gone_does_not_hinder_the_plan_for_others(pdla: Pdla) -> None:
    (pdla.directory / "accesses.csv").write_text(CSV + CSV.partition("\n")[2].replace("data.bin", "gone.bin"))
    (pdla.directory / "data.bin").write_bytes(bytes(1 << 20))
    pdla.run("import", "csv", "accesses.csv", "-o", "run.h5")
    done = pdla.run("plan", "run.h5", "-o", "plan.json")
    assert done.stderr == "pdla: gone.bin no longer exists: its patterns get no replica\n"
    patterns = json.loads((pdla.directory / "plan.json").read_text())["patterns"]
    chosen = {one["signature"]["file"]: one["chosen"] for one in patterns}
    assert chosen["gone.bin"] == 0 < chosen["data.bin"]
    assert "the file no longer exists" in next(
        one["reason"] for one in patterns if one["signature"]["file"] == "gone.bin"
    )


def test_a_plan_for_a_file_that_has_gone_since(pdla: Pdla, trace_path: Path) -> None:
    pdla.run("plan", trace_path, "-o", "plan.json")
    (pdla.directory / "data.bin").unlink()
    fails_with_one_line(pdla, "replicate", "plan.json", says="data.bin")


def test_a_path_with_a_line_break_is_escaped_in_whatever_is_printed(pdla: Pdla) -> None:
    name, said = "da\nta\x1b[2J.bin", r"da\x0ata\x1b[2J.bin"
    (pdla.directory / "accesses.csv").write_text(CSV.replace("data.bin", f'"{name}"'))
    (pdla.directory / name).write_bytes(bytes(1 << 20))
    assert said in pdla.run("import", "csv", "accesses.csv", "-o", f"{name}.h5").stdout
    for words in (
        ["analyze", f"{name}.h5"],
        ["patterns", "list"],
        ["patterns", "show", "1"],
        ["plan", f"{name}.h5", "-o", "plan.json"],
        ["plan", f"{name}.h5", "--explain"],
        ["replicate", "plan.json"],
        ["status"],
        ["report", f"{name}.h5", "-o", f"{name}.html"],
    ):
        done = pdla.run(*words)
        assert said in "".join(done.stdout.split()), words
        assert "\x1b" not in done.stdout + done.stderr
    (pdla.directory / name).unlink()
    for code, words in (
        (1, ["plan", f"{name}.h5", "-o", "p.json"]),
        (1, ["analyze", name]),
        (2, ["plan", "x", "-o", f"{name}/x"]),
    ):
        done = pdla.run(*words, code=code)
        assert said in done.stderr, words
        assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("verb", ["trace", "run"])
def test_a_program_that_does_not_exist(pdla: Pdla, verb: str) -> None:
    fails_with_one_line(pdla, verb, "--", "./no-such-program", says="./no-such-program")


@pytest.mark.parametrize("verb", ["trace", "run"])
def test_the_exit_code_is_the_programs_own(pdla: Pdla, verb: str) -> None:
    pdla.run(verb, "--", "sh", "-c", "exit 7", code=7)


def test_a_signal_stops_the_program_and_leaves_nothing(pdla: Pdla) -> None:
    command = [PDLA, "trace", "--", "sh", "-c", "touch started; exec sleep 60"]
    process = subprocess.Popen(command, cwd=pdla.directory, env=pdla.environment, stderr=subprocess.PIPE, text=True)
    while not (pdla.directory / "started").exists():
        time.sleep(0.05)
    process.terminate()
    assert "nothing was recorded: sh ended with exit code 143" in process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 143
    assert [path.name for path in pdla.directory.iterdir()] == ["started"]


def test_a_program_without_mpi_is_reported_to_leave_no_records(pdla: Pdla) -> None:
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
    assert "no replica is published yet" in pdla.run("run", "--", "true").stderr


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
