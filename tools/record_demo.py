"""Record the terminal of a ``pdla demo`` for the documentation, as an asciicast (version 2).

    .venv/bin/python tools/record_demo.py docs/_static/demo.cast

``make docs`` makes the moving picture of it, docs/_static/demo.svg.
"""

import json
import os
import pty
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COLUMNS, ROWS = 100, 30


def record(directory: str) -> list[tuple[float, str]]:
    """What a demo in ``directory`` prints on a terminal, each piece with the seconds since its start."""
    pdla = Path(sys.executable).with_name("pdla")
    ours, terminal = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": str(ROWS), "TERM": "dumb"}
    start = time.monotonic()
    demo = subprocess.Popen([pdla, "demo"], cwd=directory, env=environment, stdout=terminal, stderr=terminal)
    os.close(terminal)
    pieces = []
    try:
        while piece := os.read(ours, 1 << 16):
            pieces.append((round(time.monotonic() - start, 3), piece.decode()))
    except OSError:
        pass  # Linux says EIO when the last process has closed the terminal.
    if demo.wait():
        sys.exit(f"pdla demo failed: {''.join(text for _, text in pieces)}")
    return pieces


def main() -> None:
    """Write the recording to the file that the command line names."""
    with tempfile.TemporaryDirectory(prefix="pdla-", dir="/var/tmp") as directory:
        pieces = record(directory)
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "command": "pdla demo"}
    lines = [header, *([seconds, "o", text] for seconds, text in pieces)]
    Path(sys.argv[1]).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


if __name__ == "__main__":
    main()
