"""Kill programs whose writes go to a cache at random moments: no byte of a call that has returned is ever lost.

python -m tests.searches.killing_caches [ROUNDS] [SEED] [mpich|openmpi]
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pdla.replicator.journals import read_journal
from tests.searches.mpiio import CACHED, ON_NODES, SEGMENT, cache_variables
from tests.support.command_line import PDLA
from tests.support.handmade_maps import heads, lift
from tests.support.mpi import REPOSITORY, Mpi, available_mpis, build_coherence_library, build_library
from tests.support.namespace_nodes import on_nodes
from tests.support.waiting import PATIENCE

RANKS, PIECE, COUNT, PLACES = 3, 96, 200, 4
"""Of tests/programs/cached.c."""
END = 5 + RANKS * PIECE * COUNT * PLACES
SEEDS = {"write": 0, "again": 100, "iwrite": 200, "split": 300, "apart": 700}


def content(rank: int, seed: int) -> bytes:
    """What a rank writes in one call."""
    return bytes((i * 7 + i // 96 + rank * 13 + seed * 31 + 1) & 255 for i in range(PIECE * COUNT))


@dataclass
class Round:
    """One program that is killed, and those that come after it."""

    mpi: Mpi
    program: Path
    libraries: str
    directory: Path
    choose: random.Random
    modes: Sequence[str] = tuple(CACHED)
    waited: bool = False
    """Whether bytes waited in the cache after the kill."""
    name: str = "data"

    @property
    def original(self) -> Path:
        return self.directory / self.name

    def launch(self, mode: str, *steps: str) -> subprocess.Popen[bytes]:
        (home := self.directory / "home").mkdir(exist_ok=True)
        variables = {
            "LD_PRELOAD": self.libraries,
            "PDLA_HOME": home,
            "PDLA_MAP": home / "replicas.map",
            **cache_variables(mode, self.directory / "cache"),
        }
        words = ["env", *(f"{name}={value}" for name, value in variables.items())]
        starter = [on_nodes(self.directory)] if mode in ON_NODES else []
        command = self.mpi.command(RANKS, *starter, *words, self.program, self.original, self.directory / "out", *steps)
        return subprocess.Popen(
            command,
            env={**os.environ, **self.mpi.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        """Kill the ranks so long after they began, not their launcher, which would end them more gently."""
        until = time.monotonic() + 20
        while not (self.directory / "out.0").exists() and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(seconds)
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
                if words[0] == os.fsencode(self.program) and os.fsencode(self.original) in words:
                    os.kill(int(path.parent.name), signal.SIGKILL)
            except (OSError, ValueError):
                continue
        process.wait(PATIENCE)

    def sync(self, mode: str) -> subprocess.CompletedProcess[str]:
        """The last pdla sync: there is one on each node."""
        starter, nodes = ([on_nodes(self.directory)], ("0", "1")) if mode in ON_NODES else ([], ("0",))
        for node in nodes:
            variables = {**os.environ, "PDLA_HOME": str(self.directory / "home"), "PMI_RANK": node}
            words = [*starter, PDLA, "sync"]
            ended = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
        return ended

    def steps(self, mode: str) -> list[str]:
        choose, steps = self.choose, []
        for _ in range(choose.randint(4, 14)):
            kind = choose.choice([*SEEDS, *SEEDS, "sync", "barrier", "nap", "read", "other", "reopen"])
            number = choose.randint(1, 60) if kind == "nap" else choose.randrange(PLACES)
            steps.append(f"{kind}:{number}")
        return [*steps, *self.another(mode), "nap:300"]

    def another(self, mode: str) -> list[str]:
        """With deferred closes the next file is open while the bytes of this one go home."""
        return ["file:9"] if mode == "e10-deferred" else []

    def lift(self) -> None:
        """As if an earlier run had made the file, and requested all of its segments."""
        self.original.write_bytes(bytes(END))
        (self.directory / "home").mkdir()
        lift(self.directory / "home/replicas.map", self.original, heads(END, *SEGMENT))

    def rename(self) -> None:
        """Another process gives the files other names, and the old name to another file."""
        if self.original.exists():
            before, self.name = self.original, "moved"
            for path in self.directory.glob("*data"):
                path.rename(path.with_name(path.name.replace("data", "moved")))
            before.write_bytes(b"another file")

    def done(self, rank: int, steps: Sequence[str]) -> int:
        """How many steps a rank has certainly ended: it says so after each of some kinds."""
        path = self.directory / f"out.{rank}"
        said = [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []
        ended = 0
        for number, step in enumerate(steps, start=1):
            if step.partition(":")[0] in ("write", "again", "apart", "read", "other"):
                if not said:
                    break
                said.pop(0)
                ended = number
        return ended

    def lost(self, steps: Sequence[str]) -> str:
        """What the file lacks of what the ranks have written; "" if nothing."""
        image = self.original.read_bytes() if self.original.exists() else b""
        for rank in range(RANKS):
            ended = self.done(rank, steps)
            for place in range(PLACES):
                calls = [(i, step) for i, step in enumerate(steps) if is_write(step, place)]
                certain = [step for i, step in calls if i < ended]
                later = [step for i, step in calls if i >= ended]
                if not certain:
                    continue
                allowed = [content(rank, SEEDS[step.partition(":")[0]] + place) for step in [certain[-1], *later]]
                for row in range(COUNT):
                    at = 5 + place * COUNT * PIECE * RANKS + (row * RANKS + rank) * PIECE
                    found, part = image[at : at + PIECE], slice(row * PIECE, (row + 1) * PIECE)
                    # A piece of a call that was killed may be exchanged in parts.
                    if not all(found[i : i + 1] in {whole[part][i : i + 1] for whole in allowed} for i in range(PIECE)):
                        return f"rank {rank}, place {place}, row {row}: {found[:8]!r}, after {certain[-1]}"
        return ""

    def play(self) -> str:
        mode = self.choose.choice(self.modes)
        steps = self.steps(mode)
        if mode == "liu":
            self.lift()
        self.kill(self.launch(mode, *steps), self.choose.uniform(0, 0.4))
        journals = self.directory.glob("home/journals/cache-*/*.journal/*.journal")
        self.waited = any(len(read_journal(path).entries) for path in journals)
        if self.choose.random() < 0.3:
            self.rename()
        for _ in range(self.choose.choice([0, 0, 1, 2])):
            # What brings home is killed, too. It must not write: whoever reads only brings home.
            out = {rank: (self.directory / f"out.{rank}") for rank in range(RANKS)}
            kept = {rank: path.read_bytes() for rank, path in out.items() if path.exists()}
            for path in out.values():
                path.unlink(missing_ok=True)
            self.kill(self.launch(mode, "read:0", "nap:200"), self.choose.uniform(0, 0.05))
            for rank, path in out.items():
                path.unlink(missing_ok=True)
                if rank in kept:
                    path.write_bytes(kept[rank])
        # An open does not bring home what is on another node.
        how = self.choose.choice(["sync", "open"]) if mode not in ON_NODES else "sync"
        if how == "sync":
            ended = self.sync(mode)
            if ended.returncode:
                return f"pdla sync: {ended.stdout}{ended.stderr}"
            wrong = self.lost(steps)
        else:
            kept = {path: path.read_bytes() for path in self.directory.glob("out.*")}
            code = self.launch(mode, "barrier", *self.another(mode)).wait(PATIENCE)
            for path, text in kept.items():
                path.write_bytes(text)
            wrong = f"the next open ended with {code}" if code else self.lost(steps)
        # On SSD servers there is a directory for each, and beside them logs of what was critical, and service times.
        logs = (".cdt", ".times", ".loads")
        files = [path for path in self.directory.glob("cache/**/*") if path.is_file() and path.suffix not in logs]
        left = [*files, *self.directory.glob("home/journals/cache-*/*.journal/*.journal")]
        before = self.directory / "data"
        if before != self.original and before.read_bytes() != b"another file":
            wrong = f"{wrong}; the file that has its old name got bytes"
        what = f"{wrong}; left {len(left)}" if wrong or left else ""
        return f"{how} {mode} {' '.join(steps)}: {what}" if what else ""


def is_write(step: str, place: int) -> bool:
    """Whether a step writes to a place."""
    name, _, number = step.partition(":")
    return name in SEEDS and int(number) == place


def main() -> int:
    """Play rounds; the exit code is 1 if any lost a byte."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    name = sys.argv[3] if len(sys.argv) > 3 else "mpich"
    (mpi,) = next(parameter.values for parameter in available_mpis() if parameter.id == name)
    wrong = waited = 0
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        program = mpi.compile(REPOSITORY / "tests/programs/cached.c", scratch / "cached", "-Wall", "-Wextra")
        libraries = (
            build_library(scratch / "libpdla.so"),
            build_coherence_library(scratch / "libpdla-coherence.so"),
        )
        for number in range(rounds):
            directory = scratch / str(number)
            directory.mkdir()
            one = Round(mpi, program, ":".join(map(str, libraries)), directory, random.Random(seed + number))
            what = one.play()
            wrong += what != ""
            waited += one.waited
            if what:
                print(f"{seed + number}: {what}", flush=True)
    print(f"{rounds} kills of caches, seed {seed}: bytes waited after {waited}, {wrong} went wrong", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
