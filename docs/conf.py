"""How Sphinx makes the pages: ``make docs``. What it cannot resolve is an error there."""

from pdla import __version__

project = "pdla"
release = __version__
extensions = ["myst_parser"]
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
