"""The extended attribute lustre.lov of files with several components."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdla.errors import PdlaError
from pdla.replicator.backends import lfs
from pdla.replicator.backends.lov import V1, Striping, decode
from pdla.replicator.backends.lov_components import END, UNWRITTEN, Component, components, encode_components
from tests.support.compilers import compiled
from tests.support.lov_attributes import EXTENSION, INIT, PARITY, blob, layout
from tests.support.mpi import REPOSITORY

MIB = 1 << 20
PFL = (
    Component(0, MIB, Striping(MIB, (0,))),
    Component(MIB, 1024 * MIB, Striping(MIB, (1, 0), "flash")),
    Component(1024 * MIB, END, None, UNWRITTEN),
)
"""As ``lfs setstripe -E 1M -c 1 -E 1G -c 2 -p flash -E -1 -c -1`` makes it, when 2 MiB were written."""
RECORDED = layout(
    [
        (1, INIT, 0, MIB, blob(MIB, (0,))),
        (2, INIT, MIB, 1024 * MIB, blob(MIB, (1, 0), "flash")),
        (3, 0, 1024 * MIB, END, blob(MIB, (), count=0xFFFF)),
    ]
)


def test_each_component_has_its_striping_and_one_without_objects_says_so() -> None:
    assert components(RECORDED) == PFL


def test_a_layout_that_is_not_composite_is_one_component() -> None:
    assert components(blob(65536, (4, 5, 5), pattern=0x201)) == (Component(0, END, Striping(65536, (4, 5, 5))),)
    assert components(blob(65536, (4,), "p", 0x801)) == (Component(0, END, Striping(65536, (4,), "p")),)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (blob(MIB, (), pattern=0x100), "its bytes are on a metadata server"),
        (blob(MIB, (), pattern=0x80000001), "its bytes are archived (lfs hsm_restore gets them back)"),
        (struct.pack("<4I", 0x0BD70BD0, 0, 0, 0), "another system has its bytes, and Lustre its name only"),
    ],
)
def test_bytes_that_are_in_no_strips_are_told(value: bytes, why: str) -> None:
    assert components(value) == (Component(0, END, None, why),)
    assert components(layout([(1, INIT, 0, END, value)])) == (Component(0, END, None, why),)


def test_mirrors_are_told_apart_and_parity_is_none_of_the_bytes() -> None:
    """``lcme_id`` has the mirror in bits 16 to 30."""
    value = layout(
        [
            (2 << 16 | 1, INIT, 0, END, blob(MIB, (3, 4))),
            (1 << 16 | 1, INIT, 0, END, blob(4 * MIB, (1,))),
            (3 << 16 | 1, INIT | PARITY, 0, END, blob(4 * MIB, (5,))),
        ]
    )
    assert components(value) == (
        Component(0, END, Striping(4 * MIB, (1,)), mirror=1),
        Component(0, END, Striping(MIB, (3, 4)), mirror=2),
    )


def test_a_component_that_may_grow_has_no_bytes() -> None:
    """A self-extending layout has a magic number of its own."""
    value = layout(
        [(1, INIT, 0, 64 * MIB, blob(MIB, (1,))), (2, EXTENSION, 64 * MIB, END, blob(64 * MIB, (), count=1))],
        0x0BD80BD0,
    )
    assert components(value)[1] == Component(64 * MIB, END, None, UNWRITTEN)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "has 0 bytes that cannot be understood"),
        (layout([]), "has 0 components in 32 bytes of 32"),
        (blob(0, (1,)), "strips of 0 bytes on 1 OSTs"),
        (blob(MIB, ()), "strips of 1048576 bytes on 0 OSTs"),
        (blob(MIB, (1,), pattern=2), "an unknown pattern"),
        (struct.pack("<4I", 0x0BD20BD0, 0, 0, 0), "of an unknown kind"),
        (layout([(1, INIT, MIB, 0, blob(MIB, (1,)))]), "a component that cannot be: bytes 1048576 to 0"),
        (layout([(n, INIT, 0, MIB, blob(MIB, (1,))) for n in (1, 2)]), "two components for byte 0"),
    ],
)
def test_a_damaged_layout_is_refused(value: bytes, why: str) -> None:
    with pytest.raises(PdlaError, match=why):
        components(value)


PARTS = st.lists(
    st.tuples(st.integers(1, 1 << 40), st.integers(1, 65535), st.lists(st.integers(0, 4095), min_size=1, max_size=5)),
    min_size=1,
    max_size=6,
)


def made(parts: Sequence[tuple[int, int, list[int]]]) -> tuple[bytes, tuple[Component, ...]]:
    """A value, and what it says; the last component has no objects."""
    entries, wanted, start = [], [], 0
    for number, (length, units, osts) in enumerate(parts, 1):
        last = number == len(parts)
        stop, strip = END if last else start + length, units << 16
        entries.append((number, 0 if last else INIT, start, stop, blob(strip, osts)))
        wanted.append(
            Component(start, stop, None, UNWRITTEN) if last else Component(start, stop, Striping(strip, (*osts,)))
        )
        start += length
    return layout(entries), tuple(wanted)


@given(PARTS)
def test_what_was_encoded_is_decoded(parts: list[tuple[int, int, list[int]]]) -> None:
    value, wanted = made(parts)
    assert components(value) == wanted


@given(PARTS, st.data())
def test_a_part_of_a_layout_is_never_taken_for_a_whole_one(
    parts: list[tuple[int, int, list[int]]], data: st.DataObject
) -> None:
    value, _ = made(parts)
    with pytest.raises(PdlaError):
        components(value[: data.draw(st.integers(0, len(value) - 1))])


@given(st.one_of(st.binary(max_size=300), PARTS.map(lambda parts: made(parts)[0])), st.data())
def test_any_bytes_are_a_layout_that_can_be_or_refused(value: bytes, data: st.DataObject) -> None:
    changed = bytearray(value)
    for _ in range(data.draw(st.integers(0, 8)) if value else 0):
        changed[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = components(bytes(changed))
    except PdlaError:
        return
    for one in found:
        assert 0 <= one.start <= one.stop <= END and bool(one.why) == (one.striping is None)
        assert one.striping is None or (one.striping.strip > 0 and 0 < len(one.striping.osts) <= len(changed) // 24)
    assert all(one.stop <= after.start for one, after in pairwise(found) if one.mirror == after.mirror)


@given(st.integers(0, 2**32 - 1), st.integers(0, 5), st.sampled_from([1, 0x201, 2, 0x801]), st.integers(0, 200))
def test_strips_are_those_of_the_only_component_or_refused(strip: int, osts: int, pattern: int, length: int) -> None:
    value = blob(strip, range(osts), pattern=pattern)[:length]
    try:
        found = decode(value)
    except PdlaError:
        return
    assert components(value) == (Component(0, END, found),)
    assert found == Striping(strip, (*range(osts),)) and strip and osts


def test_a_file_can_be_asked_for_components() -> None:
    """As Lustre gets it: no component has objects, and any OST may be the first."""
    value = encode_components([(MIB, Striping(65536, (0,))), (END, Striping(MIB, (0, 0, 0)))])
    assert components(value) == (Component(0, MIB, None, UNWRITTEN), Component(MIB, END, None, UNWRITTEN))
    first, last = (int.from_bytes(value[at : at + 4], "little") for at in (32 + 24, 32 + 48 + 24))
    assert struct.unpack_from("<IIQQIHH", value, first) == (V1, 1, 0, 0, 65536, 1, 0xFFFF)
    assert struct.unpack_from("<IIQQIHH", value, last) == (V1, 1, 0, 0, MIB, 3, 0xFFFF)


class InC(ctypes.Structure):
    """struct striping."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("start", "stop", "strip", "servers", "first"))


class Striped(ctypes.Structure):
    """struct striped."""

    _fields_ = (("count", ctypes.c_int), ("part", InC * 8))


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bytes], list[tuple[int, ...]] | str]]:
    """What replicator/stub/striping.c makes of a value: (start, stop, strip, servers) of each part, or why none."""
    folder = tmp_path_factory.mktemp("in_c")
    stub = REPOSITORY / "replicator/stub"
    sources = [stub / "striping.c", stub / "originals.c", REPOSITORY / "tests/programs/recorded_xattrs.c"]
    compiled(["gcc", "-shared", "-fPIC", "-Wl,-Bsymbolic", *sources, "-o", folder / "striping.so"])
    library = ctypes.CDLL(str(folder / "striping.so"))
    library.striping_of.restype = ctypes.c_char_p
    library.striping_of.argtypes = (ctypes.c_char_p, *[ctypes.c_int64] * 2, ctypes.c_void_p)

    def read(value: bytes) -> list[tuple[int, ...]] | str:
        (folder / "lustre.lov").write_bytes(value)
        found = Striped()
        why = library.striping_of(b"/", 1, 1, ctypes.byref(found))
        parts = [(one.start, one.stop, one.strip, one.servers) for one in found.part[: found.count]]
        return parts if why is None else why.decode().partition(": ")[2]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECORDED_XATTRS", str(folder))
        yield read


def both(value: bytes, in_c: Callable[[bytes], list[tuple[int, ...]] | str]) -> None:
    """Check that the library reads a whole value as the planner does."""
    found, said = components(value), in_c(value)
    if len({one.mirror for one in found}) > 1:
        return  # in the library, what counts is lcm_mirror_count
    wanted = [
        (one.start, min(one.stop, 2**63 - 1), one.striping.strip, len(one.striping.osts))
        for one in found
        if one.striping
    ]
    if wanted:
        assert said == wanted[:8]
    elif len(found) == 1 and struct.unpack_from("<I", value)[0] != 0x0BD60BD0:
        assert said == found[0].why
    else:
        assert said == "no component of its layout has strips yet"


def test_the_library_reads_the_components_that_have_objects(
    in_c: Callable[[bytes], list[tuple[int, ...]] | str],
) -> None:
    assert in_c(RECORDED) == [(0, MIB, MIB, 1), (MIB, 1024 * MIB, MIB, 2)]


@given(parts=PARTS)
def test_the_library_reads_the_same_components(
    in_c: Callable[[bytes], list[tuple[int, ...]] | str], parts: list[tuple[int, int, list[int]]]
) -> None:
    both(made(parts)[0], in_c)


@given(strip=st.integers(1, 2**32 - 1), osts=st.integers(1, 400), pattern=st.sampled_from([1, 0x201, 0x801, 0x100]))
def test_the_library_reads_the_same_strips(
    in_c: Callable[[bytes], list[tuple[int, ...]] | str], strip: int, osts: int, pattern: int
) -> None:
    both(blob(strip, range(osts), pattern=pattern), in_c)


@given(value=st.one_of(st.binary(max_size=300), PARTS.map(lambda parts: made(parts)[0])), data=st.data())
def test_the_library_survives_any_bytes(
    in_c: Callable[[bytes], list[tuple[int, ...]] | str], value: bytes, data: st.DataObject
) -> None:
    changed = bytearray(value)
    for _ in range(data.draw(st.integers(0, 8)) if value else 0):
        changed[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    said = in_c(bytes(changed))
    assert isinstance(said, str) or all(strip > 0 and servers > 0 for _, _, strip, servers in said)


GETSTRIPE = """\
lcm_layout_gen:    3
lcm_mirror_count:  1
lcm_entry_count:   3
components:
  - lcme_id:             1
    lcme_mirror_id:      0
    lcme_flags:          init
    lcme_extent.e_start: 0
    lcme_extent.e_end:   1048576
    sub_layout:
      lmm_stripe_count:  1
      lmm_stripe_size:   1048576
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: 0
      lmm_objects:
      - l_ost_idx: 0
        l_fid:     0x100000000:0x2:0x0

  - lcme_id:             2
    lcme_mirror_id:      0
    lcme_flags:          init
    lcme_extent.e_start: 1048576
    lcme_extent.e_end:   1073741824
    sub_layout:
      lmm_stripe_count:  2
      lmm_stripe_size:   1048576
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: 1
      lmm_pool:          flash
      lmm_objects:
      - l_ost_idx: 1
        l_fid:     0x100010000:0x2:0x0
      - l_ost_idx: 0
        l_fid:     0x100000000:0x3:0x0

  - lcme_id:             3
    lcme_mirror_id:      0
    lcme_flags:          0
    lcme_extent.e_start: 1073741824
    lcme_extent.e_end:   EOF
    sub_layout:
      lmm_stripe_count:  -1
      lmm_stripe_size:   1048576
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: -1
"""
"""lov_dump_comp_v1_header, lov_dump_comp_v1_entry and lov_dump_user_lmm_v1v3 (lustre/utils/liblustreapi.c)."""


def test_lfs_getstripe_says_the_same() -> None:
    assert lfs.components(GETSTRIPE) == PFL


@pytest.mark.parametrize("printed", ["", "lmm_stripe_size: 65536\n", "  - lcme_id: 1\n    lcme_flags: init\n"])
def test_components_that_are_not_understood_are_refused(printed: str) -> None:
    with pytest.raises(PdlaError, match="cannot understand the output of lfs getstripe -y"):
        lfs.components(printed)
