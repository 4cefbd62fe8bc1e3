"""Pack the logs that the ranks left into one trace file, a block of records at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pdla.collectors.rawlog import RawLogs
from pdla.collectors.tracefile import Rows, write_blocks
from pdla.traces.tables import OPS
from pdla.traces.trace import Trace

_TELLING = re.compile(
    r"(OMP|ROMIO|MPICH|OMPI_MCA|PRTE_MCA|I_MPI|UCX|FI)_\w+"
    r"|SLURM_(JOB_ID|JOB_NAME|JOB_PARTITION|CLUSTER_NAME|NNODES|NTASKS|CPUS_PER_TASK)"
    r"|PBS_(JOBID|JOBNAME|QUEUE|NUM_PPN)|LSB_(JOBID|JOBNAME|QUEUE)"
)


def telling(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change what an MPI-IO program does, or say where it ran; none that could hold a secret.

    >>> telling({"OMP_NUM_THREADS": "4", "ROMIO_HINTS": "/h", "SLURM_JWT": "x", "HOME": "/root"})
    {'OMP_NUM_THREADS': '4', 'ROMIO_HINTS': '/h'}
    """
    return {name: value for name, value in sorted(environment.items()) if _TELLING.fullmatch(name)}


@dataclass
class Packed:
    """What was packed: the trace without its records, their number, and the bytes that they moved."""

    about: Trace
    calls: int = 0
    moved: int = 0

    def counted(
        self, blocks: Iterator[dict[str, npt.NDArray[Any]]], progress: Callable[[int], None]
    ) -> Iterator[Mapping[str, npt.NDArray[Any]]]:
        """The blocks, counted as they pass."""
        for block in blocks:
            self.calls += len(block["rank"])
            progress(self.calls)
            self.moved += int(np.sum(block["length"][block["op"] != OPS.index("other")]))
            yield block


def pack(
    directory: str | os.PathLike[str],
    output: str | os.PathLike[str],
    command: str = "",
    environment: Mapping[str, str] | None = None,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> Packed:
    """Pack the logs in ``directory``, which stay, into the trace file ``output``.

    ``environment`` are the variables that the program ran with; only those that matter are kept.
    ``progress`` is called with the name of the work, and the records packed so far and in all.

    Raises:
        PdlaError: there is no log, or the trace cannot be written.
        FormatError: as RawLogs.
    """
    logs = RawLogs(directory, command, telling(environment or {}))
    packed = Packed(logs.about)

    def advance(calls: int) -> None:
        if progress:
            progress("packing", calls, logs.rows)

    records = Rows(packed.counted(logs.blocks(), advance), logs.rows, {"op": OPS, "kind": logs.kinds})
    posix = Rows(logs.posix_blocks(), logs.posix_rows, {"op": OPS, "kind": logs.posix_kinds})
    write_blocks(logs.about, records, posix if logs.posix_kinds else None, output)
    return packed
