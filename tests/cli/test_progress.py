"""Progress is shown only on a terminal, for work that takes over a second, and Ctrl-C ends it at once."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest

from pdla.collectors import workloads
from pdla.collectors.csv_parquet import import_csv, import_parquet
from pdla.collectors.dftracer import import_dftracer
from pdla.collectors.iosig import import_iosig
from pdla.collectors.recorder import import_recorder
from pdla.collectors.tracefile import write_trace
from tests.support.command_line import PDLA, Pdla
from tests.support.compilers import REPOSITORY

SAMPLES = REPOSITORY / "tests/samples"

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


def said(program: str, *, terminal: bool, kind: str = "xterm") -> str:
    """What a program writes to standard error."""
    command, environment = [sys.executable, "-c", program], {**os.environ, "TERM": kind}
    if not terminal:
        return subprocess.run(command, stderr=subprocess.PIPE, text=True, env=environment, check=True).stderr
    mine, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    with subprocess.Popen(command, stderr=theirs, env=environment) as child:
        os.close(theirs)
        found = rest(mine)
    os.close(mine)
    assert child.returncode == 0
    return found


def rest(terminal: int) -> str:
    """What is written to a terminal until its other end is closed."""
    found = b""
    with suppress(OSError):
        while part := os.read(terminal, 4096):
            found += part
    return found.decode()


def stopped(command: Sequence[str | Path], after: str, *, code: int = 130, times: int = 1) -> tuple[str, float]:
    """What a verb writes to its terminal after Ctrl-C was typed there, once it has written ``after``; the seconds."""
    mine, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what runs the tests in the background ignores it

    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=take_terminal
    ) as verb:
        os.close(theirs)
        found = b""
        while found.count(after.encode()) < times:
            found += os.read(mine, 4096)
        os.write(mine, b"\x03")
        begun = time.monotonic()
        told = rest(mine)
    os.close(mine)
    assert verb.returncode == code
    return told, time.monotonic() - begun


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


@pytest.mark.parametrize(
    ("program", "terminal", "kind"),
    [(SLOW.replace("0.125", "0.01"), True, "xterm"), (SLOW, False, "xterm"), (SLOW, True, "dumb")],
    ids=["quick", "no terminal", "dumb terminal"],
)
def test_no_progress_is_shown_for_quick_work_or_without_a_terminal(program: str, terminal: bool, kind: str) -> None:
    assert said(program, terminal=terminal, kind=kind).strip() == ""


def test_time_passes_while_nothing_is_done() -> None:
    waits = SLOW.replace("range(0, 13)", "range(0, 2)").replace("0.125", "2")
    assert {"[00:01<", "[00:02<"} <= set(re.findall(r"\[00:0\d<", said(waits, terminal=True)))


HELD = """
import sys, time
from threading import Event, Thread
from tqdm import tqdm
from pdla.cli.progress import progress

held = Event()

def hold():
    with tqdm.get_lock():
        held.set()
        time.sleep(2)
        print("let go", file=sys.stderr)

Thread(target=hold).start()
held.wait()
with progress() as advance:
    advance("copying", 1, 2)
    print("worked", file=sys.stderr)
"""


def test_work_does_not_wait_for_the_lock_of_its_bar() -> None:
    # Ctrl-C while the main thread took that lock left it locked for ever, and the verb hung.
    told = said(HELD, terminal=True)
    assert 0 <= told.index("worked") < told.index("let go")


def test_after_ctrl_c_one_message_is_on_a_line_of_its_own() -> None:
    told, _ = stopped([sys.executable, "-c", VERB.replace("24", "2400")], "copying")
    assert re.search(r"\r\npdla: stopped by SIGINT\r\n[\r ]*$", told), told
    assert told.count("stopped") == 1


@pytest.mark.parametrize("options", [[], ["--sweep", "home.strip=64K,128K,256K"]], ids=["one", "sweep"])
def test_a_simulation_heeds_ctrl_c_at_once(tmp_path: Path, options: list[str]) -> None:
    trace = tmp_path / "run.h5"
    write_trace(workloads.ior(64, 1 << 20, 4096, 8, ["write", "read"]), trace)
    told, seconds = stopped([PDLA, "simulate", trace, *options], "simulating")
    assert told.count("pdla: stopped by SIGINT\r\n") == told.count("stopped") == 1
    assert "Traceback" not in told
    assert seconds < 2  # on a machine that is busy with other tests


def long_csv(directory: Path, lines: int = 1_000_000) -> Path:
    """A file whose import takes some seconds."""
    file = directory / "accesses.csv"
    line = "0,/data/a,read,0,65536,0.5,0.75\n"
    file.write_text("rank,file,op,offset,length,t_start,t_end\n" + line * lines)
    return file


def test_an_import_shows_how_far_it_is_and_heeds_ctrl_c_at_once(tmp_path: Path) -> None:
    accesses = long_csv(tmp_path)
    told, seconds = stopped([PDLA, "import", "csv", accesses, "-o", tmp_path / "run.h5"], "reading")
    assert told.count("pdla: stopped by SIGINT\r\n") == told.count("stopped") == 1
    assert "Traceback" not in told
    assert seconds < 2  # on a machine that is busy with other tests
    assert list(tmp_path.iterdir()) == [accesses]


def test_an_import_shows_no_progress_without_a_terminal(tmp_path: Path) -> None:
    accesses = long_csv(tmp_path, 200_000)
    done = subprocess.run(
        [PDLA, "import", "csv", accesses, "-o", tmp_path / "run.h5"], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


IMPORTS = {
    "csv": lambda path, progress: import_csv(path / "a.csv", progress),
    "parquet": lambda path, progress: import_parquet(path / "a.parquet", progress),
    "iosig": lambda path, progress: import_iosig(path / "iosig", progress),
    "dftracer": lambda path, progress: import_dftracer(SAMPLES / "dftracer", progress),
    "recorder": lambda path, progress: import_recorder(SAMPLES / "recorder-2.3", progress),
}


@pytest.mark.parametrize("source", IMPORTS)
def test_an_import_tells_how_much_is_read_up_to_all_of_it(source: str, tmp_path: Path) -> None:
    (tmp_path / "iosig").mkdir()
    for rank in range(2):
        record = f"MPI_READ 1 0 512 {rank}.0 {rank}.5 /data/a\n"
        (tmp_path / f"iosig/mpiio_trace_rank-{rank}.out").write_text(record * 10_000)
    long_csv(tmp_path, 10_000).rename(tmp_path / "a.csv")
    if source == "parquet":
        pytest.importorskip("pyarrow")
        pd.read_csv(tmp_path / "a.csv").to_parquet(tmp_path / "a.parquet", row_group_size=1000)
    told: list[tuple[str, int, int]] = []
    assert len(IMPORTS[source](tmp_path, lambda *said: told.append(said)).records)
    (total,) = {whole for _, _, whole in told}
    done = [part for _, part, _ in told]
    assert {what for what, _, _ in told} == {"reading"}
    assert len(told) > 1 and done == sorted(done) and done[-1] == total


@pytest.mark.thorough
def test_a_sweep_that_was_started_to_ignore_ctrl_c_goes_on(tmp_path: Path) -> None:
    trace = tmp_path / "run.h5"
    write_trace(workloads.ior(64, 1 << 20, 8192, 8, ["write", "read"]), trace)
    ignores = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    sweep = [PDLA, "simulate", trace, "--sweep", "home.strip=64K,128K,256K"]
    told, _ = stopped([*ignores, *sweep], "simulating", code=0)
    assert "stopped" not in told


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


def test_status_is_shown_until_ctrl_c(pdla: Pdla) -> None:
    told, seconds = stopped(["env", f"PDLA_HOME={pdla.home}", PDLA, "status", "--watch", "60"], "No replicas.", code=0)
    assert "stopped" not in told
    assert seconds < 2
    refused = pdla.run("status", "--watch", "1", code=2).stderr
    assert "--watch needs a terminal" in refused
    assert "give one of them" in pdla.run("status", "--watch", "1", "--json", code=2).stderr


def test_status_is_shown_again(pdla: Pdla) -> None:
    command = ["env", f"PDLA_HOME={pdla.home}", PDLA, "status", "--watch", "0.5"]
    stopped(command, "No replicas.\r\n", code=0, times=3)
