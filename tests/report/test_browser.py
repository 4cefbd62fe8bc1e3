"""The report in a real browser: no errors, and a picture that one can zoom into."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pdla.analyzers.analysis import analyze
from pdla.collectors import workloads
from pdla.layouts.config import load_cluster
from pdla.policies.plan import make_plan
from pdla.report.html import Run, write_report
from pdla.traces.trace import Trace
from tests.support.browser import answer_of

# A drag over a part of the first picture.
DRAG = """
  const figure = document.querySelector("figure.zoom"), still = figure.querySelector("svg");
  while (!figure.querySelector("canvas")) await new Promise((done) => setTimeout(done, 10));
  const canvas = figure.querySelector("canvas"), said = figure.querySelector("figcaption");
  const send = (target, type, x, y, buttons) =>
    target.dispatchEvent(new PointerEvent(type, { bubbles: true, clientX: x, clientY: y, button: 0, buttons }));
  const first = said.textContent, at = still.getBoundingClientRect();
  send(still, "pointerdown", at.left + 300, at.top + 100, 1);
  const box = canvas.getBoundingClientRect();
  send(window, "pointermove", box.left + 600, box.top + 200, 1);
  send(window, "pointerup", box.left + 600, box.top + 200, 0);
  const pen = canvas.getContext("2d"), pixels = pen.getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  for (let i = 0; i < pixels.length; i += 4)
    if (pixels[i + 3] === 255) colours.add(pixels.slice(i, i + 3).join());
  const view = JSON.parse(figure.dataset.view);
  const shown_texts = [];
  for (let y = 0; y < 240; y += 2) {
    send(canvas, "pointermove", box.left + 400, box.top + y, 0);
    shown_texts.push(said.textContent);
  }
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
  const whole = canvas.hidden && still.style.display === "";
  const answer = { wrong, first, view, colours: [...colours], shown_texts, whole };
"""


def opened(browser: str, trace: Trace, directory: Path) -> dict[str, object]:
    """What a drag over the picture of a report did."""
    analysis = analyze(trace)
    page = directory / "report.html"
    write_report(page, [Run(trace, analysis, make_plan(analysis, load_cluster(None)))])
    return answer_of(browser, page.read_text(), DRAG, directory)


@pytest.mark.parametrize("requests", [40, 4000], ids=["extents", "cells"])
def test_a_drag_over_the_picture_zooms_into_it(browser: str, tmp_path: Path, requests: int) -> None:
    trace = workloads.pio_simple_strided(16, 65536, requests)
    shown_texts = opened(browser, trace, tmp_path)
    assert shown_texts["wrong"] == []
    assert shown_texts["first"] == "Drag over a part of the picture to zoom into it."
    view, size = shown_texts["view"], 16 * 65536 * requests
    assert isinstance(view, dict)
    seconds = float(trace.accesses()["t_end"].max())
    assert 0 < view["x"][0] < view["x"][1] < seconds
    assert 0 < view["y"][0] < view["y"][1] < size
    assert shown_texts["whole"] is True
    colours, said = shown_texts["colours"], shown_texts["shown_texts"]
    assert isinstance(colours, list)
    assert isinstance(said, list)
    # The diagonal of the file over time goes through the part that was dragged over, with all ranks in it.
    assert len(colours) >= 16
    if requests == 40:
        named = {found[1] for line in said if (found := re.match(r"rank (\d+) reads 65,536 bytes at [\d,]+, ", line))}
        assert named
