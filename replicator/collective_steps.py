"""Steps that all processes of a build do together: if one fails, all fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from pdla.errors import PdlaError

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

T = TypeVar("T")


class Alone:
    """Stands in for an MPI communicator if one process builds alone."""

    rank = 0
    size = 1

    def bcast(self, value: T, root: int = 0) -> T:
        """The value of process 0."""
        return value

    def gather(self, value: T, root: int = 0) -> list[T]:
        """The value of each process, at process 0."""
        return [value]


Processes: TypeAlias = "Intracomm | Alone"

_STOP = 1
"""Tag of the message that a process has failed, so that the others can stop their work."""


class FailedElsewhereError(PdlaError):
    """Another process failed; that process gives the reason."""


def together(processes: Processes, work: Callable[[], T]) -> T:
    """The result of ``work``, if it succeeds at all processes.

    Raises:
        PdlaError: it failed at some process. Process 0 raises its own error if it has one; the
            others give the reason.
    """
    if isinstance(processes, Alone):
        return work()
    result: T | None = None
    failure: BaseException | None = None
    stops = []
    try:
        result = work()
    except FailedElsewhereError as error:
        failure = error
    except BaseException as error:  # of any type: the other processes wait for an answer
        failure = error
        stops = [processes.isend(None, other, _STOP) for other in range(processes.size) if other != processes.rank]
    own = None if isinstance(failure, FailedElsewhereError) else failure and (str(failure) or type(failure).__name__)
    problem = next((why for why in processes.allgather(own) if why), None)
    for request in stops:
        request.wait()
    while processes.iprobe(tag=_STOP):
        processes.recv(tag=_STOP)
    if problem is not None:
        raise failure if failure and own and not processes.rank else PdlaError(problem)
    return cast(T, result)


def stop_if_others_failed(processes: Processes) -> None:
    """Called now and then in ``work``.

    Raises:
        FailedElsewhereError: another process failed.
    """
    if not isinstance(processes, Alone) and processes.iprobe(tag=_STOP):
        raise FailedElsewhereError("another process failed")
