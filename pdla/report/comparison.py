"""What redirection changed: a traced run and the same program's redirected run, side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from pdla.analyzers.stats import summarize
from pdla.model import Trace
from pdla.report.text import share_text
from pdla.units import format_bytes, format_count, format_seconds

FASTER = 1.05  # a smaller ratio of two single runs is not worth a claim


class Served(Protocol):
    """What a redirected run reports of its redirected calls: contiguous accesses to replicas and to originals."""

    @property
    def replica_requests(self) -> int:
        """Accesses to replicas."""

    @property
    def replica_contiguous(self) -> int:
        """Those that start where the previous one of the same component ended."""

    @property
    def replica_bytes(self) -> int:
        """Bytes from replicas."""

    @property
    def original_requests(self) -> int:
        """Accesses to originals, for the parts of redirected calls that no replica holds."""

    @property
    def original_contiguous(self) -> int:
        """Those that start where the previous one ended."""

    @property
    def sentence(self) -> str:
        """The report in a sentence."""


class Row(NamedTuple):
    """One line of the table, ready to print; ``ratio`` is empty where it says nothing."""

    what: str
    before: str
    after: str
    ratio: str


@dataclass(frozen=True)
class Comparison:
    """The same program before (traced) and after (redirected).

    ``requests`` are contiguous accesses to files, ``contiguous`` how many of them start where the previous one ended,
    ``seconds`` what the slowest rank spent in data calls, ``wall`` the seconds from start to end of the whole program.
    """

    requests_before: int
    requests_after: int
    contiguous_before: int
    contiguous_after: int
    bytes_before: int
    bytes_after: int
    bytes_from_replicas: int
    seconds_before: float
    seconds_after: float
    wall_before: float
    wall_after: float
    identical: bool

    @classmethod
    def of(
        cls, before: Trace, after: Trace, served: Served, wall_before: float, wall_after: float, *, identical: bool
    ) -> Comparison:
        """Compare two traced runs; ``served`` says what became of the calls that ``after`` calls redirected."""
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
            seconds_before=first.io_seconds,
            seconds_after=second.io_seconds,
            wall_before=wall_before,
            wall_after=wall_after,
            identical=identical,
        )

    @property
    def speedup(self) -> float:
        """How many times less the slowest rank spent in data calls; 1 where nothing was measured."""
        return self.seconds_before / self.seconds_after if self.seconds_before and self.seconds_after else 1.0

    @property
    def rows(self) -> tuple[Row, ...]:
        """The table of both runs, a row for each of the things measured."""
        return (
            Row(
                "requests that reach files",
                format_count(self.requests_before),
                format_count(self.requests_after),
                _ratio(self.requests_before, self.requests_after, "fewer", "more"),
            ),
            Row(
                "of them contiguous",
                share_text(self.contiguous_before, self.requests_before),
                share_text(self.contiguous_after, self.requests_after),
                "",
            ),
            Row(
                "bytes from replicas",
                format_bytes(0),
                format_bytes(self.bytes_from_replicas),
                f"{share_text(self.bytes_from_replicas, self.bytes_after)} of all",
            ),
            Row(
                "I/O time of the slowest rank",
                format_seconds(self.seconds_before),
                format_seconds(self.seconds_after),
                _ratio(self.seconds_before, self.seconds_after, "faster", "slower"),
            ),
            Row(
                "time from start to end",
                format_seconds(self.wall_before),
                format_seconds(self.wall_after),
                _ratio(self.wall_before, self.wall_after, "faster", "slower"),
            ),
            Row("checksum of all bytes received", "", "identical" if self.identical else "DIFFERENT", ""),
        )

    @property
    def sentence(self) -> str:
        """Whether redirection helped, and where it did not, why that may be."""
        if not self.identical:
            return "The redirected run received other bytes than the first run: do not use these replicas."
        if self.bytes_from_replicas == 0:
            return "Nothing was read from replicas, so nothing could become faster."
        times = f"{format_seconds(self.seconds_before)} before, {format_seconds(self.seconds_after)} after"
        if self.speedup >= FASTER:
            return f"I/O became {self.speedup:.1f}x faster for the slowest rank ({times})."
        verdict = "no faster" if self.speedup > 1 / FASTER else f"{1 / self.speedup:.1f}x slower"
        return (
            f"I/O became {verdict} for the slowest rank ({times}): where a file is in the page cache or on a device "
            "without seek times, the order of its bytes matters little. On disks behind a parallel file system it does."
        )


def _ratio(before: float, after: float, less: str, more: str) -> str:
    """How ``after`` compares with ``before``.

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
