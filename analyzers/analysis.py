"""From a trace to its I/O signatures (`analyze`), and the answer as JSON (`to_json`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pdla.analyzers.description_length import deserving
from pdla.analyzers.global_patterns import GlobalPattern, find_global
from pdla.analyzers.local_patterns import OPS, LocalPatterns, find_local, together
from pdla.analyzers.pattern_items import Ancestry
from pdla.analyzers.uneven_loops import uneven
from pdla.model import Growth, Int64Array, Op, Signature
from pdla.traces.trace import Source

MEMBERS = 64
"""Number of members of a global signature that its JSON lists; the others follow from its loops."""

PHASES = 1000
"""Number of phases that the JSON lists."""


def _no_accesses() -> Int64Array:
    return np.empty(0, np.int64)


class Share(NamedTuple):
    """Parts of a whole, from 0 to 1."""

    requests: float
    bytes: float


@dataclass(frozen=True, eq=False)
class Irregular:
    """Accesses of one rank to a file that no template matches.

    ``requests`` are contiguous accesses. All of them are in the half-open range ``extent`` of the
    file.
    """

    rank: int
    file: str
    op: Op
    collective: bool
    requests: int
    bytes: int
    extent: tuple[int, int]


@dataclass(frozen=True)
class Analysis:
    """The signatures of a trace: global ones, most bytes first, then local ones that belong to none; and the rest.

    Every access of the trace is in exactly one of ``signatures`` and ``irregular``. ``requests``
    (contiguous accesses) and ``bytes`` are those of the whole trace. ``owner`` is the number of the
    signature of each access, -1 for irregular ones; it is computed when it is first used.
    """

    signatures: tuple[Signature, ...]
    irregular: tuple[Irregular, ...]
    requests: int
    bytes: int
    find_owner: Callable[[], Int64Array] = field(default=_no_accesses, repr=False, compare=False)

    @cached_property
    def owner(self) -> Int64Array:
        """See the class."""
        return self.find_owner()

    @cached_property
    def coverage(self) -> Share:
        """The part of the trace that the signatures stand for; 1 for an empty trace."""
        return self._share(
            sum(signature.requests for signature in self.signatures),
            sum(signature.bytes for signature in self.signatures),
        )

    def share(self, part: Signature | Irregular) -> Share:
        """The part's share of the whole trace."""
        return self._share(part.requests, part.bytes)

    def _share(self, requests: int, size: int) -> Share:
        return Share(requests / self.requests, size / self.bytes) if self.requests else Share(1.0, 1.0)


def analyze(source: Source) -> Analysis:
    """The local and global I/O signatures of a trace. Their expansions are exactly the accesses of the trace."""
    return combine(find_local(source.blocks()), source)


def combine(local: LocalPatterns, source: Source) -> Analysis:
    """The signatures that the local patterns of a source make up."""
    paths = {int(file): str(path) for file, path in zip(source.files["file"], source.files["path"], strict=True)}
    together, rest = find_global(local)
    cuts = uneven(local, together, rest)
    if cuts is not None:  # only the accesses themselves say which calls the parts have, and when
        local = find_local(source.blocks(), cuts=cuts)
        together, rest = find_global(local)

    good, good_rows = deserving(local, together, rest)
    several = [_Found(_global_signature(one, local, paths), one.members) for one in compress(together, good)]
    signatures = _local_signatures(local, rest[good_rows], paths)
    alone = [_Found(one, row) for one, row in zip(signatures, rest[good_rows, None], strict=True)]
    found = [*sorted(several, key=_place), *sorted(alone, key=_place)]
    bad = np.concatenate([rest[~good_rows], *(one.members for one in compress(together, ~good))])
    irregular = _irregular(pd.concat((local.strays, local.left(bad))), paths)
    parts: list[Signature | Irregular] = [*(one.signature for one in found), *irregular]
    return Analysis(
        tuple(one.signature for one in found),
        irregular,
        sum(part.requests for part in parts),
        sum(part.bytes for part in parts),
        partial(_owner, found, local, source),
    )


class _Found(NamedTuple):
    """A signature, and the rows of the patterns that it consists of."""

    signature: Signature
    rows: Int64Array


def _place(found: _Found) -> tuple[int, str, Op, int, int, float]:
    one = found.signature
    return -one.bytes, one.file, one.op, one.start, one.ranks[0], one.t_start


def _owner(found: Sequence[_Found], local: LocalPatterns, source: Source) -> Int64Array:
    """The number of the signature of each access, or -1: finds the local patterns again, with owners."""
    ancestry = Ancestry()
    again = find_local(source.blocks(), ancestry)
    places = ancestry.owners()
    if again.table.empty:
        return np.full(len(places), -1, np.int64)
    whole_of = np.full(ancestry.known, -1, np.int64)
    whole_of[again.column("place")] = np.arange(len(again.table))
    whole = whole_of[places]
    signature = np.full(len(local.table), -1, np.int64)
    for number, one in enumerate(found):
        signature[one.rows] = number
    # The parts of a nest have its accesses in turns.
    order = np.argsort(whole, kind="stable")
    before = np.empty_like(order)
    before[order] = np.arange(len(whole)) - np.searchsorted(whole[order], whole[order])
    first = np.searchsorted(local.column("whole"), whole)
    part = before // local.column("turn")[first] % np.bincount(local.column("whole"))[whole]
    owner: Int64Array = signature[first + part]
    return np.where(whole < 0, -1, owner)


def to_json(
    analysis: Analysis, aspects: Sequence[Mapping[str, Any]], phases: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The answer of ``pdla analyze --json`` (docs/json.md); ``aspects`` has those of each signature."""
    return {
        "signatures": [
            {
                **_signature_json(analysis, signature),
                "aspects": of_signature,
                "members": [_signature_json(analysis, member) for member in signature.members[:MEMBERS]],
                "members_left_out": max(0, len(signature.members) - MEMBERS),
            }
            for signature, of_signature in zip(analysis.signatures, aspects, strict=True)
        ],
        "irregular": [
            {
                "file": part.file,
                "op": part.op,
                "collective": part.collective,
                "rank": part.rank,
                "requests": part.requests,
                "bytes": part.bytes,
                "share": analysis.share(part)._asdict(),
            }
            for part in analysis.irregular
        ],
        "phases": list(phases[:PHASES]),
        "phases_left_out": max(0, len(phases) - PHASES),
        "coverage": analysis.coverage._asdict(),
    }


def shape_json(signature: Signature) -> dict[str, Any]:
    """The properties of a signature that do not depend on the run, as plain values."""
    return {
        "scope": signature.scope,
        "file": signature.file,
        "op": signature.op,
        "collective": signature.collective,
        "ranks": list(signature.ranks),
        "start": signature.start,
        "length": signature.length,
        "loops": [list(loop) for loop in signature.loops],
        "growth": [list(grows) for grows in signature.growth],
        "rank_loops": signature.rank_loops,
        "requests": signature.requests,
        "bytes": signature.bytes,
        "notation": str(signature),
    }


def _signature_json(analysis: Analysis, signature: Signature) -> dict[str, Any]:
    return {
        **shape_json(signature),
        "calls": signature.calls,
        "repeats": signature.repeats,
        "share": analysis.share(signature)._asdict(),
    }


def _local_signatures(local: LocalPatterns, rows: Int64Array, paths: Mapping[int, str]) -> tuple[Signature, ...]:
    nests = {shape: local.shapes.nest(0, shape) for shape in np.unique(local.column("shape")[rows]).tolist()}
    names = ("file", "op", "collective", "start", "shape", "rank", "calls", "t_start", "t_end")
    return tuple(
        Signature(
            file=paths[file],
            op=OPS[op],
            collective=bool(collective),
            start=start,
            length=nests[shape].length,
            loops=nests[shape].loops,
            ranks=(rank,),
            calls=calls,
            t_start=t_start,
            t_end=t_end,
            growth=nests[shape].growth,
        )
        for file, op, collective, start, shape, rank, calls, t_start, t_end in zip(
            *(local.table[name].to_numpy()[rows].tolist() for name in names), strict=True
        )
    )


def _global_signature(pattern: GlobalPattern, local: LocalPatterns, paths: Mapping[int, str]) -> Signature:
    members = _local_signatures(local, pattern.members, paths)
    over = pattern.ranks
    growth: tuple[Growth, ...] = ()
    if over.growth or members[0].growth:
        growth = tuple(grows for nest in (over, members[0].nest) for _, grows in nest.levels)
    return replace(
        members[0],
        start=over.start,
        loops=(*over.loops, *members[0].loops),
        growth=growth,
        ranks=tuple(member.ranks[0] for member in members),
        rank_loops=len(over.loops),
        calls=sum(member.calls for member in members),
        t_start=min(member.t_start for member in members),
        t_end=max(member.t_end for member in members),
        members=members,
    )


def _irregular(left: pd.DataFrame, paths: Mapping[int, str]) -> tuple[Irregular, ...]:
    """The accesses of each sequence that are in no pattern (the columns of LocalPatterns.strays)."""
    return tuple(
        Irregular(
            int(rank),
            paths[int(stream) // 4],
            OPS[int(stream) // 2 % 2],
            bool(stream % 2),
            int(requests),
            int(size),
            (int(low), int(high)),
        )
        for rank, stream, _, requests, size, low, high in together(left).itertuples(index=False)
    )
