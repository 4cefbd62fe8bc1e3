"""File systems of our own that stripe over directories as Lustre and BeeGFS stripe over their targets.

The program is tests/programs/striping_fs. Beside it are stand-ins of the tools ``lfs`` and ``beegfs-ctl``.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pdla.replicator.backends.base import NewComponent
from tests.support.compilers import compiled
from tests.support.mpi import REPOSITORY, unavailable

SOURCES = REPOSITORY / "tests/programs/striping_fs"
TOOLS = ("lfs", "beegfs-ctl")
TARGETS = 6
_LAYOUT = struct.Struct("<III16s")  # struct layout in striping_fs.h


class StripingMount:
    """A mounted file system.

    Attributes:
        mount: where it is mounted; ``backing``: what is behind it, see striping_fs.c.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.mount, self.backing = folder / "mount", folder / "backing"
        for directory in (self.mount, self.backing / "names", *(self.backing / f"target{n}" for n in range(TARGETS))):
            directory.mkdir(parents=True)
        (self.backing / "defaults").mkdir()
        (self.backing / "pools").mkdir()
        (self.backing / "pools/flash").write_text("4 5 1")
        (self.backing / "pools/disk").write_text("0 2 3")
        (self.backing / "pools/2").write_text("5 6 2")  # BeeGFS counts from 1

    @contextmanager
    def mounted(self, program: Path) -> Iterator[StripingMount]:
        """Serve it until the end of the block."""
        self.server = subprocess.Popen([program, self.kind, self.backing, self.mount], stdin=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 30
            while not self.mount.is_mount():
                assert self.server.poll() is None, f"striping_fs does not serve {self.mount}"
                assert time.monotonic() < deadline, f"{self.mount} is not mounted"
                time.sleep(0.01)
            yield self
        finally:
            subprocess.run(["fusermount3", "-u", "-z", self.mount], check=False)
            self.server.kill()
            self.server.wait()

    def set_state(self, target: int, state: str) -> None:
        """Make a target "full" or "inactive"; "": neither."""
        file = self.backing / f"state{target}"
        file.write_text(state) if state else file.unlink(missing_ok=True)

    def objects(self, path: Path) -> list[tuple[int, bytes]]:
        """The targets of a file's objects, and what is in each: read past the file system."""
        name = self.backing / "names" / path.relative_to(self.mount)
        value = name.read_bytes()
        _, count, _, _ = _LAYOUT.unpack_from(value)
        chosen = struct.unpack_from(f"<{count}I", value, _LAYOUT.size)
        inode = name.stat().st_ino
        return [(t, (self.backing / f"target{t}/{inode}.{number}").read_bytes()) for number, t in enumerate(chosen)]

    def migrate(self, path: Path, number: int, target: int) -> None:
        """Move an object of a file to another target, as the administrator may."""
        name = self.backing / "names" / path.relative_to(self.mount)
        value, at = bytearray(name.read_bytes()), _LAYOUT.size + 4 * number
        (old,) = struct.unpack_from("<I", value, at)
        struct.pack_into("<I", value, at, target)
        one = f"{name.stat().st_ino}.{number}"
        shutil.move(self.backing / f"target{old}" / one, self.backing / f"target{target}" / one)
        with name.open("r+b") as file:
            file.write(value)

    def inodes_of_objects(self) -> set[int]:
        """The inodes of the files whose objects are on the targets."""
        return {int(one.name.split(".")[0]) for one in self.backing.glob("target*/*")}

    def targets_of_directories(self) -> set[int]:
        """The targets on which new files in some directory are."""
        return {
            struct.unpack_from("<I", file.read_bytes(), _LAYOUT.size)[0] for file in self.backing.glob("defaults/*")
        }

    def strip(self, path: Path) -> int:
        """The bytes of a strip."""
        return int(_LAYOUT.unpack_from((self.backing / "names" / path.relative_to(self.mount)).read_bytes())[0])

    def stored(self, component: NewComponent) -> list[bytes]:
        """The bytes of a component on each of its targets; several objects of one have its strips in turn."""
        strip, held = self.strip(component.path), dict[int, list[bytes]]()
        for target, data in self.objects(component.path):
            held.setdefault(target, []).append(data)
        found = []
        for own in held.values():
            cut = [[data[at : at + strip] for at in range(0, len(data), strip)] for data in own]
            rows = max(map(len, cut))
            found.append(b"".join(part[row] for row in range(rows) for part in cut if row < len(part)))
        return found


def build(folder: Path) -> Path:
    """Compile the program, or skip."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("striping_fs cannot be mounted: there is no /dev/fuse for this user")
    for tool in ("gcc", "pkg-config", "fusermount3"):
        if not shutil.which(tool):
            unavailable(f"striping_fs needs {tool}")
    found = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=False)
    if found.returncode:
        unavailable("striping_fs needs libfuse's headers (libfuse3-dev)")
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    program = folder / "striping_fs"
    compiled(["gcc", *flags, *sorted(SOURCES.glob("*.c")), "-o", program, *found.stdout.split()])
    return program


def install_tools(folder: Path) -> Path:
    """Put the stand-ins of the tools there. They run hundreds of times: their Python looks for no packages."""
    folder.mkdir(parents=True)
    for name in TOOLS:
        _, _, text = (SOURCES / name).read_text().partition("\n")
        (folder / name).write_text(f"#!{sys.executable} -IS\n{text}")
        (folder / name).chmod(0o755)
    return folder


@contextmanager
def striping_mount(kind: str, folder: Path) -> Iterator[StripingMount]:
    """A file system of this kind, with the stand-ins of its tools in PATH."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{install_tools(folder / 'tools')}:{os.environ['PATH']}")
        with StripingMount(kind, folder).mounted(build(folder)) as found:
            yield found
