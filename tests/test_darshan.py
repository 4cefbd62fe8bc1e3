"""Darshan: the real logs that pydarshan ships become traces; other logs are refused in one line."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from pdla.collectors.darshan import import_darshan
from pdla.collectors.tracefile import read_trace, write_trace
from pdla.errors import FormatError, PdlaError
from tests.support.mpi import unavailable

SPEC = importlib.util.find_spec("darshan")
if SPEC is None or SPEC.origin is None:
    unavailable("pydarshan is not installed")
assert SPEC is not None and SPEC.origin is not None
PACKAGE = Path(SPEC.origin).parent
LOGS = PACKAGE / "examples" / "example_logs"
IOR = LOGS / "ior_hdf5_example.darshan"


def test_ior_has_59_mpi_io_calls_of_4_ranks_on_one_file() -> None:
    trace = import_darshan(IOR)
    assert (trace.ranks, len(trace.records), trace.source) == (4, 59, "darshan")
    assert trace.files["path"].tolist() == ["/global/cscratch1/sd/ssnyder/test123.h5"]
    assert trace.files["ranks"].tolist() == [4]
    assert trace.records.groupby(["rank", "op"], observed=True).size().to_dict() == {
        (0, "read"): 12,
        (0, "write"): 7,
        (1, "read"): 8,
        (1, "write"): 6,
        (2, "read"): 8,
        (2, "write"): 5,
        (3, "read"): 8,
        (3, "write"): 5,
    }
    writes = trace.records[(trace.records["rank"] == 3) & (trace.records["op"] == "write")]
    assert writes["offset"].tolist() == [3147776, 3409920, 3672064, 3934208, 1072]
    assert writes["length"].tolist() == [262144, 262144, 262144, 262144, 328]
    assert set(writes["kind"]) == {"DXT_MPIIO write"}
    assert trace.command.endswith("ior -a HDF5 -o /global/cscratch1/sd/ssnyder/test123.h5")
    assert trace.notes == (
        "Darshan does not record file views: each call counts as one extent from its first byte on",
        "Darshan does not record which calls were collective",
    )


def test_calls_are_in_the_order_of_time_within_a_rank() -> None:
    records = import_darshan(IOR).records
    assert records["rank"].is_monotonic_increasing
    for _, of_rank in records.groupby("rank"):
        assert of_rank["t_start"].is_monotonic_increasing
        assert of_rank["call"].tolist() == list(range(len(of_rank)))
    assert records["t_start"].iloc[:3].tolist() == [0.029964924, 0.033137083, 0.033762932]


def test_a_log_without_mpi_io_gives_its_7623_posix_calls_on_169_files() -> None:
    trace = import_darshan(LOGS / "dxt.darshan")
    assert (trace.ranks, len(trace.records), len(trace.files)) == (1, 7623, 169)
    assert trace.records["op"].value_counts().to_dict() == {"read": 6126, "write": 1497, "other": 0}
    assert trace.notes == ("these are the POSIX calls that the MPI library made, not the program's own MPI-IO calls",)
    assert len(trace.accesses()) == int((trace.records["length"] > 0).sum())


def test_one_call_of_one_rank_of_16() -> None:
    trace = import_darshan(PACKAGE / "tests" / "input" / "sample-dxt-simple.darshan")
    assert trace.ranks == 16
    assert trace.records[["rank", "op", "offset", "length"]].to_numpy().tolist() == [[0, "write", 0, 4000]]


def test_an_imported_log_survives_the_trace_file(tmp_path: Path) -> None:
    trace = import_darshan(IOR)
    write_trace(trace, tmp_path / "run.h5")
    assert read_trace(tmp_path / "run.h5").records.equals(trace.records)


def test_a_log_without_dxt_says_how_to_get_it() -> None:
    with pytest.raises(PdlaError) as caught:
        import_darshan(LOGS / "example.darshan")
    assert str(caught.value) == (
        f"{LOGS / 'example.darshan'} has no DXT records, only counters (modules: POSIX, MPI-IO, LUSTRE, STDIO): "
        "set DXT_ENABLE_IO_TRACE=1 (or, from Darshan 3.4 on, DARSHAN_MOD_ENABLE=DXT_POSIX,DXT_MPIIO) and run again"
    )


@pytest.mark.parametrize("content", [b"", b"short", b"rank,file,op\n" * 100, bytes(4096)])
def test_a_file_that_is_no_darshan_log_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.darshan").write_bytes(content)
    with pytest.raises(FormatError, match=r"run\.darshan is a.* file.*, not a Darshan log: "):
        import_darshan(tmp_path / "run.darshan")


@pytest.mark.parametrize("size", [100, 2000, 50_000])
def test_a_cut_log_is_refused_in_one_line_and_nothing_is_printed(
    tmp_path: Path, size: int, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.darshan").write_bytes((LOGS / "dxt.darshan").read_bytes()[:size])
    with pytest.raises(FormatError, match=r"run\.darshan is cut short or damaged: ") as caught:
        import_darshan(tmp_path / "run.darshan")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_missing_log_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PdlaError, match=r"cannot read .*: No such file or directory \(it should be a Darshan log\)"):
        import_darshan(tmp_path / "none.darshan")


def test_without_pydarshan_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PdlaError) as caught:
        import_darshan(IOR)
    assert str(caught.value) == "reading .darshan logs needs pydarshan: pip install 'pdla[darshan]'"
