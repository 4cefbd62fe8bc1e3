"""Run the I/O tests of MPI libraries, as those built them, natively, traced and redirected, and print a table.

    python -m tests.searches.suites --programs FOLDER [--mpi4py FOLDER] [--mpi NAME ...] [--modes MODE ...]
                          [--temporary FOLDER]

``--programs`` has an executable FOLDER/MPI/PROGRAM for each MPI, and FOLDER/list with lines "PROGRAM RANKS [ARGUMENT
...]"; ``--mpi4py`` has FOLDER/MPI with the tests of that MPI's mpi4py. Nothing is fetched or built. A program counts as
the same when its exit code and, where that is 0 natively, its lines, in any order and without numbers that have a
point, are those of the native run. The trace names the files to replicate; replicas for reading are of what
the native run leaves. In brackets: programs of which something was redirected.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pdla.collectors.rawlog import read_raw
from pdla.errors import PdlaError
from tests.searches.mpiio import CACHED, ON_NODES, cache_variables
from tests.support.handmade_maps import Replica, write_map
from tests.support.mpi import Mpi, available_mpis, build_coherence_library, build_library, debian_mpis
from tests.support.namespace_nodes import on_nodes

MODES = ("traced", "redirected", "close", "lease", "e10", "e10-exchange", "s4d")
SECONDS = 600
HUNG = -1000
"""The exit code of what did not end by then; nothing is the same as that."""
LARGEST = 64 << 20  # what a replica takes: more is read and written past it
TESTS, RANKS = ("test_io", "test_file"), 2  # of mpi4py

# mpi4py's files have names by chance, and are deleted on close, which is why nothing of them would be redirected.
# What the ranks say is gathered, so that no line is torn.
MPI4PY = """
import io, itertools, os, sys, unittest
sys.path.insert(0, sys.argv[1])
module = __import__(sys.argv[2])
numbers = itertools.count()
def maketemp(prefix):
    open(name := os.path.abspath(f"{prefix}{next(numbers)}"), "w").close()
    return name
module.maketemp = maketemp
module.MPI.MODE_DELETE_ON_CLOSE = 0
said = io.StringIO()
runner = unittest.TextTestRunner(said, verbosity=2)
done = unittest.main(module, argv=sys.argv[2:], testRunner=runner, exit=False).result
print("".join(module.MPI.COMM_WORLD.gather(said.getvalue()) or ()), flush=True)
sys.exit(not done.wasSuccessful())
"""


class Program(NamedTuple):
    """A program to run, on so many ranks."""

    name: str
    words: tuple[str, ...]
    ranks: int


class Seen(NamedTuple):
    """The results to compare."""

    code: int
    lines: tuple[str, ...]


def programs_in(folder: Path, mpi: Mpi) -> list[Program]:
    """The programs of the list that this MPI has built."""
    lines = [line.split() for line in (folder / "list").read_text().splitlines()]
    found = [(folder / mpi.name / name, int(ranks), more) for name, ranks, *more in lines]
    return [Program(path.name, (str(path), *more), ranks) for path, ranks, more in found if path.exists()]


def mpi4py_in(folder: Path, mpi: Mpi) -> list[Program]:
    """mpi4py's tests, with the mpi4py of this MPI."""
    tests = folder / mpi.name
    there = [name for name in TESTS if (tests / f"{name}.py").exists()]
    return [Program(name, (mpi.python, "-c", MPI4PY, str(tests), name), RANKS) for name in there]


def run(
    mpi: Mpi, program: Program, directory: Path, settings: Mapping[str, str | Path], starter: Sequence[Path] = ()
) -> Seen:
    """Run a program in a directory."""
    (out := directory / ".out").mkdir(parents=True, exist_ok=True)
    words = [f"{name}={value}" for name, value in settings.items()]
    command = mpi.command(program.ranks, *starter, "env", *words, *program.words)
    environment = {**os.environ, **mpi.env, "TMPDIR": str(out)}
    # Output goes into a file: hanging ranks would keep a pipe open.
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()  # the launcher ends its ranks
            process.wait()
            code = HUNG
        output.seek(0)
        said = output.read()
    said = re.sub(r"\d+\.\d+\S*", "#", said.replace(str(directory), "."))
    return Seen(code, tuple(sorted(line for line in said.splitlines() if line.strip())))


def files_of(logs: Path) -> dict[str, int]:
    """The files that a traced program opened, and the last byte that it accessed of each."""
    try:
        trace = read_raw(logs)
        accesses = trace.accesses()
    except PdlaError:
        return {}
    ends = (accesses["offset"] + accesses["length"]).groupby(accesses["file"]).max()
    return {
        str(path): int(ends.get(number, 0)) for number, path in trace.files[["file", "path"]].itertuples(index=False)
    }


def prepare(directory: Path, sizes: Mapping[str, int], reading: bool) -> Path:
    """A map of replicas of these files, for reading or for writing, in strips of 1000 and 500 bytes."""
    replicas = []
    for number, (name, size) in enumerate(sizes.items()):
        file, folder = directory / name, directory / ".replicas" / f"{number}"
        length = min(file.stat().st_size if reading else size, LARGEST)
        replica = Replica(length, length=length, strips=[1000, 500])
        replicas.append(
            (file, [replica.build(file.read_bytes()[:length], folder) if reading else replica.prepare(folder)])
        )
    files, targets = (replicas, []) if reading else ([], replicas)
    write_map(directory / "map", files, targets=targets)
    return directory / "map"


def redirected_in(reports: Path) -> bool:
    """Whether any rank redirected a byte."""
    files: Iterable[dict[str, Any]] = (
        file[key]
        for path in reports.glob("*/*.json")
        for part, key in (("files", "redirected"), ("writes", "redirected"), ("caches", "written"))
        for file in json.loads(path.read_text())[part]
    )
    return any(file["bytes"] for file in files)


def attempt(
    mpi: Mpi, program: Program, library: str, folder: Path, modes: Sequence[str]
) -> dict[str, tuple[bool, bool]]:
    """By mode, whether a program does the same as natively, and whether something was redirected."""
    preload = {"LD_PRELOAD": library}
    native = run(mpi, program, folder / "native", {})
    traced = run(mpi, program, folder / "traced", {**preload, "PDLA_TRACE": folder / "logs"})
    found = {"traced": (same(mpi, program, "traced", native, traced), False)}
    names = {Path(path).name: size for path, size in files_of(folder / "logs").items() if size > 0}
    left = {name: size for name, size in names.items() if (folder / "native" / name).is_file()}
    left = {name: size for name, size in left.items() if (folder / "native" / name).stat().st_size > 0}
    for mode in modes:
        (directory := folder / mode).mkdir()
        reading = mode == "redirected"
        wanted = native
        if reading and left:
            (folder / "beside").mkdir()
            for name, to in itertools.product(left, (directory, folder / "beside")):
                shutil.copy(folder / "native" / name, to)
            wanted = run(mpi, program, folder / "beside", {})
        made = prepare(directory, left if reading else names, reading)
        (reports := directory / ".reports").mkdir()
        writes = mode if mode in ("close", "lease") else "original"
        settings: dict[str, str | Path] = {**preload, "PDLA_MAP": made, "PDLA_REPORT": reports, "PDLA_WRITES": writes}
        if mode in CACHED:
            settings |= cache_variables(mode, folder / "cache" / mode)
        starter = [on_nodes(folder)] if mode in ON_NODES else []
        seen = run(mpi, program, directory, settings, starter)
        found[mode] = same(mpi, program, mode, wanted, seen), redirected_in(reports)
    return found


def same(mpi: Mpi, program: Program, mode: str, wanted: Seen, seen: Seen) -> bool:
    """Whether a program did what it does natively; differences are printed on standard error."""
    lines = [f"- {line}" for line in wanted.lines if line not in seen.lines]
    lines += [f"+ {line}" for line in seen.lines if line not in wanted.lines]
    if seen.code == wanted.code != HUNG and (wanted.code != 0 or seen.lines == wanted.lines):
        return True
    print(
        f"{mpi.name} {program.name} {mode}: exit {seen.code}, natively {wanted.code}",
        *lines[:8],
        sep="\n",
        file=sys.stderr,
    )
    return False


def row(mpi: Mpi, suite: str, programs: Sequence[Program], library: str, folder: Path, modes: Sequence[str]) -> str:
    """A line of the table."""
    results = []
    for program in programs:
        with tempfile.TemporaryDirectory(dir=folder) as directory:
            results.append(attempt(mpi, program, library, Path(directory).resolve(), modes))
        done = ", ".join(mode if same else f"not {mode}" for mode, (same, _) in results[-1].items())
        print(f"{mpi.name} {program.name}: {done}", file=sys.stderr, flush=True)
    cells = []
    for mode in ("traced", *modes):
        same, redirected = (sum(result[mode][part] for result in results) for part in (0, 1))
        cells.append(f"{same}" if mode == "traced" else f"{same} ({redirected})")
    return f"| {suite} | {mpi.name} | {' | '.join([str(len(programs)), *cells])} |"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--programs", type=Path, required=True, help="what the suites' own builds have made")
    parser.add_argument("--mpi4py", type=Path, help="mpi4py's tests")
    parser.add_argument("--mpi", nargs="*", help="only these")
    parser.add_argument(
        "--temporary", type=Path, default=Path(tempfile.gettempdir()), help="where the files are written"
    )
    parser.add_argument("--modes", nargs="*", choices=MODES[1:], default=MODES[1:], help="traced and only these")
    wanted = parser.parse_args()
    print(
        f"| suite | MPI | programs | {' | '.join(['traced', *wanted.modes])} |",
        "|---|---|" + "---|" * (2 + len(wanted.modes)),
        sep="\n",
        flush=True,
    )
    with tempfile.TemporaryDirectory(dir=wanted.temporary) as folder:
        libraries = (
            build_library(Path(folder) / "libpdla.so"),
            build_coherence_library(Path(folder) / "libpdla-coherence.so"),
        )
        library = ":".join(map(str, libraries))  # as pdla run preloads them
        for parameter in [*available_mpis(), *debian_mpis()]:
            (mpi,) = parameter.values
            if wanted.mpi is not None and mpi.name not in wanted.mpi:
                continue
            programs = programs_in(wanted.programs.resolve(), mpi)
            print(row(mpi, "MPICH and ROMIO", programs, library, Path(folder), wanted.modes), flush=True)
            if wanted.mpi4py and (tests := mpi4py_in(wanted.mpi4py.resolve(), mpi)):
                print(row(mpi, "mpi4py", tests, library, Path(folder), wanted.modes), flush=True)


if __name__ == "__main__":
    main()
