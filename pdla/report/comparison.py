"""The effect of redirection: a traced run and a redirected run of the same program, side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from pdla.analyzers.file_statistics import summarize
from pdla.traces.trace import Trace
from pdla.units import format_bytes, format_count, format_seconds, format_share

if TYPE_CHECKING:
    from pdla.replicator.exit_reports import RunReport

FASTER = 1.05  # a smaller ratio of two single runs is not reported as faster


class Row(NamedTuple):
    """One line of the table, ready to print; ``ratio`` is empty if it has no meaning."""

    what: str
    before: str
    after: str
    ratio: str


@dataclass(frozen=True)
class Comparison:
    """The same program before (traced) and after (redirected).

    ``requests`` are contiguous accesses to files; ``contiguous`` is the number of them that start
    where the previous one ended. ``reading`` is the time that the slowest rank spent in read calls
    (all that redirection can change), ``seconds`` that in all data calls, ``wall`` that from start
    to end of the whole program.
    """

    requests_before: int
    requests_after: int
    contiguous_before: int
    contiguous_after: int
    bytes_before: int
    bytes_after: int
    bytes_from_replicas: int
    reading_before: float
    reading_after: float
    seconds_before: float
    seconds_after: float
    wall_before: float
    wall_after: float
    identical: bool

    @classmethod
    def of(
        cls, before: Trace, after: Trace, served: RunReport, wall_before: float, wall_after: float, *, identical: bool
    ) -> Comparison:
        """Compare two traced runs; ``served`` is the report on the redirected calls of ``after``."""
        first, second = summarize(before), summarize(after)
        passed = summarize(replace(after, records=after.records[~after.records["redirected"]]))
        return cls(
            requests_before=first.requests,
            requests_after=served.replica_requests + served.original_requests + passed.requests,
            contiguous_before=round(first.contiguous * first.requests),
            contiguous_after=served.replica_contiguous
            + served.original_contiguous
            + round(passed.contiguous * passed.requests),
            bytes_before=first.bytes,
            bytes_after=second.bytes,
            bytes_from_replicas=served.replica_bytes,
            reading_before=_reading(before),
            reading_after=_reading(after),
            seconds_before=first.io_seconds,
            seconds_after=second.io_seconds,
            wall_before=wall_before,
            wall_after=wall_after,
            identical=identical,
        )

    @property
    def speedup(self) -> float:
        """The ratio of the slowest rank's times in read calls, before to after; 1 if nothing was measured."""
        return self.reading_before / self.reading_after if self.reading_before and self.reading_after else 1.0

    @property
    def rows(self) -> tuple[Row, ...]:
        """The table of both runs, a row for each quantity."""
        return (
            Row(
                "requests (contiguous accesses)",
                format_count(self.requests_before),
                format_count(self.requests_after),
                _ratio(self.requests_before, self.requests_after, "fewer", "more"),
            ),
            Row(
                "of them in sequence",
                format_share(self.contiguous_before, self.requests_before),
                format_share(self.contiguous_after, self.requests_after),
                "",
            ),
            Row(
                "bytes from replicas",
                format_bytes(0),
                format_bytes(self.bytes_from_replicas),
                f"{format_share(self.bytes_from_replicas, self.bytes_after)} of all",
            ),
            _faster("reading, slowest rank", self.reading_before, self.reading_after),
            _faster("reading and writing, slowest rank", self.seconds_before, self.seconds_after),
            _faster("whole program", self.wall_before, self.wall_after),
            Row("checksum of all bytes received", "", "identical" if self.identical else "DIFFERENT", ""),
        )

    @property
    def sentence(self) -> str:
        """Whether redirection helped; if it did not, the possible reason."""
        if not self.identical:
            return "The redirected run received other bytes than the first run: do not use these replicas."
        if self.bytes_from_replicas == 0:
            return "Nothing was read from replicas, so nothing could become faster."
        times = f"{format_seconds(self.reading_before)} before, {format_seconds(self.reading_after)} after"
        if self.speedup >= FASTER:
            return f"Reading became {self.speedup:.1f}x faster for the slowest rank ({times})."
        verdict = "no faster" if self.speedup > 1 / FASTER else f"{1 / self.speedup:.1f}x slower"
        return (
            f"Reading became {verdict} for the slowest rank ({times}). If a file is in the page cache, or on a device "
            "without seek times, the order of its bytes matters little. On disks behind a parallel file system it "
            "matters."
        )


@dataclass(frozen=True)
class Contrast:
    """Two traces of a program side by side, whatever the difference between the runs."""

    before: Trace
    after: Trace

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The table of both runs, a row for each quantity."""
        first, second = summarize(self.before), summarize(self.after)
        made = [_requests_made(trace) for trace in (self.before, self.after)]
        redirected = [format_count(int(trace.records["redirected"].sum())) for trace in (self.before, self.after)]
        return (
            Row(
                "requests that the program asks for",
                format_count(first.requests),
                format_count(second.requests),
                _ratio(first.requests, second.requests, "fewer", "more"),
            ),
            Row(
                "requests to files, at least",
                format_count(made[0]),
                format_count(made[1]),
                _ratio(made[0], made[1], "fewer", "more"),
            ),
            Row(
                "of those asked for in sequence",
                format_share(first.contiguous, 1),
                format_share(second.contiguous, 1),
                "",
            ),
            Row("bytes", format_bytes(first.bytes), format_bytes(second.bytes), ""),
            Row("redirected calls", redirected[0], redirected[1], ""),
            _faster("reading, slowest rank", _reading(self.before), _reading(self.after)),
            _faster("reading and writing, slowest rank", first.io_seconds, second.io_seconds),
        )

    @property
    def sentence(self) -> str:
        """Which run spent less time in data calls."""
        seconds = [summarize(trace).io_seconds for trace in (self.before, self.after)]
        ratio = _ratio(seconds[0], seconds[1], "less", "more")
        verdict = f"{ratio} time" if ratio and ratio != "the same" else "about the same time"
        times = f"{format_seconds(seconds[1])}, and {format_seconds(seconds[0])} in the first run"
        return f"In the second run the slowest rank spent {verdict} in data calls: {times}."


def _requests_made(trace: Trace) -> int:
    """Requests to files, at least: one for each redirected call, whose bytes lie together in the replica."""
    served = int(trace.records["redirected"].sum())
    return served + summarize(replace(trace, records=trace.records[~trace.records["redirected"]])).requests


def _reading(trace: Trace) -> float:
    """Seconds that the slowest rank spent in read calls."""
    reads = trace.records[trace.records["op"] == "read"]
    return float((reads["t_end"] - reads["t_start"]).groupby(reads["rank"]).sum().max()) if len(reads) else 0.0


def _faster(what: str, before: float, after: float) -> Row:
    """A row of seconds."""
    return Row(what, format_seconds(before), format_seconds(after), _ratio(before, after, "faster", "slower"))


def _ratio(before: float, after: float, less: str, more: str) -> str:
    """The ratio of ``after`` to ``before`` in words.

    >>> _ratio(3.0, 1.0, "faster", "slower"), _ratio(1.0, 2.0, "faster", "slower"), _ratio(1.0, 1.0, "faster", "slower")
    ('3.0x faster', '2.0x slower', 'the same')
    """
    if not before or not after:
        return ""
    ratio = before / after
    if 1 / FASTER < ratio < FASTER:
        return "the same"
    factor, word = (ratio, less) if ratio > 1 else (1 / ratio, more)
    return f"{factor:.1f}x {word}" if factor < 100 else f"{factor:,.0f}x {word}"
