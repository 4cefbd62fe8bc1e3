"""Where pdla keeps its own files: the catalog, the map that redirected runs read, and the default pools."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path

from pdla.errors import ConfigError, HomeError
from pdla.own_files import FOREIGN, others_can_write

JOURNALS = "journals"  # the directory of the journals, next to the map
INODES = "inodes"  # in it: which of its directories belong to which inode, for opens by another name
REPORTS = "reports"  # the directory in PDLA_HOME with reports of runs that the catalog does not have yet
RUN_PREFIX = "run."  # of the directories in PDLA_HOME in which running programs leave their exit reports


def home() -> Path:
    """``$PDLA_HOME``, by default ``$XDG_DATA_HOME/pdla`` (``~/.local/share/pdla``), if it can be trusted.

    Raises:
        ConfigError: the variables name no absolute path.
        HomeError: it belongs to another user but root, or others can write to it.
    """
    path = home_path()
    with suppress(OSError):  # what is missing, or cannot be looked at, harms nobody
        found = path.stat()
        if found.st_uid not in (0, os.geteuid()) or others_can_write(found):
            raise HomeError(f"{path} {FOREIGN} (chmod go-w)")
    return path


def home_path() -> Path:
    """Where ``home()`` is, whatever it is, by the same rules as in pdla/interpose/home.c.

    Raises:
        ConfigError: the variables name no absolute path.
    """
    if chosen := os.environ.get("PDLA_HOME"):
        return _absolute("PDLA_HOME", chosen)
    if data := os.environ.get("XDG_DATA_HOME"):
        return _absolute("XDG_DATA_HOME", data) / "pdla"
    return _absolute("HOME", os.environ.get("HOME") or "~") / ".local" / "share" / "pdla"


def _absolute(variable: str, value: str) -> Path:
    """The path that a variable names. Relative ones are refused: a program may change its directory."""
    user, slash, rest = value.partition("/")
    directory = _directory_of(user[1:]) if user.startswith("~") else user
    if directory is None:
        raise ConfigError(f"{variable}={value} names the home of an unknown user (give an absolute path)")
    if not (path := directory + slash + rest).startswith("/"):
        raise ConfigError(f"{variable}={value} is not an absolute path (give one that begins with / or ~)")
    return Path("/", *path.split("/"))


def _directory_of(user: str) -> str | None:
    """The home directory of a user, "": of this one; None: there is no such user."""
    if not user and (home := os.environ.get("HOME")):
        return home
    with suppress(KeyError):
        return pwd.getpwnam(user).pw_dir if user else pwd.getpwuid(os.getuid()).pw_dir
    return None


def catalog_url() -> str:
    """``$PDLA_CATALOG`` (an SQLAlchemy URL), by default an SQLite file in ``home()``."""
    return os.environ.get("PDLA_CATALOG") or f"sqlite:///{home() / 'catalog.db'}"


def map_path() -> Path:
    """The map file published for redirected runs."""
    return home() / "replicas.map"


def writes_are_noted() -> bool:
    """Whether redirected writes wait for write-back, or have waited: then POSIX calls must look for them, too.

    So they must if nobody can tell: the library says then why not.
    """
    try:
        return any((map_path().parent / JOURNALS / INODES).iterdir())
    except FileNotFoundError:
        return False
    except (HomeError, OSError):
        return True


def writes_wait() -> bool:
    """Whether there are journals: then redirected or cached writes may wait for write-back."""
    journals = map_path().parent / JOURNALS
    return any(path.is_file() for form in ("*/*.journal/*.journal", "*/*.journal") for path in journals.glob(form))


def pools_directory() -> Path:
    """The directory of the default cluster's pools, with one directory per server."""
    return home() / "pools"
