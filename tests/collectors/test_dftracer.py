"""DFTracer: real traces become traces, with offsets that follow from the calls before; damaged ones are refused."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pdla.collectors.dftracer import import_dftracer
from pdla.collectors.tracefile import read_trace, write_trace
from pdla.errors import FormatError, PdlaError
from pdla.traces.trace import Trace
from tests.support.compilers import REPOSITORY
from tests.support.mpi import Mpi, available_mpis

SAMPLE = REPOSITORY / "tests/samples/dftracer"
LOGS = sorted(SAMPLE.glob("*.pfw.gz"))
OWN = [
    ("write", 0, 1000),
    ("write", 1000, 500),
    ("read", 100, 50),
    ("read", 200, 25),
    ("read", 1490, 10),
    ("pwrite", 2000, 30),
    ("preadv", 300, 30),
    ("writev", 1500, 30),
    ("write", -1, 7),  # appended
    ("fread", 0, 80),
    ("fwrite", 40, 60),
]
"""The calls of tests/programs/imported.c on a rank's own file."""


def of_file(trace: Trace, ending: str) -> pd.DataFrame:
    (file,) = trace.files.loc[trace.files["path"].str.endswith(ending), "file"]
    return trace.records[trace.records["file"] == file]


def rows(records: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(records[["kind", "offset", "length"]].itertuples(index=False, name=None))


def check_program(trace: Trace) -> None:
    """That a trace has the calls of tests/programs/imported.c with two ranks."""
    assert (trace.ranks, trace.source, trace.truncated) == (2, "dftracer", ())
    assert trace.command.split()[0].endswith("imported")
    shared = of_file(trace, "/shared")
    for rank in (0, 1):
        assert rows(of_file(trace, f"/shared.{rank}")) == OWN
        assert set(of_file(trace, f"/shared.{rank}")["rank"]) == {rank}
        written = shared[(shared["rank"] == rank) & (shared["op"] == "write")]
        assert rows(written)[:8] == [("pwrite", (turn * 2 + rank) * 4096, 4096) for turn in range(8)]
        assert rows(shared[shared["rank"] == rank])[12:14] == [("pread", 100, 200), ("pread", 300, 100)]
    assert (trace.records["t_end"] >= trace.records["t_start"]).all()
    assert trace.records["t_start"].min() > 0  # since the start of the first process


def test_a_real_trace_of_two_ranks() -> None:
    trace = import_dftracer(SAMPLE)
    check_program(trace)
    assert trace.hosts == ("vm",)
    assert trace.notes == (
        "these are POSIX and STDIO calls: those that the MPI library made, not the program's own MPI-IO calls",
        "DFTracer did not record ranks: processes that used files are numbered by host and process id",
        "DFTracer does not record fprintf: streams that it moves are elsewhere than this trace says",
        "the place of the bytes of 2 calls is not known: their offset is -1",
    )


def test_the_tool_itself(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("dftracer")
    if spec is None or spec.origin is None:
        pytest.skip("dftracer is not installed: it takes 210 MB")
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    program = mpi.compile(REPOSITORY / "tests/programs/imported.c", tmp_path / "imported")
    (tmp_path / "data").mkdir()
    (tmp_path / "logs").mkdir()
    settings = {
        "DFTRACER_ENABLE": "1",
        "DFTRACER_INIT": "PRELOAD",
        "DFTRACER_INC_METADATA": "1",
        "DFTRACER_DATA_DIR": str(tmp_path / "data"),
        "DFTRACER_LOG_FILE": str(tmp_path / "logs/log"),
        "LD_PRELOAD": str(Path(spec.origin).parent / "lib64/libdftracer_preload.so"),
    }
    words = [f"{name}={value}" for name, value in settings.items()]
    mpi.run(mpi.command(2, "env", *words, str(program), str(tmp_path / "data/shared")))
    check_program(import_dftracer(tmp_path / "logs"))


def test_an_imported_trace_survives_the_trace_file(tmp_path: Path) -> None:
    trace = import_dftracer(SAMPLE)
    write_trace(trace, tmp_path / "run.h5")
    assert read_trace(tmp_path / "run.h5").records.equals(trace.records)


# ---- traces as the tool writes them, made here ----------------------------------------------------------------------


def event(call: str, time: int, pid: int = 7, cat: str = "POSIX", **args: Any) -> dict[str, Any]:
    args = {"hhash": "h", "fhash": "f", **args}
    return {"id": 1, "name": call, "cat": cat, "pid": pid, "tid": pid, "ts": time, "dur": 5, "ph": 1, "args": args}


def metadata(kind: str, pid: int = 7, **args: Any) -> dict[str, Any]:
    return {"name": kind, "cat": "dftracer", "pid": pid, "tid": pid, "ph": 4, "args": {"hhash": "h", **args}}


NAMES = [metadata("HH", name="node", value="h"), metadata("FH", name="/data", value="f")]
START, END = event("start", 90, cat="dftracer"), event("end", 990, cat="dftracer")


def written(path: Path, *events: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in events))
    return path


def imported(path: Path, *events: dict[str, Any]) -> list[tuple[Any, ...]]:
    return rows(import_dftracer(written(path / "a.pfw", *NAMES, START, *events, END)).records)


def test_positions_of_a_file_that_is_open_twice_are_not_known(tmp_path: Path) -> None:
    first, second = event("open", 100, flags=2), event("open", 120, flags=2)
    read = event("read", 110, ret=10, count=10)
    assert imported(tmp_path, first, read, second, event("read", 130, ret=10, count=10)) == [
        ("read", 0, 10),
        ("read", -1, 10),
    ]
    closed = [event("close", 140, ret=0), event("lseek", 150, ret=5), event("read", 160, ret=10, count=10)]
    assert imported(tmp_path, first, second, *closed)[-1] == ("read", 5, 10)


def test_a_copy_of_a_descriptor_moves_the_position_unseen(tmp_path: Path) -> None:
    opened, copied = event("open", 100, flags=2), event("dup", 110)
    seek, read = event("lseek", 120, ret=0), event("read", 130, ret=10, count=10)
    assert imported(tmp_path, opened, copied, seek, read) == [("read", -1, 10)]


def test_calls_that_move_a_stream_unseen_and_those_that_tell_where_it_is(tmp_path: Path) -> None:
    opened = event("fopen", 100, cat="STDIO", mode="r+")
    calls = [
        event(name, 110 + place * 10, cat="STDIO", **args)
        for place, (name, args) in enumerate(
            [
                ("fread", {"ret": 2, "count": 4, "size": 8}),
                ("fputs", {}),
                ("fread", {"ret": 1, "count": 1, "size": 1}),
                ("ftell", {"ret": 30}),
                ("fread", {"ret": 1, "count": 1, "size": 1}),
                ("fseek", {"ret": 0, "whence": 1, "offset": 9}),
                ("fread", {"ret": 1, "count": 1, "size": 1}),
                ("fseek", {"ret": 0, "whence": 2, "offset": 0}),
                ("fread", {"ret": 1, "count": 1, "size": 1}),
            ]
        )
    ]
    assert [offset for _, offset, _ in imported(tmp_path, opened, *calls)] == [0, -1, 30, 40, -1]


def test_a_failed_open_and_a_failed_read(tmp_path: Path) -> None:
    """Versions before 2 record what an open returns, and the descriptor of the other calls."""
    assert imported(
        tmp_path,
        event("open", 100, flags=2, ret=-1),
        event("open", 110, flags=2, ret=5),
        event("open", 120, flags=2, ret=6),
        event("read", 130, ret=-1, count=10, fd=5),
        event("read", 140, ret=10, count=10, fd=5),
        event("read", 150, ret=10, count=10, fd=6),
    ) == [("read", 0, 0), ("read", 0, 10), ("read", 0, 10)]


def test_the_first_format_has_brackets_letters_and_ranks(tmp_path: Path) -> None:
    """Hashes of that format are short, and stand for other files in other processes."""
    for pid, rank in ((7, 1), (8, 0)):
        events = [
            {**metadata("HH", pid, name="node", value=3), "ph": "M"},
            {**metadata("FH", pid, name=f"/data.{rank}", value=9), "ph": "M"},
            {**event("start", 90, pid, "dftracer", hhash=3), "ph": "X"},
            {**event("open", 100, pid, ret=5, fhash=9, hhash=3, flags=0), "ph": "X"},
            {**event("read", 110, pid, ret=10, count=10, fd=5, fhash=9, hhash=3), "ph": "X"},
            {**metadata("PR", pid, name="rank", value=str(rank)), "ph": "M"},
        ]
        for one in events:
            if one["ph"] == "M":
                del one["args"]["hhash"]
        lines = [json.dumps(one) for one in events]
        (tmp_path / f"{pid}.pfw.gz").write_bytes(gzip.compress("\n".join(["[", *lines, "]"]).encode()))
    trace = import_dftracer(tmp_path)
    assert trace.files[["path", "ranks"]].to_numpy().tolist() == [["/data.1", 1], ["/data.0", 1]]
    assert trace.records[["rank", "file"]].to_numpy().tolist() == [[0, 1], [1, 0]]
    assert trace.truncated == (0, 1)  # no process says that it ended
    assert len(trace.notes) == 1


def test_times_have_the_unit_that_the_trace_names(tmp_path: Path) -> None:
    unit = metadata("CM", name="time_metric", value="MS")
    read = event("pread", 100, ret=1, offset=7)
    trace = import_dftracer(written(tmp_path / "a.pfw", *NAMES, unit, START, read))
    assert trace.records[["offset", "t_start", "t_end"]].to_numpy().tolist() == [[7, 0.01, 0.015]]
    assert trace.started == 0.09


def test_what_is_odd_is_noted(tmp_path: Path) -> None:
    other = event("pread", 100, ret=1, offset=7, fhash="g")
    aggregated = {**event("read", 100), "ph": 3}
    trace = import_dftracer(
        written(tmp_path / "a.pfw", START, other, event("MPI_File_open", 100, cat="MPIIO"), aggregated, END)
    )
    assert trace.notes[2:] == (
        "1 MPI-IO call name no file: they are not in this trace",
        "1 event stand for several calls: they are not in this trace",
        "this trace does not name all its files: those have the hashes that DFTracer gave them",
    )
    assert trace.files["path"].tolist() == ["file g"]


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([], "DFTRACER_DATA_DIR names the directories"),
        ([{**event("read", 1), "args": {}}], "set DFTRACER_INC_METADATA=1"),
        ([{**event("read", 1), "ph": 3}], "unset DFTRACER_ENABLE_AGGREGATION"),
    ],
)
def test_a_trace_without_calls_says_how_to_get_them(tmp_path: Path, events: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(PdlaError, match=f"has no read or write: .*{why}"):
        import_dftracer(written(tmp_path / "a.pfw", START, *events))


def test_a_trace_in_several_parts(tmp_path: Path) -> None:
    """As dftracer_split packs them: a bracket, then the events of several processes."""
    lines = [gzip.decompress(log.read_bytes()) for log in LOGS]
    (tmp_path / "a.pfw.gz").write_bytes(b"".join(map(gzip.compress, (b"[\n", *lines, b"]\n"))))
    check_program(import_dftracer(tmp_path / "a.pfw.gz"))


# ---- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", LOGS, ids=range(len(LOGS)))
def test_a_trace_cut_anywhere_is_refused_in_one_line(tmp_path: Path, log: Path) -> None:
    packed, plain = log.read_bytes(), gzip.decompress(log.read_bytes())
    cuts = {("a.pfw.gz", packed[:size]) for size in range(0, len(packed), 7)}
    cuts |= {("a.pfw", plain[:size]) for size in range(0, len(plain), 61) if b"\n" not in plain[size - 1 : size + 1]}
    for name, content in cuts:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(PdlaError) as caught:
            import_dftracer(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_a_changed_byte_is_refused_or_read(tmp_path: Path) -> None:
    """gzip's checksum notices every change of a packed trace; JSON does not."""
    packed = bytearray(LOGS[0].read_bytes())
    for place in range(12, len(packed), 13):
        damaged = packed.copy()
        damaged[place] ^= 0x15
        (tmp_path / "a.pfw.gz").write_bytes(damaged)
        with pytest.raises(PdlaError) as caught:
            import_dftracer(tmp_path / "a.pfw.gz")
        assert "\n" not in str(caught.value)
    plain = bytearray(gzip.decompress(LOGS[0].read_bytes()))
    for place in range(0, len(plain), 17):
        damaged = plain.copy()
        damaged[place] ^= 0x15
        (tmp_path / "a.pfw").write_bytes(damaged)
        try:
            assert len(import_dftracer(tmp_path / "a.pfw").records)
        except PdlaError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"name":"read","cat":"POSIX"}', "line 2: not an event of DFTracer"),
        ('{"name":"read","cat":"POSIX","pid":"x","ph":1}', "line 2: not"),
        ('{"name":"read","cat":"POSIX","pid":1,"ph":1,"ts":1e400,"dur":1,"args":{"fhash":1}}', "line 2: not"),
        ("[1, 2", "line 2: not JSON, perhaps cut short: '\\[1, 2'"),
        (json.dumps(event("pread", 1, ret=5, offset=-9)), "an impossible call: pread of rank 0, offset -9"),
        (json.dumps(event("pread", 1, ret=5, offset=2**63 - 2)), "an impossible call"),
        (json.dumps(event("pread", 2**62, ret=5, offset=0)), "an impossible call"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, why: str) -> None:
    path = written(tmp_path / "a.pfw", START)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(FormatError, match=why):
        import_dftracer(path)


COMPRESSED = gzip.compress(b"hello", mtime=0)  # all processes that share the tests have the same


@pytest.mark.parametrize("content", [b"", b"rank,file,op\n", COMPRESSED, b'{"version": 1}', bytes(99)])
def test_another_file_is_named_as_what_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pfw").write_bytes(content)
    with pytest.raises(FormatError, match=r"is a.*, not a DFTracer trace"):
        import_dftracer(tmp_path / "a.pfw")


def test_a_directory_without_traces_and_a_missing_one(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"is a directory without files \*\.pfw or \*\.pfw\.gz, not a DFTracer trace"):
        import_dftracer(tmp_path)
    with pytest.raises(FormatError, match=r"cannot read .*none\.pfw: No such file"):
        import_dftracer(tmp_path / "none.pfw")


def test_the_verb_reads_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pdla.cli import cli

    cli.main(["import", "dftracer", str(SAMPLE), "-o", str(tmp_path / "run.h5")], standalone_mode=False)
    assert "run.h5: 2 ranks, 51 calls, 101 KiB moved in 3 files" in capsys.readouterr().out
