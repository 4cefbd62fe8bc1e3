"""The command line: one small module for each verb. Heavy imports wait until a verb runs."""

from __future__ import annotations

import atexit
import io
import os
import sys
from gc import freeze, set_threshold
from pkgutil import resolve_name
from typing import Any, NamedTuple

import click

from pdla import __version__
from pdla.cli.signals import end_verb, handle
from pdla.errors import PdlaError
from pdla.extras import missing
from pdla.units import shown


class Verb(NamedTuple):
    """Where a verb is, in this package, and the first sentence of its help: a run of one verb imports no other."""

    place: str
    says: str


VERBS = {
    "trace": Verb("trace:trace", "Record a run of a program."),
    "pack": Verb("trace:pack", "Make a trace of the logs in DIRECTORY."),
    "import": Verb("import_trace:import_", "Convert a trace that another tool recorded."),
    "export": Verb("export:export", "Write a trace in the format of another tool."),
    "analyze": Verb("analyze:analyze", "Find the I/O signatures of a trace, or print what a Darshan log counts."),
    "patterns": Verb("patterns:patterns", "Look at the patterns of all analyzed runs."),
    "calibrate": Verb("calibrate:calibrate", "Measure the cost model's parameters on this storage."),
    "plan": Verb("plan:plan", "Choose what to replicate, where, and why."),
    "simulate": Verb("simulate:simulate", "Compare known schemes for parallel I/O on simulated storage."),
    "replicate": Verb("replicate:replicate", "Build the replicas of a plan."),
    "daemon": Verb("daemon:daemon", "Build queued replicas while the machine is idle."),
    "run": Verb("run:run", "Run a program served from replicas, or with a cache."),
    "learn": Verb("learning:learn", "Learn from the runs that wait, and build what they need."),
    "applications": Verb("autopilot:applications", "List the applications that were learned from."),
    "history": Verb("autopilot:history", "Show the runs of an application, what they gained, and what changed."),
    "log": Verb("autopilot:log", "Show everything that the autopilot did, and why, with the command that undoes it."),
    "month": Verb("month:month", "Make an HTML report of a month, by default of this one, for a browser or a mail."),
    "undo": Verb("autopilot:undo", "Undo a decision; pdla log lists them with their numbers."),
    "forget": Verb(
        "autopilot:forget",
        "Forget an application: its runs, its patterns, and the replicas that no other application has.",
    ),
    "pause": Verb("autopilot:pause", "Learn and build nothing until pdla resume."),
    "resume": Verb("autopilot:resume", "End pdla pause."),
    "report": Verb("report:report", "Make an HTML report of a trace."),
    "status": Verb("maintenance:status", "List the replicas and the latest runs."),
    "verify": Verb("maintenance:verify", "Check every replica, byte for byte."),
    "sync": Verb("sync:sync", "Write redirected writes back to their originals, or to FILE only."),
    "drain": Verb("drain:drain", "Wait until all bytes of FILE are home."),
    "gc": Verb("maintenance:gc", "Remove what no run can use any more."),
    "rm": Verb("maintenance:rm", "Remove a replica."),
    "doctor": Verb("doctor:doctor", "Check what works on this machine, or in directories."),
    "preload": Verb("doctor:preload", "Print the path of the library to preload."),
    "demo": Verb("demo:demo", "Try pdla on two real MPI programs."),
}


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return super().get_command(ctx, cmd_name)
        verb = resolve_name(f"pdla.cli.{VERBS[cmd_name].place}")
        assert isinstance(verb, click.Command)
        return verb

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        room = formatter.width - 6 - max(map(len, VERBS))
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, click.Command(name, help=VERBS[name].says).get_short_help_str(room)) for name in sorted(VERBS)]
            )


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="pdla", message="%(prog)s %(version)s")
def cli() -> None:
    """Trace an MPI-IO program, understand its access patterns, and serve its next runs from replicas in access order.

    \b
    pdla trace -o run.h5 -- mpiexec -n 4 ./app    record a run
    pdla analyze run.h5                           its local and global I/O signatures
    pdla plan run.h5 -o plan.json                 what to replicate, where, and why
    pdla replicate plan.json                      build and verify the replicas
    pdla run -- mpiexec -n 4 ./app                run the same program, served from the replicas
    """


def main() -> None:
    """Run a verb. Exit codes: 0 done, 1 failed (one line on standard error), 2 wrong command line.

    SIGINT, SIGTERM and SIGHUP end the verb with 128 + their number, after it has removed its
    temporary files.
    """
    # Imports and rows of the catalog make very many objects that stay. Without this, the search for
    # cycles among them takes a fifth of the time of pdla status.
    set_threshold(300_000)
    # Nor is it made when the process ends: it took 60 ms.
    atexit.register(freeze)
    _keep_streams()
    for stream in (sys.stdout, sys.stderr):
        # Paths may hold bytes that are not characters.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    handle(end_verb)
    try:
        sys.exit(cli.main(prog_name="pdla", standalone_mode=False))
    except click.UsageError as error:
        click.UsageError(shown(error.format_message()), error.ctx).show()
        sys.exit(2)
    except BrokenPipeError:
        # Standard output is a pipe whose reader has ended (| head): nobody can read a message.
        sys.stderr.close()
        sys.exit(1)
    except ModuleNotFoundError as error:
        verb = next((f"pdla {word}" for word in sys.argv[1:] if word in VERBS), "pdla")
        if (said := missing(error, verb)) is None:
            raise
        print(f"pdla: {said}", file=sys.stderr)
        sys.exit(1)
    except (PdlaError, OSError) as error:
        print(f"pdla: {shown(str(error))}", file=sys.stderr)
        sys.exit(1)


class _TerminalError(io.FileIO):
    """Standard error. Drops output that nobody can read, since the terminal was closed: no verb fails because of it."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or len(data)
        except OSError:
            return len(data)


def _keep_streams() -> None:
    """Open the standard streams that were closed; otherwise files of the verb would get their descriptors."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is sys.__stderr__:
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(_TerminalError(2, "w", closefd=False)), line_buffering=True)
