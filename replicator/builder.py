"""Build replicas: copy an original into the components of a layout, in the order in which a program accesses it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from pdla import config
from pdla.accessmap import AccessMap
from pdla.answers import ensure_answers, unanswered
from pdla.catalog import Catalog, Checksum, Component, Lease, Replica
from pdla.errors import BusyError, CatalogError, PdlaError, UnfitError
from pdla.layouts.capacity import room, spaces
from pdla.layouts.striping import component_sizes
from pdla.model import Identity, Layout, Plan, Pool, Signature
from pdla.replicator.backends import backend_of, placement_of
from pdla.replicator.backends.base import Backend, commit, delete
from pdla.replicator.backends.pvfs2 import stamps_writes
from pdla.replicator.checksums import whole
from pdla.replicator.collective_steps import Alone, Processes
from pdla.replicator.component_access import follow_owner
from pdla.replicator.copying import Progress, Task, copy_together, opened
from pdla.replicator.identity import identity_of, is_at, is_same, leased, stable_identity
from pdla.replicator.mapfile import CHANGED, fold, publish
from pdla.replicator.verify import components_unchanged, discard
from pdla.replicator.write_targets import are_disjoint, directory_identity, is_of
from pdla.units import format_bytes


@dataclass(frozen=True)
class BuiltReplica:
    """A replica that is ready. ``kept``: it already existed, with the same bytes in the same layout."""

    id: int
    original: Path
    layout: Layout
    bytes: int
    seconds: float
    kept: bool


class UnbuiltError(PdlaError):
    """Some replicas of a plan could not be built; the others are ``built``. ``problems`` says why, by pattern."""

    def __init__(self, built: list[BuiltReplica], problems: dict[Signature, str]) -> None:
        super().__init__("; ".join(problems.values()))
        self.built = built
        self.problems = problems


def replicate(
    plan: Plan,
    catalog: Catalog,
    *,
    progress: Progress | None = None,
    map_path: Path | None = None,
    processes: Processes | None = None,
) -> list[BuiltReplica]:
    """Build what a plan chose and publish it for redirected runs; keep replicas that already exist.

    With ``processes`` this is process 0 of them; the others call ``assist``.

    Raises:
        UnbuiltError: some replicas cannot be built. Nothing is left of these; the others are published.
        CatalogError: the catalog failed. Replicas built before are published.
    """
    map_path = map_path or config.map_path()
    chosen = [(one.signature, layout) for one in plan.patterns if (layout := one.choice.layout) is not None]
    there = _already_there(chosen, catalog, map_path)
    built, problems = [], {}
    try:
        for number, (signature, layout) in enumerate(chosen):
            try:
                built.append(
                    there.get(number)
                    or build(
                        *(signature, layout, plan.cluster.pool(layout.pool), catalog),
                        progress=progress,
                        map_path=map_path,
                        processes=processes,
                    )
                )
            except CatalogError:
                raise
            except (PdlaError, OSError) as error:
                problems[signature] = str(error)
    finally:
        publish(catalog, map_path)
        discard(catalog, [replica.id for replica in catalog.replicas.find("retired")], map_path)
    if problems:
        raise UnbuiltError(built, problems)
    return built


def _already_there(
    chosen: Sequence[tuple[Signature, Layout]], catalog: Catalog, map_path: Path
) -> dict[int, BuiltReplica]:
    """The replicas, by their number in ``chosen``, for which ``build`` would find nothing to do.

    All are looked for at once: one after the other takes the square of their number.
    """
    found: dict[int, BuiltReplica] = {}
    stamped = cache(stamps_writes)
    with catalog.exclusive():
        fold(catalog, map_path)
        known: dict[Path, list[Replica]] = {}
        for replica in catalog.replicas.find():
            known.setdefault(replica.original.path, []).append(replica)
    silent = unanswered(path for replicas in known.values() for path in _places(replicas))
    for number, (signature, layout) in enumerate(chosen):
        began, path = time.monotonic(), Path(signature.file).absolute()
        replicas = known.get(path, [])
        if signature.op == "write" or not replicas or not silent.isdisjoint(_places(replicas)):
            continue
        if not stamped(path.parent):
            continue
        with suppress(PdlaError), opened(path) as source:
            # The identity with which it is compared is older than a tick of the clock.
            identity = identity_of(source)
            access_map, layout = _cut(AccessMap.from_signature(signature), layout, identity, signature)
            if all(_is_sound(one, identity) for one in replicas):
                for one in replicas:
                    if (one.access_map, one.layout) == (access_map, layout):
                        seconds = time.monotonic() - began
                        found[number] = BuiltReplica(one.id, path, layout, one.size, seconds, kept=True)
    return found


def _places(replicas: Sequence[Replica]) -> set[str]:
    """The original of replicas, and the directories of their components."""
    return {str(replicas[0].original.path)} | {str(file.path.parent) for one in replicas for file in one.components}


def _is_sound(replica: Replica, identity: Identity) -> bool:
    return replica.state == "valid" and is_same(replica.original.identity, identity) and components_unchanged(replica)


def _cut(access_map: AccessMap, layout: Layout, identity: Identity, signature: Signature) -> tuple[AccessMap, Layout]:
    """The map of the bytes that the file has, and the layout with sections that are shorter in proportion.

    A traced pattern may reach beyond the end: MPICH's status counts what a view with holes selects there.

    Raises:
        UnfitError: the file has none of the bytes.
    """
    cut = access_map.cut(identity.size)
    if cut is None:
        low, high = access_map.extent
        raise UnfitError(
            f"{signature.file} has {identity.size} bytes, but the pattern {signature} reaches byte {high} from byte "
            f"{low} on: trace the program again"
        )
    if cut is access_map:
        return access_map, layout
    sections = -(-access_map.size // layout.section)
    return cut, replace(layout, section=-(-cut.size // sections))


def build(
    signature: Signature,
    layout: Layout,
    pool: Pool,
    catalog: Catalog,
    *,
    access_map: AccessMap | None = None,
    progress: Progress | None = None,
    map_path: Path | None = None,
    processes: Processes | None = None,
) -> BuiltReplica:
    """Build, verify and register one replica; ``mapfile.publish`` then makes it known to redirected runs.

    The replica of a pattern that reads beyond the end of the file holds the bytes that the file has; that of a
    pattern that writes is empty (``prepare``). Stale replicas of the original are
    removed first. A valid replica of the same bytes in another layout is retired. One process at a
    time builds replicas of an original: it holds the lease of the original. ``processes`` help it
    as in ``replicate``. With an ``access_map`` the replica has its bytes instead of those of the signature.

    Raises:
        BusyError: another process builds a replica of this original.
        PdlaError: storage does not answer, the file ends before the pattern begins, there is no
            space, the original changed while it was copied, or the lease was lost. Nothing is left
            of the replica.
    """
    if signature.op == "write":
        return prepare(signature, layout, pool, catalog, map_path=map_path)
    began = time.monotonic()
    path = Path(signature.file).absolute()
    access_map = access_map or AccessMap.from_signature(signature)
    ensure_answers([path, *pool.where])
    backend = backend_of(pool)
    with opened(path) as source, leased(catalog, source, path) as lease, ExitStack() as stack:
        identity = stable_identity(source, path)
        access_map, layout = _cut(access_map, layout, identity, signature)
        backend.check(layout, access_map.size)
        with catalog.exclusive():
            same = _discard_stale(catalog, path, identity, access_map, map_path or config.map_path())
            for old in same:
                if old.layout == layout:
                    return BuiltReplica(old.id, path, layout, old.size, time.monotonic() - began, kept=True)
            # These are more than the map's bytes if sections end within a strip.
            _check_capacity(catalog, pool, component_sizes(layout, access_map.size))
            catalog.originals.set(path, identity)
            replica = catalog.replicas.begin(identity, signature, access_map, layout, lease=lease)
            new = backend.components(f"{catalog.token}/{replica.id}", layout, access_map.size)
            paths = [component.path for component in new]
            stack.enter_context(_whole_or_not_at_all(catalog, replica, paths, lease))
            # Made before the files are on record: a file whose directory is missing is then known
            # to be unreachable.
            for component in paths:
                component.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replica = catalog.replicas.set_components(replica.id, [Component(one.path, one.size) for one in new])
        files = []
        for one in new:
            files.append(backend.create(one))
            stack.callback(os.close, files[-1])
        # A process that was stopped for long may have lost the record of these files: better to
        # know now than later.
        catalog.leases.check(lease)
        task = Task(path, identity, access_map, replica.rule, tuple(new))
        checksums = copy_together(task, processes or Alone(), progress)
        for file in files:
            follow_owner(source, file)
            os.fsync(file)
        with catalog.exclusive():
            catalog.leases.check(lease)
            if identity_of(source) != identity or not is_at(path, identity):
                raise BusyError(
                    f"{path} changed while it was copied: run pdla replicate again when nobody writes to it"
                )
            commit(paths)
            components = [_component(backend, *one) for one in zip(paths, files, checksums, strict=True)]
            catalog.replicas.finish(replica.id, components, checksums, lease, [old.id for old in same])
    return BuiltReplica(replica.id, path, layout, access_map.size, time.monotonic() - began, kept=False)


def prepare(
    signature: Signature, layout: Layout, pool: Pool, catalog: Catalog, *, map_path: Path | None = None
) -> BuiltReplica:
    """Make an empty replica with reserved space for the writes of a pattern. The target file need not exist.

    Replicas for the same file that share bytes with this one are removed.

    Raises:
        PdlaError: there is no space, or such a replica is dirty.
    """
    began = time.monotonic()
    path = Path(signature.file).absolute()
    access_map = AccessMap.from_signature(signature)
    ensure_answers([path, *pool.where])
    backend = backend_of(pool)
    backend.check(layout, access_map.size)
    with catalog.exclusive():
        fold(catalog, map_path)
        others = [replica for replica in catalog.replicas.find(purpose="write") if is_of(replica, path)]
        for old in others:
            if (old.access_map, old.layout, old.state) == (access_map, layout, "valid") and components_unchanged(old):
                return BuiltReplica(old.id, path, layout, old.size, time.monotonic() - began, kept=True)
        overlapping = [old.id for old in others if not are_disjoint(old.access_map, access_map)]
        discard(catalog, overlapping, map_path)
        _check_capacity(catalog, pool, component_sizes(layout, access_map.size))
        directory = directory_identity(path)
        catalog.originals.set(path.parent, directory)
        replica = catalog.replicas.begin(directory, signature, access_map, layout, purpose="write")
        new = backend.components(f"{catalog.token}/{replica.id}", layout, access_map.size)
        catalog.replicas.set_components(replica.id, [Component(one.path, one.size) for one in new])
        try:
            with ExitStack() as stack:
                files = []
                for one in new:
                    files.append(backend.create(one))
                    stack.callback(os.close, files[-1])
                    backend.reserve(files[-1], one)
                    os.fsync(files[-1])
                commit([one.path for one in new])
                components = [_component(backend, one.path, file, []) for one, file in zip(new, files, strict=True)]
            catalog.replicas.finish(replica.id, components, [[] for _ in new])
        except BaseException as error:
            for one in new:
                delete(one.path)
            catalog.replicas.forget(replica.id)
            if isinstance(error, OSError):
                raise PdlaError(f"cannot make a replica for writes to {path}: {error}") from error
            raise
    return BuiltReplica(replica.id, path, layout, access_map.size, time.monotonic() - began, kept=False)


@contextmanager
def _whole_or_not_at_all(catalog: Catalog, replica: Replica, paths: Sequence[Path], lease: Lease) -> Iterator[None]:
    """Undo a replica whose build fails: its files, then its record. If the files stay, the record stays for gc.

    Raises:
        BusyError: another process has taken over the work, and may have removed the files. That they
            are missing is no error then.
    """
    try:
        yield
    except BaseException as error:
        gone = [_deleted(path) for path in paths]
        with suppress(PdlaError):
            if all(gone):
                catalog.replicas.forget(replica.id)
        if isinstance(error, OSError | PdlaError):
            with suppress(CatalogError):
                catalog.leases.check(lease)
        if isinstance(error, OSError):
            raise PdlaError(f"cannot build a replica of {replica.original.path}: {error}") from error
        raise


def _deleted(path: Path) -> bool:
    try:
        delete(path)
    except OSError:
        return False
    return True


def _discard_stale(
    catalog: Catalog, path: Path, identity: Identity, access_map: AccessMap, map_path: Path
) -> list[Replica]:
    """Remove the stale replicas of this original, and return its valid replicas of the same bytes."""
    fold(catalog, map_path, (path, identity))
    stale, same = [], []
    for replica in catalog.replicas.of(path, identity):
        if replica.state == "dirty":
            raise PdlaError(f"replica {replica.id} has newer bytes than {path}: run pdla sync first")
        if replica.state == "valid" and not is_same(replica.original.identity, identity):
            catalog.replicas.mark(replica.id, "stale", CHANGED)
            stale.append(replica.id)
        elif replica.state != "valid" or not components_unchanged(replica):
            stale.append(replica.id)
        elif replica.access_map == access_map:
            same.append(replica)
    discard(catalog, stale, map_path)
    return same


def _check_capacity(catalog: Catalog, pool: Pool, sizes: Sequence[int]) -> None:
    left = room(pool.parts or (pool,), lambda one: catalog.replicas.bytes_in(one.where))
    for space, needed in spaces(pool, sizes).items():
        if needed > left[space]:
            raise PdlaError(
                f"no room for {format_bytes(needed)} of a replica: {space} has {format_bytes(left[space])} left "
                "(pdla rm and pdla gc make room)"
            )


def _component(backend: Backend, path: Path, file: int, checksums: list[Checksum]) -> Component:
    found = os.fstat(file)
    return Component(
        path, found.st_size, found.st_ino, found.st_mtime_ns, whole(checksums), placement_of(backend, path)
    )
