"""Copy an original into the components of a replica, by one process or by several that share the work."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from pdla.accessmap import AccessMap
from pdla.catalog import Checksum
from pdla.errors import PdlaError, UnfitError
from pdla.model import Identity, Layout
from pdla.replicator.backends.base import NewComponent, temporary
from pdla.replicator.bucket_transpose import Buckets, buckets_of
from pdla.replicator.checksums import ComponentChecksums
from pdla.replicator.collective_steps import Processes, stop_if_others_failed, together
from pdla.replicator.components import ComponentFiles
from pdla.replicator.identity import identity_of
from pdla.replicator.transpose import Run, aligned, runs
from pdla.units import MiB

Progress = Callable[[str, int, int], None]
"""Called every few MiB with the name of the work, and this process's bytes so far and in all."""

UNFIT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP)
"""Errors at the open of an original that a new try does not cure."""

REPORT_BYTES = 4 * MiB
"""Bytes between two reports of progress."""


@dataclass(frozen=True)
class Task:
    """What every process must know about a replica that all build together."""

    original: Path
    identity: Identity
    access_map: AccessMap
    rule: Layout
    components: tuple[NewComponent, ...]


def assist(processes: Processes) -> None:
    """Do this process's share of everything that process 0 builds, until process 0 calls ``dismiss``."""
    while (task := processes.bcast(None)) is not None:
        with suppress(PdlaError):  # process 0 reports it
            _share(task, processes, None)


def dismiss(processes: Processes) -> None:
    """End the other processes' ``assist``."""
    processes.bcast(None)


def copy_together(task: Task, processes: Processes, progress: Progress | None) -> list[list[Checksum]]:
    """Copy the bytes of the map into the component files, which must exist, and check that storage returns them.

    Returns:
        The checksums of the bytes read, by component.

    Raises:
        PdlaError: some process failed.
    """
    return _share(processes.bcast(task), processes, progress)


def _share(task: Task, processes: Processes, progress: Progress | None) -> list[list[Checksum]]:
    """Copy and verify this process's part of the original; return the checksums of all components, at process 0.

    Raises:
        PdlaError: some process failed.
    """

    def report(what: str, done: int, total: int) -> None:
        stop_if_others_failed(processes)
        if progress:
            progress(what, done, total)

    with ExitStack() as stack:
        source, files = together(processes, lambda: _take_part(task, stack))
        buckets = buckets_of(task.access_map)
        copied = task.access_map if buckets is None else buckets.collected
        checksums = _step(task, files, lambda to: _copy(task, source, copied, to, processes, report), processes, report)
        if buckets is not None:
            checksums = _step(task, files, lambda to: _order(buckets, to, processes, report), processes, report)
    return checksums


def _take_part(task: Task, stack: ExitStack) -> tuple[int, list[int]]:
    """Open the original and the component files in this process."""
    source = stack.enter_context(opened(task.original))
    found, wanted = identity_of(source), task.identity
    # The number of a device differs from node to node.
    if (found.inode, found.size, found.mtime_ns) != (wanted.inode, wanted.size, wanted.mtime_ns):
        raise PdlaError(f"{task.original} is not the same file for all processes: put it where every node sees it")
    files = []
    for component in task.components:
        files.append(os.open(temporary(component.path), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC))
        stack.callback(os.close, files[-1])
    return source, files


def _step(
    task: Task,
    files: list[int],
    write: Callable[[ComponentFiles], list[ComponentChecksums]],
    processes: Processes,
    report: Progress,
) -> list[list[Checksum]]:
    """Fill the components and check them; return the checksums of all components, at process 0."""
    with ComponentFiles(task.components, files, task.rule) as to:
        mine = together(processes, lambda: write(to))
        checksums, late = _merged(processes.gather(mine))
        late = processes.bcast(late)[processes.rank :: processes.size]
        together(processes, lambda: to.verify(late, partial(report, "verifying")))
    return checksums


def _copy(
    task: Task, source: int, access_map: AccessMap, files: ComponentFiles, processes: Processes, report: Progress
) -> list[ComponentChecksums]:
    """Copy this process's part of the original into the components; return the checksums of the bytes read."""
    os.posix_fadvise(source, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    done, reported, total = 0, 0, access_map.size // processes.size
    for run in runs(source, task.original, access_map, part=processes.rank, parts=processes.size):
        for start in range(0, len(run.data), REPORT_BYTES):
            data = run.data[start : start + REPORT_BYTES]
            files.write(Run(run.start + start, data, run.sparse))
            done += len(data)
            if done - reported >= REPORT_BYTES or done >= total:
                report(f"copying {task.original.name}", done, max(done, total))
                reported = done
    return files.flush()


def _order(buckets: Buckets, files: ComponentFiles, processes: Processes, report: Progress) -> list[ComponentChecksums]:
    """Put this process's buckets into order; return the checksums of the extents verified before."""
    sizes = np.diff(buckets.bounds)
    share = range(processes.rank, len(sizes), processes.size)
    data, memory = (aligned(int(sizes.max())) for _ in range(2))
    for done, number in enumerate(share):
        part = data[: sizes[number]]
        files.read(int(buckets.bounds[number]), part)
        for start, ordered in buckets.ordered(number, part, memory):
            for at in range(0, len(ordered), REPORT_BYTES):
                files.write(Run(start + at, ordered[at : at + REPORT_BYTES], sparse=True))
        report("ordering", int(sizes[share[: done + 1]].sum()), int(sizes[share].sum()))
    return files.flush()


def _merged(
    parts: list[list[ComponentChecksums]] | None,
) -> tuple[list[list[Checksum]], list[tuple[int, Checksum]]]:
    """The checksums of all components, and by component those of the extents that no process has verified."""
    checksums, unverified = [], []
    for component, (sums, *others) in enumerate(zip(*parts or (), strict=True)):
        for other in others:
            sums.merge(other)
        every, late = sums.finish()
        checksums.append(every)
        unverified += [(component, checksum) for checksum in late]
    return checksums, unverified


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open an original for reading.

    Raises:
        PdlaError: the original cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        # If its directory is gone, too, the file system is not reachable.
        unfit = error.errno in UNFIT and path.parent.is_dir()
        raise (UnfitError if unfit else PdlaError)(f"cannot read the original {path}: {error.strerror}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
