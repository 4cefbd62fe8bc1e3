"""What a program has left in replicas under a lease is read where it is (ADR 27)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pdla.replicator.exit_reports import collect
from pdla.replicator.identity import identity_of
from pdla.replicator.intent import NAME as INTENT
from pdla.replicator.intent import HeldIntent, read_intent
from pdla.replicator.mapfile import publish
from pdla.replicator.sync import STAMP_SLACK_NS, write_back
from tests.searches.killing_write_backs import interrupter
from tests.support.handmade_journals import Image
from tests.support.handmade_maps import Replica
from tests.support.leased_files import ERR_IO, Leased, damage, make_leased
from tests.support.mpi import REPOSITORY, Mpi, available_mpis
from tests.support.redirected_writes import Case, columns, halves, make_case
from tests.support.waiting import PATIENCE
from tests.support.written_rounds import RANKS, killed_with_journals

PIECE, ROWS, START = 96, 60, 480
"""Of tests/programs/writes.c."""
LOOK = ("size", "part", "header", "together")
IN_PLACE = ("independent", "views", "collective", "collective-late", "memory", "nonblocking")
AT_HOME = ("ends", "others", "random", "jump", "threads", "threads-read-on", "alone")
"""Steps of tests/programs/reads.c: the replicas and the original serve the first; some of the others need the MPI
library."""


@pytest.fixture(scope="session")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Mpi, str], Path]:
    """Compiles a program of tests/programs once for each MPI."""
    directory = tmp_path_factory.mktemp("readers")

    def compiled(mpi: Mpi, name: str) -> Path:
        program = directory / f"{name}-{mpi.name}"
        if not program.exists():
            mpi.compile(REPOSITORY / f"tests/programs/{name}.c", program, "-Wall", "-Wextra", "-pthread")
        return program

    return compiled


# ---- every kind of read ----------------------------------------------------------------------------------------------


@dataclass
class Producer:
    """tests/programs/writes.c as the first job, and tests/programs/reads.c as the second."""

    case: Case
    reader: Path

    def read(self, redirected: bool, steps: Sequence[str], ranks: int) -> tuple[str, int]:
        """What the ranks saw, and bytes that came from the replicas of a lease."""
        case, out = self.case, Path(tempfile.mkdtemp(dir=self.case.directory))
        settings = [f"PDLA_MAP={case.directory / 'map'}", f"PDLA_REPORT={out}", f"LD_PRELOAD={case.library}"]
        words = [self.reader, case.original, out / "rank", *steps]
        case.mpi.run(case.mpi.command(ranks, "env", *(settings if redirected else []), *map(str, words)))
        reports = [json.loads(path.read_text()) for path in out.glob("*/*.json")]
        bytes_in_place = sum(file["leased"]["bytes"] for report in reports for file in report["writes"])
        return "".join((out / f"rank.{rank}").read_text() for rank in range(ranks)), bytes_in_place

    def compare(self, written: Sequence[str], steps: Sequence[str], ranks: int = 3) -> int:
        """Write natively and read natively; write under a lease and read: the same must be seen."""
        self.case.run("native", "open", *written, "close", ranks=2)
        native, _ = self.read(False, steps, ranks)
        self.case.original.unlink()
        self.case.run("lease", "open", *written, "close", ranks=2)
        assert len(self.case.journals) == 2
        seen, in_place = self.read(True, steps, ranks)
        assert seen == native
        return in_place


@pytest.fixture
def either_producer(
    mpi: Mpi,
    tmp_path: Path,
    library: Path,
    tmp_path_factory: pytest.TempPathFactory,
    readers: Callable[[Mpi, str], Path],
) -> Producer:
    """Under each MPI."""
    return Producer(make_case(mpi, tmp_path, library, tmp_path_factory.mktemp("writer")), readers(mpi, "reads"))


@pytest.fixture
def producer(
    tmp_path: Path, library: Path, tmp_path_factory: pytest.TempPathFactory, readers: Callable[[Mpi, str], Path]
) -> Producer:
    """Under MPICH."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    return Producer(make_case(mpi, tmp_path, library, tmp_path_factory.mktemp("writer")), readers(mpi, "reads"))


@pytest.mark.parametrize("ranks", [1, 3])
def test_every_kind_of_read_sees_what_it_sees_natively(either_producer: Producer, ranks: int) -> None:
    in_place = either_producer.compare(["header", "strided"], IN_PLACE, ranks)
    assert in_place > 4 * ROWS * PIECE
    assert len(either_producer.case.journals) == 2


def test_what_the_mpi_library_has_to_read_is_brought_home(either_producer: Producer) -> None:
    assert either_producer.compare(["header", "strided"], [*IN_PLACE, *AT_HOME, *IN_PLACE]) > 0
    assert either_producer.case.journals == []


def irregular() -> Replica:
    """The pieces in another order."""
    pieces = [START + i * PIECE for i in range(4 * ROWS)]
    order = [*range(0, 4 * ROWS, 2), *range(1, 4 * ROWS, 2)]
    place = {piece: i * PIECE for i, piece in enumerate(order)}
    extents = [(start, PIECE, place[i]) for i, start in enumerate(pieces)]
    return Replica(size=4 * ROWS * PIECE, extents=extents, strips=[700, 300])


LAYOUTS: dict[str, Callable[[], list[Replica]]] = {
    "2-D": lambda: [columns(groups=2, strips=[0, 100, 7], section=1000)],
    "two": halves,
    "irregular": lambda: [irregular()],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_leased_bytes_are_found_in_every_layout(producer: Producer, layout: str) -> None:
    case = replace(producer.case, directory=producer.case.directory / "other")
    case.directory.mkdir()
    case.prepare(*LAYOUTS[layout]())
    assert Producer(case, producer.reader).compare(["header", "backwards"], IN_PLACE) > 4 * ROWS * PIECE
    assert len(case.journals) == 2


@pytest.mark.parametrize("written", [["twice"], ["strided", "backwards", "twice"], ["header", "rows"]])
def test_holes_and_bytes_that_were_written_repeatedly(producer: Producer, written: list[str]) -> None:
    assert producer.compare(written, IN_PLACE) > 0
    assert len(producer.case.journals) == 2


# ---- beside others ---------------------------------------------------------------------------------------------------


@dataclass
class Consumer:
    """tests/programs/consumer.c, the second job of a leased file."""

    leased: Leased
    program: Path
    out: Path = field(init=False)

    def command(self, how: str, *steps: str, ranks: int = 2, extra: Sequence[str] = ()) -> list[str]:
        place = self.leased.place
        self.out = Path(tempfile.mkdtemp(dir=place.directory)) / "rank"
        report = [f"PDLA_REPORT={self.out.parent}"]
        words = [*self.leased.environment(how), *report, *extra, self.program, self.leased.original, self.out, *steps]
        return place.mpi.command(ranks, *map(str, words))

    def seen(self, ranks: int = 2) -> str:
        return "".join(self.out.with_name(f"rank.{rank}").read_text() for rank in range(ranks))

    def read(self, how: str, *steps: str, ranks: int = 2, extra: Sequence[str] = ()) -> str:
        """What the ranks saw."""
        self.leased.place.mpi.run(self.command(how, *steps, ranks=ranks, extra=extra))
        return self.seen(ranks)

    @property
    def in_place(self) -> int:
        """Bytes that came from the replicas."""
        reports = [json.loads(path.read_text()) for path in self.out.parent.glob("*/*.json")]
        return sum(file["leased"]["bytes"] for report in reports for file in report["writes"])

    def native(self, *steps: str, ranks: int = 2) -> str:
        """What they see in a file that was written and is read natively."""
        self.leased.write("native")
        return self.read("native", *steps, ranks=ranks)

    @contextmanager
    def paused(self, *steps: str, ranks: int = 2) -> Iterator[list[int]]:
        """While the ranks wait at their "pause"; the processes are those of the launcher."""
        mpi = self.leased.place.mpi
        command = self.command("original", *steps, ranks=ranks)
        with subprocess.Popen(command, env={**os.environ, **mpi.env}, stderr=subprocess.PIPE) as job:
            mark = self.out.with_name("rank.paused")
            for _ in range(10000):
                if mark.exists() or job.poll() is not None:
                    break
                time.sleep(0.01)
            assert mark.exists()
            try:
                yield [job.pid]
            finally:
                mark.unlink()
            assert job.wait(timeout=PATIENCE) == 0


@pytest.fixture
def consumer(
    tmp_path: Path,
    library: Path,
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    readers: Callable[[Mpi, str], Path],
) -> Iterator[Consumer]:
    """Under MPICH."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    for leased in make_leased(mpi, tmp_path, library, programs, monkeypatch):
        yield Consumer(leased, readers(mpi, "consumer"))


@pytest.fixture
def either(
    mpi: Mpi,
    tmp_path: Path,
    library: Path,
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    readers: Callable[[Mpi, str], Path],
) -> Iterator[Consumer]:
    """Under each MPI."""
    for leased in make_leased(mpi, tmp_path, library, programs, monkeypatch):
        yield Consumer(leased, readers(mpi, "consumer"))


def test_h45_a_reader_sees_the_size_and_the_bytes_and_nothing_is_written_back(either: Consumer) -> None:
    native = {ranks: either.native(*LOOK, ranks=ranks) for ranks in (1, 2, 4)}
    either.leased.write()
    disk = either.leased.original.stat()
    for ranks, expected in native.items():
        assert either.read("original", *LOOK, ranks=ranks) == expected
        assert either.in_place > 0
        assert len(either.leased.place.journals) == RANKS
    # The file became longer, but its bytes are a hole still.
    assert either.leased.original.stat().st_blocks <= disk.st_blocks + 8
    (row,) = write_back(either.leased.place.catalog)
    assert (row.problem, row.bytes) == ("", either.leased.original.stat().st_size - 512)
    assert either.read("original", *LOOK, ranks=4) == native[4]
    assert either.in_place == 0


def test_what_a_killed_program_left_is_read_where_it_is(either: Consumer) -> None:
    place = either.leased.place
    killed_with_journals(place)
    seen = either.read("original", *LOOK)
    assert either.in_place > 0 and place.journals != []
    (row,) = write_back(place.catalog)
    assert row.problem == ""
    assert either.read("native", *LOOK) == seen


@pytest.mark.parametrize("step", ["end", "shared", "external", "threads"])
def test_what_is_left_to_the_mpi_library_is_in_the_file(either: Consumer, step: str) -> None:
    native = either.native("part", step, *LOOK)
    either.leased.write()
    assert either.read("original", "part", step, *LOOK) == native
    assert either.leased.place.journals == []


@pytest.mark.parametrize("step", ["end", "shared", "external", "together", "part"])
def test_h47_a_reader_never_gets_old_bytes_in_silence(consumer: Consumer, step: str) -> None:
    """Somebody else changes the file while it is open, so that the bytes cannot be written back."""
    consumer.leased.write()
    with consumer.paused("part", "pause", step):
        later = time.time_ns() + 10**10
        os.utime(consumer.leased.original, ns=(later, later))
    lines = [line for line in consumer.seen().splitlines() if line.split()[0].startswith((step, "ordered"))]
    assert len(lines) in (2, 4) and [f"{ERR_IO} -1" in line for line in lines][-1]
    assert sum(f"{ERR_IO} -1" in line for line in lines) == 2
    assert len(consumer.leased.place.journals) == RANKS


@pytest.mark.parametrize("part", ["original", "count", "states", "entry", "intent"])
def test_h47_a_reader_of_damaged_journals_gets_an_error(consumer: Consumer, part: str) -> None:
    consumer.leased.write()
    for path in consumer.leased.place.journals:
        damage(part, path)
    assert consumer.read("original", *LOOK).count(f"open {ERR_IO} -1") == 2


def test_h47_a_reader_of_a_replica_that_lost_a_component_gets_an_error(consumer: Consumer) -> None:
    consumer.leased.write()
    consumer.read("original", "size")  # the file has its size
    (replica,) = consumer.leased.place.catalog.replicas.find()
    component = Path(replica.components[1].path)
    component.rename(component.with_suffix(".away"))
    assert consumer.read("original", *LOOK).count(f"open {ERR_IO} -1") == 2
    component.with_suffix(".away").rename(component)
    with consumer.paused("part", "pause", "together"):  # the first component is open, the second one is not
        component.unlink()
    assert consumer.seen().count(f"together {ERR_IO} -1") == 2


def test_pdla_sync_brings_home_beside_a_reader(either: Consumer) -> None:
    native = either.native(*LOOK, *LOOK, *LOOK)
    either.leased.write()
    with either.paused(*LOOK, "pause", *LOOK, *LOOK):
        (row,) = write_back(either.leased.place.catalog)
        assert row.problem == "" and either.leased.place.journals == []
    assert either.seen() == native


def test_a_reader_goes_on_where_the_bytes_are_while_they_are_brought_home(consumer: Consumer) -> None:
    """pdla sync has written some of the file, and has not ended."""
    native = consumer.native(*LOOK, *LOOK)
    consumer.leased.write()
    original = consumer.leased.original
    with consumer.paused("header", "pause", *LOOK, *LOOK), original.open("r+b", buffering=0) as file:
        HeldIntent(consumer.leased.place.journals[0].parents[1], identity_of(file.fileno()))
        file.seek(1000)
        file.write(bytes(5000))
    assert consumer.seen().split("close")[0].partition("header")[2].partition("\n")[2] in native
    assert consumer.in_place > 0 and len(consumer.leased.place.journals) == RANKS
    (row,) = write_back(consumer.leased.place.catalog)
    assert row.problem == ""
    assert consumer.read("native", *LOOK, *LOOK) == native


def test_a_program_that_writes_beside_a_reader_writes_to_the_file(consumer: Consumer) -> None:
    """The replicas stay as they are, and the reader finds what was written."""
    consumer.leased.write()
    said = consumer.leased.place.directory / "said"
    again = [str(consumer.leased.writer), str(consumer.leased.original), str(said), "close"]
    report = consumer.leased.place.directory / "report"
    report.mkdir()
    with consumer.paused("part", "pause", "part", "together"):
        words = consumer.leased.place.words(*again, writes="lease", out=report)
        consumer.leased.place.mpi.run(words, timeout=PATIENCE)  # it does not wait for the reader
        assert consumer.leased.place.journals == []
    (file,) = collect(report, "writer").writes
    assert file.refused == ("other programs read the bytes of an earlier run in the replicas",)
    part = [line for line in consumer.seen().splitlines() if line.startswith("part")]
    assert part[0] == part[1] and part[2] == part[3]
    consumer.leased.place.mpi.run(consumer.leased.place.words(*again, writes="lease"))
    assert len(consumer.leased.place.journals) == RANKS


def test_h24_a_reader_finds_what_was_written_after_the_bytes_were_home(consumer: Consumer) -> None:
    consumer.leased.write()
    original = consumer.leased.original
    with consumer.paused("part", "pause", "part"):
        write_back(consumer.leased.place.catalog)
        content = bytearray(original.read_bytes())
        content[480:4000] = bytes(3520)
        original.write_bytes(content)
    parts = [line for line in consumer.seen().splitlines() if line.startswith("part")]
    assert parts[0] != parts[1] and parts[1] in consumer.read("native", "part")


def test_h15_a_file_that_is_deleted_while_it_is_read_keeps_its_bytes(consumer: Consumer) -> None:
    native = consumer.native("part", *LOOK)
    consumer.leased.write()
    with consumer.paused("part", "pause", *LOOK):
        assert consumer.leased.command("original", "rm", consumer.leased.original).returncode == 0
        assert consumer.leased.place.journals == []
    assert consumer.seen() == native


def test_h28_a_file_that_is_renamed_while_it_is_read_keeps_its_bytes(consumer: Consumer) -> None:
    native = consumer.native("part", *LOOK, "end")
    consumer.leased.write()
    with consumer.paused("part", "pause", *LOOK, "end"):
        consumer.leased.original.rename(consumer.leased.original.with_name("elsewhere"))
    assert consumer.seen() == native
    assert consumer.leased.place.journals == []


def test_h32_a_killed_reader_is_in_nobodys_way(consumer: Consumer) -> None:
    native = consumer.native(*LOOK)
    consumer.leased.write()
    command = consumer.command("original", "part", "killed")
    environment = {**os.environ, **consumer.leased.place.mpi.env}
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode != 0
    assert consumer.read("original", *LOOK) == native
    assert consumer.in_place > 0
    consumer.leased.open("lease", "b", "add")
    assert len(consumer.leased.place.journals) in (0, RANKS)
    (replica,) = consumer.leased.place.catalog.replicas.find()
    assert replica.state == "valid"


@pytest.mark.parametrize("how", ["lease", "close", "original"])
def test_an_open_for_writing_brings_home(consumer: Consumer, how: str) -> None:
    consumer.leased.write("native")
    native = consumer.leased.open("native", "b", "look", "read")
    consumer.leased.write()
    assert consumer.leased.open(how, "b", "look", "read") == native
    assert consumer.leased.place.journals == []


def test_pdla_status_still_says_what_waits(consumer: Consumer) -> None:
    consumer.leased.write()
    pdla = Path(sys.executable).with_name("pdla")
    before = subprocess.run([pdla, "status"], capture_output=True, text=True, check=True).stdout
    with consumer.paused(*LOOK, "pause"):
        assert subprocess.run([pdla, "status"], capture_output=True, text=True, check=True).stdout == before
    assert "pdla sync" in before


def test_h46_a_file_becomes_longer_for_a_reader_under_an_intent(consumer: Consumer) -> None:
    consumer.leased.write()
    place = consumer.leased.place
    journals, log = place.journals[0].parents[1], place.directory / "log"
    preload = f"{place.library}:{interrupter(place.directory)}"
    below = f"INTERRUPT_BELOW={consumer.leased.original}:{journals}"
    consumer.read("original", "size", ranks=1, extra=[f"INTERRUPT_LOG={log}", below, f"LD_PRELOAD={preload}"])
    steps = []
    for line in log.read_text().splitlines():
        call, _, path = line.partition(" ")
        name = Path(path).suffix if path.endswith((".journal", ".new")) else Path(path).name
        if name != "lock":
            steps.append(f"{call} {name}")
    intent = ["write .new", "sync .new", "rename intent", f"sync {journals.name}"]
    assert steps == [*intent, "write data", *intent]
    (row,) = write_back(place.catalog)
    assert row.problem == "" and not (journals / INTENT).exists()


def test_journals_of_a_node_that_crashed_are_not_read(consumer: Consumer) -> None:
    """Not all bytes were durable."""
    consumer.leased.write()
    image = Image(consumer.leased.place.journals[0])
    image.header["boot"], image.header["synced"] = b"0" * 36, 0
    image.write()
    assert consumer.read("original", *LOOK).count(f"open {ERR_IO} -1") == 2


def test_ranks_with_different_maps_do_not_read_the_replicas(consumer: Consumer) -> None:
    """Nor do they write back together, so the open fails."""
    consumer.leased.write()
    place = consumer.leased.place
    other = place.directory / "other.map"
    shutil.copy(place.map, other)
    rank = "PMI_RANK" if place.mpi.name == "mpich" else "OMPI_COMM_WORLD_RANK"
    differ = ["sh", "-c", f'[ "${rank}" = 0 ] || export PDLA_MAP={other}; exec "$@"', "sh"]
    seen = consumer.read("original", *LOOK, extra=differ)
    assert consumer.in_place > 0  # it has the same content
    image = bytearray(other.read_bytes())
    image[-1] ^= 1  # of the entry of the file
    other.write_bytes(image)
    assert consumer.read("original", *LOOK, extra=differ).count(f"open {ERR_IO} -1") == 2
    publish(place.catalog, other)
    assert consumer.read("original", *LOOK, extra=differ).count(f"open {ERR_IO} -1") == 2
    assert consumer.read("original", *LOOK) == seen


def test_h46_a_change_after_an_interrupted_write_back_is_not_overlooked(consumer: Consumer) -> None:
    """pdla sync was killed, and somebody else changes the file later than it can have done."""
    consumer.leased.write()
    original = consumer.leased.original
    with consumer.paused("part", "pause", "part"):
        with original.open("r+b") as file:
            HeldIntent(directory := consumer.leased.place.journals[0].parents[1], identity_of(file.fileno()))
        intent = read_intent(directory)
        assert intent is not None
        late = intent.until_ns + STAMP_SLACK_NS + 10**9
        os.utime(original, ns=(late, late))
    assert consumer.seen().count(f"part {ERR_IO} -1") == 2


def test_a_directory_of_journals_that_has_two_names_is_one(consumer: Consumer) -> None:
    native = consumer.native(*LOOK)
    consumer.leased.write()
    place = consumer.leased.place
    link = place.directory / "link"
    link.symlink_to(place.map.parent)
    for alias in (f"{place.map.parent}//{place.map.name}", f"{link}/{place.map.name}"):
        place.mpi.run(consumer.command("original", *LOOK, extra=[f"PDLA_MAP={alias}"]), timeout=PATIENCE)
        assert consumer.seen() == native
        assert consumer.in_place > 0


def test_several_jobs_read_in_place_at_the_same_time(either: Consumer) -> None:
    native = either.native("part", *LOOK)
    either.leased.write()
    other = Consumer(either.leased, either.program)
    with either.paused("part", "pause", *LOOK):
        assert other.read("original", "part", *LOOK) == native
        assert other.in_place > 0
    assert either.seen() == native and either.in_place > 0
    assert len(either.leased.place.journals) == RANKS


def test_the_report_says_what_was_read_in_place(consumer: Consumer) -> None:
    consumer.leased.write()
    consumer.read("original", "part", ranks=1)
    report = collect(consumer.out.parent, "consumer")
    (file,) = report.writes
    assert (file.leased_reads, file.leased_bytes) == (1, 3000 - (512 - START))
    assert "1 read took 2.9 KiB of" in report.sentence and "from where an earlier run left them" in report.sentence
