"""The pictures of the documentation: made by code, with texts for those who cannot see them, in light and dark."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType
from xml.etree import ElementTree

import pytest

from tests.support.documentation_pages import DOCS, PAGES, links

NAMES = ("flow.svg", "replica.svg", "layouts.svg", "lease.svg", "scaling.svg", "demo.svg")
SVG = "{http://www.w3.org/2000/svg}"


def module() -> ModuleType:
    """docs/pictures.py, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


PICTURES = module()
MADE: dict[str, str] = PICTURES.pictures()


def test_the_pictures_are_those_that_the_code_makes() -> None:
    assert {name: (DOCS / "_static" / name).read_text() for name in NAMES} == MADE


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_has_a_title_and_a_description_and_follows_the_mode(name: str) -> None:
    root = ElementTree.fromstring(MADE[name])
    assert root.findtext(f"{SVG}title") and root.findtext(f"{SVG}desc")
    assert "prefers-color-scheme: dark" in MADE[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_the_picture(name: str) -> None:
    assert [page for page in PAGES if f"_static/{name}" in links(page)]


def test_the_terminal_shows_every_line_of_the_recording() -> None:
    shown = "\n".join(text.text or "" for text in ElementTree.fromstring(MADE["demo.svg"]).iter(f"{SVG}text"))
    recorded = [line for _, line in PICTURES.printed((DOCS / "_static" / "demo.cast").read_text()) if line]
    assert shown.splitlines() == recorded
    assert sum("identical" in line for line in recorded) >= 2


def test_the_terminal_moves_for_two_minutes_at_most_and_rests_for_those_who_ask() -> None:
    (seconds,) = re.findall(r"animation: scroll ([\d.]+)s", MADE["demo.svg"])
    assert 30 < float(seconds) <= 120
    assert re.search(r"prefers-reduced-motion: reduce\) \{ \.scroll, \.cover \{ animation: none \}", MADE["demo.svg"])


def test_no_line_follows_another_before_one_could_see_it() -> None:
    recording = '{"version": 2, "width": 80, "height": 24}\n[1.0, "o", "a\\r\\nb\\r\\n"]\n[9.0, "o", "c\\r\\n"]\n'
    assert PICTURES.printed(recording) == [(0.0, "$ pdla demo"), (1.0, "a"), (1.25, "b"), (9.25, "c")]
