"""pdla calibrate --lustre: what to measure on a Lustre, and the pools that come of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pdla.errors import PdlaError
from pdla.layouts.calibrate import Calibration, Storage
from pdla.replicator.backends.lov import UNIT
from pdla.replicator.backends.lustre_pools import OstPool, new_files, ost_pools


@dataclass(frozen=True)
class LustreStorages:
    """The OSTs of a Lustre: what to measure, and how it stripes a new file (servers, bytes), if that is known."""

    pools: Sequence[OstPool]
    home: tuple[int, int] | None

    @property
    def storages(self) -> list[Storage]:
        """The scratch directories of every pool."""
        return [Storage(pool.scratch, pool.name, pool.kind) for pool in self.pools]

    def placed(self, measured: Sequence[Calibration]) -> list[Calibration]:
        """What was measured, for pools with the back end for Lustre."""
        return [
            replace(
                one,
                pool=replace(one.pool, backend="lustre", where=(str(pool.where),), names=pool.servers, grain=UNIT),
            )
            for one, pool in zip(measured, self.pools, strict=True)
        ]


@contextmanager
def lustre_storages(directory: Path) -> Iterator[LustreStorages]:
    """The OSTs of the Lustre that a directory is on; scratch directories exist until the end.

    Raises:
        PdlaError: the directory is not on Lustre, or nothing can be made in it.
    """
    directory = directory.absolute()
    try:
        with ost_pools(directory) as pools:
            try:
                striping = new_files(directory)
                home = len(striping.osts), striping.strip
            except PdlaError:
                home = None
            yield LustreStorages(pools, home)
    except OSError as error:
        raise PdlaError(f"cannot measure the OSTs in {directory}: {error.strerror}") from error
