"""Merge the exit reports of the ranks of a redirected run into one report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pdla.replicator.cache_reports import (
    CacheReport,
    cache_parts,
    file_json,
    hidden_seconds,
    merge_cached,
    read_cached,
    summary,
)
from pdla.replicator.passed_calls import Passed, merge_passed, read_passed
from pdla.units import counted, format_bytes, format_seconds, format_share

VERSION = 1
# If processes saw a replica in different states, the one later in this list is reported.
_STATES = ("valid", "refused", "changed", "written")
_NO_REPLICA = "no replica is usable"
_UNUSABLE = {"changed": "the original was changed", "written": "a run wrote to the replicated bytes"}


class Used(NamedTuple):
    """Bytes read from a replica, and its state at the end: valid, written, changed, or refused and why."""

    id: int
    bytes: int
    state: str


class Difference(NamedTuple):
    """The first byte at which a redirected read of a process differed from the original.

    The read was the ``number``-th of the file, of ``bytes`` bytes from ``start`` on.
    """

    rank: int
    call: str
    number: int
    replica: int
    offset: int
    start: int
    bytes: int
    original: int
    got: int


@dataclass(frozen=True)
class FileReport:
    """One original. ``requests`` are contiguous accesses of redirected calls to components and to the original;
    ``contiguous`` are those that began where the process' previous one in the same file ended."""

    path: str
    redirected_calls: int
    redirected_bytes: int
    replica_requests: int
    replica_contiguous: int
    replica_bytes: int
    original_requests: int
    original_contiguous: int
    original_bytes: int
    passed: tuple[Passed, ...]
    replicas: tuple[Used, ...]
    compared_calls: int
    compared_bytes: int
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class WriteReport:
    """A file whose writes had replicas.

    Attributes:
        requests: contiguous accesses of redirected calls to components.
        back_bytes, back_requests: written back by this run, in so many contiguous writes to the
            file.
        earlier_bytes, earlier_requests, earlier_seconds: written back of what an earlier run had
            left.
        left_bytes: bytes that wait in replicas at the end.
        neighbour_reads: reads of bytes that other ranks of the node had in replicas.
        leased_reads, leased_bytes: reads of bytes that an earlier run had left in replicas, and the
            bytes that came from there.
        refused: why nothing was redirected after an open.
        errors: why the write-back failed.
    """

    path: str
    redirected_calls: int
    redirected_bytes: int
    requests: int
    back_bytes: int
    back_requests: int
    earlier_bytes: int
    earlier_requests: int
    earlier_seconds: float
    left_bytes: int
    neighbour_reads: int
    leased_reads: int
    leased_bytes: int
    refused: tuple[str, ...]
    errors: tuple[str, ...]
    passed: tuple[Passed, ...]


@dataclass(frozen=True)
class RunReport:
    """A redirected run.

    Attributes:
        map: the number of processes for each outcome of reading the map ("ok", or why it was
            refused).
        killed: processes that ended before they could report.
        seconds: what the slowest process spent in redirected calls.
        seconds_hidden: what all processes spent with bringing cached bytes home while the program
            did not wait for it.
    """

    command: str
    ranks: int
    generation: int
    map: Mapping[str, int]
    unreadable: int
    killed: int
    seconds: float
    files: tuple[FileReport, ...]
    writes: tuple[WriteReport, ...] = ()
    caches: tuple[CacheReport, ...] = ()
    seconds_hidden: float = 0.0

    @property
    def errors(self) -> tuple[str, ...]:
        """Why the write-back of redirected or cached writes failed, with the file."""
        written = [(file.path, file.errors) for file in self.writes]
        cached = [(file.path, file.errors) for file in self.caches]
        return tuple(f"{path}: {error}" for path, errors in (*written, *cached) for error in errors)

    @property
    def compared_calls(self) -> int:
        """Number of redirected reads that were compared with the original."""
        return sum(file.compared_calls for file in self.files)

    @property
    def difference(self) -> str:
        """The first difference between a replica and its original; "" if none was found."""
        for file in self.files:
            for found in file.differences:
                return (
                    f"replica {found.replica} of {file.path} differs at byte {found.offset}: it has {found.got}, the "
                    f"original {found.original} (redirected read {found.number} of rank {found.rank}: {found.call} of "
                    f"{format_bytes(found.bytes)} from byte {found.start} on)"
                )
        return ""

    @property
    def redirected_calls(self) -> int:
        """Calls that replicas served, wholly or in part."""
        return sum(file.redirected_calls for file in self.files)

    @property
    def redirected_bytes(self) -> int:
        """Bytes that these calls moved."""
        return sum(file.redirected_bytes for file in self.files)

    @property
    def replica_requests(self) -> int:
        """Contiguous accesses to components."""
        return sum(file.replica_requests for file in self.files)

    @property
    def replica_contiguous(self) -> int:
        """Those accesses to components that began where the previous one ended."""
        return sum(file.replica_contiguous for file in self.files)

    @property
    def replica_bytes(self) -> int:
        """Bytes that came from replicas."""
        return sum(file.replica_bytes for file in self.files)

    @property
    def original_requests(self) -> int:
        """Contiguous accesses of redirected calls to originals, for bytes that no replica holds."""
        return sum(file.original_requests for file in self.files)

    @property
    def original_contiguous(self) -> int:
        """Those accesses to originals that began where the previous one ended."""
        return sum(file.original_contiguous for file in self.files)

    @property
    def passed(self) -> tuple[Passed, ...]:
        """Calls that the original served, by reason, the most bytes first."""
        return merge_passed(entry for file in self.files for entry in file.passed)

    @property
    def sentence(self) -> str:
        """The outcome in a sentence."""
        return sentence(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Plain values: the fields, and the totals over the files."""
        files = [
            {
                **asdict(file),
                "passed": _rows(file.passed),
                "replicas": _rows(file.replicas),
                "differences": _rows(file.differences),
            }
            for file in self.files
        ]
        return {
            "version": VERSION,
            "command": self.command,
            "ranks": self.ranks,
            "generation": self.generation,
            "map": dict(self.map),
            "unreadable": self.unreadable,
            "killed": self.killed,
            "seconds": self.seconds,
            "redirected_calls": self.redirected_calls,
            "redirected_bytes": self.redirected_bytes,
            "replica_requests": self.replica_requests,
            "replica_contiguous": self.replica_contiguous,
            "replica_bytes": self.replica_bytes,
            "original_requests": self.original_requests,
            "original_contiguous": self.original_contiguous,
            "passed": _rows(self.passed),
            "files": files,
            "writes": [{**asdict(file), "passed": _rows(file.passed)} for file in self.writes],
            "cache": summary(self.caches, self.seconds_hidden),
            "caches": [file_json(file) for file in self.caches],
        }


def collect(directory: Path, command: str) -> RunReport:
    """Merge the reports that the processes of ``command`` left in ``directory`` (one JSON object in each file,
    in a directory of its node).

    Damaged reports are counted and skipped. A killed process leaves a report that has no final name
    yet.
    """
    processes, unreadable = [], 0
    for path in sorted(directory.rglob("*.json")):
        try:
            process = json.loads(path.read_bytes())
            if process["version"] != VERSION:
                raise ValueError(f"version {process['version']}")
            rank = int(process["rank"])
            files, writes = (_file(entry, rank) for entry in process["files"]), map(_written, process["writes"])
            caches = map(read_cached, process.get("caches", ()))
            processes.append((process, list(files), list(writes), list(caches)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            unreadable += 1
    by_path: dict[str, list[FileReport]] = {}
    written: dict[str, list[WriteReport]] = {}
    cached: dict[str, list[CacheReport]] = {}
    for _, read_files, written_files, cached_files in processes:
        for file in read_files:
            by_path.setdefault(file.path, []).append(file)
        for target in written_files:
            written.setdefault(target.path, []).append(target)
        for one in cached_files:
            cached.setdefault(one.path, []).append(one)
    heads = [process for process, _, _, _ in processes]
    return RunReport(
        command=command,
        ranks=max((int(head["ranks"]) for head in heads), default=0),
        generation=max((int(head["generation"]) for head in heads), default=0),
        map=dict(sorted(Counter(str(head["map"]) for head in heads).items())),
        unreadable=unreadable,
        killed=len(list(directory.rglob(".*.part"))),
        seconds=max((float(head["seconds"]) for head in heads), default=0.0),
        files=tuple(_merge_files(files) for _, files in sorted(by_path.items())),
        writes=tuple(_merge_written(files) for _, files in sorted(written.items())),
        caches=tuple(merge_cached(files) for _, files in sorted(cached.items())),
        seconds_hidden=sum(hidden_seconds(files) for _, _, _, files in processes),
    )


def _file(entry: Mapping[str, Any], rank: int) -> FileReport:
    redirected, replica, original = entry["redirected"], entry["replica"], entry["original"]
    compared, difference = entry["compared"], entry.get("difference")
    return FileReport(
        path=str(entry["path"]),
        redirected_calls=int(redirected["calls"]),
        redirected_bytes=int(redirected["bytes"]),
        replica_requests=int(replica["requests"]),
        replica_contiguous=int(replica["contiguous"]),
        replica_bytes=int(replica["bytes"]),
        original_requests=int(original["requests"]),
        original_contiguous=int(original["contiguous"]),
        original_bytes=int(original["bytes"]),
        passed=read_passed(entry["passed"]),
        replicas=tuple(Used(int(r["id"]), int(r["bytes"]), str(r["state"])) for r in entry["replicas"]),
        compared_calls=int(compared["calls"]),
        compared_bytes=int(compared["bytes"]),
        differences=(Difference(rank, **difference),) if difference else (),
    )


def _written(entry: Mapping[str, Any]) -> WriteReport:
    redirected, back, earlier = entry["redirected"], entry["brought_back"], entry["earlier"]
    return WriteReport(
        path=str(entry["path"]),
        redirected_calls=int(redirected["calls"]),
        redirected_bytes=int(redirected["bytes"]),
        requests=int(redirected["requests"]),
        back_bytes=int(back["bytes"]),
        back_requests=int(back["requests"]),
        earlier_bytes=int(earlier["bytes"]),
        earlier_requests=int(earlier["requests"]),
        earlier_seconds=float(earlier["seconds"]),
        left_bytes=int(entry["left"]),
        neighbour_reads=int(entry["neighbours"]),
        leased_reads=int(entry["leased"]["calls"]),
        leased_bytes=int(entry["leased"]["bytes"]),
        refused=tuple(filter(None, [str(entry["refused"])])),
        errors=tuple(filter(None, [str(entry["error"])])),
        passed=read_passed(entry["passed"]),
    )


def _sums(files: Sequence[FileReport] | Sequence[WriteReport]) -> dict[str, int]:
    kinds = type(files[0]).__annotations__
    return {name: sum(getattr(file, name) for file in files) for name, kind in kinds.items() if kind == "int"}


def _merge_written(files: list[WriteReport]) -> WriteReport:
    return WriteReport(
        path=files[0].path,
        earlier_seconds=max(file.earlier_seconds for file in files),
        refused=tuple(sorted({why for file in files for why in file.refused})),
        errors=tuple(sorted({error for file in files for error in file.errors})),
        passed=merge_passed(entry for file in files for entry in file.passed),
        **_sums(files),
    )


def _merge_files(files: list[FileReport]) -> FileReport:
    used: dict[int, Used] = {}
    for entry in (entry for file in files for entry in file.replicas):
        known = used.get(entry.id, Used(entry.id, 0, "valid"))
        used[entry.id] = Used(entry.id, known.bytes + entry.bytes, max(known.state, entry.state, key=_weight))
    return FileReport(
        path=files[0].path,
        passed=merge_passed(entry for file in files for entry in file.passed),
        replicas=tuple(used[replica_id] for replica_id in sorted(used)),
        differences=tuple(sorted(found for file in files for found in file.differences)),
        **_sums(files),
    )


def _weight(state: str) -> int:
    kind = state.partition(":")[0]
    return _STATES.index(kind) if kind in _STATES else len(_STATES)


def _rows(entries: Iterable[Passed | Used | Difference]) -> list[dict[str, Any]]:
    return [entry._asdict() for entry in entries]


def sentence(report: Mapping[str, Any]) -> str:
    """The sentence for a report in its JSON form.

    >>> sentence({"map": {}, "redirected_calls": 0, "passed": [], "unreadable": 0})
    'no process opened a file through MPI-IO'
    """
    refused = [
        f"{count} of {sum(report['map'].values())} processes: {why}"
        for why, count in report["map"].items()
        if why != "ok"
    ]
    passed = [
        f"{counted(p['calls'], 'call')}, {format_bytes(p['bytes'])} ({_reason(p['why'], report.get('files', ()))})"
        for p in report["passed"]
    ]
    if report["redirected_calls"]:
        share = format_share(report["replica_contiguous"], report["replica_requests"])
        parts = [
            f"{counted(report['redirected_calls'], 'call')} redirected, "
            f"{format_bytes(report['replica_bytes'])} from replicas in "
            f"{counted(report['replica_requests'], 'request')}, {share} of them contiguous"
        ]
    elif any(map(_has_written_parts, report.get("writes", ()))) or report.get("cache"):
        parts = []
    elif report["map"] or report.get("ranks"):
        parts = ["nothing was redirected"]
    elif not report.get("killed"):
        parts = ["no process opened a file through MPI-IO"]
    else:
        parts = ["it is not known what was redirected"]
    parts += [part for file in report.get("writes", ()) for part in _written_parts(file)]
    parts += cache_parts(report)
    if passed:
        parts.append("left to the original: " + ", ".join(passed))
    if refused:
        parts.append("map not used by " + ", ".join(refused))
    if killed := report.get("killed", 0):
        parts.append(
            f"no exit report of {counted(killed, 'rank')} that opened files: killed, ended in a signal handler within "
            "a call, or no space for the report"
        )
    if report["unreadable"]:
        parts.append(f"damaged reports: {report['unreadable']}")
    return "; ".join(parts)


def _reason(why: str, files: Iterable[Mapping[str, Any]]) -> str:
    """Why calls were left to the original; if no replica was usable, with what is wrong with the replicas."""
    concerned = [file for file in files if any(passed["why"] == why for passed in file["passed"])]
    states = {replica["state"] for file in concerned for replica in file["replicas"]} - {"valid"}
    if why != _NO_REPLICA or not states:
        return why
    return f"{why}: " + ", ".join(sorted(_UNUSABLE.get(state, state.removeprefix("refused: ")) for state in states))


def _has_written_parts(file: Mapping[str, Any]) -> bool:
    return bool(file["redirected_calls"] or file.get("leased_reads"))


def _written_parts(file: Mapping[str, Any]) -> list[str]:
    """What happened to the redirected writes to a file."""
    parts = []
    if file.get("earlier_bytes"):
        found = f"{format_bytes(file['earlier_bytes'])} of {file['path']}"
        took = format_seconds(file["earlier_seconds"])
        parts.append(f"wrote back {found} from an earlier run in {took}")
    if reads := file.get("leased_reads"):
        found = f"{format_bytes(file['leased_bytes'])} of {file['path']}"
        parts.append(f"{counted(reads, 'read')} took {found} from where an earlier run left them")
    errors = [f"NOT WRITTEN BACK: {error}" for error in file["errors"]]
    if not file["redirected_calls"]:
        return parts + errors
    parts += [
        f"{counted(file['redirected_calls'], 'write')} redirected, {format_bytes(file['back_bytes'])} written back in "
        f"{counted(file['back_requests'], 'request')}"
    ]
    if reads := file.get("neighbour_reads"):
        parts.append(f"{counted(reads, 'read')} of bytes that other ranks of the node had just written")
    if file["left_bytes"]:
        parts.append(f"{format_bytes(file['left_bytes'])} wait in replicas (pdla sync)")
    passed = [f"{counted(p['calls'], 'call')} ({p['why']})" for p in file["passed"]]
    if passed:
        parts.append("to the original: " + ", ".join(passed))
    return parts + errors
