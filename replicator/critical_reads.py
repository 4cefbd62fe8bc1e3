"""Critical reads: replicas of the critical bytes that save most, and what a run got out of them.

Source: He et al., ICDCS 2014: the rebuilder's fetches (III-B).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pdla import config
from pdla.accessmap import AccessMap
from pdla.catalog import Catalog, CriticalFile, Replica
from pdla.critical_data import CriticalData, chosen, held_bytes
from pdla.errors import BusyError, PdlaError
from pdla.layouts.capacity import room
from pdla.model import Cluster, Int64Array, Layout, Pool, Signature
from pdla.policies.online import pool_of
from pdla.replicator.builder import build
from pdla.replicator.copying import Progress
from pdla.replicator.critical_logs import ROW, CriticalLog
from pdla.replicator.exit_reports import RunReport
from pdla.replicator.mapfile import fold, publish
from pdla.replicator.verify import components_unchanged, discard

WORTH = 0.95
"""Replicas stay if they save at least this share of what the best choice would save: a new choice moves all bytes."""
FREE_SHARE = 0.5
"""Of the free space of a pool without a capacity that replicas of critical reads may take."""
WRITE_SHARE = 4
"""A quarter of the SSD pool is for writes on their way home, the rest for what is read."""
MOST_TURNS = 4
"""How often a process looks whether others have recorded more, and were refused, while it copied."""
FETCHING = "critical reads"
"""The resource of the one process that makes replicas of critical reads."""


@dataclass(frozen=True)
class CriticalReport:
    """What S4D-Cache or iBridge did for a file in a run, and after it.

    Attributes:
        requests: contiguous accesses of processes with critical reads, that were judged, reads and writes.
        reads: critical reads of the run.
        read_bytes: bytes of these.
        served_bytes: bytes of these that were in the replica.
        saved_seconds: what that saved, by the cost model, summed over all ranks.
        written_bytes, home_bytes: of writes that went to the SSD servers, and came home, while the program ran.
        critical_bytes: bytes of the file that are critical, in this run or in earlier ones.
        cached_bytes: bytes of these that the replica has after the run.
        fetched_bytes: bytes that were copied to SSD servers while the program ran, and after it.
        why: why they are not there; "": they are.
    """

    path: str
    requests: int
    reads: int
    read_bytes: int
    served_bytes: int
    saved_seconds: float
    written_bytes: int
    home_bytes: int
    critical_bytes: int
    cached_bytes: int
    fetched_bytes: int
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


# ---- the replicas ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Wanted:
    """A file of the table, as it is now.

    ``replica``: the one with its critical bytes, if that can be used.
    """

    file: CriticalFile
    data: CriticalData
    replica: Replica | None


def reserved_for_writes(cluster: Cluster) -> int:
    """The bytes of the SSD pool that are for writes, if nobody chooses others; 0: its devices say what is free.

    Raises:
        ConfigError: the cluster has no SSD servers.
    """
    return (pool_of(cluster, "ssd", "S4D-Cache").capacity or 0) // WRITE_SHARE


def fetch(
    catalog: Catalog,
    cluster: Cluster,
    reserved: int,
    map_path: Path | None = None,
    progress: Progress | None = None,
) -> dict[Path, str]:
    """Make replicas of the critical reads that save most, as many as the first pool of SSDs has room for.

    ``reserved`` bytes of its capacity stay free for writes. Returns the files whose bytes could not be copied, and why.
    The replicas of a file are replaced only if that saves clearly more. What others record meanwhile is copied, too:
    they are refused.

    Raises:
        BusyError: another process makes them.
    """
    problems: dict[Path, str] = {}
    for turn in range(MOST_TURNS):
        try:
            with catalog.leases.hold(FETCHING, name="the replicas of critical reads"):
                known = catalog.critical.seen()
                problems |= _fetch(catalog, cluster, reserved, map_path or config.map_path(), progress)
        except BusyError:
            if turn == 0:
                raise
            break  # another process does the rest
        # And not before: who was refused until now has recorded what it found.
        if catalog.critical.seen() == known:
            break
    return problems


def _fetch(
    catalog: Catalog, cluster: Cluster, reserved: int, map_path: Path, progress: Progress | None
) -> dict[Path, str]:
    pool = pool_of(cluster, "ssd", "s4d")
    fold(catalog, map_path)
    _discard_unusable(catalog, map_path)
    files = catalog.critical.all()
    usable = _usable(files, catalog)
    wanted = [one for one in (_wanted(file, usable) for file in files) if one is not None]
    held = [one.replica for one in wanted if one.replica is not None]
    best = chosen({str(one.file.path): one.data for one in wanted}, _room(pool, catalog, held, reserved))
    have = sum(one.data.saved_in(_extents(one.replica)) for one in wanted if one.replica is not None)
    could = sum(one.data.saved_in(best[str(one.file.path)]) for one in wanted if str(one.file.path) in best)
    problems: dict[Path, str] = {}
    if have >= WORTH * could:
        return problems
    changed = [one for one in wanted if not _has(one, best.get(str(one.file.path)))]
    # Their space is needed for the new ones. A program that reads from them goes on with the originals.
    discard(catalog, [one.replica.id for one in changed if one.replica is not None], map_path)
    for one in changed:
        catalog.critical.set_replica(one.file.path, None)
        if str(one.file.path) in best:
            try:
                _build(one.file.path, best[str(one.file.path)], pool, cluster, catalog, map_path, progress)
            except PdlaError as error:
                problems[one.file.path] = str(error)
    publish(catalog, map_path)
    return problems


def _wanted(file: CriticalFile, usable: Mapping[int | None, Replica]) -> _Wanted | None:
    """None: the file is gone, or has no critical bytes any more."""
    try:
        data = file.data.below(file.path.stat().st_size)
    except OSError:
        return None
    return _Wanted(file, data, usable.get(file.replica)) if len(data.starts) else None


def _usable(files: Sequence[CriticalFile], catalog: Catalog) -> dict[int | None, Replica]:
    """The replicas with the critical bytes of these files that can be used, by number. One look at the catalog."""
    made = {file.replica for file in files}
    return {one.id: one for one in catalog.replicas.find("valid") if one.id in made and components_unchanged(one)}


def _discard_unusable(catalog: Catalog, map_path: Path) -> None:
    """Remove replicas of critical bytes whose original was changed, or that lost a component."""
    files, known = catalog.critical.all(), {one.id for one in catalog.replicas.listing()}
    usable = _usable(files, catalog)
    made = [file.replica for file in files if file.replica in known and file.replica not in usable]
    discard(catalog, [number for number in made if number is not None], map_path)


def _room(pool: Pool, catalog: Catalog, held: Sequence[Replica], reserved: int) -> int:
    left = sum(room([pool], lambda one: catalog.replicas.bytes_in(one.where), held).values())
    return max(left - reserved, 0) if pool.capacity is not None else int(left * FREE_SHARE)


def _extents(replica: Replica) -> Int64Array:
    table = replica.access_map.extents
    assert table is not None  # as _build makes them
    return table


def _has(one: _Wanted, extents: Int64Array | None) -> bool:
    if one.replica is None or extents is None:
        return one.replica is None and extents is None
    return np.array_equal(_extents(one.replica), extents)


def _build(
    path: Path,
    extents: Int64Array,
    pool: Pool,
    cluster: Cluster,
    catalog: Catalog,
    map_path: Path,
    progress: Progress | None,
) -> None:
    """One replica with these bytes, striped over all SSD servers like the originals over theirs (V-A)."""
    access_map = AccessMap(extents=extents)
    layout = Layout(pool.name, pool.servers, 1, (cluster.home_strip,) * pool.servers, access_map.size)
    first = Signature(str(path), "read", False, int(extents[0, 0]), int(extents[0, 1]), (), (0,))
    built = build(first, layout, pool, catalog, access_map=access_map, map_path=map_path, progress=progress)
    catalog.critical.set_replica(path, built.id)


# ---- what a run got out of it ----------------------------------------------------------------------------------------


def serving(catalog: Catalog) -> dict[Path, Replica]:
    """The replicas that a run can read critical bytes from, by file."""
    files = catalog.critical.all()
    usable = _usable(files, catalog)
    return {file.path: usable[file.replica] for file in files if file.replica in usable}


def reports(
    logs: Mapping[Path, CriticalLog],
    before: Collection[int],
    replicas: Sequence[Replica],
    run: RunReport,
    catalog: Catalog,
    problems: Mapping[Path, str],
) -> list[CriticalReport]:
    """A row for each file of a run that had critical requests.

    ``replicas`` had critical bytes at some time of the run, or have them now; those with numbers in ``before`` had
    them when it began.
    """
    table, now = {file.path: file.data.bytes for file in catalog.critical.all()}, serving(catalog)
    used = {one.id: one.bytes for file in run.files for one in file.replicas}
    written = {Path(cache.path): cache for cache in run.caches if cache.written_bytes}
    found = []
    for path in sorted({*logs, *written}):
        log = logs.get(path, CriticalLog(path, 0, np.empty(0, ROW)))
        cache, after = written.get(path), now.get(path)
        of_file = [one for one in replicas if Path(one.original.path) == path]
        served = [_served(log, one, used.get(one.id, 0)) for one in of_file]
        found.append(
            CriticalReport(
                path=str(path),
                requests=log.requests,
                reads=int(log.rows["reads"].sum()),
                read_bytes=_bytes_of(log),
                served_bytes=round(sum(count for count, _ in served)),
                saved_seconds=sum(seconds for _, seconds in served),
                written_bytes=cache.written_bytes if cache is not None else 0,
                home_bytes=cache.home_bytes if cache is not None else 0,
                critical_bytes=table.get(path, 0),
                cached_bytes=after.size if after is not None else 0,
                fetched_bytes=sum(one.size for one in of_file if one.id not in before),
                why=problems.get(path, ""),
            )
        )
    return found


def _bytes_of(log: CriticalLog) -> int:
    return int(((log.rows["stop"] - log.rows["start"]) * log.rows["reads"]).sum())


def _served(log: CriticalLog, replica: Replica, read: int) -> tuple[float, float]:
    """The bytes of critical reads that a replica served, and the seconds that this saved; ``read`` bytes are from it.

    It may have been there for a part of the run only: then all reads that it could serve have an equal share.
    """
    rows = log.rows
    part = held_bytes(_extents(replica), rows["start"], rows["stop"]) / (rows["stop"] - rows["start"])
    could = float(((rows["stop"] - rows["start"]) * rows["reads"] * part).sum())
    share = min(1.0, read / could) if could else 0.0
    return could * share, float((rows["benefit"] * rows["reads"] * part).sum()) * share
