"""A file is replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pdla.atomic_files import replacing
from pdla.errors import PdlaError


def test_what_was_there_stays_when_writing_fails(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    target.write_text("old")
    with (
        pytest.raises(PdlaError, match=r"cannot write .*plan\.json: No space left on device$"),
        replacing(target) as new,
    ):
        new.write_text("ne")
        raise OSError(28, "a paragraph of HDF5")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_stays_a_link_and_a_long_name_is_possible(tmp_path: Path) -> None:
    target, link = tmp_path / ("ü" * 120 + ".json"), tmp_path / "link"
    link.symlink_to(target)
    with replacing(link) as new:
        new.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_pipe_is_written_itself(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with replacing(pipe) as new:
        assert new == pipe
    assert pipe.is_fifo()
