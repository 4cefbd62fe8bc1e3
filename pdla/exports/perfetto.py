"""Chrome's trace events (JSON) for Perfetto: a process for each rank, a track for MPI-IO and one for POSIX."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from pdla.analyzers.aspects import LARGE, SMALL
from pdla.collectors.tracefile import StoredTrace
from pdla.exports.aggregators import Requests
from pdla.exports.calls import Columns, are_placed, ends, extent_counts, only, span
from pdla.exports.output import names_of, text_file
from pdla.exports.tracks import LEVELS, MPI_IO, POSIX, Tracks, on_tracks
from pdla.report.raster import spread
from pdla.traces.file_views import Tilings
from pdla.traces.tables import OPS
from pdla.units import shown

MOMENTS = 1000  # values of each counter
_TRUTH, _SIZES = ("false", "true"), ("small", "medium", "large")
_CALL = '{"ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"name":%s,"cat":"%s","args":{"call":%d,"file":%s'
_REQUEST = _CALL + ',"offset":%d,"length":%d,"error":%d}},\n'
_ACCESS = (
    _CALL + ',"offset":%d,"length":%d,"requested":%d,"extents":%d,"view":%d,"position":%d,"collective":%s,"size":"%s",'
    '"redirected":%s,"error":%d}},\n'
)
_OTHER = _CALL + ',"position":%d,"error":%d}},\n'
_ARROW = ',"name":"collective","cat":"collective","id":%d,"pid":%d,"tid":%d,"ts":%.3f},\n'
_ARROW_STARTS, _ARROW_ENDS = '{"ph":"s"' + _ARROW, '{"ph":"f","bp":"e"' + _ARROW


def export_perfetto(trace: StoredTrace, output: Path) -> int:
    """Write the calls as slices, arrows from collective calls to the requests of their aggregators, and counters.

    Times are in microseconds since the first rank's MPI_Init, with three digits after the point.
    Returns the number of calls. Memory holds a block of calls; with POSIX calls also 8 bytes for
    each MPI call, and 56 for each collective call of a rank that made requests in it.

    Raises:
        PdlaError: the file cannot be written.
        FormatError: the trace is cut short or damaged.
    """
    with text_file(output) as file:
        _Writer(file, trace).write()
    return trace.rows + (trace.posix.rows if trace.posix else 0)


class _Writer:
    def __init__(self, file: TextIO, trace: StoredTrace) -> None:
        self._file, self._trace = file, trace
        self._ranks = trace.about.ranks
        self._paths = [json.dumps(path) for path in names_of(trace.files)]
        self._arrows = count(1)
        start, stop = span(trace)
        self._span = start, max(stop, start + 1e-6)
        self._moved = np.zeros((len(LEVELS), 2, MOMENTS))

    def write(self) -> None:
        about = self._trace.about
        facts = {"command": shown(about.command), "mpi": about.mpi, "hosts": about.hosts, "notes": about.notes}
        self._file.write(f'{{"displayTimeUnit":"ns","otherData":{json.dumps(facts)},"traceEvents":[\n')
        tracks = self._tracks(MPI_IO), self._tracks(POSIX)
        self._write_calls(tracks[MPI_IO])
        self._write_requests(tracks[POSIX])
        self._write_counters()
        self._write_names(tracks)
        self._file.write("]}\n")

    def _tracks(self, level: int) -> Tracks:
        return Tracks(level, self._ranks + 1)  # the counters are a process of their own

    def _write_calls(self, tracks: Tracks) -> None:
        kinds, shapes = [json.dumps(kind) for kind in self._trace.records.kinds], Tilings.of(self._trace.views)
        requests = Requests.of(self._trace, self._tracks(POSIX))
        names = ("call", "kind", "file", "op", "offset", "length", "error", "collective", "requested")
        row = 0
        for block in on_tracks(self._trace.records, tracks, *names, "view", "position", "redirected"):
            self._add_bytes(MPI_IO, block)
            placed = are_placed(block)
            block["extents"] = np.zeros(len(placed), np.int64)
            block["extents"][placed] = extent_counts(shapes, only(block, placed))
            data, other = only(block, block["op"] < 2), only(block, block["op"] >= 2)
            size = np.searchsorted([SMALL, LARGE], data["length"], side="right")
            numbers = ("offset", "length", "requested", "extents", "view", "position")
            self._write_events(
                _ACCESS,
                *(*self._call(data, kinds), *(data[name] for name in numbers), _named(data["collective"], _TRUTH)),
                *(_named(size, _SIZES), _named(data["redirected"], _TRUTH), data["error"]),
            )
            self._write_events(_OTHER, *self._call(other, kinds), other["position"], other["error"])
            block["row"] = row + np.arange(len(placed))
            row += len(placed)
            if self._trace.posix:
                self._write_arrows(only(block, placed & block["collective"]), requests)

    def _write_arrows(self, calls: Columns, requests: Requests) -> None:
        """RATIONALE: Perfetto wants the event of a start behind that of its call, and an end inside its call."""
        arrows = requests.arrows(calls, ends(self._trace, calls))
        numbers = [next(self._arrows) for _ in arrows.call]
        start = (calls[name][arrows.call] for name in ("rank", "track", "start"))
        self._write_events(_ARROW_STARTS, numbers, *_in_microseconds(*start))
        self._write_events(_ARROW_ENDS, numbers, *_in_microseconds(arrows.rank, arrows.track, arrows.middle))

    def _write_requests(self, tracks: Tracks) -> None:
        if self._trace.posix:
            kinds = [json.dumps(kind) for kind in self._trace.posix.kinds]
            names = ("call", "kind", "file", "op", "offset", "length", "error")
            for block in on_tracks(self._trace.posix, tracks, *names):
                self._add_bytes(POSIX, block)
                numbers = (block[name] for name in ("offset", "length", "error"))
                self._write_events(_REQUEST, *self._call(block, kinds), *numbers)

    def _call(self, block: Columns, kinds: Sequence[str]) -> Iterator[Iterable[Any]]:
        """The columns of _CALL."""
        yield from _in_microseconds(block["rank"], block["track"], block["start"], block["end"] - block["start"])
        yield from (_named(block["kind"], kinds), _named(block["op"], OPS))
        yield from (block["call"], _named(block["file"], self._paths))

    def _write_events(self, template: str, *columns: Iterable[Any]) -> None:
        values = (column.tolist() if isinstance(column, np.ndarray) else column for column in columns)
        self._file.writelines(map(template.__mod__, zip(*values, strict=True)))

    def _add_bytes(self, level: int, block: Columns) -> None:
        """The bytes of each call are spread evenly over its time, as in the report."""
        for op in range(2):
            of_op = only(block, block["op"] == op)
            times, everyone = (of_op["t_start"], of_op["t_end"]), np.zeros(len(of_op["op"]), np.int64)
            self._moved[level, op] += spread(times, of_op["length"], everyone, 1, self._span, MOMENTS)[0]

    def _write_counters(self) -> None:
        start, stop = self._span
        moments = np.linspace(start, stop, MOMENTS + 1) * 1e6
        for level, name in enumerate(LEVELS[: 2 if self._trace.posix else 1]):
            rate = np.append(self._moved[level] / ((stop - start) / MOMENTS), np.zeros((2, 1)), axis=1)
            event = f'{{"ph":"C","pid":{self._ranks},"tid":{self._ranks},"name":"{name} bytes/s"'
            self._write_events(f'{event},"ts":%.3f,"args":{{"read":%.0f,"write":%.0f}}}},\n', moments, *rate)

    def _write_names(self, tracks: Sequence[Tracks]) -> None:
        """Name what the other events name by number. The last one has no comma behind it."""
        hosts = self._trace.about.hosts
        where = f" ({hosts[0]})" if len(hosts) == 1 else ""
        for rank in range(self._ranks):
            self._write_name("process", rank, rank, f"rank {rank}{where}", rank)
            for level, of_level in enumerate(tracks):
                for track in range(of_level.used.get(rank, 0)):
                    name = f"{LEVELS[level]} {track + 1}" if track else LEVELS[level]
                    self._write_name("thread", rank, of_level.number(rank, track), name, level << 16 | track)
        self._write_name("process", self._ranks, self._ranks, "all ranks", -1, ending="\n")

    def _write_name(self, what: str, rank: int, track: int, name: str, place: int, ending: str = ",\n") -> None:
        event = f'{{"ph":"M","pid":{rank},"tid":{track},"name":"{what}'
        self._file.write(f'{event}_sort_index","args":{{"sort_index":{place}}}}},\n')
        self._file.write(f'{event}_name","args":{{"name":{json.dumps(name)}}}}}{ending}')


def _named(codes: npt.NDArray[Any], names: Sequence[str]) -> Iterator[str]:
    return map(names.__getitem__, codes.tolist())


def _in_microseconds(rank: Any, track: Any, *nanoseconds: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[Any]]:
    yield from (rank, track, *(time / 1e3 for time in nanoseconds))
