"""What a run with S4D-Cache or iBridge takes, as ``pdla run`` makes them: writes to cache files, and their way home."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pdla.model import Cluster, Pool
from pdla.policies.cached_writes import PERIOD, CachedWrites, CriticalWrites, Fragments
from pdla.simulator.online import simulate_online
from pdla.simulator.run import Result, simulate
from pdla.simulator.schemes import BASELINES
from pdla.simulator.workload import Workload, from_trace
from pdla.units import KiB, MiB
from tests.support.handmade_traces import Call, make_trace

STRIP, SEEK, BEGIN, BYTE = 64 * KiB, 0.01, 1e-4, 1e-8


def pool(name: str, servers: int, *curve: tuple[int, float]) -> Pool:
    where = tuple(f"{name}{number}" for number in range(servers))
    return Pool(name, name, servers, curve, BYTE, BYTE, None, 1, "directories", where)  # type: ignore[arg-type]


STORAGE = Cluster(
    (pool("hdd", 4, (0, 0.0), (1, SEEK)), pool("ssd", 2, (0, 0.0), (1, BEGIN))),
    *("hdd", 4, STRIP, 64, 0.0, 0.0, 0.0, "test"),
    sieve_write=0,
)
"""Four disks with two SSDs, and a node."""
SIZE = 16 * KiB
COUNT = 64


def run(policy: CachedWrites, calls: list[Call], storage: Cluster = STORAGE) -> Result:
    made = workload(calls)
    return simulate_online(made, storage, policy, BASELINES[0])


def workload(calls: list[Call]) -> Workload:
    return from_trace(make_trace(calls)).at_once()


def scattered(ranks: int, size: int = SIZE, count: int = COUNT) -> list[Call]:
    """Each rank fills its part of the file, in steps, and closes the file."""
    order = [number * 5 % count for number in range(count)]
    writes = [Call(rank, "write", (rank * count + number) * size, size) for rank in range(ranks) for number in order]
    return [*writes, *(Call(rank, "close", 0, 0) for rank in range(ranks))]


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_the_ranks_share_the_ssds_and_a_close_waits_for_the_way_home(ranks: int) -> None:
    found = run(CriticalWrites(), scattered(ranks))
    size = ranks * COUNT * SIZE
    assert found.moved == {"home": (0, size), "ssd": (size, size)}
    on_busiest = -(-ranks // 2) * COUNT
    begins = on_busiest * BEGIN if ranks > 2 else 0  # a rank with an SSD of its own writes in one go
    home = size * BYTE + size * BYTE / 4  # one cache file is read after the other
    assert found.slowest == pytest.approx(begins + on_busiest * SIZE * BYTE + home, abs=2 * SEEK)
    assert found.slowest < simulate(workload(scattered(ranks)), STORAGE, BASELINES[0]).slowest / 4


def test_what_a_node_has_in_its_page_cache_is_not_read_on_its_way_home() -> None:
    found = run(CriticalWrites(), scattered(4), replace(STORAGE, client_cache=True, client_sync=True))
    assert found.moved["ssd"] == (4 * COUNT * SIZE, 0)
    assert found.moved["home"] == (0, 4 * COUNT * SIZE)  # and no page of the original is read first


def test_what_a_page_cache_takes_waits_for_no_ssd(tmp_path: Path) -> None:
    """A description says so, or the directories of the SSDs do, whatever the mount of the originals is."""
    kept = replace(STORAGE, client_cache=True)
    ssds = replace(STORAGE.pools[1], where=(str(tmp_path), str(tmp_path)))
    here = replace(STORAGE, client_cache=True, client_sync=True, pools=(STORAGE.pools[0], ssds))
    for storage in (kept, here):
        found = run(CriticalWrites(), scattered(4), storage)
        assert found.moved == {"home": (0, 4 * COUNT * SIZE), "ssd": (4 * COUNT * SIZE, 0)}
        assert found.slowest == pytest.approx(4 * COUNT * SIZE * BYTE / 4, abs=2 * SEEK)


@pytest.mark.parametrize("ranks", [1, 4])
def test_on_synchronous_mounts_cache_files_are_laid_out_first(ranks: int) -> None:
    """A MiB at a time: away from the bytes before, and back."""
    once, twice = (
        run(CriticalWrites(), scattered(ranks), replace(STORAGE, client_sync=sync)) for sync in (False, True)
    )
    written = -(-ranks // 2) * COUNT * SIZE
    assert twice.slowest - once.slowest == pytest.approx(written * BYTE + written / MiB * 2 * BEGIN)


def test_writes_that_save_less_than_their_way_home_are_not_cached() -> None:
    large = [Call(0, "write", number * 4 * MiB, 4 * MiB) for number in range(4)]
    assert run(CriticalWrites(), large).moved["home"] == (16 * MiB, 0)


def test_reads_are_served_as_without_a_cache() -> None:
    reads = [Call(0, "read", number * 5 % COUNT * SIZE, SIZE) for number in range(COUNT)]
    native = simulate(workload(reads), STORAGE, BASELINES[0]).slowest
    for policy in (CriticalWrites(), Fragments()):
        assert run(policy, reads).slowest == pytest.approx(native)


def test_a_second_after_it_was_written_it_comes_home() -> None:
    made = from_trace(make_trace([Call(0, "write", 0, SIZE), Call(0, "write", 9 * MiB, SIZE)]))
    made.arrays["call"]["think"][1] = 3 * PERIOD
    found = simulate_online(made, STORAGE, CriticalWrites(), BASELINES[0])
    assert PERIOD < found.settled < 2 * PERIOD or found.moves == 2


def test_fragments_go_to_fewer_ssds_than_there_are_servers() -> None:
    """Of 65 KiB that begin where a strip does, the last KiB is a fragment."""
    calls = [Call(rank, "write", 4 * (rank * 8 + i) * STRIP, 65 * KiB) for rank in range(4) for i in range(8)]
    found = run(Fragments(), calls)
    assert found.moved["ssd"][0] == 32 * KiB
    assert found.moved["home"] == (32 * STRIP, 32 * KiB)


@pytest.mark.parametrize(
    ("start", "length", "cached"),
    [
        (0, STRIP, 0),  # a strip
        (0, 4 * STRIP, 0),
        (1, 5 * STRIP, 0),  # a server has two parts of it
        (KiB, 2 * KiB, 2 * KiB),  # random
        (STRIP - KiB, 3 * KiB, 3 * KiB),  # both parts
        (STRIP - KiB, STRIP + KiB, KiB),  # the head
        (STRIP, STRIP + KiB, KiB),  # the tail
        (STRIP - KiB, STRIP + 2 * KiB, 2 * KiB),  # both ends
    ],
)
def test_a_request_is_split_at_strips(start: int, length: int, cached: int) -> None:
    found = run(Fragments(), [Call(0, "write", start, length)])
    assert found.moved.get("ssd", (0, 0))[0] == cached
    assert found.moved["home"][0] == length - cached


def test_fragments_that_the_ssds_are_not_faster_for_stay() -> None:
    slow = replace(STORAGE, pools=(STORAGE.pools[0], replace(STORAGE.pools[1], startup=((0, 1.0),))))
    assert run(Fragments(), [Call(0, "write", STRIP, STRIP + KiB)], slow).moved["home"][0] == STRIP + KiB
