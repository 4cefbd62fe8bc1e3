"""The equations of S4D-Cache against striping by brute force, and against the integrals that they come from."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdla.layouts.s4d import largest_subrequest, servers_involved, slowest_density, slowest_startup, startup_cdf


def on_servers(offset: int, length: int, stripe: int, servers: int) -> Counter[int]:
    """Bytes that every server gets, byte by byte."""
    return Counter(byte // stripe % servers for byte in range(offset, offset + length))


CASES = st.tuples(st.integers(0, 200), st.integers(1, 200), st.integers(1, 12), st.integers(1, 9))


@given(CASES)
def test_the_largest_subrequest_is_that_of_striping(case):
    assert largest_subrequest(*case) == max(on_servers(*case).values())


@given(CASES)
def test_the_servers_involved_are_those_of_striping(case):
    assert servers_involved(*case) == len(on_servers(*case))


def test_a_request_that_ends_with_a_stripe_does_not_reach_the_next_server():
    # The paper's floor((f+r)/str) would count 3.
    assert servers_involved(0, 2 * 65536, stripe=65536, servers=8) == 2


@pytest.mark.parametrize("servers", [1, 2, 8])
def test_the_slowest_startup_is_the_mean_of_its_density(servers):
    x = np.linspace(0.004, 0.012, 200_001)
    density = np.array([slowest_density(point, servers, 0.004, 0.012) for point in x])
    assert np.trapezoid(density, x) == pytest.approx(1.0, abs=1e-4)
    assert slowest_startup(servers, 0.004, 0.012) == pytest.approx(np.trapezoid(x * density, x), rel=1e-4)


def test_startups_are_uniform_between_the_least_and_the_largest():
    assert [startup_cdf(x, 1.0, 3.0) for x in (0.0, 1.0, 2.0, 3.0, 9.0)] == [0.0, 0.0, 0.5, 1.0, 1.0]
    assert slowest_density(0.5, 2, 1.0, 3.0) == 0.0
