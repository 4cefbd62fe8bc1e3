"""Damages what the verbs and the library read, and runs verbs and redirected programs on it.

A verb ends with an answer or one line that says what is wrong: no traceback, no signal, no hang. A program reads the
right bytes, or its open fails and one line says why. The original has old or new bytes in every place. Where files
have checksums, every second damage has them made right again; what then is no damage, but another story, is *forged*:
of the bytes that it tells of old or new ones are right, and where it tells of places, any.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import struct
import subprocess
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
import numpy as np

from pdla.cli import main as verb
from pdla.replicator import intent
from pdla.replicator.journals import STATE
from tests.support.handmade_journals import Image
from tests.support.handmade_maps import renew
from tests.support.mpi import Mpi

PATIENCE = 120
"""Seconds after which a verb hangs; busy machines are slow, and all that there is to read is small."""
MOST_MEMORY, MOST_FILE = 8 << 30, 1 << 28
NUMBERS = (0, 1, 2, 7, 255, 4095, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 62), (1 << 63) - 1)
VALUES: tuple[Any, ...] = (None, True, "", "x", "\0", "/", -1, 0, 1, 0.5, 1e308, -1e308, 1 << 62, 1 << 70, [], {}, [[]])

Damage = Callable[[Path, random.Random], bool]
"""Whether what is there is forged."""


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


def damage_file(path: Path, choose: random.Random) -> bool:
    image = bytearray(path.read_bytes())
    # Most of what is interesting is at the beginning.
    head = bytearray(image[:512]) if choose.random() < 0.5 else image
    damage_bytes(head, choose)
    path.write_bytes(head + image[512:] if head is not image else image)
    return False


def damage_field(row: Any, name: str, choose: random.Random) -> None:
    """A number or a text of a row is another one."""
    kind = row.dtype[name]
    if kind.names:
        damage_field(row[name], choose.choice([one for one in kind.names if kind[one].subdtype is None]), choose)
        return
    if kind.kind == "S":
        row[name] = choose.choice([b"", b"x", row[name][:-1], b"/", b"\xff" * kind.itemsize, b"a\0b"])
        return
    number = choose.choice(
        [int(row[name]) + choose.choice([-1, 1]), choose.choice([1, 1, -1]) * choose.choice(NUMBERS)]
    )
    row[name] = np.array(number % (1 << 8 * kind.itemsize), f"<u{kind.itemsize}").view(kind)


def damage_journal(path: Path, choose: random.Random) -> bool:
    """Bytes of the file, or a number in it, which then is right by all checksums."""
    if choose.random() < 0.4:
        return damage_file(path, choose)
    image = Image(path)
    forged = choose.choice([damage_header, damage_counts, damage_states, damage_entries])(image, choose)
    image.write()
    return forged


def damage_header(image: Image, choose: random.Random) -> bool:
    name = choose.choice(["rank", "boot", "host", "pid", "original", "lease", "target"])
    damage_field(image.header, name, choose)
    return name in ("original", "target")


def damage_counts(image: Image, choose: random.Random) -> bool:
    damage_field(image.header, choose.choice(["count", "synced"]), choose)
    return True


def damage_states(image: Image, choose: random.Random) -> bool:
    for number in choose.choice([[0], [1], [0, 1]]):
        damage_field(image.header["states"][number], choose.choice(STATE.names or ()), choose)
    return False


def damage_entries(image: Image, choose: random.Random) -> bool:
    for _ in range(choose.choice([1, 1, 5])):
        number = choose.randrange(int(image.header["count"]) & 0xFFFFFFFF)
        damage_field(image.entries[number], choose.choice(image.entries.dtype.names), choose)
        image.seal_entry(number)
    return True


def damage_names(directory: Path, choose: random.Random) -> bool:
    """A directory of journals contains something else."""
    path = choose.choice(sorted(path for path in directory.rglob("*") if not path.is_dir()))
    kind = choose.choice(["name", "another", "unfinished", "copy", "empty", "directory", "link", "astray"])
    if kind == "name":
        path.rename(path.with_name(f"{choose.choice(NUMBERS)}{path.suffix}"))
    elif kind in ("another", "unfinished"):
        path.rename(path.with_name(path.name + (".new" if kind == "unfinished" else "x")))
        return True
    elif kind == "copy":
        shutil.copyfile(path, path.with_name(f"{choose.choice(NUMBERS)}.journal"))
    elif kind == "empty":
        path.with_name(choose.choice(["0.journal", "0.journal.new", "intent", "intent.1.new"])).touch()
    else:
        path.rename(kept := directory.parent / "kept")
        if kind == "directory":
            path.mkdir()
        else:
            path.symlink_to(kept if kind == "link" else directory / "nowhere")
    return False


def damage_intent(directory: Path, choose: random.Random) -> bool:
    """There is an intent of an interrupted or stopped process; then as with journals."""
    row = np.zeros(1, intent.RECORD)
    row["magic"], row["busy"], row["host"], row["pid"] = intent.MAGIC, choose.randrange(2), b"host", os.getpid()
    status = (directory.parents[2] / "data").stat()
    row["inode"], row["size"], row["mtime_ns"] = status.st_ino, status.st_size, status.st_mtime_ns
    row["ctime_ns"] = status.st_ctime_ns
    row["until_ns"] = choose.choice([time.time_ns(), *NUMBERS])
    for _ in range(choose.randrange(3)):
        damage_field(row[0], choose.choice(intent.RECORD.names or ()), choose)
    row["checksum"] = google_crc32c.value(row.tobytes()[intent.RECORD.fields["busy"][1] :])  # type: ignore[index]
    (directory / intent.NAME).write_bytes(row.tobytes())
    return choose.random() < 0.5 and damage_file(directory / intent.NAME, choose)


def damage_notes(inodes: Path, choose: random.Random) -> bool:
    """Notes of inodes are missing, elsewhere, more, or something else."""
    (place,) = inodes.iterdir()
    (note,) = place.iterdir()
    kind = choose.choice(["gone", "inode", "name", "more", "content", "directory", "link"])
    if kind in ("gone", "directory"):
        note.unlink()
        if kind == "directory":
            note.mkdir()
    elif kind == "inode":
        place.rename(place.with_name(str(choose.choice(NUMBERS))))
    elif kind == "name":
        note.rename(place / choose.choice(["x", "x" * 255, "..x", "lock", "\n", "%s%n", note.name[:-1]]))
    elif kind == "more":
        for number in range(20):
            (place / f"{number:016x}").touch()
    elif kind == "content":
        note.write_bytes(choose.randbytes(100))
    else:
        place.rename(inodes.parent / "kept")
        place.symlink_to(inodes.parent / "kept")
    return kind in ("gone", "inode", "name")


def damage_map(path: Path, choose: random.Random) -> bool:
    image = bytearray(path.read_bytes())
    damage_bytes(image, choose)
    if forged := len(image) > 64 and choose.random() < 0.7:
        struct.pack_into("<Q", image, 8, len(image))
        renew(image)
    path.write_bytes(image)
    return forged


def damage_logs(directory: Path, choose: random.Random) -> bool:
    return damage_file(choose.choice(sorted(path for path in directory.rglob("*") if path.is_file())), choose)


def damage_trace(path: Path, choose: random.Random) -> bool:
    """Bytes of the file, or of its content."""
    if choose.random() < 0.3:
        return damage_file(path, choose)
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
                break
    return True


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


def damage_plan(path: Path, choose: random.Random) -> bool:
    if choose.random() < 0.2:
        return damage_file(path, choose)
    path.write_text(json.dumps(damage_tree(json.loads(path.read_text()), choose)))
    return True


def damage_catalog(path: Path, choose: random.Random) -> bool:
    """Bytes of the file, or a value of a row."""
    if choose.random() < 0.3:
        damage_file(path, choose)
        return True
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
    return True


def damage_value(value: Any, choose: random.Random) -> Any:
    if isinstance(value, str) and value[:1] in ("{", "[") and choose.random() < 0.8:
        with suppress(ValueError):
            return json.dumps(damage_tree(json.loads(value), choose))
    return choose.choice([None, "", "x", "{}", "[]", b"\xff\0", -1, 0, 1, 1 << 62, 0.5])


# ---- verbs and programs ----------------------------------------------------------------------------------------------

READS = ("read original", "read close", "read lease", "read trace")
WRITES = ("write original", "write close", "write lease")
SYNCS = ("status", "sync", "sync --changed overwrite", "sync --changed discard")


@dataclass(frozen=True)
class Target:
    """What is damaged below a place, ``files`` may be a pattern, and what then reads it: one of the programs in most
    cases, then the verbs. ``places``: what is forged may tell of other places."""

    files: str
    damage: Damage
    commands: Sequence[str]
    programs: Sequence[str] = ()
    places: bool = False


TARGETS = {
    "journals": Target("home/journals/*/*.journal/*.journal", damage_journal, SYNCS, READS + WRITES),
    "names": Target("home/journals/[0-9a-f]*", damage_names, SYNCS, READS + WRITES),
    "intents": Target("home/journals/[0-9a-f]*", damage_intent, SYNCS, READS + WRITES),
    "notes": Target("home/journals/inodes", damage_notes, SYNCS, READS + WRITES),
    "states": Target("home/*.state", damage_file, ["status", "sync", "gc"], READS + ("input original",) * 7),
    "maps": Target(
        "home/replicas.map", damage_map, ["status", "sync", "gc"], READS + ("input original",) * 4, places=True
    ),
    "logs": Target("logs", damage_logs, ["pack logs -o packed.h5"]),
    "traces": Target(
        "run.h5", damage_trace, ["analyze run.h5", "plan run.h5 --writes close -o again.json", "report run.h5"]
    ),
    "plans": Target("plan.json", damage_plan, ["replicate plan.json"], places=True),
    "catalogs": Target("home/catalog.db", damage_catalog, ["status", "patterns", "verify", "sync", "gc"], places=True),
}


@dataclass(frozen=True)
class Program:
    """tests/programs/leased.c, and the libraries that are preloaded to it."""

    mpi: Mpi
    path: Path
    libraries: Sequence[Path]

    def run(self, place: Path, how: str, ranks: int, *words: str | Path) -> tuple[int, str, str]:
        """Exit code (-14 if it hangs) and output."""
        settings = {"PDLA_HOME": place / "home", "LD_PRELOAD": ":".join(map(str, self.libraries))}
        if how == "trace":
            (place / "again").mkdir()
            settings["PDLA_TRACE"] = place / "again"
        else:
            settings |= {"PDLA_MAP": place / "home/replicas.map", "PDLA_WRITES": Path(how)}
        command = ["env", *(f"{name}={value}" for name, value in settings.items()), str(self.path), *map(str, words)]
        process = subprocess.Popen(
            command if ranks == 1 else self.mpi.command(ranks, *command),
            env={**os.environ, **self.mpi.env}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return -signal.SIGALRM, "", ""
        return process.returncode, out, err


@dataclass(frozen=True)
class Setting:
    """Copies of ``kept`` are damaged at ``place``: it has the originals ``data``, of which what a lease keeps makes
    ``newest``, and ``input``, of which there is a replica. ``links`` are the components, which a verb may remove."""

    kept: Path
    place: Path
    links: Path
    newest: bytes
    program: Program


def same_bytes(found: bytes, versions: Sequence[bytes]) -> bool:
    """Whether every byte is that of some version."""
    if len(found) not in map(len, versions):
        return False
    some = [np.frombuffer(version.ljust(len(found), b"\0")[: len(found)], np.uint8) for version in versions]
    return bool(np.any(np.stack(some) == np.frombuffer(found, np.uint8), axis=0).all())


def rows_of(data: bytes, number: int) -> bytes:
    """What tests/programs/leased.c makes of a file in this round."""
    changed = bytearray(data)
    for row in range(20):
        changed[200 + row * 288 : 296 + row * 288] = bytes((number * 59 + row * 7 + i) % 256 for i in range(96))
    return bytes(changed)


@dataclass
class Fuzzer:
    """Damages what is at a place, and checks the effects."""

    setting: Setting
    faults: list[str] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    versions: list[bytes] = field(default_factory=list)
    exact: bool = True

    @property
    def place(self) -> Path:
        return self.setting.place

    def restore(self) -> None:
        """Originals and components keep their inodes, by which they are known, and their times."""
        kept = {item.relative_to(self.setting.kept): item for item in self.setting.kept.rglob("*")}
        for item in sorted(self.place.rglob("*"), reverse=True):
            was = kept.get(item.relative_to(self.place))
            if was is None or item.is_symlink() or was.is_dir() != item.is_dir():
                item.rmdir() if item.is_dir() and not item.is_symlink() else item.unlink()
        for name, item in sorted(kept.items()):
            if item.is_dir():
                (self.place / name).mkdir(exist_ok=True)
            else:
                restore_file(item, self.place / name, self.setting.links / name)
        self.versions = [(self.setting.kept / "data").read_bytes(), self.setting.newest]

    def case(self, name: str, seed: int) -> None:
        """Damage, and all commands on it, in a process each."""
        target, choose, what = TARGETS[name], random.Random(seed), f"{name} {seed}"
        self.restore()
        forged = target.damage(choose.choice(sorted(self.place.glob(target.files))), choose)
        self.exact = not forged and "sync" in target.commands
        if name == "plans":  # the replica for writes holds what waits, and is not made anew
            shutil.rmtree(self.place / "home")
        if target.programs and choose.random() < 0.7:
            self.program(choose.choice(target.programs), choose.choice([1, 1, 1, 2]), what, forged and target.places)
        for command in target.commands:
            self.run(command, what)
        if not same_bytes((self.place / "data").read_bytes(), self.versions) and not (forged and target.places):
            self.fault(what, "at the end", "the original has other bytes")

    def fault(self, what: str, command: str, why: str) -> None:
        self.faults.append(f"{what}: {command}: {why}")
        print(self.faults[-1], flush=True)

    def run(self, command: str, what: str) -> None:
        out = self.place.with_name("out")
        child = os.fork()
        if not child:
            become(command, self.place, out)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self.answers[f"pdla {code}"] += 1
        if code not in (0, 1, 2):
            why = f"signal {-code}" if code < 0 else out.read_text(errors="replace")[-1500:]
            self.fault(what, f"pdla {command}", why)
        if command == "sync" and code == 0 and self.exact and (self.place / "data").read_bytes() != self.versions[-1]:
            self.fault(what, "pdla sync", "all is well, and the original has not the newest bytes")

    def program(self, does: str, ranks: int, what: str, anywhere: bool) -> None:
        """Run it; what it does or sees must be right, unless a map leads it ``anywhere``."""
        action, how = does.split()
        file, out = self.place / ("input" if action == "input" else "data"), self.place / "read"
        words = (file, "7") if action == "write" else (file, "read", out)
        code, said, complaint = self.setting.program.run(self.place, how, ranks, *words)
        versions = [file.read_bytes()] if action == "input" else self.versions[-1:] if self.exact else self.versions
        classes = re.fullmatch(r"open (\d+) data (\d+) close (\d+)\n", said)
        ended = classes is not None and set(classes.groups()) == {"0"}
        if action == "write" and not (classes and classes[1] != "0"):
            self.versions.append(rows_of(self.versions[-1], 7))
            self.exact = self.exact and ended
        wrong = ended and action != "write" and not anywhere and not same_bytes(out.read_bytes(), versions)
        lines = [line for line in complaint.splitlines() if not re.match(r"pdla: \S", line)]
        refused = bool(classes) and not ended and complaint.startswith("pdla: ")
        self.answers[f"{action} {said.strip() if code == 0 else code}"] += 1
        if code or lines or wrong or not (ended or refused):
            which = "wrong bytes" if wrong else f"exit {code}"
            self.fault(what, f"{does} on {ranks} ranks", f"{which}: {said}{complaint[-1500:]}")


def restore_file(kept: Path, to: Path, link: Path) -> None:
    """The same bytes and times, in the same inode if there is a link to it."""
    if link.exists() and not (to.exists() and to.samefile(link)):
        to.unlink(missing_ok=True)
        to.hardlink_to(link)
    times = kept.stat()
    if not to.exists() or to.read_bytes() != kept.read_bytes():
        shutil.copyfile(kept, to)
    if to.stat().st_mtime_ns != times.st_mtime_ns:
        os.utime(to, ns=(times.st_atime_ns, times.st_mtime_ns))


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


def fuzz_verbs(name: str, setting: Setting, first: int, *, cases: int = 0, seconds: float = 0) -> Fuzzer:
    """A number of cases, or as many as fit in a number of seconds."""
    fuzzer = Fuzzer(setting)
    until = time.monotonic() + seconds
    seed = first
    while seed < first + cases or (seconds and time.monotonic() < until):
        fuzzer.case(name, seed)
        seed += 1
    answers = ", ".join(f"{answer}: {count}" for answer, count in sorted(fuzzer.answers.items()))
    print(f"{name}: {seed - first} cases, {len(fuzzer.faults)} faults ({answers})", flush=True)
    return fuzzer
