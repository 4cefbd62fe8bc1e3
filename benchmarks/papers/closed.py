"""What the papers' formulas give for rows that need no simulation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pdla.analyzers.analysis import analyze
from pdla.collectors import workloads
from pdla.layouts import s4d
from pdla.layouts.candidates import candidates
from pdla.layouts.config import load_cluster
from pdla.layouts.cost import layout_time
from pdla.layouts.devices import startup
from pdla.layouts.hybrid import Round, best_strips
from pdla.model import Loop, Signature
from pdla.policies.e10 import Phase, bandwidth
from pdla.policies.liu import head_bytes, latency
from pdla.units import GiB, KiB, MiB

MIXED = (16 * KiB, 256 * KiB, 4 * MiB)
"""PDLA 5.2.1: the requests of the three parts of the file."""


def pdla_spaces_mixed(processes: int = 128) -> str:
    """Where the planner puts replicas of PDLA 5.2.1's parts: each process reads a third of its 512 MiB of each size."""
    cluster = load_cluster("pdla")
    pools = (cluster.pool("hdd"), cluster.pool("ssd"))
    spaces = []
    for request in MIXED:
        calls = 170 * MiB // request
        loops = (Loop(512 * MiB, processes), Loop(3 * request, calls))
        one = Signature("f", "read", False, 0, request, loops, tuple(range(processes)), 1, processes * calls)
        found = candidates(one, one.bytes, cluster, pools, [pools])
        best = min((each for each in found if each.layout and not each.refused), key=lambda each: each.cost.total)
        spaces.append(best.space)
    return ", ".join(spaces)


def pdla_spaces_tables(requests: Sequence[int], processes: int = 128, disk_startup: float = 1e-3) -> str:
    """The same by Tables 2, 4 and 5 as they are, without contiguity: the start-up is one constant."""
    cluster = load_cluster("pdla")
    hdd, ssd = cluster.pool("hdd"), cluster.pool("ssd")
    m, e, v = cluster.per_node(processes), cluster.connect_seconds, cluster.network_seconds_per_byte
    a, b = (disk_startup, startup(ssd, GiB)), (hdd.read_seconds_per_byte, ssd.read_seconds_per_byte)
    spaces = []
    for request in requests:
        times = {
            pool.name: min(
                layout_time(processes, m, pool.servers, groups, request, e, v, a[kind], b[kind]).total
                for groups in range(1, pool.servers + 1)
                if pool.servers % groups == 0
            )
            for kind, pool in enumerate((hdd, ssd))
        }
        one = Round(processes, m, request, (hdd.servers, ssd.servers), e, v, a, b)
        if min(best_strips(one)):
            times["hdd+ssd"] = one.time(best_strips(one)).total
        spaces.append(min(times, key=lambda space: times[space]))
    return ", ".join(spaces)


def _analysis() -> int:
    """Processor seconds, rounded up, in which a trace of PIO-Bench (nested strides) of 5,296 records is analyzed."""
    trace = workloads.pio_nested_strided(8, 16 * KiB, 22, 30, 64 * MiB)
    assert len(trace.records) == 5296
    begin = time.process_time()
    analyze(trace)
    return math.ceil(time.process_time() - begin)


def _cheapest(processes: int, request: int) -> str:
    """1-DH, 2-D or 1-DV, by Table 2 on the disks of PDLA's testbed, with a seek of average length a request."""
    cluster = load_cluster("pdla")
    hdd = cluster.pool("hdd")
    m = -(-processes // (cluster.nodes or processes))  # as many nodes as processes, as long as there are enough
    e, v, b = cluster.connect_seconds, cluster.network_seconds_per_byte, hdd.read_seconds_per_byte
    seek = startup(hdd, 78 * GiB)
    times = {
        groups: layout_time(processes, m, hdd.servers, groups, request, e, v, seek, b).total
        for groups in range(1, hdd.servers + 1)
        if hdd.servers % groups == 0
    }
    best = min(times, key=lambda groups: times[groups])
    return {1: "1-DH", hdd.servers: "1-DV"}.get(best, "2-D")


def _s4d_sign(request: int) -> str:
    """The sign of Eq. 8, with the devices of S4D-Cache's testbed, for a request that starts with a stripe."""
    cluster = load_cluster("s4d-cache")
    hdd, ssd = cluster.pool("hdd"), cluster.pool("ssd")
    nearest, farthest = hdd.startup[1][1], hdd.startup[-1][1]
    on_hdd = s4d.hdd_time(0, request, cluster.home_strip, hdd.servers, nearest, farthest, hdd.write_seconds_per_byte)
    on_ssd = s4d.ssd_time(0, request, cluster.home_strip, ssd.servers, ssd.write_seconds_per_byte)
    return "positive" if s4d.benefit(on_hdd, on_ssd) > 0 else "not positive"


def _liu_latency(turn: float = 60 / 7200) -> float:
    """Milliseconds within which 80 % of the reads of a byte at random in 10 GB start on LiU's disks.

    The testbed's start-up has half a turn in it; here the turn is anything between none and a whole one.
    """
    pool = load_cluster("liu").pool("hdd")
    seeks = tuple((distance, seconds - turn / 2) for distance, seconds in pool.startup)
    return 1000 * latency(replace(pool, startup=seeks, device=replace(pool.device, rotation_seconds=turn)))


def _liu_body(request: int = 4 * MiB) -> float:
    """Percent of a disk's peak bandwidth in reads of this size at random within 20 GB (a third of it apart)."""
    pool = load_cluster("liu").pool("hdd")
    transfer = request * pool.read_seconds_per_byte
    return 100 * transfer / (transfer + startup(pool, 20e9 / 3))


def _e10(phases: int, last: float) -> float:
    """GB/s of files of 32 GB that reach the cache at 20 GB/s and the file system at 2 GB/s; 30 s of computation between
    them, and ``last`` after the last one."""
    pauses = [30.0] * (phases - 1) + [last]
    return bandwidth([Phase(32_000_000_000, 1.6, 16.0, pause) for pause in pauses]) / 1e9


FORMULAS: Mapping[str, Callable[[], float | str]] = {
    "pdla_spaces_mixed": pdla_spaces_mixed,
    "pdla_spaces_tables": lambda: pdla_spaces_tables(MIXED),
    "pdla_spaces_pio": lambda: pdla_spaces_tables([4 * KiB, 16 * KiB, 64 * KiB, 256 * KiB, MiB]),
    "pdla_analysis": _analysis,
    "pdla_guideline_few": lambda: _cheapest(2, 64 * MiB),
    "pdla_guideline_equal": lambda: _cheapest(8, 256 * KiB),
    "pdla_guideline_many": lambda: _cheapest(64, 16 * KiB),
    "s4d_sign_small": lambda: _s4d_sign(16 * KiB),
    "s4d_sign_large": lambda: _s4d_sign(4 * MiB),
    "s4d_metadata": lambda: 100 * 6 * 4 / 4096,
    "liu_head": lambda: head_bytes(70e6, 0.012) / 1e6,
    "liu_latency": _liu_latency,
    "liu_body": _liu_body,
    "liu_write_bound": lambda: 100 * (1 / 0.8 - 1),
    "e10_flash_bytes": lambda: 512 * 80 * 24 * 16**3 * 8 / GiB,
    "e10_equation_1": lambda: _e10(1, last=30.0),
    "e10_equation_2": lambda: _e10(4, last=0.0),
}
