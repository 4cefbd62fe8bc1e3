"""Damages what the verbs read, and runs them on it: journals, states, maps, logs, traces, plans, catalogs.

A verb ends with an answer or one line that says what is wrong: no traceback, no signal, no hang. What journals tell is
brought to where they tell of or nowhere. Where files have checksums, every second damage has them made right again.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import h5py

from pdla.cli import main as verb
from pdla.replicator.journals import ENTRY, HEADER, HEADER_SIZE
from pdla.replicator.mapfile import CHECKSUM_AT, _checksum

PATIENCE = 120
"""Seconds after which a verb hangs; busy machines are slow, and all that there is to read is small."""
MOST_MEMORY, MOST_FILE = 8 << 30, 1 << 28
NUMBERS = (0, 1, 2, 7, 255, 4095, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 62), (1 << 63) - 1)
VALUES: tuple[Any, ...] = (None, True, "", "x", "\0", "/", -1, 0, 1, 0.5, 1e308, -1e308, 1 << 62, 1 << 70, [], {}, [[]])

Damage = Callable[[Path, random.Random], None]


# ---- damage ----------------------------------------------------------------------------------------------------------


def damage_bytes(image: bytearray, choose: random.Random, start: int = 0) -> None:
    """In place: a bit, a byte, a number, some bytes from elsewhere, or the end."""
    for _ in range(choose.choice([1, 1, 1, 2, 5])):
        if len(image) <= start + 8:
            return
        at, kind = choose.randrange(start, len(image) - 8), choose.randrange(6)
        if kind == 0:
            image[at] ^= 1 << choose.randrange(8)
        elif kind == 1:
            image[at] = choose.randrange(256)
        elif kind == 2:
            width = choose.choice([4, 8])
            number = choose.choice([1, 1, -1]) * choose.choice(NUMBERS) + choose.randint(-1, 1)
            at -= at % width
            image[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "little")
        elif kind == 3:
            other, length = choose.randrange(len(image)), choose.randint(1, 64)
            part = image[other : other + length]
            image[at : at + len(part)] = part
        elif kind == 4:
            at -= at % 8
            (number,) = struct.unpack_from("<Q", image, at)
            struct.pack_into("<Q", image, at, (number + choose.choice([-8, -1, 1, 8, 4096])) % (1 << 64))
        elif choose.random() < 0.3:
            del image[at:]


def damage_file(path: Path, choose: random.Random) -> None:
    image = bytearray(path.read_bytes())
    # Most of what is interesting is at the beginning.
    head = bytearray(image[:512]) if choose.random() < 0.5 else image
    damage_bytes(head, choose)
    path.write_bytes(head + image[512:] if head is not image else image)


def damage_journal(path: Path, choose: random.Random) -> None:
    image = bytearray(path.read_bytes())
    used = min(len(image), HEADER_SIZE + 64 * ENTRY.itemsize)
    part = bytearray(image[HEADER.fields["count"][1] if choose.random() < 0.5 else 0 : used])  # type: ignore[index]
    before = len(part)
    damage_bytes(part, choose)
    image[used - before : used] = part
    if len(image) >= HEADER_SIZE and choose.random() < 0.5:
        seal_journal(image)
    path.write_bytes(image)


def seal_journal(image: bytearray) -> None:
    """Its checksums are right."""
    first, last = HEADER.fields["rank"][1], HEADER.fields["count"][1]  # type: ignore[index]
    struct.pack_into("<I", image, 8, google_crc32c.value(bytes(image[first:last])))
    for at in range(
        HEADER_SIZE, min(len(image), HEADER_SIZE + 64 * ENTRY.itemsize) - ENTRY.itemsize + 1, ENTRY.itemsize
    ):
        replica, start, seal = struct.unpack_from("<QqQ", image, at)
        length = seal & 0xFFFFFFFF
        seal = google_crc32c.value(struct.pack("<QqQ", replica, start, length)) << 32 | length
        struct.pack_into("<QqQ", image, at, replica, start, seal)


def damage_map(path: Path, choose: random.Random) -> None:
    image = bytearray(path.read_bytes())
    damage_bytes(image, choose)
    if len(image) > 64 and choose.random() < 0.7:
        struct.pack_into("<Q", image, 8, len(image))
        struct.pack_into("<I", image, CHECKSUM_AT, _checksum(bytes(image)))
    path.write_bytes(image)


def damage_logs(directory: Path, choose: random.Random) -> None:
    damage_file(choose.choice(sorted(directory.iterdir())), choose)


def damage_trace(path: Path, choose: random.Random) -> None:
    """Bytes of the file, or what is in it."""
    if choose.random() < 0.3:
        damage_file(path, choose)
        return
    with h5py.File(path, "r+") as file:
        found: list[Any] = [file]
        file.visititems(lambda _, item: found.append(item))
        for _ in range(choose.randint(1, 3)):
            item = choose.choice(found)
            if item.attrs and (isinstance(item, h5py.Group) or choose.random() < 0.3):
                item.attrs[choose.choice(sorted(item.attrs))] = choose.choice([0, -1, 1 << 62, "", "x", 0.5])
            elif isinstance(item, h5py.Dataset) and item.size and item.dtype.kind in "iuf":
                data = item[...]
                with suppress(OverflowError, ValueError):
                    data.flat[choose.randrange(data.size)] = choose.choice([*NUMBERS, -1])
                item[...] = data
            elif isinstance(item, h5py.Dataset) and choose.random() < 0.3:
                del file[item.name]
                return


def damage_tree(value: Any, choose: random.Random) -> Any:
    """The same with a part that is missing, another one's, or something else."""
    if isinstance(value, dict) and value and choose.random() < 0.9:
        key = choose.choice(sorted(value))
        if choose.random() < 0.05:
            return {name: part for name, part in value.items() if name != key}
        return {**value, key: damage_tree(value[key], choose)}
    if isinstance(value, list) and value and choose.random() < 0.9:
        i = choose.randrange(len(value))
        return [*value[:i], damage_tree(value[i], choose), *value[i + choose.choice([1, 1, 1, 2, 0]) :]]
    if isinstance(value, int | float) and choose.random() < 0.6:
        return choose.choice([-value, value + 1, value * 2, value // 2, *NUMBERS])
    return choose.choice(VALUES)


def damage_plan(path: Path, choose: random.Random) -> None:
    if choose.random() < 0.2:
        damage_file(path, choose)
        return
    path.write_text(json.dumps(damage_tree(json.loads(path.read_text()), choose)))


def damage_catalog(path: Path, choose: random.Random) -> None:
    """Bytes of the file, or a value of a row."""
    if choose.random() < 0.3:
        damage_file(path, choose)
        return
    with closing(sqlite3.connect(path)) as database, suppress(sqlite3.Error):
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = choose.choice(tables)
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        rows = database.execute(f"SELECT rowid, * FROM {table}").fetchall()
        if rows:
            row, i = choose.choice(rows), choose.randrange(len(columns))
            value = damage_value(row[i + 1], choose)
            database.execute(f"UPDATE {table} SET {columns[i]} = ? WHERE rowid = ?", (value, row[0]))
            database.commit()


def damage_value(value: Any, choose: random.Random) -> Any:
    if isinstance(value, str) and value[:1] in ("{", "[") and choose.random() < 0.8:
        with suppress(ValueError):
            return json.dumps(damage_tree(json.loads(value), choose))
    return choose.choice([None, "", "x", "{}", "[]", b"\xff\0", -1, 0, 1, 1 << 62, 0.5])


# ---- verbs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """What is damaged below a place, and the command lines that then read it; ``files`` may be a pattern."""

    files: str
    damage: Damage
    commands: Sequence[str]


TARGETS = {
    "journals": Target("home/journals/*/*.journal", damage_journal, ["status", "sync", "sync --changed overwrite"]),
    "states": Target("home/*.state", damage_file, ["status", "sync", "gc"]),
    "maps": Target("home/replicas.map", damage_map, ["status", "sync", "gc"]),
    "logs": Target("logs", damage_logs, ["pack logs -o packed.h5"]),
    "traces": Target(
        "run.h5", damage_trace, ["analyze run.h5", "plan run.h5 --writes close -o again.json", "report run.h5"]
    ),
    "plans": Target("plan.json", damage_plan, ["replicate plan.json"]),
    "catalogs": Target("home/catalog.db", damage_catalog, ["status", "patterns", "verify", "sync", "gc"]),
}


@dataclass
class Fuzzer:
    """Damages copies of a place; ``kept`` is what they are made from."""

    kept: Path
    place: Path
    faults: list[str] = field(default_factory=list)
    answers: Counter[int] = field(default_factory=Counter)

    def restore(self) -> None:
        """All but the components, which are what they are by their inodes."""
        for item in self.kept.rglob("*"):
            to = self.place / item.relative_to(self.kept)
            if item.is_dir():
                to.mkdir(exist_ok=True)
            elif "pools" not in item.parts:
                shutil.copyfile(item, to)
        kept = {item.relative_to(self.kept) for item in self.kept.rglob("*")}
        for item in sorted(self.place.rglob("*"), reverse=True):
            if item.relative_to(self.place) not in kept and "pools" not in item.parts:
                item.rmdir() if item.is_dir() and not item.is_symlink() else item.unlink()

    def case(self, name: str, seed: int) -> None:
        """Damage, and all commands on it, in a process each."""
        target, choose = TARGETS[name], random.Random(seed)
        self.restore()
        target.damage(choose.choice(sorted(self.place.glob(target.files))), choose)
        if name == "plans":  # the replica for writes holds what waits, and is not made anew
            shutil.rmtree(self.place / "home")
        for command in target.commands:
            self.run(command, f"{name} {seed}")

    def run(self, command: str, what: str) -> None:
        out = self.place.with_name("out")
        child = os.fork()
        if not child:
            become(command, self.place, out)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self.answers[code] += 1
        if code not in (0, 1, 2):
            why = f"signal {-code}" if code < 0 else out.read_text()[-1500:]
            self.faults.append(f"{what}: pdla {command}: {why}")
            print(self.faults[-1], flush=True)


def become(command: str, place: Path, out: Path) -> None:
    """Run a verb in this process, which it ends: 0 to 2 are the verb's exit codes, 70 is any exception."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(PATIENCE)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE, MOST_FILE))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(place)
    os.environ["PDLA_HOME"] = str(place / "home")
    sys.argv = ["pdla", *command.split()]
    code = 70
    try:
        verb()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 70
    except BaseException:
        traceback.print_exc()
    with suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def fuzz_verbs(name: str, kept: Path, place: Path, first: int, *, cases: int = 0, seconds: float = 0) -> Fuzzer:
    """So many cases, or as many as fit in so many seconds."""
    fuzzer = Fuzzer(kept, place)
    until = time.monotonic() + seconds
    seed = first
    while seed < first + cases or (seconds and time.monotonic() < until):
        fuzzer.case(name, seed)
        seed += 1
    print(f"{name}: {seed - first} cases, exit codes {dict(fuzzer.answers)}, {len(fuzzer.faults)} faults", flush=True)
    return fuzzer
