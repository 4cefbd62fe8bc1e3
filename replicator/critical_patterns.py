"""S4D-Cache's reads: what traced patterns say is in the critical data tables before a program's first request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pdla.catalog import Catalog
from pdla.critical_data import CriticalData
from pdla.model import Cluster, Int64Array, Signature
from pdla.policies.s4d import benefit_of

MOST_REQUESTS = 4_000_000
"""Patterns of more requests are left to the runs: their table would take too much memory."""

_Float64Array = npt.NDArray[np.float64]


def seed(catalog: Catalog, cluster: Cluster, is_wanted: Callable[[str], bool]) -> list[Path]:
    """Fill the tables of wanted files that were traced and that no run with S4D-Cache has read; returns these files.

    A table may stay empty: then the file is not looked at again.
    """
    new = set(filter(is_wanted, catalog.patterns.files() - catalog.critical.seen().keys()))
    traced: dict[str, list[Signature]] = {file: [] for file in sorted(new)}
    for pattern in catalog.patterns.find() if new else ():
        signature = pattern.signature
        if signature.file in new and signature.op == "read" and signature.requests <= MOST_REQUESTS:
            traced[signature.file].append(signature)
    for file, signatures in traced.items():
        catalog.critical.add(Path(file), critical_reads_of(signatures, cluster))
    return [Path(file) for file in traced]


def critical_reads_of(signatures: Sequence[Signature], cluster: Cluster) -> CriticalData:
    """The critical reads of a file's patterns. As in a process, the distance is that from the rank's previous request.

    Each pattern is judged on its own: its first request of a rank is far from any other.

    Raises:
        ConfigError: the cluster has no SSD servers.
    """
    found = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    found += [_judged(signature, cluster) for signature in signatures]
    return CriticalData.of_reads(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _judged(signature: Signature, cluster: Cluster) -> tuple[Int64Array, Int64Array, _Float64Array]:
    offsets, ranks, lengths = signature.expand()
    order = np.argsort(ranks, kind="stable")
    return critical_requests(offsets[order], ranks[order], lengths[order], cluster)


def critical_requests(
    offsets: Int64Array, ranks: Int64Array, lengths: Int64Array, cluster: Cluster
) -> tuple[Int64Array, Int64Array, _Float64Array]:
    """The critical ones of a file's reads, of each rank in their order: starts, stops and seconds saved.

    Raises:
        ConfigError: the cluster has no SSD servers.
    """
    distances = np.full(len(offsets), -1)
    distances[1:] = np.where(ranks[1:] == ranks[:-1], np.abs(offsets[1:] - offsets[:-1] - lengths[:-1]), -1)
    # What Eqs. 1 to 8 depend on: a request's place in a round of strips, its length and its distance.
    kinds = np.stack([offsets % (cluster.home_strip * cluster.home_servers), lengths, distances], axis=1)
    different, which = np.unique(kinds, axis=0, return_inverse=True)
    saves = np.array(
        [
            benefit_of(cluster, "read", place, length, distance if distance >= 0 else np.inf)
            for place, length, distance in different.tolist()
        ]
    )[which.reshape(-1)]
    critical = saves > 0
    return offsets[critical], offsets[critical] + lengths[critical], saves[critical]
