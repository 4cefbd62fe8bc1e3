"""Programs with critical requests, and the ways to serve them: what ssd_cache.py, fragments.py and schemes.py run."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from benchmarks.cases import COLLECTIVE, H_PDLA, INDEPENDENT, S_LEASE, S_ORIG, S_PDLA, Case
from benchmarks.cephfs import ThrottledCephFS
from benchmarks.contestants import BINARIES, SHARED_PROCESSORS, THROUGH_VIEWS, bytes_of, fill
from benchmarks.processes import output_of
from benchmarks.seeking import SeekingDisks
from benchmarks.storage import ThrottledDisks
from pdla.catalog import open_catalog
from pdla.critical_data import CriticalData
from pdla.layouts.config import load_cluster
from pdla.model import Int64Array
from pdla.replicator.backends.base import folder_in
from pdla.replicator.critical_patterns import critical_requests
from pdla.replicator.critical_reads import fetch, reserved_for_writes
from pdla.units import KiB, MiB, format_bytes

FIRST, SECOND, WRITTEN = "S4D-Cache, first run", "S4D-Cache, second run", "S4D-Cache"
LEARNED = "pdla run --learn --policy auto"
ORACLE = "oracle"
"""A replica of what saves most by the same cost model, if all requests are known before."""
CACHED = (FIRST, SECOND, WRITTEN)
PLANNED = {H_PDLA: "pdla-h", S_PDLA: "pdla-s", S_LEASE: "pdla-s"}
"""The policies of plans."""
IN_ORDER, AT_RANDOM = 6, 4
"""Of the paper's ten instances of IOR, which run one after the other, each with its file."""

LEAST = 64
"""Bytes of a pool in which nothing has room; 0 would be no limit."""

Storage = ThrottledDisks | SeekingDisks | ThrottledCephFS


@dataclass(frozen=True)
class Job:
    """Programs of the same kind that run one after the other, each with a file of its own."""

    title: str
    programs: tuple[Case, ...]

    @property
    def size(self) -> int:
        """Bytes of a file."""
        return self.programs[0].size

    @property
    def bytes(self) -> int:
        """Of all files."""
        return len(self.programs) * self.size

    @property
    def ranks(self) -> int:
        """Of each program."""
        return self.programs[0].ranks

    @property
    def request(self) -> int:
        """Bytes of a piece."""
        return self.programs[0].request

    @property
    def regular(self) -> bool:
        """Whether there can be a plan, and collective calls are other than the program's own."""
        return self.programs[0].program != "ior"


def ior(amount: int, request: int, random: bool, ranks: int = 4) -> Job:
    """Each rank accesses a part of the file."""
    block = max(amount // ranks // request, 1) * request
    options = ("-b", str(block), "-t", str(request), *(["-z"] if random else []))
    one = Case("IOR", "ior", options, ranks, block * ranks, block * ranks, request=request)
    return Job(f"IOR, {format_bytes(request)}, {'random' if random else 'in order'}", (one,))


def mix(amount: int, request: int, ranks: int = 4) -> Job:
    """The paper's ten instances: at random and in order, by turns."""
    count = IN_ORDER + AT_RANDOM
    instances = [ior(amount // count, request, number % 5 in (1, 3), ranks).programs[0] for number in range(count)]
    return Job(f"ten IOR, {format_bytes(request)}, {ranks} ranks", tuple(instances))


def hpio(amount: int, spacing: int, ranks: int = 4) -> Job:
    """Regions of 8 KiB with gaps."""
    region = 8 * KiB
    count = amount // region // ranks
    options = ("-c", str(count), "-s", str(region), "-p", str(spacing), "--bufferSize", str(4 * region))
    size, used = count * ranks * (region + spacing), count * ranks * region
    one = Case("HPIO", "hpio", options, ranks, size, used, request=region)
    return Job(f"HPIO, gaps of {format_bytes(spacing)}", (one,))


def tiles(amount: int, ranks: int) -> Job:
    """Two rows of tiles. Elements have 32 KiB, and each row of a tile ten of them (V.D)."""
    element, wide = 32 * KiB, 10
    high = max(amount // ranks // wide // element, 1)
    words = {"nr_tiles_x": ranks // 2, "nr_tiles_y": 2, "sz_tile_x": wide, "sz_tile_y": high, "sz_element": element}
    words |= {"overlap_x": 0, "overlap_y": 0, "bufferSize": wide * element}
    options = tuple(str(word) for name, value in words.items() for word in (f"--{name}", value))
    size = ranks * wide * high * element
    one = Case("MPI-Tile-IO", "mpi_tile_io", options, ranks, size, size, request=wide * element)
    return Job(f"MPI-Tile-IO, {ranks} ranks", (one,))


def order_of(task: int, count: int) -> Int64Array:
    """The order of a task's pieces as workloads/ior.c shuffles them."""
    numbers = np.zeros(count, np.int64)
    state = task + 1
    for i in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        other = (state >> 33) % (i + 1)
        numbers[i] = numbers[other]
        numbers[other] = i
    return numbers


class Experiment:
    """A job on one storage: its files, plans, replicas and homes.

    The SSD pool has room for a ``share`` of the job's bytes, or for all of them; ``ssds`` of its servers are used.

    Attributes:
        policy: of the next run of a contestant in ``CACHED``.
    """

    def __init__(
        self,
        storage: Storage,
        job: Job,
        programs: Path,
        directory: Path,
        share: float | None = None,
        ssds: int | None = None,
        policy: str = "s4d",
    ) -> None:
        self.storage, self.job, self.programs, self.directory, self.policy = storage, job, programs, directory, policy
        self.cluster = directory / "cluster.toml"
        self.cluster.write_text(_limited(storage.cluster, None if share is None else int(share * job.bytes), ssds))
        self.signature = 0
        # If ROMIO sieves on several ceph-fuse mounts, ranks overwrite one another's bytes.
        unsieved = isinstance(storage, ThrottledCephFS)
        (directory / "hints").write_text("romio_ds_write disable\n" if unsieved else "")

    # ---- before the runs ------------------------------------------------------------------------------------------

    def prepare(self, op: str, contestants: Sequence[str]) -> None:
        """Make the files, and the replicas that are planned."""
        for kind in ("hdd", "ssd") if S_ORIG in contestants else ("hdd",):
            for file in self._files(kind):
                self.storage.place(kind, file, self.job.size)
                fill(file, self.job.size)
        planned = [one for one in contestants if one in PLANNED]
        if planned:
            self._pdla(INDEPENDENT, "trace", "-o", self._trace, "--", *self._command(op, INDEPENDENT))
        for one in planned:
            plan = self.plan(one)
            asked = ("--cluster", self.cluster, "--policy", PLANNED[one], *_writes(op, one))
            self._pdla(one, "plan", self._trace, *asked, "-o", plan)
            self._pdla(one, "replicate", plan)
        if ORACLE in contestants:
            self._place_critical_reads()

    def _place_critical_reads(self) -> None:
        cluster, home = load_cluster(self.cluster), self._home(ORACLE)
        home.mkdir()
        with closing(open_catalog(f"sqlite:///{home / 'catalog.db'}")) as catalog:
            for program, file in zip(self.job.programs, self._files("hdd"), strict=True):
                table = critical_requests(*self._requests(program), cluster)
                catalog.critical.add(file, CriticalData.of_reads(*table))
            fetch(catalog, cluster, reserved_for_writes(cluster), home / "replicas.map")

    def _requests(self, program: Case) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Offsets, ranks and lengths of an IOR, those of each rank in their order."""
        pieces = self.job.size // self.job.ranks // self.job.request
        orders = [
            order_of(rank, pieces) if "-z" in program.options else np.arange(pieces) for rank in range(self.job.ranks)
        ]
        offsets = np.concatenate([rank * pieces + order for rank, order in enumerate(orders)]) * self.job.request
        ranks = np.repeat(np.arange(self.job.ranks), pieces)
        return offsets, ranks, np.full(len(offsets), self.job.request)

    # ---- a run ----------------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """What the policy found in earlier rounds. Its replicas stay on the servers until ``remove``."""
        shutil.rmtree(self._home(WRITTEN), ignore_errors=True)

    def rate(self, op: str, contestant: str) -> float:
        """MiB/s from before the opens until after the closes, without computation and the check of the bytes."""
        self.storage.drop_caches()
        self.signature += op == "write"
        command = self._command(op, contestant)
        if contestant in CACHED:
            said = self._pdla(contestant, "run", "--policy", self.policy, "--cluster", self.cluster, "--", *command)
        elif contestant == LEARNED:
            words = ("--learn", "--wait", "--policy", "auto", "--cluster", self.cluster)
            said = self._pdla(contestant, "run", *words, "--", *command)
        elif contestant in PLANNED or contestant == ORACLE:
            said = self._pdla(contestant, "run", *_writes(op, contestant), "--", *command)
        else:
            said = output_of(command, self.variables(contestant))
        found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        if contestant == S_LEASE:
            with self.storage.unlimited():
                self._pdla(contestant, "sync")
        moved = sum(one["bytes"] for one in found)
        if op == "write":
            self._check(contestant, moved)
        return float(moved / MiB / sum(one["seconds"] for one in found))

    def history(self) -> str:
        """What was learned, as JSON."""
        return self._pdla(LEARNED, "history", "1", "--json")

    def plan(self, contestant: str) -> Path:
        """The file of a contestant's plan."""
        return self.directory / f"{contestant}.json"

    def remove(self) -> None:
        """Remove the files and replicas from the storage."""
        for pool in load_cluster(self.cluster).pools:
            for where in pool.where if pool.kind != "node" else ():
                shutil.rmtree(folder_in(Path(where)), ignore_errors=True)
        for kind in ("hdd", "ssd"):
            for file in self._files(kind):
                file.unlink(missing_ok=True)

    def _check(self, contestant: str, written: int) -> None:
        files = self._files(_kind(contestant))
        with self.storage.unlimited():
            found = sum(bytes_of(file, self.job.size, self.signature) for file in files)
        if found != written:
            raise RuntimeError(f"{contestant} of {self.job.title} wrote {written} bytes, but the files have {found}")

    @property
    def _trace(self) -> Path:
        return self.directory / "run.h5"

    def _files(self, kind: str) -> list[Path]:
        directory = self.storage.nodes[0].originals[kind]
        return [directory / f"data{number}" for number in range(len(self.job.programs))]

    def _command(self, op: str, contestant: str) -> list[str]:
        """All programs, one after the other."""
        lines = []
        for program, file in zip(self.job.programs, self._files(_kind(contestant)), strict=True):
            own = [str(self.programs / program.program), *program.options, "--testFile", str(file)]
            own += ["--setTimeStampSignature", str(self.signature)]
            together = contestant == COLLECTIVE or (contestant in CACHED and self.policy == "e10")
            own += ["--collective", *THROUGH_VIEWS] if together else []
            if op == "write":
                # A sync would begin the write-back of a lease, whose close makes the bytes durable.
                own += ["--writeFile", *([] if contestant == S_LEASE else ["--fsync"])]
            lines.append(shlex.join(self._launched(own)))
        return ["sh", "-ec", "\n".join(lines)]

    def _launched(self, program: Sequence[str]) -> list[str]:
        """With all ranks, neighbours on the same node."""
        nodes, command = self.storage.nodes, [str(BINARIES / "mpiexec")]
        for number, (place, ranks) in enumerate(
            groupby(range(self.job.ranks), lambda rank: rank * len(nodes) // self.job.ranks)
        ):
            share = ["-n", str(len(list(ranks))), *nodes[place].launch, *program]
            command += [":", *share] if number else share
        return command

    def variables(self, contestant: str) -> dict[str, str]:
        """The environment of a run, which has a home of its own for each contestant."""
        home, hints = str(self._home(contestant)), str(self.directory / "hints")
        return SHARED_PROCESSORS | {"PDLA_HOME": home, "PDLA_CATALOG": "", "ROMIO_HINTS": hints}

    def _home(self, contestant: str) -> Path:
        return self.directory / f"home-{self.policy if contestant in CACHED else contestant}"

    def _pdla(self, contestant: str, *words: object) -> str:
        return output_of([BINARIES / "pdla", *map(str, words)], self.variables(contestant))


def _kind(contestant: str) -> str:
    """Of the servers with the originals."""
    return "ssd" if contestant == S_ORIG else "hdd"


def _writes(op: str, contestant: str) -> tuple[str, ...]:
    """When redirected writes are written back."""
    return () if op == "read" else ("--writes", "lease" if contestant == S_LEASE else "close")


def _limited(cluster: str, capacity: int | None, ssds: int | None) -> str:
    """A cluster.toml whose SSD pool has a capacity, and only some of its servers."""
    head, pool, ssd = cluster.partition("[pools.ssd]\n")
    own, table, rest = ssd.partition("\n[")
    lines = [] if capacity is None else [f"capacity = {max(capacity, LEAST)}"]
    for line in own.splitlines():
        key, _, value = line.partition(" = ")
        some = ssds is not None and key == "where"
        lines.append(f"{key} = {json.dumps(json.loads(value)[:ssds])}" if some else line)
    return head + pool + "\n".join(lines) + "\n" + table + rest


def make_synchronous(storage: Storage) -> None:
    """Let writes to originals return when they are on the disks, as with clients that keep nothing, in one request."""
    if not isinstance(storage, ThrottledCephFS):
        for original in storage.nodes[0].originals.values():
            subprocess.run(["mount", "-o", "remount,sync,nobarrier", original], check=True)


def make_usual(storage: Storage) -> None:
    """Synchronous mounts, and clients that sieve, as ROMIO does without hints; the cluster is described so."""
    make_synchronous(storage)
    described = storage.cluster.replace("sieve_read = 0\nsieve_write = 0\n", "")
    storage.cluster = described.replace("[clients]\n", "[clients]\nclient_sync = true\n")
