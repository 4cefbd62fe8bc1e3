"""A private OrangeFS on 127.0.0.1: a metadata server and I/O servers, mounted by FUSE (docs/orangefs.md).

For tests and benchmarks. OrangeFS is in no distribution: it is in PATH, or in the prefix that the
environment variable PDLA_TEST_ORANGEFS names.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

SERVER = ("pvfs2-server", "pvfs2-genconfig")
HINTED = "pvfs2fuse_xattr"


def search_path() -> str:
    """PATH, with the prefix PDLA_TEST_ORANGEFS."""
    prefix = os.environ.get("PDLA_TEST_ORANGEFS")
    return os.pathsep.join([os.environ["PATH"], *([f"{prefix}/bin", f"{prefix}/sbin"] if prefix else [])])


def missing(programs: Sequence[str]) -> str:
    """Why OrangeFS cannot be used here: the first of ``programs`` that there is not; "" if there are all."""
    lacking = (name for name in programs if not shutil.which(name, path=search_path()))
    return next((f"OrangeFS is not installed: there is no {name}" for name in lacking), "")


class OrangeFSServers:
    """Running servers. ``names`` are those of the I/O servers, ``mount`` is the mount point.

    ``metadata`` is that of the metadata server. It is also mounted at ``hinted``, if there is a client
    with extended attributes. The programs must be in PATH.
    """

    def __init__(self, folder: Path, io_servers: int) -> None:
        with ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(1 + io_servers)]
            for one in sockets:
                one.bind(("127.0.0.1", 0))
            addresses = [f"tcp://127.0.0.1:{one.getsockname()[1]}" for one in sockets]
        self.folder, self.mount, self.hinted = folder, folder / "mount", folder / "hinted"
        self.table = folder / "pvfs2tab"
        self.metadata, *self.names = addresses
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def serve(self) -> None:
        """Make the file system and start the servers."""
        storage = [word for name in ("storage", "metadata", "logfile") for word in (f"--{name}", self.folder / name)]
        specs = ["--metaspec", self.metadata, "--iospec", ",".join(self.names)]
        config = self.folder / "fs.conf"
        self._run("pvfs2-genconfig", "--quiet", *specs, *storage, config)
        # A client tries five times: the tests need not wait 2 s in between.
        config.write_text(re.sub("(ClientRetryDelayMilliSecs).*", r"\1 200", config.read_text()))
        for name in (*self.names, self.metadata):
            self._run("pvfs2-server", "--mkfs", "--alias", _alias(name), config)
        for name in (*self.names, self.metadata):
            self.start(name)

    def up(self) -> None:
        """Make the file system, start the servers and mount it."""
        self.serve()
        for client, mount in (("pvfs2fuse", self.mount), (HINTED, self.hinted)):
            if shutil.which(client):
                self.list_mount(mount)
                self._run(client, "-o", f"fs_spec={self.metadata}/orangefs", "-o", "use_ino,big_writes", mount)

    def list_mount(self, mount: Path) -> None:
        """Make the directory, and name it in the file ``table``, as OrangeFS's programs need it (PVFS2TAB_FILE)."""
        mount.mkdir()
        with self.table.open("a") as table:
            table.write(f"{self.metadata}/orangefs {mount} pvfs2 defaults,noauto 0 0\n")

    def start(self, name: str) -> None:
        """Start a server and wait until it takes connections."""
        words = ["pvfs2-server", "--foreground", "--alias", _alias(name), self.folder / "fs.conf"]
        with (self.folder / "output").open("a") as output:
            self.processes[name] = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
        for _ in range(200):
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", int(name.rpartition(":")[2]))) == 0:
                    return
            time.sleep(0.05)
        raise TimeoutError(f"{name} does not start: {(self.folder / 'output').read_text()}")

    def kill(self, name: str) -> None:
        """End a server without warning."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def down(self) -> None:
        """Unmount and end what runs."""
        for mount in (self.mount, self.hinted):
            if mount.is_mount():
                subprocess.run(["fusermount", "-u", "-z", mount], check=True)
        for name in list(self.processes):
            self.kill(name)

    def view(self, file: Path) -> str:
        """What pvfs2-viewdist says of a file."""
        environment = {**os.environ, "PVFS2TAB_FILE": str(self.table)}
        words = ["pvfs2-viewdist", "-f", file]
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout

    def datafiles(self, file: Path) -> list[tuple[str, bytes]]:
        """The servers of a file, once for each of its datafiles, and the datafile's bytes in the server's storage."""
        return [
            (server, b"".join(path.read_bytes() for path in self.storage(server).glob(f"*/bstreams/*/{name}")))
            for server, name in re.findall(r"^Datafile \d+ - (\S+), .*\((\S+)\)", self.view(file), re.MULTILINE)
        ]

    def stored(self, server: str, data: bytes) -> Path:
        """The file of a server that has exactly this data of a datafile."""
        (found,) = (path for path in self.storage(server).glob("*/bstreams/*/*") if path.read_bytes() == data)
        return found

    def storage(self, server: str) -> Path:
        """The directory of a server's data."""
        return self.folder / f"storage-{_alias(server)}"

    def _run(self, *words: str | Path) -> None:
        with (self.folder / "output").open("a") as output:  # daemons would keep a pipe open
            done = subprocess.run(words, stdout=output, stderr=subprocess.STDOUT, timeout=60, check=False)
        assert done.returncode == 0, (self.folder / "output").read_text()


def _alias(name: str) -> str:
    return name.removeprefix("tcp://").replace(":", "_tcp")
