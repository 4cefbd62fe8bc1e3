"""From the logs that the ranks left to one trace file, some records at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pdla.collectors.frames import OPS
from pdla.collectors.rawlog import RawLogs
from pdla.collectors.tracefile import write_blocks
from pdla.model import Trace


@dataclass
class Packed:
    """What was packed: the trace but for its records, their number, and the bytes that they moved."""

    about: Trace
    calls: int = 0
    moved: int = 0

    def counted(self, blocks: Iterator[dict[str, npt.NDArray[Any]]]) -> Iterator[Mapping[str, npt.NDArray[Any]]]:
        """The blocks, counted as they pass."""
        for block in blocks:
            self.calls += len(block["rank"])
            self.moved += int(np.sum(block["length"][block["op"] != OPS.index("other")]))
            yield block


def pack(directory: str | os.PathLike[str], output: str | os.PathLike[str], command: str = "") -> Packed:
    """Pack the logs in ``directory``, which stay, into the trace file ``output``.

    Raises:
        PdlaError: no log is there, or the trace cannot be written.
        FormatError: as RawLogs.
    """
    logs = RawLogs(directory, command)
    packed = Packed(logs.about)
    write_blocks(logs.about, packed.counted(logs.blocks()), logs.rows, {"op": OPS, "kind": logs.kinds}, output)
    return packed
