"""Replicas as text: their state, in 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pdla.answers import no_answer
from pdla.catalog.records import STATES, QueueState
from pdla.replicator.cache_status import CachedFile
from pdla.replicator.exit_reports import sentence
from pdla.replicator.status import DAEMON, Status
from pdla.report.text import MOST, more, paragraph, table
from pdla.units import counted, format_bytes, shown

if TYPE_CHECKING:
    from pdla.catalog import Listed, Result

MOST_NODES = 3  # with cache files of one original that are named
MOST_WHYS = 5  # replicas with the same reason whose numbers are listed
UNFINISHED: tuple[QueueState, ...] = ("queued", "planned", "failed")
"""States in the queue of patterns that are not finished."""


def status_text(status: Status, results: Sequence[Result]) -> str:
    """The replicas, invalid ones first; the reasons; who works on them; the queue; the latest runs."""
    replicas = sorted(status.replicas, key=lambda one: (one.state == "valid" and one.id not in status.missing, one.id))
    lines = [_table(replicas[:MOST]), *more(len(replicas), "replicas")] if replicas else ["No replicas."]
    if len(replicas) > 1:
        lines.append(paragraph(_totals(status)))
    whys: dict[str, list[int]] = {}
    for one in replicas:
        if one.why:
            whys.setdefault(f"{one.state}: {one.why}", []).append(one.id)
        elif one.id in status.missing:
            directory = status.missing[one.id]
            why = no_answer() if directory in status.silent else "does not exist"
            whys.setdefault(f"unreachable: {directory} {why}", []).append(one.id)
        elif one.path in status.silent:
            whys.setdefault(f"not looked at: {one.path} {no_answer()}", []).append(one.id)
    lines += [paragraph(f"{_named(numbers)} {why}") for why, numbers in list(whys.items())[:MOST]]
    lines += more(len(whys), "reasons")
    lines += [paragraph(_cached(one)) for one in status.caches[:MOST]]
    lines += more(len(status.caches), "cached files")
    lines += [
        paragraph(
            f"{one.path}: {format_bytes(one.data.bytes)} are critical, "
            f"{format_bytes(status.on_ssds(one))} of it on SSD servers."
        )
        for one in status.critical[:MOST]
    ]
    lines += more(len(status.critical), "files with critical reads")
    for lease in status.leases:
        if lease.resource.startswith(DAEMON):
            lines.append(f"A daemon runs: {lease.holder}.")
        else:
            lines.append(shown(f"{lease.holder} works on {lease.name}."))
    waiting = [
        f"{counted(count, 'pattern')} {state}" for state, count in status.queue.items() if count and state in UNFINISHED
    ]
    if waiting:
        lines.append(f"In the queue: {', '.join(waiting)}.")
    for failed in status.failed[:MOST]:
        lines.append(paragraph(f"pattern {failed.id} of {failed.signature.file} failed: {failed.why}"))
    for result in results:
        lines.append(paragraph(f"run of {result.time.astimezone():%Y-%m-%d %H:%M:%S}: {sentence(result.report)}"))
    return "\n".join(lines)


def _table(replicas: Sequence[Listed]) -> str:
    rows = []
    for one in replicas:
        layout = one.layout
        what = f"{layout.name} {layout.pool}" + (" writes" if one.purpose == "write" else "")
        used = f"{one.runs:,}" if one.runs else "-"
        rows.append([str(one.id), one.state, format_bytes(one.size), used, what, one.path])
    return table(["id", "state", "size", "used", "layout", "original"], rows, "rlrrll")


def _cached(file: CachedFile) -> str:
    """What a file has in cache files, and what becomes of it."""
    where = f"{counted(file.files, 'cache file')} on {', '.join(file.nodes[:MOST_NODES])}"
    where += f" and {len(file.nodes) - MOST_NODES} more nodes" if len(file.nodes) > MOST_NODES else ""
    parts = [f"{file.original}: {format_bytes(file.cached)} in {where}, {format_bytes(file.dirty)} of it not home yet"]
    if file.rate:
        parts.append(f"{format_bytes(file.rate)}/s go home")
    if file.holder or file.dirty:
        parts.append(file.holder or "nobody brings it home (pdla sync does)")
    if file.damaged:
        parts.append("a journal is damaged (pdla sync says more)")
    return "; ".join(parts) + "."


def _totals(status: Status) -> str:
    count, size = Counter[str](), Counter[str]()
    for one in status.replicas:
        count[one.state] += 1
        size[one.state] += one.size
    parts = [f"{count[state]:,} {state} ({format_bytes(size[state])})" for state in STATES if count[state]]
    return f"{counted(len(status.replicas), 'replica')}: {', '.join(parts)}."


def _named(numbers: Sequence[int]) -> str:
    """The numbers of replicas; of many only the first ones."""
    if len(numbers) == 1:
        return f"replica {numbers[0]} is"
    named = ", ".join(map(str, numbers[:MOST_WHYS]))
    return (
        f"replicas {named}" + (f" and {len(numbers) - MOST_WHYS:,} more" if len(numbers) > MOST_WHYS else "") + " are"
    )
