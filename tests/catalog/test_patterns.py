"""pdla patterns: every analyzed run is in the catalog once, with its patterns, and can be compared with others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pdla.analyzers.analysis import analyze
from pdla.analyzers.run_difference import compare
from pdla.catalog import Occurrence, Run, open_catalog
from pdla.catalog.records import Recorded, members_of, pattern_digest
from pdla.collectors import workloads
from pdla.collectors.packing import telling
from pdla.collectors.tracefile import fingerprint, write_trace
from pdla.model import Loop, Signature
from pdla.traces.trace import Trace
from tests.support.command_line import InProcess, Pdla

READ = "{READ, 0, 2, ([16384, 4096, 20], [4096, 4096, 4]r), 1}"
WRITE = READ.replace("READ", "WRITE")
FACTS = {"trace": "f1", "path": "/t.h5", "source": "pdla", "started": None, "mpi": "", "requests": 9, "bytes": 9}


def interleaved(ranks: int, segments: int = 20, transfer: int = 4096) -> Trace:
    return workloads.ior(ranks, transfer, transfer, segments)


@pytest.fixture
def pdla(tmp_path: Path) -> InProcess:
    return InProcess(tmp_path, {})


@pytest.fixture
def save(pdla: Pdla) -> Callable[..., Path]:
    def save(name: str, trace: Trace) -> Path:
        write_trace(trace, pdla.directory / name)
        return pdla.directory / name

    return save


def test_an_analyzed_trace_is_one_run_of_one_application_however_often_it_is_analyzed(
    pdla: Pdla, save: Callable[..., Path]
) -> None:
    save("a.h5", interleaved(4))
    assert pdla.run("analyze", "a.h5").stderr == (
        "pdla: run 1 of application 1: 2 new patterns in the replication queue\n"
    )
    save("copy.h5", interleaved(4))
    for again in ("a.h5", "copy.h5"):
        assert pdla.run("analyze", again).stderr == "pdla: run 1 of application 1: no new pattern\n"
    found = pdla.json("patterns", "list", "--json")["patterns"]
    assert [(one["id"], one["runs"], one["state"], one["notation"]) for one in found] == [
        (1, 1, "queued", READ),
        (2, 1, "queued", WRITE),
    ]


def test_another_run_has_the_patterns_that_are_there(pdla: Pdla, save: Callable[..., Path]) -> None:
    first, second = interleaved(4), interleaved(4)
    second.records["t_end"] += 0.5
    for name, trace in (("a.h5", first), ("b.h5", second)):
        save(name, trace)
        pdla.run("analyze", name)
    assert [one["runs"] for one in pdla.json("patterns", "list", "--json")["patterns"]] == [2, 2]
    shown = pdla.json("patterns", "show", "2", "--json")
    assert [(one["run"], one["application"], one["aspects"]["phases"]) for one in shown["seen"]] == [
        (1, 1, [0, 0]),
        (2, 1, [0, 0]),
    ]
    assert [(one["rank"], one["start"], one["notation"]) for one in shown["members"][:2]] == [
        (0, 0, "{WRITE, 0, 1, ([16384, 4096, 20]), 1}"),
        (1, 4096, "{WRITE, 4096, 1, ([16384, 4096, 20]), 1}"),
    ]


def test_what_is_shown_fits_80_columns(pdla: Pdla, save: Callable[..., Path]) -> None:
    save("a.h5", workloads.coll_perf((2, 2, 2), (32, 32, 32)))
    pdla.run("analyze", "a.h5")
    listed, shown = pdla.run("patterns", "list").stdout, pdla.run("patterns", "show", "1").stdout
    assert max(map(len, [*listed.splitlines(), *shown.splitlines()])) <= 80
    assert listed.splitlines()[0].split() == ["id", "runs", "state", "ranks", "bytes", "pattern", "and", "file"]
    assert "... and 4 more" not in shown
    assert "Run 1 (8 ranks): coll_perf" in shown
    assert "nested, small, read-write, read-after-write, phase 1" in " ".join(shown.split())


def test_the_list_is_filtered(pdla: Pdla, save: Callable[..., Path]) -> None:
    for name, trace in (("a.h5", interleaved(4)), ("b.h5", interleaved(8)), ("c.h5", workloads.flash_io(2))):
        save(name, trace)
        pdla.run("analyze", name)

    def numbers(*words: str) -> list[int]:
        return [one["id"] for one in pdla.json("patterns", "list", *words, "--json")["patterns"]]

    assert numbers() == [1, 2, 3, 4, 5, 6, 7]
    assert numbers("--ranks", "8") == [3, 4]
    assert numbers("--file", "/ior/*") == [1, 2, 3, 4]
    assert numbers("--application", "flash*") == [5, 6, 7]
    assert numbers("--application", "ior*", "--ranks", "4", "--queued") == [1, 2]


def test_patterns_leave_the_queue_when_a_plan_is_carried_out(pdla: Pdla) -> None:
    data = pdla.directory / "data.bin"
    data.write_bytes(bytes(1 << 20))
    lines = [
        f"{rank},{data},read,{rank * 4096 + row * 16384},4096,{row},{row}.5" for rank in range(4) for row in range(64)
    ]
    (pdla.directory / "a.csv").write_text("\n".join(["rank,file,op,offset,length,t_start,t_end", *lines]) + "\n")
    pdla.run("import", "csv", "a.csv", "-o", "a.h5")
    pdla.run("analyze", "a.h5")
    pdla.run("plan", "a.h5", "--simulate", "0", "-o", "plan.json")
    assert len(pdla.json("patterns", "list", "--queued", "--json")["patterns"]) == 1
    pdla.run("replicate", "plan.json")
    assert pdla.json("patterns", "list", "--queued", "--json")["patterns"] == []
    assert [one["state"] for one in pdla.json("patterns", "list", "--json")["patterns"]] == ["built"]


def test_two_runs_are_compared_by_number_or_as_traces(pdla: Pdla, save: Callable[..., Path]) -> None:
    save("a.h5", interleaved(4))
    save("b.h5", interleaved(4, segments=30))
    pdla.run("analyze", "a.h5")
    printed = pdla.json("patterns", "diff", "1", "b.h5", "--json")
    assert printed == {
        "both": [],
        "changed": [
            {"file": "/ior/testFile", "before": text, "after": text.replace("20]", "30]"), "what": ["counts"]}
            for text in (READ, WRITE)
        ],
        "only_before": [],
        "only_after": [],
    }
    text = pdla.run("patterns", "diff", "a.h5", "1").stdout
    assert text == "2 patterns in both.\n"
    assert "changed in counts: read of /ior/testFile" in pdla.run("patterns", "diff", "a.h5", "b.h5").stdout


def test_a_catalog_that_cannot_be_used_does_not_keep_the_answer_back(pdla: Pdla, save: Callable[..., Path]) -> None:
    save("a.h5", interleaved(4))
    pdla.home.mkdir()
    (pdla.home / "catalog.db").write_bytes(b"hello" * 1000)
    done = pdla.run("analyze", "a.h5", "--json")
    assert len(json.loads(done.stdout)["signatures"]) == 2
    assert done.stderr.startswith("pdla: the patterns were not recorded in the catalog: the catalog sqlite:///")


@pytest.mark.parametrize(("words", "says"), [(("show", "9"), "no pattern 9"), (("diff", "1", "2"), "no run 1")])
def test_what_does_not_exist_is_reported_in_one_line(pdla: Pdla, words: tuple[str, ...], says: str) -> None:
    error = pdla.run("patterns", *words, code=1).stderr
    assert says in error
    assert error.count("\n") == 1


ONE = Signature("/a", "read", False, 0, 8, (Loop(8, 4), Loop(32, 5)), (0, 1, 2, 3), rank_loops=1)


def test_a_difference_names_what_has_changed() -> None:
    other = replace(ONE, op="write", start=700)
    moved = replace(ONE, start=100, loops=(Loop(8, 4), Loop(64, 6)))
    found = compare([ONE, other], [replace(other, calls=7), moved, replace(ONE, file="/b", collective=True)])
    assert found.both == (replace(other, calls=7),)
    assert found.changed == ((ONE, moved, ("start", "strides", "counts")),)
    assert (found.before, [one.file for one in found.after]) == ((), ["/b"])
    renamed = replace(ONE, file="/b", ranks=(4, 5, 6, 7))
    assert compare([ONE], [renamed]).changed == ((ONE, renamed, ("file", "ranks")),)
    flat = replace(ONE, loops=(Loop(8, 4),))
    assert compare([ONE], [flat]).changed == ((ONE, flat, ("loops",)),)


def test_the_members_of_a_pattern_follow_from_its_loops() -> None:
    for trace in (interleaved(4), workloads.pio_tiled((2, 4), 4096, 16, 8)):
        for one in analyze(trace).signatures:
            assert list(map(pattern_digest, members_of(one))) == list(map(pattern_digest, one.members))


def test_a_pattern_has_the_same_name_in_every_run() -> None:
    again = replace(ONE, calls=5, t_start=1.0, t_end=2.0, members=(ONE,))
    assert pattern_digest(ONE) == pattern_digest(again) != pattern_digest(replace(ONE, start=1))
    assert pattern_digest(ONE)[:16] == "8bee6cf60127b634"


def test_a_run_of_many_patterns_is_replaced_by_one_of_few(tmp_path: Path) -> None:
    catalog = open_catalog(f"sqlite:///{tmp_path}/catalog.db")
    run = Run(command="./app", ranks=1, hosts=("n1",), environment={}, files=("/a",), **FACTS)
    many = [Occurrence(Signature("/a", "read", False, at, 8, (), (0,), calls=1), {}) for at in range(20_000)]
    assert catalog.runs.record(run, many) == Recorded(run=1, application=1, patterns=20_000, new=20_000)
    assert catalog.runs.record(run, many[:10]).new == 0
    assert len(catalog.patterns.find()) == 10
    catalog.close()


def test_paths_that_are_no_text_are_kept(tmp_path: Path) -> None:
    name = os.fsdecode(b"/data/m\xe4rz")
    catalog = open_catalog(f"sqlite:///{tmp_path}/catalog.db")
    run = Run(command=name, ranks=1, hosts=(), environment={}, files=(name,), **FACTS)
    catalog.runs.record(run, [Occurrence(Signature(name, "read", False, 0, 8, (), (0,)), {})])
    assert [one.signature.file for one in catalog.patterns.find(file=name)] == [name]
    assert catalog.runs.get(1)[0].files == (name,)
    catalog.close()


def test_a_trace_is_identified_by_its_content(tmp_path: Path) -> None:
    names = []
    later = interleaved(4)
    later.records["t_end"] += 1e-9
    for number, trace in enumerate((interleaved(4), interleaved(4), later, interleaved(4, transfer=8192))):
        write_trace(trace, tmp_path / f"{number}.h5")
        names.append(fingerprint(tmp_path / f"{number}.h5"))
    assert names[0] == names[1]
    assert len(set(names)) == 3


def test_variables_that_may_hold_secrets_are_not_kept() -> None:
    variables = {"OMP_NUM_THREADS": "2", "SLURM_JOB_ID": "7", "SLURM_JWT": "secret", "AWS_SECRET": "x", "PATH": "/bin"}
    assert telling(variables) == {"OMP_NUM_THREADS": "2", "SLURM_JOB_ID": "7"}


def test_traces_at_two_numbers_of_ranks_predict_a_third(pdla: Pdla, save: Callable[..., Path]) -> None:
    save("4.h5", interleaved(4))
    save("8.h5", interleaved(8))
    printed = pdla.json("patterns", "scale", "4.h5", "8.h5", "--ranks", "16", "--json")
    assert printed["signatures"][0] == {
        "file": "/ior/testFile",
        "notation": "{READ, 0, 2, ([4096 P, 4096, 20], [4096, 4096, P]r)}",
    }
    assert printed["predicted"][1] == {
        "scope": "global",
        "file": "/ior/testFile",
        "op": "write",
        "collective": False,
        "ranks": 16,
        "start": 0,
        "length": 4096,
        "loops": [[4096, 16], [65536, 20]],
        "growth": [],
        "rank_loops": 1,
        "requests": 320,
        "bytes": 1310720,
        "extent": [0, 1310720],
        "notation": "{WRITE, 0, 2, ([65536, 4096, 20], [4096, 4096, 16]r), 1}",
    }
    text = pdla.run("patterns", "scale", "4.h5", "8.h5", "--ranks", "16").stdout
    assert "/ior/testFile, bytes 0 to 1,310,720" in text


def test_traces_that_do_not_agree_predict_nothing(pdla: Pdla, save: Callable[..., Path]) -> None:
    save("4.h5", interleaved(4))
    save("8.h5", workloads.flash_io(8))
    done = pdla.run("patterns", "scale", "4.h5", "8.h5", "--ranks", "16", code=1)
    assert done.stderr.startswith("pdla: the traces disagree, so nothing can be predicted: ")
    assert "The traces disagree on:" in done.stdout
    again = pdla.run("patterns", "scale", "4.h5", "4.h5", "--ranks", "16", code=1).stderr
    assert "4.h5 has 4 ranks, as has another trace" in again
