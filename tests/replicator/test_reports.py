"""The reports of processes become one report of the run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from pdla.catalog import open_catalog
from pdla.replicator.cache_reports import Exchange
from pdla.replicator.exit_reports import FileReport, Passed, Used, WriteReport, collect, sentence


def process(rank: int, *files: dict[str, Any], map_state: str = "ok", seconds: float = 0.5) -> dict[str, Any]:
    return {
        "version": 1, "rank": rank, "ranks": 4, "host": "node", "pid": 100 + rank, "map": map_state,
        "generation": 3, "seconds": seconds, "files": list(files), "writes": [],
    }  # fmt: skip


def file(path: str = "/data", calls: int = 10, passed: list | None = None, state: str = "valid") -> dict[str, Any]:
    return {
        "path": path,
        "redirected": {"calls": calls, "bytes": calls * 100},
        "replica": {"requests": calls, "contiguous": calls - 1, "bytes": calls * 90},
        "original": {"requests": 2, "contiguous": 1, "bytes": calls * 10},
        "passed": passed or [],
        "compared": {"calls": 0, "bytes": 0},
        "replicas": [{"id": 7, "bytes": calls * 90, "state": state}],
    }


NOTHING = {"calls": 0, "bytes": 0}


def leave(directory: Path, *processes: dict[str, Any]) -> None:
    for entry in processes:
        (directory / f"node-{entry['pid']}.json").write_text(json.dumps(entry))


def test_counts_are_added_over_processes_and_files(tmp_path: Path):
    leave(tmp_path, process(0, file(), file("/other", 4)), process(1, file(calls=20), seconds=2.0))
    report = collect(tmp_path, "app -x")
    assert report.files == (
        FileReport("/data", 30, 3000, 30, 28, 2700, 4, 2, 300, (), (Used(7, 2700, "valid"),), 0, 0, ()),
        FileReport("/other", 4, 400, 4, 3, 360, 2, 1, 40, (), (Used(7, 360, "valid"),), 0, 0, ()),
    )
    assert (report.redirected_calls, report.redirected_bytes) == (34, 3400)
    assert (report.replica_requests, report.replica_contiguous, report.replica_bytes) == (34, 31, 3060)
    assert (report.original_requests, report.original_contiguous) == (6, 3)
    assert (report.command, report.ranks, report.generation, report.map, report.seconds) == (
        "app -x",
        4,
        3,
        {"ok": 2},
        2.0,
    )


def test_calls_left_to_the_original_are_added_by_reason(tmp_path: Path):
    atomic, hole = {"why": "atomic mode", "calls": 1, "bytes": 5}, {"why": "no replica", "calls": 2, "bytes": 50}
    leave(tmp_path, process(0, file(passed=[atomic, hole])), process(1, file("/other", passed=[atomic])))
    assert collect(tmp_path, "").passed == (Passed("no replica", 2, 50), Passed("atomic mode", 2, 10))


def test_the_worst_state_of_a_replica_counts(tmp_path: Path):
    states = ["valid", "written", "refused: a component is missing", "changed"]
    leave(tmp_path, *(process(rank, file(state=state)) for rank, state in enumerate(states)))
    assert collect(tmp_path, "").files[0].replicas == (Used(7, 3600, "written"),)


def test_the_first_difference_from_an_original_is_that_of_the_lowest_rank(tmp_path: Path):
    found = {
        "call": "MPI_File_read",
        "number": 5,
        "replica": 7,
        "offset": 483,
        "start": 480,
        "bytes": 96,
        "original": 1,
    }
    compared = {"calls": 9, "bytes": 900}
    for rank in (2, 1):
        entry = {**file(), "compared": compared, "difference": {**found, "got": rank}}
        leave(tmp_path, process(rank, entry))
    report = collect(tmp_path, "")
    assert report.compared_calls == 18
    assert report.difference == (
        "replica 7 of /data differs at byte 483: it has 1, the original 1 (redirected read 5 of "
        "rank 1: MPI_File_read of 96 B from byte 480 on)"
    )


def test_processes_are_counted_by_what_became_of_the_map(tmp_path: Path):
    leave(tmp_path, process(0), process(1), process(2, map_state="checksum is wrong"))
    assert collect(tmp_path, "").map == {"checksum is wrong": 1, "ok": 2}


def test_damaged_and_foreign_reports_are_counted_and_left_out(tmp_path: Path):
    leave(tmp_path, process(0, file()), {**process(1, file()), "version": 2}, {**process(2), "files": [{"path": "/x"}]})
    (tmp_path / "node-9.json").write_text('{"version": 1, "ran')
    (tmp_path / ".node-10.part").write_text("{")
    report = collect(tmp_path, "")
    assert (report.redirected_calls, report.unreadable, report.killed) == (10, 3, 1)


def test_ranks_that_were_killed_before_they_could_report_are_counted(tmp_path: Path):
    for number in (10, 11):
        (tmp_path / f".node-{number}.part").touch()
    unknown = (
        "no exit report of 2 ranks that opened files: killed, ended in a signal handler within a call, or no space "
        "for the report"
    )
    assert collect(tmp_path, "").sentence == f"it is not known what was redirected; {unknown}"
    leave(tmp_path, process(0, file()))
    sentence = collect(tmp_path, "").sentence
    assert sentence.startswith("10 calls redirected")
    assert sentence.endswith(unknown)


def test_a_run_that_left_no_reports(tmp_path: Path):
    report = collect(tmp_path, "true")
    assert (report.files, report.map, report.ranks) == ((), {}, 0)
    assert report.sentence == "no process opened a file through MPI-IO"


def test_the_sentence_says_what_was_redirected_and_what_was_not(tmp_path: Path):
    left = [{"why": "atomic mode", "calls": 1, "bytes": 5}]
    leave(tmp_path, process(0, file(passed=left)), process(1, map_state="checksum is wrong"))
    assert collect(tmp_path, "").sentence == (
        "10 calls redirected, 900 B from replicas in 10 requests, 90 % of them contiguous; left to the original: "
        "1 call, 5 B (atomic mode); map not used by 1 of 2 processes: checksum is wrong"
    )


def test_the_sentence_says_what_is_wrong_with_the_replicas_if_none_is_usable(tmp_path: Path):
    left = [{"why": "no replica is usable", "calls": 1, "bytes": 5}]
    other = file("/other", passed=[{"why": "atomic mode", "calls": 1, "bytes": 4}], state="written")
    for state, why in {
        "changed": "no replica is usable: the original was changed",
        "refused: a component is missing": "no replica is usable: a component is missing",
        "valid": "no replica is usable",
    }.items():
        leave(tmp_path, process(0, file(calls=0, passed=left, state=state), {**other, "redirected": NOTHING}))
        assert collect(tmp_path, "").sentence == (
            f"nothing was redirected; left to the original: 1 call, 5 B ({why}), 1 call, 4 B (atomic mode)"
        )


def test_a_report_kept_in_the_catalog_says_the_same(tmp_path: Path):
    leave(tmp_path, process(0, file()))
    report = collect(tmp_path, "app")
    catalog = open_catalog(f"sqlite:///{tmp_path}/catalog.db")
    catalog.results.add(report)
    (result,) = catalog.results.all()
    catalog.close()
    assert result.report == json.loads(json.dumps(report.to_json()))
    assert sentence(result.report) == report.sentence
    assert result.time.utcoffset().total_seconds() == 0


def test_redirected_writes_are_added_by_file(tmp_path: Path):
    def written(calls: int, left: int, error: str) -> dict[str, Any]:
        return {
            "path": "/out",
            "redirected": {"calls": calls, "bytes": calls * 100, "requests": calls},
            "brought_back": {"bytes": 500, "requests": 1},
            "earlier": {"bytes": 300, "requests": 2, "seconds": calls / 2},
            "left": left,
            "neighbours": 6,
            "leased": {"calls": 2, "bytes": 40},
            "refused": "",
            "error": error,
            "passed": [{"why": "atomic mode", "calls": 1, "bytes": 10}],
        }

    leave(tmp_path, {**process(0), "writes": [written(3, 0, "")]}, {**process(1), "writes": [written(4, 60, "full")]})
    report = collect(tmp_path, "")
    passed = (Passed("atomic mode", 2, 20),)
    assert report.writes == (
        WriteReport("/out", 7, 700, 7, 1000, 2, 600, 4, 2.0, 60, 12, 4, 80, (), ("full",), passed),
    )
    assert report.errors == ("/out: full",)
    assert report.sentence == (
        "wrote back 600 B of /out from an earlier run in 2 s; 4 reads took 80 B of /out from where an earlier run left "
        "them; 7 writes redirected, 1000 B written back in 2 requests; 12 reads of bytes that other ranks of the node "
        "had just written; 60 B wait in replicas (pdla sync); to the original: 2 calls (atomic mode); "
        "NOT WRITTEN BACK: full"
    )


def test_caches_are_added_by_file_and_hidden_seconds_by_process(tmp_path: Path):
    nothing = {"calls": 0, "bytes": 0, "unit": 0, "requests": [0, 0, 0], "seconds": [0.0, 0.0, 0.0]}
    decided = {"calls": 3, "bytes": 3072, "unit": 1 << 20, "requests": [128, 1, 4], "seconds": [0.0625, 0.002, 0.5]}

    def cached(path: str, calls: int, moving: float, waited: float, **more: Any) -> dict[str, Any]:
        return {
            "path": path,
            "policy": "e10",
            "written": {"calls": calls, "bytes": calls * 1024, "requests": calls},
            "hits": {"calls": 1, "bytes": 512},
            "home": {"bytes": calls * 1000, "requests": 2},
            "dirty": calls * 24,
            "exchange": decided if calls == 4 else nothing,
            "seconds": {"moving": moving, "waited": waited},
            "passed": [{"why": "atomic mode", "calls": 1, "bytes": 10}],
            "refused": "",
            "error": "",
            **more,
        }

    leave(
        tmp_path,
        {**process(0), "caches": [cached("/a", 4, 3.0, 1.0), cached("/b", 1, 0.5, 1.5)]},
        {**process(1), "caches": [cached("/a", 2, 1.0, 5.0, error="full")]},
        {**process(2), "caches": [cached("/c", 0, 0.0, 0.0, refused="no device")]},
        process(3),
    )
    report = collect(tmp_path, "")
    first = report.caches[0]
    assert [file.path for file in report.caches] == ["/a", "/b", "/c"]
    assert (first.written_calls, first.written_bytes, first.requests) == (6, 6144, 6)
    assert (first.hit_calls, first.hit_bytes) == (2, 1024)
    assert (first.home_bytes, first.home_requests, first.dirty_bytes) == (6000, 4, 144)
    assert (first.exchanged_calls, first.exchanged_bytes) == (3, 3072)
    assert first.exchange == Exchange(1 << 20, (128, 1, 4), (0.0625, 0.002, 0.5))
    assert report.caches[1].exchange is None
    assert (first.moving_seconds, first.waited_seconds, first.errors) == (4.0, 6.0, ("full",))
    assert report.errors == ("/a: full",)
    assert report.to_json()["cache"] == {
        "policy": "e10",
        "hit_bytes": 2048,
        "written_bytes": 7168,
        "home_bytes": 7000,
        "dirty_bytes": 168,
        "refused": [{"why": "atomic mode", "calls": 4, "bytes": 40}, {"why": "no device", "calls": 0, "bytes": 0}],
        # The first process hid a second; the second waited longer than its movers moved.
        "seconds_hidden": 1.0,
    }
    assert report.sentence == (
        "7 writes (7 KiB) cached by e10; 6.84 KiB brought home in 8 requests, 1 s of that while the program computed; "
        "pieces of 3 writes exchanged between nodes first: a call would take 128 requests and 62.5 ms, not 1 request "
        "and 2 ms; 4 reads (2 KiB) hit the cache; 168 B wait in cache files (pdla sync); "
        "not cached: 4 calls, 40 B (atomic mode), no device; NOT BROUGHT HOME: /a: full"
    )


def test_a_run_without_a_cache_says_nothing_of_one(tmp_path: Path):
    leave(tmp_path, process(0))
    report = collect(tmp_path, "")
    assert report.to_json()["cache"] is None
    assert report.sentence == "nothing was redirected"
    assert replace(report, map={}).sentence == "nothing was redirected"
