"""The records of the catalog: frozen copies of its rows, and the JSON forms of the types that it stores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from pdla.model import STILL, Growth, Identity, Layout, Loop, Signature

if TYPE_CHECKING:
    from pdla.accessmap import AccessMap

QueueState = Literal["queued", "planned", "built", "left", "failed"]
QUEUE_STATES: tuple[QueueState, ...] = get_args(QueueState)
State = Literal["planned", "building", "valid", "dirty", "stale", "retired"]
STATES: tuple[State, ...] = get_args(State)
Purpose = Literal["read", "write"]
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)


class Checksum(NamedTuple):
    """CRC32C of ``length`` bytes at ``offset`` of a component."""

    offset: int
    length: int
    crc32c: int


@dataclass(frozen=True)
class Component:
    """One file of a replica. Inode, mtime and checksum are 0 while it is being built.

    ``placement`` says where the storage put the file on its servers, if it stripes natively, in the
    back end's words.
    """

    path: Path
    size: int
    inode: int = 0
    mtime_ns: int = 0
    crc32c: int = 0
    placement: str = ""


@dataclass(frozen=True)
class Original:
    """A file that has replicas, in the state of which they are copies."""

    path: Path
    identity: Identity


@dataclass(frozen=True)
class Replica:
    """A copy of the bytes of ``signature`` in the order of its accesses.

    The state is ``planned`` until the files are on record, ``building`` until they are complete and
    durable, then ``valid``. It is ``dirty`` while the replica holds bytes that the original does
    not have yet, ``stale`` if it is no longer a copy, ``retired`` if another replica took its place
    or it is being removed. ``purpose`` is what redirected runs may do with it. ``fence`` is the
    token of the lease under which it is built (0: none).
    """

    id: int
    original: Original
    signature: Signature
    access_map: AccessMap
    layout: Layout
    state: State
    why: str
    created: datetime
    components: tuple[Component, ...]
    purpose: Purpose = "read"
    fence: int = 0

    @property
    def size(self) -> int:
        """Logical bytes."""
        return self.access_map.size

    @property
    def rule(self) -> Layout:
        """How its bytes are striped over the components."""
        return rule_of(self.layout, len(self.components))

    @property
    def mapped(self) -> Mapped:
        """What the map says of it."""
        files = [(str(one.path), one.inode, one.size, one.mtime_ns) for one in self.components]
        original = self.original
        return Mapped(self.id, str(original.path), original.identity, self.access_map, self.rule, files)


@dataclass(frozen=True)
class Census:
    """Number and bytes of the replicas in every state, and number of patterns in every state of the queue."""

    replicas: Mapping[State, tuple[int, int]]
    queue: Mapping[QueueState, int]


class Copy(NamedTuple):
    """A valid replica that may serve reads, and its original with the state of which it is a copy."""

    id: int
    path: str
    identity: Identity


class Mapped(NamedTuple):
    """What the map says of a replica: ``components`` are path, inode, size and mtime in nanoseconds of each file."""

    id: int
    path: str
    identity: Identity
    access_map: AccessMap
    rule: Layout
    components: Sequence[tuple[str, int, int, int]]


class Listed(NamedTuple):
    """The properties of a replica that a list of very many replicas shows; its layout is JSON text."""

    id: int
    path: str
    state: State
    why: str
    purpose: Purpose
    layout_json: str
    size: int
    created: datetime
    runs: int
    bytes_read: int
    used: datetime | None

    @property
    def layout(self) -> Layout:
        """The layout, parsed when it is asked for."""
        return layout_from_json(json.loads(self.layout_json))


@dataclass(frozen=True)
class Lease:
    """The right of a process (host:number:start) to work on a resource, for so many seconds from now.

    A later lease has a larger ``token``, whatever its resource. After the end of a lease another
    process may take the resource. ``name`` is what users call the resource.
    """

    resource: str
    holder: str
    token: int
    seconds: float
    name: str


@dataclass(frozen=True)
class Result:
    """The merged report of a redirected run."""

    time: datetime
    report: Mapping[str, Any]


@dataclass(frozen=True)
class Simulation:
    """What pdla simulate answered, as plain values (docs/json.md)."""

    time: datetime
    answer: Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """A traced run of an application (a command with a number of ranks). Numbers are 0 until the catalog gives them.

    Attributes:
        trace: the fingerprint of the trace file, which was at ``path``.
        started: when the program called MPI_Init; None: not known.
        environment: those of its variables that control MPI-IO.
        files: the paths that it accessed.
        requests, bytes: contiguous accesses and bytes of the whole run.
    """

    command: str
    ranks: int
    trace: str
    path: str
    source: str
    started: datetime | None
    mpi: str
    hosts: tuple[str, ...]
    environment: Mapping[str, str]
    files: tuple[str, ...]
    requests: int
    bytes: int
    id: int = 0
    application: int = 0


@dataclass(frozen=True)
class Occurrence:
    """A signature as it was in a run, with its aspects as plain values."""

    signature: Signature
    aspects: Mapping[str, Any]


@dataclass(frozen=True)
class Pattern:
    """A signature as the catalog keeps it, once for the ``runs`` runs that have it; its calls and times are 0.

    ``state`` is its place in the replication queue, ``since`` when it got there: ``queued`` until a
    plan decides; ``planned`` while the daemon is to build the replica from the plan of this number;
    then ``built``, or ``failed`` with ``why``; ``left`` if the plan gives it no replica.
    """

    id: int
    signature: Signature
    runs: int
    state: QueueState
    since: datetime
    plan: int | None = None
    why: str = ""


@dataclass(frozen=True)
class Recorded:
    """A run that the catalog has recorded, and the number of its new patterns."""

    run: int
    application: int
    patterns: int
    new: int


_FIELDS = tuple(field for field in fields(Signature) if field.name != "members")
_OF_A_RUN = {"calls": 0, "t_start": 0.0, "t_end": 0.0}


def signature_to_json(signature: Signature) -> dict[str, Any]:
    """Plain values of a signature, without its members."""
    return {field.name: getattr(signature, field.name) for field in _FIELDS}


def signature_from_json(value: Mapping[str, Any]) -> Signature:
    """The inverse of ``signature_to_json``."""
    loops = tuple(Loop(*loop) for loop in value["loops"])
    growth = tuple(Growth(*grows) for grows in value.get("growth", ()))
    return Signature(**{**value, "loops": loops, "growth": growth, "ranks": tuple(value["ranks"])})


def pattern_to_json(signature: Signature) -> dict[str, Any]:
    """As ``signature_to_json``, but without what differs from run to run: calls and times are 0."""
    return {**signature_to_json(signature), **_OF_A_RUN}


def pattern_digest(signature: Signature) -> str:
    """A name for a pattern. Fields that a later version adds do not change it while they have their defaults."""
    values = {
        field.name: part
        for field in _FIELDS
        if field.name not in _OF_A_RUN and (part := getattr(signature, field.name)) != field.default
    }
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def members_of(signature: Signature) -> Iterator[Signature]:
    """The local signatures that a global one consists of, which follow from its loops."""
    over = signature.rank_loops
    starts, _ = signature.nest._replace(loops=signature.loops[:over], growth=signature.growth[:over]).expand()
    inner = signature.growth[over:]
    same = replace(
        signature,
        loops=signature.loops[over:],
        growth=inner if any(grows != STILL for grows in inner) else (),
        rank_loops=0,
        members=(),
    )
    for start, rank in zip(starts.tolist(), signature.ranks, strict=True):
        yield replace(same, start=start, ranks=(rank,))


def rule_of(layout: Layout, components: int) -> Layout:
    """The striping over so many components; if they are fewer than servers, the storage stripes each."""
    return layout if components == layout.servers else layout.by_group


def layout_from_json(value: Mapping[str, Any]) -> Layout:
    """The inverse of ``dataclasses.asdict`` for a layout."""
    return Layout(**{**value, "strips": tuple(value["strips"])})
