"""Record what pdla analyze found in the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pdla.cli.options import say
from pdla.errors import PdlaError
from pdla.units import counted

if TYPE_CHECKING:
    from pdla.analyzers.analysis import Analysis
    from pdla.analyzers.aspects import Aspects
    from pdla.analyzers.phases import Phases
    from pdla.traces.trace import Trace


def record(path: Path, trace: Trace, analysis: Analysis, aspects: Sequence[Aspects], phases: Phases) -> None:
    """Record a run with its patterns and phases; print that, or why it is not possible, on standard error."""
    from pdla.steps import record_run

    try:
        kept = record_run(path, trace, analysis, aspects, phases)
    except PdlaError as error:
        # The answer is printed already; a catalog that fails does not change the exit code.
        say(f"the patterns were not recorded in the catalog: {error}")
        return
    new = f"{counted(kept.new, 'new pattern')} in the replication queue" if kept.new else "no new pattern"
    say(f"run {kept.run} of application {kept.application}: {new}")
