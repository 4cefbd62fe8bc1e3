"""``pdla doctor --bundle`` tells what a report of a bug needs, and nothing of a user's files."""

from __future__ import annotations

import importlib
import json
import platform
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import pdla
from pdla.catalog import open_catalog
from pdla.cli import bundle as made_by
from pdla.cli import cli
from pdla.cli.bundle import bundle
from pdla.replicator.mapfile import publish
from tests.support.handmade_journals import CacheJournal

SECRET = "unpublished-protein"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "user" / "pdla"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("PDLA_CATALOG", raising=False)
    return tmp_path / "user" / "pdla"


def test_before_anything_was_done_it_makes_nothing(home: Path) -> None:
    found = bundle({"version": pdla.__version__, "catalog": "x"})
    assert not home.exists()
    assert found["installation"] == {"version": pdla.__version__}
    assert found["catalog"] == {"kind": "sqlite", "missing": True}
    assert (found["map"], found["journals"], found["home"]) == ({"missing": True}, [], [])
    assert found["packages"]["numpy"] and found["system"]["kernel"] == platform.release()


def test_what_pdla_keeps_is_told_by_numbers(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "user" / f"{SECRET}.dat"
    target.parent.mkdir()
    target.write_bytes(bytes(100))
    publish(open_catalog())
    whole = CacheJournal(home / "journals" / "cache-0000000000000001", target, tmp_path / SECRET / "cache", synced=1)
    whole.entries = [(0, 0, 10, 1), (10, 20, 10, 2)]
    whole.write()
    damaged = home / "journals" / "0000000000000002" / "node-1-0.journal"
    damaged.parent.mkdir()
    damaged.write_bytes(b"PDLAJNL3" + bytes(100))
    (home / "journals" / "inodes" / "7").mkdir(parents=True)
    found = bundle({})
    assert SECRET not in json.dumps(found)
    assert (found["map"]["generation"], found["map"]["replicas"]) == (1, 0)
    assert found["catalog"]["kind"] == "sqlite" and found["catalog"]["replicas"]["valid"] == {"number": 0, "bytes": 0}
    broken, good = found["journals"]
    assert (broken["directory"], broken["damaged"], broken["bytes"]) == ("0000000000000002", True, 108)
    inode = target.stat().st_ino
    assert {name: good[name] for name in ("count", "synced", "home", "cached", "inode", "holder")} == {
        "count": 2,
        "synced": 1,
        "home": 0,
        "cached": True,
        "inode": inode,
        "holder": "",
    }
    assert {fact["name"] for fact in found["home"]} >= {"mount", "locks"}


def test_a_part_that_cannot_be_had_says_why(home: Path) -> None:
    home.mkdir(parents=True)
    (home / "replicas.map").write_bytes(b"damaged")
    (home / "catalog.db").write_bytes(b"damaged" * 1000)
    found = bundle({})
    assert found["map"].startswith("cannot be had: $PDLA_HOME/replicas.map")
    assert found["catalog"].startswith("cannot be had: ")


def test_passwords_patterns_and_homes_are_left_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDLA_CATALOG", "postgresql://me:swordfish@127.0.0.1:1/pdla")
    monkeypatch.setenv("PDLA_TRACE_INCLUDE", f"*{SECRET}*")
    monkeypatch.setenv("OMPI_MCA_io", f"ompio:{home}/x")
    monkeypatch.setenv("MY_TOKEN", "swordfish")
    monkeypatch.setattr(made_by, "_catalog", dict)
    found = bundle({"catalog": "postgresql://me:swordfish@127.0.0.1:1/pdla"})
    text = json.dumps(found)
    assert "swordfish" not in text and SECRET not in text and str(home) not in text
    assert found["environment"]["OMPI_MCA_io"] == "ompio:$PDLA_HOME/x"
    assert found["environment"]["PDLA_CATALOG"] == "set"


def test_the_verb_writes_text_and_says_so(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed: dict[str, Any] = {"version": pdla.__version__}
    monkeypatch.setattr(importlib.import_module("pdla.cli.doctor"), "_installation", lambda: installed)
    to = tmp_path / "bundle.json"
    done = CliRunner().invoke(cli, ["doctor", "--bundle", str(to)], catch_exceptions=False)
    assert done.stdout.endswith("of text; read it before you send it\n")
    assert json.loads(to.read_text())["installation"] == installed
    done = CliRunner().invoke(cli, ["doctor", "--bundle", str(to), str(tmp_path)])
    assert done.exit_code == 2 and "give directories, or --bundle, not both" in done.output
