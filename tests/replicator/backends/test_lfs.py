"""What lfs prints, as its manual pages and its source have it."""

from __future__ import annotations

import pytest

from pdla.errors import PdlaError
from pdla.replicator.backends import lfs
from pdla.replicator.backends.lov import Striping

DF = """\
UUID                   1K-blocks        Used   Available Use% Mounted on
testfs-MDT0000_UUID     13631488     1258291    11534336  10% /testfs[MDT:0]
testfs-OST0000_UUID   3865470566  3113851289   614150144  84% /testfs[OST:0]
testfs-OST0001_UUID   3865470566  3328599654   495452160  87% /testfs[OST:1] D
testfs-OST0002_UUID   3865470566  3221225472   597688320  84% /testfs[OST:2] DR
OST0003             : inactive device
testfs-OST0006_UUID   5798205849  5261334937   438094233  92% /testfs[OST:6] f
testfs-OST000a_UUID : Resource temporarily unavailable
my-fs-OST0010_UUID       1000000      999999           0 100% /mnt/my fs[OST:16] Sf

filesystem_summary:  17394617548 14925011354  2145384857  88% /testfs
"""
"""lfs-df(1), without -h; the lines for a mount with a blank and for a lost OST by showdf (lustre/utils/lfs.c)."""

GETSTRIPE = """\
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
"""
"""lov_dump_user_lmm_v1v3 and lov_dump_objects (lustre/utils/liblustreapi.c)."""

COMPOSITE = """\
  lcm_layout_gen:    2
  lcm_entry_count:   2
    lcme_id:             1
      lmm_stripe_count:  1
      lmm_stripe_size:   1048576
      lmm_objects:
      - 0: { l_ost_idx: 0, l_fid: [0x100000000:0x2:0x0] }
    lcme_id:             2
      lmm_stripe_count:  2
      lmm_stripe_size:   1048576
      lmm_objects:
      - 0: { l_ost_idx: 1, l_fid: [0x100010000:0x2:0x0] }
      - 1: { l_ost_idx: 0, l_fid: [0x100000000:0x3:0x0] }
"""
"""The comment above lov_dump_comp_v1 (lustre/utils/liblustreapi.c)."""


def test_lfs_df_has_free_bytes_kinds_and_what_is_wrong() -> None:
    assert lfs.osts(DF) == {
        0: lfs.Ost(614150144 << 10),
        1: lfs.Ost(495452160 << 10),  # degraded: files can be made
        2: lfs.Ost(597688320 << 10, "read-only"),
        3: lfs.Ost(0, "inactive device"),
        6: lfs.Ost(438094233 << 10, "", True),
        10: lfs.Ost(0, "Resource temporarily unavailable"),
        16: lfs.Ost(0, "out of space", True),
    }


def test_lfs_pool_list_has_the_pools_and_their_osts() -> None:
    assert lfs.pool_names("Pools from testfs:\ntestfs.flash\ntestfs.remote\n") == ["flash", "remote"]
    assert lfs.pool_names("Pools from testfs:\n") == []
    assert lfs.pool_members("Pool: testfs.flash\ntestfs-OST0001_UUID\ntestfs-OST000b_UUID\n") == [1, 11]


def test_lfs_check_tells_inactive_osts_from_others() -> None:
    printed = "testfs-OST0000-osc-ffff8a0c active.\ntestfs-OST000a-osc-ffff8a0c inactive.\n"
    assert lfs.inactive(printed) == {10}


def test_lfs_getstripe_has_the_striping() -> None:
    assert lfs.striping(GETSTRIPE) == Striping(1 << 20, (1, 0), "flash")
    objects = "lmm_stripe_size: 65536\nlmm_objects:\n      - 0: { l_ost_idx: 3, l_fid: [0x1:0x2:0x0] }\n"
    assert lfs.striping(objects) == Striping(65536, (3,))


@pytest.mark.parametrize("printed", [COMPOSITE, "", "lmm_stripe_size: 65536\n"], ids=["composite", "empty", "objects"])
def test_a_striping_that_is_not_understood_is_refused(printed: str) -> None:
    with pytest.raises(PdlaError, match="cannot understand the output of lfs getstripe -y"):
        lfs.striping(printed)
