"""The simulator's core (core/simulator.h): called with arrays, it returns arrays.

Everything that happens in a simulation happens there. No Python object is made for a request,
unless a policy in Python must be asked.
"""

from __future__ import annotations

import ctypes
import importlib.resources
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pdla.errors import PdlaError
from pdla.model import Op
from pdla.simulator import caching

Array = npt.NDArray[Any]


def _record(text: str) -> np.dtype[Any]:
    """Fields of 8 bytes each: those after ``:`` are float, ``name*2`` is two of them."""
    fields: list[tuple[Any, ...]] = []
    for part in text.split():
        name, _, kind = part.partition(":")
        name, _, count = name.partition("*")
        fields.append((name, "<f8" if kind else "<i8", (int(count),)) if count else (name, "<f8" if kind else "<i8"))
    return np.dtype(fields)


SERVER = _record(
    "seconds_per_byte*2:f rotation:f slice:f idle:f share:f curve*2 points*2 clients_curve clients_points queue depth "
    "channels overlap memory_depth memory read_ahead node host writer"
)
OBJECT = _record("groups width section strips first space strip_by_strip alone")
MAP = _record("object ops loops depth start length replica_start extents extent_count")
LOOP = _record("stride count grow_stride grow_length grow_count")
NEST = _record("start length loops depth")
CALL = _record("file flags item collective participants think:f start:f")
ITEM = _record("offset length form")
PATTERN = _record("file flags nest rank_loops pieces collective participants")
PART = _record("pattern position")
TRANSFER = _record("stage object server op start stop node")
CLOSE = _record("time:f file")
EVENT = _record("time:f what rank server address length")

OPS: tuple[Op, Op] = ("read", "write")
QUEUES = ("fifo", "elevator", "cfq")
WRITES, CLOSES, SYNCS = 1, 2, 4  # flags of calls and patterns
DEPTH = 12  # loops of a nest
EVENTS = ("call", "queued", "started", "served", "returned")


class _Answer(ctypes.Structure):
    _fields_ = (("transfer", ctypes.c_void_p), ("transfers", ctypes.c_int64))


_Closing = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.POINTER(_Answer))

Closing = Callable[[int], Array]
"""Returns the transfers, rows of the fields of TRANSFER, that write a file back when it is closed; -1: the run ends."""

_COUNTS = ("ranks", "nodes", "ranks_per_node", "files", "places", "servers", "spaces")
_PROCESSORS = ("call_seconds", "copy_seconds", "exchange_seconds")
_NUMBERS = ("seed", "open_loop")
_METHODS = (
    "collective_buffer", "aggregators", "flush_replicas", "client_cache", "client_sync", "client_read_ahead", "always",
)  # fmt: skip
_CACHES = ("exchange", "home_chunk", "home_request", "home_cached")
_ARRAYS = (
    "server", "curve_place", "curve_seconds", "object", "strips", "server_of", "bases", "sizes", "first_map", "map",
    "map_loops", "extents", "first_call", "call", "item", "loop", "nest", "pattern", "first_part", "part",
)  # fmt: skip


class _Input(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in _COUNTS),
        ("connect", ctypes.c_double),
        ("seconds_per_byte", ctypes.c_double),
        ("jitter", ctypes.c_double),
        *((name, ctypes.c_double) for name in _PROCESSORS),
        ("cores", ctypes.c_int64),
        *((name, ctypes.c_int64) for name in _NUMBERS),
        ("sieve", ctypes.c_int64 * 2),
        *((name, ctypes.c_int64) for name in (*_METHODS, *_CACHES)),
        ("exchange_costs", ctypes.c_double * 6),
        *((name, ctypes.c_void_p) for name in _ARRAYS),
        ("caching", ctypes.c_void_p),
        ("level_object", ctypes.c_void_p),
        ("period", ctypes.c_double),
        ("closing", _Closing),
        ("closes", ctypes.c_void_p),
        ("log", ctypes.c_void_p),
        ("log_room", ctypes.c_int64),
        ("stop", ctypes.POINTER(ctypes.c_int)),
    )


_TOTALS = (
    "server_busy", "server_waited", "server_distance", "file_latency", "rank_seconds",
    "server_served", "file_requests", "space_bytes",
)  # fmt: skip


class _Output(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_double) for name in ("seconds", "settled", "io_seconds", "closing")),
        *((name, ctypes.c_double) for name in ("call_seconds", "longest_call")),
        ("calls", ctypes.c_int64),
        ("bytes", ctypes.c_int64 * 2),
        *((name, ctypes.c_int64) for name in ("requests", "subrequests", "moves", "logged", "stuck", "closes")),
        *((name, ctypes.c_void_p) for name in _TOTALS),
    )


@dataclass(frozen=True, eq=False)
class Outcome:
    """The results of a simulation.

    Attributes:
        seconds: until the last call returned and the work at the end was done.
        settled: until the last move in the background was done; 0: there was none.
        io_seconds: time in which at least one rank was in a call.
        closing: time after the last call, for the work at the end.
        call_seconds: of all calls together; ``longest_call``: of one.
        bytes: read and written by calls.
        requests: to the storage; ``subrequests``: to servers.
        moves: in the background.
        stuck: collective calls that not all of their ranks made.
        busy, waited: for each server, the seconds in which its device served, and those that its
            requests waited.
        served: for each server, its requests; ``distance``: the bytes that its head moved between
            them.
        rank_seconds: for each rank, the seconds in its calls.
        latency: for each file, the seconds that requests to servers took there, including waits for
            moves, without requests in the background; ``latencies``: their number.
        space_bytes: for each space, read and written by requests and by moves in the background:
            shape (spaces, 4).
        log: the first events (EVENT).
        closes: when each file was closed or synchronized (CLOSE); file -1: the end of the run.
    """

    seconds: float
    settled: float
    io_seconds: float
    closing: float
    call_seconds: float
    longest_call: float
    calls: int
    bytes: tuple[int, int]
    requests: int
    subrequests: int
    moves: int
    stuck: int
    busy: npt.NDArray[np.float64]
    waited: npt.NDArray[np.float64]
    served: npt.NDArray[np.int64]
    distance: npt.NDArray[np.float64]
    rank_seconds: npt.NDArray[np.float64]
    latency: npt.NDArray[np.float64]
    latencies: npt.NDArray[np.int64]
    space_bytes: npt.NDArray[np.int64]
    log: Array
    closes: Array


@dataclass(frozen=True)
class Decider:
    """A core that decides about every request (pdla.simulator.enactor).

    Attributes:
        core: its address.
        objects: the object of each of its levels.
        period: seconds between its ticks; 0: none.
        raised: what its policy has raised.
    """

    core: int
    objects: Sequence[int]
    period: float
    raised: list[BaseException]


def simulate(
    numbers: dict[str, Any],
    arrays: dict[str, Array],
    decider: Decider | None = None,
    closing: Closing | None = None,
    log_room: int = 0,
) -> Outcome:
    """Run a simulation: ``numbers`` and ``arrays`` are members of struct sim_input.

    Raises:
        PdlaError: there is no core, or no memory. An exception from ``closing``, or from the policy
            of ``decider``, is raised again.
    """
    log = np.zeros(log_room, EVENT)
    kept = [np.ascontiguousarray(arrays[name]) for name in _ARRAYS]
    given = _Input(**{name: value for name, value in numbers.items() if name != "sieve"})
    given.sieve = numbers["sieve"]
    for name, array in zip(_ARRAYS, kept, strict=True):
        setattr(given, name, array.ctypes.data)
    given.log, given.log_room = log.ctypes.data, log_room
    closes = np.zeros(np.count_nonzero(kept[_ARRAYS.index("call")]["flags"]) + 1, CLOSE)
    given.closes = closes.ctypes.data
    raised: list[BaseException] = decider.raised if decider else []
    if decider:
        objects = np.array(decider.objects, np.int64)
        given.caching, given.level_object, given.period = decider.core, objects.ctypes.data, decider.period
    if closing:
        given.closing = _closer(closing, raised)
    servers, files, spaces = given.servers, given.files, given.spaces
    busy, waited, distance, latency = np.zeros(servers), np.zeros(servers), np.zeros(servers), np.zeros(files)
    rank_seconds = np.zeros(given.ranks)
    served, latencies, space_bytes = (np.zeros(shape, np.int64) for shape in (servers, files, (spaces, 4)))
    totals = busy, waited, distance, latency, rank_seconds, served, latencies, space_bytes
    out = _Output(**{name: array.ctypes.data for name, array in zip(_TOTALS, totals, strict=True)})
    result = _run(given, out)
    if raised:
        raise raised[0]
    if result:
        raise PdlaError(f"there is not enough memory to simulate {given.ranks} ranks")
    fields = ("seconds", "settled", "io_seconds", "closing", "call_seconds", "longest_call", "calls")
    counts = ("requests", "subrequests", "moves", "stuck")
    return Outcome(
        **{name: getattr(out, name) for name in (*fields, *counts)},
        bytes=(out.bytes[0], out.bytes[1]),
        busy=busy,
        waited=waited,
        served=served,
        distance=distance,
        rank_seconds=rank_seconds,
        latency=latency,
        latencies=latencies,
        space_bytes=space_bytes,
        log=log[: out.logged],
        closes=closes[: out.closes],
    )


def _run(given: _Input, out: _Output) -> int:
    """Run the core in a thread. Signals are handled meanwhile, which Python cannot do in a call of C; if the handler
    raises an exception, the run stops."""
    stop = ctypes.c_int()
    given.stop = ctypes.pointer(stop)
    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(library().sim_run, ctypes.byref(given), ctypes.byref(out))
        try:
            return int(result.result())
        except BaseException:
            stop.value = 1
            raise


def _closer(closing: Closing, raised: list[BaseException]) -> Any:
    """``closing`` in the form that the core calls; an exception in it stops the simulation."""
    kept: list[Any] = []  # the answer must live until the next one

    def called(file: int, answer: Any) -> int:
        try:
            transfers = closing(file)
        except BaseException as error:
            raised.append(error)
            return 1
        kept[:] = [np.ascontiguousarray(transfers, np.int64)]
        answer.contents.transfer = kept[0].ctypes.data
        answer.contents.transfers = len(transfers)
        return 0

    return _Closing(called)


@cache
def library() -> ctypes.CDLL:
    """The simulator's core and that of pdla/caching.

    Raises:
        PdlaError: it is missing, or of another version.
    """
    path = Path(str(importlib.resources.files("pdla") / "libpdla-simulator.so"))
    if not path.is_file():
        raise PdlaError(
            f"{path.name} is missing: pdla was installed without a C compiler; install gcc, then pdla again"
        )
    return _opened(path)


def _opened(path: Path) -> ctypes.CDLL:
    """The library, which must be of this version: structs of other sizes would be read beyond their ends."""
    library = ctypes.CDLL(str(path))
    records = (SERVER, OBJECT, MAP, LOOP, NEST, CALL, ITEM, PATTERN, PART)
    sizes = [record.itemsize for record in records]
    sizes += [TRANSFER.itemsize, CLOSE.itemsize, EVENT.itemsize, ctypes.sizeof(_Input), ctypes.sizeof(_Output)]
    sizes += [ctypes.sizeof(one) for one in (caching.Setup, caching.Wish, caching.Step, caching.Transfer)]
    array = (ctypes.c_int64 * len(sizes))(*sizes)
    if not hasattr(library, "sim_fits") or not library.sim_fits(array, ctypes.c_int64(len(sizes))):
        raise PdlaError(f"{path} belongs to another version of pdla: install pdla again")
    library.sim_run.argtypes = [ctypes.POINTER(_Input), ctypes.POINTER(_Output)]
    caching.declare(library)
    return library
