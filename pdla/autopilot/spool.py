"""What runs leave to be learned from: a directory for each run in ``PDLA_HOME/learning``. Imports little.

``pdla run --learn`` holds a lock on the directory while the program runs. In it are ``note`` (which run it is),
``raw`` (the recorder's logs) and, once the program has ended, ``ended`` (how, and the report of the run).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from pdla import config
from pdla.atomic_files import replacing
from pdla.errors import PdlaError
from pdla.left_reports import place
from pdla.units import GiB, MiB, format_bytes

Writes = Literal["original", "close", "lease"]
"""Where the user lets writes go: ``pdla run --writes``."""

VERSION = 1
NOTE, RAW, ENDED, TRIES, WRITES = "note", "raw", "ended", "tries", "writes"
LOG_BYTES = 64 * MiB
"""Bytes that a process records at most: four million calls or more."""
SPOOL_BYTES = 16 * GiB
"""Bytes of runs that wait; then runs are served and not recorded."""
FREE_BYTES = GiB
"""Bytes that must be free for a run to be recorded."""
STEADY = 3
"""So many recorded runs in which nothing changed: then few are recorded."""
SAMPLE = 8
"""Of steady applications one run of so many is recorded."""
UNBORN_SECONDS = 60.0
"""A directory without a note that is older was left by a command that was killed before it wrote one."""


def directory() -> Path:
    """Where runs wait to be learned from, and what is kept of them."""
    return config.home() / "learning"


def made_directory() -> Path:
    """``directory()``, made if it is not there. Other users can look neither into it nor into ``PDLA_HOME``."""
    config.home().mkdir(parents=True, exist_ok=True, mode=0o700)
    directory().mkdir(exist_ok=True, mode=0o700)
    return directory()


def traces() -> Path:
    """Where the traces of learned runs are."""
    return directory() / "traces"


def trace_of(run: str) -> Path:
    """Where the trace of the run of this name is, if it is kept."""
    return traces() / f"{run}.h5"


def pause_file() -> Path:
    """While this file is there nothing is learned."""
    return directory() / "paused"


def is_paused() -> bool:
    """Whether pdla pause was called, and not pdla resume."""
    return pause_file().exists()


def pause() -> None:
    """From now on nothing is recorded, learned and built."""
    made_directory()
    pause_file().touch()


def resume() -> None:
    """End a pause."""
    pause_file().unlink(missing_ok=True)


@dataclass(frozen=True)
class Recording:
    """A run that goes on. ``recorded``: its calls are recorded; otherwise it is only served."""

    path: Path
    recorded: bool

    @property
    def variables(self) -> Mapping[str, str]:
        """What tells the library to record."""
        if not self.recorded:
            return {}
        return {"PDLA_TRACE": str(self.path / RAW), "PDLA_TRACE_BYTES": str(LOG_BYTES)}

    def end(self, code: int, report: Mapping[str, Any]) -> None:
        """Note how the program ended.

        Raises:
            PdlaError: the note cannot be written.
        """
        document = {"version": VERSION, "code": code, "time": datetime.now(UTC).isoformat(), "report": report}
        with replacing(self.path / ENDED, mode=0o600) as path:
            path.write_text(json.dumps(document))


@contextmanager
def recording(
    run: str,
    command: Sequence[str],
    cluster: str | None,
    policy: str = "",
    *,
    chosen: bool = False,
    writes: Writes = "original",
) -> Iterator[Recording]:
    """Record the run of this name; the directory is locked until the block ends.

    ``policy`` is that of the run. ``chosen``: by what earlier runs measured; a policy is then chosen for the next one.
    ``writes`` is where the user lets writes go.

    Raises:
        PdlaError: nothing can be recorded now; the message says why.
    """
    if is_paused():
        raise PdlaError("learning is paused (pdla resume ends that)")
    path = directory() / run
    try:
        made_directory()
        path.mkdir(mode=0o700)
        if shutil.disk_usage(path).free < FREE_BYTES:
            raise PdlaError(f"less than {format_bytes(FREE_BYTES)} are free in {directory()}")
        if waiting_bytes() > SPOOL_BYTES:
            raise PdlaError(f"more than {format_bytes(SPOOL_BYTES)} of runs wait in {directory()} to be learned from")
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise PdlaError(f"cannot use {path}: {error.strerror}") from None
    except PdlaError:
        path.rmdir()
        raise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        recorded = _is_its_turn(command, writes)
        note = {
            "version": VERSION,
            "catalog": place(config.catalog_url()),
            "command": list(command),
            "cluster": str(Path(cluster).absolute()) if cluster and Path(cluster).exists() else cluster or "",
            "recorded": recorded,
            "policy": policy,
            "chosen": chosen,
            "writes": writes,
        }
        with replacing(path / NOTE, mode=0o600) as file:
            file.write_text(json.dumps(note))
        yield Recording(path, recorded)
    finally:
        os.close(descriptor)


def waiting_bytes() -> int:
    """Bytes of the raw logs of all runs that wait."""
    return sum(file.stat().st_blocks * 512 for file in directory().glob(f"run.*/{RAW}/*/*") if file.exists())


# ---- which runs are recorded ----------------------------------------------------------------------------------------


def _known(command: Sequence[str], writes: Writes) -> Path:
    asked = () if writes == "original" else (f"--writes {writes}",)
    words = "\0".join([*asked, *command]).encode("utf-8", "surrogateescape")
    return directory() / "known" / hashlib.sha256(words).hexdigest()


def known(command: Sequence[str], writes: Writes = "original") -> dict[str, Any]:
    """What the learner noted about runs of this very command with these writes; empty: nothing."""
    try:
        document = json.loads(_known(command, writes).read_bytes())
        return document if isinstance(document, dict) else {}
    except (OSError, ValueError):
        return {}


def note_known(command: Sequence[str], application: str, steady: int, writes: Writes = "original") -> None:
    """Note of which application (its name) this command is, and for how many recorded runs nothing has changed."""
    with replacing(_made(_known(command, writes)), mode=0o600) as path:
        path.write_text(json.dumps({"application": application, "steady": steady, "skipped": 0}))


def forget_known(command: Sequence[str], writes: Writes) -> None:
    """The next run of this command is recorded."""
    _known(command, writes).unlink(missing_ok=True)


def _is_its_turn(command: Sequence[str], writes: Writes) -> bool:
    """Whether the next run of this command is recorded. Two runs that begin at once may both be counted as one."""
    document = known(command, writes)
    if document.get("steady", 0) < STEADY or document.get("skipped", 0) + 1 >= SAMPLE:
        return True
    document["skipped"] = document.get("skipped", 0) + 1
    with suppress(PdlaError), replacing(_known(command, writes), mode=0o600) as path:
        path.write_text(json.dumps(document))
    return False


def _made(path: Path) -> Path:
    made_directory()
    path.parent.mkdir(exist_ok=True, mode=0o700)
    return path


# ---- the policy of the next run -------------------------------------------------------------------------------------


def _chosen(command: Sequence[str]) -> Path:
    """Of commands that differ in numbers only, behind the launcher and its options (which say the number of ranks)."""
    program = next((place for place, word in enumerate(command) if place and shutil.which(word)), 1)
    words = [*command[:program], *(re.sub(r"\d+", "N", word) for word in command[program:])]
    return directory() / "policies" / hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()


def note_policy(command: Sequence[str], application: str, policy: str) -> None:
    """Note the policies for the next run of a command like this one, as in ``PDLA_POLICY``; "": none.

    ``application`` is the name of its application.
    """
    with replacing(_made(_chosen(command)), mode=0o600) as path:
        path.write_text(json.dumps({"application": application, "policy": policy}))


def policy_of(command: Sequence[str]) -> str:
    """The policies that were chosen for the next run of a command like this one; "": none."""
    noted = _read(_chosen(command)).get("policy")
    return noted if isinstance(noted, str) else ""


def forget_policy(command: Sequence[str]) -> None:
    """The next run of a command like this one has no policy."""
    _chosen(command).unlink(missing_ok=True)


# ---- what is noted of an application --------------------------------------------------------------------------------


def forget_application(name: str, *, policies_only: bool = False) -> None:
    """Forget what is noted of the commands of this application."""
    for path in [*directory().glob("policies/*"), *([] if policies_only else directory().glob("known/*"))]:
        if _read(path).get("application") == name:
            path.unlink(missing_ok=True)


# ---- what waits -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Waiting:
    """A run that has ended. ``failed`` is why nothing can be learned from it; empty: something can.

    ``command`` is that of pdla run, empty if the program was preloaded by hand. Such a program
    ``may_run`` still, until it is adopted. ``policy`` is that of the run, and was ``chosen`` or given.
    ``writes`` is where the user let writes go.
    """

    path: Path
    command: tuple[str, ...]
    cluster: str
    recorded: bool
    failed: str
    time: datetime
    report: Mapping[str, Any]
    may_run: bool = False
    policy: str = ""
    chosen: bool = False
    writes: Writes = "original"

    def adopt(self, report: Mapping[str, Any], url: str) -> Waiting:
        """A preloaded program has ended: note what ``pdla run`` would have noted, for the catalog at this URL."""
        document = {"version": VERSION, "code": 0, "time": self.time.isoformat(), "report": report}
        note = {"version": VERSION, "catalog": place(url), "command": [], "cluster": "", "recorded": True}
        note |= {"writes": self.writes}
        for name, values in ((ENDED, document), (NOTE, note)):
            with replacing(self.path / name, mode=0o600) as path:
                path.write_text(json.dumps(values))
        return replace(self, report=report, may_run=False)

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.path.name

    def tried(self) -> int:
        """Count another try to learn from it, and return the number of tries."""
        path = self.path / TRIES
        count = int(path.read_text() or 0) + 1 if path.exists() else 1
        with replacing(path, mode=0o600) as file:
            file.write_text(str(count))
        return count

    def forget_records(self) -> None:
        """Its records are learned from. What is to be built for it may still wait."""
        shutil.rmtree(self.path / RAW, ignore_errors=True)

    def remove(self) -> None:
        """Nothing more is to be done about it. A kill leaves it whole, or under a name at which nobody looks."""
        gone = self.path.with_name(f".{self.path.name}")
        with suppress(FileNotFoundError):
            self.path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def waiting(url: str) -> list[Waiting]:
    """The runs that have ended and are for the catalog at this URL, in the order of their ends."""
    found = [one for path in directory().glob("run.*") if (one := _waiting(path, place(url))) is not None]
    return sorted(found, key=lambda one: one.time)


def clear_remains() -> None:
    """Remove what is left of runs whose removal was killed."""
    for path in directory().glob(".run.*"):
        shutil.rmtree(path, ignore_errors=True)


def something_waits() -> bool:
    """Whether there are runs in the spool, ended or not."""
    return any(directory().glob("run.*"))


def _waiting(path: Path, catalog: str) -> Waiting | None:
    """A run; None if it goes on, is not for this catalog or version, or is removed because nothing is in it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    finally:
        os.close(descriptor)
    note, ended = _read(path / NOTE), _read(path / ENDED)
    if max(note.get("version", 0), ended.get("version", 0)) > VERSION:
        return None
    if not note:
        return _preloaded(path)
    if note["catalog"] != catalog:
        return None
    failed = "" if ended else "pdla run was killed"
    if ended.get("code"):
        failed = f"it ended with exit code {ended['code']}"
    when = datetime.fromisoformat(ended["time"]) if ended else datetime.fromtimestamp(path.stat().st_mtime, UTC)
    report = ended.get("report", {})
    return Waiting(
        *(path, tuple(note["command"]), note["cluster"], note["recorded"], failed, when, report),
        policy=note.get("policy", ""),
        chosen=note.get("chosen", False),
        writes=note.get("writes", "original"),
    )


def _preloaded(path: Path) -> Waiting | None:
    """A run of a program that was preloaded by hand; None if nothing is in its directory."""
    try:
        began = path.stat().st_mtime
        if (path / RAW).is_dir():
            ended = datetime.fromtimestamp(began, UTC)
            return Waiting(path, (), "", True, "", ended, {}, may_run=True, writes=_writes_of(path))
        if time.time() - began > UNBORN_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
    except FileNotFoundError:
        pass  # another process has removed it
    return None


def _writes_of(path: Path) -> Writes:
    """Where the user let the writes of a program go that was preloaded by hand: its PDLA_WRITES."""
    try:
        said = (path / WRITES).read_text()
    except OSError:
        return "original"
    return next((one for one in get_args(Writes) if one == said), "original")


def _read(path: Path) -> dict[str, Any]:
    """A document; empty if there is none, or a damaged one."""
    try:
        document = json.loads(path.read_bytes())
        return document if isinstance(document, dict) else {}
    except (OSError, ValueError):
        return {}


# ---- who learns -----------------------------------------------------------------------------------------------------


@contextmanager
def daemon_learns() -> Iterator[None]:
    """While a daemon runs, which learns: no process of its own has to be started for a run."""
    with _marked("daemon"):
        yield


def has_daemon() -> bool:
    """Whether a daemon learns."""
    return _is_marked("daemon")


@contextmanager
def user_waits() -> Iterator[None]:
    """While a user waits until something is learned: a process in the background leaves it to that of the user."""
    with _marked("user"):
        yield


def has_user() -> bool:
    """Whether a user waits."""
    return _is_marked("user")


@contextmanager
def _marked(name: str) -> Iterator[None]:
    with _made(directory() / name).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def _is_marked(name: str) -> bool:
    try:
        with (directory() / name).open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


# ---- what went wrong in the background ------------------------------------------------------------------------------


def leave_trouble(why: str) -> None:
    """Leave the reason why nothing could be learned, for the next run to say; empty: all is well."""
    path = directory() / "trouble"
    with suppress(OSError, PdlaError):
        if not why:
            path.unlink(missing_ok=True)
            return
        with replacing(_made(path), mode=0o600) as file:
            file.write_text(why)


def trouble() -> str:
    """Why nothing could be learned when it was tried last; empty: it could."""
    try:
        return (directory() / "trouble").read_text().strip()
    except OSError:
        return ""
