"""Replicas are built byte for byte, or not at all."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdla.accessmap import AccessMap, MapLoop
from pdla.catalog import Catalog, Purpose, Replica, State, open_catalog
from pdla.catalog.replicas import Replicas
from pdla.errors import BusyError, PdlaError
from pdla.layouts.striping import locate
from pdla.model import Candidate, Cluster, Cost, Identity, Layout, Loop, PatternPlan, Plan, Pool, Signature
from pdla.mounts import Mount, kind_of
from pdla.replicator import builder, identity, transpose
from pdla.replicator.backends.base import delete
from pdla.replicator.builder import UnbuiltError, build, replicate
from pdla.replicator.copying import Task
from pdla.replicator.mapfile import read_map
from pdla.replicator.transpose import runs
from pdla.replicator.verify import Removed, gc, verify

SERVERS = 4


@dataclass
class Place:
    """A PDLA_HOME with a catalog, a pool of four directories and an original of random bytes."""

    home: Path
    original: Path
    pool: Pool
    catalog: Catalog

    @property
    def content(self) -> bytes:
        return self.original.read_bytes()

    @property
    def components(self) -> list[Path]:
        """Every file in the pool."""
        return sorted(file for where in self.pool.where for file in Path(where).rglob("*") if file.is_file())

    def replica(self, replica_id: int) -> Replica:
        return self.catalog.replicas.get(replica_id)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    home = tmp_path / "home"
    monkeypatch.setenv("PDLA_HOME", str(home))
    original = tmp_path / "data"
    original.write_bytes(np.random.default_rng(1).bytes(1 << 20))
    where = tuple(str(home / "pools" / f"{n}") for n in range(SERVERS))
    pool = Pool("disks", "hdd", SERVERS, ((0, 0.0),), 1e-8, 1e-8, 1 << 30, 4096, "directories", where)
    catalog = open_catalog()
    yield Place(home, original, pool, catalog)
    catalog.close()


def pattern(place: Place, start: int, length: int, *loops: tuple[int, int], rank_loops: int = 1) -> Signature:
    ranks = int(np.prod([count for _, count in loops[:rank_loops]], dtype=int))
    return Signature(
        str(place.original),
        "read",
        True,
        start,
        length,
        tuple(Loop(*loop) for loop in loops),
        tuple(range(ranks)),
        rank_loops,
    )


def layout(signature: Signature, groups: int = 1, strips: tuple[int, ...] | None = None) -> Layout:
    width = SERVERS // groups
    return Layout("disks", SERVERS, groups, strips or (4096,) * width, AccessMap.section(signature))


def bytes_in_access_order(content: bytes, signature: Signature) -> bytes:
    offsets, _, lengths = signature.expand()
    pieces = zip(offsets.tolist(), lengths.tolist(), strict=True)
    order = dict.fromkeys(offset + j for offset, length in pieces for j in range(length))
    return bytes(content[at] for at in order if at < len(content))


def read_through_components(replica: Replica) -> bytes:
    files = [component.path.read_bytes() for component in replica.components]
    return b"".join(files[p.component][p.offset : p.offset + p.length] for p in locate(replica.layout, 0, replica.size))


TILES = (
    0,
    128,
    (262144, 2),
    (512, 2),
    (1024, 256),
)  # a 512 x 1024 matrix in 2 x 2 tiles; every rank a quarter of a row
COLUMNS = (16, 64, (64, 4), (1024, 1000))
GHOSTS = (0, 96, (64, 4), (1024, 300))
BACKWARDS = (1 << 19, 32, (4096, 4), (-64, 100))


@pytest.mark.parametrize("groups", [1, 2, 4], ids=["1-DH", "2-D", "1-DV"])
@pytest.mark.parametrize("shape", [TILES, COLUMNS, GHOSTS, BACKWARDS], ids=["tiles", "columns", "ghosts", "backwards"])
def test_a_replica_holds_the_bytes_in_the_order_of_access(place: Place, shape: tuple, groups: int):
    start, length, *loops = shape
    signature = pattern(place, start, length, *loops, rank_loops=2 if shape is TILES else 1)
    built = build(signature, layout(signature, groups), place.pool, place.catalog)
    replica = place.replica(built.id)
    assert replica.state == "valid"
    assert [component.path for component in replica.components] == place.components
    assert read_through_components(replica) == bytes_in_access_order(place.content, signature)
    assert verify(place.catalog, deep=True) == []


def test_uneven_strips_and_one_of_zero(place: Place):
    signature = pattern(place, *COLUMNS)
    built = build(signature, layout(signature, 1, (1000, 0, 300, 7)), place.pool, place.catalog)
    assert read_through_components(place.replica(built.id)) == bytes_in_access_order(place.content, signature)
    assert [component.size for component in place.replica(built.id).components].count(0) == 1


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    loops = draw(st.lists(st.tuples(st.integers(-300, 300), st.integers(1, 6)), max_size=4))
    low = sum(min(0, stride * (count - 1)) for stride, count in loops)
    return Signature(
        "f",
        "read",
        False,
        draw(st.integers(0, 20)) - low,
        draw(st.integers(1, 90)),
        tuple(Loop(*x) for x in loops),
        (0,),
    )


@settings(deadline=None)
@given(
    signatures(),
    st.sampled_from([1, 7, 64, 256, 1000, 1 << 20]),
    st.sampled_from([1, 10, 100, 1000]),
    st.sampled_from([1, 10, 100, 1000]),
)
def test_a_window_of_any_size_gives_every_byte_once(signature: Signature, window: int, hole: int, run_length: int):
    content = np.random.default_rng(2).bytes(signature.extent[1])
    file = os.memfd_create("original")
    try:
        os.write(file, content)
        access_map = AccessMap.from_signature(signature)
        got = np.zeros(access_map.size, dtype=np.uint8)
        seen = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transpose, "HOLE", hole)
            patch.setattr(transpose, "RUN", run_length)
            for run in runs(file, Path("f"), access_map, window):
                got[run.start : run.start + len(run.data)] = run.data
                seen += len(run.data)
    finally:
        os.close(file)
    assert seen == access_map.size
    assert got.tobytes() == bytes_in_access_order(content, signature)


def test_only_what_is_between_large_holes_is_read(place: Place):
    """Pieces 2 GiB apart in a sparse file of 16 GiB: read whole it would take far longer than the test may."""
    with place.original.open("r+b") as file:
        for at in range(8):
            file.seek((at << 31) + 5)
            file.write(bytes([at]) * 3)
    signature = pattern(place, 5, 3, (1 << 31, 8))
    built = build(signature, layout(signature), place.pool, place.catalog)
    assert read_through_components(place.replica(built.id)) == b"".join(bytes([at]) * 3 for at in range(8))


def test_checksums_are_those_of_the_components(place: Place):
    import google_crc32c

    signature = pattern(place, *COLUMNS)
    replica = place.replica(build(signature, layout(signature, 1, (1000, 0, 300, 7)), place.pool, place.catalog).id)
    for component, checksums in zip(replica.components, place.catalog.replicas.checksums(replica.id), strict=True):
        content = component.path.read_bytes()
        assert component.crc32c == google_crc32c.value(content)
        assert [google_crc32c.value(content[c.offset :][: c.length]) for c in checksums] == [
            c.crc32c for c in checksums
        ]


def test_components_have_the_mode_of_the_original_in_private_directories(place: Place):
    place.original.chmod(0o640)
    signature = pattern(place, *COLUMNS)
    build(signature, layout(signature), place.pool, place.catalog)
    assert {file.stat().st_mode & 0o777 for file in place.components} == {0o640}
    assert {file.parent.stat().st_mode & 0o777 for file in place.components} == {0o700}


def test_components_are_durable_before_they_are_read_back_and_before_they_have_their_names(place: Place, done_to_files):
    """Bytes that are not on the disk yet are read from memory, whatever the disk has."""
    signature = pattern(place, *COLUMNS)
    begun = {f"1.{number}.tmp" for number in range(SERVERS)}
    verified = []

    def progress(what: str, done: int, total: int) -> None:
        if what == "verifying" and not verified:
            verified.append({name for call, name in done_to_files if call == "fsync"})

    build(signature, layout(signature), place.pool, place.catalog, progress=progress)
    assert verified == [begun]
    named = [at for at, (call, _) in enumerate(done_to_files) if call == "rename"]
    assert [done_to_files[at][1] for at in named] == [f"1.{number}" for number in range(SERVERS)]
    # And again, for the owner, mode and access control list of the original.
    synced = [name for call, name in done_to_files[: named[0]] if call == "fsync"]
    assert sorted(synced) == sorted([*begun, *begun])
    assert [name for _, name in done_to_files[named[-1] + 1 :]] == [place.catalog.token] * SERVERS


def test_the_same_replica_is_not_built_twice(place: Place):
    signature = pattern(place, *COLUMNS)
    first = build(signature, layout(signature), place.pool, place.catalog)
    second = build(signature, layout(signature), place.pool, place.catalog)
    assert (first.id, first.kept, second.id, second.kept) == (1, False, 1, True)


def test_a_replica_of_a_changed_original_is_replaced(place: Place):
    signature = pattern(place, *COLUMNS)
    build(signature, layout(signature), place.pool, place.catalog)
    place.original.write_bytes(np.random.default_rng(3).bytes(1 << 20))
    built = build(signature, layout(signature), place.pool, place.catalog)
    assert [(replica.id, replica.state) for replica in place.catalog.replicas.find()] == [(2, "valid")]
    assert read_through_components(place.replica(built.id)) == bytes_in_access_order(place.content, signature)
    assert len(place.components) == SERVERS


def test_a_replica_that_lost_a_component_is_built_again(place: Place):
    signature = pattern(place, *COLUMNS)
    build(signature, layout(signature), place.pool, place.catalog)
    place.components[0].unlink()
    assert not build(signature, layout(signature), place.pool, place.catalog).kept
    assert verify(place.catalog, deep=True) == []


def plan_of(place: Place, *patterns: tuple[Signature, Layout | None]) -> Plan:
    nothing = Cost(0.0, 0.0, 0.0, 0.0)
    cluster = Cluster((place.pool,), "disks", SERVERS, 65536, 4, 0.0, 0.0, 0.0, "test")
    plans = tuple(
        PatternPlan(s, (Candidate("x", None, nothing), Candidate("disks", to, nothing)), int(to is not None), "")
        for s, to in patterns
    )
    return Plan("pdla-h", "app", plans, (), cluster)


def test_a_plan_is_built_and_published(place: Place):
    columns, tiles = pattern(place, *COLUMNS), pattern(place, *TILES, rank_loops=2)
    built = replicate(
        plan_of(place, (columns, layout(columns)), (tiles, None), (tiles, layout(tiles, 4))), place.catalog
    )
    assert [(b.id, b.layout.name, b.bytes) for b in built] == [(1, "1-DH", 256000), (2, "1-DV", 131072)]
    published = read_map(place.home / "replicas.map")
    assert [replica.id for replica in published.replicas] == [1, 2]
    assert published.replicas[0].components[0].path == place.replica(1).components[0].path


def test_a_new_layout_for_the_same_bytes_replaces_the_old_one(place: Place):
    signature = pattern(place, *COLUMNS)
    replicate(plan_of(place, (signature, layout(signature, 1))), place.catalog)
    replicate(plan_of(place, (signature, layout(signature, 4))), place.catalog)
    assert [(replica.id, replica.layout.name) for replica in place.catalog.replicas.find()] == [(2, "1-DV")]
    assert [replica.id for replica in read_map(place.home / "replicas.map").replicas] == [2]
    assert [file.name for file in place.components] == ["2.0", "2.1", "2.2", "2.3"]


def test_a_plan_whose_replicas_are_there_builds_none(place: Place, monkeypatch: pytest.MonkeyPatch):
    """They are looked for all at once: by themselves, 10,000 took hours."""
    columns, tiles = pattern(place, *COLUMNS), pattern(place, *TILES, rank_loops=2)
    plan = plan_of(place, (columns, layout(columns)), (tiles, layout(tiles, 4)))
    replicate(plan, place.catalog)
    monkeypatch.setattr("pdla.replicator.builder.build", lambda *_, **__: pytest.fail("built"))
    assert [(one.id, one.kept) for one in replicate(plan, place.catalog)] == [(1, True), (2, True)]


def test_a_build_reads_the_replicas_of_its_original_only(place: Place, monkeypatch: pytest.MonkeyPatch):
    """Those of all others took more time than the build."""
    asked, find = [], Replicas.find

    def noted(self: Replicas, *states: State, purpose: Purpose | None = None) -> list[Replica]:
        asked.append((states, purpose))
        return find(self, *states, purpose=purpose)

    monkeypatch.setattr(Replicas, "find", noted)
    signature = pattern(place, *COLUMNS)
    assert not build(signature, layout(signature), place.pool, place.catalog).kept
    assert asked and ((), None) not in asked


@pytest.mark.parametrize("spoil", ["original", "component"])
def test_a_plan_builds_again_what_is_not_as_it_was(place: Place, spoil: str):
    signature = pattern(place, *COLUMNS)
    plan = plan_of(place, (signature, layout(signature)))
    replicate(plan, place.catalog)
    (place.original if spoil == "original" else place.components[0]).write_bytes(bytes(1 << 20))
    assert [one.kept for one in replicate(plan, place.catalog)] == [False]
    assert verify(place.catalog, deep=True) == []


def assert_nothing_is_left(place: Place) -> None:
    assert place.components == []
    assert place.catalog.replicas.find() == []
    assert place.catalog.originals.all() == []


@pytest.mark.parametrize("moment", [0.0, 0.5, 1.0])
def test_h23_an_original_that_changes_while_it_is_copied_is_not_replicated(place: Place, moment: float):
    signature = pattern(place, 0, 1 << 18, (1 << 18, 4))

    def change(what: str, done: int, total: int) -> None:
        if done >= moment * total:
            with place.original.open("r+b") as file:
                file.write(b"other")

    with pytest.raises(PdlaError, match="changed while it was copied"):
        build(signature, layout(signature), place.pool, place.catalog, progress=change)
    assert_nothing_is_left(place)


def test_h23_an_original_that_is_replaced_while_it_is_copied_is_not_replicated(place: Place):
    signature = pattern(place, *COLUMNS)

    def change(what: str, done: int, total: int) -> None:
        other = place.original.with_name("other")
        other.write_bytes(bytes(1 << 20))
        other.rename(place.original)

    with pytest.raises(PdlaError, match="changed while it was copied"):
        build(signature, layout(signature), place.pool, place.catalog, progress=change)
    assert_nothing_is_left(place)


def test_an_original_that_shrinks_while_it_is_copied_is_not_replicated(place: Place):
    signature = pattern(place, 0, 1000, (1 << 26, 2))
    os.truncate(place.original, 1 << 27)

    def change(what: str, done: int, total: int) -> None:
        os.truncate(place.original, 5000)

    with pytest.raises(PdlaError, match=r"ended at byte|changed while it was copied"):
        build(signature, layout(signature), place.pool, place.catalog, progress=change)
    assert_nothing_is_left(place)


@pytest.mark.parametrize("size", [1 << 19, 300_007, 20])
@pytest.mark.parametrize("shape", [COLUMNS, GHOSTS], ids=["columns", "ghosts"])
def test_of_a_pattern_that_goes_on_behind_the_end_a_replica_holds_what_the_file_has(
    place: Place, shape: tuple, size: int
):
    signature = pattern(place, *shape)
    os.truncate(place.original, size)
    built = build(signature, layout(signature, 4), place.pool, place.catalog)
    replica = place.replica(built.id)
    assert read_through_components(replica) == bytes_in_access_order(place.content, signature)
    assert verify(place.catalog, deep=True) == []
    assert build(signature, layout(signature, 4), place.pool, place.catalog).kept


def test_sections_of_a_pattern_that_is_cut_stay_those_of_the_ranks(place: Place):
    """Otherwise the servers of one group would hold what is left of the parts of several ranks."""
    signature = pattern(place, *COLUMNS)
    os.truncate(place.original, 512 * 1024)
    built = build(signature, layout(signature, 4), place.pool, place.catalog)
    assert (built.bytes, built.layout.section) == (4 * 512 * 64, 512 * 64)
    assert len({component.size for component in place.replica(built.id).components}) == 1


def test_what_cannot_be_built_does_not_keep_the_rest_of_a_plan_from_being_built(place: Place):
    columns, tiles = pattern(place, *COLUMNS), pattern(place, *TILES, rank_loops=2)
    wrong = pattern(place, 1 << 20, 1, (1, 2)), pattern(place, 1 << 20, 2, (2, 2))
    plan = plan_of(place, *((one, layout(one)) for one in (wrong[0], columns, wrong[1], tiles)))
    for kept in (False, True):
        with pytest.raises(
            UnbuiltError, match=r"reaches byte 1048578 from byte 1048576 on: .*; .* reaches byte 1048580"
        ) as caught:
            replicate(plan, place.catalog)
        assert list(caught.value.problems) == list(wrong)
        assert [(one.bytes, one.kept) for one in caught.value.built] == [(256000, kept), (131072, kept)]
        assert [replica.id for replica in read_map(place.home / "replicas.map").replicas] == [1, 2]


def test_a_pattern_beyond_the_end_of_the_file_is_refused(place: Place):
    signature = pattern(place, 1 << 20, 1, (1, 2))
    with pytest.raises(PdlaError, match=r"has 1048576 bytes, but the pattern .* reaches byte 1048578"):
        build(signature, layout(signature), place.pool, place.catalog)
    assert_nothing_is_left(place)


def test_a_missing_original_is_refused(place: Place):
    place.original.unlink()
    signature = pattern(place, *COLUMNS)
    with pytest.raises(PdlaError, match=r"cannot read the original .*: No such file"):
        build(signature, layout(signature), place.pool, place.catalog)


def test_a_directory_or_pipe_is_refused(place: Place):
    place.original.unlink()
    place.original.mkdir()
    signature = pattern(place, *COLUMNS)
    with pytest.raises(PdlaError, match="is not a regular file"):
        build(signature, layout(signature), place.pool, place.catalog)


FINE, WHOLE = 10**18 + 1, 10**18
TICK, COARSE, APART = identity.TICK_SECONDS, identity.COARSE_SECONDS, identity.APART_SECONDS


@pytest.mark.parametrize(
    ("kind", "stamp_ns", "age", "waits"),
    [
        ("ext4", FINE, 0.01, [TICK]),
        ("ext4", FINE, -0.01, [TICK]),
        ("ext4", FINE, 0.1, []),
        ("ext4", WHOLE, 1.5, [COARSE]),
        ("ext4", WHOLE, 2.5, []),
        ("btrfs", FINE, 0.1, []),
        ("nfs4", FINE, 300, [TICK]),
        ("nfs4", FINE, -300, [TICK]),
        ("nfs4", WHOLE, 300, [COARSE]),
        ("nfs4", FINE, 700, []),
        ("lustre", WHOLE, 300, [COARSE + APART]),
        ("lustre", WHOLE, 700, []),
        ("fuse.unknown", FINE, 300, [TICK + APART]),
    ],
    ids=[
        *("young", "ahead of the clock", "old", "young in whole seconds", "old in whole seconds"),
        *("old without a device", "by a clock behind ours", "by a clock ahead of ours"),
        *("by another clock in whole seconds", "old by any clock"),
        *("by any client's clock", "old by any client's clock", "by nobody knows whose clock"),
    ],
)
def test_h63_the_identity_of_a_file_is_taken_when_any_later_change_alters_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: str, stamp_ns: int, age: float, waits: list[float]
):
    """A write in the same tick of the file system's clock as the previous one would not change the times.

    The clock of a network file system is that of its server, or of each client.
    """
    seen = Identity(1, 2, 100, stamp_ns, stamp_ns)
    assert stable(place, monkeypatch, kind, stamp_ns / 1e9 + age, lambda _: seen) == (seen, waits)


def test_h63_a_time_that_a_program_has_set_says_nothing_about_later_changes(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    """Into the past or the future, or to a whole second: the ctime counts."""
    for mtime_ns in (0, 2 * WHOLE):
        seen = Identity(1, 2, 100, mtime_ns, FINE)
        assert stable(place, monkeypatch, "ext4", FINE / 1e9 + 0.01, lambda _, seen=seen: seen) == (seen, [TICK])


def test_h63_a_file_that_changes_while_its_clock_ticks_is_looked_at_again(place: Place, monkeypatch):
    states = [Identity(1, 2, size, FINE, FINE) for size in (100, 200, 200)]
    assert stable(place, monkeypatch, "ext4", FINE / 1e9, lambda _: states.pop(0)) == (
        Identity(1, 2, 200, FINE, FINE),
        [TICK, TICK],
    )
    sizes = itertools.count()
    with pytest.raises(BusyError, match="is changed again and again"):
        stable(place, monkeypatch, "ext4", FINE / 1e9, lambda _: Identity(1, 2, next(sizes), FINE, FINE))


def stable(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: str, now: float, look: Callable[[int], Identity]
) -> tuple[Identity, list[float]]:
    """The identity that is taken on a file system of this kind, and the waits for it."""
    slept: list[float] = []
    monkeypatch.setattr(identity.time, "time", lambda: now)
    monkeypatch.setattr(identity.time, "sleep", slept.append)
    monkeypatch.setattr(identity, "identity_of", look)
    monkeypatch.setattr(identity, "mount_of", lambda _: Mount(Path("/"), kind, "device"))
    with place.original.open("rb") as file:
        return identity.stable_identity(file.fileno(), place.original), slept


def test_h63_a_store_to_memory_that_was_mapped_before_the_copy_is_seen_after_it(place: Place):
    """Only the first store to a page since it was written out is stamped."""
    with place.original.open("r+b") as file, mmap(file.fileno(), 0) as mapped:
        mapped[0] ^= 1
        found = identity.stable_identity(file.fileno(), place.original)
        if kind_of(found.device) == "tmpfs":
            pytest.skip("tmpfs stamps no stores to mapped memory")
        mapped[0] ^= 1
        assert identity.identity_of(file.fileno()) != found


def test_an_original_whose_device_fails_has_no_identity(place: Place, monkeypatch: pytest.MonkeyPatch):
    def fails(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(identity.os, "fdatasync", fails)
    signature = pattern(place, *COLUMNS)
    with pytest.raises(PdlaError, match=r"cannot make sure that .* is as it seems: Input/output error"):
        build(signature, layout(signature), place.pool, place.catalog)


def test_h30_no_space_leaves_nothing(place: Place):
    """A limit on the size of files stands for a full disk: posix_fallocate fails in the same way."""
    signature = pattern(place, 0, 1 << 18, (1 << 18, 4))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((1 << 18) - 1, hard))
    try:
        with pytest.raises(PdlaError, match=r"no space for 256 KiB in .*: File too large"):
            build(signature, layout(signature), place.pool, place.catalog)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert_nothing_is_left(place)


def test_a_pool_takes_no_more_than_its_capacity(place: Place):
    from dataclasses import replace

    signature = pattern(place, *COLUMNS)
    small = replace(place.pool, capacity=300_000)
    build(signature, layout(signature), small, place.catalog)
    other = pattern(place, 0, 64, (64, 4), (1024, 900))
    with pytest.raises(PdlaError, match=r"no room for 248 KiB of a replica: pool disks has 38\.5 KiB left"):
        build(other, layout(other), small, place.catalog)
    assert len(place.catalog.replicas.find()) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from pdla.catalog import open_catalog
from pdla.model import *
from pdla.replicator import builder
from pdla.replicator.mapfile import publish

where, original, moment = sys.argv[1:4]
pool = Pool("disks", "hdd", 4, ((0, 0.0),), 1e-8, 1e-8, 1 << 30, 4096, "directories", tuple(where.split(":")))
signature = Signature(original, "read", True, 0, 64, (Loop(64, 4), Loop(256, 4096)), (0, 1, 2, 3), 1)

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def progress(what, done, total):
    if what.startswith(moment):
        die()

catalog = open_catalog()
if moment == "finishing":  # after the components have their final names, before the catalog says valid
    type(catalog.replicas).finish = die
builder.build(signature, Layout("disks", 4, 1, (4096,) * 4, 262144), pool, catalog, progress=progress)
"""


@pytest.mark.parametrize("moment", ["copying", "verifying", "finishing"])
def test_h32_a_killed_build_leaves_litter_that_gc_removes(place: Place, moment: str):
    done = subprocess.run([sys.executable, "-c", KILLED, ":".join(place.pool.where), place.original, moment])
    assert done.returncode == -signal.SIGKILL
    assert [replica.state for replica in place.catalog.replicas.find()] == ["building"]
    assert len(place.components) == SERVERS
    assert gc(place.catalog) == Removed(1 << 20, ())
    assert_nothing_is_left(place)
    assert read_map(place.home / "replicas.map").replicas == ()


def test_h32_a_killed_build_does_not_hinder_the_next(place: Place):
    subprocess.run([sys.executable, "-c", KILLED, ":".join(place.pool.where), place.original, "verifying"])
    signature = pattern(place, 0, 64, (64, 4), (256, 4096))
    built = build(signature, layout(signature), place.pool, place.catalog)
    assert [(replica.id, replica.state) for replica in place.catalog.replicas.find()] == [(built.id, "valid")]
    assert len(place.components) == SERVERS


def test_h36_two_builds_at_once_are_refused(place: Place):
    """Of one original: the second names who works on it, and gc keeps what the first one is building."""
    signature = pattern(place, *COLUMNS)
    other = open_catalog()

    def meanwhile(what: str, done: int, total: int) -> None:
        with pytest.raises(BusyError, match=rf":{os.getpid()}:\S+ works on {place.original}: wait for it$"):
            build(signature, layout(signature), place.pool, other)
        assert gc(other) == Removed(0, ())

    built = build(signature, layout(signature), place.pool, place.catalog, progress=meanwhile)
    assert verify(place.catalog) == []
    assert [replica.id for replica in other.replicas.find("valid")] == [built.id]
    other.close()


def test_h36_a_build_whose_lease_was_lost_leaves_nothing(place: Place):
    """Like a process that was stopped for longer than its lease lasts, while another one did the same work."""
    signature = pattern(place, *COLUMNS)
    others: list[int] = []

    def meanwhile(what: str, done: int, total: int) -> None:
        if not others:
            catalog = open_catalog()
            for lease in catalog.leases.all():
                catalog.leases.release(lease)
            others.append(build(signature, layout(signature), place.pool, catalog).id)
            catalog.close()

    with pytest.raises(PdlaError, match=f"^another process has taken over the work on {place.original}: this process"):
        build(signature, layout(signature), place.pool, place.catalog, progress=meanwhile)
    assert [(replica.id, replica.state) for replica in place.catalog.replicas.find()] == [(others[0], "valid")]
    assert len(place.components) == SERVERS
    assert verify(place.catalog) == []


def test_h36_a_build_whose_files_were_removed_with_its_lease_was_taken_over(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    """It is no error for which the pattern would wait: the other process has built the replica."""
    signature = pattern(place, *COLUMNS)
    copy = builder.copy_together

    def taken_over(task: Task, *rest: Any) -> Any:
        for lease in place.catalog.leases.all():
            place.catalog.leases.release(lease)
        for component in task.components:
            delete(component.path)
        return copy(task, *rest)

    monkeypatch.setattr(builder, "copy_together", taken_over)
    with pytest.raises(BusyError, match=f"^another process has taken over the work on {place.original}: this process"):
        build(signature, layout(signature), place.pool, place.catalog)
    assert place.catalog.replicas.find() == []


def test_columns_of_a_matrix_are_not_written_piece_by_piece():
    """32768 rows of 32 KiB, read in columns of 64 bytes: a block is 512 whole rows, its runs are of 32 KiB."""
    columns = AccessMap.from_signature(Signature("f", "read", False, 0, 64, (Loop(64, 512), Loop(32768, 32768)), (0,)))
    loops = (*columns.loops, MapLoop(64, 1, 1))
    assert columns.loops == (MapLoop(32768, 32768, 64), MapLoop(512, 64, 2097152))
    assert transpose._block_counts(loops, transpose.WINDOW) == [512, 512, 64]


def test_sixty_four_byte_pieces_are_transposed_in_memory(place: Place):
    """64 MiB in 64-byte pieces are a million; no function is called for a single piece."""
    with place.original.open("wb") as file:
        file.write(np.random.default_rng(4).bytes(1 << 26))
    signature = pattern(place, 0, 64, (64, 4), (256, 1 << 18))
    calls = itertools.count()
    sys.setprofile(lambda *_: next(calls))
    try:
        built = build(signature, layout(signature, 1, (65536,) * 4), place.pool, place.catalog)
    finally:
        sys.setprofile(None)
    assert next(calls) < 500_000
    expected = np.frombuffer(place.content, dtype=np.uint8).reshape(-1, 4, 64).transpose(1, 0, 2).tobytes()
    assert read_through_components(place.replica(built.id)) == expected
