"""The enactor: carries out the wishes of an online policy, and keeps the rules of all policies.

It is in the core (pdla/caching), which knows which bytes are where, and says for every request what
to transfer; it knows no time. The rules:

- No space holds more than its capacity.
- The last copy stays: dirty bytes are written back before they are dropped. Otherwise only a write
  ends them.
- Every read gets the bytes last written: a write ends all other copies.
- A wish that is impossible is refused, with the reason, in ``refused``.

Changes by a request take effect when the request is served, changes by a move in the background
when the move is finished. A move whose bytes are written meanwhile continues without effect: bytes
being fetched are not here, bytes being written back stay dirty, and the addresses that it uses are
taken until it ends. Each client node (for a policy that is ``by_part``, each server) makes its
moves one after another, in the order of the wishes.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pdla.errors import ConfigError, PdlaError
from pdla.model import Cluster, Layout, Op
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
    Wish,
    WriteBack,
    home_layout,
    parts,
)
from pdla.simulator import caching, core

_ENDLESS = 1 << 62
_WORDS = 1 << 16  # bytes of the longest reason


class Transfer(NamedTuple):
    """Bytes [start, stop) of a space are read or written.

    Attributes:
        space: "home" (the originals), a pool, or "memory" (of a home server: no device).
        server: the server of the space that has all of it; then start and stop count its own bytes.
            None: the bytes are striped by ``Enactor.layout(space)`` (for the originals they are the
            bytes of the file).
        file: for the originals, the file; a cache has one range of addresses for all files.
        node: the client node whose link it crosses, or None: it stays inside a server or a node.
        first: the byte of the file, or of the part, at ``start``.
    """

    space: str
    server: int | None
    file: int
    op: Op
    start: int
    stop: int
    node: int | None
    first: int


Stages = tuple[tuple[Transfer, ...], ...]
"""Stages follow one another; the transfers of a stage run in parallel."""


class Move(NamedTuple):
    """Transfers that no request asked for: ``Enactor.finished(token)`` must be called when they are done.

    Attributes:
        urgent: it has the priority of requests; others have a lower one.
        after: if not 0, it starts when the request with this number has been served (the calls of
            ``Enactor.serve`` are counted from 1); others start at once.
    """

    token: int
    stages: Stages
    urgent: bool = False
    after: int = 0


class Step(NamedTuple):
    """What serves a request: first the end of the moves ``wait``, then the ``foreground`` stages.

    The moves to wait for belong to this step, are in progress, or will be returned by
    ``Enactor.finished``.
    """

    foreground: Stages = ()
    background: tuple[Move, ...] = ()
    wait: tuple[int, ...] = ()


class Refusal(NamedTuple):
    """A wish that was refused, when, and why."""

    time: float
    wish: Wish
    why: str


class Enactor:
    """Serves requests as ``policy`` wishes; it is also the policy's View.

    ``files`` are the sizes of the files; writes beyond them make files longer. ``together``: it returns all moves at
    once, and whoever makes them brings home together what a node has.

    Attributes:
        refused: the refused wishes, in order.

    Raises:
        ConfigError: the cluster lacks what the policy needs.
        PdlaError: there is no core, or no memory.
    """

    def __init__(
        self, policy: Online, cluster: Cluster, files: Mapping[int, int] | None = None, together: bool = False
    ) -> None:
        self.policy = policy
        self.cluster = cluster
        self.refused: list[Refusal] = []
        self.raised: list[BaseException] = []
        self._spaces = {space.name: space for space in policy.spaces(cluster)}
        self._check_spaces()
        self.levels = tuple(dict.fromkeys(space.level for space in self._spaces.values()))
        self._numbers = {name: number for number, name in enumerate(self._spaces)}
        self._names = list(self._spaces)
        self._reasons: dict[str, bytes] = {}  # the core points to them
        self._made: list[Wish] = []  # in the present step
        self._library = core.library()
        self._setup = self._set_up(together)
        self.core: int = self._library.caching_new(ctypes.byref(self._setup)) or 0
        if not self.core:
            raise PdlaError("there is not enough memory for the policy")
        weakref.finalize(self, self._library.caching_free, self.core)
        for file, size in (files or {}).items():
            self._check(self._library.caching_file(self.core, file, size))
        self._use_policy()

    def _check_spaces(self) -> None:
        servers = {pool.name: pool.servers for pool in self.cluster.pools} | {MEMORY: self.cluster.home_servers}
        for space in self._spaces.values():
            server = _server(space)
            whole = server is None and space.layout is not None
            if space.level not in servers or not (whole or (server or 0) < servers[space.level]):
                wanted = f"a pool with a layout, or one of its servers ({', '.join(servers)})"
                raise ConfigError(f"there is no space {space.name!r}: a space is {wanted}")

    def _set_up(self, together: bool) -> caching.Setup:
        spaces = (caching.Space * len(self._spaces))()
        levels = {
            level: (number, level != MEMORY and self.cluster.pool(level).kind == "node")
            for number, level in enumerate(self.levels)
        }
        for one, space in zip(spaces, self._spaces.values(), strict=True):
            server = _server(space)
            one.name, (one.level, one.on_nodes) = space.name.encode(), levels[space.level]
            one.server = -1 if server is None else server
            one.capacity, one.chunk, one.reads, one.writes = space.capacity, space.chunk, space.reads, space.writes
        home = self.cluster.home_servers, self.cluster.home_strip
        counts = len(self._spaces), len(self.levels)
        return caching.Setup(*home, self.policy.by_part, together, *counts, spaces, _ENDLESS)

    def _use_policy(self) -> None:
        """Give the core its own policy, or hooks that ask the one in Python."""
        built_in = self.policy.built_in(self.cluster)
        if built_in:
            self._parameters = _parameters(built_in.name, built_in.parameters)
            use = getattr(self._library, f"caching_use_{built_in.name}")
            self._check(use(self.core, ctypes.byref(self._parameters)))
            return
        self._hooks = _hooks(weakref.ref(self))
        self._check(self._library.caching_use(self.core, ctypes.byref(self._hooks)))

    # ---- steps ------------------------------------------------------------------------------------------------------

    def serve(self, request: Request) -> Step:
        """What serves ``request``, and what else must be done."""
        asked = caching.Request(*request[:4], core.OPS.index(request.op), *request[5:])
        return self._step(self._library.caching_serve, ctypes.byref(asked))

    def tick(self, now: float) -> Step:
        """What must be done every ``policy.period``."""
        return self._step(self._library.caching_tick, now)

    def close(self, now: float, file: int | None = None) -> Step:
        """What must be done when ``file`` is closed or synchronized, or at the end of the run (None)."""
        return self._step(self._library.caching_close, now, -1 if file is None else file)

    def finished(self, token: int, now: float) -> tuple[Move, ...]:
        """Report that a move is done; returns the moves to start now."""
        return self._step(self._library.caching_finished, token, now).background

    def _step(self, call: Callable[..., int], *given: Any) -> Step:
        step = caching.Step()
        self._check(call(self.core, *given, ctypes.byref(step)))
        for refusal in step.refused[: step.refusals]:
            words = ctypes.create_string_buffer(_WORDS)
            self._library.caching_why(self.core, ctypes.byref(refusal), words, _WORDS)
            self.refused.append(Refusal(refusal.time, self._wish_of(refusal.wish), words.value.decode()))
        moves = []
        for move in step.move[: step.moves]:
            stages = self._stages(step.moved[move.first : move.first + move.transfers])
            moves.append(Move(move.token, stages, bool(move.urgent), move.after))
        return Step(self._stages(step.foreground[: step.transfers]), tuple(moves), tuple(step.wait[: step.waits]))

    def _check(self, result: int) -> None:
        if self.raised:
            raise self.raised[0]
        if result != caching.DONE:
            raise PdlaError("there is not enough memory for what the policy wishes")

    def _stages(self, transfers: Iterable[caching.Transfer]) -> Stages:
        stages: dict[int, list[Transfer]] = {}
        for one in transfers:
            space = HOME if one.level == caching.HOME else self.levels[one.level]
            where = space, _number(one.server), one.file, core.OPS[one.op]
            stages.setdefault(one.stage, []).append(Transfer(*where, one.start, one.stop, _number(one.node), one.first))
        return tuple(tuple(stage) for stage in stages.values())

    # ---- what is where ----------------------------------------------------------------------------------------------

    @property
    def spaces(self) -> list[Space]:
        """The spaces for copies."""
        return list(self._spaces.values())

    @property
    def used(self) -> dict[str, int]:
        """Bytes taken in every space."""
        return {name: space.capacity - self.room(name) for name, space in self._spaces.items()}

    @property
    def peak(self) -> dict[str, int]:
        """The most bytes ever taken in every space."""
        return {name: self._library.caching_peak(self.core, number) for name, number in self._numbers.items()}

    @property
    def dirty(self) -> list[Extent]:
        """The bytes that the originals do not have."""
        return self._extents(self._library.caching_dirty)

    @property
    def reasons(self) -> dict[str, int]:
        """Why wishes were refused, and how often."""
        found: dict[str, int] = {}
        one = caching.Wish()
        while count := self._library.caching_refused(self.core, len(found), ctypes.byref(one)):
            found[f"{_KINDS[one.kind].__name__}: {self._reason(one)}"] = count
        return found

    def layout(self, space: str) -> Layout:
        """How addresses of ``space``, a whole pool or the originals, are striped."""
        layout = home_layout(self.cluster) if space == HOME else self._spaces[space].layout
        assert layout is not None, f"{space} is one server"
        return layout

    # ---- seen by the policy (View) ----------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The present time in seconds."""
        now: float = self._library.caching_now(self.core)
        return now

    def size(self, file: int, part: int | None = None) -> int:
        """Bytes of a file, or of a part of it, as far as is known."""
        size: int = self._library.caching_size(self.core, file, -1 if part is None else part)
        return size

    def room(self, space: str) -> int:
        """Free bytes of a space."""
        room: int = self._library.caching_room(self.core, self._numbers[space])
        return room

    def parts(self, start: int, stop: int) -> list[Part]:
        """The parts of a file's bytes [start, stop)."""
        return parts(self.cluster, start, stop)

    def extents(self, file: int, start: int, stop: int, part: int | None = None) -> list[Extent]:
        """The extents from which [start, stop) would be read now, in order and without gaps."""
        return self._extents(self._library.caching_extents, file, -1 if part is None else part, start, stop)

    def coldest(self, space: str) -> Iterator[Extent]:
        """The clean copies in ``space``, the least recently used first."""
        number, cursor, one = self._numbers[space], caching.Cursor(), caching.Extent()
        while self._library.caching_coldest(self.core, number, ctypes.byref(cursor), ctypes.byref(one)):
            yield self._extent(one)

    def _extents(self, call: Callable[..., int], *where: int) -> list[Extent]:
        found, count = ctypes.POINTER(caching.Extent)(), ctypes.c_int64()
        self._check(call(self.core, *where, ctypes.byref(found), ctypes.byref(count)))
        return [self._extent(one) for one in found[: count.value]]

    def _extent(self, one: caching.Extent) -> Extent:
        space = HOME if one.space == caching.HOME else self._names[one.space]
        return Extent(one.file, one.start, one.stop, space, bool(one.dirty), _number(one.part))

    # ---- wishes -----------------------------------------------------------------------------------------------------

    def hear(self, wishes: Iterable[Wish]) -> int:
        """Carry out what the policy in Python wishes, as it wishes it; not 0: it has raised an exception."""
        self._made.clear()
        try:
            for wish in wishes:
                self._made.append(wish)
                if self._library.caching_wish(self.core, ctypes.byref(self._in_core(wish))) != caching.DONE:
                    return 1
        except BaseException as error:
            self.raised.append(error)
            return 1
        return 0

    def _in_core(self, wish: Wish) -> caching.Wish:
        """As the core reads it. Its tag is its number, counted from 1."""
        reason = self._reasons.setdefault(wish.reason, wish.reason.encode())
        bounds = max(wish.start, -_ENDLESS), min(wish.stop, _ENDLESS)
        part = -1 if wish.part is None else wish.part
        one = caching.Wish(_KINDS.index(type(wish)), wish.file, part, *bounds)
        one.space, one.node, one.reason, one.tag = -1, -1, reason, len(self._made)
        if isinstance(wish, Place):
            known = self._numbers.get(wish.space, caching.NOWHERE)
            one.space = caching.HOME if wish.space == HOME else known
            one.fetch, one.wait, one.node = wish.fetch, wish.wait, -1 if wish.node is None else wish.node
        elif isinstance(wish, WriteBack):
            one.wait = wish.wait
        else:
            level, of_server, _ = wish.space.partition("/")
            one.level = self.levels.index(level) if level in self.levels else -1
            one.space = self._numbers.get(wish.space, caching.NOWHERE) if of_server else -1
        return one

    def _wish_of(self, one: caching.Wish) -> Wish:
        """The wish of a refusal."""
        number: int = one.tag
        if number:
            return self._made[number - 1]
        where, reason, part = (one.file, one.start, one.stop), self._reason(one), _number(one.part)
        if one.kind == caching.WRITE_BACK:
            return WriteBack(*where, reason, bool(one.wait), part)
        if one.kind == caching.DROP:
            return Drop(*where, self._names[one.space] if one.space >= 0 else self.levels[one.level], reason, part)
        fetch, wait = bool(one.fetch), bool(one.wait)
        return Place(*where, self._names[one.space], reason, fetch, wait, _number(one.node), part)

    def _reason(self, one: caching.Wish) -> str:
        words = ctypes.create_string_buffer(_WORDS)
        self._library.caching_reason(ctypes.byref(one), words, _WORDS)
        return words.value.decode()


_KINDS: tuple[type[Wish], ...] = (Place, WriteBack, Drop)


def _server(space: Space) -> int | None:
    server = space.name.partition("/")[2]
    return int(server) if server else None


def _number(number: int) -> int | None:
    return None if number < 0 else number


def _parameters(name: str, given: Mapping[str, Any]) -> ctypes.Structure:
    """The parameters of a policy of the core; a pool is the device of its servers."""
    made = caching.PARAMETERS[name]()
    for key, value in given.items():
        setattr(made, key, caching.Device.of(value) if hasattr(value, "startup") else value)
    return made


def _hooks(of: weakref.ref[Enactor]) -> caching.Policy:
    """Hooks that ask the policy of an enactor, whose core calls them."""

    def enactor() -> Enactor:
        found = of()
        assert found is not None
        return found

    def asked(wishes: Callable[[Enactor], Iterable[Wish]]) -> int:
        """What the policy raises before it wishes anything stops the core, too."""
        return enactor().hear(wish for one in (enactor(),) for wish in wishes(one))

    def request(_state: Any, _core: Any, made: Any) -> int:
        one = made.contents
        where = one.rank, one.node, one.file, core.OPS[one.op], one.start, one.stop, bool(one.collective)
        return asked(lambda of: of.policy.request(Request(one.time, *where), of))

    def tick(_state: Any, _core: Any) -> int:
        return asked(lambda of: of.policy.tick(of))

    def close(_state: Any, _core: Any, file: int) -> int:
        return asked(lambda of: of.policy.close(None if file < 0 else file, of))

    return caching.Policy(None, caching.RequestHook(request), caching.TickHook(tick), caching.CloseHook(close))
