"""The notebooks run from the first cell to the last, answer their questions, and can be looked at without a network."""

from __future__ import annotations

import ast
import os
import sys
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from IPython.core.formatters import HTMLFormatter
from nbclient import NotebookClient
from nbconvert import HTMLExporter

import pdla
from pdla.report.notebook import register, trace_html
from tests.support.browser import answer_of
from tests.support.compilers import REPOSITORY
from tests.support.waiting import PATIENCE

NOTEBOOKS = REPOSITORY / "notebooks"
ANSWERS = {
    "what_did_my_program_do": ("97% of the 16,412 requests are of 1,024 bytes.", "Change first: "),
    "which_pattern_is_it": ("It is a strided pattern of small requests (1,024 bytes)", "touch 100% of the bytes"),
    "before_and_after": ("All ranks received the same bytes. 128 of 128 read calls", "With the replica reading is"),
    "what_if_i_had_an_ssd_pool": ("Yes, from 2 SSD servers on", "pdla-s is the fastest"),
    "a_month_of_my_group": ("105 runs of 5 programs", "Look at climate first: its 49 runs"),
}
TALLEST = 6000  # pixels
LOOK = """
  const still = () => document.querySelector("figure.zoom:not(:has(canvas))");
  for (let tries = 0; still() && tries < 500; tries++) await new Promise((done) => setTimeout(done, 10));
  const answer = { wrong, height: document.documentElement.scrollHeight };
  answer.plots = [...document.querySelectorAll(".js-plotly-plot")].map((one) => one.querySelectorAll("svg").length);
  answer.zooms = [...document.querySelectorAll("figure.zoom")].map((one) => one.querySelectorAll("canvas").length);
"""


def test_every_notebook_is_run_here() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(ANSWERS)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_notebook_needs_only_the_package(name: str) -> None:
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell["outputs"] for cell in cells)
    imported = set()
    for cell in cells:
        python = "\n".join(line for line in cell["source"].splitlines() if not line.lstrip().startswith("!"))
        for node in ast.walk(ast.parse(python)):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module))
    assert imported - set(sys.stdlib_module_names) <= {"pdla", "numpy", "pandas", "plotly.express", "plotly.io"}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.thorough(1)
def test_a_notebook_answers_its_question(
    name: str, browser: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    # Only for the notebook: below a directory with so long a name the browser cannot make its socket.
    with monkeypatch.context() as environment:
        environment.setenv("TMPDIR", str(tmp_path))
        environment.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        environment.setenv("PDLA_HOME", str(tmp_path / "home"))
        NotebookClient(notebook, timeout=PATIENCE, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
    shown = "".join(str(cell["outputs"]) for cell in notebook.cells if cell.cell_type == "code")
    assert [text for text in ANSWERS[name] if text not in shown] == []
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("pdla")] == []

    page, _ = HTMLExporter().from_notebook_node(notebook)
    looked = answer_of(browser, page, LOOK, tmp_path)
    assert [wrong for wrong in looked["wrong"] if "MathJax" not in wrong and "require" not in wrong] == []  # type: ignore[attr-defined]
    assert looked["plots"]
    assert 0 not in looked["plots"]  # type: ignore[operator]
    assert set(looked["zooms"]) <= {1}  # type: ignore[call-overload]
    assert int(str(looked["height"])) <= TALLEST


def test_notebooks_show_what_the_functions_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDLA_HOME", str(tmp_path))
    monkeypatch.delenv("PDLA_CATALOG", raising=False)
    shown = HTMLFormatter()
    register(shown)
    trace = pdla.workloads.mpi_tile_io(4, 4, 64, 64, 32)
    analysis = pdla.analyze(trace)
    assert "16 ranks" in shown(trace)
    assert "generated, not recorded" in shown(trace)
    assert shown(trace).count('<figure class="zoom"') == 1
    assert shown(analysis).count("<tr>") == 7  # the head, the global signature, 4 members, and "12 more"
    assert shown(analysis).count("<svg") == 1
    assert "by ranks 0-15" in shown(analysis.signatures[0])
    plan = pdla.plan(trace, "pdla", hypothetical=True)
    assert shown(plan).count("<svg") == 2  # the costs and the layout
    findings = shown(pdla.diagnose(trace, planned=plan))
    assert "1,024 reads by 16 ranks are independent" in findings
    assert "pdla run -- mpi-tile-io" in findings
    nothing = shown(pdla.diagnose(pdla.workloads.btio((2, 2, 2), (32, 32, 32), 4), "pdla"))
    assert "Nothing that pdla knows costs 5 % of the I/O time or more" in nothing
    contest = pdla.simulate(trace, "s4d-cache", ["none", "two-phase", "independent"])
    assert [
        text for text in ("47 ms", "191 ms, off the scale, 0.25x", "7.8 ms, 6.02x") if text not in shown(contest)
    ] == []
    for ranks in (2, 4):
        pdla.save(replace(pdla.workloads.pio_segmented(ranks, 4096, 9), command="./a<b"), tmp_path / "run.h5")
        pdla.add_run(tmp_path / "run.h5")
    assert "2 runs of 2 programs" in shown(pdla.open_catalog())
    assert "./a&lt;b" in shown(pdla.open_catalog())


def test_of_many_files_and_patterns_a_notebook_shows_the_first() -> None:
    trace = pdla.workloads.ior(40, 4096, 1024, file_per_proc=True)
    shown = HTMLFormatter()
    register(shown)
    assert shown(trace).count('<figure class="zoom"') == 2
    assert "and 68 more files" in shown(trace)
    assert "and 38 more files" in shown(pdla.analyze(trace))
    plan = pdla.plan(trace, hypothetical=True)
    assert "and 68 more patterns" in shown(plan)


def test_a_picture_in_a_notebook_is_zoomed_once_however_many_follow(browser: str, tmp_path: Path) -> None:
    pictures = "".join(trace_html(pdla.workloads.pio_segmented(ranks, 4096, 9)) for ranks in (2, 3, 4))
    looked = answer_of(browser, f"<html><head></head><body>{pictures}</body></html>", LOOK, tmp_path)
    assert (looked["wrong"], looked["zooms"]) == ([], [1, 1, 1])
