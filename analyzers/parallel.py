"""Find local patterns by several processes, each with its part of the ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pdla.analyzers.local_patterns import LocalPatterns, merged
from pdla.errors import PdlaError

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


def find_together(find: Callable[[int, int], LocalPatterns], processes: Intracomm) -> LocalPatterns | None:
    """The local patterns that ``find(part, parts)`` finds at all processes, at process 0; None at the others.

    The result does not depend on the number of processes.

    Raises:
        PdlaError: a process failed. Process 0 gives the reason.
    """
    part, problem = None, ""
    try:
        part = find(processes.rank, processes.size)
    except Exception as error:  # of any type: the other processes wait for an answer
        problem = str(error) or type(error).__name__
    parts = processes.gather((part, problem), 0)
    problems = [why for _, why in parts or () if why]
    problem = processes.bcast(problems[0] if problems else "", 0)
    if problem:
        raise PdlaError("" if processes.rank else problem)
    return merged([found for found, _ in parts]) if parts else None
