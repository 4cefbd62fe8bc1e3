"""The published map: read back what was published, refuse what is damaged, fold what redirected runs wrote."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pdla.accessmap import AccessMap
from pdla.catalog import Catalog, Component, Replica, open_catalog
from pdla.errors import FormatError
from pdla.layouts.striping import component_sizes, locate
from pdla.model import Layout, Loop, Signature
from pdla.replicator import mapfile
from pdla.replicator.identity import identity_of
from pdla.replicator.mapfile import publish, read_map, read_state
from tests.support.compilers import GCC, REPOSITORY, compiled
from tests.support.handmade_maps import renew

STATE_HEADER_SIZE = 32


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = open_catalog(f"sqlite:///{tmp_path}/home/catalog.db")
    yield catalog
    catalog.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "replicas.map"


def original(tmp_path: Path, name: str = "data", size: int = 65536) -> Path:
    file = tmp_path / name
    file.write_bytes(bytes(size))
    return file


def register(catalog: Catalog, file: Path, *loops: Loop, length: int = 16) -> Replica:
    """A valid replica as far as the catalog knows: its components are not looked at by publication."""
    pattern = Signature(str(file), "read", False, 0, length, loops, (0, 1), rank_loops=1)
    layout = Layout("disk", 2, 1, (64, 64), AccessMap.section(pattern))
    identity = identity_of(file)
    catalog.originals.set(file, identity)
    replica = catalog.replicas.begin(identity, pattern, AccessMap.from_signature(pattern), layout)
    components = [Component(Path(f"/pool/{n}/{replica.id}.{n}"), 100 + n, 7 + n, 99, 5) for n in range(2)]
    catalog.replicas.set_components(replica.id, components)
    return catalog.replicas.finish(replica.id, components, [[], []])


REGULAR = (Loop(1024, 2), Loop(64, 16))
IRREGULAR = (Loop(24, 2), Loop(32, 3))


def test_what_is_published_is_read_back(tmp_path: Path, catalog: Catalog, path: Path):
    first, second = original(tmp_path, "a"), original(tmp_path, "b")
    replicas = [
        register(catalog, first, *REGULAR),
        register(catalog, second, *IRREGULAR),
        register(catalog, first, Loop(0, 2)),
    ]
    published = publish(catalog, path)
    assert published == read_map(path)
    assert published.generation == 1
    assert published.state_path == tmp_path / "home" / "replicas.map.1.state"
    assert {entry.path: entry.identity for entry in published.originals} == {
        first: identity_of(first),
        second: identity_of(second),
    }
    got = {entry.id: entry for entry in published.replicas}
    assert sorted(got) == [1, 2, 3]
    assert got[2].access_map.extents is not None
    for replica in replicas:
        assert got[replica.id].access_map == replica.access_map
        assert got[replica.id].rule == replace(replica.layout, pool="")
        assert got[replica.id].components == tuple(replace(c, crc32c=0) for c in replica.components)
    assert read_state(published).stale == (0, 0, 0)


def test_only_the_owner_can_read_or_write_what_is_published(tmp_path: Path, catalog: Catalog, path: Path):
    published = publish(catalog, path)
    assert [file.stat().st_mode & 0o777 for file in (path, published.state_path)] == [0o600, 0o600]
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "catalog.db", "catalog.db-shm", "catalog.db-wal", "catalog.db.lock", "replicas.map", "replicas.map.1.state",
    ]  # fmt: skip


def test_what_is_published_is_durable_before_it_has_its_name(catalog: Catalog, path: Path, done_to_files):
    """The state file is durable before the map that names it."""
    publish(catalog, path)
    files = [("fsync", "replicas.map.1.state.tmp"), ("rename", "replicas.map.1.state"), ("fsync", "home")]
    files += [("fsync", "replicas.map.tmp"), ("rename", "replicas.map"), ("fsync", "home")]
    assert [one for one in done_to_files if one[0] != "unlink"] == files


def test_a_catalog_without_replicas_publishes_an_empty_map(catalog: Catalog, path: Path):
    assert publish(catalog, path).replicas == ()


def test_the_generation_grows_also_past_a_foreign_map(tmp_path: Path, catalog: Catalog, path: Path):
    assert [publish(catalog, path).generation for _ in range(3)] == [1, 2, 3]
    other = open_catalog(f"sqlite:///{tmp_path}/other.db")
    assert publish(other, path).generation == 4
    other.close()


def test_every_flipped_byte_is_refused(tmp_path: Path, catalog: Catalog, path: Path):
    file = original(tmp_path)
    register(catalog, file, *REGULAR)
    register(catalog, file, *IRREGULAR)
    publish(catalog, path)
    image = path.read_bytes()
    for at in range(len(image)):
        path.write_bytes(image[:at] + bytes([image[at] ^ 0x20]) + image[at + 1 :])
        with pytest.raises(FormatError, match="not a usable map"):
            read_map(path)


@pytest.mark.parametrize("at", [28, 32, 36, 40, 44])
def test_counts_and_offsets_that_lead_elsewhere_are_refused(tmp_path: Path, catalog: Catalog, path: Path, at: int):
    register(catalog, original(tmp_path), *REGULAR)
    publish(catalog, path)
    image = bytearray(path.read_bytes())
    for value in (0, 3, 8, 64, 1 << 20, 0xFFFFFFFF):
        if struct.unpack_from("<I", image, at)[0] != value:
            struct.pack_into("<I", image, at, value)
            renew(image)
            path.write_bytes(image)
            with pytest.raises(FormatError):
                read_state(read_map(path))


def test_a_truncated_map_is_refused(tmp_path: Path, catalog: Catalog, path: Path):
    register(catalog, original(tmp_path), *REGULAR)
    publish(catalog, path)
    image = path.read_bytes()
    for size in (0, 7, 63, 64, len(image) - 8, len(image) - 1):
        path.write_bytes(image[:size])
        with pytest.raises(FormatError):
            read_map(path)


def test_a_map_with_a_right_checksum_and_a_wrong_replica_is_refused(tmp_path: Path, catalog: Catalog, path: Path):
    replica = register(catalog, original(tmp_path), *REGULAR)
    publish(catalog, path)
    image = bytearray(path.read_bytes())
    at = struct.unpack_from("<I", image, 40)[0] + 32  # map_replica.size
    assert struct.unpack_from("<q", image, at)[0] == replica.size
    struct.pack_into("<q", image, at, replica.size + 1)
    renew(image)
    path.write_bytes(image)
    with pytest.raises(FormatError, match="should have 513 bytes but maps 512"):
        read_map(path)


@pytest.mark.parametrize("name", ["loops", "strips", "components", "section", "groups", "file", "path"])
def test_a_map_is_refused_if_only_the_last_of_many_replicas_is_wrong(
    tmp_path: Path, catalog: Catalog, path: Path, name: str
):
    for number in range(3):
        register(catalog, original(tmp_path, str(number)), *REGULAR)
    publish(catalog, path)
    image = bytearray(path.read_bytes())
    last = struct.unpack_from("<I", image, 40)[0] + 2 * mapfile.REPLICA.itemsize
    at = last + mapfile.REPLICA.fields["components" if name == "path" else name][1]
    if name == "path":  # of its first component
        at = struct.unpack_from("<I", image, struct.unpack_from("<I", image, at)[0])[0]
        assert image[at : at + 6] == b"/pool/"
    struct.pack_into("<I", image, at, 0 if name == "section" else 0xFFFFFFF8)
    renew(image)
    path.write_bytes(image)
    with pytest.raises(FormatError, match="not a usable map"):
        read_map(path)


def test_a_missing_map_is_refused(path: Path):
    with pytest.raises(FormatError, match="cannot read"):
        read_map(path)


def mark(map_path: Path, marks: bytes) -> None:
    """What a redirected run does before it writes."""
    published = read_map(map_path)
    with published.state_path.open("r+b") as state:
        state.seek(STATE_HEADER_SIZE + mapfile.STATE_FILE.itemsize * len(published.originals))
        state.write(marks)


def append(file: Path) -> None:
    with file.open("ab") as out:
        out.write(b"more")


def states(catalog: Catalog) -> list[tuple[str, str]]:
    return [(replica.state, replica.why) for replica in catalog.replicas.find()]


def test_a_replica_whose_bytes_a_run_wrote_is_stale_and_the_others_stay(tmp_path: Path, catalog: Catalog, path: Path):
    """What a run wrote may be in a cache: the original is as it was."""
    file = original(tmp_path)
    register(catalog, file, *REGULAR)
    register(catalog, file, *IRREGULAR)
    publish(catalog, path)
    mark(path, bytes([1, 0]))
    published = publish(catalog, path)
    assert states(catalog) == [("stale", "a redirected run wrote to the replicated bytes"), ("valid", "")]
    assert [replica.id for replica in published.replicas] == [2]


def test_h62_a_state_that_an_earlier_version_took_for_its_own_proves_nothing(
    tmp_path: Path, catalog: Catalog, path: Path
):
    """pdla 0.2.0 put into the state file how its writes left an original."""
    file = original(tmp_path)
    register(catalog, file, *REGULAR)
    published = publish(catalog, path)
    append(file)
    now = identity_of(file)
    with published.state_path.open("r+b") as state:
        state.seek(STATE_HEADER_SIZE)
        state.write(struct.pack("<qqqII", now.size, now.mtime_ns, now.ctime_ns, 0, 1))
    assert publish(catalog, path).replicas == ()
    assert states(catalog) == [("stale", "the original was changed")]


@pytest.mark.parametrize("change", [append, Path.unlink, lambda file: file.replace(file.with_name("elsewhere"))])
def test_replicas_of_an_original_changed_by_others_are_not_published(tmp_path, catalog: Catalog, path: Path, change):
    file = original(tmp_path)
    register(catalog, file, *REGULAR)
    change(file)
    assert publish(catalog, path).replicas == ()
    assert states(catalog) == [("stale", "the original was changed")]


def test_a_lost_state_file_leaves_replicas_of_untouched_originals(tmp_path: Path, catalog: Catalog, path: Path):
    register(catalog, original(tmp_path), *REGULAR)
    publish(catalog, path).state_path.unlink()
    assert len(publish(catalog, path).replicas) == 1


def random_replica(catalog: Catalog, file: Path, choose: random.Random) -> Replica:
    loops = [
        Loop(choose.choice([-40, -8, 0, 3, 8, 24, 64, 200]), choose.randint(1, 5)) for _ in range(choose.randint(0, 4))
    ]
    pattern = Signature(str(file), "read", False, 4000, choose.randint(1, 12), tuple(loops), (0,))
    strips = tuple(choose.randint(0, 5) for _ in range(choose.randint(1, 3)))
    groups = choose.randint(1, 3)
    layout = Layout(
        "disk", groups * len(strips), groups, strips if any(strips) else (1,) * len(strips), choose.randint(1, 40)
    )
    identity = identity_of(file)
    catalog.originals.set(file, identity)
    replica = catalog.replicas.begin(identity, pattern, AccessMap.from_signature(pattern), layout)
    components = [
        Component(Path(f"/pool/{n}/{replica.id}.{n}"), size)
        for n, size in enumerate(component_sizes(layout, replica.size))
    ]
    catalog.replicas.set_components(replica.id, components)
    return catalog.replicas.finish(replica.id, components, [[]] * len(components))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_the_c_library_finds_the_same_places(tmp_path: Path, catalog: Catalog, path: Path):
    stub = REPOSITORY / "replicator/stub"
    sources = [
        REPOSITORY / "tests/programs/stub_unit.c",
        *(stub / f"{name}.c" for name in ("mapfile", "crc32c", "locate", "freshness", "originals")),
    ]
    compiled([*GCC, "-std=gnu11", "-o", tmp_path / "unit", *sources, "-lpthread"])

    def ask(question: str, lines: list[str]) -> list[str]:
        command = [tmp_path / "unit", question, path]
        done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    file, choose = original(tmp_path, size=8192), random.Random(5)
    replicas = [random_replica(catalog, file, choose) for _ in range(60)]
    assert {replica.access_map.extents is None for replica in replicas} == {True, False}
    publish(catalog, path)
    lines, want = [], []
    for number, replica in enumerate(replicas):
        low, high = replica.access_map.extent
        for start in range(low - 2, high + 2):
            first = next(replica.access_map.locate(start, start + 9), None)
            lines.append(f"{number} {start} {start + 9}")
            want.append("-" if first is None else f"{first.offset} {first.length} {first.replica_offset}")
    assert ask("locate", lines) == want
    lines, want = [], []
    for number, replica in enumerate(replicas):
        for piece in locate(replica.layout, 0, replica.size):
            lines.append(f"{number} {piece.logical}")
            want.append([str(piece.component), str(piece.offset)])
    assert [line.split()[:2] for line in ask("strip", lines)] == want
