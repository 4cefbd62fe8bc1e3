"""Darshan: the real logs that pydarshan ships become traces, or tables of counters; others are refused in one line."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from pdla.analyzers.analysis import analyze
from pdla.collectors.darshan import import_darshan
from pdla.collectors.darshan_counters import Layer, darshan_counters
from pdla.collectors.darshan_log import read_log
from pdla.collectors.tracefile import read_trace, write_trace
from pdla.errors import FormatError, PdlaError
from pdla.findings import Seen
from pdla.layouts.config import load_cluster
from pdla.policies.plan import make_plan
from pdla.report.head import levels
from pdla.traces.tables import DOUBTS
from tests.support.command_line import PDLA, Launching
from tests.support.compilers import REPOSITORY
from tests.support.documented_keys import keys, section
from tests.support.mpi import Mpi, available_mpis, unavailable

SPEC = importlib.util.find_spec("darshan")
if SPEC is None or SPEC.origin is None:
    unavailable("pydarshan is not installed")
assert SPEC is not None and SPEC.origin is not None
PACKAGE = Path(SPEC.origin).parent
LOGS = PACKAGE / "examples" / "example_logs"
IOR = LOGS / "ior_hdf5_example.darshan"
EXAMPLE = LOGS / "example.darshan"
KINDS = REPOSITORY / "tests/samples/darshan/kinds.darshan"


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
    # Its counters have no collective call and no file view.
    assert trace.notes == ()
    assert not trace.records[["collective", *DOUBTS]].any(axis=None)


def test_calls_are_collective_where_the_counters_have_no_others() -> None:
    trace = import_darshan(KINDS)
    kinds = trace.records.groupby(["file", "op"], observed=True)[["collective", *DOUBTS]].agg(["min", "max"])
    assert {at: tuple(map(bool, row)) for at, row in zip(kinds.index, kinds.to_numpy(), strict=True)} == {
        (0, "write"): (True, True, False, False, False, False),
        (1, "write"): (True, True, False, False, True, True),  # through a view
        (2, "read"): (False, False, False, False, False, False),
        (2, "write"): (False, False, True, True, False, False),  # some collective, some not
    }
    assert trace.notes == (
        "Darshan does not record file views, but they were set on the files of 4 calls: each counts as one extent from "
        "its first byte on",
        "Darshan's counters do not say which of 12 calls were collective",
    )


def test_the_first_byte_of_a_call_through_a_view_is_where_the_view_has_it() -> None:
    records = import_darshan(KINDS).records
    through_view = records[records["holes_unknown"]]
    assert through_view[["rank", "offset", "length"]].to_numpy().tolist() == [
        [rank, 4096 * rank + 4 * 8192 * call, 4 * 4096] for rank in range(2) for call in range(2)
    ]


def test_without_counters_nothing_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, arrays = read_log(KINDS, "dxt")
    no_counters = {**arrays, "counted": arrays["counted"][:0]}
    monkeypatch.setattr("pdla.collectors.darshan.read_log", lambda *_: (facts, no_counters))
    records = import_darshan(KINDS).records
    assert not records["collective"].any()
    assert records[list(DOUBTS)].all(axis=None)


def test_counters_of_single_ranks_speak_for_these_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, arrays = read_log(KINDS, "dxt")
    of_file_0 = [[0, 0, 0, 0, 0, 4, 0], [1, 0, 0, 0, 4, 0, 0]]  # rank, file, independent and collective calls, views
    monkeypatch.setattr(
        "pdla.collectors.darshan.read_log", lambda *_: (facts, {**arrays, "counted": np.array(of_file_0)})
    )
    records = import_darshan(KINDS).records
    on_file_0 = records[records["file"] == 0]
    assert on_file_0.groupby("rank")["collective"].agg(["min", "max"]).to_numpy().tolist() == [[1, 1], [0, 0]]
    assert not on_file_0[list(DOUBTS)].any(axis=None)


def test_posix_calls_are_not_collective_but_the_program_s_own_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, arrays = read_log(KINDS, "dxt")
    monkeypatch.setattr("pdla.collectors.darshan.read_log", lambda *_: ({**facts, "module": "DXT_POSIX"}, arrays))
    records = import_darshan(KINDS).records
    assert not records["collective"].any() and not records["holes_unknown"].any()
    writes = records[records["op"] == "write"]
    assert writes["collective_unknown"].all() and not records.drop(writes.index)["collective_unknown"].any()


def test_what_is_not_known_survives_the_trace_file(tmp_path: Path) -> None:
    trace = import_darshan(KINDS)
    write_trace(trace, tmp_path / "run.h5")
    assert read_trace(tmp_path / "run.h5").records.equals(trace.records)
    # Traces in which everything is known have no such columns, as those of older versions.
    write_trace(import_darshan(IOR), tmp_path / "ior.h5")
    with h5py.File(tmp_path / "ior.h5") as file:
        assert not set(DOUBTS) & set(file["records"])


def test_findings_say_what_the_log_does_not() -> None:
    trace = import_darshan(KINDS)
    plan = make_plan(analyze(trace), load_cluster(None))
    doubts = Seen(trace, plan, "t.h5").doubts
    assert [sorted(doubts(path)) for path in trace.files["path"]] == [[], ["holes_unknown"], ["collective_unknown"]]


def test_the_seconds_of_each_level_are_those_of_the_counters(tmp_path: Path) -> None:
    trace = import_darshan(IOR)
    assert trace.seconds == 1.0
    assert {level: round(seconds, 3) for level, seconds in trace.levels.items()} == {
        "HDF5": 0.803,
        "MPI-IO": 0.806,
        "POSIX": 0.645,
    }
    write_trace(trace, tmp_path / "t.h5")
    assert read_trace(tmp_path / "t.h5").levels == trace.levels
    seen = Seen(trace, make_plan(analyze(trace), load_cluster(None)), "t.h5")
    told = levels(seen)
    assert told.endswith("So 20 % of the time in MPI-IO is the MPI library's: it exchanges data, and ranks wait.")
    assert levels(Seen(replace(trace, levels={}), seen.plan, "t.h5")) == ""


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
        import_darshan(EXAMPLE)
    assert str(caught.value) == (
        f"{EXAMPLE} has no DXT records, only counters (modules: POSIX, MPI-IO, LUSTRE, STDIO): "
        f"'pdla analyze {EXAMPLE}' prints them; for a trace set DXT_ENABLE_IO_TRACE=1 (or, from Darshan 3.4 on, "
        "DARSHAN_MOD_ENABLE=DXT_POSIX,DXT_MPIIO) and run again"
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


def layer(layers: tuple[Layer, ...], name: str) -> Layer:
    (found,) = [one for one in layers if one.layer == name]
    return found


def test_counters_of_a_file_that_2048_ranks_shared() -> None:
    counters = darshan_counters(EXAMPLE)
    assert (counters.ranks, counters.seconds, counters.dxt, counters.partial) == (2048, 117.0, False, ())
    file = counters.files[0]
    assert (file.path.rpartition("/")[2], file.ranks) == ("vpicio.hdf5", 2048)
    assert [one.path for one in counters.files[1:]] == ["<STDERR>", "<STDOUT>"]
    above, below = layer(file.layers, "MPI-IO"), layer(file.layers, "POSIX")
    assert (above.opens, above.collective_opens, above.views, above.write.calls) == (2048, 2048, 32768, 16402)
    assert (above.write.collective, above.write.sequential) == (16384, None)
    assert above.slowest is not None
    assert (above.slowest[0], round(above.slowest[1], 3)) == (1312, 85.492)
    assert above.deviation_seconds == pytest.approx(95.43228094835244**0.5)
    assert below.write.sizes == {"0_100": 4, "100_1K": 14, "100M_1G": 16384}
    assert (below.write.bytes, below.write.sequential, below.write.consecutive) == (2199023259968, 16384, 0)
    assert below.common_sizes[:2] == ((134217728, 16384), (272, 8))
    assert below.strides == ((274743689216, 10240), (274743691264, 4096))
    assert (below.unaligned, below.alignment, below.memory_alignment) == (16401, 1048576, 8)
    assert below.deviation_seconds is None  # the log says 0, although its ranks differ


def test_counters_of_ranks_with_files_of_their_own_are_summed() -> None:
    counters = darshan_counters(PACKAGE / "tests" / "input" / "sample-goodost.darshan")
    total = layer(counters.total, "POSIX")
    assert (len(counters.files), total.opens, total.write.calls, total.write.bytes) == (50, 48, 6144, 48 << 30)
    assert total.common_sizes == ((8 << 20, 6144),)
    assert sum(layer(file.layers, "POSIX").write.calls for file in counters.files[:48]) == 6144
    assert {file.ranks for file in counters.files[:48]} == {1}
    assert total.slowest is not None
    slowest = max(
        (one.write.seconds + one.metadata_seconds, one.slowest[0])
        for one in (layer(file.layers, "POSIX") for file in counters.files[:48])
        if one.write.seconds and one.metadata_seconds and one.slowest
    )
    assert total.slowest == (slowest[1], pytest.approx(slowest[0]))


def test_negative_times_of_a_log_are_not_known() -> None:
    stdio = layer(darshan_counters(EXAMPLE).total, "STDIO")
    assert (stdio.write.seconds, stdio.slowest, stdio.write.calls) == (None, None, 74)


def test_a_log_without_counters_of_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdla.collectors.darshan_counters.LAYERS", ("none",))
    with pytest.raises(PdlaError, match=r"counts no file of none \(modules: POSIX, MPI-IO, LUSTRE, STDIO\)"):
        darshan_counters(EXAMPLE)


def test_analyze_prints_counters_and_how_to_get_a_trace(pdla: Launching) -> None:
    said = pdla.run("analyze", EXAMPLE).stdout
    assert "not aligned in the file to 1 MiB: 99.99 % of the calls" in said
    assert "274,743,689,216 B (10,240)" in said
    assert "DXT_ENABLE_IO_TRACE=1" in said
    assert f"'pdla import darshan {IOR}'" in " ".join(pdla.run("analyze", IOR).stdout.split())
    answer = pdla.json("analyze", IOR, "--json")
    assert (answer["ranks"], answer["dxt"], len(answer["files"])) == (4, True, 2)
    assert [one["layer"] for one in answer["total"]] == ["MPI-IO", "POSIX", "STDIO"]
    whole, of_layer = section("Counters of a Darshan log").split("\nA layer:\n")
    assert set(answer) == keys(whole)
    assert set(answer["total"][0]) == keys(of_layer)
    row = next(line for line in of_layer.splitlines() if line.startswith("| `read`"))
    assert set(answer["total"][0]["read"]) <= set(re.findall(r"`(\w+)`", row))


@pytest.mark.parametrize("size", range(16, 1400, 173))
@pytest.mark.thorough(2)
def test_analyze_refuses_a_cut_log_in_one_line(tmp_path: Path, size: int) -> None:
    (tmp_path / "run.darshan").write_bytes(EXAMPLE.read_bytes()[:size])
    with pytest.raises(FormatError, match=r"run\.darshan is cut short or damaged: ") as caught:
        darshan_counters(tmp_path / "run.darshan")
    assert "\n" not in str(caught.value)


def test_one_of_several_processes_prints_the_counters(pdla: Launching) -> None:
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    said = mpi.run(mpi.command(2, PDLA, "analyze", str(EXAMPLE)), pdla.directory, {"PDLA_HOME": str(pdla.home)})
    assert said.count("2,048 ranks, 117 s, 3 files") == 1
