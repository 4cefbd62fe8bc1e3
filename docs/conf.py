"""How Sphinx makes the pages: ``make docs``. What it cannot resolve is an error there."""

from sphinx.application import Sphinx
from sphinx.ext.napoleon import GoogleDocstring

from pdla import __version__

project = "pdla"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
# Types are in the sources; a name of them that has no page would be an error here.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
default_role = "code"
nitpick_ignore = [("py:class", "collections.abc.Callable")]
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
    """Have the sections of docstrings (Attributes, Raises) read."""
    app.connect("autodoc-process-docstring", read_sections)


def read_sections(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """RATIONALE: sphinx.ext.napoleon would take the words before a colon in an attribute's docstring as its type."""
    if what not in ("attribute", "data", "property"):
        lines[:] = GoogleDocstring(list(lines)).lines()
