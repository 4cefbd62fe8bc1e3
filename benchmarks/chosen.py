"""Benchmarks whose measurements are chosen by name: their command line, and how one is measured."""

from __future__ import annotations

import argparse
import fnmatch
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.bench import failures_noted
from benchmarks.results import add_rows
from pdla.units import MiB, parse_bytes


def options_of(text: str, amount: int, of: str, *, rounds: int = 3) -> argparse.Namespace:
    """The command line of a benchmark with this documentation: ``amount`` are the usual bytes ``of`` something."""
    return parser_of(text, amount, of, rounds=rounds).parse_args()


def parser_of(text: str, amount: int, of: str, *, rounds: int) -> argparse.ArgumentParser:
    """The parser of that command line, for a benchmark with further options."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--amount", type=parse_bytes, default=amount * MiB, help=f"bytes of {of}")
    parser.add_argument("--only", nargs="+", default=["*"], help="measure only what matches one of these globs")
    parser.add_argument("--smoke", action="store_true", help="few and small cases, to check that everything works")
    parser.add_argument("--list", action="store_true", help="print what would be measured and stop")
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="directory for the disks' images")
    return parser


def is_chosen(title: str, options: argparse.Namespace) -> bool:
    """Whether the options select this."""
    return any(fnmatch.fnmatch(title, one) for one in options.only)


def list_chosen(titles: Iterable[str], options: argparse.Namespace) -> None:
    """Print what is chosen, and stop, if that is asked for or nothing is."""
    found = list(titles)
    if not found or options.list:
        sys.stdout.writelines(f"{title}\n" for title in found)
        sys.exit(None if found else f"nothing is called {' or '.join(options.only)}: --list names what there is")


def add_measured(
    part: str, title: str, measure: Callable[[Path], list[dict[str, Any]]], work: Path, failed: list[str]
) -> None:
    """Add the rows of what ``measure`` finds in a new directory ``work``; what fails is added to ``failed``."""
    with failures_noted(title, failed):
        work.mkdir()
        try:
            rows = measure(work)
        finally:
            shutil.rmtree(work)
        add_rows(part, [{**one, "name": f"{title}: {one['name']}"} for one in rows])
