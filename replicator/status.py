"""The state of all replicas: how they are used, who works on them, and what waits in the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pdla.answers import unanswered
from pdla.catalog import Catalog, CriticalFile, Lease, Listed, Pattern
from pdla.catalog.records import QueueState
from pdla.model import Signature
from pdla.replicator.cache_status import CachedFile, cached_files
from pdla.replicator.identity import ORIGINAL
from pdla.replicator.mapfile import fold
from pdla.replicator.write_targets import target_of

DAEMON = "daemon "
"""The prefix of the name of the lease by which a daemon shows that it runs."""


@dataclass(frozen=True)
class Status:
    """The present state.

    Attributes:
        missing: by the replica's number, a directory of its components that does not exist, or does not answer.
        silent: the originals and directories whose storage does not answer.
        leases: the leases that have not ended.
        queue: the number of patterns in every state; ``failed`` patterns could not be built.
        caches: files with bytes in cache files.
        critical: files with critical reads.
    """

    replicas: Sequence[Listed]
    missing: Mapping[int, str]
    silent: frozenset[str]
    leases: Sequence[Lease]
    queue: Mapping[QueueState, int]
    failed: Sequence[Pattern]
    caches: Sequence[CachedFile] = ()
    critical: Sequence[CriticalFile] = ()

    def to_json(self, catalog: Catalog) -> dict[str, Any]:
        """Plain values, as docs/json.md describes them, with everything that the catalog has."""
        signatures, components = catalog.replicas.signatures(), catalog.replicas.component_paths()
        return {
            "replicas": [
                self._row(replica, signatures[replica.id], components.get(replica.id, [])) for replica in self.replicas
            ],
            "leases": [
                {"resource": lease.resource, "holder": lease.holder, "seconds": round(lease.seconds, 1)}
                for lease in self.leases
            ],
            "queue": dict(self.queue),
            "caches": [one.to_json() for one in self.caches],
            "critical": [self._critical(one) for one in self.critical],
            "failed": [{"pattern": one.id, "file": one.signature.file, "why": one.why} for one in self.failed],
        }

    def on_ssds(self, file: CriticalFile) -> int:
        """Bytes of the replica with the critical bytes of a file."""
        return sum(one.size for one in self.replicas if one.id == file.replica and one.state == "valid")

    def _critical(self, file: CriticalFile) -> dict[str, Any]:
        return {
            "path": str(file.path),
            "critical_bytes": file.data.bytes,
            "cached_bytes": self.on_ssds(file),
            "replica": file.replica,
            "seen": file.seen.isoformat(timespec="seconds"),
        }

    def _row(self, replica: Listed, signature: Signature, components: Sequence[tuple[str, int]]) -> dict[str, Any]:
        layout = replica.layout
        return {
            "id": replica.id,
            "original": replica.path,
            "purpose": replica.purpose,
            "state": replica.state,
            "why": replica.why,
            "missing": self.missing.get(replica.id),
            "layout": layout.name,
            "pool": layout.pool,
            "servers": layout.servers,
            "groups": layout.groups,
            "bytes": replica.size,
            "signature": str(signature),
            "created": replica.created.isoformat(timespec="seconds"),
            "runs": replica.runs,
            "bytes_read": replica.bytes_read,
            "used": replica.used and replica.used.isoformat(timespec="seconds"),
            "components": [{"path": path, "bytes": size} for path, size in components],
        }


def status(catalog: Catalog, *, map_path: Path | None = None) -> Status:
    """The present state. Looks at every original, and at the directories of the components, not at each component.

    Replicas of an original whose storage does not answer are in the state in which they were.

    If a cache has dirty bytes, it takes half a second to see at what rate they go home.
    """
    catalog.take_in()
    fold(catalog, map_path)
    directories = catalog.replicas.directories()
    silent = unanswered([*directories, *(one.path for one in catalog.replicas.copies())])
    away = {directory for directory in directories if directory in silent or not Path(directory).is_dir()}
    missing = {}
    if away:
        for number, files in catalog.replicas.component_paths().items():
            for path, _ in files:
                if (directory := path[: path.rindex("/") + 1]) in away:
                    missing[number] = directory
    listed = [
        one._replace(path=str(target_of(catalog.replicas.get(one.id)))) if one.purpose == "write" else one
        for one in catalog.replicas.listing()
    ]
    census = catalog.census()
    current = [lease for lease in catalog.leases.all() if lease.seconds > 0]
    names = {f"{ORIGINAL}{one.identity.inode}": str(one.path) for one in catalog.originals.all()} if current else {}
    return Status(
        replicas=listed,
        missing=missing,
        silent=silent,
        leases=[replace(lease, name=names.get(lease.resource, lease.name)) for lease in current],
        queue=census.queue,
        failed=catalog.patterns.find(state="failed") if census.queue["failed"] else (),
        caches=cached_files(map_path),
        critical=[one for one in catalog.critical.all() if one.data.bytes],
    )
