"""Random MPI-IO programs as texts, run by tests/programs/interpreter.c: what they see natively and redirected.

A line is a call: its name, the slot of the open file, its arguments; ``a|b|c`` are the arguments of ranks 0, 1, 2, 0...
Three kinds of lines are for the files that a program works on::

    file NAME SIZE                      SIZE random bytes
    replica NAME JSON                   the fields of support.handmade_maps.Replica
    target NAME JSON                    the same, for what is written: counts with ``--writes`` close and lease

and a line ``job RANKS HOW [sync]`` begins what another job does to these files when the one before has ended: HOW is
close, lease, a name of ``CACHED``, original, trace (recorded, without a map) or native (without the library). With the
last word there is a pdla sync before it.

``python -m tests.searches.mpiio FIRST LAST`` runs those with these seeds, 17 18 only one, and makes those small that
differ, which are then kept in tests/programs/found.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import numpy as np
from sqlalchemy import Connection

from pdla.accessmap import AccessMap, MapLoop
from pdla.catalog import Catalog, Purpose, open_catalog
from pdla.catalog.database import add
from pdla.catalog.records import signature_to_json
from pdla.catalog.tables import COMPONENTS, ORIGINALS, REPLICAS
from pdla.model import Layout, Signature
from pdla.replicator.identity import identity_of
from pdla.replicator.mapfile import publish
from pdla.replicator.write_targets import directory_identity
from tests.support.command_line import PDLA
from tests.support.handmade_maps import Replica, heads, ranges
from tests.support.mpi import REPOSITORY, Mpi, available_mpis, build_library
from tests.support.namespace_nodes import on_nodes

FILES = "ab"
READS = ["read_at", "read_at_all", "read", "read_all"]
NONBLOCKING = ["iread_at", "iread"]
TOGETHER = ["iread_at_all", "iread_all"]
SPLIT = ["read_at_all_begin", "read_all_begin"]
SHARED = ["read_shared", "iread_shared", "read_ordered", "read_ordered_begin"]
ENDINGS = ["wait", "waitall", "waitany", "waitsome", "test", "testany", "ask"]
E10 = {"POLICY": "e10", "E10_CACHE": "enable"}
STAY = {**E10, "ROMIO_CB_WRITE": "disable"}
"""Pieces with gaps go to the cache, too."""
COSTS = "65536 2 2 5e-9 1e-8 1e-8 2 0 0 1000 0.002 2 0 0 1000 0.002 1e-5 1e-5 1 0 0 1 0 0"
"""Of S4D-Cache: critical are requests below 100 bytes, 200 far from the one before, and something between."""
FRAGMENTS = "64 3 2 5e-9 1e-8 1e-8 1 0 0.002 1 0 0.002 1e-5 1e-5 1 0 0 1 0 0"
"""Of iBridge: strips of 64 bytes on three servers, so that most requests have fragments."""
SEGMENT = (40, 120)
"""Of LiU: bytes of a head and of a body."""
CACHED: dict[str, dict[str, str]] = {
    "e10": E10,
    "e10-close": {**STAY, "E10_CACHE_FLUSH_FLAG": "flush_onclose"},
    "e10-coherent": {**STAY, "E10_CACHE": "coherent"},
    "e10-deferred": {**STAY, "DEFERRED_CLOSE": "*"},
    "e10-exchange": {**E10, "E10_CACHE": "coherent", "ROMIO_CB_WRITE": "enable", "CB_BUFFER_SIZE": "200"},
    "s4d": {"POLICY": "s4d", "SSD_COSTS": COSTS},
    "ibridge": {"POLICY": "ibridge", "SSD_COSTS": FRAGMENTS},
    "liu": {"POLICY": "liu", "SSD_COSTS": FRAGMENTS, "SEGMENTS": f"{SEGMENT[0]} {SEGMENT[1]} 4000 0.1"},
}
"""Modes of writes that go to a cache, and their variables PDLA_..."""
ON_NODES = ("e10-exchange",)
"""Modes whose ranks are on two nodes."""
SERVERS = 3
NATIVELY = "does not end well natively"
PATIENCE = 60  # seconds for a program, as in interpreter.c


def cache_variables(mode: str, cache: Path) -> dict[str, str]:
    """The environment of a mode whose cache files are in a directory, or in two of it as if they were servers."""
    directories = {"E10_CACHE_PATH": cache, "SSD_PATH": f"{cache}/0:{cache}/1", "CRITICAL_LOG": cache}
    for server in range(2):
        (cache / str(server)).mkdir(parents=True, exist_ok=True)
    return {f"PDLA_{name}": str(value) for name, value in {**directories, **CACHED[mode]}.items()}


BATCH = 20  # programs with the same jobs, which are run together
OPENINGS = ["r", "u", "u", "uc", "ua", "wa", "uca", "us", "rs", "ws", "w", "wc", "uce", "ro", "ud", "rd", "-"]


@dataclass(frozen=True)
class Job:
    """A launch of the interpreter: how many ranks, ``how`` it is redirected, and whether pdla sync comes before it."""

    ranks: int
    how: str
    synced: bool = False

    @classmethod
    def parse(cls, words: Sequence[str]) -> Job:
        return cls(int(words[0]), words[1], "sync" in words[2:])

    @property
    def words(self) -> list[object]:
        return [self.ranks, self.how, *(["sync"] if self.synced else [])]


@dataclass(frozen=True)
class Program:
    """A program for so many ranks; ``number`` is the seed that made it."""

    number: int
    ranks: int
    lines: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Program:
        """From its text."""
        first, *lines = path.read_text().splitlines()
        number, ranks = map(int, first.split()[1:])
        return cls(number, ranks, tuple(lines))

    @property
    def text(self) -> str:
        return "\n".join((f"program {self.number} {self.ranks}", *self.lines, ""))

    def files(self) -> dict[str, int]:
        """The size of each file."""
        words = [line.split() for line in self.lines if line.startswith("file ")]
        return {name: int(size) for _, name, size in words}

    def replicas(self, kind: str) -> dict[str, list[Replica]]:
        """The replicas of each file; ``kind`` is "replica" or "target"."""
        found: dict[str, list[Replica]] = {}
        for _, name, fields in (line.split(" ", 2) for line in self.lines if line.startswith(f"{kind} ")):
            found.setdefault(name, []).append(Replica(**json.loads(fields)))
        return found

    def jobs(self, writes: str) -> list[tuple[Job, list[str]]]:
        """The jobs, and what each does."""
        found: list[tuple[Job, list[str]]] = [(Job(self.ranks, writes), [])]
        for line in self.lines:
            if line.startswith("job "):
                found.append((Job.parse(line.split()[1:]), []))
            else:
                found[-1][1].append(line)
        return found

    def scripts(self, writes: str) -> list[tuple[Job, str]]:
        """What the interpreter is to run in each job."""
        begin, end = f"program {self.number} {self.ranks}", [f"close {slot}" for slot in range(4)]
        return [(job, "\n".join((begin, *lines, *end, ""))) for job, lines in self.jobs(writes)]


# ---- making them -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """What files are like: rows of ``columns`` pieces of ``piece`` bytes from ``start`` on."""

    start: int
    piece: int
    columns: int
    rows: int

    def replica(self, choose: random.Random) -> Replica:
        """Its columns one after the other, or only some of them."""
        rows, row = self.rows, self.columns * self.piece
        column = rows * self.piece
        loops = [(rows, row, self.piece), (self.columns, self.piece, column)]
        replica = Replica(self.columns * column, self.start, self.piece, loops=loops)
        if choose.random() < 0.2:
            replica = Replica(column, self.start + self.piece, self.piece, loops=[(rows, row, self.piece)])
        elif choose.random() < 0.2:
            step = [(self.start + i * row, self.piece, (rows - 1 - i) * self.piece) for i in range(rows)]
            replica = Replica(column, extents=step)
        return striped(replica, column, choose)

    def targets(self, choose: random.Random) -> list[Replica]:
        """Replicas for its writes, without a common byte: two that interleave, one, or a part of it."""
        row, column = self.columns * self.piece, self.rows * self.piece
        kind, first = choose.randrange(4), choose.randint(1, self.columns - 1)
        parts = {0: [(0, first), (first, self.columns - first)], 1: [(0, first)]}.get(kind, [(0, self.columns)])
        replicas = []
        for place, columns in parts:
            start, size, sign = self.start + place * self.piece, columns * column, choose.choice([1, -1])
            if kind == 2 and choose.random() < 0.5:
                places = choose.sample(range(self.rows), self.rows)
                step = columns * self.piece
                extents = [(start + i * row, step, places[i] * step) for i in range(self.rows)]
                replicas.append(Replica(size, extents=extents))
                continue
            loops = [(self.rows, row, sign * self.piece), (columns, self.piece, column)]
            replica_start = 0 if sign > 0 else column - self.piece
            replicas.append(Replica(size, start, self.piece, replica_start, loops))
        return [striped(replica, column, choose) for replica in replicas]


def striped(replica: Replica, column: int, choose: random.Random) -> Replica:
    """The replica in some layout."""
    replica.groups = choose.choice([1, 1, SERVERS])
    strips = [choose.choice([0, 16, 100, 512]) for _ in range(SERVERS // replica.groups)]
    replica.strips = strips if sum(strips) else [64] * len(strips)
    replica.section = choose.choice([column, choose.randint(1, 5000), 1 << 40])
    return replica


class Writer:
    """Writes one random program."""

    def __init__(self, seed: int, ranks: int, writes: str, shared: bool, jobs: Sequence[Job] = ()) -> None:
        self.choose = random.Random(seed)
        self.jobs = jobs
        self.ranks, self.writes, self.shared_pointers = ranks, writes != "", shared
        self.redirected = writes in ("close", "lease", *CACHED)
        self.lines: list[str] = []
        self.sizes: dict[str, int] = {}
        self.tables: dict[str, list[Table]] = {}
        self.written: dict[str, Table] = {}

    def say(self, *words: object) -> None:
        self.lines.append(" ".join(map(str, words)))

    def say_replica(self, kind: str, name: str, replica: Replica) -> None:
        fields = {field: value for field, value in vars(replica).items() if field != "components"}
        self.say(kind, name, json.dumps(fields, separators=(",", ":")))

    def each(self, value: Callable[[], object]) -> str:
        """The same for all ranks, or one for each."""
        if self.choose.random() < 0.4:
            return str(value())
        return "|".join(str(value()) for _ in range(self.ranks))

    # datatypes

    def memory(self, size: int) -> str:
        """A memory datatype of as many bytes as an etype of ``size``, or a few of it."""
        choose = self.choose
        kind = choose.randrange(8)
        if kind == 0:
            return f"v({choose.randint(1, 4)},{size},{size + choose.randint(0, 9)},b)"
        if kind == 1:
            return f"r(0,{14 * size},x({3 * size}:{9 * size};{2 * size}:{size},b))"
        if kind == 2:
            return f"r(0,{size + choose.randint(1, 5)},c({size},b))"
        if kind == 3:
            return f"s({size}:{3 * size};{size}:0,b)"
        return "b" if size == 1 else f"c({size},b)"

    def filetype(self, etype: str, size: int) -> str:
        """Etypes with holes, ascending."""
        choose = self.choose
        places, at = [], 0
        for _ in range(choose.randint(1, 6)):
            at += choose.randrange(2) * choose.randrange(40)
            length = choose.randint(1, 40)
            places.append((length, at))
            at += length
        kind = choose.randrange(10)
        if kind == 0:
            return f"c({choose.randint(1, 50)},{etype})"
        if kind == 1:
            blocks, length = choose.randint(1, 30), choose.randint(1, 30)
            stride = length + choose.randrange(60)
            return f"r(0,{size * (blocks * stride + choose.randrange(90))},v({blocks},{length},{stride},{etype}))"
        if kind == 2:
            parts = []
            for _ in range(choose.randint(1, 3)):
                whole = choose.randint(1, 14)
                part = choose.randint(1, whole)
                parts.append(f"{whole}:{part}:{choose.randint(0, whole - part)}")
            return f"a({choose.choice('CF')},{';'.join(parts)},{etype})"
        pairs = ";".join(f"{length}:{place}" for length, place in places)
        scaled = ";".join(f"{length}:{place * size}" for length, place in places)
        extent = (at + choose.randrange(50)) * size
        if kind == 3:
            return f"x({pairs},{etype})"
        if kind == 4:
            return f"r(0,{extent},s({scaled},{etype}))"
        if kind == 5:
            return f"X({scaled},{etype})"
        if kind == 6:
            return f"k({';'.join(f'{places[0][0]}:{i * (places[0][0] + 3)}' for i in range(len(places)))},{etype})"
        if kind == 7:
            wholes = [choose.randint(2, 12) for _ in range(choose.randint(1, 2))]
            parts = [f"{whole}:{choose.randrange(2)}:0:{2 - min(i, 1)}" for i, whole in enumerate(wholes)]
            dimensions = ";".join(parts)
            return f"y(2,{choose.randrange(2)},{dimensions},{etype})"
        if kind == 8:
            return f"d(x({pairs},{etype}))"
        inner = f"V({choose.randint(1, 5)},{choose.randint(1, 9)},{size * choose.randint(9, 18)},{etype})"
        return f"v({choose.randint(1, 4)},1,{choose.randint(1, 3)},{inner})"

    # calls

    def place(self, units: int) -> int:
        kind = self.choose.randrange(14)
        if kind == 0:
            return max(0, units - 9)
        return 0 if kind == 1 else self.choose.randrange(max(1, units))

    def length(self, most: int) -> int:
        choose = self.choose
        if choose.random() < 0.1:
            return 0
        return choose.randint(1, choose.choice([1, 8, 60, most]))

    def data(self, slot: int, call: str, size: int, units: int, most: int = 2000) -> None:
        memory = self.memory(size)
        most = min(most, 40) if memory.startswith("v") else most
        large = "_c" if self.choose.random() < 0.2 else ""
        offset = self.each(lambda: self.place(units))
        count = self.each(lambda: self.length(most))
        ignore = self.choose.choice(["", "", "", "", " ignore"])
        self.say(call + large, slot, offset, count, memory + ignore)

    def complete(self, slot: int) -> None:
        self.say("complete", slot, self.each(lambda: self.choose.choice(ENDINGS)))

    def reads(self, slot: int, size: int, units: int, inside: int) -> None:
        """One or several calls that read; ``inside`` are the etypes that are far from the end of the file."""
        kind = self.choose.randrange(12)
        if kind < 5:
            self.data(slot, self.choose.choice(READS), size, units)
        elif kind < 7:
            call, memory = self.choose.choice(READS), self.memory(size)
            count, start = self.length(40), self.choose.randrange(max(1, inside))
            for i in range(self.choose.randint(2, 8)):
                step = start + i * count if self.choose.random() < 0.8 else self.place(units)
                self.say(call, slot, step, count, memory)
                if self.choose.random() < 0.1:
                    self.say("seek", slot, self.each(lambda: self.place(units)), "set")
        elif kind < 9:
            for _ in range(self.choose.randint(1, 4)):
                self.data(slot, self.choose.choice(NONBLOCKING), size, inside)
            self.complete(slot)
        elif kind == 9:
            self.say("seek", slot, self.each(lambda: self.place(inside)), "set")
            self.data(slot, self.choose.choice(TOGETHER), size, inside)
            self.complete(slot)
        else:
            self.say("seek", slot, self.each(lambda: self.place(inside)), "set")
            self.data(slot, self.choose.choice(SPLIT), size, inside)
            if self.choose.random() < 0.3:
                self.say("ask", slot, 0)
            self.say("end", slot)

    def view(self, slot: int, name: str) -> tuple[int, int]:
        """Set a view that follows a table or none; return the size of its etype and about how many the file has."""
        choose = self.choose
        size = choose.choice([1, 1, 4, 8, 3])
        etype = "b" if size == 1 else f"c({size},b)"
        kind = choose.randrange(10)
        if kind == 0:
            self.say("view", slot, 0, "b", "b", "native")
            return 1, self.sizes[name]
        if kind == 1 and choose.random() < 0.3:
            representation = choose.choice(["bogus", "internal", "external32"])
            self.say("view", slot, choose.choice([0, -7]), etype, etype, representation)
            return size, self.sizes[name] // size
        if kind < 7:
            table = choose.choice(self.tables[name])
            row, rank = table.columns * table.piece, iter(range(self.ranks))
            place = "|".join(str(table.start + next(rank) % table.columns * table.piece) for _ in range(self.ranks))
            filetype = choose.choice([f"r(0,{row},", f"r(0,{row},", f"v({table.rows},1,{table.columns},"])
            self.say("view", slot, place, "b", f"{filetype}c({table.piece},b))", "native")
            return 1, table.rows * table.piece
        displacement, filetype = (
            self.each(lambda: choose.randrange(2000)),
            self.each(lambda: self.filetype(etype, size)),
        )
        self.say("view", slot, displacement, etype, filetype, "native")
        return size, self.sizes[name] // size // 2

    def shared(self, slot: int) -> None:
        self.say("view", slot, self.choose.randrange(100), "b", "b", "native")
        self.say("seek_shared", slot, self.choose.randrange(3000), "set")
        for _ in range(self.choose.randint(1, 3)):
            call = self.choose.choice(SHARED)
            if self.writes and self.choose.random() < 0.3:
                call = call.replace("read", "write")
            self.say(call, slot, 0, self.each(lambda: self.choose.randrange(300)), "b")

    def writing(self, slot: int, name: str) -> None:
        """Writes of the ranks to bytes of their own, and reads of them."""
        choose = self.choose
        if choose.random() < 0.3:
            length = choose.randint(1, 400)
            base = choose.choice([choose.randrange(self.sizes[name]), self.sizes[name] - 50])
            self.say("block", slot, max(0, base), length)
            size, units = 1, length
        else:
            size = choose.choice([1, 1, 4])
            etype = "b" if size == 1 else f"c({size},b)"
            follow = choose.random() < (0.8 if self.redirected else 0.5)
            table = choose.choice(self.tables[name])
            if self.redirected and choose.random() < 0.8:
                table = self.written[name]
            filetype = f"c({table.piece},b)" if follow else self.filetype(etype, size)
            base = table.start if follow else choose.randrange(1500)
            self.say("deal", slot, base, "b" if follow else etype, filetype)
            size, units = (1, table.piece * table.rows) if follow else (size, 300)
        most = 2000
        if self.redirected and choose.random() < 0.8:
            units = most = max(1, units // 2)  # all inside of what the ranks have
        for _ in range(choose.randint(1, 5)):
            kind = choose.randrange(8)
            if kind < 5:
                calls = [*READS, *NONBLOCKING, *SPLIT, *TOGETHER]
                call = choose.choice(calls)
                self.data(slot, call.replace("read", "write"), size, units, most)
                if call in (*NONBLOCKING, *TOGETHER):
                    self.complete(slot)
                elif call in SPLIT:
                    self.say("end", slot)
            elif kind < 7:
                self.data(slot, choose.choice(READS), size, units, most)
            else:
                self.say("settle", slot)

    def growing(self, slot: int, name: str) -> None:
        """Independent writes where replicas are, one rank's bytes after the other's: the file may end in them."""
        choose, table = self.choose, self.written[name]
        length = choose.randint(1, max(1, table.rows * table.columns * table.piece // self.ranks))
        self.say("block", slot, table.start, length)
        for _ in range(choose.randint(1, 3)):
            self.data(slot, choose.choice(["write_at", "write", "iwrite_at"]), 1, length // 2, length)

    def mistake(self, slot: int) -> None:
        choose = self.choose
        kind = choose.randrange(5)
        if kind == 0:
            self.say(choose.choice(["read_at", "read_at_all", "write_at"]), slot, -choose.randint(1, 9), 10, "b")
        elif kind == 1:
            self.say(choose.choice(READS), slot, 0, -1, "b")
        elif kind == 2:
            self.say("seek", slot, -choose.randint(1, 10**6), choose.choice(["set", "cur", "end"]))
        elif kind == 3:
            self.say("write_at", slot, 0, 5, "b")
        else:
            self.say("delete", "nothing")

    def reopening(self) -> None:
        """A file opened in some way, calls that look at its end or go there, and its close."""
        choose = self.choose
        name, flags, slot = choose.choice([*FILES, "new", "new"]), choose.choice(OPENINGS), choose.randrange(4)
        if choose.random() < 0.6:
            self.say("open", slot, name, "uc", "world")
            choose.choice([self.growing, self.writing])(slot, FILES[0] if name == "new" else name)
            self.say("close", slot)
        comm = "world" if set("ed") & set(flags) else choose.choice(["world"] * 4 + ["self", "reversed"])
        if choose.random() < 0.15:
            self.say("delete", name)
        self.say("open", slot, name, flags, comm)
        for _ in range(choose.randint(1, 5)):
            kind = choose.randrange(9)
            if kind < 2:
                self.say("tail", slot, choose.randint(1, 300))
            elif kind == 2:
                self.say("seek", slot, -choose.randrange(300), "end")
            elif kind == 3 and self.shared_pointers:
                if choose.random() < 0.5:
                    self.say("seek_shared", slot, choose.choice([0, 0, choose.randrange(200)]), "end")
                self.say(choose.choice(SHARED).replace("read", "write"), slot, 0, choose.randrange(200), "b")
            elif kind == 4:
                self.say(choose.choice(["set_size", "preallocate"]), slot, choose.randrange(2 * self.sizes[FILES[0]]))
            elif kind == 5:
                self.data(slot, choose.choice(READS), 1, self.sizes[FILES[0]])
            elif kind == 6:
                self.writing(slot, FILES[0] if name == "new" else name)
            elif kind == 7:
                self.say("settle", slot)
            else:
                self.say("ask", slot, choose.randrange(100))
        self.say("close", slot)

    def phase(self) -> None:
        """From an open to its close."""
        choose = self.choose
        name = choose.choice(FILES)
        slot = choose.randrange(4)
        writable = self.writes and choose.random() < (0.85 if self.redirected else 0.5)
        comm = choose.choice(["world"] * 6 + ["self", "halves", "reversed"])
        flags = "u" if writable else "r"
        if choose.random() < 0.15:
            flags = choose.choice(["rc", "re", "w", "rw", "rs", "us", "ra", "ro", "uc", "-"])
            if comm == "world":
                flags = choose.choice([flags, "ud", "rd"] if self.writes else [flags])
        hint = choose.choice(["", "", "", " romio_cb_read=enable", " romio_cb_read=disable"])
        opened = choose.choice([name] * 12 + ["new", "new", "none"]) if self.writes else name
        if opened == "new" and choose.random() < 0.8:
            name, writable, flags = FILES[0], True, "uc"
        self.say("open", slot, opened, flags, comm + hint)
        if choose.random() < 0.15:
            self.say("open", (slot + 1) % 4, choose.choice(FILES), "u" if writable else "r", "world")
        size, units = 1, self.sizes[name]
        for _ in range(choose.randint(2, 9)):
            kind = 18 if self.redirected and choose.random() < 0.3 else choose.randrange(20)
            if kind < 4:
                size, units = self.view(slot, name)
            elif kind < 13:
                self.reads(slot, size, units + 9, units // 3)
            elif kind == 13:
                whence = choose.choice(["set", "cur", "end"])
                low = {"set": 0, "cur": -50, "end": -2000}[whence]
                self.say("seek", slot, self.each(lambda low=low: low + choose.randrange(2000)), whence)  # type: ignore[misc]
            elif kind == 14 and self.shared_pointers:
                self.shared(slot)
            elif kind == 15:
                self.mistake(slot)
            elif kind == 16:
                self.say("ask", slot, choose.randrange(1000))
            elif kind < 19 and writable:
                self.writing(slot, name)
                self.say("view", slot, 0, "b", "b", "native")
                size, units = 1, self.sizes[name]
            elif writable:
                bytes_ = self.sizes[name] * choose.randint(1, 3) // 2 + choose.randrange(500)
                self.say(choose.choice(["set_size", "preallocate"]), slot, bytes_)
                if choose.random() < 0.3:
                    self.say("atomic", slot, choose.randrange(2))
            else:
                self.reads((slot + 1) % 4, 1, self.sizes[name], self.sizes[name] // 2)
        if choose.random() < 0.8:
            self.say("close", slot)

    def program(self, number: int) -> Program:
        choose = self.choose
        for name in FILES:
            tables = []
            self.sizes[name] = choose.randint(4_000, 16_000)
            for _ in range(choose.randint(1, 2)):
                piece, columns = choose.choice([1, 7, 24, 64, 96, 500]), choose.randint(2, 4)
                start = choose.randrange(1000)
                rows = min(80, (self.sizes[name] - start) // (piece * columns))
                tables.append(Table(start, piece, columns, rows))
            self.tables[name] = tables
            self.say("file", name, self.sizes[name])
            for table in tables:
                self.say_replica("replica", name, table.replica(choose))
            self.written[name] = choose.choice(tables)
        for name in (*FILES, "new") if self.redirected else ():
            for target in self.written[FILES[0] if name == "new" else name].targets(choose):
                self.say_replica("target", name, target)
        ranks = self.ranks
        for _ in range(choose.randint(1, 4)):
            self.phase()
        for job in self.jobs:
            self.reopening()
            self.say("job", *job.words)
            self.ranks = job.ranks
            for _ in range(choose.randint(1, 3)):
                choose.choice([self.phase, self.reopening])()
        return Program(number, ranks, tuple(self.lines))


def make(
    number: int, ranks: int, *, writes: str = "original", shared: bool = True, jobs: Sequence[Job] = ()
) -> Program:
    """The random program of this seed.

    It uses shared file pointers only if that is wanted, and writes only with ``writes``: to the
    "original", or so that much of it is redirected with "close" or "lease". Other jobs follow.
    """
    return Writer(number, ranks, writes, shared, jobs).program(number)


def random_jobs(seed: int, writes: str, most_ranks: int) -> list[Job]:
    """One to three jobs that follow a job with these ``writes``; a job without the library needs a sync before it."""
    choose, jobs = random.Random(seed), []
    for _ in range(choose.randint(1, 3)):
        how = choose.choice([writes, writes, "close", "lease", "original", "trace", "native"])
        jobs.append(Job(choose.randint(1, most_ranks), how, how == "native" or choose.random() < 0.3))
    return jobs


# ---- running them ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Runner:
    """Runs programs under one MPI, with one library."""

    mpi: Mpi
    interpreter: Path
    library: Path

    @classmethod
    def prepare(cls, mpi: Mpi, directory: Path, library: Path | None = None) -> Runner:
        """Compile the interpreter and, if none is given, the library."""
        source = REPOSITORY / "tests/programs/interpreter.c"
        interpreter = mpi.compile(source, directory / f"interpreter-{mpi.name}", "-Wall", "-Wextra")
        return cls(mpi, interpreter, library or build_library(directory / "libpdla.so"))

    def make_files(self, programs: Sequence[Program], directory: Path, writes: str) -> None:
        """``native`` and ``redirected``, each with a directory a program, and the map of the latter's replicas."""
        kinds: list[tuple[str, Purpose]] = [("replica", "read")]
        if any(job.how in ("close", "lease") for program in programs for job, _ in program.jobs(writes)):
            kinds.append(("target", "write"))
        made: list[tuple[Path, Replica, Purpose]] = []
        for program in programs:
            content = random.Random(program.number)
            place = directory / "redirected" / str(program.number)
            place.mkdir(parents=True)
            for name, size in program.files().items():
                (place / name).write_bytes(content.randbytes(size))
                if writes == "liu" and size > 0:
                    where = directory / "heads" / f"{program.number}-{name}"
                    lifted = ranges(heads(size, *SEGMENT)).build((place / name).read_bytes(), where)
                    made.append((place / name, lifted, "read"))
            for kind, purpose in kinds:
                for name, replicas in program.replicas(kind).items():
                    for i, replica in enumerate(replicas if kind == "target" or name in program.files() else ()):
                        where = directory / f"{kind}s" / f"{program.number}-{name}-{i}"
                        if purpose == "write":
                            replica.prepare(where)
                        else:
                            replica.build((place / name).read_bytes(), where)
                        made.append((place / name, replica, purpose))
        shutil.copytree(directory / "redirected", directory / "native")
        catalog = open_catalog(f"sqlite:///{directory / 'catalog.db'}")
        register(catalog, made)
        publish(catalog, directory / "replicas.map")
        catalog.close()

    def run(self, text: Path, job: Job, directory: Path, how: str) -> list[list[str]]:
        """What each rank saw, ``how`` "native" or "redirected"; raises when they do not end well."""
        reports, out = directory / "reports", directory / f"{how}.out.{text.name}"
        reports.mkdir(exist_ok=True)
        (directory / "logs").mkdir(exist_ok=True)
        settings = [f"PDLA_HOME={directory}", f"LD_PRELOAD={self.library}"]
        if job.how == "trace":
            settings += [f"PDLA_TRACE={directory / 'logs'}"]
        else:
            writes = "original" if job.how in CACHED else job.how
            settings += [f"PDLA_WRITES={writes}", f"PDLA_MAP={directory / 'replicas.map'}", f"PDLA_REPORT={reports}"]
        if job.how in CACHED:
            variables = cache_variables(job.how, directory / "cache")
            settings += [f"{name}={value}" for name, value in variables.items()]
        settings = settings if how == "redirected" and job.how != "native" else []
        starter = [on_nodes(directory)] if job.how in ON_NODES else []
        words = [*starter, "env", *settings, self.interpreter, text, directory / how, out]
        programs = text.read_text().count("program ")
        self.mpi.run(self.mpi.command(job.ranks, *words), timeout=PATIENCE * (programs + 1))
        return [(directory / f"{out.name}.{rank}").read_text().splitlines() for rank in range(job.ranks)]

    def sync(self, directory: Path) -> None:
        """Write back what leases have left; this must succeed."""
        self.mpi.run([PDLA, "sync"], variables={"PDLA_HOME": str(directory)})

    def sequence(self, programs: Sequence[Program], directory: Path, how: str, writes: str) -> list[list[str]]:
        """What each rank of each job saw."""
        seen = []
        for number, scripts in enumerate(zip(*(program.scripts(writes) for program in programs), strict=True)):
            (job,) = {job for job, _ in scripts}
            if job.synced and how == "redirected":
                self.sync(directory)
            text = directory / str(number)
            text.write_text("".join(script for _, script in scripts))
            seen += self.run(text, job, directory, how)
        if how == "redirected":
            self.sync(directory)
        return seen

    def both(
        self, programs: Sequence[Program], directory: Path, writes: str = "original"
    ) -> tuple[list[list[str]], list[list[str]]]:
        """What each rank of each job saw of the programs, natively and redirected, in a new ``directory``."""
        directory.mkdir()
        self.make_files(programs, directory, writes)
        native = self.sequence(programs, directory, "native", writes)
        return native, self.sequence(programs, directory, "redirected", writes)

    def differences(self, programs: Sequence[Program], directory: Path, writes: str = "original") -> dict[int, str]:
        """How programs differ native and redirected, by their numbers, in a new ``directory``."""
        ranks = [[by_program(lines) for lines in seen] for seen in self.both(programs, directory, writes)]
        found = {program.number: self._difference(program, *ranks, directory) for program in programs}
        return {number: what for number, what in found.items() if what}

    def _difference(
        self,
        program: Program,
        native: Sequence[dict[int, list[str]]],
        redirected: Sequence[dict[int, list[str]]],
        directory: Path,
    ) -> str:
        """The first difference; "" if there is none."""
        for number, (one_rank, other_rank) in enumerate(zip(native, redirected, strict=True)):
            expected, got = one_rank[program.number], other_rank.get(program.number, [])
            for one, other in zip(expected, got, strict=False):
                if one != other:
                    return f"rank {number} of all jobs, {self.mpi.name}\nnative     {one}\nredirected {other}"
            if len(expected) != len(got):
                return f"rank {number} of all jobs under {self.mpi.name} ended early"
        return next(files_differ(*(directory / how / str(program.number) for how in ("native", "redirected"))), "")

    def outcomes(self, programs: Sequence[Program], scratch: Path, writes: str) -> Iterator[tuple[Program, str]]:
        """Each program and how it differs, "" or NATIVELY. If one does not end, the others are run once more."""
        directory = Path(tempfile.mkdtemp(dir=scratch)) / "case"
        try:
            found = self.differences(programs, directory, writes)
            yield from ((program, found.get(program.number, "")) for program in programs)
            return
        except (AssertionError, subprocess.TimeoutExpired) as error:
            how = "redirected" if "redirected.out" in str(error) or PDLA in str(error) else "native"
            why = NATIVELY if how == "native" else str(error)[:2000]
            begun = begun_in(directory, how) or [0]
        finally:
            shutil.rmtree(directory.parent)
        if len(programs) == 1:
            yield programs[0], why
            return
        first, last = max(0, min(begun) - 1), max(1, max(begun))
        parts = [programs[:first], *([program] for program in programs[first:last]), programs[last:]]
        for part in parts:
            if part:
                yield from self.outcomes(part, scratch, writes)


def begun_in(directory: Path, how: str) -> list[int]:
    """How many programs each rank of the last job has begun."""
    outs = list(directory.glob(f"{how}.out.*.*"))
    last = max((int(out.suffixes[-2][1:]) for out in outs), default=0)
    return [len(by_program(out.read_text().splitlines())) for out in directory.glob(f"{how}.out.{last}.*")]


def add_replica(connection: Connection, path: Path, replica: Replica, purpose: Purpose, owner: int) -> None:
    """Record a valid replica of the file at ``path``, as if it had been built, of the original of this number."""
    extents = np.array(replica.extents, np.int64) if len(replica.extents) else None
    loops = tuple(MapLoop(*loop) for loop in replica.loops)
    access_map = AccessMap(loops, replica.start, replica.length, replica.replica_start, extents)
    signature = Signature(str(path), purpose, False, replica.start, max(replica.length, 1), (), (0,))
    layout = Layout("disks", replica.servers, replica.groups, tuple(replica.strips), replica.section)
    number = add(
        connection,
        REPLICAS,
        original_id=owner,
        signature=signature_to_json(signature),
        access_map=access_map.to_json(),
        layout=asdict(layout),
        pool=layout.pool,
        size=access_map.size,
        state="valid",
        created=datetime.now(UTC),
        purpose=purpose,
    )
    for i, (file, found) in enumerate((file, file.stat()) for file in replica.components):
        of_file = {"size": found.st_size, "inode": found.st_ino, "mtime_ns": found.st_mtime_ns}
        add(connection, COMPONENTS, replica_id=number, number=i, path=str(file), **of_file)


def register(catalog: Catalog, replicas: Sequence[tuple[Path, Replica, Purpose]]) -> None:
    """Register all in one transaction: busy disks need long for each."""
    owners: dict[Path, int] = {}
    with catalog._transaction() as connection:
        for path, replica, purpose in replicas:
            file = path.parent if purpose == "write" else path
            if file not in owners:
                identity = directory_identity(path) if purpose == "write" else identity_of(path)
                owners[file] = add(connection, ORIGINALS, path=str(file), **asdict(identity))
            add_replica(connection, path, replica, purpose, owners[file])


def by_program(seen: Sequence[str]) -> dict[int, list[str]]:
    """What a rank saw of each program."""
    found: dict[int, list[str]] = {}
    lines: list[str] = []
    for line in seen:
        if line.startswith("program "):
            lines = found[int(line.split()[1])] = []
        else:
            lines.append(line)
    return found


def files_differ(native: Path, redirected: Path) -> Iterator[str]:
    names = {path.relative_to(root) for root in (native, redirected) for path in root.rglob("*") if path.is_file()}
    for name in sorted(names):
        pair = [root / name for root in (native, redirected)]
        if not all(path.exists() for path in pair) or pair[0].read_bytes() != pair[1].read_bytes():
            yield f"{name} is left differently"


# ---- making them small -----------------------------------------------------------------------------------------------


def shrink(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The lines of a failing program without which it would not fail."""
    lines, part = list(program.lines), max(1, len(program.lines) // 2)
    while True:
        i, before = 0, len(lines)
        while i < len(lines):
            fewer = lines[:i] + lines[i + part :]
            if fails(Program(program.number, program.ranks, tuple(fewer))):
                lines = fewer
            else:
                i += part
        if part == 1 and len(lines) == before:
            return Program(program.number, program.ranks, tuple(lines))
        part = max(1, part // 2)


def main() -> int:
    """Run many programs in batches, a line of JSON for each; shrink what differs, and write it to --found."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("first", type=int)
    options.add_argument("last", type=int)
    options.add_argument("--mpi", choices=["mpich", "openmpi"], default="mpich")
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--writes", choices=["original", "close", "lease", *CACHED], default="original")
    options.add_argument("--found", type=Path, default=Path("found"))
    options.add_argument("--library", type=Path, help="compiled from the sources here where it is not given")
    chosen, found = options.parse_args(), 0
    (mpi,) = [parameter.values[0] for parameter in available_mpis() if parameter.id == chosen.mpi]
    with tempfile.TemporaryDirectory() as scratch:
        runner = Runner.prepare(mpi, Path(scratch), chosen.library)
        for batch, numbers in groupby(range(chosen.first, chosen.last), lambda number: number // BATCH):
            mpich = mpi.name == "mpich"
            jobs = random_jobs(batch, chosen.writes, 3 if mpich else 1)
            programs = [make(n, chosen.ranks, writes=chosen.writes, shared=mpich, jobs=jobs) for n in numbers]
            outcomes = list(runner.outcomes(programs, Path(scratch), chosen.writes))
            differ = {program.number: what for program, what in outcomes if what not in ("", NATIVELY)}
            told = {
                "mpi": mpi.name,
                "ranks": chosen.ranks,
                "writes": chosen.writes,
                "programs": [programs[0].number, programs[-1].number + 1],
                "same": sum(what == "" for _, what in outcomes),
                "natively": [program.number for program, what in outcomes if what == NATIVELY],
                "differ": differ,
            }
            print(json.dumps(told), flush=True)
            found += len(differ)
            for program, what in outcomes:
                if what not in ("", NATIVELY):
                    name = f"{mpi.name}-{chosen.writes}-{program.ranks}-{program.number}.txt"
                    chosen.found.mkdir(exist_ok=True)
                    (chosen.found / name).write_text(small(runner, program, Path(scratch), chosen.writes).text)
    return min(found, 1)


def small(runner: Runner, program: Program, scratch: Path, writes: str) -> Program:
    """A program that differs, without the lines that do not matter."""

    def fails(less: Program) -> bool:
        ((_, what),) = runner.outcomes([less], scratch, writes)
        return what not in ("", NATIVELY)

    return shrink(program, fails)


if __name__ == "__main__":
    sys.exit(main())
