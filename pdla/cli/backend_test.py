"""pdla doctor --backend: the self-test of a storage back end, and its report."""

from __future__ import annotations

import platform
from pathlib import Path

import click

from pdla import __version__
from pdla.cli.options import print_json
from pdla.errors import PdlaError


def test_backend(name: str, directory: Path, as_json: bool) -> None:
    """Test a back end in a directory, and print what was tried, what went wrong, and what the storage answered.

    Raises:
        PdlaError: a step failed; ConfigError if the back end cannot be tested there.
    """
    from pdla.replicator.backends.selftest import self_test

    system = f"pdla {__version__}, backend {name}, {platform.system()} {platform.release()} {platform.machine()}"
    if not as_json:
        click.echo(system)
    steps = []
    for step in self_test(name, directory):
        steps.append(step)
        if not as_json:
            click.echo(f"{'FAILED' if step.wrong else 'ok':<8} {step.tried}{': ' if step.wrong else ''}{step.wrong}")
            for answer in step.answers:
                click.echo(f"         {answer}")
    if as_json:
        print_json({"system": system, "steps": [step._asdict() for step in steps]})
    if failed := sum(bool(step.wrong) for step in steps):
        raise PdlaError(f"{failed} of {len(steps)} steps of the self-test of {name} failed")
