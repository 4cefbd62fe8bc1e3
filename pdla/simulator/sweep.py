"""Compare the schemes for other values of a key of the cluster, or other numbers of processes, in parallel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pdla.errors import ConfigError
from pdla.layouts.config import load_cluster
from pdla.simulator.scheme_comparison import Contest, Program, contest

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

    from pdla.analyzers.rank_scaling import Scaling

PROCESSES = "processes"


@dataclass(frozen=True)
class Sweep:
    """The values of a key of cluster.toml (``pools.ssd.capacity``), or of ``processes``."""

    key: str
    values: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Sweep:
        """Parse ``KEY=V1,V2,...``.

        Raises:
            ConfigError: the text has another form.
        """
        key, equals, values = text.partition("=")
        found = tuple(value.strip() for value in values.split(",") if value.strip())
        if not (key.strip() and equals and found):
            raise ConfigError(f"--sweep takes KEY=V1,V2,..., such as pools.ssd.capacity=64G,1T (got {text!r})")
        return cls(key.strip(), found)

    def check(self, cluster: str | None, *, scaled: bool) -> None:
        """Refuse what cannot be simulated on ``cluster``; ``scaled``: there are traces for other numbers of processes.

        Raises:
            ConfigError: an unknown key, an impossible value, or processes without traces of other
                numbers of them.
        """
        if self.key != PROCESSES:
            for value in self.values:
                load_cluster(cluster, {self.key: value})
        elif not scaled:
            raise ConfigError("a sweep over processes needs traces of the program at two or more numbers of processes")
        elif wrong := [value for value in self.values if not value.isdecimal() or int(value) < 1]:
            raise ConfigError(f"processes must be whole numbers of at least 1 (got {wrong[0]!r})")


@dataclass(frozen=True)
class Point:
    """One value of a sweep, and the results."""

    value: str
    contest: Contest


def sweep(
    what: Sweep,
    program: Program,
    cluster: str | None,
    names: Sequence[str] = (),
    *,
    scaling: Scaling | None = None,
    open_loop: bool = False,
    seed: int = 0,
    processes: Intracomm | None = None,
) -> list[Point]:
    """Compare the schemes for each value, on all cores, or by the ``processes`` of mpiexec (each gets all points).

    Raises:
        ConfigError: an unknown key, an impossible value, or processes without a ``scaling``.
        PdlaError: the traces do not determine what the program does on so many processes.
    """
    what.check(cluster, scaled=scaling is not None)
    one = partial(_point, what.key, program, cluster, tuple(names), scaling, open_loop, seed)
    if processes is None:
        return _on_all_cores(one, what.values)
    mine = [(number, one(what.values[number])) for number in range(processes.rank, len(what.values), processes.size)]
    return [point for _, point in sorted((pair for part in processes.allgather(mine) for pair in part), key=_number)]


def _number(pair: tuple[int, Point]) -> int:
    return pair[0]


def _on_all_cores(one: Callable[[str], Point], values: Iterable[str]) -> list[Point]:
    values = list(values)
    workers = min(len(os.sched_getaffinity(0)), len(values))
    if workers == 1:
        return [one(value) for value in values]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(one, values))


def _point(
    key: str,
    program: Program,
    cluster: str | None,
    names: Sequence[str],
    scaling: Scaling | None,
    open_loop: bool,
    seed: int,
    value: str,
) -> Point:
    if scaling is not None and key == PROCESSES:
        storage, program = load_cluster(cluster), program.scaled(scaling, int(value))
    else:
        storage = load_cluster(cluster, {key: value})
    return Point(value, contest(program, storage, names, open_loop=open_loop, seed=seed))
