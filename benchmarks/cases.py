"""The cases to measure: programs, their sizes, and what the paper says about similar ones.

The paper is He, Yin, Sun, Zhang, Li: "Optimizing Parallel I/O Accesses through Pattern-Directed and
Layout-Aware Replication", IEEE Transactions on Computers 69(2), 2020. It does not print its
figures' values, only statements about them in the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pdla.units import KiB, MiB, format_bytes

INDEPENDENT, SIEVING, COLLECTIVE = "independent", "data sieving", "collective buffering"
PD, H_PDLA, S_PDLA, S_ORIG, NS_PDLA = "PD", "H-PDLA", "S-PDLA", "S-ORIG", "NS-PDLA"
CONTESTANTS = (INDEPENDENT, SIEVING, COLLECTIVE, PD, H_PDLA, S_PDLA, S_ORIG, NS_PDLA)
H_LEASE, S_LEASE = "H-PDLA, lease", "S-PDLA, lease"
"""For programs that write: with these, write-back happens after the program, as in the paper; else before the close."""
LEASES = (H_LEASE, S_LEASE)
REPLICATED = (PD, H_PDLA, S_PDLA, NS_PDLA, *LEASES)
RIVALS = (INDEPENDENT, SIEVING, COLLECTIVE, H_PDLA, S_PDLA)
"""Contestants without a figure in the paper."""
SELECTED = (INDEPENDENT, H_PDLA, S_PDLA, S_ORIG, NS_PDLA)
"""Those of the paper's figures on S-PDLA."""

PAPER: Mapping[tuple[int, str], Mapping[str, str]] = {
    (6, "read"): {PD: "up to 10.7 x original", H_PDLA: "up to 1.10 x PD"},
    (6, "write"): {PD: "up to 4.07 x original", H_PDLA: "up to 1.05 x PD"},
    (7, "read"): {PD: "1.80-10.26 x original", H_PDLA: "1.84-10.70 x original"},
    (7, "write"): {PD: "1.47-6.21 x original", H_PDLA: "1.16-3.08 x original"},
    (8, "read"): {PD: "1.08-1.27 x original", H_PDLA: "1.09-1.22 x PD"},
    (8, "write"): {PD: "1.10-1.39 x original", H_PDLA: "1.05-1.41 x PD"},
    (9, "read"): {PD: "1.39-1.91 x original", H_PDLA: "1.06-1.15 x PD"},
    (9, "write"): {PD: "1.30-1.86 x original", H_PDLA: "1.04-1.14 x PD"},
    (10, "read"): {S_PDLA: "2.28-2.83 x H-PDLA, up to 1.86 x S-ORIG"},
    (10, "write"): {S_PDLA: "3.52-3.79 x H-PDLA, up to 1.98 x S-ORIG"},
    (11, "read"): {S_PDLA: "up to 2.53 x H-PDLA to 256 KiB"},
    (11, "write"): {S_PDLA: "up to 1.89 x H-PDLA to 256 KiB"},
    (12, "read"): {S_PDLA: "1.21-1.60 x H-PDLA", NS_PDLA: "as S-PDLA"},
    (12, "write"): {S_PDLA: "1.31-1.57 x H-PDLA", NS_PDLA: "as S-PDLA"},
    (13, "read"): {S_PDLA: "the fastest", S_ORIG: "faster than H-PDLA", NS_PDLA: "faster than H-PDLA"},
    (13, "write"): {S_PDLA: "the fastest", S_ORIG: "faster than H-PDLA", NS_PDLA: "faster than H-PDLA"},
}
"""By figure and op, of each contestant. Percentages of the text are given as factors."""

HALF = 2
"""The programs are parts of programs with so many times as many tasks: nobody reads the other tasks' parts."""


@dataclass(frozen=True)
class Case:
    """A program: a file of ``size`` bytes, of which all its calls together access ``accessed``."""

    name: str
    program: str
    options: tuple[str, ...]
    ranks: int
    size: int
    accessed: int
    op: str = "read"
    request: int = 0
    """Bytes of a piece."""
    figures: tuple[int, ...] = ()
    """The paper's figures that show something similar."""
    contestants: tuple[str, ...] = field(default=CONTESTANTS)
    sizes: tuple[int, ...] = ()
    """Bytes of its pieces, where these differ. Such a program makes all its calls, however long they take."""

    @property
    def title(self) -> str:
        """The name in rows."""
        requests = " and ".join(map(format_bytes, self.sizes or (self.request,)))
        return f"{self.name}, {requests}, {self.ranks} ranks, {self.op}"

    @property
    def occupied(self) -> int:
        """Most bytes that it needs: the originals, a replica for each contestant, and the files for the limits."""
        replicas = sum(one in REPLICATED for one in self.contestants)
        return self.size * (1 + (S_ORIG in self.contestants)) + self.accessed * (replicas + 2)

    def paper(self, contestant: str) -> str:
        """What the paper says about a contestant in such a case; "" if nothing."""
        name = contestant.removesuffix(", lease")
        return "; ".join(PAPER[figure, self.op][name] for figure in self.figures if name in PAPER[figure, self.op])


def ior_strided(amount: int, transfer: int, ranks: int, op: str = "read") -> Case:
    """The ranks' transfers alternate; after those of all ranks, as many again are left out."""
    segments = amount // transfer // ranks
    tasks = HALF * ranks
    options = ("-t", str(transfer), "-s", str(segments), "--numTasks", str(tasks))
    used = segments * ranks * transfer
    return Case("IOR strided", "ior", options, ranks, HALF * used, used, op, transfer, (6, 7))


def ior_mixed(amount: int, ranks: int, op: str = "read") -> Case:
    """Three parts of as many bytes, with requests of 16 KiB, 256 KiB and 4 MiB."""
    sizes = (16 * KiB, 256 * KiB, 4 * MiB)
    return _parts("IOR mixed", sizes, tuple(max(1, amount // 3 // size // ranks) for size in sizes), ranks, op, 10)


def lanl_app2(amount: int, ranks: int, op: str = "read") -> Case:
    """Three parts of as many requests: small ones, medium ones, and large ones of two sizes in turn.

    The text says "several KBs", "tens of KBs" and "hundreds of KBs"; the sizes are those of lanl_app2_like().
    """
    sizes = (4 * KiB, 32 * KiB, 256 * KiB, 384 * KiB)
    pairs = max(1, amount // (2 * sizes[0] + 2 * sizes[1] + sizes[2] + sizes[3]) // ranks)
    return _parts("LANL App 2", sizes, (2 * pairs,) * 3, ranks, op, 13)


def _parts(name: str, sizes: tuple[int, ...], counts: tuple[int, ...], ranks: int, op: str, figure: int) -> Case:
    """Parts of a file with requests of their own size, in the last one of two; ``counts`` are those of a rank."""
    named = zip(("small", "medium", "large", "other"), sizes, strict=False)
    options = [*named, *zip(("smalls", "mediums", "larges"), counts, strict=True), ("numTasks", HALF * ranks)]
    own = sum(size * count for size, count in zip((*sizes[:2], sum(sizes[2:]) // len(sizes[2:])), counts, strict=True))
    words = tuple(word for name_, value in options for word in (f"--{name_}", str(value)))
    used = own * ranks
    return Case(name, "parts", words, ranks, HALF * used, used, op, sizes[0], (figure,), SELECTED, sizes)


def ior_segmented(amount: int, transfer: int, ranks: int) -> Case:
    """Each rank has a contiguous part: nothing to gain."""
    block = amount // ranks // transfer * transfer
    options = ("-t", str(transfer), "-b", str(block))
    return Case("IOR segmented", "ior", options, ranks, ranks * block, ranks * block, "read", transfer, (), RIVALS)


def ior_random(amount: int, transfer: int, ranks: int) -> Case:
    """Each rank accesses its part in random order, without a view."""
    base = ior_segmented(amount, transfer, ranks)
    return replace(base, name="IOR random", options=(*base.options, "-z"), contestants=(INDEPENDENT, H_PDLA, S_PDLA))


def pio_nested(amount: int, request: int, ranks: int, op: str = "read") -> Case:
    """Groups of 16 requests for each rank, with a gap as long as a group after each."""
    requests = min(16, amount // request // ranks)
    group = requests * request * ranks
    groups = amount // group
    options = ("--request_size", str(request), "--requests", str(requests), "--groups", str(groups))
    stride = ("--group_stride", str(HALF * group))
    size = HALF * groups * group
    return Case("PIO-Bench nested", "pio_nested", options + stride, ranks, size, groups * group, op, request, (8, 11))


def tile_io(amount: int, row: int, tiles: tuple[int, int], ranks: int, overlap: int = 0, op: str = "read") -> Case:
    """Tiles (across, down) with rows of ``row`` bytes; neighbours share ``overlap`` elements of 1 KiB."""
    element = KiB
    wide, high = row // element, amount // row // ranks
    pitches = (wide - overlap) * (tiles[0] - 1) + wide, (high - overlap) * (tiles[1] - 1) + high
    options = ["--nr_tiles_x", tiles[0], "--nr_tiles_y", tiles[1], "--sz_tile_x", wide, "--sz_tile_y", high]
    options += ["--sz_element", element, "--overlap_x", overlap, "--overlap_y", overlap, "--bufferSize", 4 * row]
    options += ["--numTasks", tiles[0] * tiles[1]]
    name = "MPI-Tile-IO, overlapping" if overlap else "MPI-Tile-IO"
    name += " (all tiles)" if ranks == tiles[0] * tiles[1] else ""
    size, used = pitches[0] * pitches[1] * element, ranks * high * row
    return Case(name, "mpi_tile_io", tuple(map(str, options)), ranks, size, used, op, row, (9, 12))


def hpio(amount: int, region: int, ranks: int, op: str = "read") -> Case:
    """Regions, each followed by an equally long gap."""
    count = amount // region // ranks
    options = ("-c", str(count), "-s", str(region), "-p", str(region), "--bufferSize", str(4 * region))
    return Case("HPIO", "hpio", options, ranks, HALF * amount, count * region * ranks, op, region, (), RIVALS)


def btio(points: int, tasks: int, ranks: int, op: str = "read") -> Case:
    """A cube of blocks, a call for each row."""
    options = ("--problem_size", str(points), "--numTasks", str(tasks))
    size, row = points**3 * 40, round(points / tasks ** (1 / 3)) * 40
    return Case("BTIO simple", "btio", options, ranks, size, size * ranks // tasks, op, row, (), RIVALS)


def coll_perf(points: int, ranks: int, op: str = "read") -> Case:
    """A whole array of ints, a block for each rank."""
    row = points // 2 * 4
    options = ("--asize", str(points), "--bufferSize", str(256 * KiB))
    return Case("coll_perf", "coll_perf", options, ranks, 4 * points**3, 4 * points**3, op, row, (), RIVALS)


def full(amount: int) -> list[Case]:
    """Everything, with programs of four ranks that access about ``amount`` bytes; the most informative ones first.

    Eight ranks access twice as much, so that each has as much to do: to open and close takes MPI
    0.1 s here.
    """
    return [
        *(ior_strided(amount, request, 4) for request in (4 * KiB, 64 * KiB, 256 * KiB, 4 * MiB)),
        ior_strided(2 * amount, 256 * KiB, 8),
        pio_nested(amount, 64 * KiB, 4),
        tile_io(amount, 16 * KiB, (8, 1), 4),
        *map(
            _leased,
            (
                ior_strided(amount // 8, 4 * KiB, 4, "write"),
                ior_strided(amount // 2, 64 * KiB, 4, "write"),
                ior_strided(amount, MiB, 4, "write"),
                pio_nested(amount // 2, 64 * KiB, 4, "write"),
            ),
        ),
        ior_mixed(amount, 4),
        _leased(ior_mixed(amount // 4, 4, "write")),
        lanl_app2(amount, 4),
        _leased(lanl_app2(amount // 4, 4, "write")),
        hpio(amount, 32 * KiB, 4),
        btio(_cube(amount // 40 * HALF), 8, 4),
        coll_perf(_cube(amount // 2), 8),
        ior_segmented(amount, MiB, 4),
        ior_random(amount, 64 * KiB, 4),
        pio_nested(amount, MiB, 4),
        tile_io(2 * amount, 64 * KiB, (16, 1), 8),
        tile_io(amount, 64 * KiB, (8, 1), 4, overlap=8),
        tile_io(amount, 64 * KiB, (2, 2), 4),
        _leased(ior_strided(amount, 256 * KiB, 8, "write")),
        _leased(tile_io(amount // 2, 64 * KiB, (8, 1), 4, op="write")),
        _leased(btio(_cube(amount // 40), 8, 4, "write")),
    ]


def some(amount: int) -> list[Case]:
    """The cases that may differ on slower storage; the first one shows what SSDs alone gain."""
    few = tuple(one for one in CONTESTANTS if one not in (S_ORIG, NS_PDLA))
    cases = [
        ior_strided(amount, 4 * MiB, 4),
        ior_strided(2 * amount, 256 * KiB, 8),
        pio_nested(amount, 64 * KiB, 4),
        tile_io(2 * amount, 64 * KiB, (16, 1), 8),
    ]
    first, last = ior_strided(amount, 64 * KiB, 4), coll_perf(_cube(amount // 2), 8)
    # If ROMIO sieves on several ceph-fuse mounts, ranks overwrite one another's bytes: three
    # quarters were lost.
    unsieved = (INDEPENDENT, COLLECTIVE, PD, H_PDLA, *LEASES)
    write = replace(ior_strided(amount // 4, 64 * KiB, 4, "write"), contestants=unsieved)
    return [first, *(replace(case, contestants=few) for case in cases), write, last]


def heads(amount: int) -> list[Case]:
    """The cases in which the position of a disk's head matters."""
    few = (INDEPENDENT, SIEVING, COLLECTIVE, PD, H_PDLA, S_PDLA)
    cases = [
        *(ior_strided(amount, request, 4) for request in (4 * KiB, 64 * KiB, MiB)),
        pio_nested(amount, 64 * KiB, 4),
        ior_segmented(amount, MiB, 4),
        ior_strided(amount // 2, 64 * KiB, 4, "write"),
    ]
    return [replace(case, contestants=few) for case in cases]


def smoke(amount: int) -> list[Case]:
    """A read and a write, with few contestants."""
    few = (INDEPENDENT, COLLECTIVE, H_PDLA, S_PDLA)
    cases = (ior_strided(amount, 64 * KiB, 4), pio_nested(amount, 64 * KiB, 4, "write"))
    return [replace(case, contestants=few) for case in cases]


def _leased(case: Case) -> Case:
    """The case, also with the contestants under a lease."""
    return replace(case, contestants=(*case.contestants, *LEASES))


def _cube(points: int) -> int:
    """The side of the largest cube of so many points that can be divided in two by blocks of 8 bytes."""
    return round(points ** (1 / 3)) // 16 * 16
