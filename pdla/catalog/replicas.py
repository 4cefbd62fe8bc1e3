"""The replicas that a catalog knows, and their originals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from sqlalchemy import Text, func, select, type_coerce, update
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
    Original,
    Purpose,
    Replica,
    State,
    layout_from_json,
    signature_from_json,
    signature_to_json,
)
from pdla.catalog.tables import ComponentRow, ExactPath, ExtentRow, OriginalRow, ReplicaRow, utc
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
        query = select(ReplicaRow).order_by(ReplicaRow.id)
        if purpose is not None:
            query = query.where(ReplicaRow.purpose == purpose)
        if states:
            query = query.where(ReplicaRow.state.in_(states))
        with self._session() as session:
            return [_replica(row) for row in session.scalars(query)]

    @again
    def get(self, replica_id: int) -> Replica:
        """One replica.

        Raises:
            PdlaError: there is no such replica.
        """
        with self._session() as session:
            return _replica(_existing(session, replica_id))

    @again
    def checksums(self, replica_id: int) -> list[list[Checksum]]:
        """The checksums of every component, in the order of components and offsets."""
        with self._session() as session:
            row = _existing(session, replica_id)
            return [[Checksum(e.offset, e.length, e.crc32c) for e in component.extents] for component in row.components]

    @again
    def copies(self) -> list[Copy]:
        """The valid replicas that may serve reads, by number; cheap, however many there are."""
        table = OriginalRow
        identity = (table.device, table.inode, table.size, table.mtime_ns, table.ctime_ns)
        query = select(ReplicaRow.id, table.path, *identity).join(table).order_by(ReplicaRow.id)
        query = query.where(ReplicaRow.state == "valid", ReplicaRow.purpose == "read")
        with self._session() as session:
            return [Copy(number, path, Identity(*of)) for number, path, *of in session.execute(query)]

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
    def component_paths(self) -> dict[int, list[tuple[str, int]]]:
        """Path and size of every component, in their order, by the number of their replica."""
        table = ComponentRow
        query = select(table.replica_id, table.path, table.size).order_by(table.replica_id, table.number)
        found: dict[int, list[tuple[str, int]]] = {}
        with self._session() as session:
            for number, path, size in session.execute(query):
                found.setdefault(number, []).append((path, size))
        return found

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
            return _replica(row)

    @again
    def set_components(self, replica_id: int, components: Sequence[Component]) -> Replica:
        """Record the files that a replica, now ``building``, will have: before they exist, so that gc finds them."""
        with self._session(once=True) as session:
            row = _existing(session, replica_id)
            row.state = "building"
            row.components = [_component_row(number, component) for number, component in enumerate(components)]
            return _replica(row)

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
            return _replica(row)

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
        raise PdlaError(f"there is no replica {replica_id} (pdla status lists them)")
    return row


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


def _replica(row: ReplicaRow) -> Replica:
    return Replica(
        id=row.id,
        original=_original(row.original),
        signature=signature_from_json(row.signature),
        access_map=AccessMap.from_json(row.access_map),
        layout=layout_from_json(row.layout),
        state=cast(State, row.state),
        why=row.why,
        created=utc(row.created),
        components=tuple(
            Component(Path(c.path), c.size, c.inode, c.mtime_ns, c.crc32c, c.placement) for c in row.components
        ),
        purpose=cast(Purpose, row.purpose),
        fence=row.fence,
    )
