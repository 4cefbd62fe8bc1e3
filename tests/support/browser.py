"""Pages in a real browser, without a network."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.mpi import unavailable
from tests.support.waiting import PATIENCE

# Before all scripts of a page: what goes wrong in them.
WATCH = "<script>window.wrong = []; addEventListener('error', (e) => wrong.push(e.message));</script>"


@pytest.fixture(scope="session")
def browser() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        unavailable("Chromium")
    return str(found)


def answer_of(browser: str, page: str, script: str, directory: Path) -> dict[str, object]:
    """The object ``answer`` that a script makes at the end of a page (HTML); ``wrong`` has the page's errors."""
    write = 'document.body.innerHTML = `<pre id="answer"></pre>`; '
    write += 'document.getElementById("answer").textContent = JSON.stringify(answer);'
    script = f'<script>\naddEventListener("load", async () => {{\n{script}\n{write}\n}});\n</script>'
    path = directory / "page.html"
    head, tail = page.replace("<head>", f"<head>{WATCH}", 1).rsplit("</body>", 1)
    path.write_text(f"{head}{script}</body>{tail}", encoding="utf-8")
    done = subprocess.run(
        [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
            *("--disable-background-networking", "--disable-component-update", "--disable-quic"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={directory / 'profile'}"),
            *("--virtual-time-budget=20000", "--window-size=1100,1200", "--dump-dom", path.as_uri()),
        ],
        capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    answer = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.DOTALL)
    assert answer is not None, done.stdout[-2000:]
    found = json.loads(html.unescape(answer[1]))
    assert isinstance(found, dict)
    return found
