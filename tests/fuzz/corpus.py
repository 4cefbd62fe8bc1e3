"""Where the fuzzers begin: python -m tests.fuzz.corpus DIRECTORY makes DIRECTORY/map, DIRECTORY/journal, .../log."""

from __future__ import annotations

import random
import struct
import sys
import tempfile
from pathlib import Path

from pdla.accessmap import AccessMap
from pdla.catalog import Catalog, Component, Purpose, open_catalog
from pdla.layouts.striping import component_sizes
from pdla.model import Identity, Layout, Loop, Signature
from pdla.replicator.identity import identity_of
from pdla.replicator.intent import RECORD as INTENT
from pdla.replicator.journals import HEADER
from pdla.replicator.mapfile import publish
from pdla.replicator.write_targets import directory_identity

SIZE = 8192
REPLICAS = (7, 9, 3)  # of tests/fuzz/journal.c
CHANGES = HEADER.itemsize - HEADER.fields["count"][1]  # type: ignore[index]
"""Bytes of a journal's header that change."""


def random_layout(choose: random.Random) -> Layout:
    """Strips of a few bytes, some of none, in one group or more."""
    strips = tuple(choose.randint(0, 5) for _ in range(choose.randint(1, 3)))
    groups = choose.randint(1, 3)
    return Layout("disk", groups * len(strips), groups, strips if any(strips) else (1,), choose.randint(1, 40))


def random_pattern(choose: random.Random, file: Path, write: bool) -> Signature:
    """Nested loops; for reads they may overlap, which makes the map a table of extents."""
    length = span = choose.randint(1, 9)
    loops = []
    for _ in range(choose.randint(0, 4)):
        count = choose.randint(1, 4)
        stride = span + choose.choice([0, 3, 8]) if write else choose.choice([-40, -8, 3, 8, 24, 64, 200])
        loops.append(Loop(stride, count))
        span += (count - 1) * stride
    choose.shuffle(loops)
    return Signature(str(file), "write" if write else "read", False, 4000, length, tuple(loops), (0,))


def register(
    catalog: Catalog, pattern: Signature, layout: Layout, owner: tuple[Path, Identity], purpose: Purpose
) -> None:
    """A valid replica as far as the catalog knows: its components are not looked at by publication."""
    path, identity = owner
    access_map = AccessMap.from_signature(pattern)
    catalog.originals.set(path, identity)
    replica = catalog.replicas.begin(identity, pattern, access_map, layout, purpose=purpose)
    sizes = component_sizes(layout, replica.size)
    components = [Component(Path(f"/p/{replica.id}.{n}"), size, 1, 1, 1) for n, size in enumerate(sizes)]
    catalog.replicas.set_components(replica.id, components)
    catalog.replicas.finish(replica.id, components, [[]] * len(components))


def write_maps(corpus: Path, count: int = 12) -> None:
    """Maps of growing numbers of replicas and targets, as the replicator publishes them."""
    choose = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        catalog = open_catalog(f"sqlite:///{directory}/catalog.db")
        for number in range(count):
            file = directory / f"d{number % 4}"
            if number % 3:
                file.write_bytes(bytes(SIZE))
                owner, purpose = (file, identity_of(file)), "read"
            else:
                owner, purpose = (directory, directory_identity(file)), "write"
            pattern = random_pattern(choose, file, purpose == "write")
            register(catalog, pattern, random_layout(choose), owner, purpose)
            publish(catalog, directory / "m")
            (corpus / f"{number:02}").write_bytes((directory / "m").read_bytes())
        catalog.close()


def write_journals(corpus: Path) -> None:
    """Of 0 to 5 entries, with everything right, and with all but one thing, and an intent beside it, or none."""
    for count in range(6):
        entries = b"".join(struct.pack("<QqQ", REPLICAS[i % 2], 100 * i, 50 + i) for i in range(count))
        for wrong in (0, 1, 2, 4, 8, 16, 32):
            (corpus / f"{count}-{wrong}").write_bytes(bytes([63 - wrong]) + bytes(CHANGES) + entries)
            intent = bytes(INTENT.itemsize)
            (corpus / f"{count}-{wrong}-intent").write_bytes(bytes([255 - wrong]) + bytes(CHANGES) + entries + intent)


def write_logs(corpus: Path) -> None:
    """Windows with entries of each kind, COMPACT ones with numbers of every width; the clocks are read twice."""
    anchors = [struct.pack("<BQqq", 2, number, 1000 * number, 2000 * number) for number in (1, 20)]
    whole = struct.pack("<BBQqqqqqIIHHi", 1, 9, 1, 1001, 1002, 4096, 512, 512, 1, 0, 3, 0, 0)
    for first in range(4):
        compact = b""
        for number in range(18):
            widths = [(first + number * place) % 4 for place in range(1, 5)]
            sizes = [(1 << width) & ~1 for width in widths]
            control = sum(width << 2 * place for place, width in enumerate(widths))
            compact += bytes([128 | 9, control]) + b"".join(bytes([number + 1]) * size for size in sizes)
        (corpus / str(first)).write_bytes(anchors[0] + whole + compact + anchors[1] + bytes(7))


def write_corpora(directory: Path) -> None:
    """All, in directories that are made."""
    for name, write in (("map", write_maps), ("journal", write_journals), ("log", write_logs)):
        (directory / name).mkdir(parents=True)
        write(directory / name)


if __name__ == "__main__":
    write_corpora(Path(sys.argv[1]))
