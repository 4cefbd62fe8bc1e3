"""Whether remedies bring what findings say: each finding's command is executed, and its run measured: docs/findings.md.

    python -m benchmarks.remedies [--storage disks seeking node] [--only 'IOR*'] [--amount 64M] [--rounds 3] [--write]

Programs with one fault each run natively under `pdla trace --posix`. pdla plans for the storage and finds what costs
time, as `pdla report` does. Then the command of the finding runs in a shell as it is printed, under the recorder, too.
No run finds anything in memory. What is compared are the seconds in I/O of the slowest rank, in both traces. All of
that is repeated in --rounds, each with new files. This keeps what it measured in build/remedies.json and prints a table
of all that is there; --write puts it into the page. It needs root; storage that is not possible here is named and
skipped.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cache_nodes import nodes_on_disks
from benchmarks.cleanup import workspace
from benchmarks.contestants import BINARIES, SHARED_PROCESSORS, compile_programs, fill
from benchmarks.doc_tables import DOCS, placed
from benchmarks.processes import end_on_signals, output_of
from benchmarks.results import BENCH
from benchmarks.seeking import seeking_disks, seeking_obstacle
from benchmarks.ssd_cache_runs import make_synchronous
from benchmarks.storage import CLIENT, Directories, throttled_disks
from benchmarks.throttled import obstacle
from pdla.collectors.tracefile import read_trace
from pdla.errors import PdlaError
from pdla.findings import Finding, Seen, find
from pdla.layouts.config import load_cluster
from pdla.replicator.backends.base import folder_in
from pdla.steps import plan
from pdla.traces.trace import Trace
from pdla.units import KiB, MiB, parse_bytes

PAGE = DOCS / "findings.md"
RESULTS = BENCH.with_name("remedies.json")
ORIGINAL = "original"
RANKS = 4
KEPT = 0.25
"""A remedy keeps its promise if it takes so much more or less than expected, at most, as a share of what it takes."""
REQUESTS, REQUEST = 256, 16 * KiB
"""So many synchronous writes of so many bytes tell what they take of a client."""
VIEW = ("--useFileView", "--bufferSize", str(4 * MiB))


class Opened(NamedTuple):
    """Storage to measure on: its cluster.toml, the directory of the files, and how it is prepared for a run."""

    cluster: str
    directory: Path
    place: Callable[[Path, int], None]
    unlimited: Callable[[], AbstractContextManager[None]]
    drop_caches: Callable[[], None]


class Kind(NamedTuple):
    """A kind of storage: why it is not possible here ("" if it is), what makes it, and what the table says of it."""

    obstacle: Callable[[], str]
    opened: Callable[[Path, int], AbstractContextManager[Opened]]
    title: str


@dataclass(frozen=True)
class Fault:
    """A program with a fault: the kind of its finding, and the storage on which it costs time.

    ``options`` are those of the program, ``hints`` those of ROMIO that it has without the remedy, and ``size`` the
    bytes of each of its ``files``. Its remedy's command names ``remedy``, if there are several.
    """

    kind: str
    storage: str
    title: str
    program: str
    options: tuple[str, ...]
    size: int
    files: int = 1
    hints: Mapping[str, str] = field(default_factory=dict)
    ranks: int = RANKS
    remedy: str = ""

    @property
    def name(self) -> str:
        """Of what is measured."""
        return f"{self.kind}, {self.title}, {self.storage}"

    def paths(self, directory: Path) -> list[Path]:
        """The files that it accesses, if it is told to access the file ``original``."""
        if self.files == 1:
            return [directory / ORIGINAL]
        return [directory / f"{ORIGINAL}.{number}" for number in range(self.files)]


@contextmanager
def on_disks(scratch: Path, size: int) -> Iterator[Opened]:
    """Disks without heads; originals are on one that is as fast as all."""
    with throttled_disks(scratch, size) as storage:
        yield _opened(storage)


@contextmanager
def on_heads(scratch: Path, size: int) -> Iterator[Opened]:
    """Disks with heads, over which originals are striped; writes return when they are on the disks, or SSDs."""
    with seeking_disks(scratch, size) as storage:
        make_synchronous(storage)
        for server in storage.servers["ssd"]:
            output_of(["mount", "-o", "remount,sync,nobarrier", server])
        opened = _opened(storage, "client_sync = true\n")
        client = f"connect_seconds = {client_seconds(storage):.2g}\n"
        opened = opened._replace(cluster=re.sub(r"connect_seconds = .*\n", client, opened.cluster))
        # They serve the nearest request first (seeking_disk/disk.c).
        yield opened._replace(cluster=re.sub(r"(\[pools\.\w+\]\n)", r'\1queue = "elevator"\n', opened.cluster))


def client_seconds(storage: Directories) -> float:
    """What a synchronous write takes longer than its device: for the client, the file system, and to notice the end."""
    server, *_ = storage.servers["ssd"]
    file = Path(server) / "client"
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_SYNC, 0o600)
    try:
        os.write(descriptor, bytes(REQUESTS * REQUEST))  # writes to places without bytes write the journal, too
        before, begin = storage.counted()["ssd0"], time.perf_counter()
        for number in range(REQUESTS):
            os.pwrite(descriptor, bytes(REQUEST), number * REQUEST)
        seconds = time.perf_counter() - begin
        return (seconds - storage.counted()["ssd0"].since(before).busy) / REQUESTS
    finally:
        os.close(descriptor)
        file.unlink()


@contextmanager
def on_node(scratch: Path, size: int) -> Iterator[Opened]:
    """A node with a device of its own, and a disk for originals."""
    with nodes_on_disks(scratch, 1, size) as nodes:
        # Synchronous mounts have a page cache, too.
        cluster = nodes.cluster(2 * RANKS, "node").replace("[clients]\n", f"[clients]\n{CLIENT}client_sync = true\n")
        cluster = cluster.replace("sieve_read = 0\nsieve_write = 0\n", "", 1)
        yield Opened(cluster, nodes.originals, nodes.place, nodes.unlimited, nodes.drop_caches)


def _opened(storage: Directories, client: str = "") -> Opened:
    """``client``: more lines of the cluster.toml about the node."""
    # The programs run with ROMIO's defaults: with data sieving.
    cluster = storage.cluster.replace("sieve_read = 0\nsieve_write = 0\n", client)
    (node,) = storage.nodes
    return Opened(
        cluster,
        node.originals["hdd"],
        lambda file, size: storage.place("hdd", file, size),
        storage.unlimited,
        storage.drop_caches,
    )


STORAGES = {
    "disks": Kind(obstacle, on_disks, "throttled disks"),
    "seeking": Kind(seeking_obstacle, on_heads, "disks that seek"),
    "node": Kind(obstacle, on_node, "a node's own device"),
}


def faults(amount: int) -> list[Fault]:
    """All programs; each accesses about so many bytes."""
    small, medium = 16 * KiB, 256 * KiB
    points = round((amount / 4) ** (1 / 3)) // 16 * 16
    write, durable = ("--writeFile",), ("--writeFile", "--fsync")
    collective = (*VIEW, "--collective")

    def ior(
        kind: str, storage: str, title: str, size: int, shape: str, *options: str, ranks: int = RANKS, **more: Any
    ) -> Fault:
        """IOR with transfers of ``size`` bytes: "turns" of the ranks, with "gaps" of as many more, or at "random"."""
        each = amount // ranks
        if shape == "random":
            words = ("-b", str(each // 2 // size * size), "-t", str(size), "-z")
        else:
            tasks = ranks * (2 if shape == "gaps" else 1)
            words = ("-t", str(size), "-s", str(max(each // size, 1)), "--numTasks", str(tasks))
        return Fault(kind, storage, f"IOR, {title}", "ior", (*words, *options), 2 * amount, ranks=ranks, **more)

    def coll_perf(title: str, files: int, pause: int, ranks: int = RANKS) -> Fault:
        words = ("--asize", str(points), "--files", str(files), "--pause", str(pause), "--collective", *write)
        name, size = f"coll_perf, {title}", 4 * points**3
        return Fault("hideable", "node", name, "coll_perf", (*words, *VIEW[1:]), size, files, ranks=ranks)

    def large(storage: str, title: str, size: int, *options: str, op: str = "read", ranks: int = RANKS) -> Fault:
        words = ("--bufferSize", str(size), "--collective", *options)
        hints = {f"romio_cb_{op}": "enable"}
        return ior("collective-useless", storage, title, size, "turns", *words, hints=hints, ranks=ranks)

    def buffers(title: str, *options: str, buffer: int = 64 * KiB, ranks: int = RANKS) -> Fault:
        hints = {"cb_buffer_size": str(buffer)}
        words = (*collective, *options)
        return ior("hints", "seeking", title, small, "turns", *words, hints=hints, ranks=ranks, remedy="cb_buffer_size")

    def aggregator(title: str, *options: str, ranks: int = RANKS) -> Fault:
        words = (*collective, *options)
        return ior("hints", "seeking", title, small, "turns", *words, ranks=ranks, remedy="cb_nodes")

    return [
        ior("small-strided", "disks", "16 KiB, gaps, reads", small, "gaps"),
        ior("small-strided", "seeking", "16 KiB, gaps, reads", small, "gaps"),
        ior("interleaved", "seeking", "256 KiB, in turns, reads", medium, "turns"),
        ior("interleaved", "seeking", "128 KiB, in turns, reads, 8 ranks", medium // 2, "turns", ranks=8),
        ior("interleaved", "seeking", "512 KiB, in turns, reads, 2 ranks", 2 * medium, "turns", ranks=2),
        ior("independent", "seeking", "16 KiB, in turns, reads", small, "turns"),
        ior("independent", "seeking", "8 KiB, in turns, reads, 8 ranks", small // 2, "turns", ranks=8),
        ior("independent", "disks", "32 KiB, in turns, reads, 2 ranks", 2 * small, "turns", ranks=2),
        ior("small", "seeking", "16 KiB, at random, writes", small, "random", *write),
        ior("small", "seeking", "8 KiB, at random, writes, 8 ranks", small // 2, "random", *write, ranks=8),
        ior("small", "seeking", "32 KiB, at random, writes, 2 ranks", 2 * small, "random", *write, ranks=2),
        ior("fragments", "seeking", "65 KiB, at random, writes", 65 * KiB, "random", *write),
        ior("fragments", "seeking", "129 KiB, at random, writes, 2 ranks", 129 * KiB, "random", *write, ranks=2),
        ior("fragments", "seeking", "68 KiB, at random, writes, 8 ranks", 68 * KiB, "random", *write, ranks=8),
        aggregator("16 KiB, collective reads, an aggregator"),
        aggregator("16 KiB, collective writes, an aggregator", *write),
        aggregator("16 KiB, collective reads, an aggregator, 8 ranks", ranks=8),
        buffers("16 KiB, collective reads, buffers of 64 KiB"),
        buffers("16 KiB, collective writes, buffers of 64 KiB", *write),
        buffers("16 KiB, collective writes, buffers of 128 KiB, 2 ranks", *write, buffer=128 * KiB, ranks=2),
        ior("read-modify-write", "disks", "256 KiB, gaps, through a view, writes", medium, "gaps", *VIEW, *durable),
        ior("read-modify-write", "disks", "64 KiB, gaps, through a view, writes, 2 ranks", medium // 4, "gaps", *VIEW,
            *durable, ranks=2),
        ior("read-modify-write", "seeking", "256 KiB, gaps, through a view, writes", medium, "gaps", *VIEW, *write),
        coll_perf("computing after each of 3 files", 3, 3000),
        coll_perf("computing after each of 2 files, 8 ranks", 2, 3000, ranks=8),
        coll_perf("computing for 5 s after each of 2 files", 2, 5000),
        large("disks", "4 MiB, collective reads", 4 * MiB),
        large("disks", "4 MiB, collective writes", 4 * MiB, *durable, op="write"),
        large("seeking", "2 MiB, collective reads, 2 ranks", 2 * MiB, ranks=2),
    ]  # fmt: skip


def measure(fault: Fault, storage: Opened, programs: Path, work: Path) -> dict[str, Any]:
    """Run a program with and without the remedy of its finding: seconds in I/O of the slowest rank.

    Raises:
        RuntimeError: pdla does not find its fault, or a command fails.
    """
    work.mkdir()
    files, hints = fault.paths(storage.directory), work / "hints"
    hints.write_text("".join(f"{name} {value}\n" for name, value in fault.hints.items()))
    variables = {
        **SHARED_PROCESSORS,
        "PDLA_HOME": str(work / "home"),
        "PATH": f"{BINARIES}:{os.environ['PATH']}",
        "ROMIO_HINTS": str(hints),
    }
    before, after, cluster = work / "before.h5", work / "after.h5", work / "cluster.toml"
    cluster.write_text(storage.cluster)
    try:
        with storage.unlimited():
            for file in files:
                storage.place(file, fault.size)
                fill(file, fault.size)
        command = ["mpiexec", "-n", str(fault.ranks), programs / fault.program, *fault.options]
        native = _traced([*command, "--testFile", storage.directory / ORIGINAL], storage, before, variables)
        planned = plan(native, cluster, hypothetical=True)
        finding = _found(find(native, planned, str(before)), fault)
        # What is prepared once is not measured.
        *first, last = finding.command.rsplit(" && ", 1)
        with storage.unlimited():
            for one in first:
                output_of(["env", "-C", work, "sh", "-c", one], variables)
        remedied = _traced(["sh", "-c", last], storage, after, variables)
    finally:
        _remove(cluster, files)
    seconds = [Seen(one, planned, "").seconds for one in (native, remedied)]
    return {
        "command": last,
        "before": seconds[0],
        "expected": finding.after,
        "after": seconds[1],
        "predicted": finding.predicted and [finding.predicted.before, finding.predicted.after],
        "costs": finding.costs,
        "confidence": finding.confidence,
        "why": finding.why,
    }


def in_rounds(fault: Fault, storage: Opened, programs: Path, work: Path, rounds: int) -> dict[str, Any]:
    """What each round measured, as lists."""
    work.mkdir()
    found = [measure(fault, storage, programs, work / str(number)) for number in range(rounds)]
    return {
        **{name: getattr(fault, name) for name in ("kind", "title", "storage")},
        **{name: [one[name] for one in found] for name in found[0]},
    }


def _found(findings: Sequence[Finding], fault: Fault) -> Finding:
    """The finding of a fault that has a command."""
    wanted = [one for one in findings if one.kind == fault.kind and one.command and fault.remedy in one.command]
    if not wanted:
        raise RuntimeError(f"pdla finds {', '.join(one.kind for one in findings) or 'nothing'}")
    return wanted[0]


def _traced(command: Sequence[str | Path], storage: Opened, trace: Path, variables: Mapping[str, str]) -> Trace:
    """Run a command under the recorder, in the directory of its trace, with nothing in memory."""
    storage.drop_caches()
    tool = ["env", "-C", trace.parent, "pdla", "trace", "--posix", "-o", trace, "--"]
    output_of([*tool, *command], variables)
    return read_trace(trace)


def _remove(cluster: Path, files: Sequence[Path]) -> None:
    """Remove files and replicas from the storage."""
    for pool in load_cluster(cluster).pools:
        for where in pool.where:
            shutil.rmtree(folder_in(Path(where)), ignore_errors=True)
    for file in files:
        file.unlink(missing_ok=True)


def expected(one: Mapping[str, Any]) -> float | None:
    """The median of what the rounds' findings expected; None: most of them expected nothing."""
    said = [seconds for seconds in one["expected"] if seconds is not None]
    return statistics.median(said) if 2 * len(said) > len(one["expected"]) else None


def kept(one: Mapping[str, Any]) -> bool:
    """Whether a remedy brought what was expected."""
    return bool(abs((expected(one) or 0) / statistics.median(one["after"]) - 1) <= KEPT)


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each program."""
    head = ["finding", "program", "storage", "confidence", "measured", "expected", "with the remedy", "ratio", "kept"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for one in rows:
        said, after = expected(one), statistics.median(one["after"])
        alike = [
            level
            for level, each in zip(one["confidence"], one["expected"], strict=True)
            if (each is None) == (said is None)
        ]
        confidence = statistics.mode(alike)
        words = f"| `{one['kind']}` | {one['title']} | {STORAGES[one['storage']].title} | {confidence}"
        measured = f"{_spread(one['before'])} | {'-' if said is None else f'{said:.3g} s'} | {_spread(one['after'])}"
        ratio = "- | -" if said is None else f"{said / after:.2f} | {'yes' if kept(one) else 'no'}"
        lines.append(f"{words} | {measured} | {ratio} |")
    return lines


def _spread(seconds: Sequence[float]) -> str:
    """The median, and the least and the largest.

    >>> _spread([1.0, 2.5, 1.25])
    '1.25 s (1 to 2.5)'
    """
    return f"{statistics.median(seconds):.3g} s ({min(seconds):.3g} to {max(seconds):.3g})"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage", nargs="*", choices=STORAGES, default=list(STORAGES))
    parser.add_argument("--only", nargs="+", default=["*"], help="only programs whose rows match one of these globs")
    parser.add_argument("--amount", type=parse_bytes, default=64 * MiB, help="bytes that a program accesses")
    parser.add_argument("--rounds", type=int, default=3, help="how often each program is measured")
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    options = parser.parse_args()
    end_on_signals()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    chosen = [one for one in faults(options.amount) if any(fnmatch.fnmatch(one.name, glob) for glob in options.only)]
    for name in options.storage:
        own = [one for one in chosen if one.storage == name]
        if not own:
            continue
        if why := STORAGES[name].obstacle():
            sys.stdout.write(f"{name}: skipped: {why}\n")
            continue
        with workspace(Path("/dev/shm")) as scratch:
            compile_programs(scratch, {one.program for one in own})
            (scratch / name).mkdir()
            with STORAGES[name].opened(scratch / name, max(one.files * one.size for one in own)) as storage:
                for number, one in enumerate(own):
                    try:
                        results[one.name] = in_rounds(one, storage, scratch, scratch / f"work{number}", options.rounds)
                        sys.stdout.write(f"{one.name}: {json.dumps(results[one.name])}\n")
                    except (RuntimeError, PdlaError) as error:
                        sys.stdout.write(f"{one.name}: {error}\n")
                    RESULTS.parent.mkdir(exist_ok=True)
                    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    lines = table([results[one.name] for one in faults(options.amount) if one.name in results])
    sys.stdout.write("\n".join(["", *lines, ""]))
    if options.write:
        PAGE.write_text(placed(PAGE.read_text(), lines))


if __name__ == "__main__":
    main()
