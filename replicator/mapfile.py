"""The published map and its state file, byte for byte as replicator/stub/mapfile.h defines them.

Only ``publish`` writes the map. Redirected runs read it and write to the state file; ``fold`` takes
what they wrote there into the catalog.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise, starmap
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from pdla import config
from pdla.accessmap import AccessMap, MapLoop
from pdla.answers import unanswered
from pdla.catalog import Catalog, Component, Mapped, Replica
from pdla.errors import FormatError, PdlaError
from pdla.file_kinds import other_format
from pdla.model import Identity, Layout
from pdla.replicator.backends.base import sync_directory
from pdla.replicator.identity import is_at
from pdla.replicator.journals import bytes_waiting, paths_in
from pdla.replicator.write_targets import directory_identity, journals_of, target_of
from pdla.units import format_bytes

MAGIC = b"PDLAMAP4"
STATE_MAGIC = b"PDLASTA1"

HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("total_size", "<u8"),
        ("generation", "<u8"),
        ("checksum", "<u4"),
        ("file_count", "<u4"),
        ("replica_count", "<u4"),
        ("files_offset", "<u4"),
        ("replicas_offset", "<u4"),
        ("state_path", "<u4"),
        ("target_count", "<u4"),
        ("targets_offset", "<u4"),
        ("reserved", "<u4", 2),
    ]
)
CHECKSUM_AT = 24
_ENTRY_FIELDS = ["first_replica", "replica_count", "body", "body_size", "checksum"]
_ENTRY = [(name, "<u4") for name in _ENTRY_FIELDS]
FILE = np.dtype(
    [
        ("device", "<u8"),
        ("inode", "<u8"),
        ("size", "<i8"),
        ("mtime_ns", "<i8"),
        ("ctime_ns", "<i8"),
        *_ENTRY,
        ("path", "<u4"),
    ]
)
TARGET = np.dtype(
    [
        ("device", "<u8"),
        ("inode", "<u8"),
        *_ENTRY,
        ("name", "<u4"),
        ("path", "<u4"),
        ("journals", "<u4"),
    ]
)
COMPONENT = np.dtype([("path", "<u4"), ("reserved", "<u4"), ("inode", "<u8"), ("size", "<i8"), ("mtime_ns", "<i8")])
_COMPONENT = struct.Struct("<IIQqq")
REPLICA = np.dtype(
    [
        ("id", "<u8"),
        ("start", "<i8"),
        ("length", "<i8"),
        ("replica_start", "<i8"),
        ("size", "<i8"),
        ("section", "<i8"),
        ("loop_count", "<u4"),
        ("loops", "<u4"),
        ("extent_count", "<u4"),
        ("extents", "<u4"),
        ("servers", "<u4"),
        ("groups", "<u4"),
        ("strips", "<u4"),
        ("components", "<u4"),
        ("file", "<u4"),
        ("reserved", "<u4"),
    ]
)
STATE_HEADER = np.dtype(
    [("magic", "S8"), ("generation", "<u8"), ("file_count", "<u4"), ("replica_count", "<u4"), ("reserved", "<u8")]
)
PLACES = np.dtype(("<u8", 64))
"""In the state file: when the storage of components did not answer (replicator/stub/storage.h)."""
STATE_FILE = np.dtype([("reserved", "<u8", 4)])
_ROW = np.dtype(("<i8", 3))  # of struct map_loop and struct map_extent
_STRIP = np.dtype("<i8")

STALE_WHY = {1: "a redirected run wrote to the replicated bytes", 2: "the original was changed"}
CHANGED = STALE_WHY[2]


@dataclass(frozen=True)
class MapReplica:
    """A replica in the map: the rule of its striping over the components, without the pool."""

    id: int
    access_map: AccessMap
    rule: Layout
    components: tuple[Component, ...]


@dataclass(frozen=True)
class MapOriginal:
    """A file with replicas in the map."""

    path: Path
    identity: Identity
    replicas: tuple[MapReplica, ...]


@dataclass(frozen=True)
class MapTarget:
    """A file whose writes may go to replicas: its directory's device and inode, and where its journals are."""

    path: Path
    device: int
    inode: int
    journals: Path
    replicas: tuple[MapReplica, ...]


@dataclass(frozen=True)
class MapFile:
    """A map file whose every entry was checked; entries become objects when they are asked for."""

    generation: int
    state_path: Path
    image: bytes

    @cached_property
    def originals(self) -> tuple[MapOriginal, ...]:
        """The files whose reads have replicas, by inode and device."""
        image, tables = self.image, _tables(self.image)
        return tuple(
            MapOriginal(_text(image, file["path"]), _identity(file), self._replicas(file)) for file in tables.files
        )

    @cached_property
    def targets(self) -> tuple[MapTarget, ...]:
        """The files whose writes have replicas."""
        image, tables = self.image, _tables(self.image)
        return tuple(
            MapTarget(
                *(_text(image, target["path"]), int(target["device"]), int(target["inode"])),
                *(_text(image, target["journals"]), self._replicas(target)),
            )
            for target in tables.targets
        )

    def _replicas(self, owner: Any) -> tuple[MapReplica, ...]:
        first = int(owner["first_replica"])
        rows = _tables(self.image).replicas[first : first + int(owner["replica_count"])]
        return tuple(_parse_replica(self.image, row) for row in rows)

    @property
    def replicas(self) -> tuple[MapReplica, ...]:
        """All replicas, in the order of the state file's bytes."""
        owners: tuple[MapOriginal | MapTarget, ...] = (*self.originals, *self.targets)
        return tuple(replica for owner in owners for replica in owner.replicas)


@dataclass(frozen=True)
class StateFile:
    """What redirected runs changed since the publication: enum state_stale for each replica, in the map's order."""

    generation: int
    stale: tuple[int, ...]


class _Image:
    """The bytes of a map under construction, after ``size`` for its first tables; sections are aligned to 8."""

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)

    def append(self, section: bytes) -> int:
        """Append a section, and return its offset."""
        offset = len(self.data)
        self.data += section + bytes(-len(section) % 8)
        if len(self.data) >= 1 << 32:
            raise PdlaError("the map would be larger than 4 GiB: remove replicas of irregular patterns (pdla rm)")
        return offset

    def text(self, path: str | Path) -> int:
        return self.append(os.fsencode(path) + b"\0")

    def put(self, offset: int, values: Sequence[tuple[Any, ...]], kind: np.dtype[Any]) -> None:
        """Put a table where there is room for it."""
        section = np.array(values, dtype=kind).tobytes()
        self.data[offset : offset + len(section)] = section


def publish(catalog: Catalog, path: Path | None = None) -> MapFile:
    """Publish the valid replicas of unchanged originals for redirected runs: a new map at ``path``, by rename.

    What earlier runs wrote to the state file is first folded into the catalog.

    Raises:
        PdlaError: another process is changing the replicas, or the map cannot be written.
    """
    path = path or config.map_path()
    with catalog.exclusive():
        fold(catalog, path)
        generation = catalog.next_generation(_generation_of(path) + 1)
        replicas = sorted(catalog.replicas.mapped(), key=_file_order)
        by_file = [list(group) for _, group in groupby(replicas, key=_file_order)]
        targets = _targets(catalog, path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            state_path = path.with_name(f"{path.name}.{generation}.state").absolute()
            for target in targets:
                target.journals.mkdir(parents=True, exist_ok=True, mode=0o700)
            written = sum(len(target.replicas) for target in targets)
            _replace(state_path, _state_image(generation, len(by_file), len(replicas) + written))
            _replace(path, _map_image(generation, state_path, by_file, targets))
        except OSError as error:
            raise PdlaError(f"cannot publish the map {path}: {error}") from error
    return read_map(path)


def _written(replicas: Iterable[Replica]) -> dict[Path, list[Replica]]:
    """The replicas for writes, by target."""
    found: dict[Path, list[Replica]] = {}
    for replica in replicas:
        found.setdefault(target_of(replica), []).append(replica)
    return found


class _Target(NamedTuple):
    """A file whose writes have replicas: its directory's identity, and where its journals are."""

    path: Path
    directory: Identity
    journals: Path
    replicas: list[Mapped]


_NO_DIRECTORY = Identity(0, 0, 0, 0, 0)


def _targets(catalog: Catalog, map_path: Path) -> list[_Target]:
    """The files whose writes have replicas, in the map's order."""
    targets = []
    for path, group in _written(catalog.replicas.find("valid", "dirty", purpose="write")).items():
        journals = journals_of(map_path, path)
        try:
            directory = directory_identity(path)
        except PdlaError:  # it is gone: nothing is written there
            if not any(paths_in(journals)):
                continue
            directory = _NO_DIRECTORY  # bytes may wait for a file that was moved with it
        targets.append(_Target(path, directory, journals, [replica.mapped for replica in group]))
    return sorted(targets, key=lambda one: (*_order(one.directory), os.fsencode(one.path.name)))


def _order(identity: Identity) -> tuple[int, int]:
    return identity.inode, identity.device


def _file_order(replica: Mapped) -> tuple[int, int]:
    return _order(replica.identity)


def _generation_of(path: Path) -> int:
    """Of the map at ``path``; 0 if there is none, or it is damaged."""
    try:
        return int(_header(_read(path))["generation"])
    except (ValueError, IndexError, FormatError):
        return 0


def _replace(path: Path, image: bytes) -> None:
    """Replace ``path`` by a file of mode 0600, durably and all at once."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(image)
        file.flush()
        os.fsync(descriptor)
    temporary.rename(path)
    sync_directory(path.parent)


def _map_image(generation: int, state_path: Path, by_file: list[list[Mapped]], by_target: list[_Target]) -> bytes:
    """Header, files, targets and what finds them; the table of replicas; then the body of each entry."""
    files_at = HEADER.itemsize
    targets_at = files_at + FILE.itemsize * len(by_file)
    image = _Image(targets_at + TARGET.itemsize * len(by_target))
    state_at = image.text(state_path)
    names = [
        (image.text(target.path.name), image.text(target.path), image.text(target.journals)) for target in by_target
    ]
    counts = [*map(len, by_file), *(len(target.replicas) for target in by_target)]
    replicas_at = image.append(bytes(REPLICA.itemsize * sum(counts)))
    rows, paths, bodies = [], [], [len(image.data)]
    for index, group in enumerate(by_file):
        paths.append(image.text(group[0].path))
        rows += [_replica_row(image, replica, index) for replica in group]
        bodies.append(len(image.data))
    for index, target in enumerate(by_target):
        rows += [_replica_row(image, replica, index) for replica in target.replicas]
        bodies.append(len(image.data))
    image.put(replicas_at, rows, REPLICA)
    entries = list(_entries(image.data, replicas_at, counts, bodies))
    identities = [group[0].identity for group in by_file]
    files = [
        (one.device, one.inode, one.size, one.mtime_ns, one.ctime_ns, *entry, path)
        for one, entry, path in zip(identities, entries[: len(by_file)], paths, strict=True)
    ]
    targets = [
        (target.directory.device, target.directory.inode, *entry, *texts)
        for target, entry, texts in zip(by_target, entries[len(by_file) :], names, strict=True)
    ]
    image.put(files_at, files, FILE)
    image.put(targets_at, targets, TARGET)
    places = (len(files), len(rows), files_at, replicas_at, state_at, len(targets), targets_at)
    image.put(0, [(MAGIC, len(image.data), generation, 0, *places, (0, 0))], HEADER)
    struct.pack_into("<I", image.data, CHECKSUM_AT, _index_checksum(image.data, replicas_at))
    return bytes(image.data)


def _entries(
    image: bytes | bytearray, replicas_at: int, counts: Sequence[int], bodies: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """The part of each entry that leads to its replicas and its body; ``bodies`` has the end of the last one, too."""
    view, first = memoryview(image), 0
    for count, (start, stop) in zip(counts, pairwise(bodies), strict=True):
        rows = view[replicas_at + first * REPLICA.itemsize :][: count * REPLICA.itemsize]
        yield first, count, start, stop - start, _entry_checksum(rows, view[start:stop])
        first += count


def _replica_row(image: _Image, replica: Mapped, owner: int) -> tuple[int, ...]:
    """An entry of the table of replicas."""
    access_map, rule = replica.access_map, replica.rule
    extents = b"" if access_map.extents is None else access_map.extents.astype("<i8").tobytes()
    loops = np.array(access_map.loops, dtype="<i8").tobytes()
    paths = [image.text(one[0]) for one in replica.components]
    components = [(at, 0, *one[1:]) for at, one in zip(paths, replica.components, strict=True)]
    return (
        *(replica.id, access_map.start, access_map.length, access_map.replica_start, access_map.size, rule.section),
        *(len(access_map.loops), image.append(loops)),
        *(len(extents) // _ROW.itemsize, image.append(extents)),
        *(rule.servers, rule.groups, image.append(np.array(rule.strips, dtype=_STRIP).tobytes())),
        *(image.append(b"".join(starmap(_COMPONENT.pack, components))), owner, 0),
    )


def _state_image(generation: int, originals: int, replicas: int) -> bytes:
    header = np.array((STATE_MAGIC, generation, originals, replicas, 0), dtype=STATE_HEADER)
    return header.tobytes() + bytes(originals * STATE_FILE.itemsize + replicas + -replicas % 8 + PLACES.itemsize)


def _index_checksum(image: bytes | bytearray, replicas_at: int) -> int:
    """CRC32C of all before the table of replicas but the four bytes of the checksum itself."""
    before = google_crc32c.value(bytes(image[:CHECKSUM_AT]))
    return int(google_crc32c.extend(before, bytes(image[CHECKSUM_AT + 4 : replicas_at])))


def _entry_checksum(rows: bytes | memoryview, body: bytes | memoryview) -> int:
    """CRC32C of the replicas of an entry, and of its body."""
    return int(google_crc32c.extend(google_crc32c.value(bytes(rows)), bytes(body)))


def read_map(path: Path) -> MapFile:
    """Read the map at ``path``, with the checks that the library makes.

    Raises:
        FormatError: the file is missing or unreadable, is not a map, is damaged, or is of another
            version.
    """
    image = _read(path)
    try:
        return _parse_map(image)
    except (ValueError, IndexError, FormatError) as error:
        raise FormatError(f"{path} is not a usable map of replicas: {error} (pdla gc makes a new map)") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror}") from error


def _header(image: bytes) -> Any:
    """The header, if the map is undamaged."""
    header = _records(image, 0, 1, HEADER)[0]
    if why := other_format(image, MAGIC):
        raise FormatError(why)
    if header["total_size"] != len(image):
        raise FormatError(f"its header says {header['total_size']} bytes, but it has {len(image)}")
    if header["checksum"] != _index_checksum(image, int(header["replicas_offset"])) or header["reserved"].any():
        raise FormatError("its checksum is wrong")
    tables, view = _tables(image), memoryview(image)
    replicas = view[int(header["replicas_offset"]) :]
    for first, count, body, body_size, checksum in _owners(tables).tolist():
        rows = replicas[first * REPLICA.itemsize : (first + count) * REPLICA.itemsize]
        if checksum != _entry_checksum(rows, view[body : body + body_size]):
            raise FormatError("the checksum of an entry is wrong")
    return header


class _Tables(NamedTuple):
    """The tables of a map."""

    header: Any
    files: Any
    targets: Any
    replicas: Any


def _tables(image: bytes) -> _Tables:
    header = _records(image, 0, 1, HEADER)[0]
    return _Tables(
        header,
        _records(image, header["files_offset"], header["file_count"], FILE),
        _records(image, header["targets_offset"], header["target_count"], TARGET),
        _records(image, header["replicas_offset"], header["replica_count"], REPLICA),
    )


def _owners(tables: _Tables) -> Any:
    """What leads to the replicas and to the body of each entry: of files, then of targets."""
    return np.concatenate([tables.files[_ENTRY_FIELDS], tables.targets[_ENTRY_FIELDS]])


def _parse_map(image: bytes) -> MapFile:
    """The map, if it is undamaged and all its entries are right."""
    _header(image)
    header, files, _, replicas = tables = _tables(image)
    _check_owners(tables)
    order = list(zip(files["inode"].tolist(), files["device"].tolist(), strict=True))
    if any(one >= other for one, other in pairwise(order)):
        raise FormatError("its files are not sorted by inode and device")
    _check_replicas(image, replicas)
    _check_bodies(image, tables)
    return MapFile(int(header["generation"]), _text(image, header["state_path"]), image)


def _check_owners(tables: _Tables) -> None:
    """Check that the replicas are those of file 0, of file 1, ..., of target 0, ..., and of nothing else."""
    first = 0
    for what, owners in (("file", tables.files), ("target", tables.targets)):
        counts = owners["replica_count"].astype(np.int64)
        stops = first + np.cumsum(counts)
        wrong = (owners["first_replica"] != stops - counts) | (stops > len(tables.replicas))
        if wrong.any():
            raise FormatError(f"the replicas of {what} {wrong.argmax()} are not in their place")
        last = int(stops[-1]) if len(stops) else first
        named = tables.replicas["file"][first:last]
        wrong = named != np.repeat(np.arange(len(owners)), counts)
        if wrong.any():
            raise FormatError(f"the replicas of {what} {named[wrong][0]} are not in their place")
        first = last
    if first != len(tables.replicas):
        raise FormatError("it has replicas that belong to no file")


_CHECKED_ONCE = ("start", "length", "replica_start", "size", "section", "servers", "groups")


def _check_replicas(image: bytes, replicas: Any) -> None:
    """Check access maps and rules, each once, however many replicas have the same ones."""
    tables = (("loops", "loop_count"), ("extents", "extent_count"))
    columns = [
        replicas[name].tolist() for name in (*_CHECKED_ONCE, "strips", *(name for pair in tables for name in pair))
    ]
    known = set()
    for row, (*numbers, servers, groups, strips, loops, loop_count, extents, extent_count) in zip(
        replicas, zip(*columns, strict=True), strict=True
    ):
        parts = (
            _section(image, loops, loop_count, _ROW),
            _section(image, extents, extent_count, _ROW),
            _section(image, strips, servers // max(groups, 1), _STRIP),
        )
        if (key := (*numbers, servers, groups, *parts)) not in known:
            known.add(key)
            _access_map(image, row), _rule(image, row)


def _check_bodies(image: bytes, tables: _Tables) -> None:
    """Check that the body of each entry has all that it refers to, and the index the paths of the targets."""
    header, files, targets, replicas = tables
    owners = _owners(tables)
    starts = owners["body"].astype(np.int64)
    stops = starts + owners["body_size"]
    if (starts % 8 != 0).any() or (stops > len(image)).any():
        raise FormatError(f"the part of an entry reaches beyond its {len(image)} bytes")
    owner = np.repeat(np.arange(len(owners)), owners["replica_count"])
    servers = replicas["servers"].astype(np.int64)
    for name, sizes in (
        ("loops", replicas["loop_count"].astype(np.int64) * _ROW.itemsize),
        ("extents", replicas["extent_count"].astype(np.int64) * _ROW.itemsize),
        ("strips", servers // np.maximum(replicas["groups"], 1) * _STRIP.itemsize),
        ("components", servers * COMPONENT.itemsize),
    ):
        at = replicas[name].astype(np.int64)
        wrong = (at % 8 != 0) | (at < starts[owner]) | (at + sizes > stops[owner])
        if wrong.any():
            raise FormatError(f"the {name} of replica {replicas['id'][wrong][0]} are not in its part of the map")
    component = np.arange(servers.sum()) - np.repeat(np.cumsum(servers) - servers, servers)
    places = np.repeat(replicas["components"].astype(np.int64), servers) + component * COMPONENT.itemsize
    paths = np.frombuffer(image, "<u4", len(image) // 4)[places // 4]  # a component begins with its path
    owner = np.repeat(owner, servers)
    of_files = slice(len(files))
    _check_paths(image, files["path"], starts[of_files], stops[of_files])
    _check_paths(image, paths, starts[owner], stops[owner])
    for name in ("path", "journals"):
        _check_paths(image, targets[name], HEADER.itemsize, header["replicas_offset"])


def _check_paths(image: bytes, places: Any, starts: Any, stops: Any) -> None:
    """Check that at each of these places is an absolute path, which begins and ends in its part of the map."""
    at, stops = places.astype(np.int64), np.broadcast_to(stops, places.shape)
    inside = (at >= starts) & (at < stops)
    begins = np.frombuffer(image, np.uint8)[np.where(inside, at, 0)] == ord("/")
    ends = [image.find(b"\0", start, stop) >= 0 for start, stop in zip(at.tolist(), stops.tolist(), strict=True)]
    wrong = ~(inside & begins & np.array(ends, dtype=bool))
    if wrong.any():
        raise FormatError(f"there is no absolute path at byte {at[wrong][0]}")


def _identity(file: Any) -> Identity:
    return Identity(*(int(file[name]) for name in ("device", "inode", "size", "mtime_ns", "ctime_ns")))


def _parse_replica(image: bytes, row: Any) -> MapReplica:
    components = tuple(
        Component(_text(image, c["path"]), int(c["size"]), int(c["inode"]), int(c["mtime_ns"]))
        for c in _records(image, row["components"], row["servers"], COMPONENT)
    )
    return MapReplica(int(row["id"]), _access_map(image, row), _rule(image, row), components)


def _access_map(image: bytes, row: Any) -> AccessMap:
    loops = _records(image, row["loops"], row["loop_count"], _ROW)
    extents = _records(image, row["extents"], row["extent_count"], _ROW)
    access_map = AccessMap(
        tuple(MapLoop(*loop) for loop in loops.tolist()),
        int(row["start"]),
        int(row["length"]),
        int(row["replica_start"]),
        extents.astype(np.int64) if len(extents) else None,
    )
    if access_map.size != row["size"]:
        raise FormatError(f"replica {row['id']} should have {row['size']} bytes but maps {access_map.size}")
    return access_map


def _rule(image: bytes, row: Any) -> Layout:
    servers, groups = int(row["servers"]), int(row["groups"])
    strips = _records(image, row["strips"], servers // max(groups, 1), _STRIP)
    return Layout("", servers, groups, tuple(strips.tolist()), int(row["section"]))


def _section(image: bytes, offset: int, count: int, kind: np.dtype[Any]) -> bytes:
    stop = offset + count * kind.itemsize
    if offset % 8 or stop > len(image):
        raise FormatError(f"{count} records at byte {offset} reach beyond its {len(image)} bytes")
    return image[offset:stop]


def _records(image: bytes, offset: int, count: int, kind: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    base, shape = kind.subdtype or (kind, ())
    return np.frombuffer(_section(image, int(offset), int(count), kind), dtype=base).reshape(int(count), *shape)


def _text(image: bytes, offset: int) -> Path:
    end = image.find(b"\0", int(offset))
    path = os.fsdecode(image[int(offset) : end])
    if end < 0 or not path.startswith("/"):
        raise FormatError(f"there is no absolute path at byte {offset}")
    return Path(path)


def read_state(map_file: MapFile) -> StateFile:
    """Read the state file that belongs to a map.

    Raises:
        FormatError: the file is missing or unreadable, is damaged, or belongs to another map.
    """
    counts = len(map_file.originals), len(map_file.replicas)
    return StateFile(map_file.generation, tuple(_read_state(map_file.state_path, map_file.generation, *counts)))


def _read_state(path: Path, generation: int, originals: int, replicas: int) -> bytes:
    """For each replica an enum state_stale."""
    image = _read(path)
    stale = STATE_HEADER.itemsize + originals * STATE_FILE.itemsize
    want = stale + replicas + -replicas % 8 + PLACES.itemsize
    if len(image) not in (want, stale + replicas):  # an earlier version wrote the shorter one
        raise FormatError(f"{path} has {len(image)} bytes instead of the {want} that fit its map")
    header = np.frombuffer(image, dtype=STATE_HEADER, count=1)[0]
    if why := other_format(image, STATE_MAGIC):
        raise FormatError(f"{path} is not a state file: {why}")
    counts = (int(header["generation"]), int(header["file_count"]), int(header["replica_count"]))
    if counts != (generation, originals, replicas):
        raise FormatError(f"{path} is not the state file of map {generation}")
    return image[stale : stale + replicas]


def _marks(path: Path) -> dict[int, int]:
    """For each replica of the map at ``path``, by its number, an enum state_stale.

    Takes milliseconds for 10,000 replicas.
    """
    image = _read(path)
    try:
        header = _header(image)
        numbers = _records(image, header["replicas_offset"], header["replica_count"], REPLICA)["id"].tolist()
        state_path = _text(image, header["state_path"])
    except (ValueError, IndexError) as error:
        raise FormatError(f"{path} is damaged: {error}") from error
    stale = _read_state(state_path, int(header["generation"]), int(header["file_count"]), len(numbers))
    return dict(zip(numbers, stale, strict=True))


def fold(catalog: Catalog, path: Path | None = None, of: tuple[Path, Identity] | None = None) -> None:
    """Take what happened to the originals, or to the one ``of``, since the publication at ``path`` into the catalog.

    Replicas whose bytes were written become stale, and those whose original is not as it was copied.
    Of originals whose storage does not answer nothing is said.

    Raises:
        PdlaError: the catalog cannot be written.
    """
    copies = catalog.replicas.copies(of)
    if of is None:
        silent = unanswered({copy.path for copy in copies})
        copies = [copy for copy in copies if copy.path not in silent]
    marks: dict[int, int] = {}
    # Without the state file, only an original that looks unchanged can be trusted.
    with suppress(FormatError):
        marks = _marks(path or config.map_path())
    stale: dict[int, str] = {}
    for copy in copies:
        if mark := marks.get(copy.id, 0):
            stale[copy.id] = STALE_WHY.get(mark, f"a redirected run gave the reason {mark}")
        elif not is_at(copy.path, copy.identity):
            stale[copy.id] = CHANGED
    if stale:
        catalog.replicas.mark_stale(stale)
    _fold_journals(catalog, path or config.map_path())


def _fold_journals(catalog: Catalog, map_path: Path) -> None:
    """Mark replicas that journals name as dirty until write-back."""
    for target, group in _written(catalog.replicas.find(purpose="write")).items():
        waiting, damaged = bytes_waiting(journals_of(map_path, target))
        for replica in group:
            size = waiting.get(replica.id, 0)
            if size or damaged:
                why = f"{format_bytes(size)} of {target} are newer in the replica than in the file (run pdla sync)"
                if damaged:
                    why = f"it may have newer bytes of {target}: a journal of them is damaged (pdla sync says more)"
                if (replica.state, replica.why) != ("dirty", why):
                    catalog.replicas.mark(replica.id, "dirty", why)
            elif replica.state == "dirty":
                catalog.replicas.mark(replica.id, "valid", "")
