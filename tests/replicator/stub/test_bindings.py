"""What depends on the language of a redirected program: handles, statuses, MPI_BOTTOM, error handlers.

Each program is run natively, redirected by --writes close and lease, and with caches, of which one is soon full; a test
looks at the lines of its hazard.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.searches.mpiio import CACHED, cache_variables
from tests.support.handmade_maps import Replica, write_map
from tests.support.mpi import REPOSITORY, Mpi, available_mpis, debian_mpis

PIECE, ROWS, START, COLUMNS = 96, 60, 480, 4
PROGRAMS = REPOSITORY / "tests/programs"
PLANNED = ("close", "lease")
STAYS = {"PDLA_ROMIO_CB_WRITE": "disable"}
"""Otherwise E10 leaves collective writes to the MPI library where it measures that this is faster."""
CACHES = {"e10": STAYS, "e10-close": STAYS, "s4d": {}, "full": {**STAYS, "PDLA_CACHE_BYTES": "1024"}}
MODES = ("native", *PLANNED, *CACHES)


class Seen(NamedTuple):
    """By mode: the ranks' output, the content of the files that they wrote, bytes read from replicas, and written to
    replicas or caches; why writes were not cached."""

    said: dict[str, list[str]]
    written: dict[str, list[bytes]]
    read: dict[str, int]
    redirected: dict[str, int]
    refused: dict[str, set[str]]


def columns() -> Replica:
    column = ROWS * PIECE
    loops = [(ROWS, COLUMNS * PIECE, PIECE), (COLUMNS, PIECE, column)]
    return Replica(size=COLUMNS * column, start=START, length=PIECE, loops=loops, strips=[1000, 500])


def writes_of(mode: str, place: Path) -> dict[str, str]:
    """The variables of a mode."""
    if mode in CACHES:
        (place / "home").mkdir()
        caching = cache_variables(mode if mode in CACHED else "e10", place / "cache")
        return {"PDLA_HOME": str(place / "home"), **caching, **CACHES[mode]}
    return {"PDLA_WRITES": mode}


def without_holes(content: bytes) -> bytes:
    """What the two ranks wrote to a new file."""
    rows = range(START, len(content), COLUMNS * PIECE)
    return b"".join(content[row : row + 2 * PIECE] for row in rows)


def look(mpi: Mpi, library: Path, directory: Path, words: list[str], *more: str) -> Seen:
    content = random.Random(1).randbytes(START + COLUMNS * ROWS * PIECE + 333)
    seen = Seen({}, {}, {}, {}, {})
    for mode in MODES:
        place = directory / mode
        (place / "reports").mkdir(parents=True)
        data = place / "data"
        data.write_bytes(content)
        # What MPICH leaves in the holes of a new file depends on what its memory held before.
        (place / "written").write_bytes(bytes(len(content)))
        targets = [(place / "written", [columns().prepare(place / "writing")])]
        write_map(place / "map", [(data, [columns().build(content, place / "reading")])], targets=targets)
        settings = [f"PDLA_MAP={place / 'map'}", f"PDLA_REPORT={place / 'reports'}", f"LD_PRELOAD={library}"]
        settings += [f"{name}={value}" for name, value in writes_of(mode, place).items()]
        mpi.run(mpi.command(2, "env", *(settings if mode != "native" else []), *words, place, place / "out", *more))
        seen.said[mode] = [line for rank in range(2) for line in (place / f"out.{rank}").read_text().splitlines()]
        seen.written[mode] = [(place / "written").read_bytes(), without_holes((place / "grown").read_bytes())]
        reports = [json.loads(path.read_text()) for path in (place / "reports").glob("*/*.json")]
        seen.read[mode] = sum(file["replica"]["bytes"] for report in reports for file in report["files"])
        planned = sum(file["redirected"]["bytes"] for report in reports for file in report["writes"])
        caches = [cache for report in reports for cache in report["caches"]]
        seen.redirected[mode] = planned + sum(cache["written"]["bytes"] for cache in caches)
        seen.refused[mode] = {passed["why"] for cache in caches for passed in cache["passed"]}
    return seen


BINDINGS = [
    *(pytest.param((mpi.values[0], "mpi4py"), marks=mpi.marks, id=f"{mpi.id}-mpi4py") for mpi in available_mpis()),
    *(
        pytest.param((mpi.values[0], binding), marks=mpi.marks, id=f"{mpi.id}-{name}")
        for mpi in debian_mpis()
        for name, binding in {"mpif.h": "", "mpi": "-DMODULE", "mpi_f08": "-DF08"}.items()
    ),
]


@pytest.fixture(scope="module", params=BINDINGS)
def seen(request: pytest.FixtureRequest, library: Path, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    mpi, binding = request.param
    directory = tmp_path_factory.mktemp("bindings")
    if binding == "mpi4py":
        return look(mpi, library, directory, [mpi.python, str(PROGRAMS / "bindings.py")])
    fortran = Mpi(**{**vars(mpi), "mpicc": mpi.tool("mpif90")})
    flags = ["-fallow-argument-mismatch", "-w", f"-J{directory}", *filter(None, [binding])]
    program = fortran.compile(PROGRAMS / "bindings.F90", directory / "bindings", *flags)
    # Open MPI 4.1 takes Fortran's MPI_BOTTOM in MPI_File calls for a variable, and crashes.
    found = look(mpi, library, directory, [str(program)], *(["no-bottom"] if mpi.name == "debian-openmpi" else []))
    if mpi.name == "debian-mpich" and binding == "-DF08":
        # Its mpi_f08 opens files past the library, which then leaves all to MPI.
        found.read.update(dict.fromkeys(MODES[1:], 1))
        found.redirected.update(dict.fromkeys(MODES[1:], 1))
        found.refused["full"].add("no room in the cache")
    return found


def check(seen: Seen, hazard: int) -> None:
    said = {mode: [line for line in lines if line.split()[0] == str(hazard)] for mode, lines in seen.said.items()}
    assert said["native"] != []
    assert said == dict.fromkeys(MODES, said["native"])
    assert all(seen.read[mode] > 0 and seen.redirected[mode] > 0 for mode in MODES[1:])


@pytest.mark.thorough(2)
def test_h01_what_was_written_is_read_in_every_binding(seen: Seen) -> None:
    check(seen, 1)
    assert seen.written == dict.fromkeys(MODES, seen.written["native"])


def test_h06_split_collectives_of_every_binding(seen: Seen) -> None:
    check(seen, 6)


def test_h07_nonblocking_calls_of_every_binding(seen: Seen) -> None:
    check(seen, 7)


def test_h09_memory_datatypes_and_mpi_bottom_of_every_binding(seen: Seen) -> None:
    check(seen, 9)


def test_h11_statuses_of_every_binding_and_none(seen: Seen) -> None:
    check(seen, 11)


def test_h14_the_size_in_every_binding(seen: Seen) -> None:
    check(seen, 14)


def test_h17_error_handlers_of_every_binding(seen: Seen) -> None:
    check(seen, 17)


def test_h45_the_size_of_a_growing_file_in_every_binding(seen: Seen) -> None:
    check(seen, 45)


def test_h49_what_is_written_while_older_bytes_go_home_in_every_binding(seen: Seen) -> None:
    check(seen, 49)


def test_h52_a_cache_that_is_full_in_every_binding(seen: Seen) -> None:
    assert "no room in the cache" in seen.refused["full"]
