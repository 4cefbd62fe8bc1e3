"""Times of ranks on several nodes are on one time line: time namespaces stand in for nodes with clocks of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from pdla.collectors.clocks import align
from pdla.collectors.rawlog import HEADER, read_raw
from tests.support.mpi import REPOSITORY, Mpi, unavailable

SECOND = 10**9
HOUR = 3600 * SECOND
AHEAD = (100_000, 7, 5_000_000)  # seconds by which the clocks of nodes 1, 2 and 3 are ahead of that of node 0


def unshare(ahead: int, script: str) -> list[str]:
    """A command that runs ``script`` on a node whose clock is ahead."""
    return ["unshare", "--time", "--monotonic", str(ahead), "--uts", "--fork", "sh", "-c", script]


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[int]]:
    """The processes in whose namespaces the ranks of nodes 1, 2 and 3 run."""
    try:
        works = subprocess.run(unshare(7, "nsenter -t $$ --time --uts true"), capture_output=True, check=False)
    except FileNotFoundError:
        unavailable("there is no unshare")
    if works.returncode:
        unavailable(f"time namespaces cannot be made here: {works.stderr.decode()}")
    holders = [
        subprocess.Popen(
            unshare(ahead, f"hostname node{node}; echo $$; read end"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for node, ahead in enumerate(AHEAD, start=1)
    ]
    yield [int(holder.stdout.readline()) for holder in holders if holder.stdout]
    for holder in holders:
        holder.communicate(b"\n")


def run_turns(mpi: Mpi, library: Path, directory: Path, nodes: list[int]) -> None:
    """8 ranks that write in turn, 2 on each node."""
    program = mpi.compile(REPOSITORY / "tests/programs/turns.c", directory / "turns")
    first, second, third = nodes
    script = directory / "on_node.sh"
    script.write_text(
        "export MPI_LOCALNRANKS=2 OMPI_COMM_WORLD_LOCAL_SIZE=2\n"
        "case $((${PMI_RANK:-$OMPI_COMM_WORLD_RANK} / 2)) in\n"
        f'0) exec "$@";; 1) node={first};; 2) node={second};; *) node={third};;\n'
        "esac\n"
        'exec nsenter -t $node --time --uts "$@"\n'
    )
    traced = {"LD_PRELOAD": str(library), "PDLA_TRACE": str(directory / "logs")}
    mpi.run(mpi.command(8, "sh", script, program, directory / "data"), directory, traced)


def headers_of(logs: Path) -> dict[int, np.void]:
    """The headers of the logs, by rank."""
    headers = [np.fromfile(log, HEADER, 1)[0] for log in logs.glob("*/*.log")]
    return {int(header["rank"]): header for header in headers}


def errors_of(headers: Mapping[int, np.void]) -> list[float]:
    """By how much (s) the clock of each rank may be wrong against the first: the errors along the tree, added up."""
    clocks = {int(header["clock"]["id"]): header["clock"] for header in headers.values() if header["clock"]["parent"]}

    def error(clock: int) -> int:
        return int(clocks[clock]["error_ns"]) + error(int(clocks[clock]["parent"])) if clock in clocks else 0

    return [error(int(headers[rank]["clock"]["id"])) / SECOND for rank in sorted(headers)]


def test_calls_of_ranks_on_several_nodes_are_in_the_order_in_which_they_were_made(
    any_mpi: Mpi, library: Path, tmp_path: Path, nodes: list[int]
) -> None:
    """As far as the clocks could be compared: where the processors are busy, an exchange takes longer than a turn."""
    run_turns(any_mpi, library, tmp_path, nodes)
    headers = headers_of(tmp_path / "logs")
    for number, log in enumerate(sorted((tmp_path / "logs").glob("*/*.log"))):
        # Wall clocks that are wrong by hours.
        header = np.fromfile(log, HEADER, 1)
        header["realtime_ns"] += number * HOUR
        with log.open("r+b") as file:
            file.write(header.tobytes())

    trace = read_raw(tmp_path / "logs")
    writes = trace.records[trace.records["kind"] == "MPI_File_write_at"].sort_values("offset")
    ranks, errors = writes["rank"].to_numpy(), np.array(errors_of(headers))
    assert ranks.tolist() == [*range(8)] * 2
    allowed = np.where(ranks[1:] // 2 == ranks[:-1] // 2, 0.0, errors[ranks[1:]] + errors[ranks[:-1]])
    assert (writes["t_start"].to_numpy()[1:] - writes["t_end"].to_numpy()[:-1] >= -allowed).all()
    assert trace.notes == ()


def test_one_process_of_each_node_measures_its_clock(mpi: Mpi, library: Path, tmp_path: Path, nodes: list[int]) -> None:
    run_turns(mpi, library, tmp_path, nodes)
    ranks = headers_of(tmp_path / "logs")
    assert [rank for rank in range(8) if ranks[rank]["clock"]["parent"]] == [2, 4, 6]
    assert len({int(header["clock"]["id"]) for header in ranks.values()}) == 4
    # The last node measured by the third, the others by the first.
    for rank, ahead in (2, 100_000), (4, 7), (6, 5_000_000 - 7):
        clock = ranks[rank]["clock"]
        assert abs(int(clock["offset_ns"]) + ahead * SECOND) <= int(clock["error_ns"])
    assert [int(ranks[rank]["clock"]["parent"]) for rank in (2, 4, 6)] == [
        int(ranks[rank]["clock"]["id"]) for rank in (0, 0, 4)
    ]


def header(clock: int, parent: int = 0, offset: int = 0, *, started: int, noon: int, host: bytes = b"a") -> np.void:
    one = np.zeros(1, HEADER)[0]
    one["clock"] = clock, parent, offset, 1
    one["monotonic_ns"], one["realtime_ns"], one["host"] = started, noon, host
    return one


def test_offsets_add_up_along_the_tree_of_comparisons() -> None:
    headers = [
        header(1, started=100, noon=0),
        header(2, 1, -1000, started=1150, noon=5 * HOUR),
        header(3, 2, 500, started=660, noon=9 * HOUR),
        header(3, started=670, noon=9 * HOUR),
    ]
    assert align(headers) == ([-100, -1100, -600, -600], 1)


def test_programs_on_the_same_nodes_share_a_time_line() -> None:
    headers = [
        header(1, started=100, noon=0),
        header(2, 1, -1000, started=1150, noon=0),
        header(2, started=3000, noon=HOUR),
        header(1, 2, 1001, started=2000, noon=HOUR),
    ]
    assert align(headers) == ([-100, -1100, -1100, -100], 1)


def test_clocks_that_were_not_compared_are_aligned_by_the_wall_clock() -> None:
    headers = [
        header(1, started=100, noon=HOUR),
        header(2, started=7000, noon=HOUR + 50, host=b"b"),
        header(0, started=30, noon=HOUR + 20, host=b"c"),
        header(0, started=30, noon=HOUR + 25, host=b"c"),
    ]
    assert align(headers) == ([-100, -6950, -10, -5], 3)


def test_ranks_without_the_library_keep_no_other_waiting_for_ever(mpi: Mpi, library: Path, tmp_path: Path) -> None:
    program = mpi.compile(REPOSITORY / "tests/programs/turns.c", tmp_path / "turns")
    script = (
        "unset MPI_LOCALNRANKS OMPI_COMM_WORLD_LOCAL_SIZE\n"
        'if [ "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}" = 1 ]; then unset LD_PRELOAD; fi\n'
        'exec "$@"'
    )
    traced = {"LD_PRELOAD": str(library), "PDLA_TRACE": str(tmp_path / "logs")}
    mpi.run(mpi.command(3, "sh", "-c", script, "sh", program, tmp_path / "data"), tmp_path, traced)
    assert read_raw(tmp_path / "logs").notes == ("1 of 3 ranks left no log: 1",)
