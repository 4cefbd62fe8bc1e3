"""Programs that run with one fault, and without it: pdla finds each fault in a trace of them.

benchmarks/findings.py measures how many of all; here is one program of each kind.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.contestants import BINARIES
from benchmarks.fault_corpus import KINDS, Program, programs
from benchmarks.findings import compile_faults, traced
from pdla.collectors.tracefile import read_trace
from pdla.findings import DETECTORS
from pdla.findings.finding import KINDS as FINDINGS
from pdla.findings.outlook import Outlook
from pdla.findings.seen import Seen
from pdla.layouts.config import DEFAULT_FILE
from pdla.steps import plan
from tests.support.mpi import unavailable

SEED = 0
SEEDS = {"hideable": 4}
"""Of other programs: the first with a computation has a twin that seems to compute on a busy machine."""
BUSY = {"straggler"}
"""What a busy machine may make of the twin."""


@pytest.fixture(scope="session")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (BINARIES / "mpicc").exists():
        unavailable(f"there is no {BINARIES / 'mpicc'}")
    return compile_faults(tmp_path_factory.mktemp("faults"))


def found_in(program: Program, faults: Path, directory: Path) -> set[str]:
    """What detectors see and what costs enough. Whether a remedy helps, as simulated, depends on the measured times."""
    trace = read_trace(traced(program, faults, directory))
    storage = plan(trace, DEFAULT_FILE, hypothetical=True)
    seen = Seen(trace, storage, "RUN.h5")
    outlook = Outlook(trace, storage, sum(len(group.length) for group in seen.groups))
    return {draft.kind for detect in DETECTORS for draft in detect(seen, outlook) if draft.matters(seen)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.thorough(2)
def test_a_fault_of_a_program_that_runs_is_found_and_only_there(kind: str, faults: Path, tmp_path: Path) -> None:
    bad, good = (one for one in programs(SEEDS.get(kind, SEED)) if one.kind == kind)
    assert kind in found_in(bad, faults, tmp_path)
    if kind not in BUSY:
        assert kind not in found_in(good, faults, tmp_path) or kind in good.kinds


def test_each_kind_of_findings_has_programs() -> None:
    assert set(KINDS) == set(FINDINGS)


def test_a_seed_makes_the_same_programs_again_and_others_make_others() -> None:
    assert [one.key for one in programs(SEED)] == [one.key for one in programs(SEED)]
    assert not {one.key for one in programs(SEED)} & {one.key for one in programs(SEED + 1)}
