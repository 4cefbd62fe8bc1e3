"""The signals that end a verb, and their handlers."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def handle(handler: Callable[[int, FrameType | None], object]) -> None:
    """Handle these signals from now on, except those that the verb was started to ignore (nohup)."""
    for number in STOPPING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def end_verb(number: int, _: FrameType | None) -> None:
    """End the verb by an exception, so that it cleans up. Only once: a second signal does not disturb the clean-up."""
    for other in STOPPING:
        signal.signal(other, signal.SIG_IGN)
    with suppress(OSError):
        # On a terminal a progress bar, or the ^C that was typed, may be on the line.
        begin = "\n" if os.isatty(2) else ""
        os.write(2, f"{begin}pdla: stopped by {signal.Signals(number).name}\n".encode())
    sys.exit(128 + number)


@contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` on these signals: the daemon removes what is not complete and ends with exit code 0."""
    before = {number: signal.signal(number, lambda *_: stop()) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
