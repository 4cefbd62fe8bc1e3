"""Raw logs: two files per process, whole, cut anywhere, or damaged, become one trace."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from pdla.collectors.rawlog import read_raw
from pdla.errors import FormatError, PdlaError
from pdla.traces.file_views import View
from pdla.traces.tables import RECORD_COLUMNS
from pdla.traces.trace import Trace
from tests.support.handmade_logs import (
    BOOT,
    IREAD_AT_ALL_C,
    NOON,
    OPEN,
    READ_AT,
    SECOND,
    WRITE_ALL,
    Record,
    file_entry,
    pack_header,
    pack_records,
    side,
    view_entry,
    write_process,
)


def write_two_ranks(directory: Path) -> None:
    """Two ranks with a strided view each; rank 1's clock was read 2 s later, its log has room for more records."""
    for rank in range(2):
        records = [
            Record(OPEN, start=0),
            Record(READ_AT, position=100, length=50, moved=20, start=1000),
            Record(WRITE_ALL, position=8, length=16, view=1, flags=1 | 16, start=2000),
        ]
        write_process(
            directory,
            f"node1-{1000 + rank}",
            pack_header(rank, 2, started=NOON + rank * 2 * SECOND) + pack_records(records) + bytes(64 * 5),
            side(file_entry(1, b"/data/a", ranks=2, rank=rank), view_entry(1, 4096 + rank * 8, 16, [0, 8], 8)),
        )


def lines(trace: Trace, *columns: str) -> list[tuple]:
    return list(trace.records[list(columns)].itertuples(index=False, name=None))


def test_two_ranks_become_one_trace(tmp_path: Path) -> None:
    write_two_ranks(tmp_path)
    trace = read_raw(tmp_path, command="./app 1")

    assert (trace.command, trace.ranks, trace.mpi, trace.source) == ("./app 1", 2, "MPICH 5.0", "pdla")
    assert (trace.dropped, trace.truncated, trace.notes) == (0, (), ())
    assert trace.unrecorded == {"MPI_File_seek": 6}
    assert trace.records.dtypes.astype(str).to_dict() == dict(RECORD_COLUMNS)
    assert lines(trace, "rank", "call", "kind", "op", "collective", "offset", "length", "requested") == [
        (0, 0, "MPI_File_open", "other", False, 0, 0, 0),
        (0, 1, "MPI_File_read_at", "read", False, 100, 20, 50),
        (0, 2, "MPI_File_write_all", "write", True, 4112, 16, 16),
        (1, 0, "MPI_File_open", "other", False, 0, 0, 0),
        (1, 1, "MPI_File_read_at", "read", False, 100, 20, 50),
        (1, 2, "MPI_File_write_all", "write", True, 4120, 16, 16),
    ]
    assert trace.records["memory_strided"].tolist() == [False, False, True] * 2
    assert trace.files.to_dict("records") == [
        {
            "file": 0,
            "path": "/data/a",
            "device": 2049,
            "inode": 2**63 + 5,
            "size": 1 << 20,
            "mtime_ns": 7,
            "ctime_ns": 7,
        }
        | {"ranks": 2, "opens": 1}
    ]
    words = np.array([0, 8])
    assert list(trace.views) == [View.plain(), View(4096, 8, 16, 8, words), View(4104, 8, 16, 8, words)]
    assert trace.accesses()[["rank", "offset", "length"]].to_numpy().tolist() == [
        [0, 100, 20],
        [0, 4112, 8],
        [0, 4128, 8],
        [1, 100, 20],
        [1, 4120, 8],
        [1, 4136, 8],
    ]


def test_times_count_from_the_first_mpi_init(tmp_path: Path) -> None:
    write_two_ranks(tmp_path)
    trace = read_raw(tmp_path)
    assert trace.records["t_start"].tolist() == [0.0, 1e-6, 2e-6, 2.0, 2.000001, 2.000002]
    assert trace.records["t_end"].tolist()[-1] == 2.0000025


def test_hosts_are_aligned_by_the_wall_clock_and_that_is_noted(tmp_path: Path) -> None:
    for rank, host in enumerate((b"node1", b"node2")):
        header = pack_header(rank, 2, host=host)
        write_process(tmp_path, f"{host.decode()}-7", header, side())
    assert read_raw(tmp_path).notes == ("the times of 2 hosts are aligned by their wall clocks",)


def test_a_file_opened_by_several_processes_under_several_numbers_is_one_row(tmp_path: Path) -> None:
    for rank in range(2):
        entries = [
            file_entry(1 + rank, b"/data/a", ranks=2, rank=rank, size=0, changed=5),
            file_entry(2 - rank, b"/data/b", ranks=1, rank=0),
            file_entry(3, b"/data/a", ranks=2, rank=rank, size=4096, changed=9),
        ]
        records = [Record(READ_AT, length=8, file=number) for number in (1, 2, 3, 0)]
        write_process(tmp_path, f"n-{rank}", pack_header(rank, 2) + pack_records(records), side(*entries))
    trace = read_raw(tmp_path)
    assert trace.files[["path", "size", "ctime_ns", "ranks", "opens"]].to_numpy().tolist() == [
        ["/data/a", 4096, 9, 2, 2],
        ["/data/b", 1 << 20, 7, 1, 2],
    ]
    assert trace.records["file"].tolist() == [0, 1, 0, -1, 1, 0, 0, -1]


def test_equal_views_are_one_and_view_numbers_are_per_process(tmp_path: Path) -> None:
    for rank in range(2):
        entries = [view_entry(1, rank * 8, 16, [0, 8], 8), view_entry(2, (1 - rank) * 8, 16, [0, 8], 8)]
        records = [Record(READ_AT, length=8, view=1), Record(READ_AT, length=8, view=2)]
        write_process(
            tmp_path,
            f"n-{rank}",
            pack_header(rank, 2) + pack_records(records),
            side(file_entry(1, b"/a", ranks=2, rank=rank), *entries),
        )
    trace = read_raw(tmp_path)
    assert len(trace.views) == 3
    assert lines(trace, "view", "offset") == [(1, 0), (2, 8), (2, 8), (1, 0)]


def test_flags_become_columns(tmp_path: Path) -> None:
    records = [
        Record(IREAD_AT_ALL_C, length=8, flags=1 | 2 | 4 | 8 | 32),
        Record(READ_AT, length=8, flags=8 | 128),
        Record(READ_AT, length=8, error=35, moved=0),
    ]
    write_process(
        tmp_path, "n-1", pack_header(0, 1) + pack_records(records), side(file_entry(1, b"/a", ranks=1, rank=0))
    )
    assert lines(read_raw(tmp_path), "op", "collective", "moved_known", "redirected", "length", "error") == [
        ("read", True, False, False, 8, 0),
        ("read", False, True, True, 8, 0),
        ("read", False, True, False, 0, 35),
    ]


def test_calls_on_views_or_at_positions_that_are_not_known_have_no_accesses(tmp_path: Path) -> None:
    records = [
        Record(READ_AT, length=8, flags=64),
        Record(READ_AT, position=-1, length=8),
        Record(READ_AT, length=8, view=1),
        Record(READ_AT, length=0, view=1),
        Record(READ_AT, position=24, length=8),
    ]
    named = side(file_entry(1, b"/a", ranks=1, rank=0), view_entry(1, 0, 16, [0, 0], 0))
    write_process(tmp_path, "n-1", pack_header(0, 1) + pack_records(records), named)
    trace = read_raw(tmp_path)
    assert trace.records["offset"].tolist() == [-1, -1, -1, 0, 24]
    assert trace.accesses()["offset"].tolist() == [24]
    assert trace.notes == ("the place of the bytes of 3 calls is not known: their offset is -1",)


def test_programs_in_one_job_are_numbered_on(tmp_path: Path) -> None:
    launches = [(0, 2, NOON), (1, 2, NOON + 5), (0, 2, NOON + SECOND), (1, 2, NOON + SECOND), (0, 3, NOON + 9 * SECOND)]
    for number, (rank, ranks, started) in enumerate(launches):
        records = pack_records([Record(READ_AT, position=number * 8, length=8)])
        header = pack_header(rank, ranks, started=started)
        write_process(tmp_path, f"n-{9 - number}", header + records, side(file_entry(1, b"/a", ranks=ranks, rank=rank)))
    trace = read_raw(tmp_path)
    assert trace.ranks == 7
    assert lines(trace, "rank", "call", "offset") == [(0, 0, 0), (1, 0, 8), (2, 0, 16), (3, 0, 24), (4, 0, 32)]
    assert trace.notes == (
        "2 of 3 ranks left no log: 5, 6",
        "3 programs ran, with 2, 2, 3 ranks: numbered consecutively in order of their start",
    )


def test_a_log_without_finalize_is_read_up_to_its_last_complete_record(tmp_path: Path) -> None:
    packed = bytearray(pack_records([Record(READ_AT, position=n * 8, length=8) for n in range(10)]))
    packed[6 * 64 : 6 * 64 + 8] = bytes(8)  # killed between filling the record and storing its seq
    header = pack_header(0, 1, finalized=0, dropped=4)
    write_process(tmp_path, "n-1", header + bytes(packed), side(file_entry(1, b"/a", ranks=1, rank=0)))
    trace = read_raw(tmp_path)
    assert trace.records["offset"].tolist() == [0, 8, 16, 24, 32, 40]
    assert (trace.truncated, trace.dropped) == ((0,), 4)


def test_a_trace_says_how_long_the_run_took_if_all_ranks_reached_its_end(tmp_path: Path) -> None:
    sides = [side(file_entry(1, b"/a", ranks=2, rank=rank)) for rank in range(2)]
    for rank, end in enumerate((3 * SECOND, 4 * SECOND)):
        write_process(tmp_path, f"n-{rank}", pack_header(rank, 2, finalized=BOOT + end), sides[rank])
    assert read_raw(tmp_path).seconds == 4.0
    write_process(tmp_path, "n-1", pack_header(1, 2, finalized=0), sides[1])
    assert read_raw(tmp_path).seconds == 0.0


def test_a_log_cut_anywhere_gives_the_records_before_the_cut(tmp_path: Path) -> None:
    log = pack_header(0, 1) + pack_records([Record(READ_AT, position=n * 8, length=8) for n in range(4)])
    for size in (*range(4096, len(log), 3), len(log)):
        write_process(tmp_path, "n-1", log[:size], side(file_entry(1, b"/a", ranks=1, rank=0)))
        assert read_raw(tmp_path).records["offset"].tolist() == [0, 8, 16, 24][: (size - 4096) // 64]


def log_with_window(records: bytes, stored: int, appended: int) -> bytes:
    """A log with a window of 4 records, into which 1..``stored`` went, and ``appended`` bytes after it."""
    window = bytearray(4 * 64)
    for number in range(stored):
        window[number % 4 * 64 : number % 4 * 64 + 64] = records[number * 64 : number * 64 + 64]
    return pack_header(0, 1, window=4) + bytes(window) + records[:appended]


def test_records_are_read_from_the_window_until_it_has_been_appended(tmp_path: Path) -> None:
    """A process killed at any record, and anywhere while it appends, loses none."""
    records = pack_records([Record(READ_AT, position=n * 8, length=8) for n in range(11)])
    for stored in range(12):
        before = max(stored - 1, 0) // 4 * 4 * 64
        for appended in range(before, before + 4 * 64 + 1 if stored % 4 == 0 and stored else before + 1, 7):
            log = log_with_window(records, stored, appended)
            write_process(tmp_path, "n-1", log, side(file_entry(1, b"/a", ranks=1, rank=0)))
            assert read_raw(tmp_path).records["offset"].tolist() == [0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80][:stored]


def test_a_record_of_the_window_counts_from_when_it_has_its_number(tmp_path: Path) -> None:
    records = pack_records([Record(READ_AT, position=n * 8, length=8) for n in range(6)])
    log = bytearray(log_with_window(records, 6, 4 * 64))
    log[4096 + 64 : 4096 + 72] = struct.pack("<Q", 2)  # the sixth is made in the place of the second
    write_process(tmp_path, "n-1", bytes(log), side(file_entry(1, b"/a", ranks=1, rank=0)))
    assert read_raw(tmp_path).records["offset"].tolist() == [0, 8, 16, 24, 32]


@pytest.mark.parametrize("size", [0, 5, 8, 100, 4095])
def test_a_log_cut_in_its_header_is_noted(tmp_path: Path, size: int) -> None:
    write_two_ranks(tmp_path)
    log = tmp_path / "node1-1001.log"
    log.write_bytes(log.read_bytes()[:size])
    trace = read_raw(tmp_path)
    assert trace.records["rank"].tolist() == [0, 0, 0]
    assert trace.notes == (
        "node1-1001.log ends in its header: nothing is known of that process",
        "1 of 2 ranks left no log: 1",
    )


def test_a_header_of_zeros_is_a_log_cut_in_its_header(tmp_path: Path) -> None:
    (tmp_path / "n-1.log").write_bytes(bytes(1 << 16))
    with pytest.raises(FormatError, match=r"none of the 1 logs in .* has a complete header"):
        read_raw(tmp_path)


def test_a_log_of_posix_calls_that_ends_in_its_header_spoils_no_other(tmp_path: Path) -> None:
    write_two_ranks(tmp_path)
    (tmp_path / "node1-1000.posix").write_bytes(bytes(1 << 16))
    assert read_raw(tmp_path).records["rank"].tolist() == [0, 0, 0, 1, 1, 1]


def test_a_side_file_cut_anywhere_gives_the_records_before_what_it_lacks(tmp_path: Path) -> None:
    named = side(
        file_entry(1, b"/data/a", ranks=1, rank=0),
        view_entry(1, 0, 16, [0, 8], 8),
        file_entry(2, b"/data/b", ranks=1, rank=0),
    )
    records = [Record(READ_AT, length=8), Record(READ_AT, length=8, view=1), Record(READ_AT, length=8, file=2)]
    counts = set()
    for size in range(0, len(named), 3):
        write_process(tmp_path, "n-1", pack_header(0, 1) + pack_records(records), named[:size])
        trace = read_raw(tmp_path)
        counts.add(len(trace.records))
        if len(trace.records) < 3:
            assert trace.truncated == (0,)
            assert "name files, views or calls that n-1.side does not have" in trace.notes[0]
    assert counts == {0, 1, 2, 3}


def test_a_missing_side_file_is_like_an_empty_one(tmp_path: Path) -> None:
    write_two_ranks(tmp_path)
    (tmp_path / "node1-1000.side").unlink()
    trace = read_raw(tmp_path)
    assert trace.records["rank"].tolist() == [1, 1, 1]
    assert trace.truncated == (0,)
    assert trace.notes[0].startswith(
        "node1-1000.log: the last 3 records are left out: they name files, views or calls that node1-1000.side"
    )


def test_a_directory_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(PdlaError, match=r"there is no log of the recorder in"):
        read_raw(tmp_path)
    with pytest.raises(PdlaError, match=r"missing: No such file or directory \(it should be a directory of raw logs\)"):
        read_raw(tmp_path / "missing")


def damage(path: Path, place: int, value: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[place : place + len(value)] = value
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("suffix", "place", "value", "message"),
    [
        ("log", 0, b"GARBAGE!", "is not a log of the pdla recorder"),
        ("log", 7, b"1", "is not a log of the pdla recorder"),
        ("log", 12, struct.pack("<I", 72), "has a header of 4096 bytes and records of 72"),
        ("log", 16, struct.pack("<i", 2), "rank 2 of 2"),
        ("log", 4096, struct.pack("<Q", 9), "records are not in order"),
        ("log", 4096 + 16, struct.pack("<q", 0), "impossible values"),
        ("side", 0, b"GARBAGE!", "is not a file of the pdla recorder"),
        ("side", 8, struct.pack("<I", 9), "has an entry of kind 9"),
    ],
)
def test_garbage_is_a_format_error(tmp_path: Path, suffix: str, place: int, value: bytes, message: str) -> None:
    write_two_ranks(tmp_path)
    damage(tmp_path / f"node1-1000.{suffix}", place, value)
    with pytest.raises(FormatError, match=message) as caught:
        read_raw(tmp_path)
    assert f"node1-1000.{suffix}" in str(caught.value)


def test_a_view_whose_words_are_no_tree_is_a_format_error(tmp_path: Path) -> None:
    write_process(tmp_path, "n-1", pack_header(0, 1), side(view_entry(1, 0, 16, [1, 5], 8)))
    with pytest.raises(FormatError, match=r"n-1\.side is damaged: .*end in the middle of its tree"):
        read_raw(tmp_path)


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_are_refused_or_read_but_never_crash(tmp_path: Path, seed: int) -> None:
    noise = np.random.default_rng(seed)
    write_two_ranks(tmp_path)
    path = tmp_path / f"node1-1000.{'log' if seed % 2 else 'side'}"
    place = int(noise.integers(0, path.stat().st_size - 16))
    damage(path, place if seed % 2 == 0 else 4096 + place % 192, noise.bytes(16))
    try:
        read_raw(tmp_path)
    except PdlaError as error:
        assert "\n" not in str(error)
