"""What test modules share is in tests/support, or is a fixture of a conftest.py; names of modules are unique."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.compilers import REPOSITORY

TESTS = REPOSITORY / "tests"


def imported(path: Path) -> Iterator[str]:
    """The modules that a module imports, and the names that it takes from them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield (node.module or "").rpartition(".")[2]
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (name.name.rpartition(".")[2] for name in node.names)


def test_no_test_module_and_no_conftest_is_imported() -> None:
    assert [
        f"{path.relative_to(TESTS)} imports {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for name in imported(path)
        if name.startswith("test_") or name == "conftest"
    ] == []


def test_each_test_module_has_a_name_of_its_own() -> None:
    """docs/hazards.md and tests/mutants.toml name a test by that alone."""
    assert [name for name, count in Counter(path.name for path in TESTS.rglob("test_*.py")).items() if count > 1] == []
