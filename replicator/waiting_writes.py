"""What ended programs left in write replicas and cache files, for pdla run to say: it needs no catalog."""

from __future__ import annotations

from pathlib import Path

from pdla import config
from pdla.errors import FormatError
from pdla.replicator.cache_status import left_in_caches
from pdla.replicator.journals import Journal, paths_in, read_journal
from pdla.replicator.write_targets import directories_in
from pdla.units import format_bytes


def waiting_writes(map_path: Path | None = None) -> list[str]:
    """One sentence for each file whose redirected or cached writes wait for write-back."""
    map_path = map_path or config.map_path()
    return [*filter(None, map(_in_replicas, directories_in(map_path))), *left_in_caches(map_path)]


def _in_replicas(directory: Path) -> str:
    """The sentence for the write replicas of one file, by its journals; "" if nothing waits there."""
    journals: list[Journal] = []
    damaged = False
    for path in paths_in(directory):
        try:
            journals.append(read_journal(path))
        except FormatError:
            damaged = damaged or path.exists()
    of_replicas = [journal for journal in journals if journal.cache is None]
    target = journals[0].target if journals else f"the file of {directory}"
    if damaged or any(journal.damaged for journal in of_replicas):
        return f"replicas may have newer bytes of {target}: a journal of them is damaged (pdla sync says more)"
    size = sum(journal.bytes for journal in of_replicas)
    return f"{format_bytes(size)} of {target} are newer in the replica than in the file (run pdla sync)" if size else ""
