"""Traces of well-known I/O benchmarks, of any size, without running them: the MPI-IO calls that they would make.

The description of each parameter gives the benchmark's own option. Times are made up: each call
lasts a millisecond, and calls follow one another with all ranks in step. A phase is what a rank
does between the open and the close of a file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pdla.model import Int64Array, Op, Signature
from pdla.traces.file_views import BLOCK, LIST, LOOP, View, first_offsets
from pdla.traces.tables import OPS, categorical, files_frame, operation, records_frame, seconds
from pdla.traces.trace import Trace

CALL_NS = 1_000_000

_PLAIN = View.plain()
_KINDS = tuple(
    f"MPI_File_{name}" for name in ("open", "set_view", "read_at", "read_at_all", "write_at", "write_at_all", "close")
)


@dataclass(frozen=True, eq=False)
class _Phase:
    """Data calls of all ranks on a file, in order.

    ``positions`` (bytes of the view's data stream) has the shape (ranks, calls); ``lengths`` has a
    shape that fits it. ``views`` is empty, or has one view for each rank. With ``own_files`` every
    rank has a file of its own.
    """

    path: str
    op: Op
    positions: Int64Array
    lengths: npt.ArrayLike
    collective: bool = False
    views: Sequence[View] = ()
    own_files: bool = False


def ior(
    ranks: int,
    block_size: int,
    transfer_size: int,
    segment_count: int = 1,
    operations: Sequence[Op] = ("write", "read"),
    collective: bool = False,
    file_per_proc: bool = False,
    reorder_tasks: bool = False,
    random_offset: bool = False,
    seed: int = 0,
) -> Trace:
    """IOR, api MPIIO. Segmented is one segment of large blocks; strided is many segments with blocks of one transfer.

    Args:
        ranks: -N, numTasks.
        block_size: -b, blockSize, bytes; a multiple of transfer_size.
        transfer_size: -t, transferSize, bytes.
        segment_count: -s, segmentCount.
        operations: -w and -r, writeFile and readFile: a phase each.
        collective: -c, collective.
        file_per_proc: -F, filePerProc.
        reorder_tasks: -C, reorderTasksConstant: a rank reads what the rank before it wrote.
        random_offset: -z, randomOffset: each rank's transfers in random order.
        seed: -G, setTimeStampSignature; only of the random order.
    """
    if block_size % transfer_size:
        raise ValueError(f"blockSize must be a multiple of transferSize (got {block_size}, {transfer_size})")
    stride = block_size if file_per_proc else block_size * ranks
    own = np.add.outer(_steps(segment_count, stride), _steps(block_size // transfer_size, transfer_size)).ravel()
    phases = []
    for op in operations:
        blocks = np.arange(ranks) - (reorder_tasks and op == "read")
        starts = np.zeros(ranks, np.int64) if file_per_proc else blocks % ranks * block_size
        offsets = starts[:, None] + own
        if random_offset:
            offsets = np.random.default_rng(seed).permuted(offsets, axis=1)
        phases.append(_Phase("/ior/testFile", op, offsets, transfer_size, collective, own_files=file_per_proc))
    flags = "".join(
        f" -{flag}"
        for flag, on in zip("cFCz", (collective, file_per_proc, reorder_tasks, random_offset), strict=True)
        if on
    )
    return _trace(f"ior -a MPIIO -b {block_size} -t {transfer_size} -s {segment_count}{flags}", phases)


def pio_simple_strided(ranks: int, request_size: int, requests: int, op: Op = "read") -> Trace:
    """PIO-Bench, simple strided: the requests of the ranks alternate in the file.

    Args:
        ranks: processes.
        request_size: bytes of a request.
        requests: requests of each rank.
        op: read or write test.
    """
    offsets = np.add.outer(_steps(ranks, request_size), _steps(requests, request_size * ranks))
    return _trace("pio-bench simple-strided", [_Phase("/pio/simple", op, offsets, request_size)])


def pio_nested_strided(
    ranks: int, request_size: int, requests: int, groups: int, group_stride: int, op: Op = "read"
) -> Trace:
    """PIO-Bench, nested strided: ``groups`` simple strided groups of ``requests``, ``group_stride`` bytes apart."""
    inner = _steps(requests, request_size * ranks)
    own = np.add.outer(_steps(groups, group_stride), inner).ravel()
    offsets = np.add.outer(_steps(ranks, request_size), own)
    return _trace("pio-bench nested-strided", [_Phase("/pio/nested", op, offsets, request_size)])


def pio_random_strided(ranks: int, request_size: int, requests: int, op: Op = "read", seed: int = 0) -> Trace:
    """PIO-Bench, random strided: like simple strided, but with a random gap before each round of requests."""
    gaps = np.random.default_rng(seed).integers(0, 16, requests) * request_size
    rounds = np.cumsum(gaps) + _steps(requests, request_size * ranks)
    offsets = np.add.outer(_steps(ranks, request_size), rounds)
    return _trace("pio-bench random-strided", [_Phase("/pio/random", op, offsets, request_size)])


def pio_segmented(ranks: int, request_size: int, requests: int, op: Op = "read") -> Trace:
    """PIO-Bench, segmented: each rank has a contiguous part of the file."""
    offsets = np.add.outer(_steps(ranks, request_size * requests), _steps(requests, request_size))
    return _trace("pio-bench segmented", [_Phase("/pio/segmented", op, offsets, request_size)])


def pio_tiled(grid: tuple[int, int], request_size: int, rows: int, columns: int, op: Op = "read") -> Trace:
    """PIO-Bench, tiled: ``grid`` = (down, across) tiles of ``rows`` by ``columns`` requests each."""
    down, across = grid
    row = across * columns * request_size
    own = np.add.outer(_steps(rows, row), _steps(columns, request_size)).ravel()
    corners = np.add.outer(_steps(down, rows * row), _steps(across, columns * request_size)).ravel()
    return _trace("pio-bench tiled", [_Phase("/pio/tiled", op, np.add.outer(corners, own), request_size)])


def mpi_tile_io(
    nr_tiles_x: int,
    nr_tiles_y: int,
    sz_tile_x: int,
    sz_tile_y: int,
    sz_element: int,
    overlap_x: int = 0,
    overlap_y: int = 0,
    header_bytes: int = 0,
    collective: bool = False,
    op: Op = "read",
) -> Trace:
    """MPI-Tile-IO: each rank accesses its tile of a dense 2-D data set by one call through a view.

    Args:
        nr_tiles_x: --nr_tiles_x, tiles across.
        nr_tiles_y: --nr_tiles_y, tiles down.
        sz_tile_x: --sz_tile_x, elements of a tile across.
        sz_tile_y: --sz_tile_y, elements of a tile down.
        sz_element: --sz_element, bytes.
        overlap_x: --overlap_x, elements that neighbours share.
        overlap_y: --overlap_y, elements.
        header_bytes: --header_bytes, bytes before the data.
        collective: --collective.
        op: --write_file, or read, the default.
    """
    step_x, step_y = sz_tile_x - overlap_x, sz_tile_y - overlap_y
    sizes = (step_y * (nr_tiles_y - 1) + sz_tile_y, step_x * (nr_tiles_x - 1) + sz_tile_x)
    views = [
        _subarray(sizes, (sz_tile_y, sz_tile_x), (y * step_y, x * step_x), sz_element, header_bytes)
        for y in range(nr_tiles_y)
        for x in range(nr_tiles_x)
    ]
    positions = np.zeros((len(views), 1), np.int64)
    tile = sz_tile_x * sz_tile_y * sz_element
    return _trace("mpi-tile-io", [_Phase("/tile/file", op, positions, tile, collective, views)])


def hpio(
    ranks: int,
    region_count: int,
    region_size: int,
    region_spacing: int,
    op: Op = "write",
    collective: bool = True,
    repetitions: int = 1,
) -> Trace:
    """HPIO, non-contiguous in the file: the ranks' regions alternate, with a gap after each; a call accesses all.

    Args:
        ranks: processes.
        region_count: -c, regions of each rank.
        region_size: -s, bytes.
        region_spacing: -p, bytes of the gap.
        op: read or write test.
        collective: collective or independent method.
        repetitions: -r, calls, all of the same regions.
    """
    pitch = region_size + region_spacing
    words = np.array([LOOP, region_count, ranks * pitch, BLOCK, region_size], np.int64)
    size, extent = region_count * region_size, region_count * ranks * pitch
    views = [View(rank * pitch, 1, extent, size, words) for rank in range(ranks)]
    positions = np.zeros((ranks, repetitions), np.int64)
    return _trace("hpio", [_Phase("/hpio/file", op, positions, size, collective, views)])


def btio(
    grid: tuple[int, int, int],
    problem_size: tuple[int, int, int],
    steps: int,
    subtype: str = "full",
    op: Op = "write",
) -> Trace:
    """BTIO of the NAS Parallel Benchmarks, five doubles a point, the solution appended at each of its output steps.

    The decomposition is cubic, one block per rank. The diagonal multi-partition of the original,
    with several cells per rank, is not generated.

    Args:
        grid: processes along z, y, x.
        problem_size: PROBLEM_SIZE, points along z, y, x (64 for class A, 102 for B, 162 for C).
        steps: output steps (niter / wr_default, 40 for classes A to C).
        subtype: SUBTYPE: full (a collective call a step, through a view) or simple (an independent call a row).
        op: write, or read for the verification.
    """
    if subtype not in ("full", "simple"):
        raise ValueError(f"SUBTYPE must be full or simple (got {subtype!r})")
    point = 40
    cells = _cells(grid, problem_size)
    step_bytes, cell_bytes = math.prod(problem_size) * point, math.prod(cells) * point
    if subtype == "full":
        views = _blocks(grid, cells, problem_size, point)
        positions = np.broadcast_to(_steps(steps, cell_bytes), (len(views), steps))
        return _trace("btio full", [_Phase("/btio/out", op, positions, cell_bytes, True, views)])
    rows = np.add.outer(
        _steps(cells[0], problem_size[1] * problem_size[2] * point), _steps(cells[1], problem_size[2] * point)
    ).ravel()
    own = np.add.outer(_steps(steps, step_bytes), rows).ravel()
    corners = np.array(_corners(grid, cells)) @ np.array(
        [problem_size[1] * problem_size[2] * point, problem_size[2] * point, point]
    )
    return _trace("btio simple", [_Phase("/btio/out", op, np.add.outer(corners, own), cells[2] * point)])


def coll_perf(
    grid: tuple[int, int, int], array_size: tuple[int, int, int] = (128, 128, 128), element: int = 4
) -> Trace:
    """coll_perf of ROMIO: a block-distributed 3-D array written, then read, by one collective call each.

    Args:
        grid: processes in each dimension (MPI_Dims_create in the original).
        array_size: -asize, elements in each dimension, multiples of ``grid``.
        element: bytes of an element; the original's are int.
    """
    cells = _cells(grid, array_size)
    views = _blocks(grid, cells, array_size, element)
    positions = np.zeros((len(views), 1), np.int64)
    operations: tuple[Op, Op] = ("write", "read")
    size = math.prod(cells) * element
    return _trace("coll_perf", [_Phase("/coll/file", op, positions, size, True, views) for op in operations])


def flash_io(
    ranks: int,
    nxb: int = 8,
    nyb: int = 8,
    nzb: int = 8,
    lnblocks: int = 80,
    nvar: int = 24,
    nplotvar: int = 4,
) -> Trace:
    """Flash-IO: a checkpoint of all variables in doubles and two plotfiles in singles, centred and with corners.

    Every variable is an array over all ranks' blocks, written by a collective call; the small metadata are left out.

    Args:
        ranks: processes.
        nxb: nxb, interior cells of a block along x.
        nyb: nyb, along y.
        nzb: nzb, along z.
        lnblocks: lnblocks, blocks of each rank.
        nvar: nvar, variables of the checkpoint.
        nplotvar: variables of the plotfiles.
    """
    centred, corners = nxb * nyb * nzb, (nxb + 1) * (nyb + 1) * (nzb + 1)
    phases = []
    for path, variables, part in (
        ("/flash/chk", nvar, centred * 8 * lnblocks),
        ("/flash/plt_cnt", nplotvar, centred * 4 * lnblocks),
        ("/flash/plt_crn", nplotvar, corners * 4 * lnblocks),
    ):
        offsets = np.add.outer(_steps(ranks, part), _steps(variables, part * ranks))
        phases.append(_Phase(path, "write", offsets, part, True))
    return _trace("flash_io", phases)


def lanl_app2_like(
    ranks: int,
    requests: int = 128,
    small: int = 4 << 10,
    medium: int = 32 << 10,
    large: tuple[int, int] = (256 << 10, 384 << 10),
    op: Op = "write",
) -> Trace:
    """Synthetic: three regions of a shared file, as PDLA 5.2.4 describes "Anonymous LANL App 2"; not its trace.

    Requests are small in the first region, medium in the second, and alternate between two large
    sizes in the third. The ranks' requests are interleaved in each region.

    Args:
        ranks: processes.
        requests: requests of each rank in each region (an even number).
        small: bytes.
        medium: bytes.
        large: the two sizes, bytes.
        op: read or write.
    """
    third = np.tile(large, requests // 2)
    own = [np.full(requests, small), np.full(requests, medium), third]
    own_starts = [_steps(requests, small * ranks), _steps(requests, medium * ranks)]
    ends = np.cumsum(third)
    own_starts.append((ends - third) * ranks)
    regions = np.cumsum([0, requests * ranks * small, requests * ranks * medium])
    offsets = np.concatenate(
        [
            region + starts + np.arange(ranks)[:, None] * lengths
            for region, starts, lengths in zip(regions, own_starts, own, strict=True)
        ],
        axis=1,
    )
    return _trace("lanl_app2_like (synthetic)", [_Phase("/lanl/app2", op, offsets, np.concatenate(own))])


def of_signatures(signatures: Sequence[Signature]) -> Trace:
    """The calls that signatures of all ranks stand for, one after another; a call for each request.

    Args:
        signatures: of one file and operation, each with as many requests of every rank.
    """
    ranks, (first, *_) = len(signatures[0].ranks), signatures
    parts = []
    for one in signatures:
        offsets, of_rank, lengths = one.expand()
        order = np.argsort(of_rank, kind="stable")
        parts.append([values[order].reshape(ranks, -1) for values in (offsets, lengths)])
    positions, sizes = (np.concatenate(values, axis=1) for values in zip(*parts, strict=True))
    return _trace("signatures", [_Phase(first.file, first.op, positions, sizes)])


def _steps(count: int, stride: int) -> Int64Array:
    return np.arange(count, dtype=np.int64) * stride


def _cells(grid: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    if any(size % parts for size, parts in zip(sizes, grid, strict=True)):
        raise ValueError(f"sizes must be multiples of the process grid (got {tuple(sizes)} on {tuple(grid)})")
    return tuple(size // parts for size, parts in zip(sizes, grid, strict=True))


def _corners(grid: Sequence[int], cells: Sequence[int]) -> list[tuple[int, ...]]:
    return [tuple(np.multiply(place, cells).tolist()) for place in np.ndindex(*grid)]


def _blocks(grid: Sequence[int], cells: Sequence[int], sizes: Sequence[int], element: int) -> list[View]:
    return [_subarray(sizes, cells, corner, element) for corner in _corners(grid, cells)]


def _subarray(
    sizes: Sequence[int], subsizes: Sequence[int], starts: Sequence[int], element: int, displacement: int = 0
) -> View:
    """The view that MPI_Type_create_subarray makes in C order; sizes in elements of ``element`` bytes."""
    pitches = [math.prod(sizes[place + 1 :]) * element for place in range(len(sizes))]
    words = [LIST, 1, sum(start * pitch for start, pitch in zip(starts, pitches, strict=True))]
    for subsize, pitch in list(zip(subsizes, pitches, strict=True))[:-1]:
        words += [LOOP, subsize, pitch]
    words += [BLOCK, subsizes[-1] * element]
    size = math.prod(subsizes) * element
    return View(displacement, element, math.prod(sizes) * element, size, np.array(words, np.int64))


def _trace(command: str, phases: Sequence[_Phase]) -> Trace:
    """The phases one after the other, each with open, set_view if it has views, and close."""
    ranks = len(phases[0].positions)
    views, files = [_PLAIN], dict[str, int]()
    columns: dict[str, list[npt.NDArray[np.int64]]] = {
        name: [] for name in ("kind", "file", "collective", "length", "view", "position")
    }
    for phase in phases:
        calls = phase.positions.shape[1]
        view = np.zeros(ranks, np.int64)
        if phase.views:
            view = len(views) + np.arange(ranks)
            views += phase.views
        paths = [f"{phase.path}.{rank:08}" for rank in range(ranks)] if phase.own_files else [phase.path] * ranks
        file = np.array([files.setdefault(path, len(files)) for path in paths])
        data = f"MPI_File_{phase.op}_at" + "_all" * phase.collective
        before = ["MPI_File_open", "MPI_File_set_view"] if phase.views else ["MPI_File_open"]
        kinds = [*before, *[data] * calls, "MPI_File_close"]
        pad = ((0, 0), (len(before), 1))
        parts = {
            "kind": np.array([_KINDS.index(kind) for kind in kinds])[None],
            "file": file[:, None],
            "collective": np.array([phase.collective or kind != data for kind in kinds])[None],
            "length": np.pad(np.broadcast_to(phase.lengths, (ranks, calls)), pad),
            "view": np.pad(np.broadcast_to(view[:, None], (ranks, calls)), pad),
            "position": np.pad(phase.positions, pad),
        }
        for name, part in parts.items():
            columns[name].append(np.broadcast_to(part, (ranks, len(kinds))))
    table = {name: np.concatenate(part, axis=1).ravel() for name, part in columns.items()}
    kind = table["kind"]
    op = np.array([OPS.index(operation(name)) for name in _KINDS], dtype=np.int8)[kind]
    start = np.tile(_steps(len(kind) // ranks, CALL_NS), ranks)
    offset = first_offsets(views, table["view"], table["position"])
    offset[op == OPS.index("other")] = 0
    records = records_frame(
        {
            **table,
            "rank": np.repeat(np.arange(ranks, dtype=np.int32), len(kind) // ranks),
            "kind": categorical(kind.astype(np.int16), _KINDS),
            "op": categorical(op, OPS),
            "offset": offset,
            "t_start": seconds(start),
            "t_end": seconds(start + CALL_NS),
        }
    )
    shared = not phases[0].own_files
    return Trace(
        records=records,
        files=files_frame([{"path": path, "ranks": ranks if shared else 1} for path in files]),
        views=tuple(views),
        command=command,
        ranks=ranks,
        source="generated",
        notes=("generated, not recorded: its times are made up",),
    )
