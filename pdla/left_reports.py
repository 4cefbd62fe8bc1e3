"""Reports of redirected runs on their way to the catalog.

pdla run needs no catalog. It leaves the report of a run as a file in ``PDLA_HOME``; the next verb that opens
the catalog, or the daemon, takes it in. A run has a name, so a report is taken in once, whenever a process is
killed.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pdla import config
from pdla.atomic_files import replacing
from pdla.errors import PdlaError

VERSION = 1
NOTE = "run"
"""In the directory for the exit reports of a run: which run that is."""
RANKS = "ranks"
"""In the same directory: where the ranks of each MPI program of the run show that they run with pdla's library."""
DAMAGED = ".damaged"
"""Added to the name of a report that cannot be read: it is kept, and not looked at again."""


@dataclass(frozen=True)
class Left:
    """A report that was left.

    Attributes:
        run: the name of the run.
        time: when the run ended (UTC).
    """

    path: Path
    run: str
    time: datetime
    report: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The report."""
        return self.report

    def remove(self) -> None:
        """The catalog has it now."""
        self.path.unlink(missing_ok=True)

    def set_aside(self) -> None:
        """Keep a damaged report under a name at which nobody looks again."""
        with suppress(FileNotFoundError):
            self.path.rename(self.path.with_name(self.path.name + DAMAGED))


def place(url: str) -> str:
    """Which database an SQLAlchemy URL means: without its user, password and options, a path from the root.

    >>> place("postgresql://me:secret@db.site/pdla?connect_timeout=3")
    'postgresql://db.site/pdla'
    """
    if url.startswith("sqlite:///"):
        return f"sqlite:///{Path(url.removeprefix('sqlite:///')).absolute()}"
    return re.sub("//[^/]*@", "//", url).partition("?")[0]


def leave(run: str, report: Mapping[str, Any]) -> None:
    """Leave the report of the run with this name for the catalog.

    Raises:
        PdlaError: the file cannot be written.
    """
    try:
        _directory().mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise PdlaError(f"cannot make {_directory()}: {error.strerror}") from None
    where, now = place(config.catalog_url()), datetime.now(UTC).isoformat()
    with replacing(_file(run), mode=0o600) as path:
        path.write_text(json.dumps({"version": VERSION, "catalog": where, "time": now, "report": report}))


def left(url: str) -> list[Left]:
    """The reports that were left for the catalog at this URL, in the order in which the runs ended.

    Those of newer versions of pdla stay for them.
    """
    reports = map(_read, _directory().glob(f"{config.RUN_PREFIX}*.json"))
    return sorted((one[1] for one in reports if one and one[0] == place(url)), key=lambda one: one.time)


def _directory() -> Path:
    return config.home() / config.REPORTS


def _read(path: Path) -> tuple[str, Left] | None:
    """The catalog that a report is for, and the report; None if it is not for this version of pdla, or not readable."""
    try:
        document = json.loads(path.read_bytes())
        if document["version"] > VERSION:
            return None
        time = datetime.fromisoformat(document["time"]).astimezone(UTC)
        return str(document["catalog"]), Left(path, path.stem, time, document["report"])
    except OSError:
        return None  # another process has taken it in
    except (LookupError, TypeError, ValueError):
        Left(path, path.stem, datetime.now(UTC), {}).set_aside()
        return None


def note_run(directory: Path, command: Sequence[str]) -> None:
    """Note in the directory for the exit reports of a run which command it is, and of which catalog."""
    note = {"version": VERSION, "catalog": place(config.catalog_url()), "command": shlex.join(command)}
    with replacing(directory / NOTE, mode=0o600) as path:
        path.write_text(json.dumps(note))


def noted_run(directory: Path) -> tuple[str, str] | None:
    """The catalog (a ``place``) and the command of the run whose directory this is; None if there is no such note."""
    try:
        note = json.loads((directory / NOTE).read_bytes())
        return (str(note["catalog"]), str(note["command"])) if note["version"] <= VERSION else None
    except (OSError, LookupError, TypeError, ValueError):
        return None


def remove_unfinished(run: str) -> None:
    """Remove what is left of a report if its pdla was killed while it wrote it."""
    for path in _directory().glob(f".{run}.*"):
        path.unlink(missing_ok=True)


def is_left(run: str) -> bool:
    """Whether the report of the run with this name waits for its catalog."""
    return _file(run).exists()


def has_reports(directory: Path) -> bool:
    """Whether processes of a run have left, or will leave, something in its directory."""
    return any(path.name not in (NOTE, RANKS) for path in directory.iterdir())


def _file(run: str) -> Path:
    return _directory() / f"{run}.json"
