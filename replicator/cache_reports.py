"""What the exit reports of a run say of its cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pdla.file_policies import NONE
from pdla.replicator.passed_calls import Passed, merge_passed, read_passed
from pdla.units import counted, format_bytes, format_seconds


@dataclass(frozen=True)
class Exchange:
    """How the pieces of a collective write were written, and why (pdla/caching).

    Attributes:
        unit: bytes of the file that a rank gets in an exchange.
        requests: of the storage until the bytes of the call are home, without an exchange between nodes, with one,
            and by the MPI library, which sieves.
        seconds: for which the program waits then, by the model of the costs.
    """

    unit: int
    requests: tuple[int, int, int]
    seconds: tuple[float, float, float]


@dataclass(frozen=True)
class CacheReport:
    """A file whose writes a policy could cache.

    Attributes:
        requests: contiguous accesses to cache files.
        hit_calls, hit_bytes: reads, or parts of them, that the cache served.
        home_bytes, home_requests: brought home, in so many contiguous writes to the file.
        dirty_bytes: bytes that wait in cache files at the end.
        exchanged_calls, exchanged_bytes: collective writes whose pieces were exchanged between nodes first.
        exchange: the last decision about that; None: there was nothing to decide.
        moving_seconds: what the movers, and calls that waited, spent with that.
        waited_seconds: what the program waited for it.
        refused: why nothing was cached after an open.
        errors: why bytes could not be brought home.
        passed: the calls that were not cached.
    """

    path: str
    policy: str
    written_calls: int
    written_bytes: int
    requests: int
    hit_calls: int
    hit_bytes: int
    home_bytes: int
    home_requests: int
    dirty_bytes: int
    exchanged_calls: int
    exchanged_bytes: int
    exchange: Exchange | None
    moving_seconds: float
    waited_seconds: float
    refused: tuple[str, ...]
    errors: tuple[str, ...]
    passed: tuple[Passed, ...]


def read_cached(entry: Mapping[str, Any]) -> CacheReport:
    """From the JSON of the exit report of a process."""
    written, hits, home, seconds = entry["written"], entry["hits"], entry["home"], entry["seconds"]
    exchange = entry["exchange"]
    return CacheReport(
        path=str(entry["path"]),
        policy=str(entry["policy"]),
        written_calls=int(written["calls"]),
        written_bytes=int(written["bytes"]),
        requests=int(written["requests"]),
        hit_calls=int(hits["calls"]),
        hit_bytes=int(hits["bytes"]),
        home_bytes=int(home["bytes"]),
        home_requests=int(home["requests"]),
        dirty_bytes=int(entry["dirty"]),
        exchanged_calls=int(exchange["calls"]),
        exchanged_bytes=int(exchange["bytes"]),
        exchange=_read_exchange(exchange),
        moving_seconds=float(seconds["moving"]),
        waited_seconds=float(seconds["waited"]),
        refused=tuple(filter(None, [str(entry["refused"])])),
        errors=tuple(filter(None, [str(entry["error"])])),
        passed=read_passed(entry["passed"]),
    )


def _read_exchange(entry: Mapping[str, Any]) -> Exchange | None:
    requests, seconds = map(int, entry["requests"]), map(float, entry["seconds"])
    return Exchange(int(entry["unit"]), (*requests,), (*seconds,)) if entry["unit"] else None  # type: ignore[arg-type]


def merge_cached(files: Sequence[CacheReport]) -> CacheReport:
    """The sums of all processes for one file."""
    sums = {
        name: sum(getattr(file, name) for file in files)
        for name, kind in CacheReport.__annotations__.items()
        if kind in ("int", "float")
    }
    return CacheReport(
        path=files[0].path,
        policy=files[0].policy,
        exchange=next((file.exchange for file in files if file.exchange), None),
        refused=tuple(sorted({why for file in files for why in file.refused})),
        errors=tuple(sorted({error for file in files for error in file.errors})),
        passed=merge_passed(entry for file in files for entry in file.passed),
        **sums,
    )


def hidden_seconds(files: Iterable[CacheReport]) -> float:
    """The seconds of moves for which a process did not wait, from its reports on all its files."""
    files = list(files)
    return max(0.0, sum(file.moving_seconds for file in files) - sum(file.waited_seconds for file in files))


def file_json(file: CacheReport) -> dict[str, Any]:
    """Plain values."""
    return {**asdict(file), "passed": [entry._asdict() for entry in file.passed]}


def summary(files: Sequence[CacheReport], seconds_hidden: float) -> dict[str, Any] | None:
    """The sums over all files, or None if the run had no cache."""
    if not files:
        return None
    opens = [Passed(why, 0, 0) for file in files for why in file.refused]
    refused = merge_passed([*(entry for file in files for entry in file.passed), *opens])
    return {
        "policy": ", ".join(sorted({file.policy for file in files} - {NONE})) or NONE,
        "hit_bytes": sum(file.hit_bytes for file in files),
        "written_bytes": sum(file.written_bytes for file in files),
        "home_bytes": sum(file.home_bytes for file in files),
        "dirty_bytes": sum(file.dirty_bytes for file in files),
        "refused": [entry._asdict() for entry in refused],
        "seconds_hidden": seconds_hidden,
    }


def cache_parts(report: Mapping[str, Any]) -> list[str]:
    """What happened in the cache, for the sentence about a report in its JSON form."""
    cache, files = report.get("cache"), report.get("caches", ())
    if cache is None:
        return []
    calls, hits, requests = (
        sum(file[name] for file in files) for name in ("written_calls", "hit_calls", "home_requests")
    )
    by = "" if cache["policy"] == NONE else f" by {cache['policy']}"
    parts = [f"no write was cached{by}"]
    if calls:
        parts = [
            f"{counted(calls, 'write')} ({format_bytes(cache['written_bytes'])}) cached{by}",
            f"{format_bytes(cache['home_bytes'])} brought home in {counted(requests, 'request')}, "
            f"{format_seconds(cache['seconds_hidden'])} of that while the program computed",
        ]
    if exchanged := sum(file["exchanged_calls"] for file in files):
        parts.append(_exchanged(exchanged, next(file["exchange"] for file in files if file["exchanged_calls"])))
    if hits:
        parts.append(f"{counted(hits, 'read')} ({format_bytes(cache['hit_bytes'])}) hit the cache")
    if cache["dirty_bytes"]:
        parts.append(f"{format_bytes(cache['dirty_bytes'])} wait in cache files (pdla sync)")
    refused = [
        f"{counted(one['calls'], 'call')}, {format_bytes(one['bytes'])} ({one['why']})" if one["calls"] else one["why"]
        for one in cache["refused"]
    ]
    if refused:
        parts.append("not cached: " + ", ".join(refused))
    return parts + [f"NOT BROUGHT HOME: {file['path']}: {error}" for file in files for error in file["errors"]]


def _exchanged(calls: int, decision: Mapping[str, Any]) -> str:
    """How many calls exchanged their pieces, and the last decision for it."""
    stay, go, _ = (
        f"{counted(requests, 'request')} and {format_seconds(seconds)}"
        for requests, seconds in zip(decision["requests"], decision["seconds"], strict=True)
    )
    return f"pieces of {counted(calls, 'write')} exchanged between nodes first: a call would take {stay}, not {go}"
