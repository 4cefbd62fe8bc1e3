"""What a run did with replicas, by its report: bytes that it read from them, and bytes that it wrote to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pdla.autopilot.judging import usable
from pdla.catalog import Catalog, Replica
from pdla.replicator.write_targets import is_of
from pdla.units import KiB

SERVED = 0.95
"""A file of whose bytes so large a share came from replicas, or went to them, needs no more of them."""
JUMP_BYTES = 64 * KiB
"""Bytes that were read from replicas between two jumps, at least: otherwise another order of them is worth a plan."""


def bytes_read(report: Mapping[str, Any]) -> int:
    """Bytes that came from replicas."""
    return int(report.get("replica_bytes", 0))


def bytes_written(report: Mapping[str, Any]) -> int:
    """Bytes that went to replicas."""
    return sum(int(file["redirected_bytes"]) for file in report.get("writes", ()))


def replicas_used(catalog: Catalog, report: Mapping[str, Any]) -> dict[str, int]:
    """Bytes that the run read from each replica, or wrote to it, by the replica's number."""
    used: dict[str, int] = {}
    for one in (one for file in report.get("files", ()) for one in file["replicas"] if one["bytes"]):
        used[str(one["id"])] = used.get(str(one["id"]), 0) + int(one["bytes"])
    written = [file for file in report.get("writes", ()) if file["redirected_bytes"]]
    there = usable(catalog) if written else []
    for file in written:
        used |= _shared(int(file["redirected_bytes"]), (one for one in there if is_of(one, Path(file["path"]))))
    return used


def _shared(size: int, replicas: Iterable[Replica]) -> dict[str, int]:
    """RATIONALE: reports count writes by file. A file seldom has several replicas for writes; they share no bytes."""
    there = list(replicas)
    whole = sum(one.size for one in there)
    return {str(one.id): size * one.size // whole for one in there}


def served_files(report: Mapping[str, Any]) -> set[tuple[str, str]]:
    """The operations and files that replicas served: those at another number of ranks serve them, too.

    Reads in many small pieces do not count. The replica is then in the order of another program.
    """
    read = {
        ("read", str(file["path"]))
        for file in report.get("files", ())
        if _is_served(file["replica_bytes"], file["original_bytes"] + _passed_bytes(file)) and not _is_scattered(file)
    }
    written = {
        ("write", str(file["path"]))
        for file in report.get("writes", ())
        if _is_served(file["redirected_bytes"], _passed_bytes(file))
    }
    return read | written


def _is_served(replicas: int, original: int) -> bool:
    return replicas > SERVED / (1 - SERVED) * original


def _is_scattered(file: Any) -> bool:
    jumps = int(file["replica_requests"]) - int(file["replica_contiguous"])
    return jumps * JUMP_BYTES > int(file["replica_bytes"])


def _passed_bytes(file: Any) -> int:
    return sum(int(one["bytes"]) for one in file["passed"])
