"""The striping rule against its definition in replicator/stub/mapfile.h, byte by byte."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pdla.layouts.striping import Piece, component_sizes, locate
from pdla.model import Layout
from pdla.units import KiB


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    groups, width = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    strips = draw(st.lists(st.integers(0, 5), min_size=width, max_size=width).filter(lambda strips: sum(strips) > 0))
    return Layout("disk", groups * width, groups, tuple(strips), draw(st.integers(1, 30)))


def osd_of(layout: Layout, x: int) -> tuple[int, int]:
    """The component and offset of one logical byte, as the contract words it."""
    width, cycle = layout.servers // layout.groups, sum(layout.strips)
    section, y = divmod(x, layout.section)
    c, z = divmod(y, cycle)
    j = next(j for j in range(width) if z < sum(layout.strips[: j + 1]))
    s = z - sum(layout.strips[:j])
    row = section // layout.groups * -(-layout.section // cycle)
    return section % layout.groups * width + j, (row + c) * layout.strips[j] + s


@given(layouts(), st.integers(0, 200), st.integers(0, 200))
def test_every_byte_is_where_the_rule_says(layout: Layout, start: int, length: int):
    got = [
        (piece.logical + i, piece.component, piece.offset + i)
        for piece in locate(layout, start, start + length)
        for i in range(piece.length)
    ]
    assert got == [(x, *osd_of(layout, x)) for x in range(start, start + length)]


@given(layouts(), st.integers(0, 200))
def test_no_two_bytes_share_a_place_and_components_end_with_their_last_byte(layout: Layout, size: int):
    homes = [osd_of(layout, x) for x in range(size)]
    assert len(set(homes)) == size
    ends = np.zeros(layout.servers, dtype=int)
    for component, offset in homes:
        ends[component] = max(ends[component], offset + 1)
    assert component_sizes(layout, size) == ends.tolist()


@given(layouts(), st.integers(0, 200))
def test_storage_that_stripes_the_file_of_a_group_puts_every_byte_where_the_layout_says(layout: Layout, x: int):
    width = layout.servers // layout.groups
    group, offset = osd_of(layout.by_group, x)
    server, place = osd_of(Layout("disk", width, 1, layout.strips, 1 << 40), offset)
    assert (group * width + server, place) == osd_of(layout, x)


def test_one_dh_deals_every_section_to_all_servers():
    layout = Layout("disk", 2, 1, (64 * KiB, 64 * KiB), 1024 * KiB)
    assert locate(layout, 60 * KiB, 68 * KiB) == [
        Piece(0, 60 * KiB, 4 * KiB, 60 * KiB),
        Piece(1, 0, 4 * KiB, 64 * KiB),
    ]


def test_one_dv_keeps_a_section_on_one_server():
    layout = Layout("disk", 2, 2, (64 * KiB,), 100 * KiB)
    assert locate(layout, 0, 300 * KiB) == [
        Piece(0, 0, 64 * KiB, 0),
        Piece(0, 64 * KiB, 36 * KiB, 64 * KiB),
        Piece(1, 0, 64 * KiB, 100 * KiB),
        Piece(1, 64 * KiB, 36 * KiB, 164 * KiB),
        Piece(0, 128 * KiB, 64 * KiB, 200 * KiB),
        Piece(0, 192 * KiB, 36 * KiB, 264 * KiB),
    ]
    assert component_sizes(layout, 300 * KiB) == [228 * KiB, 100 * KiB]


def test_a_server_with_a_strip_of_zero_holds_nothing():
    layout = Layout("disk", 3, 1, (1, 0, 2), 9)
    assert component_sizes(layout, 9) == [3, 0, 6]
    assert [piece.component for piece in locate(layout, 0, 9)] == [0, 2, 0, 2, 0, 2]
