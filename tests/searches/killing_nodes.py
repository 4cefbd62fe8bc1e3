"""Kill a node at each stage of the loop, its processes and its link: nothing that native runs keep is lost.

python -m tests.searches.killing_nodes [ROUNDS] [SEED] [STAGE]...
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.searches.killing_caches import SEEDS, content
from tests.support.command_line import AWAKE, PDLA
from tests.support.loop_on_nodes import COUNT, PIECE, START, WRITES_ONLY, Loop
from tests.support.mpi import Mpi, available_mpis
from tests.support.node_cluster import node_cluster

WRITTEN = ("write:0", "apart:3", "sync", "size", "write:1", "size")
STEPS = (*WRITTEN, "nap:400")
MODES = ("close", "lease", "e10", "e10 at the close", "e10 exchanged", "e10 deferred")
AT_THE_CLOSE = {"e10 exchanged": (*WRITTEN, "until"), "e10 deferred": (*WRITTEN, "file:1", "until")}
"""Modes in which the node is killed also while the program closes the file, and while closed files come home; and what
the program does then."""
CLOSING = " at its close"
STAGES = ("trace", "analyze", "replicate", "daemon", *MODES, *(f"{mode}{CLOSING}" for mode in AT_THE_CLOSE))
KILLED = 1
"""The node that is killed; commands are given on node 0, whose launcher sees that."""


class Killing:
    """Rounds on one cluster, which has write replicas for what its program writes."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        (loop.cluster.upper / "1.result").touch()
        loop.run(*loop.writer(*WRITES_ONLY))
        self.wanted = loop.result
        assert loop.build("writes", *loop.writer(*WRITES_ONLY)) > 0
        self.loop.pdla("trace", "-o", self.trace, "--", *self.loop.reader())

    @property
    def trace(self) -> Path:
        return self.loop.directory / "reads.h5"

    def killed(
        self, *words: str | Path, ready: Callable[[], bool], seconds: float, node: int = 0, held: bool = False
    ) -> int:
        """The exit code of a command on a node, if KILLED is killed so many seconds after it is ``ready``.

        ``held``: from then on only the ranks of KILLED go on, and close the file, in which they wait for the others.
        """
        job = self.loop.start(*words, node=node)
        until = time.monotonic() + 20
        while not ready() and job.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        ranks = self.ranks() if held else []
        for rank in ranks:
            os.kill(rank, signal.SIGSTOP)
        if held:
            self.loop.cluster.nodes[KILLED].run("touch", self.end)
        time.sleep(seconds)
        self.loop.cluster.kill(KILLED)
        for rank in ranks:
            with suppress(ProcessLookupError):
                os.kill(rank, signal.SIGCONT)
        self.loop.finish(job)
        return job.returncode

    @property
    def end(self) -> Path:
        """The program waits for it before it closes the file. Only a node that made it is sure to see it."""
        return self.loop.cluster.shared / "result.end"

    def ranks(self) -> list[int]:
        """The processes of the program on node 0."""
        return [one for one in self.loop.cluster.members(0) if _words(one)[:1] == [str(self.loop.program)]]

    def round(self, stage: str, seconds: float, *, crashed: bool = False) -> str:
        """Kill the node at a stage, join it again, and check; what was seen, in a few words."""
        rounds = {"trace": self.of_trace, "analyze": self.of_analyze, "replicate": self.of_replicate}
        if stage in rounds:
            return rounds[stage](seconds)
        return self.of_daemon(seconds) if stage == "daemon" else self.of_run(stage, seconds, crashed=crashed)

    def begun(self) -> bool:
        """The ranks of both nodes have opened the file."""
        return all(path.exists() and path.stat().st_size > 0 for path in self.outs())

    def closes(self) -> bool:
        """A rank has made its last call before it closes the file."""
        return any(path.exists() and path.read_text().count("size") == STEPS.count("size") for path in self.outs())

    def forget(self) -> None:
        for path in self.outs():
            path.unlink(missing_ok=True)

    def outs(self) -> list[Path]:
        return [self.loop.directory / f"out.{rank}" for rank in range(self.loop.ranks)]

    def restart(self, crashed: bool = False) -> None:
        self.loop.cluster.restart(KILLED, crashed=crashed)

    def of_trace(self, seconds: float) -> str:
        """The trace has what the ranks recorded, and another run can be traced."""
        self.forget()
        trace = self.loop.directory / "killed.h5"
        trace.unlink(missing_ok=True)
        code = self.killed(
            *(PDLA, "trace", "-o", trace, "--", *self.loop.reader("all:0", "nap:400", "each:1")),
            ready=self.begun, seconds=seconds,
        )  # fmt: skip
        self.restart()
        seen = sum(path.read_text().count("all") for path in self.outs())
        found = self.loop.pdla("analyze", trace, "--json") if trace.exists() else {"signatures": [], "irregular": []}
        requests = sum(one["requests"] for part in ("signatures", "irregular") for one in found[part])
        assert requests >= COUNT * seen, (code, requests, seen)
        self.loop.pdla("trace", "-o", self.trace, "--", *self.loop.reader())
        return f"exit {code}, {requests} requests of {seen} calls that returned"

    def of_analyze(self, seconds: float) -> str:
        """It ends, and another one has the answer."""
        words = self.loop.parallel(PDLA, "analyze", self.trace, "--json")
        code = self.killed(*words, ready=lambda: self.on_node("analyze"), seconds=seconds)
        self.restart()
        assert self.loop.pdla("analyze", self.trace, "--json")["signatures"]
        return f"exit {code}"

    def of_replicate(self, seconds: float) -> str:
        """The replicas are whole or not there, and another one builds them."""
        plan = self.loop.directory / "reads.json"
        self.loop.pdla("plan", self.trace, "--policy", "ns-pdla", "--simulate", "0", "-o", plan)
        words = self.loop.parallel(PDLA, "replicate", plan, "--json")
        code = self.killed(*words, ready=lambda: self.on_node("replicate"), seconds=seconds)
        self.restart()
        self.read()
        self.loop.pdla("gc", "--json")
        self.loop.pdla("replicate", plan, "--json")
        report = self.read()
        assert report == self.loop.size - START, report
        self.remove()
        return f"exit {code}"

    def of_daemon(self, seconds: float) -> str:
        """The daemon of the node that starts again builds what its predecessor did not."""
        daemon = (*AWAKE, "daemon", "--once", "--json", "--idle-load", "1", "--idle-io", "1T")
        self.loop.pdla("analyze", self.trace, "--json")
        self.loop.pdla("plan", self.trace, "--policy", "ns-pdla", "--simulate", "0", "--queue")
        code = self.killed(*daemon, ready=lambda: self.on_node("daemon"), seconds=seconds, node=KILLED)
        self.restart()
        self.loop.run(*daemon, node=KILLED)
        assert self.read() == self.loop.size - START
        self.remove()
        return f"exit {code}"

    def on_node(self, verb: str) -> bool:
        """The node runs the verb."""
        return any(verb in _words(process) for process in self.loop.cluster.members(KILLED))

    def read(self) -> int:
        """Bytes of the reader that came from replicas; its bytes are those of the file."""
        report = self.loop.pdla("run", "--verify", "--json", "--", *self.loop.reader())
        assert report["exit_code"] == 0, report
        return int(report["replica_bytes"])

    def remove(self) -> None:
        """Remove the replicas for reading."""
        for one in self.loop.pdla("status", "--json")["replicas"]:
            if one["original"].endswith("/data"):
                self.loop.run(PDLA, "rm", str(one["id"]))

    def of_run(self, stage: str, seconds: float, *, crashed: bool) -> str:
        """Each call that returned is in the file after a sync on each node, or, if the node crashed, each synced one.

        A crash may lose what was not synced, natively too: `pdla sync` names it, and drops it if told so. What waits
        on another node makes a sync fail until that node has made its own.
        """
        loop, mode = self.loop, stage.removesuffix(CLOSING)
        loop.clear()
        self.forget()
        closing = stage.endswith(CLOSING)
        steps = AT_THE_CLOSE[mode] if closing else STEPS
        words = (PDLA, "run", *loop.options(mode), "--", *loop.writer(*steps))
        held = closing and mode == "e10 exchanged"
        code = self.killed(*words, ready=self.closes if closing else self.begun, seconds=seconds, held=held)
        assert code or not closing, "the program ended before the node was killed"
        self.restart(crashed)
        loop.cluster.nodes[KILLED].run("rm", "-f", self.end)
        said = [path.read_text().split("\n") for path in self.outs()]
        for number in range(len(loop.cluster.nodes)):
            loop.finish(loop.start(PDLA, "sync", "--json", node=number))
        if crashed:  # it fails if it names lost bytes, once
            loop.finish(loop.start(PDLA, "sync", "--changed", "discard", "--json"))
        loop.run(PDLA, "sync", "--json")
        for rank, lines in enumerate(said):
            done, synced = sum("write" in line or "apart" in line for line in lines), "\n".join(lines).count("size")
            kept = min(done, 2) if synced else 0
            for place in range(kept if crashed else done):
                name, where = (("write", 0), ("apart", 3), ("write", 1))[place]
                assert self.piece(rank, where) == content(rank, where + SEEDS[name]), (rank, name, where, lines)
        loop.run(PDLA, "gc", "--json")
        loop.clear()
        loop.run(PDLA, "run", *loop.options(mode), "--", *loop.writer(*WRITES_ONLY))
        loop.run(PDLA, "sync", "--json")
        assert loop.result == self.wanted
        return f"exit {code}, calls that returned: {[len(lines) - 1 for lines in said]}"

    def piece(self, rank: int, place: int) -> bytes:
        """What the file has of one call of a rank."""
        ranks, result = self.loop.ranks, self.loop.result
        rows = [START + ((place * COUNT + row) * ranks + rank) * PIECE for row in range(COUNT)]
        return b"".join(result[start : start + PIECE] for start in rows)


def _words(process: int) -> list[str]:
    """The command line of a process; nothing if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text().split("\0")
    except OSError:
        return []


def main(words: Sequence[str]) -> None:
    """Kill so many times, at random moments."""
    rounds, seed = int(words[0]) if words else 50, int(words[1]) if len(words) > 1 else random.randrange(10**6)
    stages = words[2:] or STAGES
    choose = random.Random(seed)
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory, node_cluster(Path(directory), 2) as cluster:
        killing = Killing(Loop(cluster, mpi, f"sqlite:///{directory}/catalog.db", 1))
        for number in range(rounds):
            stage, crashed = choose.choice(stages), choose.random() < 0.3
            longest = 0.8 if stage in ("analyze", "replicate", "daemon") else 0.05 if stage.endswith(CLOSING) else 0.3
            seconds = choose.uniform(0, longest)
            print(f"{number}: {stage}, {seconds:.3f} s{', crashed' if crashed else ''}", end=": ", flush=True)
            print(killing.round(stage, seconds, crashed=crashed), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
