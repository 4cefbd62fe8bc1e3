"""What the catalog hands out: frozen copies of its rows, and the JSON forms of the types that it stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from pdla.accessmap import AccessMap
from pdla.model import Growth, Identity, Layout, Loop, Signature

State = Literal["building", "valid", "stale", "retired"]
STATES: tuple[State, ...] = get_args(State)


class Checksum(NamedTuple):
    """CRC32C of ``length`` bytes at ``offset`` of a component."""

    offset: int
    length: int
    crc32c: int


@dataclass(frozen=True)
class Component:
    """One file of a replica, on one server. Inode, size, mtime and checksum are 0 while it is being built."""

    path: Path
    size: int
    inode: int = 0
    mtime_ns: int = 0
    crc32c: int = 0


@dataclass(frozen=True)
class Original:
    """A file that has replicas, in the state of which they are copies."""

    path: Path
    identity: Identity


@dataclass(frozen=True)
class Replica:
    """A copy of the bytes of ``signature`` in the order of its accesses; usable only in the state ``valid``."""

    id: int
    original: Original
    signature: Signature
    access_map: AccessMap
    layout: Layout
    state: State
    why: str
    created: datetime
    components: tuple[Component, ...]

    @property
    def size(self) -> int:
        """Logical bytes."""
        return self.access_map.size


@dataclass(frozen=True)
class Result:
    """The merged report of a redirected run."""

    time: datetime
    report: Mapping[str, Any]


def signature_to_json(signature: Signature) -> dict[str, Any]:
    """Plain values of a signature, without its members."""
    value = asdict(signature)
    del value["members"]
    return value


def signature_from_json(value: Mapping[str, Any]) -> Signature:
    """The inverse of ``signature_to_json``."""
    loops = tuple(Loop(*loop) for loop in value["loops"])
    growth = tuple(Growth(*grows) for grows in value.get("growth", ()))
    return Signature(**{**value, "loops": loops, "growth": growth, "ranks": tuple(value["ranks"])})


def layout_from_json(value: Mapping[str, Any]) -> Layout:
    """The inverse of ``dataclasses.asdict`` for a layout."""
    return Layout(**{**value, "strips": tuple(value["strips"])})
