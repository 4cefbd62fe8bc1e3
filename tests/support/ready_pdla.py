"""pdla without its start, which takes longer than most verbs of the tests: a server imports all of it once and forks.

``ready().command`` stands for ``pdla`` (tests/programs/ready_pdla.c). A test that looks at the process itself, or kills
it, takes REAL, which is installed. Each process of the tests has a server, which ends with it.
"""

from __future__ import annotations

import array
import atexit
import importlib
import os
import pkgutil
import random
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from shutil import rmtree

from tests.support.compilers import REPOSITORY, compiled

REAL = Path(sys.executable).parent / "pdla"

HEAD = struct.Struct("=III")  # bytes in all, words, umask
NUMBER = struct.Struct("=i")
BESIDE = (
    "sqlalchemy.dialects.sqlite",
    "sqlalchemy.dialects.postgresql",
    "psycopg",
    "alembic.command",
    "pandas",
    "h5py",
)
"""What verbs import late, besides the modules of pdla."""


class Ready:
    """The server of this process, and the command that asks it."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="pdla-ready-", dir="/tmp"))  # TMPDIR may be too long for a socket
        command = ["gcc", "-Wall", "-Wextra", REPOSITORY / "tests/programs/ready_pdla.c", "-o", self.directory / "pdla"]
        self.command = str(compiled(command))
        (self.directory / "real").symlink_to(REAL.parent)
        inherited = subprocess.run(["inherited"], executable=self.command, capture_output=True, check=True)
        (self.directory / "inherited").write_bytes(inherited.stdout)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.directory / "socket"))
            listener.listen(64)
            words = [sys.executable, "-m", __name__, str(listener.fileno()), str(self.directory)]
            self._server = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=[listener.fileno()], cwd=REPOSITORY)

    @property
    def processor_time(self) -> float:
        """Of the server and of what it started and has ended, in seconds."""
        fields = Path(f"/proc/{self._server.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@cache
def ready() -> Ready:
    return Ready()


def served_time() -> float:
    """The processor time of this process's server, if it has one."""
    return ready().processor_time if ready.cache_info().currsize else 0.0


def serve(listener: socket.socket, parent: int) -> None:
    """Run what clients ask for until the ``parent`` has closed its end of a pipe."""
    selector = selectors.DefaultSelector()
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for waited in (listener, parent, woken):
        selector.register(waited, selectors.EVENT_READ)
    clients: dict[socket.socket, int] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj == parent:
                return
            if key.fileobj is listener:
                _import_all()
                client = listener.accept()[0]
                if process := _start(client):
                    clients[client] = process
                    selector.register(client, selectors.EVENT_READ)
            elif key.fileobj == woken:
                os.read(woken, 1000)
                for client, status in _ended(clients):
                    with suppress(KeyError):
                        selector.unregister(client)
                    with suppress(OSError), client:
                        client.sendall(NUMBER.pack(status))
            elif key.fileobj in clients:  # this one was killed
                selector.unregister(key.fileobj)
                os.kill(clients[key.fileobj], signal.SIGKILL)


def _ended(clients: dict[socket.socket, int]) -> Iterator[tuple[socket.socket, int]]:
    for client, process in list(clients.items()):
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            del clients[client]
            yield client, status


def _import_all() -> None:
    import pdla

    if "pdla.cli.run" in sys.modules:
        return
    for finder, name, _ in pkgutil.walk_packages(pdla.__path__, "pdla."):
        spec = finder.find_spec(name, None)
        if spec is not None and spec.origin and spec.origin.endswith(".py") and not name.endswith("__main__"):
            importlib.import_module(name)
    for name in BESIDE:
        with suppress(ImportError):
            importlib.import_module(name)


def _start(client: socket.socket) -> int:
    """Start what a client asks for; return the process, or 0 if the client has ended before."""
    descriptors = array.array("i")
    text, ancillary, _, _ = client.recvmsg(1 << 20, socket.CMSG_SPACE(3 * descriptors.itemsize))
    for _, _, data in ancillary:
        descriptors.frombytes(data)
    size, words, mask = HEAD.unpack_from(text.ljust(HEAD.size))
    while text and len(text) < size and (more := client.recv(size - len(text))):
        text += more
    if len(text) < size or (process := os.fork()):
        for descriptor in descriptors:
            os.close(descriptor)
        if len(text) < size:
            return 0
        with suppress(OSError):
            client.sendall(NUMBER.pack(process))
        return process
    try:
        for place, descriptor in enumerate(descriptors):
            os.dup2(descriptor, place)
        os.closerange(3, 256)
        directory, *strings = map(os.fsdecode, text[HEAD.size :].split(b"\0")[:-1])
        os.umask(mask)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(string.split("=", 1) for string in strings[words:])
        os._exit(_run(strings[:words]))
    finally:
        os._exit(1)


def _run(words: list[str]) -> int:
    """Run pdla as a new interpreter would; return what that exits with."""
    Path("/proc/self/comm").write_text("pdla")
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("stdin", "stdout", "stderr"):
        before = getattr(sys, name)
        anew = open(  # noqa: SIM115 -- until the end
            before.fileno(), before.mode, encoding=before.encoding, errors=before.errors, closefd=False
        )
        anew.reconfigure(
            line_buffering=name == "stderr" or anew.isatty(), write_through=bool(os.environ.get("PYTHONUNBUFFERED"))
        )
        setattr(sys, name, anew)
    sys.argv = words
    random.seed()
    code = 1
    try:
        from pdla.cli import main

        sys.exit(main())
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        code = 120
    return code & 255


if __name__ == "__main__":
    try:
        serve(socket.socket(fileno=int(sys.argv[1])), 0)
    finally:
        rmtree(sys.argv[2])
