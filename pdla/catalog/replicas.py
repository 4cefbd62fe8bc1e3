"""The replicas that a catalog knows, and their originals."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import (
    ColumnElement,
    Connection,
    Numeric,
    Select,
    Text,
    delete,
    exists,
    false,
    func,
    insert,
    or_,
    select,
    type_coerce,
    update,
)
from sqlalchemy import cast as sql_cast

from pdla.catalog.database import Section, add, put
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
from pdla.catalog.tables import COMPONENTS, EXTENTS, ORIGINALS, REPLICAS, ExactPath, is_inside, utc
from pdla.errors import PdlaError
from pdla.model import Identity, Layout, Signature

if TYPE_CHECKING:
    from pdla.accessmap import AccessMap

_NO_DEVICE = (1 << 64) - 1


class Originals(Section):
    """The files that have replicas, in the states of which these are copies."""

    @again
    def all(self) -> list[Original]:
        """All originals, by number."""
        with self._transaction() as connection:
            found = connection.execute(select(*_ORIGINAL).order_by(ORIGINALS.c.id))
            return [Original(Path(path), Identity(*identity)) for path, *identity in found]

    @again
    def set(self, path: Path, identity: Identity) -> None:
        """Declare the replicas of this file to be copies of it in this state, at this path.

        The file is the one with this inode and this path, or else this device: a mount may have got
        a new device number.
        """
        with self._transaction(once=True) as connection:
            same = connection.execute(select(ORIGINALS).where(ORIGINALS.c.inode == identity.inode)).all()
            here = next((row for row in same if row.path == str(path)), None)
            numbered = next((row for row in same if row.device == identity.device), None)
            if here and numbered and here is not numbered:
                # Another mount had this number, and gets the one that is free now: no two files
                # have the same.
                put(connection, ORIGINALS, numbered.id, device=_NO_DEVICE)
                put(connection, ORIGINALS, here.id, device=identity.device)
                put(connection, ORIGINALS, numbered.id, device=here.device)
            row = here or numbered
            put(connection, ORIGINALS, row.id if row else None, path=str(path), **asdict(identity))


class Replicas(Section):
    """Copies of originals: where their bytes are, and in which state they are."""

    @again
    def find(self, *states: State, purpose: Purpose | None = None) -> list[Replica]:
        """The replicas in one of ``states`` (none given: all) and for this purpose (None: any), by number."""
        conditions: list[ColumnElement[bool]] = []
        if purpose is not None:
            conditions.append(REPLICAS.c.purpose == purpose)
        if states:
            conditions.append(REPLICAS.c.state.in_(states))
        with self._transaction() as connection:
            return _found(connection, *conditions)

    @again
    def of(self, path: Path, identity: Identity) -> list[Replica]:
        """The replicas of the original at this path, or with this device and inode, by number."""
        with self._transaction() as connection:
            return _found(connection, _is_of(path, identity))

    @again
    def get(self, replica_id: int) -> Replica:
        """One replica.

        Raises:
            PdlaError: there is no such replica.
        """
        with self._transaction() as connection:
            return _replica(connection, replica_id)

    @again
    def checksums(self, replica_id: int) -> list[list[Checksum]]:
        """The checksums of every component, in the order of components and offsets."""
        with self._transaction() as connection:
            _original_of(connection, replica_id)
            found: dict[int, list[Checksum]] = {number: [] for number in _component_numbers(connection, replica_id)}
            query = select(EXTENTS).where(EXTENTS.c.component_id.in_(found)).order_by(EXTENTS.c.offset)
            for number, *checksum in connection.execute(query):
                found[number].append(Checksum(*checksum))
            return [*found.values()]

    @again
    def copies(self, of: tuple[Path, Identity] | None = None) -> list[Copy]:
        """The valid replicas that may serve reads, by number: all, or as ``of``; cheap, however many there are."""
        query = _of_originals(REPLICAS.c.id, *_ORIGINAL).where(*_SERVES_READS)
        if of is not None:
            query = query.where(_is_of(*of))
        with self._transaction() as connection:
            return [Copy(number, path, Identity(*of)) for number, path, *of in connection.execute(query)]

    @again
    def mapped(self) -> list[Mapped]:
        """What the map says of the valid replicas that may serve reads, by number; cheap, however many there are."""
        # Few of the texts differ, so each is parsed once.
        access_map_of = cache(lambda text: _access_map(json.loads(text)))
        rule = cache(lambda text, components: rule_of(layout_from_json(json.loads(text)), components))
        texts = (sql_cast(REPLICAS.c.access_map, Text), sql_cast(REPLICAS.c.layout, Text))
        query = _of_originals(REPLICAS.c.id, *texts, *_ORIGINAL).where(*_SERVES_READS)
        row = COMPONENTS.c
        with self._transaction() as connection:
            # In this order, so that each replica that is seen has its files, whatever others do meanwhile.
            found = connection.execute(query).all()
            files = _files(connection, (row.path, row.inode, row.size, row.mtime_ns), *_SERVES_READS)
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
        row = REPLICAS.c
        query = _of_originals(
            *(row.id, ORIGINALS.c.path, row.state, row.why, row.purpose, sql_cast(row.layout, Text), row.size),
            *(row.created, row.runs, row.bytes_read, row.used),
        )
        with self._transaction() as connection:
            return [
                Listed._make((*values, utc(created), count, size, used and utc(used)))
                for *values, created, count, size, used in connection.execute(query)
            ]

    @again
    def signatures(self) -> dict[int, Signature]:
        """The signature of every replica, by its number."""
        with self._transaction() as connection:
            found = connection.execute(select(REPLICAS.c.id, REPLICAS.c.signature))
            return {number: signature_from_json(signature) for number, signature in found}

    @again
    def directories(self) -> list[str]:
        """The directories that hold components, each once."""
        # The path without its last characters that are not slashes.
        directory = func.rtrim(COMPONENTS.c.path, func.replace(COMPONENTS.c.path, "/", ""))
        with self._transaction() as connection:
            return list(connection.scalars(select(type_coerce(directory, ExactPath)).distinct()))

    @again
    def bytes_in(self, directories: Iterable[str]) -> int:
        """Bytes of all components in these directories and what is in them; cheap, however many there are."""
        query = select(func.sum(COMPONENTS.c.size, type_=Numeric()))
        query = query.where(or_(false(), *(is_inside(COMPONENTS.c.path, directory) for directory in directories)))
        with self._transaction() as connection:
            return int(connection.scalar(query) or 0)

    @again
    def component_paths(self) -> dict[int, list[tuple[str, int]]]:
        """Path and size of every component, in their order, by the number of their replica."""
        with self._transaction() as connection:
            return _files(connection, (COMPONENTS.c.path, COMPONENTS.c.size))

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
        known = (ORIGINALS.c.device == identity.device) & (ORIGINALS.c.inode == identity.inode)
        with self._transaction(once=True) as connection:
            number = add(
                connection,
                REPLICAS,
                original_id=connection.scalars(select(ORIGINALS.c.id).where(known)).one(),
                signature=signature_to_json(signature),
                access_map=access_map.to_json(),
                layout=asdict(layout),
                pool=layout.pool,
                size=access_map.size,
                state="planned",
                created=datetime.now(UTC),
                purpose=purpose,
                fence=lease.token if lease else 0,
            )
            return _replica(connection, number)

    @again
    def set_components(self, replica_id: int, components: Sequence[Component]) -> Replica:
        """Record the files that a replica, now ``building``, will have: before they exist, so that gc finds them."""
        rows = [
            {"replica_id": replica_id, "number": number, **_component(component)}
            for number, component in enumerate(components)
        ]
        with self._transaction(once=True) as connection:
            _change(connection, replica_id, state="building")
            if rows:
                connection.execute(insert(COMPONENTS), rows)
            return _replica(connection, replica_id)

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
        with self._transaction(once=True) as connection:
            if lease is not None:
                check(connection, lease)
            _change(connection, replica_id, state="valid")
            numbers = _component_numbers(connection, replica_id)
            rows = []
            for number, component, extents in zip(numbers, components, checksums, strict=True):
                put(connection, COMPONENTS, number, **_component(component))
                rows += [{"component_id": number, **extent._asdict()} for extent in extents]
            connection.execute(delete(EXTENTS).where(EXTENTS.c.component_id.in_(numbers)))
            if rows:
                connection.execute(insert(EXTENTS), rows)
            for replaced in replaces:
                _change(connection, replaced, state="retired", why=f"replaced by replica {replica_id}")
            return _replica(connection, replica_id)

    @again
    def mark(self, replica_id: int, state: State, why: str) -> None:
        """Change the state of a replica, with the reason."""
        with self._transaction(once=True) as connection:
            _change(connection, replica_id, state=state, why=why)

    @again
    def mark_stale(self, whys: Mapping[int, str]) -> None:
        """Mark replicas, by number, as stale, each with the reason; all of them or none."""
        with self._transaction(once=True) as connection:
            for number, why in whys.items():
                put(connection, REPLICAS, number, state="stale", why=why)

    @again
    def forget(self, replica_id: int) -> None:
        """Remove the row (after the files); with the last replica also the row of the original."""
        used = exists().where(REPLICAS.c.original_id == ORIGINALS.c.id)
        with self._transaction(once=True) as connection:
            original = _original_of(connection, replica_id)
            connection.execute(delete(REPLICAS).where(REPLICAS.c.id == replica_id))
            connection.execute(delete(ORIGINALS).where(ORIGINALS.c.id == original, ~used))


def _original_of(connection: Connection, replica_id: int) -> int:
    """The number of the original of a replica.

    Raises:
        PdlaError: there is no such replica.
    """
    found = connection.scalar(select(REPLICAS.c.original_id).where(REPLICAS.c.id == replica_id))
    if found is None:
        raise _unknown(replica_id)
    return int(found)


def _change(connection: Connection, replica_id: int, **values: Any) -> None:
    """Change the row of a replica.

    Raises:
        PdlaError: there is no such replica.
    """
    if not connection.execute(update(REPLICAS).where(REPLICAS.c.id == replica_id).values(values)).rowcount:
        raise _unknown(replica_id)


def _component_numbers(connection: Connection, replica_id: int) -> Sequence[int]:
    """The numbers of the rows of a replica's components, in the order of the components."""
    query = select(COMPONENTS.c.id).where(COMPONENTS.c.replica_id == replica_id).order_by(COMPONENTS.c.number)
    return connection.scalars(query).all()


def _unknown(replica_id: int) -> PdlaError:
    return PdlaError(f"there is no replica {replica_id} (pdla status lists them)")


def _component(component: Component) -> dict[str, Any]:
    return {**asdict(component), "path": str(component.path)}


_ORIGINAL = tuple(ORIGINALS.c["path", "device", "inode", "size", "mtime_ns", "ctime_ns"])
_COMPONENT = tuple(COMPONENTS.c["path", "size", "inode", "mtime_ns", "crc32c", "placement"])
_SERVES_READS = (REPLICAS.c.state == "valid", REPLICAS.c.purpose == "read")


def _is_of(path: Path, identity: Identity) -> ColumnElement[bool]:
    """Whether a replica is of the original at this path, or with this device and inode."""
    numbered = (ORIGINALS.c.device == identity.device) & (ORIGINALS.c.inode == identity.inode)
    return REPLICAS.c.original_id.in_(select(ORIGINALS.c.id).where((ORIGINALS.c.path == str(path)) | numbered))


def _of_originals(*columns: ColumnElement[Any]) -> Select[Any]:
    """Columns of replicas and of their originals, by number of the replica."""
    return select(*columns).join_from(REPLICAS, ORIGINALS).order_by(REPLICAS.c.id)


def _found(connection: Connection, *conditions: ColumnElement[bool]) -> list[Replica]:
    """The replicas that meet all conditions, by number."""
    row = REPLICAS.c
    query = _of_originals(
        *(row.id, row.signature, row.access_map, row.layout, row.state, row.why, row.created, row.purpose, row.fence),
        *_ORIGINAL,
    )
    found = connection.execute(query.where(*conditions)).all()
    files = _files(connection, _COMPONENT, *conditions)  # not before: each replica that was found has its files
    return [
        Replica(
            id=number,
            original=Original(Path(path), Identity(*identity)),
            signature=signature_from_json(signature),
            access_map=_access_map(access_map),
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


def _access_map(value: Mapping[str, Any]) -> AccessMap:
    from pdla.accessmap import AccessMap

    return AccessMap.from_json(value)


def _replica(connection: Connection, replica_id: int) -> Replica:
    for replica in _found(connection, REPLICAS.c.id == replica_id):
        return replica
    raise _unknown(replica_id)


def _files(connection: Connection, columns: Sequence[Any], *conditions: ColumnElement[bool]) -> dict[int, list[Any]]:
    """``columns`` of the components of the replicas that meet all conditions, in their order, by number of replica."""
    row = COMPONENTS.c
    query = select(row.replica_id, *columns).join_from(COMPONENTS, REPLICAS).where(*conditions)
    found: dict[int, list[Any]] = defaultdict(list)
    for number, *values in connection.execute(query.order_by(row.replica_id, row.number)):
        found[number].append(values)
    return found
