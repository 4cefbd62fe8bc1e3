"""What a rank asks of the file system and of MPI does not grow with the number of ranks, or grows as the pages say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.searches.counting import Counted, Counting, growth
from tests.support.mpi import Mpi, available_mpis

RANKS = (4, 8, 16)
BY_CHANCE = ("create ranks", "change ranks")
"""Where ranks show that they are there, the first ones make the directory; which of them depends on when they come."""


def counted(case: str, directory: Path) -> list[Counted]:
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    found = []
    for ranks in RANKS:
        (place := directory / str(ranks)).mkdir()
        found.append(Counting(mpi, ranks, place).count(case))
    return found


VARIED = {
    "create journals": 3,
    "change journals": 6,
    "create report": 3,
    "change report": 2,
    "stat report": 3,
    "open report": 4,
}
"""Counts that depend on which rank comes first, and makes the directory of the node; and the most that they can be."""


def growing(found: list[Counted], who: str) -> dict[str, str]:
    """How each count grows that does, of the "first" rank or of the one of the others that has "most"."""
    assert all(getattr(one, who)[key] <= most for one in found for key, most in VARIED.items())
    keys = sorted({key for one in found for key in getattr(one, who)} - VARIED.keys())
    grown = {key: growth([(one.ranks, getattr(one, who)[key]) for one in found])[0] for key in keys}
    for key in BY_CHANCE:
        assert max(getattr(one, who)[key] for one in found) <= 2
    return {key: how for key, how in grown.items() if how != "1" and key not in BY_CHANCE}


@pytest.mark.thorough
def test_no_count_of_a_rank_that_reads_grows_but_messages_by_the_logarithm(tmp_path: Path) -> None:
    found = counted("read", tmp_path)
    assert (found[0].most["open map"], found[0].most["open original"]) == (2, 1)
    for who in ("most", "first"):
        of_mpi = ("MPI bytes", "MPI calls", "MPI messages at most")
        assert growing(found, who) == dict.fromkeys(("stat ranks", *of_mpi), "log n")


def test_ranks_that_open_a_file_without_replicas_agree_once_and_hear_once_from_the_first(tmp_path: Path) -> None:
    """Besides the roll call, in which a rank sends and gets a word for each step of a tree."""
    for one in counted("plain", tmp_path):
        steps = round(math.log2(one.ranks))
        assert one.most["MPI calls"] == 2 * steps + 2
        assert one.most["open original"] == 0


def test_a_rank_that_records_makes_two_files_in_a_directory_of_its_node(tmp_path: Path) -> None:
    """The first ones make the directory; which ranks find that it is missing depends on when they come."""
    for one in counted("trace", tmp_path):
        for who in (one.most, one.first):
            assert (who["create log"], who["change log"]) <= (3, 2)
        assert one.most["MPI calls"] == 0


@pytest.mark.thorough
def test_a_rank_that_redirects_its_writes_opens_the_journals_of_its_node(tmp_path: Path) -> None:
    """Here all ranks are on one node. What it asks of MPI grows by the logarithm.

    Whether it opens its directory again depends on when others come.
    """
    found = counted("close", tmp_path)
    of_mpi = dict.fromkeys(("MPI bytes", "MPI calls", "MPI messages at most", "stat ranks"), "log n")
    assert growing(found, "most") == {**of_mpi, "open journals": "n"}
    assert all(one.most["open journals"] <= one.ranks + 4 for one in found)


def test_a_rank_that_caches_its_writes_opens_the_files_of_its_node(tmp_path: Path) -> None:
    """What it tells and hears of pieces is of 1,024 at most, for each step of a tree."""
    found = counted("e10", tmp_path)
    of_mpi = dict.fromkeys(("MPI calls", "MPI messages at most", "stat ranks"), "log n")
    assert growing(found, "most") == {**of_mpi, "MPI bytes": "n", "open journals": "n", "open cache": "n"}
    assert [one.most["open cache"] for one in found] == [ranks - 1 for ranks in RANKS]
    piece, pieces = 24, 8
    for one in found:
        assert one.most["MPI bytes"] < 2048 + piece * min(1024, pieces * one.ranks) * math.log2(one.ranks)


ASKED = 10
"""Looks at servers once, to find out whether they answer; where some file system waits for a server."""
SERVERS, COUNTED = 2, 2
"""How many there are, and how often a rank counts what is reserved: before and after it reserves for both calls. It
looks at one server once more, to name the directory of its node."""


@pytest.mark.thorough
def test_a_rank_that_caches_on_ssd_servers_looks_at_the_files_of_its_node(tmp_path: Path) -> None:
    """How many of them are there already when it reserves room depends on when it comes."""
    found = counted("s4d", tmp_path)
    grown = growing(found, "most")
    grown.pop("stat cache", None)
    of_mpi = dict.fromkeys(("MPI bytes", "MPI calls", "MPI messages at most", "stat ranks"), "log n")
    chance = {"open room", "change room"}
    assert {key: how for key, how in grown.items() if key not in chance} == {
        **of_mpi, "open journals": "n", "open cache": "n"
    }  # fmt: skip
    for one in found:
        assert (
            0 < one.most["stat cache"] <= 3 * one.ranks
            and 0 <= one.most["stat room"] - (COUNTED * SERVERS + 1) <= ASKED
        )
        assert one.most["change room"] <= 12 and one.most["open room"] <= 16 + 2 * one.ranks


def test_a_rank_that_reserves_room_looks_at_each_other_node_once(tmp_path: Path) -> None:
    """And not at its files."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    counting, nodes = Counting(mpi, 4, tmp_path), 50
    for number in range(nodes):
        (node := tmp_path / f"ssd{number % SERVERS}/pdla-other{number}-0.node").mkdir()
        (node / "reserved").symlink_to("100:3")
        for file in range(3):
            (node / f"pdla-{file}.cache").touch()
    found = counting.count("s4d")
    assert 0 <= found.most["stat room"] - (COUNTED * (SERVERS + nodes) + 1) <= ASKED
    assert found.most["stat cache"] <= 3 * counting.ranks
