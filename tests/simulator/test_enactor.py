"""The enactor keeps its rules whatever a policy wishes, and carries out what is possible."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdla.errors import ConfigError
from pdla.layouts.striping import locate
from pdla.model import Cluster
from pdla.policies.online import (
    HOME,
    MEMORY,
    Drop,
    Extent,
    Online,
    Part,
    Place,
    Request,
    Space,
    View,
    Wish,
    WriteBack,
    home_layout,
    part_size,
    parts,
    whole_pool,
)
from pdla.simulator.conformance import CLUSTER, KIB, PolicyTests
from pdla.simulator.enactor import Enactor, Move, Refusal, Step, Transfer

# ---- wishes of every kind, at random --------------------------------------------------------------------------------


class Whims(Online):
    """Wishes anything."""

    period = 1.0

    def __init__(self, spaces: Sequence[Space], by_part: bool = False) -> None:
        self._spaces = spaces
        self.by_part = by_part
        self._chance = random.Random(3)

    def spaces(self, cluster: Cluster) -> Sequence[Space]:
        return self._spaces

    def request(self, request: Request, view: View) -> Iterator[Wish]:
        for part in view.parts(request.start, request.stop) if self.by_part else (None,):
            start, stop, server = (part.start, part.stop, part.server) if part else (request.start, request.stop, None)
            for _ in range(self._chance.randrange(3)):
                yield self._wish(request.file, start, stop, server)

    def tick(self, view: View) -> Iterator[Wish]:
        for _ in range(5):
            start = self._chance.randrange(10 * KIB if self.by_part else 40 * KIB)
            yield self._wish(self._chance.randrange(2), start, start + 3 * KIB, 1 if self.by_part else None)
        for extent in view.coldest(self._spaces[0].name):
            if self._chance.random() < 0.5:
                yield Drop(extent.file, extent.start, extent.stop, extent.space, "cold", extent.part)

    def close(self, file: int | None, view: View) -> Iterator[Wish]:
        for part in range(4) if self.by_part else (None,):
            yield WriteBack(file or 0, 0, 1 << 40, "closed", True, part)

    def _wish(self, file: int, start: int, stop: int, part: int | None) -> Wish:
        names = [s.name for s in self._spaces if part is None or s.name.endswith(f"/{part}")]
        space = self._chance.choice([*names, HOME])
        start, stop = start + self._chance.choice((0, 0, 100)), stop - self._chance.choice((0, 0, 100))
        kind = self._chance.randrange(6)
        if kind < 3:
            fetch = kind > 0
            return Place(file, start, stop, space, "a whim", fetch, kind == 2, self._chance.randrange(4), part)
        if kind == 3:
            return WriteBack(file, start, stop, "a whim", self._chance.random() < 0.3, part)
        if kind == 4:
            return Drop(file, start, stop, space.partition("/")[0], "a whim", part)
        return Place(file, start, stop, space, "a whim", part=part)


SSD = Space("ssd", 16 * KIB, whole_pool(CLUSTER, "ssd", KIB))


class TestWhimsAboutOnePool(PolicyTests):
    def make(self) -> Online:
        return Whims([SSD])


class TestWhimsAboutManySpaces(PolicyTests):
    def make(self) -> Online:
        nodes = [Space(f"scratch/{node}", 4 * KIB, reads=node < 2, chunk=700) for node in range(4)]
        return Whims([*nodes, SSD])


class TestWhimsAboutParts(PolicyTests):
    def make(self) -> Online:
        memory = [Space(f"{MEMORY}/{server}", 3 * KIB, writes=False) for server in range(4)]
        return Whims([*memory, *(Space(f"ssd/{server}", 4 * KIB) for server in range(4))], by_part=True)


# ---- what it makes of wishes ----------------------------------------------------------------------------------------


class Script(Online):
    """Makes the given wishes, once."""

    def __init__(self, spaces: Sequence[Space]) -> None:
        self.next: list[Wish] = []
        self._spaces = spaces

    def spaces(self, cluster: Cluster) -> Sequence[Space]:
        return self._spaces

    def request(self, request: Request, view: View) -> Iterator[Wish]:
        while self.next:
            yield self.next.pop(0)

    def tick(self, view: View) -> Iterator[Wish]:
        while self.next:
            yield self.next.pop(0)


def enactor(*spaces: Space) -> tuple[Enactor, Script]:
    script = Script(spaces or [SSD])
    return Enactor(script, CLUSTER, {0: 40 * KIB}), script


def write(start: int, stop: int) -> Request:
    return Request(0.0, 5, 1, 0, "write", start, stop)


def read(start: int, stop: int) -> Request:
    return Request(0.0, 5, 1, 0, "read", start, stop)


def test_without_wishes_a_request_goes_to_the_original() -> None:
    made, _ = enactor()
    assert made.serve(read(100, 300)) == Step(((Transfer("home", None, 0, "read", 100, 300, 1, 100),),))


def test_a_written_copy_is_read_and_written_where_it_is() -> None:
    made, script = enactor()
    script.next = [Place(0, 100, 300, "ssd", "test")]
    assert made.serve(write(100, 300)) == Step(((Transfer("ssd", None, 0, "write", 0, 200, 1, 100),),))
    assert made.serve(read(200, 400)).foreground == (
        (Transfer("ssd", None, 0, "read", 100, 200, 1, 200), Transfer("home", None, 0, "read", 300, 400, 1, 300)),
    )
    assert made.serve(write(0, 150)).foreground == (
        (Transfer("ssd", None, 0, "write", 0, 50, 1, 100), Transfer("home", None, 0, "write", 0, 100, 1, 0)),
    )
    assert made.dirty == [Extent(0, 100, 150, "ssd", True), Extent(0, 150, 300, "ssd", True)]


def test_a_dirty_copy_is_dropped_only_after_its_write_back() -> None:
    made, script = enactor()
    script.next = [Place(0, 0, 1000, "ssd", "test")]
    made.serve(write(0, 1000))
    script.next = [Drop(0, 0, 1000, "ssd", "test")]
    (move,) = made.tick(1.0).background
    assert move.stages == (
        (Transfer("ssd", None, 0, "read", 0, 1000, 1, 0),),
        (Transfer("home", None, 0, "write", 0, 1000, 1, 0),),
    )
    assert made.used == {"ssd": 1000}
    made.finished(move.token, 2.0)
    assert made.used == {"ssd": 0}
    assert made.extents(0, 0, 1000) == [Extent(0, 0, 1000, "home")]


def test_what_is_written_during_its_write_back_stays_dirty_and_is_not_dropped() -> None:
    made, script = enactor()
    script.next = [Place(0, 0, 1000, "ssd", "test")]
    made.serve(write(0, 1000))
    script.next = [Drop(0, 0, 1000, "ssd", "test")]
    (move,) = made.tick(1.0).background
    made.serve(write(400, 500))
    made.finished(move.token, 2.0)
    assert made.dirty == [Extent(0, 400, 500, "ssd", True)]
    assert [refusal.why for refusal in made.refused] == ["it was written before its write-back was done"]


def test_what_is_written_while_it_is_fetched_is_not_used() -> None:
    made, script = enactor()
    script.next = [Place(0, 0, 1000, "ssd", "test", fetch=True)]
    (move,) = made.tick(1.0).background
    assert made.extents(0, 0, 1000) == [Extent(0, 0, 1000, "home")]
    made.serve(write(400, 500))
    assert made.used == {"ssd": 1000}
    made.finished(move.token, 2.0)
    assert made.used == {"ssd": 900}
    assert [extent.space for extent in made.extents(0, 0, 1000)] == ["ssd", "home", "ssd"]


def test_a_read_waits_for_a_load_and_not_for_a_fetch() -> None:
    made, script = enactor()
    script.next = [
        Place(0, 0, 500, "ssd", "test", fetch=True),
        Place(0, 500, 1000, "ssd", "test", fetch=True, wait=True),
    ]
    step = made.serve(read(0, 1000))
    assert [move.urgent for move in step.background] == [False, True]
    assert step.wait == (step.background[1].token,)
    assert [transfer.space for transfer in step.foreground[0]] == ["home", "ssd"]


def test_what_is_read_leaves_a_copy_in_passing() -> None:
    made, script = enactor()
    script.next = [Place(0, 0, 1000, "ssd", "test")]
    step = made.serve(read(100, 200))
    assert step.foreground == ((Transfer("home", None, 0, "read", 100, 200, 1, 100),),)
    assert step.background == (Move(1, ((Transfer("ssd", None, 0, "write", 0, 100, 1, 100),),), after=1),)


def test_a_space_that_is_not_read_makes_reads_wait_for_the_write_back() -> None:
    made, script = enactor(Space("scratch/1", 4 * KIB, reads=False, chunk=512))
    script.next = [Place(0, 0, 1000, "scratch/1", "test")]
    assert made.serve(write(0, 1000)).foreground == ((Transfer("scratch", 1, 0, "write", 0, 1000, None, 0),),)
    step = made.serve(read(900, 1100))
    (move,) = step.background
    assert step.wait == (move.token,)
    assert step.foreground == ((Transfer("home", None, 0, "read", 900, 1100, 1, 900),),)
    assert not move.after
    assert move.stages == (
        (Transfer("scratch", 1, 0, "read", 900, 1000, None, 900),),
        (Transfer("home", None, 0, "write", 900, 1000, 1, 900),),
    )


def test_moves_carry_a_chunk_at_a_time() -> None:
    made, script = enactor(Space("scratch/1", 4 * KIB, chunk=512))
    script.next = [Place(0, 0, 1000, "scratch/1", "test"), WriteBack(0, 0, 1000, "test")]
    (move,) = made.serve(write(0, 1000)).background
    assert move.after
    assert [[transfer.stop - transfer.start for transfer in stage] for stage in move.stages] == [
        [512],
        [512],
        [488],
        [488],
    ]


def test_a_node_moves_one_thing_after_another() -> None:
    made, script = enactor()
    script.next = [Place(0, 0, 10, "ssd", "test", fetch=True), Place(0, 20, 30, "ssd", "test", fetch=True, node=2)]
    script.next += [Place(0, 40, 50, "ssd", "test", fetch=True)]
    first, other = made.tick(1.0).background
    assert made.finished(other.token, 2.0) == ()
    (second,) = made.finished(first.token, 3.0)
    assert second.stages[1] == (Transfer("ssd", None, 0, "write", 20, 30, 0, 40),)


def test_refusals_say_what_was_wished_and_why_not() -> None:
    made, script = enactor()
    too_much, elsewhere = Place(0, 0, 17 * KIB, "ssd", "a"), Place(0, 0, 10, "tape", "b")
    script.next = [too_much, elsewhere]
    assert made.serve(write(0, 17 * KIB)).foreground == ((Transfer("home", None, 0, "write", 0, 17 * KIB, 1, 0),),)
    assert made.refused == [
        Refusal(0.0, too_much, "it needs 17408 bytes, but ssd has 16384 left"),
        Refusal(0.0, elsewhere, "copies may be in ssd"),
    ]


def test_the_coldest_copies_come_first() -> None:
    made, script = enactor()
    script.next = [Place(0, start, start + 10, "ssd", "test", fetch=True) for start in (0, 100, 200)]
    moves = list(made.tick(1.0).background)
    while moves:
        moves += made.finished(moves.pop().token, 2.0)
    made.serve(read(0, 10))
    assert [extent.start for extent in made.coldest("ssd")] == [100, 200, 0]


def test_a_space_has_to_be_of_the_cluster() -> None:
    with pytest.raises(
        ConfigError, match=r"there is no space 'ssd/4': a space is a pool with a layout, or one of its servers"
    ):
        enactor(Space("ssd/4", 10))


def test_addresses_that_were_freed_are_taken_first() -> None:
    made, script = enactor()
    script.next = [Place(0, 0, 60, "ssd", "test", fetch=True)]
    (move,) = made.tick(1.0).background
    made.finished(move.token, 2.0)
    script.next = [Drop(0, start, start + 10, "ssd", "test") for start in (10, 30, 20)]
    script.next += [Place(0, 100, 140, "ssd", "test", fetch=True)]
    (move,) = made.tick(3.0).background
    assert [(one.start, one.stop) for one in move.stages[1]] == [(10, 40), (60, 70)]
    assert made.used == {"ssd": 70}


def test_what_a_policy_raises_comes_out_of_the_step() -> None:
    class Broken(Script):
        def request(self, request: Request, view: View) -> Iterator[Wish]:
            yield Place(0, 0, 10, "ssd", "test")
            raise ZeroDivisionError("in the policy")

    made = Enactor(Broken([SSD]), CLUSTER, {0: 40 * KIB})
    with pytest.raises(ZeroDivisionError, match="in the policy"):
        made.serve(write(0, 100))


@given(st.integers(0, 40 * KIB), st.integers(1, 20 * KIB))
def test_parts_are_what_striping_says(start: int, length: int) -> None:
    pieces = locate(home_layout(CLUSTER), start, start + length)
    wanted: dict[int, list[int]] = {}
    for piece in pieces:
        wanted.setdefault(piece.component, []).extend((piece.offset, piece.offset + piece.length))
    assert parts(CLUSTER, start, start + length) == [
        Part(server, bounds[0], bounds[-1]) for server, bounds in wanted.items()
    ]
    assert sum(part_size(CLUSTER, length, server) for server in range(4)) == length
