"""The head of the report: how long the I/O took, what it could take, and what costs most."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pdla.findings import Seen
from pdla.findings.finding import KINDS, Finding, Prediction
from pdla.findings.shapes import MEDIUM, SMALL
from pdla.layouts.config import NOMINAL
from pdla.model import Cluster
from pdla.units import format_bytes, format_count, format_seconds, format_share

SHOWN = 3
"""Findings in the head; the others follow below."""

IDLE = 0.01
"""If I/O takes less of the run than this, nothing that makes it faster is worth anybody's time."""

MOST_ROWS = 4
"""More bars than this are drawn side by side, as a profile over the ranks."""


class TimeRow(NamedTuple):
    """What one class of calls takes: of the slowest rank in these calls, and as a share of all I/O."""

    name: str
    calls: str
    bytes: str
    seconds: str
    share: float
    text: str


def verdict(seen: Seen) -> str:
    """Whether I/O matters, in one sentence."""
    if not seen.seconds:
        return "No time was spent in I/O, or no times were recorded."
    spent = f"I/O takes {format_seconds(seen.seconds)} of the slowest rank"
    if not seen.trace.seconds:
        return f"{spent}. How long the whole run took is not known."
    share = f"{format_share(seen.seconds, seen.trace.seconds)} of the run of {format_seconds(seen.trace.seconds)}"
    if seen.seconds < IDLE * seen.trace.seconds:
        return f"{spent}, only {share}: faster I/O would not be noticed."
    return f"{spent}, {share}."


def headlines(seen: Seen, found: Sequence[Finding]) -> list[str]:
    """The head as lines for a terminal: how long the I/O took, and the findings that cost most."""
    if not found:
        return [verdict(seen), no_findings(seen)]
    return [verdict(seen), *(f"{one.severity}: {one.title} {_expected(one, seen)}" for one in found[:SHOWN])]


def limit(seen: Seen) -> str:
    """What the same bytes could take at the limit of the storage, if somebody has described it."""
    moved = {op: sum(group.bytes for group in seen.groups if group.op == op) for op in ("read", "write")}
    if not any(moved.values()):
        return ""
    if seen.is_nominal:
        return (
            "What it could take is not known: pdla calibrate measures your storage, and --cluster cluster.toml gives "
            "the limit here."
        )
    seconds = least_seconds(seen.cluster, moved["read"], moved["write"])
    return (
        f"At the limit of the storage ({storage_name(seen.cluster.source)}) the same bytes take "
        f"{format_seconds(seconds)}: one sequential stream on each of {seen.cluster.home_servers} servers."
    )


def levels(seen: Seen) -> str:
    """At which level the time is spent, if the source of the trace counted that."""
    known = seen.trace.levels
    if len(known) < 2:
        return ""
    listed = ", ".join(f"{format_seconds(seconds)} in {level}" for level, seconds in known.items())
    told = f"Summed over all ranks, Darshan counted {listed}; each level includes those after it."
    if {"MPI-IO", "POSIX"} <= known.keys() and known["POSIX"] < known["MPI-IO"]:
        share = format_share(known["MPI-IO"] - known["POSIX"], known["MPI-IO"])
        told += f" So {share} of the time in MPI-IO is the MPI library's: it exchanges data, and ranks wait."
    return told


def least_seconds(cluster: Cluster, read: int, written: int) -> float:
    """Seconds that the servers of the originals need for so many bytes, each with its share in one stream."""
    pool = cluster.pool(cluster.home_pool)
    return (read * pool.read_seconds_per_byte + written * pool.write_seconds_per_byte) / cluster.home_servers


def storage_name(source: str) -> str:
    """The storage in words: nominal, an example, or a file."""
    return "nominal storage" if source == NOMINAL else source


def time_rows(seen: Seen) -> list[TimeRow]:
    """Where the time goes: metadata, and calls of small, medium and large requests; then the level below them."""
    size = np.zeros(len(seen.own))
    moved = np.zeros(len(seen.own))
    for group in seen.groups:
        size[group.rows] = group.mean_length()
        moved[group.rows] += np.bincount(group.call, group.length, minlength=len(group.rows))
    data = seen.is_data & (moved > 0)
    classes = (
        ("open, close, sync and other metadata", ~seen.is_data),
        (f"requests below {format_bytes(SMALL)}", data & (size < SMALL)),
        (f"requests from {format_bytes(SMALL)} to {format_bytes(MEDIUM)}", data & (size >= SMALL) & (size < MEDIUM)),
        (f"requests of {format_bytes(MEDIUM)} and more", data & (size >= MEDIUM)),
    )
    rows = []
    for name, which in classes:
        if which.any():
            seconds = seen.slowest(which)
            numbers = format_count(int(which.sum())), format_bytes(float(moved[which].sum()))
            rows.append(_time_row(seen, name, *numbers, seconds))
    if len(seen.trace.posix):
        for op, words in (("read", "POSIX reads"), ("write", "POSIX writes"), ("other", "other POSIX calls")):
            made = seen.trace.posix[(seen.trace.posix["op"] == op) & (seen.trace.posix["call"] >= 0)]
            if len(made):
                spent = np.bincount(seen.rank, seen.inside[op], minlength=1)
                numbers = format_count(len(made)), format_bytes(float(made["length"].sum()) if op != "other" else 0.0)
                rows.append(_time_row(seen, f"in these: {words}", *numbers, float(spent.max())))
    return rows


def _time_row(seen: Seen, name: str, calls: str, moved: str, seconds: float) -> TimeRow:
    share = min(seconds / seen.seconds, 1.0) if seen.seconds else 0.0
    return TimeRow(name, calls, moved, format_seconds(seconds), share, format_share(seconds, seen.seconds))


def no_findings(seen: Seen) -> str:
    """Why a run has no finding."""
    if not any(len(group.rows) for group in seen.groups):
        return "The trace has no data calls, so there is nothing to find."
    if not seen.seconds:
        return "The trace has no times: nothing can be said about what costs time."
    return (
        "Nothing that pdla knows costs 5 % of the I/O time or more: requests are large or collective, the ranks share "
        "the work, and no byte is moved twice."
    )


def cards(found: Sequence[Finding], seen: Seen) -> list[dict[str, Any]]:
    """The findings as the template draws them."""
    return [
        {
            "kind": KINDS[one.kind],
            "name": Path(one.file).name,
            "file": one.file,
            "title": one.title,
            "severity": one.severity,
            "evidence": one.evidence,
            "remedy": one.remedy,
            "command": one.command,
            "expected": _expected(one, seen),
            "predicted": _predicted(one.predicted),
            "storage": storage_name(one.predicted.storage) if one.predicted else "",
            "confidence": f"{one.confidence}: {one.why}.",
            "bars": _bars(one),
            "profile": len(one.bars) > MOST_ROWS,
            "alternative": "; ".join(f"{bar.label}: {bar.text}" for bar in one.bars),
        }
        for one in found
    ]


def _expected(one: Finding, seen: Seen) -> str:
    measured = f"{format_seconds(seen.seconds)} measured"
    if one.after is None:
        return f"{measured}, {format_seconds(one.costs)} of it by this; what the remedy brings is not known"
    return f"{measured}, {format_seconds(one.after)} expected"


def _predicted(predicted: Prediction | None) -> str:
    if predicted is None:
        return ""
    return f"{format_seconds(predicted.before)} predicted before, {format_seconds(predicted.after)} after"


def _bars(one: Finding) -> list[dict[str, Any]]:
    longest = max((bar.value for bar in one.bars), default=0.0) or 1.0
    return [
        {"label": bar.label, "text": bar.text, "percent": round(100 * max(bar.value, 0.0) / longest, 1)}
        for bar in one.bars
    ]
