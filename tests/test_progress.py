"""Progress is told on a terminal, for what takes over a second, and nowhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios

import pytest

SLOW = """
import time
from pdla.cli.progress import progress
with progress() as tell:
    for done in range(0, 13):
        tell("copying a.dat", done << 20, 12 << 20)
        time.sleep(0.125)
"""


def said(program: str, *, terminal: bool) -> str:
    """What a program writes to standard error."""
    if not terminal:
        return subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=True).stderr
    mine, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    with subprocess.Popen([sys.executable, "-c", program], stderr=theirs) as child:
        os.close(theirs)
        found = b""
        while True:
            try:
                part = os.read(mine, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            found += part
    os.close(mine)
    assert child.returncode == 0
    return found.decode()


def test_a_terminal_sees_bytes_rate_and_time_left_after_a_second() -> None:
    lines = [line for line in said(SLOW, terminal=True).split("\r") if line.strip()]
    assert lines
    assert "copying a.dat" in lines[0]
    assert "/12.0M [" in lines[0]
    assert "B/s]" in lines[0]
    assert "<" in lines[0]
    # Nothing of the first second, and nothing left behind.
    assert " 0%" not in lines[0]
    assert said(SLOW, terminal=True).split("\r")[-2].strip() == ""


@pytest.mark.parametrize("program", [SLOW.replace("0.125", "0.01"), SLOW], ids=["quick", "no terminal"])
def test_nothing_is_said_of_what_is_quick_or_where_nobody_looks(program: str) -> None:
    assert said(program, terminal="0.01" in program).strip() == ""
