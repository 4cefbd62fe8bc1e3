"""How many faults pdla finds in programs that have one each, and how many of its findings are right.

    python -m benchmarks.findings [--seeds 6 7 8 9 10 11] [--kinds ...] [--corpus build/findings] [--write]
    python -m benchmarks.findings --darshan libdarshan.so --drishti bin/drishti

benchmarks/fault_corpus.py has the programs. Each runs once under `pdla trace --posix`; traces that are in the corpus
already are judged again. With --darshan each also runs once under Darshan, and pdla judges the imported log, too. With
--drishti Drishti judges the logs. This prints what was missed and what was reported wrongly, and a table; --write puts
the table into docs/findings.md. CORPUS/results.json has what was said about each program.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.contestants import BINARIES, SHARED_PROCESSORS, SOURCES
from benchmarks.doc_tables import DOCS, _table, placed
from benchmarks.fault_corpus import KINDS, Program, programs
from benchmarks.processes import end_on_signals, output_of
from pdla.collectors.darshan import import_darshan
from pdla.collectors.tracefile import read_trace
from pdla.findings import find
from pdla.layouts.config import DEFAULT_FILE
from pdla.steps import plan
from pdla.traces.trace import Trace

CORPUS = Path(__file__).resolve().parent.parent / "build" / "findings"
PAGE = DOCS / "findings.md"
SEEDS = tuple(range(6, 12))
"""Those of the table in the docs. The detectors were tuned with others: 0 to 5."""
MEMORY = Path("/dev/shm")
"""Where the programs' files are: all that they wait for is their slow storage."""

SMALL = {"small", "small-strided", "independent", "shared-pointer", "interleaved"}
DRISHTI: Mapping[str, Collection[str]] = {
    "P05": SMALL,  # many small reads
    "P06": SMALL,  # many small writes
    "P08": {"misaligned", "fragments", *SMALL},  # requests off the file system's blocks
    "P09": {"re-read"},  # redundant reads
    "P10": {"never-read"},  # redundant writes
    "P11": SMALL,  # random reads
    "P13": SMALL,  # random writes
    "P15": SMALL,  # many small reads of a shared file
    "P16": SMALL,  # many small writes to a shared file
    "P17": {"open-storm"},  # long metadata operations
    "P18": {"imbalance", "straggler"},  # ranks access different numbers of bytes
    "P19": {"imbalance", "straggler"},  # ranks take different times
    "P21": {"imbalance"},  # the same of writes
    "P22": {"imbalance"},  # the same of reads
    "M02": {"independent", "small-strided", "interleaved"},  # no collective reads
    "M03": {"independent", "small-strided", "interleaved"},  # no collective writes
    "M09": {"hints"},  # the number of aggregators
}
"""The kinds that may stand behind each of Drishti's codes. Left out are those that are no faults, or of no kind here,
and M06 and M07, which recommend nonblocking calls to every program that has none."""

NOT_IN_DARSHAN: Mapping[str, str] = {
    "hints": "which requests were made for which collective calls",
    "read-modify-write": "file views",
    "shared-pointer": "which calls use the shared file pointer",
    "open-storm": "when files were opened",
}
"""Kinds that an imported log cannot show, because it does not have this."""

PDLA, LOG, OTHER = "pdla", "pdla, Darshan log", "Drishti"
CANNOT: Mapping[str, Collection[str]] = {
    PDLA: (),
    LOG: NOT_IN_DARSHAN,
    OTHER: KINDS.keys() - {kind for kinds in DRISHTI.values() for kind in kinds},
}
"""The kinds that tools have no report for."""
NOT_ASKED = "-"


class Report(NamedTuple):
    """What a tool says about a program. It is right if the program has one of these kinds of faults."""

    program: Program
    name: str
    kinds: Collection[str]

    @property
    def right(self) -> bool:
        """Whether the program has it."""
        return not self.program.kinds.isdisjoint(self.kinds)


def compile_faults(directory: Path) -> Path:
    """The program that makes the steps, compiled with its slow storage."""
    flags = ["-std=gnu11", "-O2"]
    library = directory / "libslow_storage.so"
    output_of(["gcc", *flags, "-fPIC", "-shared", SOURCES / "slow_storage.c", "-o", library, "-ldl"])
    program = directory / "faults"
    output_of([BINARIES / "mpicc", *flags, SOURCES / "faults.c", library, f"-Wl,-rpath,{directory}", "-o", program])
    return program


def run(program: Program, executable: Path, variables: Mapping[str, str], tool: Sequence[str | Path] = ()) -> None:
    """Run a program, by the words of a tool, on files that are removed after it."""
    with tempfile.TemporaryDirectory(prefix="pdla-faults-", dir=MEMORY) as directory:
        file = Path(directory) / "data"
        if program.read_first:
            file.touch()
            os.truncate(file, program.read_first)
        command = [BINARIES / "mpiexec", "-n", str(program.ranks), executable, file, *program.words]
        output_of([*tool, *command], {**SHARED_PROCESSORS, **variables})


def traced(program: Program, executable: Path, corpus: Path) -> Path:
    """The program's trace."""
    trace = corpus / f"{program.key}.h5"
    if not trace.exists():
        tool = [BINARIES / "pdla", "trace", "--posix", "-o", trace, "--"]
        run(program, executable, {"PDLA_HOME": str(corpus / "home")}, tool)
    return trace


def logged(program: Program, executable: Path, corpus: Path, darshan: Path) -> Path:
    """The program's Darshan log, with every access."""
    log = corpus / f"{program.key}.darshan"
    if not log.exists():
        with tempfile.TemporaryDirectory(dir=corpus) as directory:
            given = {
                "LD_PRELOAD": str(darshan),
                "DARSHAN_LOGPATH": directory,
                "DARSHAN_MOD_ENABLE": "DXT_POSIX,DXT_MPIIO",
                "DARSHAN_EXCLUDE_DIRS": f"/proc,/sys,{MEMORY}/mpich",  # by default all of /dev
            }
            run(program, executable, given)
            next(Path(directory).glob("*.darshan")).rename(log)
    return log


def found_by_pdla(trace: Trace) -> dict[str, Collection[str]]:
    """pdla's findings, with a plan as `pdla report` makes it."""
    return {finding.kind: {finding.kind} for finding in find(trace, plan(trace, DEFAULT_FILE, hypothetical=True))}


def found_by_drishti(log: Path, drishti: Path) -> dict[str, Collection[str]]:
    """Drishti's codes that stand for kinds of findings."""
    with tempfile.TemporaryDirectory() as directory:
        output_of([drishti, "--csv", "--export_dir", directory, log])
        with next(Path(directory).glob("*.csv")).open() as file:
            (said,) = csv.DictReader(file)
    return {code: kinds for code, kinds in DRISHTI.items() if said[code] == "True"}


def judged(
    chosen: Sequence[Program], corpus: Path, darshan: Path | None, drishti: Path | None
) -> dict[str, list[Report]]:
    """What each tool says about the programs."""
    tools = [PDLA, *([LOG] if darshan else []), *([OTHER] if drishti else [])]
    reports: dict[str, list[Report]] = {tool: [] for tool in tools}
    with tempfile.TemporaryDirectory() as directory:
        executable = compile_faults(Path(directory))
        for program in chosen:
            said = {PDLA: found_by_pdla(read_trace(traced(program, executable, corpus)))}
            if darshan:
                log = logged(program, executable, corpus, darshan)
                said[LOG] = found_by_pdla(import_darshan(log))
                if drishti:
                    said[OTHER] = found_by_drishti(log, drishti)
            for tool, names in said.items():
                reports[tool] += [Report(program, name, kinds) for name, kinds in names.items()]
    return reports


def missed(kind: str, chosen: Sequence[Program], reports: Sequence[Report]) -> list[Program]:
    """The programs that have the fault of a kind, and about which no report may mean it."""
    found = {report.program.name for report in reports if kind in report.kinds}
    return [one for one in chosen if one.bad and one.kind == kind and one.name not in found]


def cells(tool: str, kind: str, chosen: Sequence[Program], reports: Sequence[Report]) -> list[str]:
    """The faults of a kind that a tool found, and its right reports of all those that may mean this kind."""
    if kind in CANNOT[tool]:
        return [NOT_ASKED, ""]
    faults = sum(one.bad and one.kind == kind for one in chosen)
    own = [report for report in reports if kind in report.kinds]
    right = sum(report.right for report in own)
    return [f"{faults - len(missed(kind, chosen, reports))} of {faults}", f"{right} of {len(own)}"]


def of_all(tool: str, chosen: Sequence[Program], reports: Sequence[Report]) -> list[str]:
    """The faults of all kinds that a tool can find, and its right reports of all."""
    kinds = [kind for kind in KINDS if cells(tool, kind, chosen, reports)[0] != NOT_ASKED]
    faults = sum(one.bad and one.kind in kinds for one in chosen)
    found = faults - sum(len(missed(kind, chosen, reports)) for kind in kinds)
    return [f"{found} of {faults}", f"{sum(report.right for report in reports)} of {len(reports)}"]


def table(chosen: Sequence[Program], reports: Mapping[str, Sequence[Report]]) -> list[str]:
    """A line for each kind, and one for all together."""
    head = ["finding", *(f"{tool}: {what}" for tool in reports for what in ("found", "right"))]
    lines = []
    for kind in dict.fromkeys(one.kind for one in chosen):
        lines.append([f"`{kind}`", *(cell for tool, own in reports.items() for cell in cells(tool, kind, chosen, own))])
    lines.append(["all", *(cell for tool, own in reports.items() for cell in of_all(tool, chosen, own))])
    return _table(head, lines)


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="the directory of traces and logs")
    parser.add_argument("--darshan", type=Path, metavar="LIBDARSHAN.SO", help="make Darshan logs, too")
    parser.add_argument("--drishti", type=Path, metavar="PROGRAM", help="let Drishti judge these logs")
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    options = parser.parse_args()
    if options.drishti and not options.darshan:
        parser.error("--drishti judges the logs that --darshan makes")
    end_on_signals()
    options.corpus.mkdir(parents=True, exist_ok=True)
    chosen = [one for seed in options.seeds for one in programs(seed) if one.kind in options.kinds]
    reports = judged(chosen, options.corpus, options.darshan, options.drishti)
    for tool, own in reports.items():
        for kind in options.kinds:
            if cells(tool, kind, chosen, own)[0] != NOT_ASKED:
                for one in missed(kind, chosen, own):
                    say(f"{tool}: {one.name}: missed; it said {[each.name for each in own if each.program == one]}")
        for report in own:
            if not report.right:
                say(f"{tool}: {report.program.name}: wrong: {report.name}")
    results = table(chosen, reports)
    say("\n".join(["", *results]))
    said = {
        one.name: {
            "has": sorted(one.kinds),
            **{tool: [each.name for each in own if each.program == one] for tool, own in reports.items()},
        }
        for one in chosen
    }
    (options.corpus / "results.json").write_text(json.dumps(said, indent=1) + "\n")
    if options.write:
        PAGE.write_text(placed(PAGE.read_text(), results))


if __name__ == "__main__":
    main()
