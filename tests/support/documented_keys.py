"""The keys that docs/json.md names."""

from __future__ import annotations

import re

from tests.support.compilers import REPOSITORY

TEXT = (REPOSITORY / "docs" / "json.md").read_text()


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def keys(text: str) -> set[str]:
    """The keys in the first column of the tables in ``text``."""
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}
