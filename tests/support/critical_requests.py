"""Programs whose critical requests go to SSD servers, as S4D-Cache has them."""

from __future__ import annotations

import struct
from typing import Any

import google_crc32c

from tests.support.cached_writes import Case

ALL = "65536 2 2 5e-9 1e-8 1e-8 1 0 0.01 1 0 0.01 1e-8 1e-8 1 0 0 1 0 0"

FAR = "65536 2 2 5e-9 1e-8 1e-8 2 0 0 300 0.02 2 0 0 300 0.02 1e-4 1e-4 1 0 0 1 0 0"
"""Critical are pieces of 96 bytes at 192 bytes from the one before, and not 9600 bytes."""
ROW = struct.Struct("<qqdq")
HEADER = struct.Struct("<8sIIQQqqIiQqq")


def costs(case: Case, model: str, **more: str) -> dict[str, str]:
    """The variables of ``pdla run --policy s4d`` with two SSD servers."""
    for name in ("ssd0", "ssd1", "critical"):
        (case.directory / name).mkdir(exist_ok=True)
    servers = ":".join(str(case.directory / f"ssd{i}") for i in range(2))
    log = str(case.directory / "critical")
    return {"PDLA_POLICY": "s4d", "PDLA_SSD_COSTS": model, "PDLA_SSD_PATH": servers, "PDLA_CRITICAL_LOG": log, **more}


def left_on_servers(case: Case) -> list[list[str]]:
    """The cache files of each server, and what else is in the directories of nodes without one."""
    files = [[one for one in (case.directory / f"ssd{i}").rglob("*") if not one.is_dir()] for i in range(2)]
    return [
        sorted(one.name for one in some if one.suffix == ".cache" or not list(one.parent.glob("*.cache")))
        for some in files
    ]


def logs(case: Case) -> list[dict[str, Any]]:
    """What the ranks left, by rank."""
    found = []
    for path in (case.directory / "critical").glob("*/*.cdt"):
        data = path.read_bytes()
        magic, checksum, rows, device, inode, size, mtime_ns, path_bytes, rank, *judged = HEADER.unpack_from(data)
        assert magic == b"PDLACDT2" and checksum == google_crc32c.value(data[16:])
        assert len(data) == HEADER.size + rows * ROW.size + path_bytes
        state = case.original.stat()
        assert (device, inode, size, mtime_ns) == (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)
        assert data[len(data) - path_bytes :].decode() == str(case.original)
        read = [ROW.unpack_from(data, HEADER.size + i * ROW.size) for i in range(rows)]
        found.append({"rank": rank, "requests": judged[0], "segment": tuple(judged[1:]), "reads": read})
    return sorted(found, key=lambda log: int(log["rank"]))
