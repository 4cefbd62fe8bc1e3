"""Replicas and map files made by hand, byte by byte from replicator/stub/mapfile.h, to test the redirector."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import google_crc32c
import numpy as np
from numpy.typing import NDArray

PLACES = 64
"""Times at the end of a state file: STATE_PLACES of replicator/stub/mapfile.h."""


@dataclass
class Replica:
    """struct map_replica; loops are (count, stride, replica_stride), extents (start, length, replica_start)."""

    size: int
    start: int = 0
    length: int = 0
    replica_start: int = 0
    loops: Sequence[tuple[int, int, int]] = ()
    extents: Sequence[tuple[int, int, int]] | NDArray[np.int64] = ()
    groups: int = 1
    strips: Sequence[int] = (1 << 16,)
    section: int = 1 << 62
    components: list[Path] = field(default_factory=list)

    @property
    def servers(self) -> int:
        return self.groups * len(self.strips)

    def pieces(self) -> Iterator[tuple[int, int, int]]:
        """(offset, length, replica_offset) of every piece."""
        if len(self.extents) > 0:
            yield from self.extents
            return
        starts = [(self.start, self.replica_start)]
        for count, stride, replica_stride in self.loops:
            starts = [(o + i * stride, r + i * replica_stride) for o, r in starts for i in range(count)]
        yield from ((offset, self.length, replica_offset) for offset, replica_offset in starts)

    def place(self, x: int) -> tuple[int, int]:
        """(component, offset) of byte ``x`` of the replica: the rule of mapfile.h, word for word."""
        cycle = sum(self.strips)
        r, y = divmod(x, self.section)
        c, s = divmod(y, cycle)
        j = 0
        while s >= self.strips[j]:
            s -= self.strips[j]
            j += 1
        rows = -(-self.section // cycle)
        return (
            r % self.groups * len(self.strips) + j,
            r // self.groups * rows * self.strips[j] + c * self.strips[j] + s,
        )

    def prepare(self, directory: Path) -> Replica:
        """Make components that hold nothing yet, for writes."""
        return self.build(bytes(max(offset + length for offset, length, _ in self.pieces())), directory)

    def _parts(self, original: NDArray[np.uint8]) -> list[bytes]:
        """The content of each component: place() for all bytes at once."""
        replica = np.zeros(self.size, np.uint8)
        for offset, length, replica_offset in self.pieces():
            replica[replica_offset : replica_offset + length] = original[offset : offset + length]
        width, cycle = len(self.strips), sum(self.strips)
        before = np.cumsum([0, *self.strips])
        section, y = np.divmod(np.arange(self.size), self.section)
        row, z = np.divmod(y, cycle)
        j = np.searchsorted(before, z, "right") - 1
        strip = np.array(self.strips)[j]
        component = section % self.groups * width + j
        at = (section // self.groups * -(-self.section // cycle) + row) * strip + z - before[j]
        parts = []
        for i in range(self.servers):
            own = component == i
            part = np.zeros(int(at[own].max(initial=-1)) + 1, np.uint8)
            part[at[own]] = replica[own]
            parts.append(part.tobytes())
        return parts

    def build(self, original: bytes, directory: Path) -> Replica:
        """Write the components, one per server."""
        directory.mkdir(parents=True)
        content = self._parts(np.frombuffer(original, np.uint8))
        self.components = [directory / str(i) for i in range(self.servers)]
        for path, part in zip(self.components, content, strict=True):
            path.write_bytes(part)
        return self


class _Image:
    def __init__(self, header: int) -> None:
        self.bytes = bytearray(header)

    def add(self, data: bytes) -> int:
        offset = len(self.bytes)
        self.bytes += data + bytes(-len(data) % 8)
        return offset


def _by_name(target: tuple[Path, Sequence[Replica]]) -> tuple[int, int, bytes]:
    directory = target[0].parent.stat()
    return directory.st_ino, directory.st_dev, os.fsencode(target[0].name)


def write_map(
    path: Path,
    files: Sequence[tuple[Path, Sequence[Replica]]],
    generation: int = 1,
    targets: Sequence[tuple[Path, Sequence[Replica]]] = (),
) -> Path:
    """Write the map of these originals and of these write targets, and its state file; return the state file."""
    state = path.with_suffix(f".{generation}.state")
    ordered = sorted(files, key=lambda item: (item[0].stat().st_ino, item[0].stat().st_dev))
    named = sorted(targets, key=_by_name)
    count = sum(len(replicas) for _, replicas in [*ordered, *named])
    image = _Image(64)
    files_at = image.add(bytes(64 * len(ordered)))
    targets_at = image.add(bytes(48 * len(named)))
    state_at = image.add(bytes(state) + b"\0")
    texts = []
    for original, _ in named:
        journals = path.with_name("journals") / "-".join(original.relative_to(path.parent).parts)
        journals.mkdir(parents=True, exist_ok=True)
        texts.append([image.add(bytes(text) + b"\0") for text in (Path(original.name), original, journals)])
    replicas_at = image.add(bytes(88 * count))
    number, bodies = 0, [len(image.bytes)]
    rows: list[bytes] = []
    paths = []
    for index, (original, replicas) in [*enumerate(ordered), *enumerate(named)]:
        paths.append(image.add(bytes(original) + b"\0"))
        for replica in replicas:
            number += 1
            loops = image.add(b"".join(struct.pack("<qqq", *loop) for loop in replica.loops))
            extents = image.add(np.asarray(replica.extents, "<i8").tobytes())
            strips = image.add(b"".join(struct.pack("<q", strip) for strip in replica.strips))
            names = [image.add(bytes(component) + b"\0") for component in replica.components]
            parts = b""
            for component, at in zip(replica.components, names, strict=True):
                seen = component.stat()
                parts += struct.pack("<IIQqq", at, 0, seen.st_ino, seen.st_size, seen.st_mtime_ns)
            components = image.add(parts)
            rows.append(
                struct.pack(
                    "<QqqqqqIIIIIIIIII",
                    number,
                    replica.start,
                    replica.length,
                    replica.replica_start,
                    replica.size,
                    replica.section,
                    len(replica.loops),
                    loops,
                    len(replica.extents),
                    extents,
                    replica.servers,
                    replica.groups,
                    strips,
                    components,
                    index,
                    0,
                )
            )
        bodies.append(len(image.bytes))
    image.bytes[replicas_at : bodies[0]] = b"".join(rows)
    number, tables = 0, b""
    for index, (original, replicas) in enumerate([*ordered, *named]):
        start, stop = bodies[index : index + 2]
        own = b"".join(rows[number : number + len(replicas)])
        checksum = google_crc32c.value(own + bytes(image.bytes[start:stop]))
        entry = struct.pack("<IIIII", number, len(replicas), start, stop - start, checksum)
        number += len(replicas)
        if index < len(ordered):
            found = original.stat()
            times = (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            tables += struct.pack("<QQqqq", found.st_dev, found.st_ino, *times) + entry
            tables += struct.pack("<I", paths[index])
        else:
            inode, device, _ = _by_name((original, replicas))
            tables += struct.pack("<QQ", device, inode) + entry + struct.pack("<III", *texts[index - len(ordered)])
    image.bytes[files_at : files_at + len(tables)] = tables
    image.bytes[0:24] = struct.pack("<8sQQ", b"PDLAMAP4", len(image.bytes), generation)
    places = (files_at, replicas_at, state_at, len(named), targets_at)
    image.bytes[24:64] = struct.pack("<IIIIIIII8x", 0, len(ordered), count, *places)
    index_bytes = bytes(image.bytes[:24]) + bytes(image.bytes[28:replicas_at])
    image.bytes[24:28] = struct.pack("<I", google_crc32c.value(index_bytes))
    header = struct.pack("<8sQIIQ", b"PDLASTA1", generation, len(ordered), count, 0)
    state.write_bytes(header + bytes(32 * len(ordered) + count + -count % 8) + bytes(8 * PLACES))
    temporary = path.with_suffix(".part")
    temporary.write_bytes(image.bytes)
    temporary.chmod(0o600)
    temporary.rename(path)
    return state


def renew(image: bytearray) -> None:
    """Give a damaged map the right checksums, as far as it has places for them."""
    _, files, _, files_at, replicas_at, _, targets, targets_at = struct.unpack_from("<IIIIIIII", image, 24)
    places = [files_at + 64 * number + 40 for number in range(min(files, len(image) // 64))]
    places += [targets_at + 48 * number + 16 for number in range(min(targets, len(image) // 48))]
    for at in places:
        if at + 20 <= len(image):
            first, count, body, size = struct.unpack_from("<IIII", image, at)
            rows = image[replicas_at + 88 * first : replicas_at + 88 * (first + count)]
            struct.pack_into("<I", image, at + 16, google_crc32c.value(bytes(rows + image[body : body + size])))
    struct.pack_into("<I", image, 24, google_crc32c.value(bytes(image[:24] + image[28:replicas_at])))


def read_places(state: Path) -> NDArray[np.uint64]:
    """When storage did not answer, from a state file."""
    return np.fromfile(state, np.uint64)[-PLACES:]


def write_places(state: Path, when: int) -> None:
    """Record that all storage did not answer at that time, or (0) always did."""
    with state.open("r+b") as file:
        file.seek(-8 * PLACES, os.SEEK_END)
        file.write(np.full(PLACES, when, np.uint64).tobytes())


def ranges(parts: Sequence[tuple[int, int]]) -> Replica:
    """A replica that has these parts (start, stop) of the original, one after the other."""
    lengths = [stop - start for start, stop in parts]
    places = [sum(lengths[:number]) for number in range(len(parts))]
    extents = [(start, length, place) for (start, _), length, place in zip(parts, lengths, places, strict=True)]
    return Replica(sum(lengths), extents=extents)


def heads(size: int, head: int, body: int) -> list[tuple[int, int]]:
    """(start, stop) of the heads of LiU's segments."""
    return [(start, min(start + head, size)) for start in range(0, size, head + body)]


def lift(path: Path, original: Path, parts: Sequence[tuple[int, int]]) -> None:
    """Write the map of a replica that has these parts of the original, as if LiU had lifted their segments."""
    write_map(path, [(original, [ranges(parts).build(original.read_bytes(), path.with_name("heads"))])])
