"""A self-test of storage that stripes by itself: small replicas in every layout, placed, verified and removed.

It is for systems that the tests of pdla cannot have. Its report says what the storage answered.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import numpy as np

from pdla.errors import ConfigError, PdlaError
from pdla.layouts.striping import locate
from pdla.model import Layout, Pool
from pdla.replicator.backends import backend_class
from pdla.replicator.backends.base import Backend, NewComponent, commit, responds, temporary
from pdla.replicator.backends.tools import NoToolError
from pdla.units import counted

STRIP = 1 << 16
SIZE = 21 * STRIP + 4321  # of a replica: a multiple of nothing
MOST = 4
"""Servers to test."""


class Step(NamedTuple):
    """A part of the report: what was tried, what went wrong ("": nothing), and what the storage answered."""

    tried: str
    wrong: str
    answers: tuple[str, ...] = ()


def self_test(name: str, directory: Path) -> Iterator[Step]:
    """Test the back end ``name`` in a directory, in which files can be made.

    Raises:
        ConfigError: there is no such back end, or it cannot list its servers.
    """
    kind = backend_class(name)
    if not responds(directory):
        yield Step(f"make a file in {directory}", "the storage does not answer")
        return
    try:
        found = kind.found_servers(directory)
    except NoToolError as error:
        raise ConfigError(f"the self-test needs the names of the servers: {error}") from None
    except ConfigError:
        raise
    except PdlaError as error:
        yield Step("list the servers", str(error))
        return
    good = [one.name for one in found if not one.why]
    states = tuple(f"{one.name} {one.kind} pool {one.group or '-'} {one.why or 'usable'}" for one in found)
    yield Step(
        f"list the servers of {directory}: {counted(len(found), 'server')}", "" if good else "none is usable", states
    )
    # In an order that the storage would not choose by itself.
    names = tuple(good[:MOST][::-1])
    if not names:
        return
    pool = Pool(
        name="selftest",
        kind="hdd",
        servers=len(names),
        startup=((0, 0.0),),
        read_seconds_per_byte=0.0,
        write_seconds_per_byte=0.0,
        capacity=None,
        grain=STRIP,
        backend=name,
        where=(str(directory),),
        names=names,
    )
    yield _original(kind, directory)
    for tried, layout in _layouts(len(names)):
        wrong, answers = _tried(kind(pool), layout, f"selftest-{uuid4().hex}")
        yield Step(tried, wrong, answers)


def _original(kind: type[Backend], directory: Path) -> Step:
    """Of a file that the storage stripes as it likes: what plans and iBridge know of the user's own files."""
    tried, file = "read how a new file is striped", directory / f".selftest-{uuid4().hex}"
    try:
        file.write_bytes(bytes(SIZE))
        found, witnessed = kind.original_striping(file), kind.original_witness(file)
        wrong = "" if witnessed in (None, found) else f"the storage's own tool says {witnessed} of a file with {found}"
        agrees = "agrees" if witnessed else "was not asked"
        return Step(tried, wrong, (str(found or "not known"), f"the storage's own tool {agrees}"))
    except (OSError, PdlaError) as error:
        return Step(tried, str(error))
    finally:
        with suppress(OSError):
            file.unlink()


def _layouts(servers: int) -> Iterator[tuple[str, Layout]]:
    def layout(servers: int, groups: int, *strips: int) -> Layout:
        return Layout("selftest", servers, groups, strips, 3 * sum(strips))

    yield f"1-DV: a file on each of {counted(servers, 'server')}", layout(servers, servers, STRIP)
    if servers > 1:
        yield f"1-DH: strips of 64 KiB on {servers} servers", layout(servers, 1, *(STRIP,) * servers)
        yield "unequal strips: 64 and 128 KiB on 2 servers", layout(2, 1, STRIP, 2 * STRIP)
        yield "small strips: 1,000 bytes on 2 servers", layout(2, 1, 1000, 1000)
    if servers > 3:
        yield "2-D: two groups of 2 servers", layout(4, 2, STRIP, STRIP)


def _tried(backend: Backend, layout: Layout, name: str) -> tuple[str, tuple[str, ...]]:
    """What went wrong with a replica in this layout, and what the storage says about its files."""
    made: list[NewComponent] = []
    try:
        if why := backend.obstacle(layout, SIZE):
            return why, ()
        backend.check(layout, SIZE)
        made = backend.components(name, layout, SIZE)
        data = np.random.default_rng(layout.servers).bytes(SIZE)
        _write(backend, layout, made, data)
        answers = []
        for component in made:
            placed, witnessed = backend.placement(component.path), backend.witness(component.path)
            answers.append(f"{[server.name for server in component.servers]}: {placed}")
            if witnessed and witnessed != placed:
                return f"the storage's own tool says {witnessed!r} of a file at {placed!r}", tuple(answers)
        answers.append("the storage's own tool agrees" if witnessed else "the storage's own tool was not asked")
        return ("" if _read(backend, layout, made) == data else "the bytes read back are wrong"), tuple(answers)
    except (OSError, PdlaError) as error:
        return str(error), ()
    finally:
        for component in made:
            for file in (temporary(component.path), component.path):
                with suppress(OSError):
                    file.unlink()


def _write(backend: Backend, layout: Layout, made: Sequence[NewComponent], data: bytes) -> None:
    files: list[int] = []
    try:
        for component in made:
            files.append(backend.create(component))
        for piece in locate(backend.rule(layout, SIZE), 0, SIZE):
            os.pwrite(files[piece.component], data[piece.logical :][: piece.length], piece.offset)
        for file in files:
            os.fsync(file)
    finally:
        for file in files:
            os.close(file)
    commit([component.path for component in made])


def _read(backend: Backend, layout: Layout, made: Sequence[NewComponent]) -> bytes:
    held, whole = [component.path.read_bytes() for component in made], bytearray(SIZE)
    for piece in locate(backend.rule(layout, SIZE), 0, SIZE):
        whole[piece.logical : piece.logical + piece.length] = held[piece.component][piece.offset :][: piece.length]
    return bytes(whole)
