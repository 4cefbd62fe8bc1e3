"""The optional parts of pdla: what a login node has, and a compute node need not."""

from __future__ import annotations

from pdla.errors import PdlaError

EXTRAS = {
    "plan": ("alembic", "h5py", "highspy", "pandas", "prometheus_client", "psutil", "sqlalchemy", "tqdm"),
    "report": ("jinja2", "matplotlib"),
    "notebooks": ("jupyterlab", "plotly"),
}
"""The packages of each extra of pyproject.toml that most verbs need, as Python imports them."""


def missing(error: ModuleNotFoundError, what: str) -> PdlaError | None:
    """The error that says which extra to install for ``what``; None if the module belongs to none."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if module in modules:
            return PdlaError(f"{what} needs {module}, which is not installed: pip install 'pdla[{extra}]'")
    return None
