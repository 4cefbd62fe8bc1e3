"""The notebooks run from the first cell to the last, and show what they say."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
import pytest
from IPython.core.formatters import HTMLFormatter
from nbclient import NotebookClient

from pdla.analyzers.analysis import analyze
from pdla.collectors import workloads
from pdla.layouts.config import load_cluster
from pdla.policies.plan import make_plan
from pdla.report.notebook import register

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
SHOWN = {
    "explore": ("slabs: rank 3 received 16777216 bytes", "global", "READ, 0, 2", "image/png"),
    "what_if": ("ssd 1-DV", "SSD servers", "s4d-cache", "image/png"),
    "simulate": ("two-phase", "is not simulated", "image/png"),
    "before_and_after": (
        "slabs: rank 3 received 16777216 bytes",
        "built and verified",
        "64 MiB from replicas",
        "image/png",
    ),
    "darshan": ("source: darshan", "signature", "image/png"),
}


def test_every_notebook_is_run_here() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_the_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    NotebookClient(notebook, timeout=100, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
    shown = "".join(str(cell["outputs"]) for cell in notebook.cells if cell.cell_type == "code")
    assert [text for text in SHOWN[name] if text not in shown] == []


def test_notebooks_show_objects_as_html() -> None:
    shown = HTMLFormatter()
    register(shown)
    trace = workloads.mpi_tile_io(4, 4, 64, 64, 32)
    analysis = analyze(trace)
    plan = make_plan(analysis, load_cluster("pdla"))
    assert "16 ranks" in shown(trace)
    assert "generated, not recorded" in shown(trace)
    assert shown(analysis).count("<tr>") == 7  # the head, the global signature, 4 members, and "12 more"
    assert "16 ranks" not in shown(analysis.signatures[0])
    assert "by ranks 0-15" in shown(analysis.signatures[0])
    replicas = sum(pattern.choice.layout is not None for pattern in plan.patterns)
    assert shown(plan).count("<svg") == len(plan.patterns) + replicas
