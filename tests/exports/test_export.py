"""Traces taken to other tools: these tools themselves read what is written."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars
import pytest
from pyarrow import parquet  # type: ignore[import-untyped]

from pdla import load
from pdla.analyzers.analysis import analyze
from pdla.collectors import workloads
from pdla.collectors.csv_parquet import import_csv, import_parquet
from pdla.collectors.darshan import import_darshan
from pdla.collectors.tracefile import write_trace
from pdla.exports import calls, tracks
from pdla.exports.csv_parquet import TABLES
from pdla.traces.tables import POSIX_COLUMNS, nanoseconds
from pdla.traces.trace import Trace
from tests.support.command_line import InProcess, Pdla
from tests.support.compilers import REPOSITORY
from tests.support.handmade_traces import Call, make_trace
from tests.support.mpi import Mpi
from tests.support.trace_processor import query

DOCS = (REPOSITORY / "docs" / "exports.md").read_text()


def traced(mpi: Mpi, directory: Path, mode: str, ranks: int = 3) -> Trace:
    """The trace, in run.h5, of a real program and its POSIX calls."""
    pdla = Pdla(directory, mpi.env)
    program = mpi.compile(REPOSITORY / "tests/programs/library_io.c", directory / "program")
    command = mpi.command(ranks, program, mode, directory / "data")
    pdla.run("trace", "--posix", "-o", "run.h5", "--", *command)
    return load(directory / "run.h5")


@pytest.fixture
def pdla(tmp_path: Path) -> InProcess:
    return InProcess(tmp_path, {})


def export(pdla: Pdla, trace: Trace, form: str, *words: str, output: str = "out") -> Path:
    """What ``pdla export`` makes of a trace."""
    write_trace(trace, pdla.directory / "run.h5")
    pdla.run("export", "run.h5", "--to", form, *words, "-o", output)
    return pdla.directory / output


def events(path: Path) -> list[dict[str, Any]]:
    """The events of a Chrome trace."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found = json.loads(text)["traceEvents"]
    assert isinstance(found, list)
    return found


SLICES = """
    select process.pid as rank, thread.name as track, slice.ts as ts, slice.dur as dur, slice.name as name,
      extract_arg(slice.arg_set_id, 'args.call') as call, extract_arg(slice.arg_set_id, 'args.file') as file,
      extract_arg(slice.arg_set_id, 'args.offset') as offset, extract_arg(slice.arg_set_id, 'args.length') as length,
      slice.depth as depth
    from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
    order by rank, track, call, ts, dur, offset"""
FLOWS = """
    select p_out.pid as rank, s_out.name as name, p_in.pid as to_rank, s_in.name as to_name
    from flow join slice s_out on slice_out = s_out.id join slice s_in on slice_in = s_in.id
    join thread_track k_out on s_out.track_id = k_out.id join thread t_out on k_out.utid = t_out.utid
    join process p_out on t_out.upid = p_out.upid
    join thread_track k_in on s_in.track_id = k_in.id join thread t_in on k_in.utid = t_in.utid
    join process p_in on t_in.upid = p_in.upid order by 1, 2, 3, 4"""
FAULTS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


def slices_of(trace: Trace) -> list[tuple[Any, ...]]:
    """(rank, level, start, duration, name, call, file, offset, length) of each call, times in nanoseconds."""
    paths = [*trace.files["path"], ""]
    found = []
    for level, table in (("MPI-IO", trace.records), ("POSIX", trace.posix)):
        starts, ends = nanoseconds(table["t_start"]).tolist(), nanoseconds(table["t_end"]).tolist()
        for row, start, end in zip(table.itertuples(), starts, ends, strict=True):
            # MPI calls that move nothing have no place.
            place = (row.offset, row.length) if level == "POSIX" or row.op != "other" else (None, None)
            found.append((row.rank, level, start, end - start, row.kind, row.call, paths[row.file], *place))
    return found


def test_perfetto_has_a_slice_with_its_place_and_time_for_each_call(mpi: Mpi, tmp_path: Path) -> None:
    trace = traced(mpi, tmp_path, "aggregated")
    Pdla(tmp_path, {}).run("export", "run.h5", "--to", "perfetto", "-o", "run.json.gz")
    found, faults, names = query(
        tmp_path / "run.json.gz", SLICES, FAULTS, "select pid, name from process where name is not null order by pid"
    )
    assert faults == []
    assert Counter(row[:-1] for row in found) == Counter(slices_of(trace))
    assert {row[-1] for row in found} == {0}
    host = trace.hosts[0]
    assert names == [*((rank, f"rank {rank} ({host})") for rank in range(3)), (3, "all ranks")]


def test_arrows_go_from_a_collective_call_to_the_requests_of_its_aggregator(mpi: Mpi, tmp_path: Path) -> None:
    trace = traced(mpi, tmp_path, "aggregated")
    (writer,) = trace.posix.loc[trace.posix["op"] == "write", "rank"]
    Pdla(tmp_path, {}).run("export", "run.h5", "--to", "perfetto", "-o", "run.json")
    (flows,) = query(tmp_path / "run.json", FLOWS)
    assert flows == [(rank, "MPI_File_write_at_all", writer, "pwrite") for rank in range(3)]


def test_calls_under_way_together_are_on_tracks_of_their_own(mpi: Mpi, tmp_path: Path) -> None:
    trace = traced(mpi, tmp_path, "nonblocking", ranks=2)
    Pdla(tmp_path, {}).run("export", "run.h5", "--to", "perfetto", "-o", "run.json")
    found, faults = query(tmp_path / "run.json", SLICES, FAULTS)
    assert faults == []
    assert {row[-1] for row in found} == {0}
    assert {row[1] for row in found} >= {"MPI-IO", "MPI-IO 2", "POSIX"}
    named = [(row[0], row[1].removesuffix(" 2").removesuffix(" 3"), *row[2:-1]) for row in found]
    assert Counter(named) == Counter(slices_of(trace))


def test_every_argument_of_a_call_is_that_of_its_record(pdla: InProcess) -> None:
    trace = workloads.mpi_tile_io(2, 2, 8, 90, 4, 2, 2, collective=True)
    path = export(pdla, trace, "perfetto", output="out.json")
    (event,) = [one for one in events(path) if one["ph"] == "X" and one["cat"] == "read" and one["pid"] == 3]
    (row,) = trace.records[(trace.records["op"] == "read") & (trace.records["rank"] == 3)].itertuples()
    assert event["args"] == {
        "call": row.call,
        "file": "/tile/file",
        "offset": row.offset,
        "length": row.length,
        "requested": row.length,
        "extents": 90,
        "view": row.view,
        "position": 0,
        "collective": True,
        "size": "small",
        "redirected": False,
        "error": 0,
    }
    assert (event["ts"], event["dur"], event["name"]) == (row.t_start * 1e6, 1000.0, "MPI_File_read_at_all")


def test_the_counters_add_up_to_the_bytes_moved(pdla: InProcess) -> None:
    trace = workloads.ior(4, 65536, 4096, 2)
    counters = [one for one in events(export(pdla, trace, "perfetto", output="o.json")) if one["ph"] == "C"]
    times = np.array([one["ts"] for one in counters])
    for op in ("read", "write"):
        rates = np.array([one["args"][op] for one in counters])
        moved = trace.records.loc[trace.records["op"] == op, "length"].sum()
        assert (rates[:-1] * np.diff(times) / 1e6).sum() == pytest.approx(moved, rel=1e-3)


def posix(*rows: Sequence[Any]) -> pd.DataFrame:
    """POSIX calls from (rank, call, op, offset, length, milliseconds of begin and end), in file 0."""
    columns = ("rank", "call", "op", "offset", "length", "t_start", "t_end")
    table = pd.DataFrame(list(rows), columns=list(columns)).assign(file=0, error=0)
    table[["t_start", "t_end"]] /= 1000
    table["kind"] = pd.Categorical(["p" + op for op in table["op"]])
    table["op"] = pd.Categorical(table["op"], categories=["read", "write", "other"])
    return table[list(POSIX_COLUMNS)].astype({n: t for n, t in POSIX_COLUMNS.items() if t != "category"})


def arrows(path: Path) -> Counter[tuple[int, int, float]]:
    """(rank, rank it leads to, microseconds there) of each arrow; its ends are inside slices."""
    found = events(path)
    slices: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for one in found:
        if one["ph"] == "X":
            slices.setdefault((one["pid"], one["tid"]), []).append((one["ts"], one["ts"] + one["dur"]))
    starts = {one["id"]: one for one in found if one["ph"] == "s"}
    stops = {one["id"]: one for one in found if one["ph"] == "f"}
    assert starts.keys() == stops.keys()
    for one in [*starts.values(), *stops.values()]:
        assert any(low <= one["ts"] < high for low, high in slices[one["pid"], one["tid"]])
    return Counter((one["pid"], stops[number]["pid"], stops[number]["ts"]) for number, one in starts.items())


def test_arrows_lead_only_to_ranks_whose_requests_touch_bytes_of_the_call(pdla: InProcess) -> None:
    # Ranks 0 and 2 are aggregators, each of the bytes of two ranks; rank 2 needs two requests. The
    # second collective call is at the same place, later, and each rank works for itself.
    made = make_trace([Call(rank, "write", rank * 100, 100, "/a", True) for rank in (0, 1, 2, 3) for _ in range(2)])
    rows = [(0, 0, "write", 0, 200, 0.2, 0.4), (2, 0, "write", 200, 100, 0.3, 0.5), (2, 0, "write", 300, 100, 0.6, 0.8)]
    own = [(rank, 1, "write", rank * 100, 100, 1.25, 1.75) for rank in (0, 1, 2, 3)]
    alone = [(3, -1, "write", 0, 400, 0.1, 0.9), (3, 0, "read", 0, 0, 0.1, 0.9)]
    table = posix(rows[0], own[0], own[1], *rows[1:], own[2], *alone, own[3])
    trace = Trace(made.records, made.files, made.views, ranks=4, posix=table)
    expected = Counter([(0, 0, 300.0), (1, 0, 300.0), (2, 2, 400.0), (3, 2, 400.0)])
    expected.update((rank, rank, 1500.0) for rank in (0, 1, 2, 3))
    assert arrows(export(pdla, trace, "perfetto")) == expected


def test_an_arrow_may_lead_to_a_request_that_begins_after_the_call_has_ended(pdla: InProcess) -> None:
    # Rank 0 leaves each call before rank 1, the aggregator, writes the bytes of both, in the time of
    # rank 0's next call. Each rank has a collective call on another file between them.
    files = ("/a", "/b", "/a")
    made = make_trace([Call(rank, "write", 0, 100, file, True) for rank in (0, 1) for file in files])
    table = posix((1, 0, "write", 0, 100, 1.2, 1.4), (1, 1, "read", 0, 50, 1.5, 1.6), (1, 2, "write", 0, 100, 3.2, 3.4))
    trace = Trace(made.records, made.files, made.views, ranks=2, posix=table)
    # The requests of the call on /b are on /a: nothing is known about the bytes of /b.
    path = export(pdla, trace, "perfetto")
    found = [(one["pid"], one["ts"]) for one in events(path) if one["ph"] == "s"]
    ends = [one["ts"] for one in events(path) if one["ph"] == "f"]
    assert list(zip(found, ends, strict=True)) == [
        *(((0, 0.0), 1300.0), ((0, 2000.0), 3300.0), ((1, 0.0), 1300.0), ((1, 2000.0), 3300.0)),
    ]


def test_collective_calls_are_numbered_across_blocks(pdla: InProcess) -> None:
    calls = 40_000
    made = workloads.flash_io(2, 2, 2, 2, 3, nvar=calls)
    of_rank = made.records[made.records["rank"] == 0]
    late = of_rank[of_rank["op"] == "write"].iloc[calls - 1]
    when = (late["t_start"] * 1000 + 0.1, late["t_start"] * 1000 + 0.3)
    table = posix((0, late["call"], "write", late["offset"], 2 * late["length"], *when))
    trace = Trace(made.records, made.files, made.views, ranks=2, posix=table)
    assert arrows(export(pdla, trace, "perfetto")).keys() == {
        (rank, 0, round(when[0] * 1000 + 100, 3)) for rank in (0, 1)
    }


def test_a_rank_that_waits_for_many_points_to_those_that_began_first(pdla: InProcess) -> None:
    made = make_trace([Call(rank, "write", rank * 100, 100, "/a", True) for rank in range(40)])
    table = posix(*((rank, 0, "write", 0, 4000, 0.9 - rank / 100, 0.95) for rank in range(40)))
    trace = Trace(made.records, made.files, made.views, ranks=40, posix=table)
    found = arrows(export(pdla, trace, "perfetto"))
    assert {to for _, to, _ in found} == set(range(24, 40))
    assert len(found) == 40 * 16


def test_no_two_calls_overlap_on_a_track_also_across_blocks() -> None:
    random = np.random.default_rng(1)
    start = np.cumsum(random.integers(0, 3, 3000))
    end, rank = start + random.integers(0, 12, 3000), np.repeat([0, 1], 1500)
    dealt = tracks.Tracks(tracks.POSIX, 5)
    places = [slice(0, 700), slice(700, 1700), slice(1700, 3000)]
    track = np.concatenate([dealt.of(rank[at], start[at], end[at]) for at in places])
    assert set((track % 5).tolist()) == {0, 1}
    for number in np.unique(track):
        of_track = np.flatnonzero(track == number)
        assert (start[of_track][1:] >= end[of_track][:-1]).all()
        assert len(set(rank[of_track])) == 1
    assert dealt.used == {one: len(np.unique(track[rank == one])) for one in (0, 1)}


ROUND_TRIPS = {
    "ior": workloads.ior(3, 96, 16, 5, collective=True),
    "ior, a file for each": workloads.ior(3, 96, 16, 5, file_per_proc=True),
    "tiles": workloads.mpi_tile_io(2, 2, 8, 90, 4, 2, 2, collective=True),
    "btio full": workloads.btio((1, 2, 2), (6, 20, 20), 3),
    "coll_perf": workloads.coll_perf((2, 1, 2), (16, 16, 16)),
    "flash": workloads.flash_io(2, 2, 2, 2, 3),
    "both kinds of calls": make_trace(
        [
            Call(rank, "read", 64 * (rank + 2 * row), 64, collective=row % 2 == 0)
            for rank in range(2)
            for row in range(40)
        ]
    ),
}
IMPORTERS = {"csv": import_csv, "parquet": import_parquet}


def signatures(trace: Trace) -> list[tuple[Any, ...]]:
    return [
        (one.file, one.op, one.collective, tuple(one.ranks), one.start, one.length, one.loops, one.growth)
        for one in analyze(trace).signatures
    ]


@pytest.mark.parametrize("form", IMPORTERS)
@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_what_is_imported_again_has_the_same_signatures(pdla: InProcess, form: str, name: str) -> None:
    trace = ROUND_TRIPS[name]
    again = IMPORTERS[form](export(pdla, trace, form))
    assert signatures(again) == signatures(trace) != []
    columns = ["rank", "op", "collective", "offset", "length"]
    found, rows = again.records, trace.accesses()
    assert found[columns].to_numpy().tolist() == rows[columns].to_numpy().tolist()
    for name in ("t_start", "t_end"):
        assert nanoseconds(found[name]).tolist() == nanoseconds(rows[name]).tolist()
    assert again.notes == ()


def readers(form: str, path: Path) -> dict[str, pd.DataFrame]:
    """The table as pandas, polars and DuckDB read it."""
    return {
        "pandas": getattr(pd, f"read_{form}")(path),
        "polars": pd.DataFrame(getattr(polars, f"read_{form}")(path).to_dict(as_series=False)),
        "duckdb": getattr(duckdb, f"read_{form}")(str(path)).df(),
    }


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.thorough(1)
def test_other_tools_read_each_call(mpi: Mpi, tmp_path: Path, form: str) -> None:
    trace = traced(mpi, tmp_path, "aggregated")
    paths = np.array([*trace.files["path"], ""], dtype=object)
    for rows, table in (("calls", trace.records), ("posix", trace.posix), ("accesses", trace.accesses())):
        Pdla(tmp_path, {}).run("export", "run.h5", "--to", form, "--rows", rows, "-o", f"{rows}.{form}")
        expected = table.assign(file=paths[table["file"]])
        if rows == "calls":
            counts = trace.accesses().groupby(["rank", "call"]).size().to_dict()
            expected["extents"] = [counts.get((row.rank, row.call), 0) for row in table.itertuples()]
        for tool, found in readers(form, tmp_path / f"{rows}.{form}").items():
            assert list(found) == list(TABLES[rows]), tool  # type: ignore[index]
            for name in found:
                if name in expected:
                    values = found[name].astype(object).where(found[name].notna(), "")
                    assert values.tolist() == expected[name].tolist(), (tool, rows, name)


def test_a_parquet_schema_says_what_a_column_is_and_its_unit(pdla: InProcess) -> None:
    path = export(pdla, workloads.ior(2, 96, 16), "parquet", "--rows", "calls")
    schema = parquet.read_schema(path)
    assert {name: schema.field(name).metadata[b"unit"].decode() for name in ("rank", "length", "t_start")} == {
        "rank": "",
        "length": "bytes",
        "t_start": "s",
    }
    assert schema.metadata[b"pdla.command"] == b"ior -a MPIIO -b 96 -t 16 -s 1"
    assert json.loads(schema.metadata[b"pdla.notes"]) == ["generated, not recorded: its times are made up"]


def test_the_page_has_each_column_with_its_tables_and_unit() -> None:
    table = DOCS.partition("| column |")[2].partition("\n\n")[0].splitlines()
    for rows, columns in TABLES.items():
        for name, column in columns.items():
            (line,) = [line for line in table if line.startswith(f"| `{name}` |")]
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            assert (cells[1], cells[2]) == (column.type, column.unit or "")
            assert rows in cells[3] or cells[3] == "all"
            assert cells[4] == column.meaning


def test_the_queries_of_the_page_find_the_calls(mpi: Mpi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = traced(mpi, tmp_path, "aggregated")
    timeline, table = re.findall(r"(?:^    select .*\n)(?:^    .*\n)*", DOCS, re.MULTILINE)
    pdla = Pdla(tmp_path, {})
    pdla.run("export", "run.h5", "--to", "perfetto", "-o", "run.json")
    (found,) = query(tmp_path / "run.json", timeline)
    assert [row[2:] for row in found if "write" in row[2]] == 3 * [("MPI_File_write_at_all", 4096)]
    for rows in ("calls", "posix"):
        pdla.run("export", "run.h5", "--to", "parquet", "--rows", rows, "-o", f"{rows}.parquet")
    monkeypatch.chdir(tmp_path)
    assert duckdb.sql(table).fetchall() == [("MPI_File_write_at_all", 1, 12288.0)]
    assert len(trace.posix[trace.posix["op"] != "other"]) == 1


def test_rows_are_the_same_in_small_blocks(pdla: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = workloads.btio((1, 2, 2), (6, 20, 20), 3)
    whole = export(pdla, trace, "csv", output="whole").read_bytes()
    monkeypatch.setattr(calls, "LOOKED_AT", 7)
    assert export(pdla, trace, "csv", output="parts").read_bytes() == whole


def test_a_trace_of_several_blocks_is_written_whole(pdla: InProcess) -> None:
    trace = workloads.pio_simple_strided(3, 8, 30_000)
    found = pd.read_csv(export(pdla, trace, "csv", output="out.csv.gz"))
    columns = ["rank", "offset", "length", "t_start", "t_end"]
    assert (found[columns].to_numpy() == trace.accesses()[columns].to_numpy()).all()
    slices = [one for one in events(export(pdla, trace, "perfetto", output="o.json.gz")) if one["ph"] == "X"]
    assert len(slices) == len(trace.records)
    lines = export(pdla, trace, "darshan-dxt-text").read_text().splitlines()
    assert sum(line.startswith(" X_MPIIO") for line in lines) == 90_000


PRINTER = """
import ctypes, sys
from darshan.backend import cffi_backend as backend
log, module, library = sys.argv[1:]
handle = backend.log_open(log)
names, number = backend.log_get_name_records(handle), backend.log_get_modules(handle)[f"DXT_{module}"]["idx"]
printer = getattr(ctypes.CDLL(library), f"dxt_log_print_{module.lower()}_file")
versions, record = (ctypes.c_uint32 * 64)(*[1] * 64), backend.ffi.new("void **")
while backend.libdutil.darshan_log_get_record(handle["handle"], number, record) > 0:
    name = names[backend.ffi.cast("struct dxt_file_record *", record[0]).base_rec.id].encode()
    lustre = [None] if module == "POSIX" else []
    address = ctypes.c_void_p(int(backend.ffi.cast("uintptr_t", record[0])))
    printer(address, name, b"UNKNOWN", b"UNKNOWN", *lustre, versions)
    record[0] = backend.ffi.NULL
"""


def lines_of(text: str) -> list[tuple[str, ...]]:
    """The headings of each section and its lines but their numbers, times with four digits, in any order."""
    sections = []
    for section in text.split("\n# DXT, file_id: ")[1:]:
        name = section.partition("file_name: ")[2].partition("\n")[0]
        about = [line for line in section.splitlines() if line.startswith(("# DXT, rank", "# DXT, write_count"))]
        rows = [line.split()[:8] for line in section.splitlines() if line.startswith(" X_")]
        assert [int(row[3]) for row in rows if row[2] == "read"] == list(range(sum(row[2] == "read" for row in rows)))
        rows = [[*row[:3], *row[4:6], *(f"{float(time):.4f}" for time in row[6:])] for row in rows]
        host = about[0].rpartition(" ")[0]
        sections.append((int(rows[0][1]), name, host, about[1], *sorted(map(" ".join, rows))))
    return [tuple(map(str, one)) for one in sorted(sections)]


@pytest.mark.parametrize(("log", "module"), [("ior_hdf5_example", "MPIIO"), ("dxt", "POSIX")])
def test_the_text_is_what_darshan_prints(pdla: InProcess, log: str, module: str) -> None:
    spec = importlib.util.find_spec("darshan")
    assert spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    source = package / "examples" / "example_logs" / f"{log}.darshan"
    (library,) = package.parent.glob("darshan.libs/libdarshan-util*")
    printed = subprocess.run(
        [sys.executable, "-c", PRINTER, source, module, library], capture_output=True, text=True, check=True
    ).stdout
    assert lines_of(export(pdla, import_darshan(source), "darshan-dxt-text").read_text()) == lines_of(printed) != []


def test_the_text_has_both_levels_and_the_job(mpi: Mpi, tmp_path: Path) -> None:
    trace = traced(mpi, tmp_path, "aggregated")
    Pdla(tmp_path, {}).run("export", "run.h5", "--to", "darshan-dxt-text", "-o", "out.txt")
    text = (tmp_path / "out.txt").read_text()
    assert text.startswith("# darshan log version: 3.41\n")
    assert "\n# nprocs: 3\n" in text
    assert f"\n# start_time: {int(trace.started)}\n" in text
    rows = [line.split() for line in text.splitlines() if line.startswith(" X_")]
    (writer,) = trace.posix.loc[trace.posix["op"] == "write", "rank"]
    assert [row[:6] for row in rows] == [
        ["X_POSIX", str(writer), "write", "0", "0", "12288"],
        *(["X_MPIIO", str(rank), "write", "0", str(1024 * rank), "4096"] for rank in range(3)),
    ]
    assert f"# DXT, rank: 2, hostname: {trace.hosts[0]}\n# DXT, write_count: 1, read_count: 0\n" in text


def test_writes_come_before_reads_and_each_file_has_its_section(pdla: InProcess) -> None:
    order = [("read", "/b"), ("write", "/a"), ("read", "/a"), ("write", "/b"), ("write", "/a")]
    trace = make_trace([Call(0, op, place, 8, file) for place, (op, file) in enumerate(order)])
    text = export(pdla, trace, "darshan-dxt-text").read_text()
    shown = [
        line.split()[2:5] if line[0] == " " else line.rpartition(" ")[2]
        for line in text.splitlines()
        if "name: /" in line or line[:1] == " "
    ]
    assert shown == [
        *("/a", ["write", "0", "1"], ["write", "1", "4"], ["read", "0", "2"]),
        *("/b", ["write", "0", "3"], ["read", "0", "0"]),
    ]


def fails(pdla: Pdla, *words: str, says: str, code: int = 1) -> None:
    done = pdla.run("export", *words, code=code)
    assert says in done.stderr
    assert code == 2 or done.stderr.count("\n") == 1
    assert not (pdla.directory / "out").exists()


def test_bad_input_is_one_line_and_leaves_nothing(pdla: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    run = pdla.directory / "run.h5"
    write_trace(workloads.ior(2, 96, 16), run)
    (pdla.directory / "cut.h5").write_bytes(run.read_bytes()[:-1000])
    for form in ("perfetto", "csv", "parquet", "darshan-dxt-text"):
        fails(pdla, "cut.h5", "--to", form, "-o", "out", says="cut.h5")
        fails(pdla, "none.h5", "--to", form, "-o", "out", says="none.h5: No such file")
    fails(pdla, "run.h5", "--to", "csv", "--rows", "posix", "-o", "out", says="no POSIX calls: record them with pdla")
    fails(pdla, "run.h5", "--to", "perfetto", "--rows", "calls", "-o", "out", says="--rows is for csv and", code=2)
    fails(pdla, "run.h5", "--to", "otf2", "-o", "out", says="'otf2' is not one of", code=2)
    fails(pdla, "run.h5", "--to", "csv", says="Missing option '-o'", code=2)
    before = run.read_bytes()
    fails(pdla, "run.h5", "--to", "csv", "-o", "run.h5", says="run.h5 is the trace itself", code=2)
    assert run.read_bytes() == before
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    fails(pdla, "run.h5", "--to", "parquet", "-o", "out", says="pip install 'pdla[parquet]'")


def test_the_answer_says_how_much_was_written(pdla: InProcess) -> None:
    write_trace(workloads.mpi_tile_io(2, 2, 8, 90, 4, 2, 2), pdla.directory / "run.h5")
    for form, rows in (("csv", 360), ("perfetto", 16), ("darshan-dxt-text", 4)):
        answer = pdla.json("export", "run.h5", "--to", form, "-o", "out", "--json")
        size = (pdla.directory / "out").stat().st_size
        assert answer == {"export": "out", "format": form, "rows": rows, "bytes": size}


def test_names_that_are_no_text_are_escaped(pdla: InProcess) -> None:
    trace = make_trace([Call(0, "read", 0, 8, "/data/\udce4\n")])
    (event,) = [one for one in events(export(pdla, trace, "perfetto")) if one["ph"] == "X"]
    assert event["args"]["file"] == "/data/\\xe4\\x0a"
    assert pd.read_csv(export(pdla, trace, "csv"))["file"].tolist() == ["/data/\\xe4\\x0a"]
    assert pd.read_parquet(export(pdla, trace, "parquet"))["file"].tolist() == ["/data/\\xe4\\x0a"]
