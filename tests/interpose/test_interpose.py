"""Interposition without the recorder and the redirector: the observer in its README, and who includes what."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.mpi import REPOSITORY, TOOLS, Mpi, build_tools, unavailable
from tests.support.recorded_programs import PROGRAMS

INTERPOSE = REPOSITORY / "pdla/interpose"
LINE = re.compile(r"(MPI_File_\w+): (\d+) calls, (\d+) bytes")


@pytest.fixture(scope="module", params=["gcc", "clang"])
def observer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which(request.param) is None:
        unavailable(f"{request.param} is not installed")
    library = tmp_path_factory.mktemp("observer") / "bytes_by_call.so"
    source = INTERPOSE / "examples/bytes_by_call.c"
    flags = ["-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    return build_tools(library, source, flags=flags, compiler=request.param)


def counted(output: str) -> tuple[Counter[str], Counter[str]]:
    """The calls and the bytes of all ranks, by the call's name."""
    calls: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    for name, times, size in LINE.findall(output):
        calls[name] += int(times)
        moved[name] += int(size)
    return calls, moved


@pytest.mark.thorough(2)
def test_an_observer_of_its_own_counts_what_every_form_of_call_moves(
    every_mpi: Mpi, observer: Path, tmp_path: Path
) -> None:
    """The two ranks of forms.c move 16 bytes by each form, and at last ask for 16 more, of which the file has 8."""
    program = every_mpi.compile(PROGRAMS / "forms.c", tmp_path / "forms")
    variables = {"LD_PRELOAD": str(observer)}
    calls, moved = counted(every_mpi.run(every_mpi.command(2, program, tmp_path / "data"), tmp_path, variables))
    data = ["{}", "{}_all", "{}_at", "{}_at_all"]
    forms = [*data, *(f"i{form}" for form in data), "{}_all_begin", "{}_at_all_begin"]
    expected = {f"MPI_File_{form.format(op)}": 2 for form in forms for op in ("write", "read")}
    assert calls == expected | {"MPI_File_read_at": 4}
    # Through a view with holes the status of MPICH does not say that the file ended.
    last = 8 if every_mpi.is_openmpi else 16
    assert moved == dict.fromkeys(expected, 32) | {"MPI_File_read_at": 32 + 2 * last}


def test_the_library_of_an_observer_knows_neither_the_recorder_nor_the_redirector(observer: Path) -> None:
    binary = observer.read_bytes()
    assert b"PDLA_TRACE" not in binary and b"PDLA_MAP" not in binary


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """How CMake compiles a source of each part of the library, by the part's directory."""
    build = tmp_path_factory.mktemp("build")
    configure = [Path(sys.executable).parent / "cmake", "-S", REPOSITORY, "-B", build]
    options = ["-G", "Ninja", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    subprocess.run([*configure, *options], check=True, capture_output=True)
    entries = json.loads((build / "compile_commands.json").read_text())
    return {str(Path(entry["file"]).parent.relative_to(REPOSITORY)): shlex.split(entry["command"]) for entry in entries}


@pytest.mark.parametrize(
    ("part", "header", "allowed"),
    [
        ("pdla/interpose", "typemap.h", True),
        ("pdla/interpose", "recorder.h", False),
        ("pdla/interpose", "redirection.h", False),
        ("collectors/shim", "interpose.h", True),
        ("collectors/shim", "redirection.h", False),
        ("replicator/stub", "interpose.h", True),
        ("pdla/caching", "core.h", True),
        ("pdla/caching", "simulator.h", False),
        ("pdla/caching", "interpose.h", False),
        ("pdla/caching", "redirection.h", False),
        ("pdla/simulator/core", "caching.h", True),
        ("replicator/stub", "caching.h", True),
        ("pdla/interpose", "caching.h", False),
        ("replicator/stub", "recorder.h", False),
    ],
)
def test_a_part_of_the_library_includes_only_what_is_below_it(
    commands: dict[str, list[str]], tmp_path: Path, part: str, header: str, allowed: bool
) -> None:
    source = tmp_path / "includes.c"
    source.write_text(f'#include "{header}"\n')
    words = commands[part]
    check = [*words[: words.index("-o")], "-fsyntax-only", source]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == allowed, done.stderr
    assert allowed or f"{header}: No such file" in done.stderr


def test_no_part_of_the_library_includes_a_header_by_a_path_of_its_own() -> None:
    """The compiler finds ``"../stub/redirection.h"`` whatever directories a part is given."""
    parts = ["pdla/interpose", "pdla/caching", "pdla/simulator/core", "collectors/shim", "replicator/stub"]
    sources = [path for part in parts for path in (REPOSITORY / part).rglob("*.[ch]")]
    assert len(sources) > 50
    assert not [path for path in sources if re.search(r'#\s*include\s*"[^"]*/', path.read_text())]


def test_no_two_sources_of_the_library_have_the_same_name() -> None:
    """One command compiles them for the tests. gcc names its counts of lines after the source."""
    sources = [path.name for room in ("pdla/interpose", *TOOLS) for path in (REPOSITORY / room).glob("*.c")]
    assert len(sources) > 50
    assert len(set(sources)) == len(sources)
