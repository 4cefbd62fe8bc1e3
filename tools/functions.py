"""Where the functions of the C and Python sources are, by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGES = "pdla", "collectors", "analyzers", "replicator", "layouts"
NAME = re.compile(r"(\w+)\(")

Function = tuple[str, int, int]
"""Its name, that of a method after that of its class and a dot, and where its text begins and ends."""


def sources(tree: Path) -> Iterator[Path]:
    """All of a tree, each under one name."""
    for package in PACKAGES:
        for path in sorted((tree / package).rglob("*.*")):
            if path.suffix in (".c", ".h", ".py") and path.resolve() == tree.resolve() / path.relative_to(tree):
                yield path


def functions(path: Path, text: str) -> Iterator[Function]:
    """The functions of a source, outer ones before those within."""
    return _of_python(text) if path.suffix == ".py" else _of_c(text)


def _of_c(text: str) -> Iterator[Function]:
    """As they are laid out here: the braces of a function, and nothing else of it, stand alone at the left."""
    name, start, head, at = "", -1, "", 0
    for line in text.splitlines(keepends=True):
        if start < 0 and line == "{\n" and (found := NAME.search(head)):
            name, start = found[1], at - len(head)
        elif start >= 0 and line.startswith("}"):
            yield name, start, at + len(line)
            start, head = -1, ""
        elif start < 0:
            ends = line.rstrip().endswith(";") or line[0] in "\n#/}" or (not head and line[0] == " ")
            head = "" if ends else head + line
        at += len(line)


def _of_python(text: str) -> Iterator[Function]:
    places = [0]
    for line in text.splitlines(keepends=True):
        places.append(places[-1] + len(line))

    def within(node: ast.AST, prefix: str) -> Iterator[Function]:
        for one in ast.iter_child_nodes(node):
            if isinstance(one, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                first = min(part.lineno for part in (one, *one.decorator_list))
                yield prefix + one.name, places[first - 1], places[one.end_lineno or first]
                yield from within(one, f"{prefix}{one.name}.")

    return within(ast.parse(text), "")
