"""The five aspects of an access pattern (PDLA 3.2.2), with its dependences and its phases: `describe`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pdla.analyzers.analysis import Analysis
from pdla.analyzers.dependence import DEPENDENCES, RAW, WAR, loop_dependences, pattern_dependences
from pdla.analyzers.phases import Phases, find_phases
from pdla.model import STILL, Int64Array, Signature
from pdla.traces.trace import Trace
from pdla.units import KiB, format_seconds

SMALL, LARGE = 16 * KiB, 128 * KiB
"""Smaller requests are small, others large. PDLA sets no limit: several KB are small, hundreds of KB large (5.2.4)."""

TOLERANCE = 0.1
"""Calls are periodic if the standard deviation of the time between them is at most this part of the mean."""

Spatial = Literal["single", "contiguous", "strided", "backwards", "nested", "variable", "triangular"]
Size = Literal["small", "medium", "large"]
Operation = Literal["read-only", "write-only", "read-write"]


@dataclass(frozen=True)
class Aspects:
    """The properties of a signature, in words and a few numbers.

    Attributes:
        spatial: where one rank's accesses are, without repetitions; ``variable``: steps or sizes
            change linearly, ``triangular``: inner counts do.
        size: of the requests, on average.
        temporal: the time from a rank's call to its next; ``once``: no rank makes more than two
            calls.
        period: seconds from call to call, if that is fixed; otherwise 0.
        repetition: whether a rank accesses the same bytes more than once.
        operation: what is done to the bytes, also by other patterns.
        dependences: those with itself or others, as the earlier or the later one (DEPENDENCES).
        phases: the first and the last phase of its file in which it occurs (pdla.analyzers.phases).

    If a trace is too large to look at each call, ``temporal``, ``period`` and ``phases`` are None.
    So are ``operation`` and ``dependences`` of a signature if its loops do not determine them.
    """

    spatial: Spatial
    size: Size
    temporal: Literal["fixed", "random", "once"] | None
    period: float | None
    repetition: Literal["repeated", "once"]
    operation: Operation | None
    dependences: tuple[str, ...] | None
    phases: tuple[int, int] | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Aspects:
        """The inverse of ``to_json``."""
        plain: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in value.items()}
        return cls(**plain)

    def __str__(self) -> str:
        """The aspects in words: ``strided, small, every 2 ms, read-only``."""
        words: list[str] = [self.spatial, self.size]
        words += [f"every {format_seconds(self.period)}"] if self.temporal == "fixed" and self.period else []
        words += ["repeated"] if self.repetition == "repeated" else []
        words += [self.operation] if self.operation else []
        return ", ".join([*words, *(self.dependences or ())])


def describe(trace: Trace, analysis: Analysis, phases: Phases | None = None) -> tuple[Aspects, ...]:
    """The aspects of each signature of ``analysis``; analysis and phases (None: found here) are those of this trace."""
    phases = phases or find_phases(trace)
    accesses = trace.accesses()
    owned = np.flatnonzero(analysis.owner >= 0)
    rows = owned[np.argsort(analysis.owner[owned], kind="stable")]
    if not len(rows):
        return ()
    owner = analysis.owner[rows]
    heads = np.flatnonzero(np.diff(owner, prepend=-1))
    part_of = pattern_dependences(analysis, accesses)
    call_begins = np.append(True, (np.diff(accesses["rank"]) != 0) | (np.diff(accesses["call"]) != 0))
    phase = phases.of_call[np.cumsum(call_begins) - 1][rows]
    first, last = np.minimum.reduceat(phase, heads).tolist(), np.maximum.reduceat(phase, heads).tolist()
    rank, call, start = (accesses[name].to_numpy()[rows] for name in ("rank", "call", "t_start"))
    periods = _periods(rank, call, start, owner)
    return tuple(
        Aspects(
            spatial=_spatial(signature),
            size=_size(signature.bytes // signature.requests),
            temporal="once" if period is None else "fixed" if period else "random",
            period=period or 0.0,
            repetition="repeated" if signature.repeats > 1 else "once",
            operation=_operation(signature, flags),
            dependences=_names(flags),
            phases=within,
        )
        for signature, period, flags, within in zip(
            analysis.signatures, periods, part_of, zip(first, last, strict=True), strict=True
        )
    )


def outline(analysis: Analysis) -> tuple[Aspects, ...]:
    """The aspects of each signature of ``analysis``, as far as they do not need the single calls."""
    flags, unknown = loop_dependences(analysis)
    return tuple(
        Aspects(
            spatial=_spatial(signature),
            size=_size(signature.bytes // signature.requests),
            temporal=None,
            period=None,
            repetition="repeated" if signature.repeats > 1 else "once",
            operation=None if unknown[number] else _operation(signature, flags[number]),
            dependences=None if unknown[number] else _names(flags[number]),
            phases=None,
        )
        for number, signature in enumerate(analysis.signatures)
    )


def _operation(signature: Signature, flags: int) -> Operation:
    return "read-write" if flags & (RAW | WAR) else "read-only" if signature.op == "read" else "write-only"


def _names(flags: int) -> tuple[str, ...]:
    return tuple(name for flag, name in DEPENDENCES.items() if flags & flag)


def _size(length: int) -> Size:
    return "small" if length < SMALL else "medium" if length < LARGE else "large"


def _spatial(signature: Signature) -> Spatial:
    growth = signature.growth[signature.rank_loops :]
    if any(grows.count for grows in growth):
        return "triangular"
    if any(grows != STILL for grows in growth):
        return "variable"
    strides = [loop.stride for loop in signature.loops[signature.rank_loops :] if loop.stride]
    if len(strides) > 1:
        return "nested"
    if not strides:
        return "single"
    (stride,) = strides
    return "backwards" if stride < 0 else "contiguous" if stride == signature.length else "strided"


def _periods(
    rank: Int64Array, call: Int64Array, start: npt.NDArray[np.float64], owner: Int64Array
) -> list[float | None]:
    """For each owner the seconds from a rank's call to its next; 0 if they vary, None if no rank has two calls.

    The accesses must be sorted by owner, rank and call.
    """
    fresh = np.flatnonzero(np.append(True, (np.diff(owner) != 0) | (np.diff(rank) != 0) | (np.diff(call) != 0)))
    owner, rank = owner[fresh], rank[fresh]
    wait = np.diff(start[fresh])
    inside = (np.diff(owner) == 0) & (np.diff(rank) == 0)
    twice = np.zeros_like(inside)
    twice[1:] = inside[1:] & inside[:-1]
    total = int(owner[-1]) + 1
    number = np.bincount(owner[1:][inside], minlength=total)
    mean = np.bincount(owner[1:][inside], wait[inside], total) / np.maximum(number, 1)
    spread = np.bincount(owner[1:][inside], (wait[inside] - mean[owner[1:][inside]]) ** 2, total) / np.maximum(
        number, 1
    )
    fixed = (mean > 0) & (np.sqrt(spread) <= TOLERANCE * mean)
    often = np.bincount(owner[1:][twice], minlength=total) > 0
    return [
        (round(value, 9) if is_fixed else 0.0) if is_often else None
        for value, is_fixed, is_often in zip(mean.tolist(), fixed.tolist(), often.tolist(), strict=True)
    ]
