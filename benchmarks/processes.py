"""Run commands so that none outlives the bench."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ENDED_WITH_US = ("setpriv", "--pdeathsig")
"""Before a signal and a command: the kernel sends it the signal when the thread that starts it dies."""
PATIENCE = 10.0
"""Seconds that a command has to end its own children."""


def end_on_signals() -> None:
    """Let the first signal end this process by SystemExit; later ones do not disturb the clean-up."""

    def end(number: int, _: FrameType | None) -> None:
        for one in SIGNALS:
            signal.signal(one, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in SIGNALS:
        signal.signal(number, end)


def output_of(command: Sequence[str | Path], variables: Mapping[str, str] | None = None, seconds: float = 600) -> str:
    """Standard output of a command that must succeed; whatever ends the wait ends the command and its children.

    Raises:
        RuntimeError: it failed, or took longer; the message has its output.
    """
    process = subprocess.Popen(
        [*ENDED_WITH_US, "TERM", *map(str, command)],
        env={**os.environ, **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        said, complaints = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{_line(command)}: not done after {seconds:g} s") from None
    finally:
        _end(process)
    if process.returncode:
        raise RuntimeError(f"{_line(command)}: exit {process.returncode}\n{said[-2000:]}{complaints[-2000:]}")
    return said


def _line(command: Sequence[str | Path]) -> str:
    return " ".join(map(str, command))


def _end(process: subprocess.Popen[str]) -> None:
    """A launcher ends its ranks when it is asked to; what is left in its group is killed."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
