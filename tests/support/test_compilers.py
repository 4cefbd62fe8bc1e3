"""What the compilers of the tests make is kept, until anything that they read is another one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import compilers

SOURCE = (
    '#include <stdio.h>\n#include "folder/value.h"\nint main(void) { printf("%d %d\\n", VALUE, MORE); return 0; }\n'
)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Compiles a program in the directory with further words; returns what it prints."""
    monkeypatch.setattr(compilers, "COVERAGE", [])
    monkeypatch.setattr(compilers, "_directory", lambda: tmp_path)
    (tmp_path / "program.c").write_text(SOURCE)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/value.h").write_text('#include "more.h"\n#define VALUE 1\n')
    (tmp_path / "folder/more.h").write_text("#define MORE 2\n")

    def make(*words: str) -> str:
        program = compilers.compiled(["gcc", *words, tmp_path / "program.c", "-o", tmp_path / "program"])
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout.strip()

    return make


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The commands of compilers that are run."""
    real, run = subprocess.run, []

    def recorded(words: list[str], **more: object) -> object:
        run.extend([words] if words[0] == "gcc" else [])
        return real(words, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", recorded)
    return run


def test_nothing_is_compiled_twice(made: Callable[..., str], runs: list[object]) -> None:
    assert made() == made() == "1 2" and len(runs) == 1
    assert made("-O1") == made("-O1") == "1 2" and len(runs) == 2


@pytest.mark.parametrize(
    ("name", "content"), [("value.h", "#define VALUE 1\n#define MORE 9\n"), ("more.h", "#define MORE 9\n")]
)
def test_what_includes_something_new_is_compiled_again(
    made: Callable[..., str], runs: list[object], tmp_path: Path, name: str, content: str
) -> None:
    made()
    (tmp_path / "folder" / name).write_text(content)
    assert made() == "1 9" and len(runs) == 2


def test_a_compiler_that_an_mpi_runs_counts(
    made: Callable[..., str], runs: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    made()
    monkeypatch.setenv("MPICH_CC", "clang")
    assert made() == "1 2" and len(runs) == 2


def test_what_names_a_temporary_place_is_not_kept(made: Callable[..., str], runs: list[object], tmp_path: Path) -> None:
    words = [f"-Wl,-rpath,{tmp_path}"]
    assert made(*words) == made(*words) == "1 2" and len(runs) == 2


def test_a_failure_is_reported_and_keeps_nothing(made: Callable[..., str], runs: list[object]) -> None:
    for _ in range(2):
        with pytest.raises(subprocess.CalledProcessError):
            made("-DVALUE=,", "-Werror")
    assert len(runs) == 2
