"""The room of SSD servers is for all programs together, and may shrink or vanish while they run."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pdla.replicator.reservations import remove_unused_nodes
from tests.support.cached_writes import IMMEDIATE, Case, Ran
from tests.support.critical_requests import ALL, costs, left_on_servers
from tests.support.waiting import wait_until

PIECE = 19200
"""Bytes that a rank writes in a step."""
PAGE = 8192
"""What a file may take beyond its bytes, and some more."""
MANY = [f"write:{i}" for i in range(8)]


def variables(case: Case, capacity: int) -> dict[str, str]:
    return {**case.variables(IMMEDIATE), **costs(case, ALL, PDLA_SSD_BYTES=str(capacity))}


def cache_files(case: Case) -> list[Path]:
    """Those of nodes; RATIONALE: unlike a glob, a walk does not fail if a node's directory goes meanwhile."""
    servers = sorted(case.directory.glob("ssd*"))
    found = [(at, name) for server in servers for at, _, names in os.walk(server) for name in names]
    return sorted(Path(at) / name for at, name in found if at.endswith(".node") and name.endswith(".cache"))


def stats(case: Case) -> list[os.stat_result]:
    """Of the cache files; some may go meanwhile."""
    found = []
    for path in cache_files(case):
        with suppress(FileNotFoundError):
            found.append(path.stat())
    return found


def reserved(case: Case) -> int:
    """By all processes."""
    return sum(stat.st_size for stat in stats(case))


@contextmanager
def running(case: Case, capacity: int, *steps: str, ranks: int = 3) -> Iterator[Future[Ran]]:
    """A run in the background, which has cached something."""
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(case.run, variables(case, capacity), *steps, ranks=ranks)
        wait_until(lambda: [stat.st_size > 0 for stat in stats(case)] == ranks * [True])
        yield ran
        ran.result()


def test_two_programs_never_hold_more_than_the_capacity(case: Case) -> None:
    """Each could fill it alone, and each gets a part."""
    capacity = 12 * PIECE
    native = case.natively(*MANY)
    case.original.unlink()
    other = replace(case, directory=case.directory / "other")
    other.directory.mkdir()
    shared = {**variables(other, capacity), "PDLA_SSD_PATH": variables(case, capacity)["PDLA_SSD_PATH"]}
    most = 0
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(case.run, variables(case, capacity), *MANY, "nap:300")]
        runs += [pool.submit(other.run, shared, *MANY, "nap:300")]
        while not all(run.done() for run in runs):
            sizes = [stat.st_blocks * 512 for stat in stats(case)]
            assert sum(sizes) <= capacity + PAGE * len(sizes)
            most = max(most, sum(sizes))
    assert most > capacity / 4
    for run in runs:
        ran = run.result()
        assert ran.bytes == native.bytes and ran.total("written", "bytes") > 0


def test_a_program_does_not_choose_the_capacity(case: Case) -> None:
    """By hints that it has for E10."""
    hints = case.directory / "hints"
    hints.write_text(f"cache_bytes {1 << 40}\n")
    ran = case.run({**variables(case, 6 * PIECE), "ROMIO_HINTS": str(hints)}, *MANY, "nap:100", ranks=1)
    assert 0 < ran.total("written", "bytes") <= 6 * PIECE and "no room in the cache" in ran.passed


def test_what_is_borrowed_is_given_back(case: Case) -> None:
    """A process alone has half of the room and borrows most of the rest, until its bytes are home."""
    capacity = 16 * PIECE
    with running(case, capacity, *(f"write:{i}" for i in range(13)), "nap:4000", ranks=1) as ran:
        wait_until(lambda: reserved(case) > capacity // 2)
        wait_until(lambda: 0 < reserved(case) <= capacity // 2)
        assert not ran.done()
    assert ran.result().total("written", "bytes") == 13 * PIECE


def test_the_last_of_the_room_is_not_borrowed(case: Case) -> None:
    """A program that comes later finds room, and the one that holds more than its share stops caching."""
    capacity = 64 * PIECE
    other = replace(case, directory=case.directory / "other")
    other.directory.mkdir()
    shared = {**variables(other, capacity), "PDLA_SSD_PATH": variables(case, capacity)["PDLA_SSD_PATH"]}
    most = 0
    with running(case, capacity, *(f"write:{i}" for i in range(60)), "nap:1500", ranks=1):
        (mine,) = cache_files(case)
        wait_until(lambda: mine.stat().st_size > 32 * PIECE)
        with ThreadPoolExecutor(1) as pool:
            later = pool.submit(other.run, shared, *MANY[:2], ranks=3)
            while not later.done():
                with suppress(FileNotFoundError):
                    most = max(most, mine.stat().st_size)
                time.sleep(0.001)
    assert later.result().total("written", "bytes") == 6 * PIECE
    # It holds 56 pieces at most. A piece more is there for a moment, until it has counted all files.
    assert most <= 57 * PIECE


def test_a_program_that_writes_on_gives_back_what_others_are_due(case: Case) -> None:
    """Its share gets smaller when others come, though it reserves nothing more."""
    capacity = 64 * PIECE
    other = replace(case, directory=case.directory / "other")
    other.directory.mkdir()
    shared = {**variables(other, capacity), "PDLA_SSD_PATH": variables(case, capacity)["PDLA_SSD_PATH"]}
    steady = [step for i in range(60) for step in (f"write:{i % 40}", "nap:80")]
    with running(case, capacity, *(f"write:{i}" for i in range(40)), *steady, ranks=1) as ran:
        (mine,) = cache_files(case)
        with ThreadPoolExecutor(1) as pool:
            later = pool.submit(other.run, shared, *MANY, "nap:4000", ranks=3)
            wait_until(lambda: len(cache_files(case)) == 4)
            assert mine.stat().st_size > capacity // 4
            wait_until(lambda: 0 < mine.stat().st_size <= capacity // 5)
            assert not later.done() and not ran.done()
            # A call of three ranks that comes before enough has been given back goes to the original.
            assert later.result().total("written", "bytes") >= 18 * PIECE


def node(case: Case, server: int, name: str = "") -> Path:
    """The directory of a node, by default of this one, on an SSD server."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    directory = case.directory / f"ssd{server}"
    return directory / f"pdla-{name or boot}-{directory.stat().st_dev:x}-{os.geteuid()}.node"


def says_what_is_reserved(directory: Path) -> bool:
    """The link follows the first file, and files may go meanwhile."""
    with suppress(FileNotFoundError):
        sizes = [one.stat().st_size for one in directory.glob("*.cache")]
        return str((directory / "reserved").readlink()) == f"{sum(sizes)}:{len(sizes)}"
    return False


def test_a_node_says_what_its_processes_have_reserved(case: Case) -> None:
    """In a link in their directory, which others can read whatever the umask."""
    mask = os.umask(0o077)
    try:
        with running(case, 64 * PIECE, "write:0", "nap:1500", "write:1") as ran:
            for server, processes in enumerate((2, 1)):
                directory = node(case, server)
                wait_until(partial(says_what_is_reserved, directory))
                assert len(list(directory.glob("*.cache"))) == processes and directory.stat().st_mode & 0o777 == 0o755
            assert not ran.done()
    finally:
        os.umask(mask)
    assert left_on_servers(case) == [[], []]


@pytest.mark.parametrize(
    ("link", "file", "cached"),
    [
        (f"{60 * PIECE}:2", 0, 4),
        ("0:0", 60, 8),
        (None, 60, 4),
        ("x", 60, 4),
        ("-1:2", 60, 4),
        (f"{60 * PIECE}:", 60, 4),
    ],
)
def test_what_other_nodes_have_reserved_counts(case: Case, link: str | None, file: int, cached: int) -> None:
    """As their link says or, if none says it, as their files say."""
    settings = variables(case, 64 * PIECE)
    other = node(case, 1, "other")
    other.mkdir()
    if link is not None:
        (other / "reserved").symlink_to(link)
    with (other / "pdla-one.cache").open("wb") as cache:
        cache.truncate(file * PIECE)
    ran = case.run(settings, *MANY, "nap:300", ranks=1)
    assert ran.total("written", "bytes") == cached * PIECE
    assert left_on_servers(case) == [[], ["pdla-one.cache"]] and list(node(case, 0).iterdir()) == []


def test_h59_the_directory_of_a_node_stays_when_it_is_empty(case: Case) -> None:
    ran = case.run({**case.variables(IMMEDIATE), **costs(case, ALL)}, *MANY, ranks=1)
    assert ran.total("written", "bytes") > 0
    assert node(case, 0).is_dir() and left_on_servers(case) == [[], []]


def test_what_a_node_left_is_removed_after_a_day(tmp_path: Path) -> None:
    """Empty directories of this user's: a node that makes its own anew may wait for seconds."""
    mine, before = f"-{os.geteuid()}.node", time.time() - 90_000
    for name in (f"pdla-new{mine}", f"pdla-old{mine}", f"pdla-used{mine}", "pdla-old-12345.node"):
        (tmp_path / name).mkdir()
    (tmp_path / f"pdla-used{mine}/pdla-one.cache").touch()
    for one in tmp_path.iterdir():
        if "new" not in one.name:
            os.utime(one, (before, before))
    remove_unused_nodes([str(tmp_path), str(tmp_path / "missing")])
    left = {one.name for one in tmp_path.iterdir()}
    assert left == {f"pdla-new{mine}", f"pdla-used{mine}", "pdla-old-12345.node"}


def test_a_stopped_process_does_not_hold_up_the_others_of_its_node(case: Case) -> None:
    """They do not cache as long as it keeps the node's directory to itself."""
    native = case.natively(*MANY, ranks=1)
    case.original.unlink()
    settings = variables(case, 64 * PIECE)
    node(case, 0).mkdir()
    directory = os.open(node(case, 0), os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        ran = case.run(settings, *MANY, ranks=1)
    finally:
        os.close(directory)
    assert ran.bytes == native.bytes
    assert ran.total("written", "bytes") == 0 and "no room in the cache" in ran.passed
    assert left_on_servers(case) == [[], []]


def squeeze(case: Case) -> None:
    """As if another program took all room."""
    with (case.directory / "ssd1/pdla-other.cache").open("wb") as file:
        file.truncate(1 << 40)


def remove(case: Case) -> None:
    for i in range(2):
        while (server := case.directory / f"ssd{i}").exists():
            shutil.rmtree(server, ignore_errors=True)  # the program makes and removes links there


@pytest.mark.parametrize("accident", [squeeze, remove])
@pytest.mark.thorough(2)
def test_a_pool_that_shrinks_or_vanishes_costs_no_bytes(any_case: Case, accident: Callable[[Case], None]) -> None:
    """What is in the cache comes home; what comes later goes to the original."""
    steps = ["write:0", "again:0", "nap:400", "read:0", *MANY[1:], "read:7", "again:3", "reopen", "write:8", "other:3"]
    native = any_case.natively(*steps)
    any_case.original.unlink()
    with running(any_case, 9 * PIECE, *steps) as ran:
        accident(any_case)
    assert ran.result().bytes == native.bytes and ran.result().seen == native.seen
    assert "no room in the cache" in ran.result().passed
    if accident == squeeze:
        assert left_on_servers(any_case) == [[], ["pdla-other.cache"]]
