"""The replicas that a catalog knows, and their originals."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, cast

from sqlalchemy import ColumnElement, Numeric, Text, false, func, or_, select, type_coerce, update
from sqlalchemy import cast as sql_cast
from sqlalchemy.orm import Session

from pdla.accessmap import AccessMap
from pdla.catalog.database import Section
from pdla.catalog.leases import check
from pdla.catalog.outages import again
from pdla.catalog.records import (
    Checksum,
    Component,
    Copy,
    Lease,
    Listed,
    Mapped,
    Original,
    Purpose,
    Replica,
    State,
    layout_from_json,
    rule_of,
    signature_from_json,
    signature_to_json,
)
from pdla.catalog.tables import ComponentRow, ExactPath, ExtentRow, OriginalRow, ReplicaRow, is_inside, utc
from pdla.errors import PdlaError
from pdla.model import Identity, Layout, Signature

_NO_DEVICE = (1 << 64) - 1


class Originals(Section):
    """The files that have replicas, in the states of which these are copies."""

    @again
    def all(self) -> list[Original]:
        """All originals, by number."""
        with self._session() as session:
            return [_original(row) for row in session.scalars(select(OriginalRow).order_by(OriginalRow.id))]

    @again
    def set(self, path: Path, identity: Identity) -> None:
        """Declare the replicas of this file to be copies of it in this state, at this path.

        The file is the one with this inode and this path, or else this device: a mount may have got
        a new device number.
        """
        with self._session(once=True) as session:
            same = session.scalars(select(OriginalRow).filter_by(inode=identity.inode)).all()
            here = next((row for row in same if row.path == str(path)), None)
            numbered = next((row for row in same if row.device == identity.device), None)
            row = here or numbered or OriginalRow(inode=identity.inode)
            if numbered is not None and numbered is not row:
                # Another mount had this number, and gets the one that is free now: no two files
                # have the same.
                free, numbered.device = row.device, _NO_DEVICE
                session.flush()
                row.device = identity.device
                session.flush()
                numbered.device = free
            row.path, row.device, row.size = str(path), identity.device, identity.size
            row.mtime_ns, row.ctime_ns = identity.mtime_ns, identity.ctime_ns
            session.add(row)


class Replicas(Section):
    """Copies of originals: where their bytes are, and in which state they are."""

    @again
    def find(self, *states: State, purpose: Purpose | None = None) -> list[Replica]:
        """The replicas in one of ``states`` (none given: all) and for this purpose (None: any), by number."""
        conditions: list[ColumnElement[bool]] = []
        if purpose is not None:
            conditions.append(ReplicaRow.purpose == purpose)
        if states:
            conditions.append(ReplicaRow.state.in_(states))
        with self._session() as session:
            return _found(session, *conditions)

    @again
    def of(self, path: Path, identity: Identity) -> list[Replica]:
        """The replicas of the original at this path, or with this device and inode, by number."""
        with self._session() as session:
            return _found(session, _is_of(path, identity))

    @again
    def get(self, replica_id: int) -> Replica:
        """One replica.

        Raises:
            PdlaError: there is no such replica.
        """
        with self._session() as session:
            return _replica(session, replica_id)

    @again
    def checksums(self, replica_id: int) -> list[list[Checksum]]:
        """The checksums of every component, in the order of components and offsets."""
        with self._session() as session:
            row = _existing(session, replica_id)
            return [[Checksum(e.offset, e.length, e.crc32c) for e in component.extents] for component in row.components]

    @again
    def copies(self, of: tuple[Path, Identity] | None = None) -> list[Copy]:
        """The valid replicas that may serve reads, by number: all, or as ``of``; cheap, however many there are."""
        query = select(ReplicaRow.id, *_ORIGINAL).join(OriginalRow).where(*_SERVES_READS).order_by(ReplicaRow.id)
        if of is not None:
            query = query.where(_is_of(*of))
        with self._session() as session:
            return [Copy(number, path, Identity(*of)) for number, path, *of in session.execute(query)]

    @again
    def mapped(self) -> list[Mapped]:
        """What the map says of the valid replicas that may serve reads, by number; cheap, however many there are."""
        # Few of the texts differ, so each is parsed once.
        access_map_of = cache(lambda text: AccessMap.from_json(json.loads(text)))
        rule = cache(lambda text, components: rule_of(layout_from_json(json.loads(text)), components))
        texts = (sql_cast(ReplicaRow.access_map, Text), sql_cast(ReplicaRow.layout, Text))
        query = select(ReplicaRow.id, *texts, *_ORIGINAL).join(OriginalRow).where(*_SERVES_READS)
        row = ComponentRow
        with self._session() as session:
            # In this order, so that each replica that is seen has its files, whatever others do meanwhile.
            found: Any = session.execute(query.order_by(ReplicaRow.id)).all()
            files = _files(session, (row.path, row.inode, row.size, row.mtime_ns), *_SERVES_READS)
            return [
                Mapped(
                    id=number,
                    path=path,
                    identity=Identity(*of),
                    access_map=access_map_of(access_map),
                    rule=rule(layout, len(files[number])),
                    components=files[number],
                )
                for number, access_map, layout, path, *of in found
                if number in files  # nobody has removed it since
            ]

    @again
    def listing(self) -> list[Listed]:
        """All replicas by number, with what a list shows; cheap, however many there are."""
        row = ReplicaRow
        query = select(
            *(row.id, OriginalRow.path, row.state, row.why, row.purpose, sql_cast(row.layout, Text), row.size),
            *(row.created, row.runs, row.bytes_read, row.used),
        )
        with self._session() as session:
            return [
                Listed._make((*values, utc(created), count, size, used and utc(used)))
                for *values, created, count, size, used in session.execute(query.join(OriginalRow).order_by(row.id))
            ]

    @again
    def signatures(self) -> dict[int, Signature]:
        """The signature of every replica, by its number."""
        with self._session() as session:
            found = session.execute(select(ReplicaRow.id, ReplicaRow.signature))
            return {number: signature_from_json(signature) for number, signature in found}

    @again
    def directories(self) -> list[str]:
        """The directories that hold components, each once."""
        # The path without its last characters that are not slashes.
        directory = func.rtrim(ComponentRow.path, func.replace(ComponentRow.path, "/", ""))
        with self._session() as session:
            return list(session.scalars(select(type_coerce(directory, ExactPath)).distinct()))

    @again
    def bytes_in(self, directories: Iterable[str]) -> int:
        """Bytes of all components in these directories and what is in them; cheap, however many there are."""
        query = select(func.sum(ComponentRow.size, type_=Numeric()))
        query = query.where(or_(false(), *(is_inside(ComponentRow.path, directory) for directory in directories)))
        with self._session() as session:
            return int(session.scalar(query) or 0)

    @again
    def component_paths(self) -> dict[int, list[tuple[str, int]]]:
        """Path and size of every component, in their order, by the number of their replica."""
        with self._session() as session:
            return _files(session, (ComponentRow.path, ComponentRow.size))

    @again
    def begin(
        self,
        identity: Identity,
        signature: Signature,
        access_map: AccessMap,
        layout: Layout,
        *,
        purpose: Purpose = "read",
        lease: Lease | None = None,
    ) -> Replica:
        """A new ``planned`` replica of a known original (``Originals.set``), to be built under ``lease``."""
        with self._session(once=True) as session:
            original = session.scalars(
                select(OriginalRow).filter_by(device=identity.device, inode=identity.inode)
            ).one()
            row = ReplicaRow(
                original=original,
                signature=signature_to_json(signature),
                access_map=access_map.to_json(),
                layout=asdict(layout),
                pool=layout.pool,
                size=access_map.size,
                state="planned",
                why="",
                created=datetime.now(UTC),
                purpose=purpose,
                fence=lease.token if lease else 0,
            )
            session.add(row)
            session.flush()
            return _replica(session, row.id)

    @again
    def set_components(self, replica_id: int, components: Sequence[Component]) -> Replica:
        """Record the files that a replica, now ``building``, will have: before they exist, so that gc finds them."""
        with self._session(once=True) as session:
            row = _existing(session, replica_id)
            row.state = "building"
            row.components = [_component_row(number, component) for number, component in enumerate(components)]
            session.flush()
            return _replica(session, replica_id)

    @again
    def finish(
        self,
        replica_id: int,
        components: Sequence[Component],
        checksums: Sequence[Sequence[Checksum]],
        lease: Lease | None = None,
        replaces: Sequence[int] = (),
    ) -> Replica:
        """Declare the files complete, verified and durable: the replica becomes ``valid``, if the lease is still held.

        At the same moment the replicas that it ``replaces`` are retired: only one replica of the
        same bytes is valid.

        Raises:
            BusyError: another process has taken the lease.
        """
        with self._session(once=True) as session:
            if lease is not None:
                check(session, lease)
            row = _existing(session, replica_id)
            for old, component, extents in zip(row.components, components, checksums, strict=True):
                old.path, old.size, old.inode = str(component.path), component.size, component.inode
                old.mtime_ns, old.crc32c = component.mtime_ns, component.crc32c
                old.placement = component.placement
                old.extents = [ExtentRow(offset=e.offset, length=e.length, crc32c=e.crc32c) for e in extents]
            row.state = "valid"
            for replaced in replaces:
                other = _existing(session, replaced)
                other.state, other.why = "retired", f"replaced by replica {replica_id}"
            session.flush()
            return _replica(session, replica_id)

    @again
    def mark(self, replica_id: int, state: State, why: str) -> None:
        """Change the state of a replica, with the reason."""
        with self._session(once=True) as session:
            row = _existing(session, replica_id)
            row.state, row.why = state, why

    @again
    def mark_stale(self, whys: Mapping[int, str]) -> None:
        """Mark replicas, by number, as stale, each with the reason; all of them or none."""
        with self._session(once=True) as session:
            for number, why in whys.items():
                session.execute(update(ReplicaRow).where(ReplicaRow.id == number).values(state="stale", why=why))

    @again
    def forget(self, replica_id: int) -> None:
        """Remove the row (after the files); with the last replica also the row of the original."""
        with self._session(once=True) as session:
            row = _existing(session, replica_id)
            original = row.original
            session.delete(row)
            session.flush()
            session.refresh(original)
            if not original.replicas:
                session.delete(original)


def _existing(session: Session, replica_id: int) -> ReplicaRow:
    row = session.get(ReplicaRow, replica_id)
    if row is None:
        raise _unknown(replica_id)
    return row


def _unknown(replica_id: int) -> PdlaError:
    return PdlaError(f"there is no replica {replica_id} (pdla status lists them)")


def _original(row: OriginalRow) -> Original:
    return Original(Path(row.path), Identity(row.device, row.inode, row.size, row.mtime_ns, row.ctime_ns))


def _component_row(number: int, component: Component) -> ComponentRow:
    return ComponentRow(
        number=number,
        path=str(component.path),
        size=component.size,
        inode=component.inode,
        mtime_ns=component.mtime_ns,
        crc32c=component.crc32c,
        placement=component.placement,
    )


_ORIGINAL = (
    *(OriginalRow.path, OriginalRow.device, OriginalRow.inode),
    *(OriginalRow.size, OriginalRow.mtime_ns, OriginalRow.ctime_ns),
)
_COMPONENT = (
    *(ComponentRow.path, ComponentRow.size, ComponentRow.inode),
    *(ComponentRow.mtime_ns, ComponentRow.crc32c, ComponentRow.placement),
)
_SERVES_READS = (ReplicaRow.state == "valid", ReplicaRow.purpose == "read")


def _is_of(path: Path, identity: Identity) -> ColumnElement[bool]:
    """Whether a replica is of the original at this path, or with this device and inode."""
    numbered = (OriginalRow.device == identity.device) & (OriginalRow.inode == identity.inode)
    return ReplicaRow.original_id.in_(select(OriginalRow.id).where((OriginalRow.path == str(path)) | numbered))


def _found(session: Session, *conditions: ColumnElement[bool]) -> list[Replica]:
    """The replicas that meet all conditions, by number.

    RATIONALE: columns take a third of the time of objects of SQLAlchemy, and there may be very many rows.
    """
    row = ReplicaRow
    query = select(
        *(row.id, row.signature, row.access_map, row.layout, row.state, row.why, row.created, row.purpose, row.fence),
        *_ORIGINAL,
    )
    found = session.execute(query.join(OriginalRow).where(*conditions).order_by(row.id)).all()
    files = _files(session, _COMPONENT, *conditions)  # not before: each replica that was found has its files
    return [
        Replica(
            id=number,
            original=Original(Path(path), Identity(*identity)),
            signature=signature_from_json(signature),
            access_map=AccessMap.from_json(access_map),
            layout=layout_from_json(layout),
            state=cast(State, state),
            why=why,
            created=utc(created),
            components=tuple(Component(Path(place), *rest) for place, *rest in files[number]),
            purpose=cast(Purpose, purpose),
            fence=fence,
        )
        for number, signature, access_map, layout, state, why, created, purpose, fence, path, *identity in found
    ]


def _replica(session: Session, replica_id: int) -> Replica:
    for replica in _found(session, ReplicaRow.id == replica_id):
        return replica
    raise _unknown(replica_id)


def _files(session: Session, columns: Sequence[Any], *conditions: ColumnElement[bool]) -> dict[int, list[Any]]:
    """``columns`` of the components of the replicas that meet all conditions, in their order, by number of replica."""
    row = ComponentRow
    query = select(row.replica_id, *columns).join(ReplicaRow, ReplicaRow.id == row.replica_id).where(*conditions)
    found: dict[int, list[Any]] = defaultdict(list)
    for number, *values in session.execute(query.order_by(row.replica_id, row.number)):
        found[number].append(values)
    return found
