"""A verb imports what it uses: what is heavy takes longer to import than all else that a verb does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import click
import pytest

import pdla.cli
from tests.support.command_line import InProcess, Pdla

HEAVY = frozenset(
    {"alembic", "asyncio", "darshan", "h5py", "highspy", "jinja2", "matplotlib", "mpi4py", "numpy", "pandas", "psutil"}
    | {"prometheus_client", "scipy", "sqlalchemy", "sqlalchemy.orm", "tqdm"}
)
"""Each takes a twentieth of a second or more."""
CATALOG = frozenset({"sqlalchemy", "asyncio"})  # SQLAlchemy imports asyncio
MAP = frozenset({"numpy"})

USED = {
    ("--help",): frozenset[str](),
    ("run", "--", "true"): frozenset[str](),
    ("sync",): frozenset[str](),
    ("sync", "a file"): frozenset[str](),
    ("status",): CATALOG | MAP,
    ("verify",): CATALOG | MAP,
    ("gc",): CATALOG | MAP,
    ("log",): CATALOG,
    ("applications",): CATALOG,
    ("pause",): CATALOG,
    ("resume",): CATALOG,
    ("patterns", "list"): CATALOG,
    ("month", "-o", "month.html"): CATALOG | {"jinja2"},
}
"""What each verb uses of what is heavy, where there are no replicas."""


@pytest.fixture
def pdla_home(tmp_path: Path) -> Pdla:
    (tmp_path / "a file").touch()
    return InProcess(tmp_path, {})


def imported(home: Pdla, code: str, of: Iterable[str] = HEAVY) -> set[str]:
    """Which of these modules a Python imports that runs this code."""
    code = f"import sys\ntry:\n  {code}\nfinally: print(*(name for name in {sorted(of)} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=home.directory,
        env=home.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("words", USED, ids=" ".join)
def test_a_verb_imports_only_what_it_uses(pdla_home: Pdla, words: tuple[str, ...]) -> None:
    assert imported(pdla_home, f"import pdla.cli; sys.argv = {['pdla', *words]}; pdla.cli.main()") <= USED[words]


def test_the_help_of_a_verb_imports_nothing_heavy(pdla_home: Pdla) -> None:
    code = "from pdla.cli import VERBS, cli; [cli.main([verb, '--help'], standalone_mode=False) for verb in VERBS]"
    assert imported(pdla_home, code) == set()


def test_the_list_of_verbs_imports_none(pdla_home: Pdla) -> None:
    modules = {f"pdla.cli.{verb.place.partition(':')[0]}" for verb in pdla.cli.VERBS.values()}
    code = "from pdla.cli import cli; cli.main(['--help'], standalone_mode=False)"
    assert imported(pdla_home, code, modules) == set()


@pytest.mark.parametrize("verb", pdla.cli.VERBS)
def test_the_list_of_verbs_says_what_the_verb_says_of_itself(verb: str) -> None:
    command = pdla.cli.cli.get_command(click.Context(pdla.cli.cli), verb)
    assert command is not None
    assert command.get_short_help_str(1000) == pdla.cli.VERBS[verb].says
