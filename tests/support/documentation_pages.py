"""The documentation as the tests read it: the blocks, links and headings of pages, and a shell that follows them.

A block ``console`` is what was typed, after ``$``, and what was printed; a test repeats it and
compares. A block that names a file (``python file=app.py``) is first written there. A block ``sh``
is a template; it is only parsed.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support.command_line import PDLA
from tests.support.compilers import REPOSITORY
from tests.support.ready_pdla import REAL
from tests.support.waiting import PATIENCE

BIN = Path(sys.executable).parent
DOCS = REPOSITORY / "docs"
GLOSSARY = DOCS / "glossary.md"
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted(DOCS.rglob("*.md"))]

_PARSER = MarkdownIt("commonmark").enable("table")
# What differs from run to run: durations, times, the width of a table.
_UNSTABLE = [
    (re.compile(r"\bin [\d.]+ (us|ms|s)\b"), "in 1 s"),
    (re.compile(r"home in [\d,]+ requests?, [\d.]+ (ns|us|ms|s) of"), "home in 1 request, 1 s of"),
    # By the layout, for which the measured times count.
    (re.compile(r"from replicas in [\d,]+ requests?"), "from replicas in 1 request"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?"), "2026-01-01 00:00"),
    # In pdla history, after the bytes, and after the hits of a run that had any.
    (re.compile(r"(?<=iB) +(-|[\d.]+ m?s) +[\d.]+ m?s(?= +\d+%)"), " 1 s 1 s"),
    (re.compile(r"(?<=\d\d%)( +-?[\d.]+ [mu]?s){2}"), " 1 s 1 s"),
    (re.compile(r"-{2,}"), "--"),
]


@dataclass(frozen=True)
class Block:
    """A block of code; ``language`` is "" where it is only indented."""

    language: str
    file: str | None
    text: str


@cache
def _tokens(page: Path) -> Sequence[Token]:
    return [one for token in _PARSER.parse(page.read_text()) for one in (token, *(token.children or ()))]


def name(page: Path) -> str:
    """Of a page, for messages."""
    return str(page.relative_to(REPOSITORY))


def blocks(page: Path) -> list[Block]:
    """The blocks of code, in order."""
    found = []
    for token in _tokens(page):
        if token.type in ("fence", "code_block"):
            language, *rest = token.info.split() or [""]
            files = [word.removeprefix("file=") for word in rest if word.startswith("file=")]
            found.append(Block(language, files[0] if files else None, token.content))
    return found


def codes(page: Path) -> list[str]:
    """What is set as code within the text."""
    return [" ".join(token.content.split()) for token in _tokens(page) if token.type == "code_inline"]


def links(page: Path) -> list[str]:
    """Where the links go."""
    targets = [token.attrs.get("href" if token.type == "link_open" else "src") for token in _tokens(page)]
    return [str(target) for target in targets if target]


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub and MyST make them."""
    tokens = list(_PARSER.parse(page.read_text()))
    titles = [
        "".join(child.content for child in after.children or () if child.type in ("text", "code_inline"))
        for token, after in itertools.pairwise(tokens)
        if token.type == "heading_open"
    ]
    return {anchor(title) for title in titles}


def anchor(title: str) -> str:
    """Of a heading with this title."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The lines of paragraphs and lists, each with its number; none of tables, headings and blocks of code."""
    lines = page.read_text().splitlines()
    for token in _PARSER.parse(page.read_text()):
        if token.type == "paragraph_open" and token.map:
            first, end = token.map
            yield from enumerate(lines[first:end], first + 1)


def glossary() -> dict[str, str]:
    """The terms of the glossary, each with the link that leads to it; a heading may have several, with commas."""
    headings = re.findall(r"^### (.+)$", GLOSSARY.read_text(), re.MULTILINE)
    return {term: f"{GLOSSARY.name}#{anchor(title)}" for title in headings for term in title.split(", ")}


def unlinked(page: Path, terms: Mapping[str, str]) -> list[str]:
    """The terms that the paragraphs of ``page`` use before they link to them."""
    wanted = {
        term: (re.compile(rf"(?<![\w-]){re.escape(term)}s?(?![\w-])", re.IGNORECASE if term.islower() else 0), link)
        for term, link in terms.items()
    }
    found = []
    for text, link in _plain(page):
        for term, (pattern, own) in list(wanted.items()):
            if link.endswith(own):
                del wanted[term]
            elif not link and pattern.search(text):
                found.append(term)
                del wanted[term]
    return found


def _plain(page: Path) -> Iterator[tuple[str, str]]:
    """The text of the paragraphs in order, without code, each piece with the link that it is in, or ""."""
    for before, token in itertools.pairwise(_PARSER.parse(page.read_text())):
        if before.type != "paragraph_open":
            continue
        link = ""
        for inside, pieces in itertools.groupby(token.children or (), key=lambda child: child.type.startswith("link_")):
            if inside:
                link = str(next(pieces).attrs.get("href", ""))
            else:
                shown = {"text": None, "softbreak": " "}
                yield "".join(shown.get(one.type, "\0") or one.content for one in pieces), link


def commands(console: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with what it printed."""
    pieces = re.split(r"^\$ ", console, flags=re.MULTILINE)
    assert not pieces[0], f"a console block begins with a prompt, not with {pieces[0]!r}"
    found = []
    for piece in pieces[1:]:
        lines = piece.splitlines()
        last = next(n for n, line in enumerate(lines) if not line.endswith("\\"))
        found.append(("\n".join(lines[: last + 1]), "\n".join(lines[last + 1 :])))
    return found


def follow(page: Path, directory: Path, variables: Mapping[str, str], replaced: Mapping[str, str]) -> int:
    """Do what ``page`` says in ``directory``, which must be empty; return the number of commands.

    ``replaced``: names in the page that have other names here.
    """
    # A command's exported variables are there for the next one.
    state = directory.with_name(directory.name + ".environment")
    state.touch()
    environment = {**os.environ, **variables}
    count = 0
    for block in blocks(page):
        text = block.text
        for there, here in replaced.items():
            text = text.replace(there, here)
        if block.file:
            (directory / block.file).write_text(text)
        elif block.language == "console":
            for command, said in commands(text):
                script = f"set -a; . {state}; {command}\ncode=$?; export -p > {state}; exit $code"
                done = subprocess.run(
                    ["bash", "-c", script],
                    cwd=directory,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=PATIENCE,
                    check=False,
                )
                assert done.returncode == 0, f"{name(page)}: {command}: exit {done.returncode}\n{done.stdout}"
                assert same(said, done.stdout), f"{name(page)}: {command}\n\nthe page:\n{said}\n\nhere:\n{done.stdout}"
                count += 1
    return count


def same(wanted: str, got: str) -> bool:
    """Whether a command printed what the page says; ``...`` stands for anything."""
    for pattern, instead in _UNSTABLE:
        wanted, got = pattern.sub(instead, wanted), pattern.sub(instead, got)
    pieces = [re.escape(" ".join(piece.split())) for piece in re.split(r"\s*(?<!\.)\.{3}\s*", wanted)]
    return re.fullmatch(".*".join(pieces), " ".join(got.split())) is not None


def followed(
    page: Path,
    directory: Path,
    programs: Mapping[str, str | Path],
    variables: Mapping[str, str] | None = None,
    replaced: Mapping[str, str] | None = None,
) -> int:
    """Follow ``page`` with its own PDLA_HOME, ``programs`` by their names in the page first on PATH."""
    first = directory.parent / "bin"
    first.mkdir()
    for name, program in programs.items():
        # No link: programs look for what belongs to them beside themselves.
        (first / name).write_text(f'#!/bin/sh\nexec {PDLA if program == REAL else program} "$@"\n')
        (first / name).chmod(0o755)
    environment = {
        "HOME": str(directory.parent),
        "PATH": f"{first}:{os.environ['PATH']}",
        "PDLA_HOME": str(directory.parent / "home"),
        "PDLA_CATALOG": "",
        "PDLA_STEP_ASIDE": "",  # as readers have it, and no other test
        "PYTEST_ADDOPTS": "",  # a page shows what pytest prints
        **(variables or {}),
    }
    return follow(page, directory, environment, {"/home/you/tutorial": str(directory), **(replaced or {})})
