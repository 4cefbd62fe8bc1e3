"""Random MPI-IO programs between whose steps another process does something to their files.

A program is a text, a step a line. A file is ``a``, ``b``, ``c`` or ``bak`` in the directory of the program, ``l``, a
symbolic link there, ``f/x`` in a directory beside it, or ``t`` in another file system, which has the inode number of
one of the others. First there are ``a``, which has replicas for reading, and
``b``; ``a``, ``b`` and ``c`` have replicas for writing where the mode uses them.

    mpi RANKS HOW STEP...     a program under pdla (tests/programs/file_steps.c); HOW is "mode", or a mode; the step
                              pause:OPERATION,NAME... lets another process do that while the program waits
    under HOW PROGRAM WORD... a program without MPI under pdla: cat, cp, mv, rm, ln, truncate, or exchange, by which
                              two files change their names
    pdla VERB WORD...         sync, gc, status, rm
    rename link symlink unlink copy truncate change touch chmod remake replace turn twin NAME...
                              what another process does, which is not under pdla: methods of ``World``
    clone NAME STEP...        the step, ``k`` being NAME in a copy of the file system, as a snapshot is one
    trap KIND                 what another user does in the directory of the caches, which all may write to

tests/support/file_oracle.py says what is right: the bytes that would be there natively, an error that names the file
and keeps the bytes that wait for it, or nothing where the file is gone. At the end pdla sync must bring home what it
can, ``--changed overwrite`` the rest, and nothing of pdla may be left.

``python -m tests.searches.mpiio_files FIRST [LAST] --mode lease`` runs the programs with these seeds, 17 only one, and
makes those small that go wrong; ``--steps FILE`` runs the one that is in a file.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pdla.catalog import Purpose, open_catalog
from pdla.catalog.leases import this_process
from pdla.cli import main as verb
from pdla.cli.signals import STOPPING
from pdla.replicator.mapfile import publish
from tests.searches.mpiio import CACHED, ON_NODES, SEGMENT, Program, cache_variables, register, shrink
from tests.support.file_oracle import File, Image, Names, WrongError
from tests.support.handmade_maps import Replica, heads, ranges
from tests.support.mpi import REPOSITORY, Mpi, available_mpis, build_coherence_library, build_library, remove_segments
from tests.support.namespace_nodes import become_node, on_nodes
from tests.support.small_file_systems import clone_of, make_twin, two_file_systems
from tests.support.waiting import PATIENCE

MODES = ("original", "close", "lease", *CACHED)
PIECE, PIECES, COVERED = 96, 40, 30
"""Bytes of a piece, pieces of a file, and those of them that have a replica for writing."""
NAMES = ("a", "b", "c", "bak", "f/x")
TWIN, CLONE, LINK = "t", "k", "l"
EXCHANGE = [sys.executable, "-c", """
import ctypes, os, sys
AT_FDCWD, RENAME_EXCHANGE = -100, 2
one, other = map(os.fsencode, sys.argv[1:])
sys.exit(ctypes.CDLL(None).renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE) != 0)
"""]  # fmt: skip
LATER_S = 2.2
"""As long after a kill others change a file: within 2 s it cannot be told from what the program did."""


def content(piece: int, version: int) -> bytes:
    """What tests/programs/file_steps.c writes."""
    return bytes((version * 59 + piece * 7 + i * 3 + 1) & 255 for i in range(PIECE))


# ---- making them -----------------------------------------------------------------------------------------------------


@dataclass
class Writer:
    """Writes one random program."""

    choose: random.Random
    traps: bool = False
    """Whether another user sets traps."""
    version: int = 0
    lines: list[str] = field(default_factory=list)

    def name(self) -> str:
        return self.choose.choices(["a", "b", "c", "l", "f/x", "bak"], [12, 4, 3, 2, 2, 1])[0]

    def write(self) -> str:
        self.version += 1
        first = self.choose.choice([0, 0, 0, self.choose.randrange(PIECES)])
        count = self.choose.randint(1, PIECES - first)
        return f"write:{first}:{count}:{self.version}:{self.choose.choice(['all', 'all', 'each'])}"

    def read(self) -> str:
        return f"read:{self.choose.choice(['all', 'each'])}"

    def change(self, name: str) -> str:
        """One that changes the bytes, or the times, of a file."""
        choose, other = self.choose, self.choose.choice(["b", "c", "bak", "bak"])
        return choose.choice(
            [
                f"truncate {name} {choose.choice([0, choose.randrange(PIECES * PIECE)])}",
                f"change {name} {choose.randrange(PIECES * PIECE)} {choose.randint(1, 200)} {choose.randrange(256)}",
                f"touch {name}",
                *[f"copy {choose.choice(['-p', '-p', '-a', '', '--reflink=auto'])} {other} {name}"] * 2,
            ]
        )

    def names(self, name: str) -> str:
        """One that changes the names of files."""
        choose, other = self.choose, self.choose.choice(NAMES)
        return choose.choice(
            [
                *[f"rename {name} {other}", f"rename {other} {name}"] * 2,
                f"link {name} {other}",
                f"symlink {name}",
                f"unlink {name}",
                f"remake {name} {choose.randrange(1000)}",
                f"replace {name} {choose.randrange(1000)}",
                f"copy {choose.choice(['-p', '-a', '', '--reflink=auto'])} {name} {other}",
                *["turn"] * 2,
                f"chmod {name}",
            ]
        )

    def operation(self) -> str:
        name = self.name()
        return self.names(name) if self.choose.random() < 0.65 else self.change(name)

    def during(self) -> str:
        """What is defined while a program has the file open: bytes change only where it does not write."""
        choose, name = self.choose, self.choose.choice(["a", "a", "b"])
        other = choose.choice(NAMES)
        kinds = [
            f"rename {name} {other}",
            f"link {name} {other}",
            f"unlink {name}",
            f"remake {name} 7",
            f"chmod {name}",
        ]
        kinds += [f"replace {name} 8", f"touch {name}", "turn", f"change {name} {36 * PIECE} {PIECE} 77"]
        return "pause:" + choose.choice(kinds).replace(" ", ",")

    def leave(self) -> None:
        """Bytes that wait, where the mode lets them."""
        choose, steps = self.choose, [f"open:u:{self.name()}"]
        for _ in range(choose.randint(1, 3)):
            step = choose.choice([self.write, self.write, self.write, self.read, None])
            steps.append(step() if step else "sync")
        ending = choose.random()
        if ending < 0.15:
            first, after = self.calm(self.write()), [self.calm(step) for step in steps[1:]]
            _, start, count, version, _ = first.split(":")
            split = [f"begin:{start}:{count}:{version}", self.during(), "end"]
            steps[1:] = [*(split if choose.random() < 0.4 else [first, self.during()]), *after]
        if ending < 0.6:
            steps.append("close")
        if ending < 0.1 or ending > 0.55:
            steps.append("kill")
        if ending > 0.9:
            steps.insert(1, f"timer:{choose.randrange(4000)}")
        ranks = choose.choice([1, 1, 1, 2])
        self.lines.append(" ".join(("mpi", str(ranks), "mode", *steps)))

    def calm(self, step: str) -> str:
        """The step, if it writes only what others do not touch."""
        if not step.startswith("write:"):
            return step
        _, first, count, version, how = step.split(":")
        return f"write:{min(int(first), 9)}:{min(int(count), 20)}:{version}:{how}"

    def look(self) -> None:
        """What another program does, or a verb."""
        choose, name = self.choose, self.name()
        how = choose.choice(["mode", "mode", "original", "lease"])
        kind = choose.randrange(12)
        if kind < 4:
            self.lines.append(f"mpi {choose.choice([1, 1, 1, 2])} {how} open:r:{name} {self.read()} close")
        elif kind == 4:
            self.lines.append(f"mpi 1 {how} open:u:{name} {self.read()} close")
        elif kind == 5:
            self.lines.append(f"mpi 1 {how} delete:{name}")
        elif kind == 6:
            self.lines.append(f"mpi 1 mode rotate:{choose.choice([1, 60])}:c")
        elif kind < 9:
            other = choose.choice(NAMES)
            words = [f"cat {name}", f"cp {name} {other}", f"mv {name} {other}", f"rm {name}", f"ln {name} {other}"]
            words.append(f"truncate -s {choose.randrange(PIECES * PIECE)} {name}")
            self.lines.append(f"under {how} {choose.choice(words)}")
        else:
            self.lines.append(f"pdla {choose.choice(['sync', 'sync', 'sync', 'gc', 'status', 'rm 1', 'rm 2'])}")

    def twin(self) -> None:
        """Another file, of the same number in another file system, and what happens to it."""
        choose = self.choose
        self.lines.append(f"twin {choose.choice('aaab')}")
        self.lines.append(
            choose.choice(
                [
                    f"mpi 1 {choose.choice(['mode', 'original'])} open:r:t {self.read()} close",
                    f"mpi 1 mode open:u:t {self.write()} {choose.choice(['close', 'kill'])}",
                    "mpi 1 mode delete:t",
                    f"under mode {choose.choice(['rm t', 'cat t', 'truncate -s 50 t'])}",
                    f"{choose.choice(['unlink t', 'truncate t 99', 'touch t'])}",
                ]
            )
        )

    def clone(self) -> None:
        """The same file in a copy of the file system."""
        choose, name = self.choose, self.choose.choice("aab")
        how = choose.choice(["mode", "original"])
        step = choose.choice(
            [
                f"mpi 1 {how} open:r:k {self.read()} close",
                f"mpi 1 {how} open:u:k {self.write()} close",
                f"mpi 1 {how} delete:k",
                f"under {how} {choose.choice(['cat k', 'rm k'])}",
            ]
        )
        self.lines.append(f"clone {name} {step}")

    def program(self, seed: int) -> Program:
        if self.choose.random() < 0.6:
            self.lines.append("copy -p a bak")
        if self.traps and self.choose.random() < 0.5:
            self.lines.append(f"trap {self.choose.choice(['directories', 'links'])}")
        for _ in range(self.choose.randint(1, 3)):
            self.leave()
            for _ in range(self.choose.randint(1, 3)):
                self.lines.append(self.operation())
            if self.traps and self.choose.random() < 0.7:
                self.lines.append(f"trap {self.choose.choice(['garbage', 'garbage', 'directories', 'links'])}")
            if self.choose.random() < 0.12:
                self.choose.choice([self.twin, self.clone])()
            if self.choose.random() < 0.7:
                self.look()
        return Program(seed, 2, tuple(self.lines))


def make(seed: int, *, traps: bool = False) -> Program:
    """The random program of this seed, with traps that another user sets if that is wanted."""
    return Writer(random.Random(seed), traps).program(seed)


# ---- running them ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tools:
    """What is compiled once: the program, and the libraries to preload."""

    mpi: Mpi
    program: Path
    libraries: tuple[Path, Path]
    places: tuple[Path, Path]
    """Where the files are, and files of the same numbers."""

    @classmethod
    @contextmanager
    def prepared(cls, mpi: Mpi, directory: Path, library: Path | None = None) -> Iterator[Tools]:
        source = REPOSITORY / "tests/programs/file_steps.c"
        directory.chmod(0o711)  # another user goes through it
        program = mpi.compile(source, directory / "file_steps", "-Wall", "-Wextra")
        beside = build_coherence_library(directory / "libpdla-coherence.so")
        libraries = (library or build_library(directory / "libpdla.so"), beside)
        with two_file_systems(directory) as places:
            yield cls(mpi, program, libraries, places)


@dataclass
class World:
    """The files of a program, what is right of them, and what is done to them."""

    tools: Tools
    directory: Path
    mode: str
    user: int = 0
    """Who the other process belongs to."""
    here: str = "d"
    """The name of the directory that the program works in."""
    cloned: str = ""
    """Of which file there is a copy in a copy of the file system."""
    names: Names = field(default_factory=Names)
    runs: int = 0
    killed_at: float = 0
    refused: int = 0

    @property
    def home(self) -> Path:
        return self.directory / "home"

    def path(self, name: str) -> Path:
        place, twins = (place / self.directory.name for place in self.tools.places)
        if name == TWIN:
            return twins / name
        if name == CLONE:
            return place.parents[1] / "clone" / self.directory.name / self.here / self.cloned
        return place / ("" if name.startswith("f/") else self.here) / name

    def make(self, seed: int) -> None:
        """The first files, and their replicas."""
        chance = random.Random(seed)
        self.directory.chmod(0o711)
        for folder in ("home", "logs"):
            (self.directory / folder).mkdir(mode=0o700)
        for server in ("", "0", "1"):
            (self.directory / "cache" / server).mkdir(exist_ok=True)
            (self.directory / "cache" / server).chmod(0o1777)
        for name in ("a", "f/x", TWIN):
            self.path(name).parent.mkdir(parents=True)
        for name in ("a", "b"):
            self.path(name).write_bytes(chance.randbytes(PIECES * PIECE))
            self.appear(name)
        a, made = self.path("a"), list[tuple[Path, Replica, Purpose]]()
        for quarter in range(4):
            pieces = range(quarter * PIECES // 4, (quarter + 1) * PIECES // 4, 2)
            read = ranges([(piece * PIECE, (piece + 1) * PIECE) for piece in pieces])
            if self.mode == "liu":
                read = ranges(heads(PIECES * PIECE, *SEGMENT)[quarter::4])
            made.append((a, read.build(a.read_bytes(), self.directory / f"read-{quarter}"), "read"))
        for name in ("a", "b", "c") if self.mode in ("close", "lease") else ():
            replica = Replica(COVERED * PIECE, 0, PIECE, loops=[(COVERED, PIECE, PIECE)], strips=[512, 512])
            made.append((self.path(name), replica.prepare(self.directory / f"write-{name}"), "write"))
        catalog = open_catalog(f"sqlite:///{self.home / 'catalog.db'}")
        register(catalog, made)
        publish(catalog, self.home / "replicas.map")
        catalog.close()

    # what is there

    def appear(self, name: str) -> File:
        """A new file has this name."""
        found = self.path(name).read_bytes()
        file = File(Image.of(found), found)
        self.names.put(name, file, self.path(name))
        return file

    def check(self) -> None:
        """Names and files are as they should be, as far as bytes are home."""
        known: dict[tuple[int, int], File] = {}
        for name in (*NAMES, TWIN, LINK, *([CLONE] if self.cloned else [])):
            path, file = self.path(name), self.names.find(name)
            if path.exists() != (file is not None) or path.is_symlink() != (name in self.names.links):
                raise WrongError(f"{name} should {'' if file else 'not '}be there")
            if file is None:
                continue
            found = path.stat()
            if known.setdefault((found.st_dev, found.st_ino), file) is not file:
                raise WrongError(f"{name} is another file's name")
            try:
                file.check(path.read_bytes())
            except WrongError as wrong:
                raise WrongError(f"{name} {wrong}") from None

    # other processes

    def operate(self, kind: str, *words: str) -> None:
        """What a process does that is not under pdla; nothing if there is no such file."""
        operation = getattr(self, f"_{kind}")
        time.sleep(0.006)  # a tick of the file system's clock
        with acting_as(self.user):
            operation(*words)
        time.sleep(0.006)

    def changing(
        self, name: str, do: Callable[[Path], None], then: Callable[[Image], None], *, times: bool = True
    ) -> None:
        """Change the bytes of a file, and its times if not ``times``."""
        file, path = self.names.find(name), self.path(name)
        if file is None:
            return
        file.change()
        if not times and file.waiting:
            time.sleep(max(0.0, self.killed_at + LATER_S - time.time()))
        do(path)
        if times and file.waiting and time.time() < self.killed_at + LATER_S:
            later = time.time_ns() + int(LATER_S * 1e9)
            with acting_as(0):
                os.utime(path, ns=(later, later))
        then(file.image)
        file.home = path.read_bytes()

    def _truncate(self, name: str, size: str) -> None:
        self.changing(name, lambda path: os.truncate(path, int(size)), lambda image: image.truncate(int(size)))

    def _change(self, name: str, at: str, length: str, value: str) -> None:
        file = self.names.find(name)
        start, data = int(at), bytes([int(value)]) * int(length)
        if file is None or start > len(file.home):
            return

        def write(path: Path) -> None:
            with path.open("r+b") as opened:
                opened.seek(start)
                opened.write(data)

        self.changing(name, write, lambda image: image.write(start, data))

    def _touch(self, name: str) -> None:
        self.changing(name, Path.touch, lambda image: None)

    def _chmod(self, name: str) -> None:
        """The same mode again cannot be told from another change."""
        found = self.path(name).stat() if self.names.find(name) else None
        if found is not None and found.st_uid == self.user and found.st_mode & 0o777 == 0o646:
            self.changing(name, lambda path: path.chmod(0o646), lambda image: None)
        elif found is not None and found.st_uid == self.user:
            self.path(name).chmod(0o646)

    def _copy(self, *words: str) -> None:
        *flags, name, to = words
        if self.user:  # who cannot give a file of somebody else its times
            flags = []
        source, target = self.names.find(name), self.names.find(to)
        if source is None or source is target or to in self.names.links:
            return
        if target is not None and "-a" in flags and self.path(to).stat().st_nlink > 1:
            self._unlink(to)  # as cp does, which keeps no link of what it replaces
            target = None
        command = ["cp", *flags, str(self.path(self.names.resolve(name))), str(self.path(to))]

        def copy(_: Path) -> None:
            subprocess.run(command, check=True)

        def become(image: Image) -> None:
            image.truncate(0)
            image.write(0, source.home)

        if target is None:
            copy(self.path(to))
            self.appear(to)
        else:
            self.changing(to, copy, become, times=not {"-p", "-a"} & set(flags))

    def _rename(self, name: str, to: str) -> None:
        file = self.names.files.get(name)
        if file is None or to in self.names.links:
            return
        self.path(name).rename(self.path(to))
        if self.names.files.get(to) is not file:
            self.names.move(name, self.path(name), to, self.path(to))

    def _link(self, name: str, to: str) -> None:
        file = self.names.files.get(name)
        if file is not None and to not in self.names.files and to not in self.names.links:
            os.link(self.path(name), self.path(to))
            self.names.put(to, file, self.path(to))

    def _symlink(self, name: str) -> None:
        if name not in (LINK, "f/x"):
            self._unlink(LINK)
            self.path(LINK).symlink_to(name)
            self.names.links[LINK] = name

    def _unlink(self, name: str) -> None:
        if name in self.names.files or name in self.names.links:
            self.path(name).unlink()
            self.names.drop(name, self.path(name))

    def _remake(self, name: str, seed: str) -> None:
        """Another file, which often has the same inode number."""
        if name not in self.names.links:
            self._unlink(name)
            self.path(name).write_bytes(random.Random(int(seed)).randbytes(PIECES * PIECE))
            self.appear(name)

    def _replace(self, name: str, seed: str) -> None:
        """As editors save."""
        if name not in self.names.links:
            new = self.path("f/new")
            new.write_bytes(random.Random(int(seed)).randbytes(PIECES * PIECE))
            new.rename(self.path(name))
            self.appear(name)

    def _turn(self) -> None:
        """The directory gets its other name."""
        before, self.here = self.path("a").parent, "e" if self.here == "d" else "d"
        before.rename(self.path("a").parent)
        for name, file in self.names.files.items():
            file.paths.add(self.path(name))
        self.names.doubtful |= {self.path(path.name) for path in self.names.doubtful}

    def _twin(self, name: str) -> None:
        """A file of the same number in another file system, if that can be."""
        if name in self.names.files and TWIN not in self.names.files:
            chosen = random.Random(name).randbytes(PIECES * PIECE)
            if make_twin(self.path(TWIN), self.path(name).stat().st_ino, chosen):
                self.appear(TWIN)

    def _trap(self, kind: str) -> None:
        """Be there before pdla in the places of its caches, or put other files in the place of its own."""
        if kind == "garbage":
            with suppress(PermissionError):
                for cache in (self.directory / "cache").rglob("*.cache"):
                    other = cache.with_suffix(".other")
                    other.write_bytes(b"z" * cache.stat().st_size)
                    other.replace(cache)
            return
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        for server in (self.directory / "cache", self.directory / "cache/0", self.directory / "cache/1"):
            own, theirs = server / f"pdla-{boot}-{server.stat().st_dev:x}-0.node", server / "theirs"
            with suppress(FileExistsError):
                if kind == "links":
                    theirs.mkdir(mode=0o777)
                    own.symlink_to(theirs)
                else:
                    own.mkdir(mode=0o777)

    # under pdla

    def environment(self, how: str) -> dict[str, str]:
        how = self.mode if how == "mode" else how
        cached = cache_variables(how, self.directory / "cache") if how in CACHED else {}
        return {
            **os.environ,
            **self.tools.mpi.env,
            "PDLA_HOME": str(self.home),
            "PDLA_MAP": str(self.home / "replicas.map"),
            "PDLA_WRITES": "original" if cached else how,
            "PDLA_STEP_ASIDE": "0",
            "LD_PRELOAD": ":".join(map(str, self.tools.libraries)),
            **cached,
        }

    def verb(self, *words: str) -> tuple[int, str]:
        """The exit code of ``pdla WORDS``, and what it says; on all nodes where there are several."""
        if self.mode in ON_NODES:
            on_nodes(self.directory)
            return [self._on_node(node, words) for node in (0, 1, 0)][-1]
        return called(self.home, words)

    def _on_node(self, node: int, words: Sequence[str]) -> tuple[int, str]:
        """In a child, which has imported pdla already."""
        told, telling = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                become_node(self.directory, node)
                this_process.cache_clear()
                with os.fdopen(telling, "w") as answer:
                    json.dump(called(self.home, words), answer)
            finally:
                os._exit(0)
        os.close(telling)
        with os.fdopen(told) as answer:
            said = answer.read()
        os.waitpid(child, 0)
        code, lines = json.loads(said) if said else (-1, "it ended")
        return code, lines

    def pdla(self, *words: str) -> None:
        code, said = self.verb(*words)
        if words[0] == "sync":
            self.synced(code, said)
        elif code not in (0, 1) or (code and words[0] != "rm"):
            raise WrongError(f"pdla {' '.join(words)}: exit {code}: {said}")

    def synced(self, code: int, said: str) -> None:
        """What is home now, and what pdla sync may say that waits."""
        if code not in (0, 1) or "Traceback" in said:
            raise WrongError(f"pdla sync: exit {code}: {said}")
        problems = [line for line in said.splitlines() if any(word in line for word in ("wait", "lost", "damaged"))]
        named = {
            path for file in self.names.living for path in file.paths if any(f"{path}:" in one for one in problems)
        }
        doubtful = {path.parent.with_name(here) / path.name for path in self.names.doubtful for here in ("d", "e", "f")}
        for path in named - doubtful:
            if not any(file.changed for file in self.names.living if path in file.paths):
                raise WrongError(f"pdla sync refuses a file that nobody has changed: {said}")
        for file in self.names.living:
            if not file.paths & named:
                file.settle()
        if code == 0:
            self.names.settle()
        elif not problems:
            raise WrongError(f"pdla sync fails and names no file: {said}")
        self.refused += code

    def under(self, how: str, program: str, *words: str) -> None:
        """A program without MPI."""
        names = [word for word in words if word in (*NAMES, TWIN, CLONE, LINK)]
        file, to = self.names.find(names[0]), names[-1]
        target = self.names.find(to)
        is_link = bool(set(names) & set(self.names.links)) and program not in ("cat", "rm")
        if file is None or is_link or (len(names) > 1 and (file is target or (program == "ln" and target))):
            return
        paths = [str(self.path(word)) if word in names else word for word in words]
        done = subprocess.run(
            [*EXCHANGE, *paths] if program == "exchange" else [program, *paths],
            env=self.environment(how),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode:
            said = done.stderr.decode(errors="replace")
            self.refuse(f"{program} {' '.join(words)}", [(file, names[0]), (target, to)], said)
        else:
            self.followed(how, program, words, names, done.stdout)

    def followed(self, how: str, program: str, words: Sequence[str], names: Sequence[str], shown: bytes) -> None:
        """A program without MPI did what it was to do."""
        file, to = self.names.find(names[0]), names[-1]
        assert file is not None
        if program in ("cat", "cp"):
            found = shown if program == "cat" else self.path(to).read_bytes()
            if wrong := file.image.difference(found):
                raise WrongError(f"{program} {' '.join(names)} under {how} shows {wrong}")
        if program == "cp":
            target = self.names.find(to) or self.appear(to)
            target.image, target.home = Image.of(found), found
            target.settle()
        elif program == "truncate":
            file.image.truncate(int(words[1]))
        elif program == "mv":
            self.names.move(names[0], self.path(names[0]), to, self.path(to))
        elif program == "exchange":
            self.names.exchange(names[0], self.path(names[0]), to, self.path(to))
        elif program == "rm":
            self.names.drop(names[0], self.path(names[0]))
        elif program == "ln":
            self.names.put(to, file, self.path(to))

    def refuse(self, what: str, about: Sequence[tuple[File | None, str]], said: str) -> None:
        """A program got an error: this must be allowed, and a line must name a file."""
        paths = {self.path(self.names.resolve(name)) for _, name in about}
        files = [self.names.find(self.cloned) if name == CLONE else file for file, name in about]
        far = self.mode in ON_NODES and any(file is not None and file.waiting for file in files)
        if not far and not any(
            self.names.may_refuse(file, self.path(self.names.resolve(name))) for file, name in about
        ):
            raise WrongError(f"{what}: refused, though nobody has changed the file: {said}")
        known = set(paths).union(*(file.paths for file, _ in about if file is not None))
        if not any(str(path) in said for path in known):
            raise WrongError(f"{what}: refused, and no line names the file: {said}")
        self.refused += 1

    def mpi(self, ranks: str, how: str, *steps: str) -> None:
        self.runs += 1
        Run(self, int(ranks), self.mode if how == "mode" else how, steps).play()

    def clone(self, name: str, *step: str) -> None:
        """Take a step while there is a copy of the file system."""
        if name not in self.names.files or os.geteuid() != 0:
            return
        with clone_of(self.tools.places[0]):
            self.cloned = name
            try:
                self.appear(CLONE)
                self.line(" ".join(step))
            finally:
                self.names.files.pop(CLONE, None)
                self.cloned = ""

    def line(self, line: str) -> None:
        """Take a step of the program."""
        kind, *words = line.split()
        if kind in ("mpi", "under", "pdla", "clone"):
            getattr(self, kind)(*words)
        else:
            self.operate(kind, *words)
        self.check()

    def end(self) -> None:
        """All that waits comes home, and nothing is left."""
        code, said = self.verb("sync")
        self.synced(code, said)
        self.check()
        if code:
            code, said = self.verb("sync", "--changed", "overwrite")
            for name, file in self.names.files.items():
                if self.path(name) in self.names.gone:  # that what waits goes into its successor was wanted, too
                    file.image = Image.of(self.path(name).read_bytes())
                found = self.path(name).read_bytes()
                try:
                    file.check_overwritten(found)
                except WrongError as wrong:
                    raise WrongError(f"{name} {wrong} ({said})") from None
                file.image, file.home = Image.of(found), found
                file.settle()
        if code:
            code, said = self.verb("sync", "--changed", "discard")
        lines = said.splitlines() if code else []
        for path in sorted({line.split(":")[0] for line in lines if line.startswith("/")}):
            code, said = self.verb("sync", "--changed", "discard", path)
            code *= "nothing waits" not in said  # of several nodes one has done it, and then there is no file
        if code:
            raise WrongError(f"pdla sync --changed discard: exit {code}: {said}")
        self.check()
        self.names.settle()
        steps = [step for name in self.names.files for step in (f"open:r:{name}", "read:each", "close")]
        self.mpi("1", "original", *steps)
        logs = (".cdt", ".times", ".loads")
        caches = (path for path in (self.directory / "cache").rglob("*") if path.suffix not in logs)
        left = [path for path in caches if path.is_file() and path.stat().st_uid == 0]
        left += (self.home / "journals").glob("*/*.journal/*.journal")
        if left:
            raise WrongError(f"left: {', '.join(str(path.relative_to(self.directory)) for path in left)}")


@dataclass
class Run:
    """An MPI program: what it did, and what it should see."""

    world: World
    ranks: int
    how: str
    steps: Sequence[str]
    next: int = 0
    file: File | None = None
    name: str = ""
    writes: bool = False
    """Whether the file is open for writing; otherwise what waits may stay where it is."""
    over: bool = False
    """Whether it was killed before the next step had ended."""
    left: list[File] = field(default_factory=list)
    """Files whose bytes may go home after their close."""
    disturbed: bool = False
    """Whether others changed the file while its bytes waited: what it writes from then on may be refused, too."""

    @property
    def out(self) -> Path:
        return self.world.directory / "logs" / str(self.world.runs)

    def words(self) -> Iterator[str]:
        """The steps, with paths."""
        for step in self.steps:
            kind, *words = step.split(":")
            if kind in ("open", "delete", "rotate"):
                words[-1] = str(self.world.path(words[-1]))
            elif kind == "pause":
                words = [str(self.out)]
            yield ":".join((kind, *words))

    def play(self) -> None:
        self.bound()
        world, tools = self.world, self.world.tools
        program = [str(tools.program), str(self.out), *self.words()]
        starter = [str(on_nodes(world.directory))] if self.how in ON_NODES else []
        command = program if self.ranks == 1 and not starter else tools.mpi.command(self.ranks, *starter, *program)
        pauses = any(step.startswith("pause:") for step in self.steps)
        for end in ("at", "on") if pauses else ():
            os.mkfifo(f"{self.out}.{end}")
        with self.out.with_suffix(".said").open("w+") as said:
            process = subprocess.Popen(
                command, env=world.environment(self.how), stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
            try:
                if pauses:
                    self.pause(process)
                code = ended(process)
            except subprocess.TimeoutExpired:
                raise WrongError(f"{' '.join(self.steps)} does not end") from None
            finally:
                process.kill()
                process.wait()
        killed = any(step.startswith(("kill", "timer")) for step in self.steps)
        if code and not killed:
            raise WrongError(f"{' '.join(self.steps)}: exit {code}: {self.said}")
        if killed:
            world.killed_at = time.time()
        self.advance(len(self.steps))
        if not killed:
            for file in self.left:
                file.settle()

    def bound(self) -> None:
        """Writes begin where the file ends at the latest: what MPI leaves in a hole is not defined."""
        sizes: dict[str, int] = {}
        bounded, name = [], ""
        for step in self.steps:
            kind, *words = step.split(":")
            if kind == "open":
                name = self.world.names.resolve(words[-1])
                file = self.world.names.find(name)
                sizes.setdefault(name, file.image.least if file else 0)
            elif kind in ("write", "begin"):
                first = min(int(words[0]), sizes[name] // PIECE)
                words[0], sizes[name] = str(first), max(sizes[name], (first + int(words[1])) * PIECE)
            bounded.append(":".join((kind, *words)))
        self.steps = bounded

    def pause(self, process: subprocess.Popen[bytes]) -> None:
        """Let another process do something when the program waits."""
        number = next(i for i, step in enumerate(self.steps) if step.startswith("pause:"))
        at = os.open(f"{self.out}.at", os.O_RDONLY | os.O_NONBLOCK)
        until = time.monotonic() + PATIENCE
        while process.poll() is None and not self.reached(at):
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(process.args, PATIENCE)
            time.sleep(0.001)
        os.close(at)
        if process.poll() is None:
            self.advance(number)
            self.world.operate(*self.steps[number].removeprefix("pause:").split(","))
            self.disturbed = self.file is not None and self.file.changed
            with suppress(OSError):
                Path(f"{self.out}.on").write_bytes(b"x")

    def reached(self, at: int) -> bool:
        try:
            return os.read(at, 1) == b"x"
        except BlockingIOError:
            return False

    @property
    def said(self) -> str:
        return self.out.with_suffix(".said").read_text(errors="replace")

    def classes(self) -> list[list[int]]:
        """The error classes of the steps that a rank has ended, for each rank."""
        logs = [self.out.with_name(f"{self.out.name}.{rank}") for rank in range(self.ranks)]
        return [[int(line.split()[1]) for line in log.read_text().splitlines()] if log.exists() else [] for log in logs]

    def advance(self, until: int) -> None:
        """Follow the program up to a step."""
        ranks = self.classes()
        while self.next < until and not self.over:
            classes = [rank[self.next] for rank in ranks if len(rank) > self.next]
            kind, *words = self.steps[self.next].split(":")
            if len(classes) == self.ranks:
                getattr(self, f"_{kind}")(max(classes), *words)
            else:
                self.over = True
                self.interrupted(kind, *words)
            self.next += 1

    def interrupted(self, kind: str, *words: str) -> None:
        """The program was killed in this step."""
        name = self.world.names.resolve(words[-1]) if words else ""
        if kind == "open" and self.world.names.find(name) is None and self.world.path(name).exists():
            self.world.appear(name)
        elif kind == "write" and self.file:
            self._pieces(words[0], words[1], words[2], certain=False)
        elif kind == "delete" and not os.path.lexists(self.world.path(words[-1])):
            self.world.names.drop(words[-1], self.world.path(words[-1]))

    def failed(self, what: str) -> None:
        self.world.refuse(f"{what} ({self.how})", [(self.file, self.name)], self.said)

    def _open(self, failed: int, mode: str, name: str) -> None:
        world, self.name = self.world, name
        self.writes, there = mode == "u", world.names.find(name)
        if failed:
            self.file = there
            if there is not None or mode == "u":
                self.failed(f"open:{mode}:{name}")
            self.file = None
            return
        if there is None and mode == "r":
            raise WrongError(f"{name} was opened, and is not there")
        if there is None:
            resolved = world.names.resolve(name)
            there = File(Image.of(b""), b"")
            world.names.put(resolved, there, world.path(resolved))
        elif mode == "u":
            there.settle()
        self.file = there

    def _write(self, failed: int, first: str, count: str, version: str, _: str) -> None:
        if self.file is not None and failed:
            self.failed("write")
        elif self.file is not None:
            self._pieces(first, count, version)

    def _pieces(self, first: str, count: str, version: str, *, certain: bool = True) -> None:
        assert self.file is not None
        pieces = range(int(first), int(first) + int(count))
        data = b"".join(content(piece, int(version)) for piece in pieces)
        self.file.written(int(first) * PIECE, data, waits=self.how != "original", certain=certain)
        self.file.changed = self.file.changed or self.disturbed

    def _begin(self, failed: int, first: str, count: str, version: str) -> None:
        self._write(failed, first, count, version, "all")

    def _end(self, failed: int) -> None:
        if self.file is not None and failed:
            self.failed("write")

    def _read(self, failed: int, _: str) -> None:
        if self.file is not None and failed:
            self.failed("read")
        for rank in range(self.ranks if self.file is not None and not failed else 0):
            found = self.out.with_name(f"{self.out.name}.{rank}.{self.next}").read_bytes()
            assert self.file is not None
            if wrong := self.file.image.seen(found):
                raise WrongError(f"rank {rank} reads {wrong} of {self.name} ({self.how})")

    def _sync(self, failed: int) -> None:
        if self.file is not None and failed:
            self.failed("sync")
        elif self.file is not None and self.writes and self.how != "lease":
            self.file.settle()

    def _close(self, failed: int) -> None:
        file = self.file
        if file is not None and failed:
            self.failed("close")
        elif file is not None and self.writes and self.how == "e10-deferred":
            self.left.append(file)
        elif file is not None and self.writes and self.how != "lease":
            file.settle()
        self.file = None

    def _delete(self, failed: int, name: str) -> None:
        names = self.world.names
        there = name in names.files or name in names.links
        if failed and there:
            self.file, self.name = names.find(name), name
            self.failed(f"delete:{name}")
        elif not failed and not there:
            raise WrongError(f"{name} was deleted, and was not there")
        elif not failed:
            names.drop(name, self.world.path(name))

    def _rotate(self, failed: int, _: str, name: str) -> None:
        if failed:
            raise WrongError(f"rotate:{name} fails: {self.said}")

    def _pause(self, failed: int, _: str) -> None:
        if failed:
            raise WrongError("the program did not go on")

    def _timer(self, failed: int, _: str) -> None:
        """It goes on."""

    def _kill(self, failed: int) -> None:
        raise WrongError("the program was not killed")


def ended(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a process; unlike ``wait`` with a timeout, this does not look again and again."""
    descriptor = os.pidfd_open(process.pid)
    try:
        if not select.select([descriptor], [], [], PATIENCE)[0]:
            raise subprocess.TimeoutExpired(process.args, PATIENCE)
    finally:
        os.close(descriptor)
    return process.wait()


@contextmanager
def acting_as(user: int) -> Iterator[None]:
    """What is done to files is done by this user; by the same as before if that is 0 and nobody else acts."""
    before = os.geteuid()
    if before == user or os.getuid() != 0:
        yield
        return
    os.seteuid(0)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.seteuid(before)


def called(home: Path, words: Sequence[str]) -> tuple[int, str]:
    """The exit code of ``pdla WORDS`` in this process, and what it says."""
    said, code, before = io.StringIO(), 0, dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in (*STOPPING, signal.SIGALRM)}
    arguments, sys.argv = sys.argv, ["pdla", *words]
    os.environ["PDLA_HOME"] = str(home)
    signal.signal(signal.SIGALRM, _ring)
    signal.alarm(PATIENCE)
    try:
        with redirect_stdout(said), redirect_stderr(said):
            verb()
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        signal.alarm(0)
        sys.argv = arguments
        os.environ.clear()
        os.environ.update(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return code, said.getvalue()


def _ring(number: int, frame: object) -> None:
    raise WrongError("a verb does not end")


@dataclass(frozen=True)
class Outcome:
    """What went wrong at which line; "" if nothing did; and how often a file was refused."""

    wrong: str = ""
    refused: int = 0


def run(program: Program, mode: str, tools: Tools, scratch: Path, user: int = 0) -> Outcome:
    """Run a program in a new directory, which is removed; the other process belongs to ``user``."""
    directory = Path(tempfile.mkdtemp(dir=scratch))
    world, line = World(tools, directory, mode, user), "its files"
    try:
        world.make(program.number)
        for line in program.lines:
            world.line(line)
        line = "the end"
        world.end()
    except (WrongError, subprocess.TimeoutExpired) as wrong:
        return Outcome(f"at {line!r}: {wrong}".replace(f"{scratch}/", ""), world.refused)
    finally:
        for one in (directory, *(place / directory.name for place in tools.places)):
            shutil.rmtree(one, ignore_errors=True)
    return Outcome("", world.refused)


def small(program: Program, mode: str, tools: Tools, scratch: Path, user: int = 0) -> Program:
    """A program that goes wrong, without the lines that do not matter."""
    return shrink(program, lambda less: bool(run(less, mode, tools, scratch, user).wrong))


def main() -> int:
    """Run programs, and print those that go wrong; the exit code is 1 if any does."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("first", type=int)
    options.add_argument("last", type=int, nargs="?", help="one more than the last seed")
    options.add_argument("--mode", choices=MODES, default="lease")
    options.add_argument("--user", type=int, default=0, help="who the other process belongs to, and sets traps")
    options.add_argument("--steps", type=Path, help="run the steps in this file; FIRST makes the first bytes")
    options.add_argument("--library", type=Path, help="compiled from the sources here where it is not given")
    options.add_argument("--whole", action="store_true", help="do not make small what goes wrong")
    chosen, counts = options.parse_args(), Counter[str]()
    (mpi,) = next(parameter.values for parameter in available_mpis() if parameter.id == "mpich")
    began, started = time.monotonic(), time.time()
    os.umask(0)  # all users may write to all files
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        scratch = Path(made)
        tools = stack.enter_context(Tools.prepared(mpi, scratch, chosen.library))
        programs = [make(seed, traps=chosen.user != 0) for seed in range(chosen.first, chosen.last or chosen.first + 1)]
        if chosen.steps:
            programs = [Program(chosen.first, 2, tuple(filter(None, chosen.steps.read_text().splitlines())))]
        for program in programs:
            outcome = run(program, chosen.mode, tools, scratch, chosen.user)
            counts.update(programs=1, wrong=bool(outcome.wrong), refused=bool(outcome.refused))
            if outcome.wrong:
                less = program if chosen.whole else small(program, chosen.mode, tools, scratch, chosen.user)
                text = "\n".join(less.lines)
                whose = f" --user {chosen.user}" if chosen.user else ""
                print(f"{program.number} --mode {chosen.mode}{whose}: {outcome.wrong}\n{text}\n", flush=True)
    remove_segments(started)
    told = {"mode": chosen.mode, **counts, "seconds": round(time.monotonic() - began)}
    print(json.dumps(told), flush=True)
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
