"""The calls of the ranks, from a trace or from signatures, in the form that the core reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from pdla.errors import PdlaError
from pdla.model import Growth, Int64Array, Nest, Signature
from pdla.simulator.core import CALL, CLOSES, DEPTH, ITEM, LOOP, NEST, PART, PATTERN, SYNCS, WRITES, Array
from pdla.traces.trace import Trace

_Floats = npt.NDArray[np.float64]

CLOSE, SYNC = "MPI_File_close", "MPI_File_sync"


@dataclass(frozen=True, eq=False)
class Workload:
    """The calls of ``ranks`` ranks.

    Attributes:
        files: paths, by number; ``sizes``: bytes up to the last byte accessed.
        arrays: the members of struct sim_input that describe the calls.
        bytes: read and written.
    """

    ranks: int
    files: tuple[str, ...]
    sizes: tuple[int, ...]
    arrays: dict[str, Array]
    bytes: tuple[int, int]

    @property
    def closed_again(self) -> set[int]:
        """The numbers of the files that are closed more than once."""
        calls = self.arrays["call"][:-1]
        closes = np.unique(calls[calls["flags"] & CLOSES > 0][["file", "collective"]])
        files, times = np.unique(closes["file"], return_counts=True)
        return set(files[times > 1].tolist())

    def at_once(self) -> Workload:
        """The same calls without the time between them."""
        calls = self.arrays["call"].copy()
        calls["think"] = 0
        return replace(self, arrays={**self.arrays, "call": calls})

    def together(self) -> Workload:
        """The same with all calls collective.

        The k-th calls of all ranks that read (write) a file are joined. In a workload from
        signatures, the calls of all ranks of a signature are joined.
        """
        calls, patterns = self.arrays["call"].copy(), self.arrays["pattern"].copy()
        data = np.flatnonzero(calls["flags"][:-1] & (CLOSES | SYNCS) == 0)
        rank = np.repeat(np.arange(self.ranks), np.diff(self.arrays["first_call"]))[data]
        first = int(calls["collective"].max(initial=-1)) + 1
        number, participants = _matched(rank, calls["file"][data] * 2 + calls["flags"][data] % 2)
        calls["collective"][data], calls["participants"][data] = first + number, participants
        patterns["participants"] = np.bincount(self.arrays["part"]["pattern"], minlength=len(patterns))
        return replace(self, arrays={**self.arrays, "call": calls, "pattern": patterns})


class _Nests:
    """Loop nests, each kept once."""

    def __init__(self) -> None:
        self._loops: list[tuple[int, ...]] = []
        self._nests: list[tuple[int, ...]] = []
        self._known: dict[Nest, int] = {}

    def add(self, nest: Nest) -> int:
        if nest not in self._known:
            if len(nest.loops) > DEPTH:
                raise PdlaError(f"a pattern has {len(nest.loops)} loops, but the simulator takes at most {DEPTH}")
            self._known[nest] = len(self._nests)
            self._nests.append((nest.start, nest.length, len(self._loops), len(nest.loops)))
            self._loops += [(*loop, *_grows(grows)) for loop, grows in nest.levels]
        return self._known[nest]

    def arrays(self) -> dict[str, Array]:
        return {"loop": np.array(self._loops, LOOP), "nest": np.array(self._nests, NEST)}


def _grows(growth: Growth) -> tuple[int, int, int]:
    return growth.stride, growth.length, growth.count


def from_trace(trace: Trace) -> Workload:
    """The calls of a trace, with the recorded times between them.

    All ranks of a file close it together, and each syncs it. The k-th collective calls of the ranks
    on a file belong together.
    """
    calls, items, nests, ends = _calls(trace)
    table = pd.concat([calls, _ending(trace.records, CLOSE), _ending(trace.records, SYNC)], ignore_index=True)
    order = np.lexsort((table["call"], table["rank"]))
    table = table.iloc[order].reset_index(drop=True)
    rank = table["rank"].to_numpy(np.int64)

    begin = table["t_start"].to_numpy(np.float64)
    origin = begin.min(initial=np.inf) if len(begin) else 0.0
    last = np.append(origin, table["t_end"].to_numpy(np.float64)[:-1])
    last[np.flatnonzero(np.diff(rank, prepend=-1))] = origin
    made = np.zeros(len(table) + 1, CALL)
    made["file"][:-1] = table["file"]
    made["flags"][:-1] = table["written"] * WRITES + table["closes"] * CLOSES + table["syncs"] * SYNCS
    made["think"][:-1] = np.maximum(0.0, begin - last)
    made["start"][:-1] = begin - origin
    made["collective"], made["participants"] = -1, 1
    kind = (3 * table["file"] + table["closes"] + 2 * table["syncs"]).to_numpy(np.int64)
    for joined, chosen in ((True, table["collective"]), (False, table["syncs"])):
        these = np.flatnonzero(chosen)
        number, participants = _matched(rank[these], kind[these])
        if joined:
            made["collective"][these], made["participants"][these] = number, participants
        made["think"][these] = _computed(number, begin[these], made["think"][these])

    counts = table["items"].to_numpy(np.int64)
    made["item"] = np.append(0, np.cumsum(counts))
    # Items stay in the order of the calls: closes have none.
    ranks = max(trace.ranks, int(rank.max(initial=-1)) + 1)
    sizes = np.zeros(len(trace.files), np.int64)
    np.maximum.at(sizes, calls["file"].to_numpy(np.int64), ends)
    written = calls["written"].to_numpy(np.bool_)
    length = calls["bytes"].to_numpy(np.int64)
    return Workload(
        ranks,
        tuple(map(str, trace.files["path"])),
        tuple(sizes.tolist()),
        {
            "first_call": np.searchsorted(rank, np.arange(ranks + 1)),
            "call": made,
            "item": items,
            **nests.arrays(),
            **_no_parts(ranks),
        },
        (int(length[~written].sum()), int(length[written].sum())),
    )


def _calls(trace: Trace) -> tuple[pd.DataFrame, Array, _Nests, Int64Array]:
    """The data calls in the order of ranks and calls, with their items, and where each ends in its file."""
    tables, items, ends, nests = [], [np.empty(0, ITEM)], [np.empty(0, np.int64)], _Nests()
    for block in trace.blocks():
        calls = len(block.rank)
        of = np.arange(calls) if block.of is None else block.of
        held = np.empty(len(of), ITEM)
        held["offset"], held["length"], held["form"] = block.offset, block.length, -1
        last, size = block.offset + block.length, block.length.copy()
        nested = np.flatnonzero(block.form >= 0)
        for form, nest in enumerate(block.forms):
            these = nested[block.form[nested] == form]
            held["form"][these] = nests.add(nest._replace(start=0))
            last[these] = block.offset[these] + nest._replace(start=0).extent[1]
            size[these] = nest.bytes
        end, moved = np.zeros(calls, np.int64), np.zeros(calls, np.int64)
        np.maximum.at(end, of, last)
        np.add.at(moved, of, size)
        items.append(held)
        ends.append(end)
        tables.append(
            pd.DataFrame(
                {
                    **{name: getattr(block, name) for name in ("rank", "call", "file", "written", "collective")},
                    **{name: getattr(block, name) for name in ("t_start", "t_end")},
                    "items": np.bincount(of, minlength=calls),
                    "bytes": moved,
                    "closes": False,
                    "syncs": False,
                }
            )
        )
    return pd.concat([_nothing(), *tables], ignore_index=True), np.concatenate(items), nests, np.concatenate(ends)


def _nothing() -> pd.DataFrame:
    kinds = {
        **dict.fromkeys(("rank", "call", "file", "items", "bytes"), "int64"),
        **dict.fromkeys(("written", "collective", "closes", "syncs"), "bool"),
        **dict.fromkeys(("t_start", "t_end"), "float64"),
    }
    return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})


def _ending(records: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The closes or the syncs."""
    calls = records[(records["kind"] == kind) & (records["file"] >= 0)]
    same = {name: calls[name].to_numpy() for name in ("rank", "call", "file", "t_start", "t_end")}
    closes = kind == CLOSE
    more = {"written": True, "collective": closes, "items": 0, "bytes": 0, "closes": closes, "syncs": not closes}
    return pd.DataFrame({**same, **more})


def _matched(rank: Int64Array, kind: npt.NDArray[np.int64]) -> tuple[Int64Array, Int64Array]:
    """The number of the collective call that each of these belongs to, and its number of ranks: the k-th calls of one
    kind of all ranks are one collective call."""
    order = np.lexsort((kind, rank))  # stable, so in the order of each rank
    fresh = np.append(True, (np.diff(rank[order]) != 0) | (np.diff(kind[order]) != 0))[: len(order)]
    heads = np.flatnonzero(fresh)
    turn = np.empty(len(order), np.int64)
    turn[order] = np.arange(len(order)) - np.repeat(heads, np.diff(np.append(heads, len(order))))
    most = np.zeros(kind.max(initial=-1) + 1, np.int64)  # that a rank makes of each kind
    np.maximum.at(most, kind, turn + 1)
    number = (np.cumsum(most) - most)[kind] + turn
    return number, np.bincount(number)[number]


AT_ONCE = 0.1
"""Ranks that begin a collective call within this share of the time between their last calls' ends were waiting for each
other."""


def _computed(number: Int64Array, begin: _Floats, think: _Floats) -> _Floats:
    """What ranks compute before calls that all of them make, in seconds.

    Where all begin a call at once after they ended their last calls at different times, they have met before it, in a
    barrier: only the shortest time is computation. The rest would be another one if the I/O took another time.
    """
    calls = int(number.max(initial=-1)) + 1
    first, last, least, most = np.full(calls, np.inf), np.zeros(calls), np.full(calls, np.inf), np.zeros(calls)
    for ufunc, into, values in (
        (np.minimum, first, begin), (np.maximum, last, begin), (np.minimum, least, think), (np.maximum, most, think)
    ):  # fmt: skip
        ufunc.at(into, number, values)
    met = last - first <= AT_ONCE * (most - least)
    return np.where(met[number], least[number], think)


def _no_parts(ranks: int) -> dict[str, Array]:
    return {
        "pattern": np.empty(0, PATTERN),
        "first_part": np.zeros(ranks + 1, np.int64),
        "part": np.empty(0, PART),
    }


def from_signatures(signatures: Sequence[Signature], ranks: int | None = None) -> Workload:
    """The calls that signatures stand for, one signature after another in the order of time, without pauses.

    They are expanded access by access as the ranks reach them, so that memory does not depend on
    the number of ranks and accesses.

    Raises:
        PdlaError: a signature has more loops than the core takes.
    """
    ordered = sorted(signatures, key=lambda one: one.t_start)
    ranks = ranks or max((max(one.ranks) for one in ordered), default=0) + 1
    files: dict[str, int] = {}
    sizes: dict[int, int] = {}
    nests = _Nests()
    patterns, of_rank, of_pattern, positions = [], [], [], []
    collective = 0
    moved = [0, 0]
    for number, one in enumerate(ordered):
        file = files.setdefault(one.file, len(files))
        sizes[file] = max(sizes.get(file, 0), one.extent[1])
        members = len(one.ranks)
        calls = max(one.calls, members) if one.calls else one.requests
        pieces = max(1, -(-one.requests // calls))
        taking_part = members if one.collective else 1
        patterns.append(
            (file, (one.op == "write") * WRITES, nests.add(one.nest), one.rank_loops, pieces, collective, taking_part)
        )
        collective += one.requests
        moved[one.op == "write"] += one.bytes
        of_rank.append(np.array(one.ranks, np.int64))
        of_pattern.append(np.full(members, number))
        positions.append(np.arange(members))
    rank = np.concatenate([np.empty(0, np.int64), *of_rank])
    order = np.argsort(rank, kind="stable")
    part = np.empty(len(rank), PART)
    part["pattern"] = np.concatenate([np.empty(0, np.int64), *of_pattern])[order]
    part["position"] = np.concatenate([np.empty(0, np.int64), *positions])[order]
    return Workload(
        ranks,
        tuple(files),
        tuple(sizes[file] for file in files.values()),
        {
            "first_call": np.zeros(ranks + 1, np.int64),
            "call": np.zeros(1, CALL),
            "item": np.empty(0, ITEM),
            **nests.arrays(),
            "pattern": np.array(patterns, PATTERN),
            "first_part": np.searchsorted(rank[order], np.arange(ranks + 1)),
            "part": part,
        },
        (moved[0], moved[1]),
    )
