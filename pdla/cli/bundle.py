"""What to send with a report of a bug: versions, storage, what pdla's own files say; no name of a user's file."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdla.config import catalog_url, home, map_path
from pdla.errors import PdlaError

if TYPE_CHECKING:
    from pdla.cli.directory_probe import Fact

SHOWN = (
    "PDLA_",
    "LD_PRELOAD",
    "OMPI_",
    "PMIX_MCA_",
    "PRTE_MCA_",
    "MPICH_",
    "MPIR_CVAR_",
    "I_MPI_",
    "ROMIO_",
    "UCX_",
    "FI_",
)
"""How the names of the environment variables begin that change what pdla or the MPI library does."""
KEPT = ("rank", "host", "lease", "count", "home", "synced", "damaged", "busy", "stamp_ns", "overtaken")
"""What is told of a journal."""
HIDDEN = ("PDLA_TRACE", "PDLA_CATALOG")


def bundle(installation: Mapping[str, Any]) -> dict[str, Any]:
    """Everything as JSON: what ``pdla doctor`` found, and below it what else is known.

    A part that cannot be had says why. Home directories stand as ``~``.
    """
    parts: dict[str, Callable[[], Any]] = {
        "system": _system,
        "packages": _packages,
        "environment": _environment,
        "home": _home,
        "catalog": _catalog,
        "map": _map,
        "journals": _journals,
    }
    known = {name: value for name, value in installation.items() if name != "catalog"}  # its URL may hold a password
    answer = {"made": datetime.now(UTC).isoformat(timespec="seconds"), "installation": known}
    return {
        name: _masked(value) for name, value in (answer | {name: _had(part) for name, part in parts.items()}).items()
    }


def _had(part: Callable[[], Any]) -> Any:
    try:
        return part()
    except (PdlaError, OSError) as error:
        return f"cannot be had: {error}"


def _masked(value: Any) -> Any:
    """Without the names of home directories: pdla's own, and the user's."""
    if isinstance(value, Mapping):
        return {name: _masked(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(one) for one in value]
    if not isinstance(value, str):
        return value
    for path, name in ((home(), "$PDLA_HOME"), (Path.home(), "~")):
        value = value.replace(str(path), name) if path != Path("/") else value
    return value


def _system() -> dict[str, Any]:
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "distribution": platform.freedesktop_os_release().get("PRETTY_NAME", ""),
        "processors": len(os.sched_getaffinity(0)),
    }


def _packages() -> dict[str, str]:
    """The versions of what pdla depends on."""
    names = {re.match(r"[\w.-]+", line)[0] for line in requires("pdla") or ()}  # type: ignore[index]  # PEP 508
    return {name: found for name in sorted(names) if (found := _version(name))}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _environment() -> dict[str, str]:
    """What is set, without patterns of file names and without the database's password."""
    found = {name: value for name, value in sorted(os.environ.items()) if name.startswith(SHOWN)}
    return {name: "set" if name.startswith(HIDDEN) else value for name, value in found.items()}


def _home() -> list[dict[str, str]]:
    from pdla.cli.directory_probe import probe_directory

    facts: list[Fact] = probe_directory(home()) if home().is_dir() else []
    return [asdict(fact) for fact in facts]


def _catalog() -> dict[str, Any]:
    """Numbers of rows. A catalog that does not exist yet is not made."""
    from pdla.catalog import open_catalog

    url = catalog_url()
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
        return {"kind": "sqlite", "missing": True}
    catalog = open_catalog()
    census = catalog.census()
    return {
        "kind": url.partition(":")[0],  # the rest may hold a password
        "replicas": {
            str(state): {"number": number, "bytes": size} for state, (number, size) in census.replicas.items()
        },
        "queue": {str(state): number for state, number in census.queue.items()},
    }


def _map() -> dict[str, Any]:
    from pdla.replicator.mapfile import read_map, read_state

    if not map_path().exists():
        return {"missing": True}
    found = read_map(map_path())
    return {
        "bytes": map_path().stat().st_size,
        "generation": found.generation,
        "originals": len(found.originals),
        "targets": len(found.targets),
        "replicas": len(found.replicas),
        "stale": list(read_state(found).stale),
    }


def _journals() -> list[dict[str, Any]]:
    """The headers of all journals, without the names of files."""
    from pdla.config import INODES, JOURNALS
    from pdla.replicator.journals import holder, paths_in, read_journal

    answer: list[dict[str, Any]] = []
    directories = home() / JOURNALS
    for directory in sorted(directories.iterdir()) if directories.is_dir() else ():
        if directory.name == INODES:
            continue
        for path in paths_in(directory):
            about = {"directory": directory.name, "bytes": path.stat().st_size, "holder": holder(directory)}
            try:
                journal = read_journal(path)
            except PdlaError:
                answer.append({**about, "damaged": True})
                continue
            kept = {name: getattr(journal, name) for name in KEPT}
            answer.append({**about, **kept, "cached": journal.cache is not None, "inode": journal.file.inode})
    return answer
