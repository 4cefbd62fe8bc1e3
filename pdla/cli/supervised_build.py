"""Supervise a build whose storage can be lost: a process that waits for lost storage cannot be stopped from inside."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

from pdla.cli.signals import handle
from pdla.errors import PdlaError

GRACE = 30.0
"""Seconds of trouble after which storage counts as lost: within this time Ceph replaces a metadata server."""
PERIOD = 5.0
PR_SET_PDEATHSIG = 1


def supervised(trouble: Callable[[], str]) -> None:
    """Fork: return in the child; the parent exits with the child's exit code. ``trouble`` names the present fault.

    The child is killed with its parent.

    Raises:
        PdlaError: in the parent, after trouble without a break for ``GRACE``. The child may go on
            waiting; it ends when the storage is back.
    """
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return

    def forward(number: int, _: FrameType | None) -> None:
        os.kill(child, number)

    handle(forward)
    pause, well = 0.01, time.monotonic()
    asked, wrong = well, ""
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if asked > well + GRACE:
            os.kill(child, signal.SIGKILL)
            raise PdlaError(
                f"{wrong}, for {GRACE:.0f} s: gave up (when the storage is back, pdla gc removes what is left)"
            )
        time.sleep(pause)
        pause = min(2 * pause, 0.2)
        if time.monotonic() > asked + PERIOD:
            wrong = trouble()
            asked = time.monotonic()
            if not wrong:
                well = asked
    code = os.waitstatus_to_exitcode(ended[1])
    sys.exit(code if code >= 0 else 128 - code)
