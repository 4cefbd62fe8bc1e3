"""pdla run: run a program redirected to replicas."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NoReturn

import click

from pdla.cli.caching import AUTO, RUNS, check_policy, on_ssds, read_hints, reserved_bytes
from pdla.cli.caching import variables as caching_variables
from pdla.cli.critical import CriticalRun
from pdla.cli.launch import launch, preloaded
from pdla.cli.learning import end_recording, follow, own_cluster, policies_of_next_run, record_to_learn, unusable
from pdla.cli.options import Named, command_argument, json_option, old_bytes_option, print_json, say
from pdla.config import RUN_PREFIX, home, map_path, writes_are_noted, writes_wait
from pdla.errors import ConfigError, HomeError, PdlaError
from pdla.file_policies import FilePolicies
from pdla.left_reports import RANKS, has_reports, leave, note_run
from pdla.units import counted


def _is_rank() -> bool:
    """Whether a launcher started this process, one of several with a directory each, in which ranks would not meet."""
    return "PMI_RANK" in os.environ or "PMIX_RANK" in os.environ


def _begin(command: Sequence[str]) -> tuple[Path, int]:
    """Make the directory of a run; its path, and a descriptor that has it locked.

    Raises:
        HomeError: there is no place for that.
    """
    reports = home() / f"{RUN_PREFIX}{os.urandom(8).hex()}"
    try:
        home().mkdir(parents=True, exist_ok=True, mode=0o700)
        reports.mkdir(mode=0o700)
        descriptor = os.open(reports, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        note_run(reports, command)
        if not _is_rank():
            (reports / RANKS).mkdir(mode=0o700)
    except (OSError, PdlaError) as error:
        shutil.rmtree(reports, ignore_errors=True)
        said = f"cannot use {error.filename or reports}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise HomeError(said) from None
    return reports, descriptor


@contextmanager
def redirection(command: Sequence[str], writes: str = "original") -> Iterator[tuple[dict[str, str], Path]]:
    """The environment variables that redirect a program, and the directory for the exit reports of its ranks.

    The directory is locked while it is in use. Its name is that of the run. If the command is killed, the daemon or
    pdla gc records the reports in it and removes it.

    Raises:
        HomeError: there is no place for that.
    """
    reports, descriptor = _begin(command)
    try:
        yield {"PDLA_MAP": str(map_path()), "PDLA_REPORT": str(reports), "PDLA_WRITES": writes}, reports
    except BaseException:
        if not has_reports(reports):
            shutil.rmtree(reports, ignore_errors=True)
        raise
    else:
        shutil.rmtree(reports, ignore_errors=True)
    finally:
        os.close(descriptor)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--writes",
    type=click.Choice(["original", "close", "lease"]),
    default="original",
    show_default=True,
    help="close: writes go to replicas; write-back happens before MPI_File_sync or MPI_File_close returns. lease: "
    "write-back happens later, by pdla sync, the daemon, or the next open of the file.",
)
@click.option(
    "--policy",
    "named",
    type=Named(lambda: (*RUNS, AUTO), check_policy),
    multiple=True,
    metavar="[PATTERN=]NAME",
    help="e10: collective writes are cached on the nodes' own devices. s4d: what is faster on SSD servers is cached "
    "there: writes while the program runs, reads for later runs. ibridge: the same for the small ends of requests that "
    "are not aligned with strips. liu: the heads of large segments that are read for the most part, for later runs. "
    "Writes come home to the original in the background. auto: with --learn, the one with which earlier runs of this "
    "command were fastest, or none. PATTERN=NAME, which may be given several times, is for files of these names only: "
    "the first one that matches counts. none: such a file is left alone.",
)
@click.option(
    "--cluster",
    metavar="FILE|NAME",
    help="With --policy: a pool of this cluster.toml gives the directories and the size of the cache: that of kind "
    "node for e10, that of kind ssd for s4d, ibridge and liu, which need this option. With --learn: the storage for "
    "replicas; default: PDLA_HOME/cluster.toml, or without it a nominal cluster.",
)
@click.option(
    "--coherence",
    type=click.Choice(["node", "mpi"]),
    help="With --policy: who sees cached bytes before sync and close. node: all processes of the node, as with files "
    "(default); mpi: the process that wrote them.",
)
@click.option(
    "--hint", "hints", multiple=True, callback=read_hints, metavar="NAME=VALUE", help="With --policy: a hint."
)
@click.option("--learn", is_flag=True, help="Learn from this run in the background: the next runs get replicas.")
@click.option("--wait", is_flag=True, help="With --learn: return when learning from this run is done.")
@old_bytes_option
@click.option("--verify", is_flag=True, help="Compare each redirected read with the original.")
@json_option
@command_argument
def run(
    writes: Literal["original", "close", "lease"],
    named: tuple[str, ...],
    cluster: str | None,
    coherence: str | None,
    hints: dict[str, str],
    learn: bool,
    wait: bool,
    old_bytes: bool,
    verify: bool,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Run a program served from replicas, or with a cache.

    Reads come from valid replicas. Bytes that are in doubt come from the original. With --policy writes are cached;
    this needs no trace and no plan. The exit code is the program's own. If
    that is 0, it becomes 1 if the write-back failed or if --verify found a difference. To record a redirected run:
    pdla trace -- pdla run -- COMMAND. With --learn nothing else has to be typed: what the run needs is built in the
    background, and the next runs are served from it.
    """
    from pdla.replicator.exit_reports import collect

    if wait and not learn:
        raise click.UsageError("--wait needs --learn")
    chosen = AUTO in named
    if chosen and (not learn or coherence or hints or len(named) > 1):
        raise click.UsageError(
            "--policy auto needs --learn, and takes neither --coherence nor --hint nor another policy"
        )
    serving = _Serving() if chosen else _serving(_read_policies(named), cluster, coherence, hints, learn=learn)
    if learn and (why := unusable()):
        _run_without(command, why)
    with ExitStack() as stack:
        try:
            variables, reports = stack.enter_context(redirection(command, writes))
        except HomeError as error:
            _run_without(command, str(error))
        serving = _begun_as_chosen(command, cluster, reports) if chosen else _begun(serving, reports)
        policy, critical = str(serving.policies) if serving.policies.names else "", serving.critical
        recording = record_to_learn(reports.name, command, cluster, policy, chosen=chosen, writes=writes)
        learned = stack.enter_context(recording) if learn else None
        variables |= learned.variables if learned else {}
        variables |= serving.variables
        variables |= {"PDLA_VERIFY": "1"} if verify else {}
        variables |= {"PDLA_OLD_BYTES": "1"} if old_bytes else {}
        coherent = writes != "original" or bool(policy) or writes_are_noted()
        with critical.beside(reports) if critical else nullcontext():
            code = launch(command, preloaded(variables, coherence=coherent))
        report = collect(reports, shlex.join(command))
        if policy and not _has_map():
            report = replace(report, map={})  # nobody asked for replicas
        with _failing("the report of this run was not kept"):
            leave(reports.name, report.to_json())
        if critical:
            with _failing("what this run found critical cannot be read"):
                critical.ended(reports)
        if learned:
            end_recording(learned, code, report.to_json())
    code = code or int(bool(report.errors or report.difference))
    if critical:
        with _failing("what this run found critical was not recorded in the catalog"):
            critical.finish(report)
    for note in critical.notes if critical else ():
        say(note)
    if report.difference:
        say(report.difference)
    elif verify:
        say(f"{counted(report.compared_calls, 'read')} compared with the original: no difference")
    with _failing("what waits for its write-back is not known"):
        _say_what_waits()
    if as_json:
        print_json({"exit_code": code, **report.to_json(), "critical": critical.to_json() if critical else None})
    elif policy or _has_map():
        say(report.sentence)
    else:
        say("nothing was redirected: no replica is published yet (pdla replicate publishes them)")
    if critical and not as_json and (text := critical.text()):
        click.echo(text, err=True)
    if learned:
        follow(reports.name, wait=wait)
    raise click.exceptions.Exit(code)


def _run_without(command: Sequence[str], why: str) -> NoReturn:
    """Run the program without pdla, because pdla cannot work; the exit code is the program's."""
    say(f"the program runs without pdla: {why}")
    with suppress(PdlaError, OSError):
        _say_what_waits()
    raise click.exceptions.Exit(launch(command, os.environ))


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """What fails when the program has ended is a line: the exit code stays the program's."""
    try:
        yield
    except (PdlaError, OSError) as error:
        say(f"{what}: {error}")


def _has_map() -> bool:
    with suppress(HomeError, OSError):
        return map_path().exists()
    return False


def _say_what_waits() -> None:
    """Programs without pdla read the bytes from before the write-back."""
    if writes_wait():
        from pdla.replicator.waiting_writes import waiting_writes

        for why in waiting_writes():
            say(why)


@dataclass(frozen=True)
class _Serving:
    """How a run is served besides replicas: the variables of its policies, and what is done around the program."""

    policies: FilePolicies = field(default_factory=FilePolicies)
    variables: dict[str, str] = field(default_factory=dict)
    critical: CriticalRun | None = None

    def begun(self, reports: Path) -> _Serving:
        """The same, when what is done before the program is done.

        Raises:
            PdlaError: it cannot be done.
        """
        begun = self.critical.begin(reports) if self.critical else {}
        return replace(self, variables=self.variables | begun)


def _read_policies(named: Sequence[str]) -> FilePolicies:
    try:
        return FilePolicies.of_words(named)
    except ConfigError as error:
        raise click.UsageError(f"--policy: {error}") from None


def _serving(
    policies: FilePolicies, cluster: str | None, coherence: str | None, hints: dict[str, str], *, learn: bool
) -> _Serving:
    """By the options that belong to --policy."""
    if not policies.names:
        if coherence or hints or (cluster and not learn):
            raise click.UsageError("--coherence and --hint need --policy, --cluster needs it or --learn")
        return _Serving()
    storage = None
    if cluster:
        from pdla.layouts.config import load_cluster

        storage = load_cluster(cluster)
    variables = caching_variables(policies, coherence or "node", hints, storage)
    if storage is None or not on_ssds(policies):
        return _Serving(policies, variables)
    return _Serving(policies, variables, CriticalRun(policies, storage, reserved_bytes(storage, hints)))


def _begun(serving: _Serving, reports: Path) -> _Serving:
    """What is asked for; without its policies if they cannot serve."""
    try:
        return serving.begun(reports)
    except PdlaError as error:
        say(f"without --policy: {error}")
        return _Serving()


def _begun_as_chosen(command: Sequence[str], cluster: str | None, reports: Path) -> _Serving:
    """With the policies that earlier runs chose. If they cannot serve, the program runs without, and a line says so."""
    policies = policies_of_next_run(command)
    said = shlex.join(word for value in policies.words for word in ("--policy", value))
    try:
        serving = _serving(policies, cluster or own_cluster(), None, {}, learn=True).begun(reports)
    except (PdlaError, click.UsageError) as error:
        say(f"without {said}, which earlier runs chose: {error}")
        return _Serving()
    if policies.names:
        say(f"with {said}, which earlier runs chose (pdla log)")
    return serving
