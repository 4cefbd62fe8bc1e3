"""The conformance suite: what every storage back end must do, as scenarios with the numbers of docs/backends.md.

A test class of a back end inherits ``BackendTests``, provides the fixture ``backend``, and shows
how to read the bytes that a server holds. It needs pytest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pdla.errors import ConfigError, PdlaError
from pdla.layouts.striping import component_sizes, locate
from pdla.model import Layout
from pdla.replicator.backends.base import Backend, NewComponent, commit, delete, temporary

KIB64 = 65536
SIZE = 11 * KIB64 + 4321  # of the replicas here: a multiple of nothing


class BackendTests:
    """The fixture ``backend`` has a pool of at least four servers, each with a few MiB of space."""

    @pytest.fixture
    def backend(self) -> Backend:
        """Required."""
        raise NotImplementedError

    def stored(self, backend: Backend, component: NewComponent) -> list[bytes]:
        """The bytes of a finished component on each server, holes as zeros. Required if the storage itself stripes."""
        assert len(component.servers) == 1
        return [component.path.read_bytes()]

    def layout(self, backend: Backend) -> Layout:
        """1-DH over two servers."""
        return Layout(backend.pool.name, 2, 1, (KIB64, KIB64), 2 * KIB64)

    def make(self, backend: Backend, name: str, size: int) -> list[Path]:
        """The components of a new replica, under their temporary names."""
        backend.check(self.layout(backend), size)
        made = backend.components(name, self.layout(backend), size)
        for component in made:
            os.close(backend.create(component))
        return [component.path for component in made]

    def test_1_paths_are_absolute_and_always_the_same(self, backend: Backend) -> None:
        """pdla finds the files of a killed build by their paths."""
        made = backend.components("t/1", self.layout(backend), SIZE)
        assert all(component.path.is_absolute() for component in made)
        assert len({component.path for component in made}) == len(made)
        assert backend.components("t/1", self.layout(backend), SIZE) == made

    def test_2_replicas_and_catalogs_share_no_path(self, backend: Backend) -> None:
        """The names differ: a number, in a folder named by the catalog."""
        layout = self.layout(backend)
        made = [component.path for name in ("t/1", "t/11", "u/1") for component in backend.components(name, layout, 10)]
        assert len(set(made)) == len(made)

    def test_3_a_component_has_its_size_under_a_temporary_name(self, backend: Backend) -> None:
        """Nobody takes the component for a finished one."""
        sizes = component_sizes(backend.rule(self.layout(backend), SIZE), SIZE)
        for path, size in zip(self.make(backend, "t/1", SIZE), sizes, strict=True):
            assert not path.exists()
            assert temporary(path).stat().st_size == size
            assert temporary(path).stat().st_blocks * 512 >= size

    def test_4_nobody_else_can_read_or_reach_a_component(self, backend: Backend) -> None:
        """Its bytes are those of a file that may be private."""
        for path in self.make(backend, "t/1", 10):
            assert temporary(path).stat().st_mode & 0o777 == 0o600
            assert path.parent.stat().st_mode & 0o777 == 0o700

    def test_5_what_is_written_is_there_after_the_commit(self, backend: Backend) -> None:
        """After the commit the temporary names are gone."""
        backend.check(self.layout(backend), SIZE)
        made = backend.components("t/1", self.layout(backend), SIZE)
        for number, component in enumerate(made):
            descriptor = backend.create(component)
            assert os.pwrite(descriptor, bytes([number + 1]) * 10, 0) == 10
            assert os.pread(descriptor, 10, 0) == bytes([number + 1]) * 10
            os.fsync(descriptor)
            os.close(descriptor)
        commit([component.path for component in made])
        for number, component in enumerate(made):
            assert component.path.read_bytes()[:10] == bytes([number + 1]) * 10
            assert not temporary(component.path).exists()

    def test_6_an_empty_component_is_a_file(self, backend: Backend) -> None:
        """A short replica leaves some servers without bytes."""
        commit(paths := self.make(backend, "t/1", 0))
        assert [path.stat().st_size for path in paths] == [0] * len(paths)

    def test_7_a_component_under_construction_is_not_taken_over(self, backend: Backend) -> None:
        """Two builds of one name would mix their bytes."""
        self.make(backend, "t/1", 10)
        with pytest.raises(PdlaError, match="cannot make"):
            backend.create(backend.components("t/1", self.layout(backend), 10)[0])

    def test_8_deleting_removes_finished_and_temporary_files_and_can_be_repeated(self, backend: Backend) -> None:
        """``pdla gc`` may be killed, too."""
        finished, unfinished = self.make(backend, "t/1", SIZE), self.make(backend, "t/2", SIZE)
        commit(finished)
        sizes = component_sizes(backend.rule(self.layout(backend), SIZE), SIZE)
        assert [delete(path) for path in (*finished, *unfinished)] == sizes * 2
        assert [delete(path) for path in (*finished, *unfinished)] == [0] * (2 * len(sizes))
        assert not any(path.exists() or temporary(path).exists() for path in (*finished, *unfinished))

    def test_9_no_space_leaves_no_file(self, backend: Backend) -> None:
        """The error comes before anything is copied."""
        backend.check(self.layout(backend), SIZE)
        (component, *_) = backend.components("t/1", self.layout(backend), SIZE)
        vast = NewComponent(component.path, 1 << 50, component.servers, component.strips)
        with pytest.raises(PdlaError, match="no space for"):
            backend.create(vast)
        assert not temporary(component.path).exists()

    def test_10_free_space_is_reported_per_server(self, backend: Backend) -> None:
        """In bytes."""
        backend.check(self.layout(backend), SIZE)
        assert len(backend.free()) == backend.pool.servers
        assert all(count > 0 for count in backend.free())

    def test_11_an_impossible_layout_is_refused_with_the_reason_that_the_planner_got(self, backend: Backend) -> None:
        """Here the layout has more servers than the pool."""
        many = Layout(backend.pool.name, 64, 1, (KIB64,) * 64, 64 * KIB64)
        assert "over 64 servers" in backend.obstacle(many, SIZE)
        with pytest.raises(ConfigError, match=f"pool {backend.pool.name}: .*over 64 servers"):
            backend.check(many, SIZE)
        assert backend.obstacle(self.layout(backend), SIZE) == ""

    @pytest.mark.parametrize(
        ("servers", "groups", "strips", "section"),
        [
            (4, 1, (KIB64,) * 4, 4 * KIB64),
            (3, 1, (KIB64,) * 3, 4 * KIB64),
            (4, 4, (KIB64,), 3 * KIB64),
            (4, 2, (KIB64,) * 2, 3 * KIB64 + 1000),
            (4, 2, (1000,) * 2, 3 * KIB64),
            (3, 1, (KIB64, KIB64, 2 * KIB64), 8 * KIB64),
        ],
        ids=["1-DH", "1-DH on some servers", "1-DV", "2-D", "2-D with small strips", "1-DH with unequal strips"],
    )
    def test_12_every_byte_is_on_the_server_that_the_layout_names(
        self, backend: Backend, servers: int, groups: int, strips: Sequence[int], section: int
    ) -> None:
        """The rule over the components and the storage's striping put each byte where the layout says, or refuse it."""
        layout = Layout(backend.pool.name, servers, groups, tuple(strips), section)
        if backend.obstacle(layout, SIZE):
            pytest.skip(backend.obstacle(layout, SIZE))
        backend.check(layout, SIZE)
        data = np.random.default_rng(servers * groups).bytes(SIZE)
        made = backend.components("t/1", layout, SIZE)
        files = [backend.create(component) for component in made]
        for piece in locate(backend.rule(layout, SIZE), 0, SIZE):
            part = data[piece.logical :][: piece.length]
            assert os.pwrite(files[piece.component], part, piece.offset) == len(part)
        for file in files:
            os.fsync(file)
            os.close(file)
        commit([component.path for component in made])

        wanted = [bytearray(size) for size in component_sizes(layout, SIZE)]
        for server, offset, length, logical in locate(layout, 0, SIZE):
            wanted[server][offset : offset + length] = data[logical:][:length]
        held = [part for component in made for part in self.stored(backend, component)]
        assert [part[: len(want)] for part, want in zip(held, wanted, strict=True)] == wanted
        assert not any(any(part[len(want) :]) for part, want in zip(held, wanted, strict=True))
