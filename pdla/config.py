"""Where pdla keeps its own things: the catalog, the map file that redirected runs read, and the default pools."""

from __future__ import annotations

import os
from pathlib import Path

JOURNALS = "journals"  # the directory, beside the map, of what redirected writes are noted in
INODES = "inodes"  # in it: which of its directories are of which inode, for opens by another name
RUN_PREFIX = "run."  # of the directories in the home in which running programs leave their reports


def home() -> Path:
    """``$PDLA_HOME``, by default ``$XDG_DATA_HOME/pdla`` (``~/.local/share/pdla``)."""
    if chosen := os.environ.get("PDLA_HOME"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share").absolute() / "pdla"


def catalog_url() -> str:
    """``$PDLA_CATALOG`` (an SQLAlchemy URL), by default an SQLite file in the home."""
    return os.environ.get("PDLA_CATALOG") or f"sqlite:///{home() / 'catalog.db'}"


def map_path() -> Path:
    """The map file published for redirected runs."""
    return home() / "replicas.map"


def writes_are_noted() -> bool:
    """Whether redirected writes to some file wait, or have waited: then POSIX calls are to look for them, too."""
    try:
        return any((map_path().parent / JOURNALS / INODES).iterdir())
    except OSError:
        return False


def pools_directory() -> Path:
    """Where the pools of the default cluster live, one directory per server."""
    return home() / "pools"
