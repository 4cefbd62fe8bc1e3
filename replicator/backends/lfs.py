"""What Lustre's tool ``lfs`` prints about OSTs, pools and files.

The formats are those of ``showdf`` and ``print_os_state`` (lustre/utils/lfs.c), of
``do_target_check``, ``llapi_get_poolmembers`` and ``lov_dump_user_lmm_v1v3`` (lustre/utils/liblustreapi.c), and of
the pages lfs-df(1), lfs-getstripe(1) and lctl-pool_list(8) of Lustre 2.17.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pdla.errors import PdlaError
from pdla.replicator.backends.lov import Striping
from pdla.replicator.backends.lov_components import END, UNWRITTEN, Component
from pdla.replicator.backends.tools import ask

FLAGS = {
    "D": "degraded",
    "R": "read-only",
    "N": "closed for new objects",
    "S": "out of space",
    "I": "out of inodes",
}
"""Letters of ``obd_statfs_state_names`` in lustre_user.h that say that something is wrong."""
UNUSABLE = "RNSI"
"""No file can be made on an OST with one of these flags."""
NONROTATIONAL = "f"
_ROW = re.compile(r"(\S*)-OST([0-9a-f]{4})_UUID\s+\d+\s+\d+\s+(\d+)\s+\d+%\s+.*\[OST:\d+\]\s*(\S*)")
_FAILED = re.compile(r"(?:\S*-)?OST([0-9a-f]{4})(?:_UUID)?\s*: (.+)")
_MEMBER = re.compile(r"\S+-OST([0-9a-f]{4})_UUID")
_CHECKED = re.compile(r"\S+-OST([0-9a-f]{4})-osc-\S+ (active|inactive)\.")


class Ost(NamedTuple):
    """An OST: its free bytes, and why no file can be made on it ("" if one can)."""

    free: int
    why: str = ""
    nonrotational: bool = False


def osts(printed: str) -> dict[int, Ost]:
    """The OSTs by their index, from ``lfs df``; those that the administrator has deactivated are missing."""
    found: dict[int, Ost] = {}
    for line in printed.splitlines():
        if row := _ROW.match(line):
            flags = row[4]
            why = ", ".join(FLAGS[flag] for flag in flags if flag in UNUSABLE)
            found[int(row[2], 16)] = Ost(int(row[3]) << 10, why, NONROTATIONAL in flags)
        elif failed := _FAILED.match(line):
            found[int(failed[1], 16)] = Ost(0, failed[2].strip())
    return found


def pool_names(printed: str) -> list[str]:
    """The names of the pools, from ``lfs pool_list MOUNT``."""
    return [line.strip().split(".", 1)[1] for line in printed.splitlines()[1:] if "." in line]


def pool_members(printed: str) -> list[int]:
    """The OSTs of a pool, from ``lfs pool_list FILESYSTEM.POOL``."""
    return [int(row[1], 16) for line in printed.splitlines() if (row := _MEMBER.match(line.strip()))]


def inactive(printed: str) -> set[int]:
    """The OSTs that ``lfs check osts`` calls inactive."""
    rows = (_CHECKED.match(line.strip()) for line in printed.splitlines())
    return {int(row[1], 16) for row in rows if row and row[2] == "inactive"}


def striping(printed: str) -> Striping:
    """The striping of a file with a single component, from ``lfs getstripe -y``.

    Raises:
        PdlaError: the text has no or several components.
    """
    strips = re.findall(r"lmm_stripe_size:\s+(\d+)", printed)
    chosen = re.findall(r"l_ost_idx: (\d+|0x[0-9a-f]+)", printed)
    if len(strips) != 1 or not chosen:
        raise PdlaError(f"cannot understand the output of lfs getstripe -y: {printed[:200]!r}")
    pool = re.search(r"lmm_pool:\s+(\S+)", printed)
    return Striping(int(strips[0]), tuple(int(ost, 0) for ost in chosen), pool[1] if pool else "")


def components(printed: str) -> tuple[Component, ...]:
    """The components of a file with a composite layout, from ``lfs getstripe -y``, as ``lov_components.components``.

    Raises:
        PdlaError: the text has no components.
    """
    found = []
    for text in re.split(r"^\s*-? *lcme_id: ", printed, flags=re.M)[1:]:
        mirror = re.search(r"lcme_mirror_id: +(\d+)", text)
        extent = re.search(r"lcme_extent\.e_start: +(\d+)\s+lcme_extent\.e_end: +(\d+|EOF)", text)
        flags = re.search(r"lcme_flags: +(\S+)", text)
        if not mirror or not extent or not flags:
            raise PdlaError(f"cannot understand the output of lfs getstripe -y: {text[:200]!r}")
        whole = striping(text) if "init" in flags[1].split(",") else None
        stop = END if extent[2] == "EOF" else int(extent[2])
        found.append(Component(int(extent[1]), stop, whole, "" if whole else UNWRITTEN, int(mirror[1])))
    if not found:
        raise PdlaError(f"cannot understand the output of lfs getstripe -y: {printed[:200]!r}")
    return tuple(found)


def ask_osts(mount: Path, *flags: str) -> dict[int, Ost]:
    """The OSTs of a mounted Lustre.

    Raises:
        PdlaError: ``lfs`` is missing (NoToolError), fails, or does not answer.
    """
    return osts(ask("lfs", "df", "--lazy", *flags, mount))


def ask_pools(mount: Path, names: Iterable[str] | None = None) -> dict[str, list[int]]:
    """The OSTs of the pools with these names, or of all pools.

    Raises:
        PdlaError: as for ``ask_osts``.
    """
    wanted = list(pool_names(ask("lfs", "pool_list", mount)) if names is None else names)
    return {name: pool_members(ask("lfs", "pool_list", f"{file_system(mount)}.{name}")) for name in wanted}


def file_system(mount: Path) -> str:
    """The name of the mounted file system, which its pools and OSTs begin with.

    Raises:
        PdlaError: as for ``ask_osts``.
    """
    head = ask("lfs", "pool_list", mount).partition("\n")[0]
    return head.removeprefix("Pools from ").rstrip(": ")
