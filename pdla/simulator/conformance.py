"""The conformance suite: what every online policy must do, as scenarios with the numbers of docs/policies.md.

A test class of a policy inherits ``PolicyTests`` and provides the method ``make``. It needs pytest
and hypothesis.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdla.layouts.striping import locate
from pdla.model import Cluster, Op, Pool
from pdla.policies.online import Extent, Online, Request, home_layout
from pdla.simulator.enactor import Enactor, Move, Step, Transfer

KIB = 1024
Bytes = npt.NDArray[np.uint8]


def _pool(name: str, kind: str, startup: float, seconds_per_byte: float) -> Pool:
    where = tuple(f"{name}{number}" for number in range(4))
    points = ((0, 0.0), (4096, startup))
    return Pool(name, kind, 4, points, seconds_per_byte, seconds_per_byte, 16 * KIB, KIB, "directories", where)  # type: ignore[arg-type]


CLUSTER = Cluster(
    pools=(_pool("hdd", "hdd", 0.01, 1e-8), _pool("ssd", "ssd", 1e-4, 2e-9), _pool("scratch", "node", 1e-4, 2e-9)),
    home_pool="hdd",
    home_servers=4,
    home_strip=KIB,
    processes_per_node=1,
    connect_seconds=1e-4,
    network_seconds_per_byte=8e-9,
    threshold_seconds=0.0,
    source="suite",
)
"""A storage system with a pool of every kind; each has less room than the files take."""


class Action(NamedTuple):
    """The next event: a request, or the end of a period, of some moves, of the use of a file."""

    what: str
    rank: int
    file: int
    start: int
    length: int
    collective: bool


class Replay:
    """Carries out what an enactor says, with real bytes, and checks it.

    Moves read when they start and write when they end; the order in which they end is random.
    """

    def __init__(self, policy: Online, cluster: Cluster, sizes: Sequence[int], seed: int = 0) -> None:
        self.enactor = Enactor(policy, cluster, dict(enumerate(sizes)))
        self.time = 0.0
        self.log: list[Step | tuple[Move, ...]] = []
        self._policy, self._cluster = policy, cluster
        self._capacity = {space.name: space.capacity for space in policy.spaces(cluster)}
        self._chance = random.Random(seed)
        self._data = np.random.default_rng(seed)
        self._sizes = [max(sizes)] * len(sizes)
        self._wanted: dict[tuple[int, int | None], Bytes] = {}
        for file, size in enumerate(self._sizes):
            for part in range(cluster.home_servers) if policy.by_part else (None,):
                self._wanted[file, part] = self._data.integers(0, 256, size, np.uint8)
        self._home = {key: wanted.copy() for key, wanted in self._wanted.items()}
        self._caches: dict[tuple[str, int | None], Bytes] = defaultdict(lambda: np.zeros(1 << 16, np.uint8))
        self._moves: dict[int, list[tuple[Transfer, Bytes]]] = {}
        self._done: set[int] = set()
        self._asked = self._served = 0
        self._held_back: list[Move] = []

    def act(self, action: Action) -> None:
        """Carry out ``action``, and then finish some of the moves in progress."""
        if action.what in ("read", "write"):
            stop = min(action.start + action.length, self._sizes[action.file])
            if action.start < stop:
                op: Op = "read" if action.what == "read" else "write"
                self.request(op, action.rank, action.file, action.start, stop, action.collective)
        elif action.what == "tick":
            self.time += 1.0
            self._do(self.enactor.tick(self.time))
        elif action.what == "close":
            self._do(self.enactor.close(self.time, action.file))
        for token in list(self._moves):
            if self._chance.random() < 0.3:
                self._finish(token)

    def request(self, op: Op, rank: int, file: int, start: int, stop: int, collective: bool = False) -> None:
        """A request: it must read what was written last, and each of its bytes must be transferred once."""
        self.time += 0.01
        node = rank % self._cluster.pools[0].servers
        request = Request(self.time, rank, node, file, op, start, stop, collective)
        self._do(self.enactor.serve(request), request)

    def end(self) -> list[Extent]:
        """End the run and all moves; return what the originals do not have. They may lack nothing else."""
        self._do(self.enactor.close(self.time))
        while self._moves:
            self._finish(self._chance.choice(sorted(self._moves)))
        dirty = self.enactor.dirty
        for (file, part), wanted in self._wanted.items():
            known = self._home[file, part].copy()
            for extent in dirty:
                if (extent.file, extent.part) == (file, part):
                    known[extent.start : extent.stop] = wanted[extent.start : extent.stop]
            assert (known == wanted).all(), f"the original of file {file} lacks bytes that are nowhere else"
        return dirty

    def _do(self, step: Step, request: Request | None = None) -> None:
        self.log.append(step)
        self._asked += request is not None
        self._begin_all(step.background)
        for token in step.wait:
            while token not in self._done:
                self._finish(token if token in self._moves else self._chance.choice(sorted(self._moves)))
        if request:
            self._transfer(step, request)
        self._served = self._asked
        self._begin_all(self._held_back)
        self._held_back.clear()
        self._check()

    def _transfer(self, step: Step, request: Request) -> None:
        due: dict[tuple[int, int | None], Bytes] = {}
        for server, start, length, first in locate(home_layout(self._cluster), request.start, request.stop):
            key, low = ((request.file, server), start) if self._policy.by_part else ((request.file, None), first)
            if key not in due:
                due[key] = np.zeros(len(self._wanted[key]), np.uint8)
            due[key][low : low + length] = 1
            if request.op == "write":
                self._wanted[key][low : low + length] = self._data.integers(0, 256, length, np.uint8)
        for transfer in (transfer for stage in step.foreground for transfer in stage):
            assert transfer.op == request.op
            held, wanted, waiting = self._held(transfer), self._of(transfer, self._wanted), self._of(transfer, due)
            assert waiting.all(), f"{transfer} does not belong to the request, or comes twice"
            waiting[:] = 0
            if request.op == "write":
                held[:] = wanted
            else:
                assert (held == wanted).all(), f"{transfer} reads something else than was written last"
        assert not any(waiting.any() for waiting in due.values()), f"{request} is not transferred: {step}"

    def _begin_all(self, moves: Sequence[Move]) -> None:
        for move in moves:
            if move.after > self._served:
                self._held_back.append(move)
            else:
                self._begin(move)

    def _begin(self, move: Move) -> None:
        """Read what the move reads. If it writes without reading, it writes what the request has just read."""
        transfers = [transfer for stage in move.stages for transfer in stage]
        reads = [transfer for transfer in transfers if transfer.op == "read"]
        keys = {self._key(transfer) for transfer in transfers}
        got = {key: np.zeros_like(self._wanted[key]) if reads else self._wanted[key].copy() for key in keys}
        for transfer in reads:
            self._of(transfer, got)[:] = self._held(transfer)
        self._moves[move.token] = [
            (transfer, self._of(transfer, got)) for transfer in transfers if transfer.op == "write"
        ]

    def _finish(self, token: int) -> None:
        for transfer, got in self._moves.pop(token):
            self._held(transfer)[:] = got
        self._done.add(token)
        moves = self.enactor.finished(token, self.time)
        self.log.append(moves)
        self._begin_all(moves)
        self._check()

    def _key(self, transfer: Transfer) -> tuple[int, int | None]:
        return transfer.file, transfer.server if self._policy.by_part else None

    def _of(self, transfer: Transfer, of: Mapping[tuple[int, int | None], Bytes]) -> Bytes:
        """The bytes of the file, or part, that a transfer carries."""
        return of[self._key(transfer)][transfer.first : transfer.first + transfer.stop - transfer.start]

    def _held(self, transfer: Transfer) -> Bytes:
        """The bytes that a transfer reads or writes, in their place."""
        if transfer.space == "home":
            return self._home[self._key(transfer)][transfer.start : transfer.stop]
        return self._caches[transfer.space, transfer.server][transfer.start : transfer.stop]

    def _check(self) -> None:
        for name, used in self.enactor.used.items():
            assert used <= self.enactor.peak[name] <= self._capacity[name], f"{name} holds more than its capacity"


def random_actions(seed: int, count: int, files: int, size: int) -> list[Action]:
    """Requests of four ranks, half of them sequential, the others anywhere, and all other events."""
    chance = random.Random(seed)
    at: dict[tuple[int, int], int] = {}
    actions = []
    for _ in range(count):
        what = chance.choices(("read", "write", "tick", "close"), (10, 10, 2, 1))[0]
        rank, file, length = chance.randrange(4), chance.randrange(files), chance.choice((100, KIB, 1500, 5 * KIB))
        start = chance.randrange(size) if chance.random() < 0.5 else at.get((rank, file), 0)
        at[rank, file] = start + length
        actions.append(Action(what, rank, file, start, length, chance.random() < 0.5))
    return actions


class PolicyTests:
    """``make`` returns a new policy for CLUSTER, with parameters that suit files of 40 KiB."""

    sizes: Sequence[int] = (40 * KIB, 13 * KIB + 77)
    cluster: Cluster = CLUSTER

    def make(self) -> Online:
        """Required."""
        raise NotImplementedError

    def replay(self, actions: Sequence[Action], seed: int = 0) -> Replay:
        """Run any sequence with all checks."""
        replay = Replay(self.make(), self.cluster, self.sizes, seed)
        for action in actions:
            replay.act(action)
        return replay

    @pytest.mark.parametrize("seed", range(2))
    def test_1_reads_get_what_was_written_last_and_no_space_overflows(self, seed: int) -> None:
        """With any moves in progress, in a long run. Replay checks it."""
        self.replay(random_actions(seed, 200, len(self.sizes), max(self.sizes)), seed).end()

    @given(st.data())
    @settings(max_examples=12, suppress_health_check=list(HealthCheck))
    def test_2_so_in_runs_that_are_searched_for(self, data: st.DataObject) -> None:
        """In short runs, so that a failing one is as simple as possible."""
        bytes_ = st.integers(1, 6 * KIB)
        action = st.builds(
            Action,
            st.sampled_from(["read", "write", "write", "read", "tick", "close"]),
            st.integers(0, 3),
            st.integers(0, len(self.sizes) - 1),
            st.integers(0, 40).map(lambda number: number * 1000),
            bytes_,
            st.booleans(),
        )
        actions = data.draw(st.lists(action, min_size=5, max_size=25))
        self.replay(actions, data.draw(st.integers(0, 3))).end()

    def test_3_dirty_bytes_are_never_dropped(self) -> None:
        """At the end, bytes that the originals lack are in a cache, and the enactor knows it (Replay.end)."""
        actions = random_actions(5, 200, len(self.sizes), max(self.sizes))
        replay = self.replay([action for action in actions if action.what != "read"])
        dirty = replay.end()
        assert sum(extent.stop - extent.start for extent in dirty) <= sum(replay.enactor.used.values())

    def test_4_the_same_run_is_the_same(self) -> None:
        """Every transfer is the same."""
        first, second = (self.replay(random_actions(7, 100, len(self.sizes), max(self.sizes))) for _ in range(2))
        assert first.log == second.log
        assert first.enactor.refused == second.enactor.refused

    def test_5_refusals_say_why(self) -> None:
        """In one line, with the wish, whose reason is not empty either."""
        replay = self.replay(random_actions(11, 100, len(self.sizes), max(self.sizes)))
        for refusal in replay.enactor.refused:
            assert refusal.why
            assert refusal.wish.reason
            assert 0 <= refusal.time <= replay.time

    def test_6_spaces_are_of_the_cluster(self) -> None:
        """A cluster without what the policy needs is refused, too."""
        assert self.make().spaces(self.cluster)
