"""Runs the tools of a storage system, which may hang in the kernel with the storage."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryFile

from pdla.errors import PdlaError
from pdla.replicator.backends.base import PATIENCE


class NoToolError(PdlaError):
    """The tool is not installed, or it is another version than pdla knows."""


def ask(tool: str, *words: str | Path) -> str:
    """What a tool prints on standard output.

    RATIONALE: a process that waits for lost storage in the kernel cannot be killed. So nobody waits
    for the process after ``PATIENCE``, and its output goes to files, not to pipes.

    Raises:
        NoToolError: it is not installed.
        PdlaError: it failed, or did not end within ``PATIENCE``. The message has one line.
    """
    with TemporaryFile() as out, TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                [tool, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
                cwd="/",
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            raise NoToolError(f"cannot run {tool}: {error.strerror}") from None
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise PdlaError(f"{tool} got no answer within {PATIENCE:.0f} s") from None
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    if code:
        said = [line for text in reversed(texts) for line in text.splitlines() if line.strip()]
        raise PdlaError(f"{tool} {words[0] if words else ''}: {said[0].strip() if said else f'exit {code}'}")
    return texts[0]
