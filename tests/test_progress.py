"""Progress is shown only on a terminal, for work that takes over a second."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from contextlib import suppress

import pytest

VERB = """
import sys, time
from pdla.cli import cli, main
from pdla.cli.progress import progress
@cli.command()
def slow():
    with progress() as advance:
        for done in range(0, 24):
            advance("copying a.dat", done << 20, 24 << 20)
            time.sleep(0.125)
sys.argv = ["pdla", "slow"]
main()
"""

SLOW = """
import time
from pdla.cli.progress import progress
with progress() as advance:
    for done in range(0, 13):
        advance("copying a.dat", done << 20, 12 << 20)
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
def test_no_progress_is_shown_for_quick_work_or_without_a_terminal(program: str) -> None:
    assert said(program, terminal="0.01" in program).strip() == ""


def test_a_verb_goes_on_when_its_terminal_is_closed() -> None:
    mine, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    with subprocess.Popen([sys.executable, "-c", VERB], stdin=theirs, stdout=theirs, stderr=theirs) as verb:
        os.close(theirs)
        assert os.read(mine, 1)
        os.close(mine)
    assert verb.returncode == 0


@pytest.mark.parametrize("redirection", ["2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_a_verb_goes_on_without_standard_streams(redirection: str) -> None:
    command = ["sh", "-c", f'"$0" "$@" {redirection}', sys.executable, "-c", VERB.replace("0.125", "0.001")]
    assert subprocess.run(command, check=False).returncode == 0


def test_a_verb_goes_on_when_nobody_reads_what_it_says() -> None:
    """A pipe that is full, and whose writer does not want to wait."""
    mine, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with suppress(BlockingIOError):
        while os.write(theirs, bytes(4096)):
            pass
    told = VERB.replace("with progress", "print('begun', file=sys.stderr)\n    with progress").replace("0.125", "0.001")
    assert subprocess.run([sys.executable, "-c", told], stderr=theirs, check=False).returncode == 0
    os.close(mine)
    os.close(theirs)
