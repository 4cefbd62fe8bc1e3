"""The files of every released version can be read, and those of later ones are refused in one line."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import pytest

from pdla import __version__
from pdla.catalog.tables import SCHEMA_VERSION
from pdla.collectors.rawlog import read_raw
from pdla.collectors.tracefile import read_trace
from pdla.errors import FormatError
from pdla.policies.planfile import read_plan
from pdla.replicator.journals import read_journal
from pdla.replicator.mapfile import MAGIC, read_map
from tests.releases.reading import content
from tests.support.command_line import AWAKE, Pdla
from tests.support.compilers import REPOSITORY
from tests.support.waiting import PATIENCE

RELEASES = sorted(path.parent for path in (REPOSITORY / "tests/releases").glob("*/content.json"))


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_the_files_of_a_release_are_read_as_it_read_them(release: Path) -> None:
    """But for a map of another version, which is refused in one line until the next publication."""
    wanted = json.loads((release / "content.json").read_text())
    if (release / "replicas.map").read_bytes()[:8] != MAGIC:
        del wanted["map"], wanted["state"]
        with pytest.raises(FormatError, match=r"version \d.*reads version \d.*\(pdla gc makes a new map\)$"):
            read_map(release / "replicas.map")
    assert json.loads(json.dumps(content(release))) == wanted


def test_the_present_version_has_files(pdla: Pdla) -> None:
    assert __version__ in {release.name for release in RELEASES}
    assert pdla.run("--version").stdout == f"pdla {__version__}\n"
    assert f"\n## {__version__}" in (REPOSITORY / "CHANGELOG.md").read_text()


def next_version(path: Path) -> None:
    """Change the version of a file with a magic number to a newer one."""
    image = path.read_bytes()
    path.write_bytes(image[:7] + b"9" + image[8:])


def next_trace(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file.attrs["version"] = 99


def next_plan(path: Path) -> None:
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "version": document["version"] + 1}))


@pytest.mark.parametrize(
    ("name", "change", "read"),
    [
        ("run.h5", next_trace, read_trace),
        ("plan.json", next_plan, read_plan),
        ("replicas.map", next_version, read_map),
        ("cache.journal", next_version, read_journal),
        ("logs/*/*.log", next_version, lambda path: read_raw(path.parents[1])),
        ("logs/*/*.side", next_version, lambda path: read_raw(path.parents[1])),
        ("logs/*/*.posix", next_version, lambda path: read_raw(path.parents[1])),
    ],
)
def test_a_newer_file_is_refused_in_one_line(
    tmp_path: Path, name: str, change: Callable[[Path], None], read: Callable[[Path], Any]
) -> None:
    copy = tmp_path / "release"
    shutil.copytree(RELEASES[-1], copy)
    path = next(copy.glob(name))
    change(path)
    with pytest.raises(
        FormatError, match=r"version \d.*reads (up to|version) \d.*(update pdla|make a new plan)"
    ) as raised:
        read(path)
    assert "\n" not in str(raised.value)


def test_a_daemon_goes_on_while_a_newer_version_upgrades_its_catalog(pdla: Pdla) -> None:
    """What the newer version adds does not disturb it; the next verb of this version is refused in one line."""
    pdla.run("status")
    words = [*AWAKE, "daemon", "--metrics-file", "metrics.prom"]
    daemon = subprocess.Popen(
        words, cwd=pdla.directory, env=pdla.environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert daemon.stderr is not None
    assert '"started"' in daemon.stderr.readline()
    with closing(sqlite3.connect(pdla.home / "catalog.db", timeout=30)) as database, database:
        database.execute("ALTER TABLE results ADD COLUMN more TEXT")
        database.execute("UPDATE meta SET value = ? WHERE key = 'schema'", [str(SCHEMA_VERSION + 1)])
    pdla.run("run", "--", "true")
    while '"scanned"' not in (line := daemon.stderr.readline()):
        assert '"error"' not in line, line
    daemon.send_signal(signal.SIGTERM)
    _, said = daemon.communicate(timeout=PATIENCE)
    assert (daemon.returncode, '"error"' in said) == (0, False), said
    with closing(sqlite3.connect(pdla.home / "catalog.db")) as database:
        assert database.execute("SELECT count(*) FROM results").fetchone() == (1,)
    done = pdla.run("status", code=1)
    assert f"has version {SCHEMA_VERSION + 1}, but this pdla reads up to {SCHEMA_VERSION}" in done.stderr
    assert done.stderr.count("\n") == 1
