"""The demo, on a small matrix: what it prints and writes, and that it fails when a byte differs."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from pdla.cli.launch import find_mpis
from pdla.model import Plan
from pdla.replicator import builder
from pdla.replicator.builder import BuiltReplica
from tests.support.mpi import unavailable

demo = importlib.import_module("pdla.cli.demo")  # pdla.cli.demo as an attribute is the command

SIDE = 512
BYTES = 4 * SIDE * SIDE


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory for a demo with a matrix of 1 MiB."""
    if not any(mpi.mpicc for mpi in find_mpis()):
        unavailable("there is no MPI with mpicc beside this Python or on PATH")
    monkeypatch.setattr(demo, "SIDE", SIDE)
    monkeypatch.setattr(demo, "SLABS", (4, 256, 256))
    for name in ("PDLA_HOME", "PDLA_CATALOG"):  # the demo sets them for its own process
        monkeypatch.setenv(name, "")
    return tmp_path / "demo"


def run(directory: Path, *options: str) -> int:
    try:
        demo.demo.main(["--directory", str(directory), *options], standalone_mode=False)
    except Exception as error:
        print(error)
        return 1
    return 0


def test_it_says_what_it_gained_and_writes_a_report(small: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(small, "--json") == 0
    said: dict[str, Any] = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert said["identical"] is True
    # Tiles, and columns (of 4 x 128). The replica of the tiles has slabs in small pieces, and whether so few slabs
    # are worth one of their own depends on the seconds between the calls of the trace.
    assert said["bytes_from_replicas"] in (BYTES + BYTES, BYTES + BYTES + BYTES)
    assert said["requests_before"] == 4 * 256 + 4 * 256 + 4 * SIDE + 4 * 4 * 256  # read, written, columns, slabs
    assert said["requests_after"] < said["requests_before"]
    report = Path(said["report"])
    assert report == small / "report.html"
    assert "slabs.py" in report.read_text()


@pytest.mark.thorough
def test_it_fails_when_a_byte_differs(
    small: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    real = builder.replicate

    def damaging(plan: Plan, *arguments: Any, **options: Any) -> list[BuiltReplica]:
        """Flip a byte of every component, unnoticed except by a reader."""
        built = real(plan, *arguments, **options)
        for path in (small / "home" / "pools").rglob("*"):
            if path.is_file() and path.stat().st_size:
                before = path.stat()
                with path.open("r+b") as file:
                    first = file.read(1)
                    file.seek(0)
                    file.write(bytes([first[0] ^ 1]))
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return built

    monkeypatch.setattr(builder, "replicate", damaging)
    assert run(small) == 1
    out = capfd.readouterr().out
    assert "DIFFERENT" in out
    assert "received other bytes" in out


def test_it_touches_no_directory_that_is_not_its_own(small: Path, capfd: pytest.CaptureFixture[str]) -> None:
    small.mkdir()
    (small / "precious").write_text("data")
    assert run(small) == 1
    assert "has other files in it" in capfd.readouterr().out
    assert [path.name for path in small.iterdir()] == ["precious"]
