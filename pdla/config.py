"""Where pdla keeps its own files: the catalog, the map that redirected runs read, and the default pools."""

from __future__ import annotations

import os
from pathlib import Path

JOURNALS = "journals"  # the directory of the journals, next to the map
INODES = "inodes"  # in it: which of its directories belong to which inode, for opens by another name
REPORTS = "reports"  # the directory in PDLA_HOME with reports of runs that the catalog does not have yet
RUN_PREFIX = "run."  # of the directories in PDLA_HOME in which running programs leave their exit reports


def home() -> Path:
    """``$PDLA_HOME``, by default ``$XDG_DATA_HOME/pdla`` (``~/.local/share/pdla``)."""
    if chosen := os.environ.get("PDLA_HOME"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share").absolute() / "pdla"


def catalog_url() -> str:
    """``$PDLA_CATALOG`` (an SQLAlchemy URL), by default an SQLite file in ``home()``."""
    return os.environ.get("PDLA_CATALOG") or f"sqlite:///{home() / 'catalog.db'}"


def map_path() -> Path:
    """The map file published for redirected runs."""
    return home() / "replicas.map"


def writes_are_noted() -> bool:
    """Whether redirected writes wait for write-back, or have waited: then POSIX calls must look for them, too."""
    try:
        return any((map_path().parent / JOURNALS / INODES).iterdir())
    except OSError:
        return False


def writes_wait() -> bool:
    """Whether there are journals: then redirected or cached writes may wait for write-back."""
    journals = map_path().parent / JOURNALS
    return any(path.is_file() for form in ("*/*.journal/*.journal", "*/*.journal") for path in journals.glob(form))


def pools_directory() -> Path:
    """The directory of the default cluster's pools, with one directory per server."""
    return home() / "pools"
