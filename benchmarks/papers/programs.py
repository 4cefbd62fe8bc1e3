"""What the papers' benchmarks access: signatures if their loops say everything, otherwise generated traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from pdla.analyzers.analysis import Analysis, analyze
from pdla.analyzers.dependence import write_dependences
from pdla.analyzers.phases import write_phases
from pdla.collectors import workloads
from pdla.model import Loop, Op, Signature
from pdla.policies.plan import RedirectedWrites
from pdla.traces.trace import Trace
from pdla.units import GiB, KiB, MiB

UNITS = {"K": KiB, "M": MiB, "G": GiB}
STEP = workloads.CALL_NS / 1e9


@dataclass(frozen=True)
class Program:
    """Signatures, each rank's in their order; or a trace."""

    ranks: int
    signatures: tuple[Signature, ...] = ()
    trace: Trace | None = None

    @cached_property
    def analyzed(self) -> tuple[Analysis, RedirectedWrites]:
        """What the analyzer finds in the trace of its calls, and what plans with a lease must know about its writes."""
        trace = self.trace or workloads.of_signatures(self.signatures)
        analysis = analyze(trace)
        return analysis, RedirectedWrites(write_dependences(analysis, trace), write_phases(trace))

    @property
    def bytes(self) -> int:
        """The bytes that it accesses; bytes that are accessed twice count twice."""
        if self.trace is None:
            return sum(signature.bytes for signature in self.signatures)
        return self.bytes_of(None)

    def bytes_of(self, file: int | None) -> int:
        """For a trace: the bytes accessed of one file, or of all files."""
        assert self.trace is not None
        records = self.trace.records
        counted = (records["op"] != "other") & ((records["file"] == file) | (file is None))
        return int(records["length"][counted].sum())


def program(name: str, parameters: Mapping[str, Any], op: Op) -> Program:
    """The program of an experiment; sizes may be texts such as "64K"."""
    return PROGRAMS[name](op, {key: size(value) for key, value in parameters.items()})


def size(value: Any) -> Any:
    """Bytes of a text such as "64K"; other values are returned unchanged.

    >>> size("64K"), size(16), size("none")
    (65536, 16, 'none')
    """
    if isinstance(value, str) and value[:-1].isdigit() and value[-1] in UNITS:
        return int(value[:-1]) * UNITS[value[-1]]
    return value


def _global(
    op: Op, ranks: int, rank_loops: Sequence[Loop], calls: Sequence[Loop], request: int, start: int = 0
) -> Signature:
    """A signature of all ranks in which every request is a call."""
    loops = (*rank_loops, *calls)
    count = int(np.prod([loop.count for loop in loops]))
    return Signature("/papers/file", op, False, start, request, loops, tuple(range(ranks)), len(rank_loops), count)


def strided(op: Op, table: Mapping[str, Any]) -> Program:
    """IOR as PDLA 5.1.1 has it: a region for each rank, in it one request in ``step``."""
    ranks, request, step = table["processes"], table["request"], table["step"]
    calls = table["bytes_each"] // request
    region = Loop(calls * step * request, ranks)
    return Program(ranks, (_global(op, ranks, [region], [Loop(step * request, calls)], request),))


def in_rounds(one: Program) -> Program:
    """The same requests to replicas in which requests that the ranks make at the same time are adjacent."""
    made = []
    for number, signature in enumerate(one.signatures):
        ranks, request = len(signature.ranks), signature.length
        calls = signature.requests // ranks
        placed = _global(signature.op, ranks, [Loop(request, ranks)], [Loop(ranks * request, calls)], request)
        made.append(replace(placed, file=f"/papers/replica.{number}"))
    return replace(one, signatures=tuple(made))


def mixed(op: Op, table: Mapping[str, Any]) -> Program:
    """IOR as PDLA 5.2.1 has it: three parts of the file, each with requests of its own size, in each as ``strided``."""
    ranks, step, start, parts = table["processes"], table["step"], 0, []
    share = table["bytes_each"] // len(table["requests"])
    for request in map(size, table["requests"]):
        calls = share // request
        region = Loop(calls * step * request, ranks)
        parts.append(_global(op, ranks, [region], [Loop(step * request, calls)], request, start))
        start += region.stride * ranks
    return Program(ranks, tuple(parts))


def nested(op: Op, table: Mapping[str, Any]) -> Program:
    """PIO-Bench, nested strided: groups of ``group`` rounds in which all ranks alternate, with equally long gaps."""
    ranks, request, group = table["processes"], table["request"], table["group"]
    calls = table["bytes_each"] // request
    round_bytes = ranks * request
    loops = [Loop(2 * group * round_bytes, calls // group), Loop(round_bytes, group)]
    return Program(ranks, (_global(op, ranks, [Loop(request, ranks)], loops, request),))


def tiles(op: Op, table: Mapping[str, Any]) -> Program:
    """MPI-Tile-IO: a square of tiles, one for each rank; a request is a row of a tile."""
    ranks, request = table["processes"], table["request"]
    side = round(ranks**0.5)
    rows = table["bytes_each"] // request
    row = side * request
    return Program(
        ranks, (_global(op, ranks, [Loop(rows * row, side), Loop(request, side)], [Loop(row, rows)], request),)
    )


def app2(op: Op, table: Mapping[str, Any]) -> Program:
    """LANL App 2 as PDLA 5.2.4 describes it, with the generator's sizes."""
    ranks = table["processes"]
    return Program(ranks, trace=workloads.lanl_app2_like(ranks, table["requests_each"], op=op))


def segmented(op: Op, table: Mapping[str, Any]) -> Program:
    """IOR, each rank's part of a shared file in order, or at random (``order``)."""
    return Program(table["processes"], trace=_segments(op, table, table["order"] == "random"))


def _segments(op: Op, table: Mapping[str, Any], at_random: bool, seed: int = 0) -> Trace:
    ranks, request = table["processes"], table["request"]
    block = max(1, table["bytes_all"] // ranks // request) * request
    return workloads.ior(ranks, block, request, operations=(op,), random_offset=at_random, seed=seed)


def instances(op: Op, table: Mapping[str, Any]) -> Program:
    """S4D-Cache V.B: runs of IOR on a file each, one after the other, sequential (s) or at random (r)."""
    runs = [_segments(op, table, kind == "r", seed) for seed, kind in enumerate(table["runs"])]
    return Program(table["processes"], trace=after(runs))


def hpio(op: Op, table: Mapping[str, Any]) -> Program:
    """HPIO: the ranks' regions alternate, each followed by a gap; a call takes all of a rank's, region by region."""
    one = workloads.hpio(table["processes"], table["regions"], table["region"], table["spacing"], op, collective=False)
    return Program(table["processes"], trace=one)


def elements(op: Op, table: Mapping[str, Any]) -> Program:
    """S4D-Cache V.D: tiles of 10 x 10 elements of 32 KB, one for each rank; a request is a row of a tile."""
    side = round(table["processes"] ** 0.5)
    return Program(table["processes"], trace=workloads.pio_tiled((side, side), 320 * KiB, 10, 1, op))


def micro(op: Op, table: Mapping[str, Any]) -> Program:
    """LiU III-A's benchmarks: alternating requests of 64 KiB, or a part of the file for each rank; or rows of tiles."""
    ranks, piece = table["processes"], 64 * KiB
    calls = size(table["bytes_read" if op == "read" else "bytes_written"][table["benchmark"]]) // ranks // piece
    if table["benchmark"] == "mpi-tile-io":
        # 64 B an element, 16 of them shared with each neighbour; 7 x 2 tiles of rows of `row` bytes are not stated.
        row = table["row"] // 64
        return Program(ranks, trace=workloads.mpi_tile_io(7, 2, row, calls * 1024 // row, 64, 16, 16, op=op))
    if table["benchmark"] == "mpi-io-test":
        return Program(ranks, trace=_with_barriers(workloads.pio_simple_strided(ranks, piece, calls, op)))
    return Program(ranks, trace=workloads.pio_segmented(ranks, piece, calls, op))


def _with_barriers(one: Trace) -> Trace:
    """A call begins when all ranks have reached it (III-A: "a barrier is used to synchronize each iteration")."""
    return replace(one, records=one.records.assign(collective=True))


def interfered(op: Op, table: Mapping[str, Any]) -> Program:
    """LiU III-D: mpi-io-test, together with a program of as many ranks on a file of its own, which ends later."""
    first = micro(op, {**table, "benchmark": "mpi-io-test"})
    if table["beside"] == "none" or first.trace is None:
        return first
    twice = dict.fromkeys(table["bytes_read"], 2 * size(table["bytes_read"]["mpi-io-test"]))
    other = micro(op, {**table, "benchmark": table["beside"], "bytes_read": twice})
    assert other.trace is not None
    return replace(first, ranks=2 * first.ranks, trace=_beside(first.trace, other.trace))


def _beside(one: Trace, other: Trace) -> Trace:
    """Both programs at once, on files of their own."""
    ranks, files = one.ranks, len(one.files)
    moved = other.records.assign(rank=other.records["rank"] + ranks, file=other.records["file"] + files)
    paths = other.files.assign(file=other.files["file"] + files, path=other.files["path"] + ".beside")
    return replace(
        one,
        ranks=ranks + other.ranks,
        records=pd.concat([one.records, moved], ignore_index=True),
        files=pd.concat([one.files, paths], ignore_index=True),
    )


def btio(op: Op, table: Mapping[str, Any]) -> Program:
    """BTIO, subtype simple: a call for each row of a rank's block, in ``steps`` of the 40 output steps.

    The grid is of squares of processes; points are rounded to a multiple of it (B: 102, C: 162 a side).
    """
    points, side = {"B": 102, "C": 162}[table["grid"][0]], round(int(table["grid"][1:]) ** 0.5)
    points = round(points / side) * side
    trace = workloads.btio((1, side, side), (points, points, points), table["steps"], "simple", op)
    return Program(side * side, trace=trace)


def unaligned(op: Op, table: Mapping[str, Any]) -> Program:
    """mpi-io-test or ior-mpi-io with requests that are not multiples of the strip."""
    ranks, request = table["processes"], table["request"]
    make = workloads.pio_simple_strided if table["turns"] else workloads.pio_segmented
    return Program(ranks, trace=make(ranks, request, table["bytes_all"] // ranks // request, op))


def coll_perf(op: Op, table: Mapping[str, Any]) -> Program:
    """E10 IV-B: a block of 64 MiB per rank in a three-dimensional array; its rows have ``row`` bytes. One file."""
    side = round(table["processes"] ** (1 / 3))
    rows = round((64 * MiB / table["row"]) ** 0.5)
    one = workloads.coll_perf((side,) * 3, (side * rows, side * rows, side * table["row"] // 4))
    phase = (one.records["kind"] == "MPI_File_open").groupby(one.records["rank"]).cumsum()
    return Program(table["processes"], trace=replace(one, records=one.records[phase == (1 if op == "write" else 2)]))


def flash(op: Op, table: Mapping[str, Any]) -> Program:
    """E10 IV-C: the checkpoint of Flash-IO with 16 zones a side, without the two plot files."""
    one = workloads.flash_io(table["processes"], 16, 16, 16)
    return Program(
        table["processes"], trace=replace(one, records=one.records[one.records["file"] == 0], files=one.files[:1])
    )


def segments(op: Op, table: Mapping[str, Any]) -> Program:
    """E10 IV-D: IOR, collective, 8 segments of a block of 8 MiB. One file."""
    one = workloads.ior(table["processes"], 8 * MiB, 8 * MiB, 8, (op,), collective=True)
    return Program(table["processes"], trace=one)


def after(runs: Sequence[Trace]) -> Trace:
    """Runs of the same ranks, one after the other, each on files of its own."""
    records, files, end, known, calls = [], [], 0.0, 0, 0
    for number, run in enumerate(runs):
        records.append(_later(run.records, calls, end).assign(file=run.records["file"] + known))
        files.append(run.files.assign(file=run.files["file"] + known, path=run.files["path"] + f".{number}"))
        known += len(run.files)
        end, calls = float(records[-1]["t_end"].max()), int(records[-1]["call"].max()) + 1
    return replace(runs[0], records=_in_order(records), files=pd.concat(files, ignore_index=True))


def again(run: Trace, times: int, pause: float) -> Trace:
    """A run ``times`` times, on the same files. At the end of each, all ranks close one more file, and then pause."""
    records, end, calls = [], 0.0, 0
    for _ in range(times):
        one = _later(run.records, calls, end)
        end, calls = float(one["t_end"].max()), int(one["call"].max()) + 1
        closes = one[one["kind"] == "MPI_File_close"].drop_duplicates("rank")
        records += [one, closes.assign(file=len(run.files), call=calls, t_start=end, t_end=end)]
        end, calls = end + pause, calls + 1
    extra = run.files[:1].assign(file=len(run.files), path="/papers/all")
    return replace(run, records=_in_order(records), files=pd.concat([run.files, extra], ignore_index=True))


def _later(records: pd.DataFrame, calls: int, seconds: float) -> pd.DataFrame:
    begin, end = records["t_start"] + seconds, records["t_end"] + seconds
    return records.assign(call=records["call"] + calls, t_start=begin, t_end=end)


def _in_order(records: Sequence[pd.DataFrame]) -> pd.DataFrame:
    together = pd.concat(records, ignore_index=True)
    return together.sort_values(["rank", "call"], kind="stable", ignore_index=True)


PROGRAMS: Mapping[str, Callable[[Op, Mapping[str, Any]], Program]] = {
    "strided": strided,
    "mixed": mixed,
    "nested": nested,
    "tiles": tiles,
    "app2": app2,
    "segmented": segmented,
    "instances": instances,
    "hpio": hpio,
    "elements": elements,
    "micro": micro,
    "interfered": interfered,
    "btio": btio,
    "unaligned": unaligned,
    "coll_perf": coll_perf,
    "flash": flash,
    "segments": segments,
}
