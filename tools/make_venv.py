"""Make a virtual environment with pip, also where Debian's python3-venv is not installed.

    python3 tools/make_venv.py DIRECTORY

Without python3-venv the standard module cannot put pip into the environment; pip's wheel then comes from the package
index (PIP_INDEX_URL, by default PyPI), is checked against the index's SHA-256, and installs itself.
"""

import hashlib
import html
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import venv
from pathlib import Path


def fetch_pip(folder: Path) -> Path:
    """Download the newest wheel of pip into ``folder``."""
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/pip/"
    with urllib.request.urlopen(index, timeout=60) as answer:
        page = answer.read().decode()
    links = re.findall(r'href="([^"]+/(pip-[0-9.]+-py3-none-any\.whl)#sha256=([0-9a-f]{64}))"', page)
    link, name, checksum = max(links, key=lambda found: [int(part) for part in found[1].split("-")[1].split(".")])
    with urllib.request.urlopen(urllib.parse.urljoin(index, html.unescape(link)), timeout=60) as answer:
        data = answer.read()
    if hashlib.sha256(data).hexdigest() != checksum:
        sys.exit(f"{name}: the download does not match the index's checksum")
    path = folder / name
    path.write_bytes(data)
    return path


def main(directory: str) -> None:
    """Make the environment in ``directory``."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this script is what an older interpreter meets first
        sys.exit(f"pdla needs Python 3.11 or newer, this is {sys.version.split()[0]}: make PYTHON=python3.12 ...")
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        venv.create(directory, with_pip=False, symlinks=True)
        with tempfile.TemporaryDirectory() as folder:
            wheel = fetch_pip(Path(folder))
            python = str(Path(directory) / "bin" / "python")
            subprocess.run([python, f"{wheel}/pip", "install", "--quiet", str(wheel)], check=True)
    else:
        venv.create(directory, with_pip=True, symlinks=True)


if __name__ == "__main__":
    main(sys.argv[1])
