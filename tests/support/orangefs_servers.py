"""Six I/O servers of OrangeFS on loopback, mounted by FUSE.

The tests are skipped if OrangeFS is missing, also with PDLA_REQUIRE_ALL=1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tools.loopback_orangefs import SERVER, OrangeFSServers, missing, search_path

IO_SERVERS = 6
TOOLS = (*SERVER, "pvfs2-statfs", "pvfs2-viewdist", "pvfs2-xattr", "pvfs2-cp", "pvfs2fuse", "fusermount")


@pytest.fixture(scope="session")
def orangefs_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrangeFSServers]:
    """Running servers and the tools in PATH."""
    if why := missing(TOOLS):
        pytest.skip(why)
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("OrangeFS cannot be mounted: there is no /dev/fuse for this user")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", search_path())
        servers = OrangeFSServers(tmp_path_factory.mktemp("orangefs"), IO_SERVERS)
        try:
            servers.up()
            yield servers
        finally:
            servers.down()
