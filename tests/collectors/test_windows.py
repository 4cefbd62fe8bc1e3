"""Windows of a log: what the recorder makes, the reader reads, at whatever moment the program is killed."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdla.collectors.rawlog import HEADER, read_raw
from pdla.collectors.windows import PAIR, RECORD, WINDOW_SIZE, Windows, convert, scale, unsteady
from pdla.errors import FormatError
from tests.support.compilers import compiled
from tests.support.handmade_logs import BOOT, NOON, READ_AT, file_entry, side, write_process
from tests.support.mpi import REPOSITORY
from tests.support.recorded_programs import Recorder

RESERVE = 128
PENDING, MOVED_UNKNOWN = 256, 32
Records = np.ndarray[Any, np.dtype[Any]]


class Writer:
    """The recorder's functions on memory: ``log()`` is what is in the file at this moment."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.stream = ctypes.create_string_buffer(1 << 13)
        self.window = np.zeros(WINDOW_SIZE, dtype=np.uint8)
        self.committed = ctypes.c_uint64()
        self.appended = b""
        library.stream_begin(self.stream, ctypes.c_void_p(self.window.ctypes.data), ctypes.byref(self.committed))

    def log(self) -> bytes:
        header = np.zeros(1, dtype=HEADER)
        header["magic"], header["header_size"], header["record_size"] = b"PDLALOG3", 4096, 64
        header["ranks"], header["realtime_ns"], header["monotonic_ns"] = 1, NOON, BOOT
        header["committed"] = self.committed.value
        header["loaded"]["ns"] = 1
        return header.tobytes().ljust(4096, b"\0") + self.window.tobytes() + self.appended

    def anchor(self, ticks: int, ns: int) -> None:
        class Pair(ctypes.Structure):
            _fields_ = (("ticks", ctypes.c_int64), ("ns", ctypes.c_int64))

        self.library.stream_anchor(self.stream, Pair(ticks, ns))

    def add(self, record: Records) -> Iterator[None]:
        """Stops at every moment at which a kill would leave something else."""
        if self.committed.value == 0:
            self.anchor(0, BOOT)
            yield
        elif -self.committed.value % WINDOW_SIZE < RESERVE:
            window = self.committed.value // WINDOW_SIZE * WINDOW_SIZE
            self.library.stream_end_window(self.stream)
            yield
            content = self.window.tobytes()
            for length in (1, 100, WINDOW_SIZE // 2, WINDOW_SIZE - 1, WINDOW_SIZE):
                self.appended = self.appended[:window] + content[:length]
                yield
            self.library.stream_next_window(self.stream)
            yield
            self.anchor(int(record["t_start"]), BOOT + int(record["t_start"]))
            yield
        place = ctypes.c_uint64()
        self.library.stream_add(self.stream, record.tobytes(), ctypes.byref(place))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("encoder") / "stream.so"
    shim = REPOSITORY / "collectors/shim"
    compiled(["gcc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", path, shim / "stream.c"])
    return ctypes.CDLL(str(path))


def records_of(count: int, seed: int) -> Records:
    """Calls of several kinds on several files: regular, at random, failed, short, pending, with extreme numbers."""
    choose = np.random.default_rng(seed)
    made = np.zeros(count, dtype=RECORD)
    made["seq"] = np.arange(1, count + 1)
    made["t_start"] = np.cumsum(
        choose.choice([0, 1, 300, 40_000, 1 << 20, 1 << 34], count, p=[0.1, 0.3, 0.3, 0.1, 0.1, 0.1])
    )
    made["t_end"] = made["t_start"] + choose.choice([0, 7, 300, 70_000, 1 << 33], count)
    made["file"] = choose.choice([1, 2, 3, 1 << 31], count)
    made["view"] = choose.choice([0, 5], count)
    made["call"] = choose.integers(0, 4, count)
    made["position"] = np.where(
        choose.random(count) < 0.7, np.arange(count) * 4096, choose.integers(-1, 1 << 62, count)
    )
    made["length"] = made["moved"] = choose.choice([512, 513, 0, 1 << 40], count, p=[0.9, 0.05, 0.03, 0.02])
    made["flags"] = choose.choice([0, 1, MOVED_UNKNOWN, PENDING], count, p=[0.7, 0.2, 0.05, 0.05])
    short, failed = choose.random(count) < 0.05, choose.random(count) < 0.05
    made["moved"][short] = 3
    made["error"][failed] = 20
    return made


def strided(count: int) -> Records:
    made = np.zeros(count, dtype=RECORD)
    made["seq"] = np.arange(1, count + 1)
    made["t_start"] = np.arange(count) * 700
    made["t_end"] = made["t_start"] + 600
    made["position"] = np.arange(count) * 4096
    made["length"] = made["moved"] = 512
    made["file"], made["call"] = 1, READ_AT
    return made


def read(path: Path, log: bytes) -> Records:
    path.write_bytes(log)
    header = np.frombuffer(log, HEADER, 1)[0]
    blocks = [block.copy() for block in Windows(path, 4096, int(header["committed"])).records()]
    return np.concatenate([np.empty(0, RECORD), *blocks])


def write(encoder: ctypes.CDLL, records: Records) -> Writer:
    writer = Writer(encoder)
    for record in records:
        for _ in writer.add(record):
            pass
    return writer


@pytest.mark.parametrize("seed", range(3))
def test_what_is_read_is_what_was_recorded(encoder: ctypes.CDLL, tmp_path: Path, seed: int) -> None:
    records = records_of(6000, seed)
    log = write(encoder, records).log()
    assert len(log) > 4096 + 2 * WINDOW_SIZE
    np.testing.assert_array_equal(read(tmp_path / "log", log), records)


def test_a_kill_at_any_moment_loses_no_record(encoder: ctypes.CDLL, tmp_path: Path) -> None:
    """Every moment around the ends of two windows, and some in between."""
    records, writer, looked_at = records_of(3600, 7), Writer(encoder), 0
    for number, record in enumerate(records):
        for _ in writer.add(record):
            looked_at += 1
            np.testing.assert_array_equal(read(tmp_path / "log", writer.log()), records[:number])
        if number % 97 == 0:
            np.testing.assert_array_equal(read(tmp_path / "log", writer.log()), records[: number + 1])
    assert looked_at == 1 + 2 * 8


def test_regular_calls_take_few_bytes(encoder: ctypes.CDLL, tmp_path: Path) -> None:
    for position, most in (
        (np.arange(30000) * 4096, 6.2),
        (np.random.default_rng(1).integers(0, 1 << 34, 30000), 14.2),
    ):
        records = strided(30000)
        records["position"] = position
        assert write(encoder, records).committed.value / 30000 < most


def test_templates_that_fall_together_are_told_apart(encoder: ctypes.CDLL, tmp_path: Path) -> None:
    """More files and calls than templates, in turns."""
    records = strided(5000)
    records["file"] = np.arange(5000) % 150
    records["call"] = np.arange(5000) % 7
    np.testing.assert_array_equal(read(tmp_path / "log", write(encoder, records).log()), records)


def test_a_log_cut_anywhere_gives_the_records_before_the_cut(encoder: ctypes.CDLL, tmp_path: Path) -> None:
    records = records_of(3000, 3)
    log = write(encoder, records).log()
    found = []
    for size in [*range(4096, 4400, 7), *range(4096 + WINDOW_SIZE, len(log), 977), len(log)]:
        got = read(tmp_path / "log", log[:size])
        np.testing.assert_array_equal(got, records[: len(got)])
        found.append(len(got))
    assert found[-1] == 3000
    assert len(set(found)) > 50


# ---- the bytes, made by hand ----------------------------------------------------------------------------------------


def anchor(following: int, ticks: int, ns: int) -> bytes:
    return struct.pack("<BQqq", 2, following, ticks, ns)


def full(template: int, seq: int, start: int, end: int, position: int, length: int, call: int = READ_AT) -> bytes:
    return struct.pack("<BBQqqqqqIIHHi", 1, template, seq, start, end, position, length, length, 1, 0, call, 0, 0)


def log_of(
    entries: bytes, tail: bytes = b"", *, ended: tuple[int, int] = (0, 0), loaded: tuple[int, int] = (0, 1)
) -> bytes:
    header = np.zeros(1, dtype=HEADER)
    header["magic"], header["header_size"], header["record_size"], header["ranks"] = b"PDLALOG3", 4096, 64, 1
    header["realtime_ns"], header["monotonic_ns"], header["finalized"] = NOON, BOOT, ended[1]
    header["loaded"], header["ended"] = np.array(loaded, "2<i8").view(PAIR), np.array(ended, "2<i8").view(PAIR)
    header["committed"] = len(entries) + len(tail)
    return header.tobytes().ljust(4096, b"\0") + entries.ljust(WINDOW_SIZE, b"\0") + tail


def trace_of(directory: Path, log: bytes) -> Any:
    write_process(directory, "n-1", log, side(file_entry(1, b"/a", ranks=1, rank=0)))
    return read_raw(directory)


def test_entries_mean_what_the_format_says(tmp_path: Path) -> None:
    """A strided loop, its first record whole; the third is 100 bytes off and 3 bytes longer, the fourth before it."""
    entries = (
        anchor(1, 1000, BOOT)
        + full(9, 1, 1100, 1200, 4096, 512)
        + struct.pack("<BBHHH", 128 | 9, 0b00_01_01_01, 2 * 50, 60, 2 * 4096)
        + struct.pack("<BBHIqH", 128 | 9, 0b01_11_10_01, 2 * 1, 70_000, 2 * 100, 2 * 3)
        + struct.pack("<BBI", 128 | 9, 0b00_00_00_10, 2 * 5 - 1)
    )
    (tmp_path / "log").write_bytes(log_of(entries))
    (got,) = Windows(tmp_path / "log", 4096, len(entries)).records()
    assert got["t_start"].tolist() == [1100, 1250, 1311, 71_306]
    assert got["t_end"].tolist() == [1200, 1310, 71_311, 71_306]
    assert got["position"].tolist() == [4096, 8192, 12_388, 16_584]
    assert got["length"].tolist() == got["moved"].tolist() == [512, 512, 515, 515]
    assert got["seq"].tolist() == [1, 2, 3, 4]


def test_ticks_become_times_by_the_clocks_that_were_read_together(tmp_path: Path) -> None:
    """A tick is 2 ns until 2000, then 1 ns until 3000, and outside 1.5 ns."""
    starts = (1500, 2500, 3100)
    entries = anchor(1, 2000, BOOT + 2000) + b"".join(
        full(255, i, at, at + 10, 0, 1) for i, at in enumerate(starts, start=1)
    )
    log = log_of(entries, loaded=(1000, BOOT), ended=(3000, BOOT + 3000))
    trace = trace_of(tmp_path, log)
    assert (trace.records["t_start"] * 1e9).round().tolist() == [1000, 2500, 3150]
    assert (trace.records["t_end"] * 1e9).round().tolist() == [1020, 2510, 3165]
    assert trace.truncated == ()
    assert trace.notes == ()


def test_a_clock_that_does_not_keep_its_rate_is_noted(tmp_path: Path) -> None:
    second = 10**9
    entries = anchor(1, second, BOOT + second) + full(255, 1, second, second + 10, 0, 1)
    trace = trace_of(tmp_path, log_of(entries, loaded=(0, BOOT), ended=(2 * second, BOOT + second + second // 2)))
    assert "the clock of 1 processes did not keep its rate" in trace.notes[0]


def test_a_clock_that_jumped_back_is_left_out() -> None:
    pairs = np.array([(10, 100), (20, 200), (5, 300), (30, 300), (40, 350)], dtype=PAIR)
    assert scale(pairs).tolist() == [(10, 100), (20, 200), (30, 300), (40, 350)]
    assert scale(np.zeros(3, dtype=PAIR)).tolist() == [(0, 0)]
    assert unsteady(scale(pairs)) == 0


def test_no_time_overflows() -> None:
    records = np.zeros(4, dtype=RECORD)
    records["t_start"] = records["t_end"] = [-(2**63), 2**63 - 1, 0, 2**62]
    convert(records, np.array([(0, 0), (1, 2**62)], dtype=PAIR))
    assert np.all(records["t_end"] >= records["t_start"])


@pytest.mark.parametrize(
    "entries",
    [
        full(0, 1, 1, 2, 0, 1),
        anchor(2, 0, BOOT),
        anchor(1, 0, BOOT) + full(0, 2, 1, 2, 0, 1),
        anchor(1, 0, BOOT) + full(64, 1, 1, 2, 0, 1),
        anchor(1, 0, BOOT) + b"\x80\0",
        anchor(1, 0, BOOT) + b"\xc0\0",
        anchor(1, 0, BOOT) + b"\x03",
        anchor(1, 0, BOOT) + full(0, 1, 2, 1, 0, 1),
        anchor(1, 0, BOOT) + full(0, 1, 1, 2, 0, -1),
    ],
)
def test_what_contradicts_itself_is_damaged(tmp_path: Path, entries: bytes) -> None:
    with pytest.raises(FormatError, match=r"n-1\.log is damaged: its records are not in order, or have impossible"):
        trace_of(tmp_path, log_of(entries))


def test_windows_that_a_crash_of_the_node_left_empty_end_the_log(tmp_path: Path) -> None:
    first = (anchor(1, 0, BOOT) + full(0, 1, 1, 2, 0, 1)).ljust(WINDOW_SIZE, b"\0")
    trace = trace_of(tmp_path, log_of(bytes(WINDOW_SIZE), first + bytes(WINDOW_SIZE), ended=(9, BOOT + 9)))
    assert (len(trace.records), trace.truncated) == (1, (0,))


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_are_refused_or_read_but_never_crash(encoder: ctypes.CDLL, tmp_path: Path, seed: int) -> None:
    choose = np.random.default_rng(seed)
    log = write(encoder, records_of(1000, seed)).log()
    for _ in range(60):
        damaged = bytearray(log)
        for place in choose.integers(4096, len(log), 1 + choose.integers(0, 4)):
            damaged[place] = choose.integers(0, 256)
        try:
            read(tmp_path / "log", bytes(damaged))
        except FormatError:
            continue


# ---- the clock -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["tsc", "hpet"])
def test_a_counter_that_the_kernel_does_not_trust_is_not_read(recorder: Recorder, tmp_path: Path, source: str) -> None:
    """Times are right with either clock; with that of the kernel ticks are nanoseconds."""
    said = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source == "hpet":
        (tmp_path / "hpet").write_text("hpet\n")
        hidden = ["unshare", "--mount", "sh", "-c", f'mount --bind {tmp_path}/hpet {said} && exec "$@"', "sh"]
        if subprocess.run([*hidden, "true"], capture_output=True, check=False).returncode != 0:
            pytest.skip("only root can hide the kernel's clock")
    elif not said.is_file() or said.read_text() != "tsc\n":
        pytest.skip("the kernel does not keep time by the processor's counter")
    else:
        hidden = []
    recorder.run(1, *hidden, recorder.compile("endings"), "pmpi", tmp_path / "data")
    (log,) = recorder.logs.glob("*/*.log")
    header = np.frombuffer(log.read_bytes(), HEADER, 1)[0]
    assert bool(header["loaded"]["ticks"] == header["loaded"]["ns"]) == (source == "hpet")
    assert bool(header["ended"]["ticks"] == header["ended"]["ns"]) == (source == "hpet")
    records = read_raw(recorder.logs).records
    ran = (int(header["finalized"]) - int(header["monotonic_ns"])) / 1e9
    assert 0 <= records["t_start"].min() <= records["t_end"].max() <= ran
