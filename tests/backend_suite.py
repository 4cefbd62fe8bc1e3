"""What every storage back end has to do: a test class inherits ``BackendTests`` and gives ``backend``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pdla.errors import ConfigError, PdlaError
from pdla.model import Layout
from pdla.replicator.backends.base import Backend, commit, delete, temporary

KIB64 = 65536


class BackendTests:
    """The fixture ``backend`` has a pool of at least two servers with a few MiB of space."""

    @pytest.fixture
    def backend(self) -> Backend:
        raise NotImplementedError

    def layout(self, backend: Backend) -> Layout:
        return Layout(backend.pool.name, 2, 1, (KIB64, KIB64), 2 * KIB64)

    def make(self, backend: Backend, name: str, size: int) -> list[Path]:
        backend.check(self.layout(backend))
        paths = backend.paths(name, self.layout(backend))
        for path in paths:
            os.close(backend.create(path, size))
        return paths

    def test_there_is_a_path_per_server_and_always_the_same(self, backend: Backend):
        paths = backend.paths("t/1", self.layout(backend))
        assert len(set(paths)) == 2
        assert all(path.is_absolute() for path in paths)
        assert backend.paths("t/1", self.layout(backend)) == paths

    def test_different_replicas_and_catalogs_share_no_path(self, backend: Backend):
        layout = self.layout(backend)
        assert len({path for name in ("t/1", "t/11", "u/1") for path in backend.paths(name, layout)}) == 6

    def test_space_is_reserved_under_a_temporary_name(self, backend: Backend):
        for path in self.make(backend, "t/1", 3 * KIB64):
            assert not path.exists()
            assert temporary(path).stat().st_size == 3 * KIB64
            assert temporary(path).stat().st_blocks * 512 >= 3 * KIB64

    def test_nobody_else_can_read_or_reach_a_component(self, backend: Backend):
        for path in self.make(backend, "t/1", 10):
            assert temporary(path).stat().st_mode & 0o777 == 0o600
            assert path.parent.stat().st_mode & 0o777 == 0o700

    def test_what_is_written_is_there_after_the_commit(self, backend: Backend):
        backend.check(self.layout(backend))
        paths = backend.paths("t/1", self.layout(backend))
        for number, path in enumerate(paths):
            descriptor = backend.create(path, 10)
            assert os.pwrite(descriptor, bytes([number]) * 10, 0) == 10
            assert os.pread(descriptor, 10, 0) == bytes([number]) * 10
            os.close(descriptor)
        commit(paths)
        assert [path.read_bytes() for path in paths] == [bytes(10), b"\1" * 10]
        assert [temporary(path).exists() for path in paths] == [False, False]

    def test_an_empty_component_is_a_file(self, backend: Backend):
        commit(paths := self.make(backend, "t/1", 0))
        assert [path.stat().st_size for path in paths] == [0, 0]

    def test_a_component_under_construction_is_not_taken_over(self, backend: Backend):
        paths = self.make(backend, "t/1", 10)
        with pytest.raises(PdlaError, match="cannot make"):
            backend.create(paths[0], 10)

    def test_deleting_removes_finished_and_temporary_files_and_can_be_repeated(self, backend: Backend):
        finished, unfinished = self.make(backend, "t/1", 10), self.make(backend, "t/2", 20)
        commit(finished)
        assert [delete(path) for path in (*finished, *unfinished)] == [10, 10, 20, 20]
        assert [delete(path) for path in (*finished, *unfinished)] == [0, 0, 0, 0]
        assert not any(path.exists() or temporary(path).exists() for path in (*finished, *unfinished))

    def test_no_space_leaves_no_file(self, backend: Backend):
        path = backend.paths("t/1", self.layout(backend))[0]
        backend.check(self.layout(backend))
        with pytest.raises(PdlaError, match="no space for"):
            backend.create(path, 1 << 50)
        assert not temporary(path).exists()

    def test_free_space_is_told_per_server(self, backend: Backend):
        backend.check(self.layout(backend))
        assert len(backend.free()) == backend.pool.servers
        assert all(count > 0 for count in backend.free())

    def test_more_servers_than_the_pool_has_are_refused(self, backend: Backend):
        many = backend.pool.servers + 1
        with pytest.raises(ConfigError, match=f"over {many} servers"):
            backend.check(Layout(backend.pool.name, many, 1, (KIB64,) * many, KIB64))
