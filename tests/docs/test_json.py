"""The JSON of the verbs has exactly the keys that docs/json.md names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pdla.analyzers.posix_requests import MadeOf
from pdla.cli import cli
from pdla.replicator.exit_reports import collect
from tests.support.compilers import REPOSITORY
from tests.support.documented_keys import keys, section


def blocks(folder: Path, ranks: int) -> Path:
    """A trace in which every rank reads a block of its own."""
    lines = [f"{rank},/data.bin,read,{rank * 65536},65536,0.0,0.5" for rank in range(ranks)]
    source, run = folder / f"{ranks}.csv", folder / f"{ranks}.h5"
    source.write_text("\n".join(["rank,file,op,offset,length,t_start,t_end", *lines]) + "\n")
    cli.main(["import", "csv", str(source), "-o", str(run)], standalone_mode=False)
    return run


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The JSON of every verb that needs no MPI, in the order of the loop."""
    folder = tmp_path_factory.mktemp("json")
    data = folder / "data.bin"
    data.write_bytes(bytes(range(256)) * 4096)
    lines = [
        f"{rank},{data},read,{rank * 4096 + row * 16384},4096,{row},{row}.5" for rank in range(4) for row in range(64)
    ]
    odd = [f"0,{data},read,{at},10,{100 + n},{100.5 + n}" for n, at in enumerate((3, 777, 90_000))]
    (folder / "a.csv").write_text("\n".join(["rank,file,op,offset,length,t_start,t_end", *lines, *odd]) + "\n")
    runner = CliRunner(env={"PDLA_HOME": str(folder / "home"), "PDLA_CATALOG": ""})
    run, plan = folder / "run.h5", folder / "plan.json"

    def answer(*words: str | Path | int) -> dict[str, Any]:
        done = runner.invoke(cli, [*map(str, words), "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        value = json.loads(done.stdout.splitlines()[-1])
        assert isinstance(value, dict)
        return value

    return {
        "import": answer("import", "csv", folder / "a.csv", "-o", run),
        "analyze": answer("analyze", run),
        "patterns": answer("patterns", "list"),
        "pattern": answer("patterns", "show", "1"),
        "diff": answer("patterns", "diff", "1", run),
        "scale": answer("patterns", "scale", blocks(folder, 2), blocks(folder, 4), "--ranks", 8),
        "calibrate": answer("calibrate", folder, "--seconds", 1, "--size", "16M", "-o", folder / "cluster.toml"),
        "plan": answer("plan", run, "--simulate", "0", "-o", plan),
        "replicate": answer("replicate", plan),
        "status": answer("status"),
        "verify": answer("verify"),
        "export": answer("export", run, "--to", "csv", "-o", folder / "run.csv"),
        "report": answer("report", run, "-o", folder / "report.html"),
        "gc": answer("gc"),
        "rm": answer("rm", "1"),
        "doctor": answer("doctor"),
        "run": json.loads(
            runner.invoke(cli, ["run", "--json", "--", "true"], catch_exceptions=False).stdout.splitlines()[-1]
        ),
    }


def test_the_signatures(answers: dict[str, dict[str, Any]]) -> None:
    printed = answers["analyze"]
    assert set(printed) == {"signatures", "irregular", "phases", "phases_left_out", "coverage", "posix"}
    assert printed["posix"] == []
    assert set(printed["phases"][0]) == keys(section("Phases"))
    assert set(printed["coverage"]) == {"requests", "bytes"}
    (one,) = (signature for signature in printed["signatures"] if signature["scope"] == "global")
    assert set(one) == keys(section("Signatures"))
    assert {tuple(sorted(member)) for member in one["members"]} == {
        tuple(sorted(set(one) - {"members", "members_left_out", "aspects"}))
    }
    assert set(one["aspects"]) == keys(section("Aspects"))
    named = re.search(r"with the keys (.*?)\. It holds", " ".join(section("Signatures").split()))
    assert named is not None
    assert set(printed["irregular"][0]) == set(re.findall(r"`(\w+)`", named[1]))


def test_the_patterns(answers: dict[str, dict[str, Any]]) -> None:
    text = section("Patterns")
    shown = answers["pattern"]
    assert set(shown) == keys(text)
    assert set(answers["patterns"]["patterns"][0]) == keys(text.split("| `members`")[0])
    of_seen = text.split("An object of `seen`: ")[1].split("\n\n")[0].replace("`{variable: value}`", "")
    assert set(shown["seen"][0]) == set(re.findall(r"`(\w+)`", of_seen))
    assert set(shown["members"][0]) == {"rank", "start", "notation"}
    assert set(answers["diff"]) == {"both", "changed", "only_before", "only_after"}
    assert len(answers["diff"]["both"]) == len(answers["patterns"]["patterns"])


def test_the_scaling(answers: dict[str, dict[str, Any]]) -> None:
    printed = answers["scale"]
    assert set(printed) == {"ranks", "signatures", "disagreements", "predicted"}
    assert [set(one) for one in printed["signatures"]] == [{"file", "notation"}]
    (predicted,) = printed["predicted"]
    (row,) = re.findall(r"^\| (`scope`.*?) \|", section("Patterns"), re.MULTILINE)
    assert set(predicted) == {*re.findall(r"`(\w+)`", row), "extent"}
    assert (predicted["ranks"], predicted["extent"]) == (8, [0, 8 * 65536])


def test_what_the_library_made_of_it() -> None:
    row = MadeOf("a", "MPI_File_read", 1, 8, 1, 8, 0, (0,), 8.0, 8)
    assert set(row.to_json()) == keys(section("What the MPI library made of it"))


def test_the_plan(answers: dict[str, dict[str, Any]]) -> None:
    text = section("A plan")
    whole, rest = text.split("\nA pattern:\n")
    pattern, candidate = rest.split("\nA candidate:\n")
    plan = answers["plan"]
    assert set(plan) == keys(whole)
    assert set(plan["patterns"][0]) == keys(pattern)
    assert {tuple(sorted(one)) for one in plan["patterns"][0]["candidates"]} == {tuple(sorted(keys(candidate)))}
    assert set(plan["patterns"][0]["candidates"][0]["seconds"]) == {
        "connect",
        "network",
        "startup",
        "transfer",
        "total",
    }
    assert plan["patterns"][0]["candidates"][plan["patterns"][0]["chosen"]]["layout"] is not None


def test_a_calibration(answers: dict[str, dict[str, Any]]) -> None:
    assert set(answers["calibrate"]) == {"cluster", "pools", "network", "node"}
    (pool,) = answers["calibrate"]["pools"]
    assert set(pool) == keys(section("A calibration"))
    for fit in (pool["read"], pool["write"]):
        assert set(fit) == {"startup", "seconds_per_byte", "deviation", "worst", "overlap"}
        assert set(fit["startup"][0]) == {"distance", *fit["seconds_per_byte"]} == {"distance", "value", "low", "high"}


def test_a_trace(answers: dict[str, dict[str, Any]]) -> None:
    assert set(answers["import"]) == keys(section("Traces")) - {"exit_code"}
    assert (answers["import"]["ranks"], answers["import"]["calls"], answers["import"]["bytes"]) == (4, 259, 1048606)


def test_the_replicas(answers: dict[str, dict[str, Any]]) -> None:
    assert set(answers["replicate"]["replicas"][0]) == {"id", "original", "layout", "pool", "bytes", "seconds", "kept"}
    assert set(answers["status"]) == {
        *("replicas", "runs", "leases", "queue", "failed", "caches", "critical"),
    }
    assert set(answers["status"]["replicas"][0]) == keys(section("Replicas"))
    assert answers["status"]["replicas"][0]["state"] == "valid"
    assert answers["verify"] == {"checked": 1, "findings": []}
    assert answers["gc"] == {"bytes": 0, "kept": []}
    assert answers["rm"] == {"bytes": 1 << 20, "kept": []}


def test_a_redirected_run(answers: dict[str, dict[str, Any]]) -> None:
    assert set(answers["run"]) >= keys(section("Redirected runs")) - {"calls", "bytes", "id", "state", "why"}
    assert answers["run"]["exit_code"] == 0


def test_a_redirected_run_of_the_exit_report_in_the_documentation(tmp_path: Path) -> None:
    """Its keys, and those of its files, are named; what is only in the processes' own reports is not among them."""
    formats = (REPOSITORY / "docs" / "formats.md").read_text()
    example = formats.split("\n## The exit report\n")[1].split("when it exits:")[1].split("\n`map` is")[0]
    (tmp_path / "n1-812.json").write_text(example)
    run = collect(tmp_path, "./app").to_json()
    (file,), (written,) = run["files"], run["writes"]
    assert (run["unreadable"], run["redirected_calls"], run["redirected_bytes"]) == (0, 64, 262144)
    assert (file["path"], file["original_requests"], file["passed"][0]["why"]) == (
        "/scratch/matrix.dat",
        1,
        "atomic mode",
    )
    assert (written["path"], written["back_bytes"]) == ("/scratch/out.dat", 262144)
    named = set(re.findall(r"\w+", section("Redirected runs")))
    assert {*run, *file, *written, *file["replicas"][0], *file["passed"][0]} - named == set()


def test_the_rest(answers: dict[str, dict[str, Any]]) -> None:
    assert set(answers["report"]) == {"report", "findings"}
    assert set(answers["export"]) == {"export", "format", "rows", "bytes"}


def test_what_works_here(answers: dict[str, dict[str, Any]]) -> None:
    whole, mpi = section("What works here").split("\nAn MPI:\n")
    assert set(answers["doctor"]) == keys(whole)
    assert {tuple(sorted(one)) for one in answers["doctor"]["mpi"]} == {tuple(sorted(keys(mpi)))}
    assert answers["doctor"]["mpi"][0]["captured"]
