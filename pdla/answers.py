"""Whether storage answers: a look at files by another process, which can be left behind.

A process that waits in the kernel for a server cannot end, nor be killed. So no verb looks at an original or a pool
that may wait for a server before this process has.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable

from pdla.errors import PdlaError
from pdla.mounts import waits_for_no_server

PATIENCE = 5.0
"""Seconds without an answer after which the files that were asked for count as silent."""
REMEMBERED = 60.0
"""Seconds for which nobody asks again for a file that was silent."""

_silent: dict[str, float] = {}
"""Files that were silent, and when."""

# Looks at the files whose names are on standard input, many at a time, and writes the number of each that answered.
_LOOK = """
import os, sys, threading
names = sys.stdin.buffer.read().split(b"\\0")
numbers = iter(range(len(names)))
turn = threading.Lock()
def look():
    while True:
        with turn:
            number = next(numbers, None)
        if number is None:
            return
        try:
            os.stat(names[number])
            os.close(os.open(names[number], os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY))  # not only from a cache
        except (OSError, ValueError):
            pass
        os.write(1, b"%d\\n" % number)
for _ in range(min(len(names), 32)):
    threading.Thread(target=look).start()
"""


def unanswered(paths: Iterable[os.PathLike[str] | str]) -> frozenset[str]:
    """Those of these files and directories whose storage does not answer within ``PATIENCE``.

    A file that does not exist has an answer. After 32 that have none, all that were not asked for count as silent.
    """
    now = time.monotonic()
    asked = dict.fromkeys(os.fspath(path) for path in paths)
    known = {path for path in asked if now - _silent.get(path, -REMEMBERED) < REMEMBERED}
    names = [path for path in asked if path not in known]
    if not names or waits_for_no_server():
        return frozenset(known)
    new = _without_answer(names)
    _silent.update(dict.fromkeys(new, time.monotonic()))
    return frozenset(known | new)


def ensure_answers(paths: Iterable[os.PathLike[str] | str]) -> None:
    """Check that the storage of files and directories answers.

    Raises:
        PdlaError: it does not.
    """
    if silent := sorted(unanswered(paths)):
        more = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
        raise PdlaError(f"{silent[0]}{more}: the storage {no_answer()} (try again when it is back)")


def no_answer() -> str:
    """What is said of a file without an answer."""
    return f"has not answered for {PATIENCE:.0f} s"


def _without_answer(names: list[str]) -> set[str]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LOOK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin as to:
        to.write(b"\0".join(map(os.fsencode, names)))
    answers = b""
    with process.stdout as out:
        while select.select([out], [], [], PATIENCE)[0] and (some := os.read(out.fileno(), 1 << 16)):
            answers += some
    # It may wait in the kernel: nobody waits for it.
    process.kill()
    answered = {names[int(number)] for number in answers.split()}
    return set(names) - answered
