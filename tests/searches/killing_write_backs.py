"""Kill a lease's write-back at each step or at random moments, and fill the disk under it: the next sync completes it.

python -m tests.searches.killing_write_backs [MOMENTS] [SEED] [mpich|openmpi] [LIBRARY]

LIBRARY is the compiled library; without it, it is compiled first.
"""

from __future__ import annotations

import ctypes
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pdla.accessmap import AccessMap
from pdla.catalog import open_catalog
from pdla.cli import main as verb
from pdla.model import Layout, Loop, Pool, Signature
from pdla.replicator import daemon
from pdla.replicator.builder import build
from pdla.replicator.mapfile import publish
from tests.support.compilers import compiled
from tests.support.mpi import REPOSITORY, Mpi, available_mpis, build_library
from tests.support.waiting import PATIENCE

ROWS, PIECE, STRIDE, START, SIZE = 20, 96, 288, 200, 6200
"""Of tests/programs/leased.c."""
VERBS = {"sync": ("sync",), "daemon": ("daemon", "--once", "--idle-load", "1", "--idle-io", "1T")}
HOWS = ("kill", "torn", "full")
READERS = ("lease", "close", "original", "trace")
OTHERS = ("rename", "rename original", "link", "replace")
"""What another process does to the file; "rename original": then a program reads it under its new name."""
FOLLOWERS = ("sync", *(f"read {how}" for how in READERS), "write lease", "write close", "again", *OTHERS)
STEPS = 60


@dataclass(frozen=True)
class Tools:
    """What is compiled once: the program, and the libraries to preload."""

    mpi: Mpi
    program: Path
    library: Path
    interrupter: Path

    @classmethod
    def prepare(cls, mpi: Mpi, directory: Path, library: str = "") -> Tools:
        program = mpi.compile(REPOSITORY / "tests/programs/leased.c", directory / "leased", "-Wall", "-Wextra")
        compiled = Path(library) if library else build_library(directory / "libpdla.so")
        return cls(mpi, program, compiled, interrupter(directory))


def interrupter(directory: Path) -> Path:
    """Compile tests/programs/interrupted.c; return the library."""
    library = directory / "interrupted.so"
    source = REPOSITORY / "tests/programs/interrupted.c"
    compiled(["gcc", "-std=gnu11", "-O1", "-g", "-fPIC", "-shared", "-o", library, source, "-ldl"])
    return library


@dataclass
class Place:
    """A file, every third piece of which is written under leases, and what is done to it."""

    tools: Tools
    directory: Path
    round: int = 0
    expected: bytes = b""
    stderr: str = ""
    name: str = "data"

    @property
    def original(self) -> Path:
        return self.directory / self.name

    @property
    def home(self) -> Path:
        return self.directory / "home"

    def make(self) -> None:
        """Make the file, and a replica for its writes."""
        self.home.mkdir(parents=True)
        self.expected = random.Random(1).randbytes(SIZE)
        self.original.write_bytes(self.expected)
        signature = Signature(str(self.original), "write", False, START, PIECE, (Loop(STRIDE, ROWS),), (0,), 0)
        where = tuple(str(self.home / "pools" / str(number)) for number in range(2))
        pool = Pool("disks", "hdd", 2, ((0, 0.0),), 1e-8, 1e-8, 1 << 30, 4096, "directories", where)
        os.environ["PDLA_HOME"] = str(self.home)
        catalog = open_catalog()
        build(signature, Layout("disks", 2, 1, (512, 512), AccessMap.section(signature)), pool, catalog)
        publish(catalog)
        catalog.close()

    def content(self, number: int) -> bytes:
        """The file after this round."""
        data = bytearray(self.expected)
        for row in range(ROWS):
            place = START + row * STRIDE
            data[place : place + PIECE] = bytes((number * 59 + row * 7 + i) % 256 for i in range(PIECE))
        return bytes(data)

    def run(self, writes: str, *words: str, ranks: int = 1, interrupt: Mapping[str, str] | None = None) -> str:
        """The program's output under the library; "" if it was killed."""
        mpi = self.tools.mpi
        settings = [f"PDLA_HOME={self.home}", f"LD_PRELOAD={self.tools.library}:{self.tools.interrupter}"]
        if writes == "trace":
            (self.directory / "logs").mkdir(exist_ok=True)
            settings.append(f"PDLA_TRACE={self.directory / 'logs'}")
        else:
            settings += [f"PDLA_MAP={self.home / 'replicas.map'}", f"PDLA_WRITES={writes}"]
        settings += [f"{name}={value}" for name, value in (interrupt or {}).items()]
        program = ["env", *settings, str(self.tools.program), str(self.original), *words]
        command = program if ranks == 1 and mpi.name == "mpich" else mpi.command(ranks, *program)
        done = subprocess.run(
            command,
            env={**os.environ, **mpi.env, "LD_PRELOAD": ""},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        self.stderr = done.stderr
        return done.stdout if done.returncode == 0 else ""

    def lease(self, ranks: int) -> None:
        """The next round, under a lease."""
        self.round += 1
        said = self.run("lease", str(self.round), ranks=ranks)
        assert said == "open 0 data 0 close 0\n", f"round {self.round}: {said} {self.stderr}"
        assert self.original.read_bytes() == self.expected, "a lease changed the original"
        self.expected = self.content(self.round)

    def verb(self, name: str, interrupt: Mapping[str, str], after: float | None = None) -> tuple[int, str]:
        """Run a verb in its own process, which is interrupted, or killed ``after`` so many seconds."""
        out = self.directory.with_name("said")
        child = os.fork()
        if not child:
            descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            os.environ.update(interrupt)
            ctypes.CDLL(None).interrupt_arm()
            sys.argv = ["pdla", *VERBS[name]]
            code = 70
            try:
                verb()
            except SystemExit as ended:
                code = int(ended.code or 0)
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(code)
        if after is not None:
            time.sleep(after)
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code, out.read_text() if out.exists() else ""

    def below(self, everything: bool = False) -> str:
        """Where changes count: everywhere, or in the file and the journals, not in the catalog."""
        return f"{self.directory}/" if everything else f"{self.original}:{self.home / 'journals'}"

    def write_back(self, kind: str, interrupt: Mapping[str, str], ranks: int, after: float | None = None) -> bool:
        """Do the write-back; return whether it completed."""
        if kind == "open":
            return self.reads("original", ranks, interrupt, may_die=True)
        code, said = self.verb(kind, interrupt, after)
        assert "Traceback" not in said, said
        if interrupt.get("INTERRUPT_HOW") == "full" and code >= 0:
            return code == 0 and "writes wait" not in said
        return code >= 0

    def reads(self, writes: str, ranks: int, interrupt: Mapping[str, str] | None = None, may_die: bool = False) -> bool:
        """Whether a program reads the file, which must then be right; otherwise it must get an error."""
        out = self.directory / "read"
        out.unlink(missing_ok=True)
        said = self.run(writes, "read", str(out), ranks=ranks, interrupt=interrupt)
        assert said or may_die, f"a reader ({writes}) ended badly: {self.stderr}"
        if not said.startswith("open 0 data 0"):
            return False
        assert out.read_bytes() == self.expected, f"a reader ({writes}, {ranks} ranks) got {self.mixture(out)}"
        return True

    def mixture(self, file: Path) -> str:
        """The content of a file: the round of each row, or "?"."""
        data = file.read_bytes()
        rounds = {self.content(number)[START : START + PIECE]: number for number in range(1, self.round + 1)}
        rows = (data[START + row * STRIDE :][:PIECE] for row in range(ROWS))
        found = []
        for row, piece in enumerate(rows):
            first = piece[0] - row * 7 if piece else -1
            found += [next((n for n in reversed(range(1, self.round + 1)) if (n * 59 - first) % 256 == 0), "?")]
        return f"{len(data)} bytes, rows of rounds {found}, wanted {self.round}" if rounds else "nothing"

    def writes(self, writes: str, ranks: int) -> None:
        """The next round, whose open may be refused."""
        said = self.run(writes, str(self.round + 1), ranks=ranks)
        assert said, f"a writer ({writes}) ended badly: {self.stderr}"
        if said.startswith("open 0"):
            assert said == "open 0 data 0 close 0\n", said
            self.round += 1
            self.expected = self.content(self.round)

    def follow(self, what: str, ranks: int, interrupt: Mapping[str, str]) -> None:
        """What happens before the next sync."""
        kind, _, how = what.partition(" ")
        if kind == "read":
            self.reads(how, ranks)
        elif kind == "write":
            self.writes(how, ranks)
        elif kind == "again":
            self.write_back("sync", interrupt, ranks)
        elif kind == "rename":
            self.rename("moved")
            if how:
                self.reads(how, ranks)
        elif kind == "link":
            os.link(self.original, Path(tempfile.mkdtemp(dir=self.directory)) / "link")
        elif kind == "replace":
            self.replace()

    def rename(self, name: str) -> None:
        """Another process gives the file another name."""
        before, self.name = self.original, name
        before.rename(self.original)

    def replace(self) -> None:
        """Another process puts another file in its place for a while, which must get none of the bytes that wait."""
        aside, other = self.directory / "aside", random.Random(self.round).randbytes(SIZE)
        self.original.rename(aside)
        self.original.write_bytes(other)
        self.verb("sync", {"INTERRUPT_AT": "0"})
        assert self.original.read_bytes() == other, "a file that was put in its place got its bytes"
        aside.rename(self.original)

    def sync_completes(self) -> None:
        """The next sync completes it, whatever happened before."""
        code, said = self.verb("sync", {"INTERRUPT_AT": "0"})
        assert code == 0 and re.search("written back|Nothing to write back", said), f"sync: exit {code}: {said.strip()}"
        assert self.original.read_bytes() == self.expected, f"the file has {self.mixture(self.original)}"
        self.rename("data")


@dataclass
class Killer:
    """Makes places, and a new one after each failure."""

    tools: Tools
    scratch: Path
    places: int = 0
    place: Place | None = None
    failures: list[str] = field(default_factory=list)
    interrupted: Counter[str] = field(default_factory=Counter)

    def case(
        self,
        kind: str,
        how: str,
        at: int,
        follower: str,
        ranks: int,
        *,
        everything: bool = False,
        after: float | None = None,
        rank: str = "",
    ) -> bool:
        """Whether it completed before it could be interrupted."""
        if self.place is None:
            self.places += 1
            self.place = Place(self.tools, self.scratch / str(self.places))
            self.place.make()
        place = self.place
        interrupt = {
            "INTERRUPT_AT": str(at),
            "INTERRUPT_HOW": how,
            "INTERRUPT_BELOW": place.below(everything),
            "INTERRUPT_RANK": rank,
        }
        ended = False
        try:
            place.lease(ranks)
            ended = place.write_back(kind, interrupt, ranks, after)
            self.interrupted[f"{kind} {how}"] += not ended
            place.follow(follower, ranks, interrupt)
            place.sync_completes()
        except (AssertionError, subprocess.TimeoutExpired) as error:
            about = f"{kind}, {how} at {at} (rank {rank or 'any'} of {ranks}) after {after} s, then {follower}"
            self.failures.append(f"{about}: {error}")
            print(self.failures[-1], flush=True)
            self.place = None
        return ended

    def at_every_step(self, kind: str, how: str, ranks: int = 1, rank: str = "") -> int:
        """Interrupt at the first change, at the second, and so on; return the number of changes."""
        for at in range(1, STEPS):
            if self.case(kind, how, at, FOLLOWERS[at % len(FOLLOWERS)], ranks, rank=rank):
                return at - 1
        raise AssertionError(f"{kind} goes on after {STEPS} changes")


def kill_at_random(killer: Killer, moments: int, seed: int = 0) -> None:
    """Each kind in turn, at random moments and after random changes of any file, with random followers."""
    chance = random.Random(seed)
    for _ in range(moments):
        kind, ranks = chance.choice(["sync", "sync", "daemon", "open"]), chance.choice([1, 1, 2])
        timed = kind != "open" and chance.random() < 0.5
        after = chance.uniform(0, 0.5) if timed else None
        how, at = ("kill", 0) if timed else (chance.choice(HOWS), chance.randint(1, 45))
        rank = chance.choice(["", "0", "1"]) if kind == "open" and ranks > 1 else ""
        killer.case(
            kind, how, at, chance.choice(FOLLOWERS), ranks, everything=chance.random() < 0.5, after=after, rank=rank
        )


def main(moments: str = "0", seed: str = "0", name: str = "mpich", library: str = "") -> int:
    (mpi,) = [parameter.values[0] for parameter in available_mpis() if parameter.id == name]
    began = time.monotonic()
    daemon.LEAST_SECONDS = 0.0
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/tmp")) as scratch:
        killer = Killer(Tools.prepare(mpi, Path(scratch), library), Path(scratch))
        if int(moments):
            kill_at_random(killer, int(moments), int(seed))
        else:
            for kind in ("sync", "daemon", "open"):
                for how in HOWS:
                    print(f"{kind} {how}: {killer.at_every_step(kind, how)} steps", flush=True)
    counts = ", ".join(f"{what} {count}" for what, count in sorted(killer.interrupted.items()))
    print(f"interrupted: {counts}; {len(killer.failures)} went wrong; {time.monotonic() - began:.0f} s")
    return min(len(killer.failures), 1)


if __name__ == "__main__":
    if "interrupted.so" in os.environ.get("LD_PRELOAD", ""):
        sys.exit(main(*sys.argv[1:]))
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "LD_PRELOAD": str(interrupter(Path(folder)))}
        command = [sys.executable, "-m", "tests.searches.killing_write_backs", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)
