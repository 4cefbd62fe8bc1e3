"""OrangeFS as its own tools see it: the mount, the servers, and where the bytes of a file are."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple
from uuid import uuid4

from pdla import mounts
from pdla.errors import ConfigError, PdlaError
from pdla.replicator.backends.base import PATIENCE

SIMPLE, VARIED = "simple_stripe", "varstrip_dist"
LONGEST_PARAMETERS, LONGEST_LIST = 1024, 4096
"""Bytes, PVFS_REQ_LIMIT_DIST_BYTES and PVFS_REQ_LIMIT_LAYOUT of OrangeFS 2.10."""
BY_LIST = 4
"""PVFS_SYS_LAYOUT_LIST of OrangeFS 2.10."""
_HINT = "user.pvfs2."
_FUSE = "pvfs2fuse#"


class Placement(NamedTuple):
    """How a file is dealt to its datafiles, in the words of pvfs2-viewdist; a server may have several datafiles."""

    distribution: str
    parameters: str
    servers: tuple[str, ...]

    def __str__(self) -> str:
        """The placement in one line."""
        return " ".join((self.distribution, self.parameters, *self.servers))

    @property
    def hints(self) -> dict[str, str]:
        """The hints for a directory, for the files made in it, in this order: the list counts from ``layout`` on."""
        varied = self.distribution == VARIED
        return {
            "dist_name": self.distribution,
            "dist_params": f"strips:{self.parameters}" if varied else self.parameters,
            "server_list": " ".join((str(len(self.servers)), *self.servers)),
            "layout": str(BY_LIST),
        }


class Mount(NamedTuple):
    """Where an OrangeFS is mounted, its source, and its client."""

    directory: Path
    source: str
    fuse: bool


def mount_of(path: Path) -> Mount:
    """The OrangeFS of a file or directory, which need not exist yet.

    Raises:
        ConfigError: the path is in another file system.
    """
    found = mounts.mount_of(path)
    if found and found.kind == "pvfs2":
        return Mount(found.point, found.source, False)
    if found and found.source.startswith(_FUSE):
        return Mount(found.point, found.source.removeprefix(_FUSE), True)
    where = f"{found.kind} at {found.point}" if found else "no file system"
    raise ConfigError(f"{path} is not in a mounted OrangeFS but in {where}: mount OrangeFS")


def stamps_writes(path: Path) -> bool:
    """Whether a write changes the mtime and ctime of a file; through pvfs2fuse of OrangeFS 2.10 it does not."""
    found = mounts.mount_of(path)
    return found is None or not found.source.startswith(_FUSE)


class Client:
    """A mounted OrangeFS. Every failure is a PdlaError of one line.

    RATIONALE: by default a client gives up a server that refuses connections after 10 s, but waits
    for a silent one for 300 s and more. So the tools get only ``PATIENCE``.
    """

    def __init__(self, mount: Mount) -> None:
        self.mount = mount

    def free(self) -> dict[str, int]:
        """The free bytes of every I/O server."""
        printed = self._run("pvfs2-statfs", "-m", self.mount.directory).partition("I/O server statistics:")[2]
        found = re.findall(r"server: (\S+).*?bytes available\s*: (\d+)", printed, re.DOTALL)
        return {name: int(count) for name, count in found}

    @cached_property
    def servers(self) -> tuple[str, ...]:
        """The names of the I/O servers."""
        return tuple(sorted(self.free()))

    @cached_property
    def takes_hints(self) -> bool:
        """Whether the mount has extended attributes: the kernel's client has them, stock pvfs2fuse does not."""
        try:
            os.getxattr(self.mount.directory, _HINT + "dist_name")
        except OSError as error:
            return error.errno == errno.ENODATA
        return True

    def handle(self, path: Path) -> int:
        """The file's own handle in OrangeFS, which serves as its inode number."""
        said = self._run("pvfs2-stat", path.resolve())
        return int(_found(r"Handle\s*: (\d+)", said, "pvfs2-stat"))

    def placement(self, path: Path) -> Placement:
        """Where the bytes of a file are."""
        said = self._run("pvfs2-viewdist", "-f", path.resolve())
        return Placement(
            _found(r"dist_name = (\S+)", said, "pvfs2-viewdist"),
            _found(r"dist_params:\n(\S+)", said, "pvfs2-viewdist"),
            tuple(re.findall(r"^Datafile \d+ - (\S+),", said, re.M)),
        )

    def make(self, file: Path, placement: Placement) -> None:
        """Make an empty file with mode 0600. It must not exist yet.

        This changes the hints of its directory for new files: files of others may be placed like
        this one.
        """
        if len(placement.servers) > len(self.servers):
            # RATIONALE: OrangeFS would cut the list to so many datafiles, and a longer list crashes
            # clients.
            wanted, most = len(placement.servers), len(self.servers)
            raise PdlaError(f"{file} needs {wanted} datafiles, but there are only {most} I/O servers")
        if self.takes_hints:
            self._make_by_attributes(file, placement)
        else:
            self._make_by_tools(file, placement)

    def _make_by_attributes(self, file: Path, placement: Placement) -> None:
        for key, value in placement.hints.items():
            # RATIONALE: without a NUL at its end, a server whose database is LMDB reads on behind
            # the value.
            os.setxattr(file.parent, _HINT + key, value.encode() + b"\0")
        with suppress(OSError):
            # RATIONALE: clients cache the hints of a directory; asking for another attribute makes
            # them ask the server again.
            os.getxattr(file.parent, f"{_HINT}{uuid4().hex}")
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))

    def _make_by_tools(self, file: Path, placement: Placement) -> None:
        """Make the file by attributes that need no NUL, or get one, and by a copy of an empty file.

        RATIONALE: pvfs2-xattr writes no NUL. But a blank ends a list as well; and it writes numbers
        for mirror.copies as four bytes, under the last key that it is given. The distribution is an
        argument of pvfs2-cp, and so is the largest number of datafiles: it makes those of them that
        are in the list.
        """
        path, hints = file.resolve(), placement.hints
        keys = [f"{_HINT}{key}" for key in ("server_list", "mirror.copies", "layout")]
        self._run("pvfs2-xattr", "-s", "-k", keys[0], "-v", hints["server_list"] + " ", path.parent)
        self._run("pvfs2-xattr", "-s", "-k", keys[1], "-v", str(ord(hints["layout"])), "-k", keys[2], path.parent)
        strip, count = placement.parameters.partition(":")[2], str(len(self.servers))
        with NamedTemporaryFile() as empty:
            self._run("pvfs2-cp", "-s", strip, "-n", count, empty.name, path)

    def _run(self, tool: str, *words: str | Path) -> str:
        with NamedTemporaryFile("w", encoding="utf-8", errors="surrogateescape") as table:
            table.write(f"{self.mount.source} {self.mount.directory} pvfs2 defaults,noauto 0 0\n")
            table.flush()
            environment = {**os.environ, "PVFS2TAB_FILE": table.name, "LC_ALL": "C"}
            try:
                done = subprocess.run(
                    [tool, *words], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
                )
            except FileNotFoundError:
                raise PdlaError(f"there is no {tool}: add the directory of OrangeFS's tools to PATH") from None
            except subprocess.TimeoutExpired:
                raise PdlaError(f"{tool} got no answer from {self.mount.source} within {PATIENCE:.0f} s") from None
        if done.returncode:
            raise PdlaError(f"{tool} of {self.mount.source}: {_reason(done)}")
        return done.stdout


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """Why a tool failed. The tool's log lines begin with a bracket."""
    if refused := re.search(r"msgpair to server (\S+) failed: (.*)", done.stderr):
        return f"server {refused[1]}: {refused[2]}"
    said = [line for line in (done.stderr + done.stdout).splitlines() if line and not line.startswith("[")]
    code = f"exit {done.returncode}" if done.returncode > 0 else f"ended by signal {-done.returncode}"
    return f"{said[0]} ({code})" if said else code


def _found(pattern: str, said: str, tool: str) -> str:
    match = re.search(pattern, said)
    if match is None:
        raise PdlaError(f"cannot understand the output of {tool}: {said[:200]!r}")
    return match[1]
