"""Which processes a process number names: that of a boot of a machine and of a PID namespace, such as a container's."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class ProcessTable(NamedTuple):
    """Two processes are never the same if they have equal numbers, but other tables.

    Attributes:
        boot: the identity of the present boot of the machine.
        namespace: the inode of the PID namespace (namespaces(7)).
    """

    boot: str
    namespace: int


def this_boot() -> str:
    """The identity of the present boot of this machine."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def process_table() -> ProcessTable | None:
    """The table that /proc shows; None if it is not known, or is not that of this process."""
    with suppress(OSError):
        if Path("/proc/self").readlink().name == str(os.getpid()) and (boot := this_boot()):
            return ProcessTable(boot, Path("/proc/self/ns/pid").stat().st_ino)
    return None
