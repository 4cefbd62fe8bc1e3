"""Dependences by byte range and time, against a byte array."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdla.analyzers.dependence import RAW, WAR, WAW, dependences

READ, WRITE = "read", "write"
KINDS = {(READ, READ): 0, (READ, WRITE): WAR, (WRITE, READ): RAW, (WRITE, WRITE): WAW}


def found(accesses: list[tuple[str, int, int, float]], file: int = 0) -> list[int]:
    """Flags of (op, offset, length, t_start)."""
    table = pd.DataFrame(accesses, columns=["op", "offset", "length", "t_start"]).assign(file=file)
    return dependences(table).tolist()


@pytest.mark.parametrize(
    ("accesses", "flags"),
    [
        ([(READ, 0, 10, 0.0), (READ, 0, 10, 1.0)], [0, 0]),
        ([(WRITE, 0, 10, 0.0), (WRITE, 10, 10, 1.0)], [0, 0]),
        ([(WRITE, 0, 10, 0.0), (READ, 9, 10, 1.0)], [RAW, RAW]),
        ([(READ, 0, 10, 0.0), (WRITE, 9, 10, 1.0)], [WAR, WAR]),
        ([(WRITE, 0, 10, 0.0), (WRITE, 9, 10, 1.0)], [WAW, WAW]),
        ([(WRITE, 0, 10, 0.0), (READ, 10, 10, 1.0)], [0, 0]),
        ([(WRITE, 0, 10, 0.0), (READ, 2, 3, 1.0), (WRITE, 4, 9, 2.0)], [RAW + WAW, RAW + WAR, WAR + WAW]),
        ([(READ, 0, 10, 1.0), (WRITE, 5, 10, 1.0)], [0, 0]),
    ],
)
def test_the_dependences_of(accesses: list[tuple[str, int, int, float]], flags: list[int]) -> None:
    assert found(accesses) == flags


def test_files_do_not_depend_on_each_other() -> None:
    table = pd.DataFrame({"file": [0, 1], "op": ["write", "read"], "offset": 0, "length": 8, "t_start": [0.0, 1.0]})
    assert dependences(table).tolist() == [0, 0]


access = st.tuples(st.sampled_from([READ, WRITE]), st.integers(0, 60), st.integers(1, 40), st.integers(0, 9).map(float))


@settings(deadline=None)
@given(st.lists(access, max_size=25))
def test_they_are_those_of_every_pair_that_shares_a_byte(accesses: list[tuple[str, int, int, float]]) -> None:
    expected = np.zeros(len(accesses), np.int64)
    for i, (op, offset, length, time) in enumerate(accesses):
        for j, (later_op, later_offset, later_length, later_time) in enumerate(accesses):
            shared = max(offset, later_offset) < min(offset + length, later_offset + later_length)
            if shared and time < later_time:
                expected[[i, j]] |= KINDS[op, later_op]
    assert found(accesses) == expected.tolist()


def test_every_access_that_overlaps_many_is_found() -> None:
    offsets = np.random.default_rng(0).integers(0, 10**6, 10**5)
    table = pd.DataFrame(
        {
            "file": 0,
            "op": np.array([READ, WRITE])[np.arange(10**5) % 2],
            "offset": offsets,
            "length": 100,
            "t_start": 0.0,
        }
    )
    table["t_start"] = np.arange(10**5) * 1e-6
    assert (dependences(table) > 0).mean() > 0.99
