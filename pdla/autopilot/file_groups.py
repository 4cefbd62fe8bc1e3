"""The groups of a run's files that may have policies of their own: by their paths, without the numbers in them.

A group is named by a pattern of the shell, as in ``pdla run --policy PATTERN=NAME``. A file is in the group of the
first pattern that matches it, otherwise in ``OTHERS``, whose pattern is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from pdla.autopilot.names import pattern_of
from pdla.file_policies import FilePolicies
from pdla.model import Plan
from pdla.traces.trace import Trace

OTHERS = ""
ALL = (OTHERS,)
"""Of a run whose files are one group."""
LEAST = 0.05
"""A group has at least this share of the seconds of a run: what takes less is not measured apart."""


def groups_of(trace: Trace) -> tuple[str, ...]:
    """The groups of the files of a run; ``ALL`` if not two kinds of files take a share that counts.

    Files that take less are among the others. These are no group if together they take less, too.
    """
    records = trace.records
    spent = (records["t_end"] - records["t_start"]).groupby(records["file"]).sum().to_dict()
    shares: dict[str, float] = {}
    for number, path in zip(trace.files["file"].tolist(), trace.files["path"], strict=True):
        pattern = pattern_of(str(path))
        shares[pattern] = shares.get(pattern, 0.0) + float(spent.get(number, 0.0))
    least = LEAST * sum(shares.values())
    large = ordered(one for one, share in shares.items() if share and share >= least)
    if len(large) < 2:
        return ALL
    others = sum(share for one, share in shares.items() if one not in large)
    return (*large, *(ALL if others and others >= least else ()))


def ordered(groups: Iterable[str]) -> list[str]:
    """The longest pattern first: one that says more counts before one that matches its files, too."""
    return sorted(groups, key=lambda one: (-len(one), one))


def group_of(path: str, groups: Sequence[str]) -> str:
    """The group of a file."""
    return FilePolicies(tuple((one, one) for one in groups if one != OTHERS), OTHERS).of(path)


def grouped(paths: Iterable[str], groups: Sequence[str]) -> dict[str, list[str]]:
    """The files of each group that has some."""
    found: dict[str, list[str]] = {}
    for path in paths:
        found.setdefault(group_of(path, groups), []).append(path)
    return found


def seconds_of(trace: Trace, groups: Sequence[str]) -> dict[str, float]:
    """By group, the seconds that the slowest rank spent in all calls of MPI-IO on its files."""
    records = trace.records
    found = {}
    for group, numbers in _numbers(trace, groups).items():
        own = records[records["file"].isin(numbers)]
        found[group] = float(np.bincount(own["rank"], own["t_end"] - own["t_start"]).max(initial=0.0))
    return found


def part_of(trace: Trace, plan: Plan, group: str, groups: Sequence[str]) -> tuple[Trace, Plan]:
    """The calls on the files of a group, and what is planned for these.

    Other groups may have policies at the same time: of the room in a pool this one has its share by bytes.
    """
    if tuple(groups) == ALL:
        return trace, plan
    records = trace.records
    own = records["file"].isin(_numbers(trace, groups).get(group, []))
    patterns = tuple(one for one in plan.patterns if group_of(one.signature.file, groups) == group)
    part = replace(trace, records=records[own].reset_index(drop=True), posix=trace.posix.iloc[:0])
    share = part.records["length"].sum() / max(records["length"].sum(), 1)
    pools = tuple(
        one if one.capacity is None else replace(one, capacity=int(share * one.capacity)) for one in plan.cluster.pools
    )
    return part, replace(plan, patterns=patterns, cluster=replace(plan.cluster, pools=pools))


def _numbers(trace: Trace, groups: Sequence[str]) -> dict[str, list[int]]:
    """By group, the ids of its files."""
    found: dict[str, list[int]] = {}
    for number, path in zip(trace.files["file"].tolist(), trace.files["path"], strict=True):
        found.setdefault(group_of(str(path), groups), []).append(number)
    return found
