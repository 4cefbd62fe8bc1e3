"""pdla run --learn, pdla learn: learn from runs, in the background or while the user waits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from pdla import config
from pdla.autopilot import spool
from pdla.cli.caching import RUNS
from pdla.cli.launch import library
from pdla.cli.options import IDLE_IO, IDLE_LOAD, json_option, print_json, say
from pdla.errors import CatalogError, HomeError, PdlaError
from pdla.file_policies import FilePolicies
from pdla.units import parse_bytes


def unusable() -> str:
    """Why this machine has nothing with which pdla could serve a program; empty: it has."""
    if library() is None:
        return "libpdla.so is missing: pdla was installed without a C compiler"
    try:
        spool.made_directory()
    except HomeError as error:
        return str(error)
    except OSError as error:
        return f"cannot use {spool.directory()}: {error.strerror}"
    return "" if os.access(spool.directory(), os.W_OK | os.X_OK) else f"cannot write into {spool.directory()}"


def policies_of_next_run(command: Sequence[str]) -> FilePolicies:
    """The policies that were chosen after earlier runs of this command."""
    policies = FilePolicies.from_text(spool.policy_of(command))
    return policies if set(policies.names) <= set(RUNS) else FilePolicies()


def own_cluster() -> str | None:
    """The cluster.toml in PDLA_HOME, if there is one."""
    path = config.home() / "cluster.toml"
    return str(path) if path.exists() else None


@contextmanager
def record_to_learn(
    run: str, command: Sequence[str], cluster: str | None, policy: str | None, *, chosen: bool, writes: spool.Writes
) -> Iterator[spool.Recording | None]:
    """Record the run, if that is possible now; otherwise one line says why not."""
    with ExitStack() as stack:
        entered = None
        try:
            recording = spool.recording(run, command, cluster, policy or "", chosen=chosen, writes=writes)
            entered = stack.enter_context(recording)
        except PdlaError as error:
            say(f"nothing is learned from this run: {error}")
        yield entered


def end_recording(recording: spool.Recording, code: int, report: Mapping[str, Any]) -> None:
    """Note how the program ended. What fails is a line: the exit code stays the program's."""
    try:
        recording.end(code, report)
    except (PdlaError, OSError) as error:
        say(f"nothing is learned from this run: {error}")


def follow(run: str, *, wait: bool) -> None:
    """Learn from the run of this name: now, or in the background. What fails is a line, and no error of the run."""
    try:
        if trouble := spool.trouble():
            say(trouble)
        if wait:
            _learn(run, background=False, as_json=None)
        else:
            start_in_background()
    except (PdlaError, OSError) as error:
        say(str(error))


def start_in_background() -> None:
    """Start a process that learns from what waits, if something does and no daemon does it."""
    if not spool.something_waits() or spool.is_paused() or spool.has_daemon():
        return
    variables = {name: text for name, text in os.environ.items() if name != "LD_PRELOAD"}
    command = [sys.executable, "-c", "from pdla.cli import main; main()", "learn", "--background"]
    nowhere = subprocess.DEVNULL
    subprocess.Popen(
        command, env=variables, cwd="/", stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
    )


@click.command()
@click.option("--background", is_flag=True, help="At the lowest priority, while the machine is idle.")
@json_option
def learn(background: bool, as_json: bool) -> None:
    """Learn from the runs that wait, and build what they need.

    pdla run --learn starts this in the background. Use it in a job that has time for it, or from cron.
    """
    try:
        _learn(None, background=background, as_json=as_json)
    except PdlaError as error:
        if background:
            spool.leave_trouble(f"learning waits: {error}")
        raise


def _learn(run: str | None, *, background: bool, as_json: bool | None) -> None:
    """Learn; ``as_json`` None: print nothing but what fails."""
    from pdla.autopilot.learner import Learner, sentence, take_lowest_priority
    from pdla.catalog import open_catalog
    from pdla.replicator.throttling import Gate, give_way

    if spool.is_paused():
        raise PdlaError("learning is paused (pdla resume ends that)")
    if background:
        give_way()
        take_lowest_priority()
    try:
        catalog = open_catalog()
    except CatalogError as error:
        raise PdlaError(f"the catalog {config.catalog_url()} cannot be used: {error}") from None
    gate = Gate(IDLE_LOAD, parse_bytes(IDLE_IO)) if background else None
    outcome = Learner(catalog, gate).learn(run)
    spool.leave_trouble("; ".join(outcome.waits) if background else "")
    if as_json:
        print_json({"runs": outcome.runs, "built": outcome.built, "waits": list(outcome.waits)})
        return
    if as_json is not None:
        click.echo(sentence(outcome))
    for why in outcome.waits:
        say(why)
