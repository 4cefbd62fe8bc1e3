"""Advice on how to make a program's I/O faster, from the plan's comparison and from the trace, with the evidence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pdla.analyzers.file_statistics import Summary
from pdla.analyzers.posix_requests import MadeOf
from pdla.model import Cluster, PatternPlan, Plan, Signature
from pdla.policies.base import LEAST_GAIN
from pdla.report.text import by_ranks, call_name, candidate_name
from pdla.units import format_bytes, format_count, format_seconds, format_share

SIEVED = 1.5  # report data sieving from this many bytes moved for each byte asked for
UNEVEN = 2.0  # report uneven ranks from this ratio of the slowest rank's time to the mean
MOST_CHECKED = 1 << 16  # requests of a signature that are checked for crossing a strip's end
CROSSING = 0.1  # report requests over a strip's end from this share of them


class Advice(NamedTuple):
    """What to do, the seconds that this saves in one run simulated or by the cost model (None: not known), and why."""

    what: str
    seconds: float | None
    evidence: str


def advise(plan: Plan, summary: Summary, library: tuple[MadeOf, ...]) -> list[Advice]:
    """The advice for a run: the largest saving first, then advice without a predicted saving."""
    found = [
        *(one for pattern in plan.patterns for one in _of_pattern(pattern)),
        *_of_strips(plan),
        *_of_library(library, plan.cluster),
        *_of_ranks(summary),
    ]
    return sorted(found, key=lambda one: -(one.seconds or 0.0))


def _of_pattern(pattern: PatternPlan) -> Iterator[Advice]:
    """A replica, and collective calls, if they save something."""
    original, signature = pattern.candidates[0], pattern.signature
    where = _where(signature)
    if pattern.choice.layout is not None:
        yield Advice(
            f"Use a replica of {signature.file}, {candidate_name(pattern.choice)}: pdla replicate, then pdla run.",
            original.seconds - pattern.choice.seconds,
            f"{where}; {pattern.reason}.",
        )
    for candidate in pattern.candidates:
        saved = original.seconds - candidate.seconds
        if candidate.space == "collective" and saved >= LEAST_GAIN * original.seconds:
            verb = f"MPI_File_{signature.op}_all"
            yield Advice(
                f"Make the {signature.op}s of {signature.file} collective: {verb} through a view, or the "
                "collective transfer property of HDF5.",
                saved,
                f"{where}; with two-phase collective buffering {format_seconds(candidate.seconds)} instead of "
                f"{format_seconds(original.seconds)}.",
            )


def _of_strips(plan: Plan) -> Iterator[Advice]:
    """Requests that are no larger than a strip of the file system but still lie on two servers."""
    strip = plan.cluster.home_strip
    for pattern in plan.patterns:
        signature = pattern.signature
        if signature.requests > MOST_CHECKED or signature.extent[1] <= strip:
            continue
        offsets, _, lengths = signature.expand()
        small = lengths <= strip
        crossing = small & (offsets // strip != (offsets + np.maximum(lengths, 1) - 1) // strip)
        if crossing.sum() > CROSSING * len(offsets):
            yield Advice(
                f"Align the requests to {signature.file} with the strips of its file system, {format_bytes(strip)}: a "
                "larger strip (lfs setstripe -S, the hint striping_unit), or padding (H5Pset_alignment).",
                None,
                f"{_where(signature)}; {format_share(int(crossing.sum()), len(offsets))} of these requests cross "
                "the end of a strip and so need two servers.",
            )


def _of_library(library: tuple[MadeOf, ...], cluster: Cluster) -> Iterator[Advice]:
    """Data sieving that moves much more than was asked for, and fewer aggregators than there are servers."""
    for made in library:
        if made.ratio is not None and made.ratio >= SIEVED:
            yield Advice(
                f"Make {made.kind} on {made.file} collective, or switch data sieving off (the hints romio_ds_read and "
                "romio_ds_write = disable).",
                None,
                f"the MPI library moves {made.ratio:.3g} times the bytes that the program asks for: "
                f"{format_bytes(made.read + made.written)} for {format_bytes(made.bytes)}.",
            )
        if made.kind.endswith(("_all", "_at_all")) and made.requests and len(made.ranks) < cluster.home_servers:
            yield Advice(
                f"Use more aggregators for {made.kind} on {made.file}: the hint cb_nodes = {cluster.home_servers}.",
                None,
                f"all {format_count(made.requests)} requests are made {by_ranks(made.ranks)}, but the file system has "
                f"{cluster.home_servers} servers.",
            )


def _of_ranks(summary: Summary) -> Iterator[Advice]:
    """A single rank that the others wait for."""
    seconds = summary.rank_seconds
    if len(seconds) > 1 and summary.io_seconds > 0:
        slowest = max(seconds, key=lambda rank: seconds[rank])
        mean = sum(seconds.values()) / len(seconds)
        if seconds[slowest] >= UNEVEN * mean:
            yield Advice(
                f"Share the work of rank {slowest} among the ranks.",
                None,
                f"it spends {format_seconds(seconds[slowest])} in data calls, the mean rank {format_seconds(mean)}.",
            )


def _where(signature: Signature) -> str:
    low, high = signature.extent
    return (
        f"{call_name(signature)} {by_ranks(signature.ranks)}, {format_count(signature.requests)} requests in bytes "
        f"{format_count(low)} to {format_count(high)} of {signature.file}"
    )
