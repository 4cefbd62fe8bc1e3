"""What BeeGFS's tool ``beegfs-ctl`` prints about storage targets and files.

The formats are those of doc.beegfs.io 7.4: "Deep Inspection" (``--getentryinfo``) and "Target States"
(the words of ``--listtargets --state``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from pdla.errors import PdlaError
from pdla.replicator.backends.beegfs_ioctls import Striping
from pdla.replicator.backends.tools import NoToolError, ask

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


_ROW = re.compile(r"\s*(\d+)\s+(online|offline|probably.offline)\s+(good|bad|needs.resync)\b(.*)", re.IGNORECASE)
_SIZE = re.compile(r"\b[\d.]+[KMGTP]?i?B\b", re.IGNORECASE)


class Target(NamedTuple):
    """A storage target: its free bytes, and why no file can be made on it ("" if one can)."""

    free: int
    why: str = ""


def targets(printed: str) -> dict[int, Target]:
    """The storage targets by their number, from ``--listtargets --state --spaceinfo``.

    A row has the number, the reachability, the consistency, the total and the free space. No page
    shows the table, so rows that are otherwise are not used.

    Raises:
        NoToolError: there is no such row.
    """
    found = {}
    for line in printed.splitlines():
        row, sizes = _ROW.match(line), _SIZE.findall(line)
        if row and len(sizes) >= 2:
            why = ", ".join(state for state in (row[2], row[3]) if state.lower() not in ("online", "good"))
            found[int(row[1])] = Target(_bytes(sizes[1]), why)
    if not found:
        raise NoToolError(f"cannot understand the output of beegfs-ctl --listtargets: {printed[:200]!r}")
    return found


def striping(printed: str) -> Striping:
    """The striping of a file, from ``--getentryinfo``.

    Raises:
        PdlaError: the text has no chunk size or no targets.
    """
    chunk = re.search(r"\+ Chunksize: (\S+)", printed)
    chosen = re.findall(r"^\s*\+ (\d+) @ ", printed, re.M)
    if not chunk or not chosen:
        raise PdlaError(f"cannot understand the output of beegfs-ctl --getentryinfo: {printed[:200]!r}")
    return Striping(_bytes(chunk[1]), tuple(map(int, chosen)))


def ask_targets(mount: Path) -> dict[int, Target]:
    """The storage targets of a mounted BeeGFS.

    Raises:
        PdlaError: beegfs-ctl is missing (NoToolError), fails, or does not answer.
    """
    return targets(
        ask("beegfs-ctl", "--listtargets", "--nodetype=storage", "--state", "--spaceinfo", f"--mount={mount}")
    )


def _bytes(text: str) -> int:
    """Bytes from "512k", "53.6GiB" or "1M"; all units are powers of 1024."""
    matched = re.fullmatch(r"([\d.]+)([KMGTP]?)(?:I?B)?", text.upper())
    if not matched:
        raise PdlaError(f"cannot understand the size {text!r} of beegfs-ctl")
    return int(float(matched[1]) * _UNITS[matched[2]])
