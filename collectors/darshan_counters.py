"""What the counters of a Darshan log say, for logs without records of single calls."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pdla.collectors.darshan_log import ALL_RANKS, DXT, LAYERS, read_log
from pdla.errors import PdlaError
from pdla.model import Int64Array

SIZES = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M", "100M_1G", "1G_PLUS")
"""Darshan's classes of sizes: 0 to 100 bytes, 101 bytes to 1 KiB, ..., more than 1 GiB."""
MOST_COMMON = 4


@dataclass(frozen=True)
class Calls:
    """The reads or the writes of a layer. None: Darshan does not count that for this layer.

    Attributes:
        calls: all of them, those of MPI-IO of every kind.
        bytes: moved.
        seconds: summed over all ranks; None if the log has negative times, as some versions of Darshan write.
        sizes: how many calls were in each class of ``SIZES``; empty if not counted.
        sequential: began behind the end of the same rank's previous call.
        consecutive: began exactly there; also counted as sequential.
        collective: MPI-IO calls that were collective, also split ones.
    """

    calls: int
    bytes: int
    seconds: float | None
    sizes: Mapping[str, int]
    sequential: int | None
    consecutive: int | None
    collective: int | None


@dataclass(frozen=True)
class Layer:
    """The counters of one interface, for a file or for all.

    Attributes:
        layer: a name of ``LAYERS``.
        opens: by all ranks.
        collective_opens: those of MPI-IO that were collective; None for other layers.
        views: MPI_File_set_view calls; None for other layers.
        metadata_seconds: open, close, stat, seek, sync, summed over all ranks.
        slowest, fastest: (rank, seconds of reads, writes and metadata); None if not known.
        deviation_seconds, deviation_bytes: standard deviations between ranks; None if not known.
        common_sizes: (bytes, calls), the most common first. Darshan keeps four for each record, so of
            several records the numbers of calls are at least these.
        strides: (bytes from the end of a rank's call to the start of its next, how often), likewise.
        unaligned: calls that did not begin at a multiple of ``alignment`` of the file; None if not counted.
        alignment: bytes; None if it differs between files.
        unaligned_memory: likewise for the program's memory.
        memory_alignment: bytes.
    """

    layer: str
    opens: int
    collective_opens: int | None
    views: int | None
    read: Calls
    write: Calls
    metadata_seconds: float | None
    slowest: tuple[int, float] | None
    fastest: tuple[int, float] | None
    deviation_seconds: float | None
    deviation_bytes: float | None
    common_sizes: tuple[tuple[int, int], ...]
    strides: tuple[tuple[int, int], ...]
    unaligned: int | None
    alignment: int | None
    unaligned_memory: int | None
    memory_alignment: int | None

    @property
    def bytes(self) -> int:
        """Read and written."""
        return self.read.bytes + self.write.bytes


@dataclass(frozen=True)
class FileCounters:
    """The counters of a file: ``ranks`` is how many ranks used it, ``layers`` those that have a record of it."""

    path: str
    ranks: int
    layers: tuple[Layer, ...]

    @property
    def bytes(self) -> int:
        """Moved by the layer that moved most."""
        return max(layer.bytes for layer in self.layers)


@dataclass(frozen=True)
class Counters:
    """What a log counts: in ``total`` of all files together, in ``files`` of each, those with most bytes first.

    ``dxt``: the log also has DXT records. ``partial``: layers for whose records Darshan had not
    enough memory.
    """

    command: str
    ranks: int
    seconds: float
    dxt: bool
    partial: tuple[str, ...]
    total: tuple[Layer, ...]
    files: tuple[FileCounters, ...]


def darshan_counters(path: str | os.PathLike[str]) -> Counters:
    """The counters of MPI-IO, POSIX and STDIO in a Darshan log.

    Raises:
        PdlaError: the log cannot be read, has no such counters, or pydarshan is not installed.
        FormatError: the file is not a Darshan log, or is cut short or damaged.
    """
    log = Path(path)
    facts, arrays = read_log(log, "counters")
    tables = [_Table.of(layer, facts["names"], arrays) for layer in LAYERS if layer in arrays]
    if not tables:
        raise PdlaError(
            f"{log} counts no file of {', '.join(LAYERS)} (modules: {', '.join(facts['modules']) or 'none'})"
        )
    files = []
    for number, name in enumerate(facts["paths"]):
        parts = [part for table in tables if len(part := table.of_file(number))]
        shared = any((part.rank == ALL_RANKS).any() for part in parts)
        ranks = facts["ranks"] if shared else len(np.unique(np.concatenate([part.rank for part in parts])))
        files.append(FileCounters(name, ranks, tuple(part.layer() for part in parts)))
    files.sort(key=lambda file: (-file.bytes, file.path))
    return Counters(
        facts["command"],
        facts["ranks"],
        facts["seconds"],
        any(module in facts["modules"] for module in DXT),
        tuple(facts["partial"]),
        tuple(table.layer() for table in tables),
        tuple(files),
    )


class _Table:
    """Records of one layer, a row each: ``rank``, ``file`` and the counters ``names``."""

    def __init__(
        self, layer: str, rank: Int64Array, file: Int64Array, names: Mapping[str, int], values: npt.NDArray[Any]
    ) -> None:
        self._layer, self.rank, self._file, self._names, self._values = layer, rank, file, names, values

    @classmethod
    def of(cls, layer: str, names: Mapping[str, list[str]], arrays: Mapping[str, npt.NDArray[Any]]) -> _Table:
        """All records of a layer, sorted by file."""
        kinds = [f"{layer} {kind}" for kind in ("counters", "fcounters")]
        plain = [name.partition("_")[2] for kind in kinds for name in names[kind]]
        # Whole numbers of up to 2**63 stay exact.
        values = np.concatenate([arrays[kind].astype(object) for kind in kinds], axis=1)
        order = np.argsort(arrays[layer][:, 1], kind="stable")
        rank, file = arrays[layer][order].T
        return cls(layer, rank, file, {name: place for place, name in enumerate(plain)}, values[order])

    def of_file(self, number: int) -> _Table:
        """The records of one file."""
        low, high = np.searchsorted(self._file, [number, number + 1])
        part = slice(low, high)
        return _Table(self._layer, self.rank[part], self._file[part], self._names, self._values[part])

    def __len__(self) -> int:
        return len(self.rank)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._values[:, self._names[name]]

    def layer(self) -> Layer:
        """The sums over these records."""
        slowest, fastest = self._extremes()
        return Layer(
            layer=self._layer,
            opens=self._sum("OPENS", "INDEP_OPENS", "COLL_OPENS") or 0,
            collective_opens=self._sum("COLL_OPENS"),
            views=self._sum("VIEWS"),
            read=self._calls("READ"),
            write=self._calls("WRITE"),
            metadata_seconds=self._time("F_META_TIME"),
            slowest=slowest,
            fastest=fastest,
            deviation_seconds=self._deviation(self._seconds(), "F_VARIANCE_RANK_TIME"),
            deviation_bytes=self._deviation(self["BYTES_READ"] + self["BYTES_WRITTEN"], "F_VARIANCE_RANK_BYTES"),
            common_sizes=self._most_common("ACCESS", "ACCESS"),
            strides=self._most_common("STRIDE", "STRIDE"),
            unaligned=self._sum("FILE_NOT_ALIGNED"),
            alignment=self._same("FILE_ALIGNMENT"),
            unaligned_memory=self._sum("MEM_NOT_ALIGNED"),
            memory_alignment=self._same("MEM_ALIGNMENT"),
        )

    def _calls(self, op: str) -> Calls:
        kinds = [f"{kind}_{op}S" for kind in ("INDEP", "COLL", "SPLIT", "NB")]
        sizes = {size: self._sum(f"SIZE_{op}_{size}", f"SIZE_{op}_AGG_{size}") for size in SIZES}
        return Calls(
            calls=self._sum(f"{op}S", *kinds) or 0,
            bytes=self._sum("BYTES_READ" if op == "READ" else "BYTES_WRITTEN") or 0,
            seconds=self._time(f"F_{op}_TIME"),
            sizes={size: count for size, count in sizes.items() if count},
            sequential=self._sum(f"SEQ_{op}S"),
            consecutive=self._sum(f"CONSEC_{op}S"),
            collective=self._sum(*kinds[1:3]),
        )

    def _sum(self, *names: str) -> int | None:
        """The sum of those counters that the layer has; -1 in a counter means that Darshan did not count."""
        found = [sum(value for value in self[name] if value > 0) for name in names if name in self]
        return sum(found) if found else None

    def _same(self, name: str) -> int | None:
        values = set(self[name]) if name in self else set()
        return values.pop() if len(values) == 1 else None

    def _time(self, name: str) -> float | None:
        return None if (self[name] < 0).any() else float(self[name].sum())

    def _seconds(self) -> npt.NDArray[np.float64]:
        times = [self[f"F_{what}_TIME"].astype(np.float64) for what in ("READ", "WRITE", "META")]
        return times[0] + times[1] + times[2]

    def _by_rank(self, values: npt.NDArray[Any]) -> tuple[Int64Array, npt.NDArray[Any]] | None:
        """Ranks and the sum of each, if no record sums up all ranks."""
        if (self.rank == ALL_RANKS).any():
            return None
        ranks, place = np.unique(self.rank, return_inverse=True)
        return ranks, np.bincount(place, weights=values)

    def _extremes(self) -> tuple[tuple[int, float] | None, tuple[int, float] | None]:
        by_rank = self._by_rank(self._seconds())
        if (self._seconds() < 0).any():
            return None, None
        if by_rank:
            ranks, seconds = by_rank
            slow, fast = int(seconds.argmax()), int(seconds.argmin())
            return (int(ranks[slow]), float(seconds[slow])), (int(ranks[fast]), float(seconds[fast]))
        if len(self) > 1 or not self["F_SLOWEST_RANK_TIME"][0]:
            return None, None
        slowest, fastest = (
            (int(self[f"{which}_RANK"][0]), float(self[f"F_{which}_RANK_TIME"][0])) for which in ("SLOWEST", "FASTEST")
        )
        return slowest, fastest

    def _deviation(self, values: npt.NDArray[Any], variance: str) -> float | None:
        by_rank = self._by_rank(values.astype(np.float64))
        if by_rank:
            return float(by_rank[1].std())
        # RATIONALE: some versions of Darshan leave the variance of a shared file 0.
        return float(np.sqrt(self[variance][0])) if len(self) == 1 and self[variance][0] > 0 else None

    def _most_common(self, name: str, value: str) -> tuple[tuple[int, int], ...]:
        counts: dict[int, int] = {}
        for place in range(1, MOST_COMMON + 1):
            if f"{name}{place}_COUNT" not in self:
                return ()
            pairs = zip(self[f"{name}{place}_{value}"], self[f"{name}{place}_COUNT"], strict=True)
            for of, count in pairs:
                if count > 0:
                    counts[int(of)] = counts.get(int(of), 0) + int(count)
        return tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_COMMON])
