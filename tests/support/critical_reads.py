"""Reads that are critical, the logs of them, and a place for their replicas."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from pdla.catalog import Catalog
from pdla.critical_data import CriticalData
from pdla.layouts.config import load_cluster
from pdla.replicator.critical_logs import logs_in, read_logs, record
from pdla.replicator.critical_reads import fetch, serving
from tests.support.clusters import cluster_text

SIZE = 200


def per_byte(data: CriticalData) -> np.ndarray[Any, Any]:
    """What each byte saves, written out."""
    saved = np.zeros(SIZE)
    for start, stop, each in zip(data.starts, data.stops, data.saved, strict=True):
        assert (saved[start:stop] == 0).all()
        saved[start:stop] = each
    return saved


def random_reads(seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    choose = np.random.default_rng(seed)
    starts = choose.integers(0, SIZE - 20, 30)
    return starts, starts + choose.integers(1, 20, 30), choose.integers(1, 9, 30) / 4


def log(path: Path, original: Path, rows: list[tuple[int, int, float, int]], **more: Any) -> Path:
    """A log as replicator/stub/critical_requests.c leaves it."""
    name = os.fsencode(original)
    size, head, body = more.get("segments", (3, 0, 0))
    tail = struct.pack("<QQqqIiQqq", 1, 2, size, 4, more.get("length", len(name)), 0, 9, head, body)
    tail += b"".join(struct.pack("<qqdq", *row) for row in rows) + name
    checksum = more.get("checksum", google_crc32c.value(tail))
    path.write_bytes(more.get("magic", b"PDLACDT2") + struct.pack("<II", checksum, len(rows)) + tail)
    return path


@dataclass
class Pools:
    """Two disks and two SSD servers, all directories, and a file on the disks."""

    directory: Path
    catalog: Catalog

    @property
    def original(self) -> Path:
        return self.directory / "data"

    def cluster(self, capacity: str = '"1M"') -> Path:
        path = self.directory / "cluster.toml"
        path.write_text(cluster_text(self.directory, capacity))
        return path

    def found(self, *reads: tuple[int, int, float, int], file: str = "data") -> None:
        """A run has found these reads critical."""
        name = self.directory / "logs" / f"n-{len(list((self.directory / 'logs').iterdir()))}-0.cdt"
        log(name, self.directory / file, list(reads))
        record(read_logs(logs_in(self.directory / "logs"))[0], self.catalog)
        name.unlink()

    def fetch(self, capacity: str = '"1M"', reserved: int = 0) -> dict[Path, str]:
        return fetch(self.catalog, load_cluster(str(self.cluster(capacity))), reserved, self.directory / "home/map")

    def extents(self, file: str = "data") -> list[list[int]]:
        replica = serving(self.catalog).get(self.directory / file)
        return [] if replica is None else np.asarray(replica.access_map.extents)[:, :2].tolist()
