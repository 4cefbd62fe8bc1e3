"""How Sphinx makes the pages: ``make docs``. What it cannot resolve is an error there."""

import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.ext.napoleon import GoogleDocstring

import pdla
from pdla.collectors import workloads
from pdla.report.html import Run, write_report

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import pictures  # noqa: E402

project = "pdla"
release = pdla.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
# Types are in the sources; a name of them that has no page would be an error here.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
default_role = "code"
nitpick_ignore = [("py:class", "collections.abc.Callable"), ("py:class", "pdla.layouts.contiguity.Pattern")]
highlight_language = "none"
myst_heading_anchors = 4
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["pdla.css"]
html_title = f"pdla {release}"
# The pages are read from a file system, too, where a script cannot fetch other pages to show what it found in them.
html_show_search_summary = False
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False


def setup(app: Sphinx) -> None:
    """Make the pictures, have the sections of docstrings (Attributes, Raises) read, and add a report."""
    pictures.write()
    app.connect("autodoc-process-docstring", read_sections)
    app.connect("build-finished", add_report)


def add_report(app: Sphinx, failure: Exception | None) -> None:
    """Write ``example-report.html``, which the index links: that of ``make demo``, or of a generated trace."""
    report = Path(app.outdir) / "example-report.html"
    demo = HERE.parent / "pdla-demo" / "report.html"
    if demo.exists():
        shutil.copyfile(demo, report)
    elif failure is None:
        trace = workloads.mpi_tile_io(2, 2, 1024, 256, 32)
        analysis = pdla.analyze(trace)
        write_report(report, [Run(trace, analysis, pdla.plan(trace, hypothetical=True, analysis=analysis))])


def read_sections(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """RATIONALE: sphinx.ext.napoleon would take the words before a colon in an attribute's docstring as its type."""
    if what not in ("attribute", "data", "property"):
        lines[:] = GoogleDocstring(list(lines)).lines()
