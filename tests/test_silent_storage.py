"""Storage that does not answer: no program and no verb of pdla waits for it for long.

The storage is a FUSE file system whose server is stopped: a process that waits for it in the kernel cannot be killed.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.handmade_maps import write_map
from tests.support.mpi import compile_preloaded
from tests.support.striping_mount import StripingMount, striping_mount
from tests.test_stub import Case, mpich, programs, total

__all__ = ["mpich", "programs"]  # fixtures

ENDS = 120.0
"""Seconds after which a program counts as one that never ends."""


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[StripingMount]:
    (tmp_path / "storage").mkdir()
    with striping_mount("lustre", tmp_path / "storage") as mount:
        yield mount


@contextmanager
def silent(mount: StripingMount) -> Iterator[ThreadPoolExecutor]:
    """Threads for what must end while the server is stopped."""
    with ThreadPoolExecutor() as threads:
        mount.server.send_signal(signal.SIGSTOP)
        try:
            yield threads
        finally:
            mount.server.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("kind", ["fuse.x", "lustre", "nfs4", "a-new-one"])
def test_h66_a_program_ends_whose_replicas_are_on_storage_of_any_kind_that_does_not_answer(
    mpich: Case, mounted: StripingMount, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A stand-in for the list of mounts says what kind it is."""
    mpich.original.write_bytes(mpich.content())
    built = mpich.columns(strips=[64, 64]).build(mpich.content(), mounted.mount / "replica")
    write_map(mpich.map, [(mpich.original, [built])])
    monkeypatch.setenv("GONE_LOG", str(mpich.map))
    monkeypatch.setenv("GONE_TYPE", kind)
    case = replace(mpich, library=Path(f"{mpich.library}:{compile_preloaded('gone', mpich.directory)}"))
    native, _ = case.run("independent", redirected=False)
    with silent(mounted) as threads:
        seen, reports = threads.submit(case.run, "independent", redirected=True).result(ENDS)
    assert seen == native
    assert total(reports, "redirected", "calls") == 0
