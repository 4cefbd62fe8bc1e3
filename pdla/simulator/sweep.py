"""Compare the schemes for other values of a key of the cluster, or other numbers of processes, in parallel."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing import active_children
from operator import itemgetter
from signal import SIG_DFL, SIG_IGN, SIGHUP, SIGINT, SIGTERM, getsignal, signal
from typing import TYPE_CHECKING

from pdla.errors import ConfigError
from pdla.layouts.config import load_cluster
from pdla.simulator.run import Result
from pdla.simulator.scheme_comparison import Absent, Contest, Program, attempt
from pdla.simulator.schemes import scheme_names

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

    from pdla.analyzers.rank_scaling import Scaling

PROCESSES = "processes"

_Task = tuple[str, str]  # a value and a scheme
_Found = Result | Absent
_Simulation = Callable[[_Task], _Found]


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
    progress: Callable[[str, float, float], None] | None = None,
) -> list[Point]:
    """Compare the schemes for each value, on all cores, or by the ``processes`` of mpiexec (each gets all points).

    ``progress`` is called with the name of the work, the simulations done and their number.

    Raises:
        ConfigError: an unknown key, an impossible value, or processes without a ``scaling``.
        PdlaError: the traces do not determine what the program does on so many processes.
    """
    what.check(cluster, scaled=scaling is not None)
    schemes = tuple(names) or scheme_names()
    tasks = tuple(product(what.values, schemes))
    one = partial(_simulation, what.key, program, cluster, scaling, bool(names), open_loop, seed)
    advance = partial(progress or (lambda what, done, total: None), f"simulating {what.key}")
    if processes is None:
        found = _on_all_cores(one, tasks, advance)
    else:
        mine = range(processes.rank, len(tasks), processes.size)
        parts = processes.allgather([(number, one(tasks[number])) for number in mine])
        found = [each for _, each in sorted((pair for part in parts for pair in part), key=itemgetter(0))]
    return [
        Point(value, Contest.of(found[place * len(schemes) : (place + 1) * len(schemes)]))
        for place, value in enumerate(what.values)
    ]


def _on_all_cores(one: _Simulation, tasks: Sequence[_Task], advance: Callable[[float, float], None]) -> list[_Found]:
    advance(0, len(tasks))
    workers = min(len(os.sched_getaffinity(0)), len(tasks))
    if workers == 1:
        found = []
        for task in tasks:
            found.append(one(task))
            advance(len(found), len(tasks))
        return found
    with ProcessPoolExecutor(workers, initializer=_begin, initargs=(one,)) as pool:
        try:
            futures = [pool.submit(_run, task) for task in tasks]
            for done, future in enumerate(as_completed(futures)):
                future.result()
                advance(done + 1, len(tasks))
        except BaseException:
            for process in active_children():
                process.terminate()
            raise
    return [future.result() for future in futures]


_simulation_of_worker: _Simulation


def _begin(one: _Simulation) -> None:
    """Begin a process of the pool. Signals end it at once, unless the verb ignores them: it cleans up, and says so."""
    global _simulation_of_worker
    for number in (SIGINT, SIGTERM, SIGHUP):
        if getsignal(number) != SIG_IGN:
            signal(number, SIG_DFL)
    _simulation_of_worker = one


def _run(task: _Task) -> _Found:
    return _simulation_of_worker(task)


def _simulation(
    key: str,
    program: Program,
    cluster: str | None,
    scaling: Scaling | None,
    required: bool,
    open_loop: bool,
    seed: int,
    task: _Task,
) -> _Found:
    value, name = task
    if scaling is not None and key == PROCESSES:
        storage, program = load_cluster(cluster), program.scaled(scaling, int(value))
    else:
        storage = load_cluster(cluster, {key: value})
    return attempt(program, storage, name, required=required, open_loop=open_loop, seed=seed)
