"""How originals are striped: what their file systems say, and what plans make of it."""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdla.cli.directory_probe import Fact, probe_directory
from pdla.errors import ConfigError, PdlaError
from pdla.layouts.config import load_cluster
from pdla.model import Cluster
from pdla.replicator.backends import cephfs, orangefs
from pdla.replicator.backends.beegfs import BeeGFS
from pdla.replicator.backends.cephfs import CephFS
from pdla.replicator.backends.lov import ATTRIBUTE, Striping, encode
from pdla.replicator.backends.lov_components import END, UNWRITTEN, Component, encode_components, governing
from pdla.replicator.backends.lustre import Lustre
from pdla.replicator.backends.orangefs import OrangeFS
from pdla.replicator.backends.originals import OriginalStriping, dealt, home_of
from pdla.replicator.backends.pvfs2 import Mount, Placement
from tests.support.compilers import compiled
from tests.support.mpi import REPOSITORY
from tests.support.striping_mount import StripingMount, striping_mount

KIB64, MIB = 1 << 16, 1 << 20


@pytest.fixture(scope="module")
def like_lustre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StripingMount]:
    with striping_mount("lustre", tmp_path_factory.mktemp("lustre")) as mounted:
        yield mounted


@pytest.fixture(scope="module")
def like_beegfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StripingMount]:
    with striping_mount("beegfs", tmp_path_factory.mktemp("beegfs")) as mounted:
        yield mounted


def on_osts(mounted: StripingMount, name: str, *osts: int) -> Path:
    """A file of 300,000 bytes in strips of 64 KiB on these OSTs."""
    file = mounted.mount / name
    os.mknod(file, 0o600 | stat.S_IFREG)
    os.setxattr(file, ATTRIBUTE, encode(Striping(KIB64, osts)))
    file.write_bytes(bytes(300_000))
    return file


def progressive(mounted: StripingMount, name: str) -> Path:
    """An empty file with one strip on one OST up to 128 KiB, and with strips on three OSTs from there on."""
    file = mounted.mount / name
    os.mknod(file, 0o600 | stat.S_IFREG)
    parts = [(2 * KIB64, Striping(2 * KIB64, (0,))), (END, Striping(KIB64, (0, 0, 0)))]
    os.setxattr(file, ATTRIBUTE, encode_components(parts))
    return file


def cluster(folder: Path, home: str = "") -> Cluster:
    """Read from a cluster.toml whose [home] has these keys."""
    (folder / "d").mkdir(exist_ok=True)
    text = f"""
    home = {{ pool = "hdd"{home and ", " + home} }}
    clients = {{ processes_per_node = 4, connect_seconds = 0.0, network_seconds_per_byte = 0.0 }}
    [pools.hdd]
    kind = "hdd"
    startup = [[0, 0.0]]
    read_seconds_per_byte = 1e-8
    write_seconds_per_byte = 1e-8
    where = ["d"]
    """
    (folder / "cluster.toml").write_text(text)
    return load_cluster(folder / "cluster.toml", originals=True)


# ---- what file systems say -------------------------------------------------------------------------------------------


def test_lustre_says_over_which_osts_a_file_is_striped(like_lustre: StripingMount) -> None:
    file = on_osts(like_lustre, "plain", 4, 1, 5)
    assert Lustre.original_striping(file) == OriginalStriping(KIB64, 3, "Lustre")


def test_an_ost_with_several_strips_in_a_row_has_longer_ones(like_lustre: StripingMount) -> None:
    assert Lustre.original_striping(on_osts(like_lustre, "rows", 4, 4, 1, 1)) == OriginalStriping(
        2 * KIB64, 2, "Lustre"
    )
    with pytest.raises(PdlaError, match="its 3 strips are dealt unevenly to 2 servers"):
        Lustre.original_striping(on_osts(like_lustre, "uneven", 4, 4, 1))


@pytest.mark.parametrize("servers", ["aab", "abb", "aba", "abcabd", "abcab", "abac"])
def test_strips_that_are_dealt_unevenly_have_no_striping(servers: str) -> None:
    with pytest.raises(PdlaError, match="dealt unevenly"):
        dealt(64, servers)


def test_the_component_with_the_most_bytes_of_a_file_counts() -> None:
    first, last = Component(0, MIB, Striping(MIB, (0,))), Component(MIB, END, None, UNWRITTEN)
    assert governing((first, last), 0) is governing((first, last), 2 * MIB - 1) is first
    assert governing((first, last), 2 * MIB + 1) is last
    with pytest.raises(PdlaError, match="it has 2 mirrors"):
        governing((first, first._replace(mirror=2)), MIB)


def test_a_progressive_file_is_striped_as_its_parts_say(like_lustre: StripingMount) -> None:
    """And what ``lfs getstripe`` says is the same."""
    file, data = progressive(like_lustre, "progressive"), random.Random(1).randbytes(5 * KIB64 + 1000)
    assert Lustre.original_striping(file) == OriginalStriping(2 * KIB64, 1, "Lustre", f"bytes 0 to {2 * KIB64}")
    file.write_bytes(data)
    said = OriginalStriping(KIB64, 3, "Lustre", f"bytes {2 * KIB64} to the end")
    assert Lustre.original_striping(file) == Lustre.original_witness(file) == said
    assert str(said) == "strips of 64 KiB on 3 servers (bytes 131072 to the end)"
    assert file.read_bytes() == data and file.stat().st_size == len(data)
    (_, first), *others = like_lustre.objects(file)
    assert first == data[: 2 * KIB64]
    strips = [data[at : at + KIB64] for at in range(0, len(data), KIB64)]
    # The strip of byte 131072 is the third of three objects, whose numbers count from the file's first byte.
    assert [held for _, held in others] == [bytes(KIB64) + strips[3], bytes(KIB64) + strips[4], strips[2] + strips[5]]
    os.truncate(file, KIB64 + 7)
    assert file.read_bytes() == data[: KIB64 + 7]


def test_beegfs_says_how_a_file_is_striped(like_beegfs: StripingMount) -> None:
    file = like_beegfs.mount / "data"
    file.write_bytes(bytes(100))
    assert BeeGFS.original_striping(file) == OriginalStriping(KIB64, 4, "BeeGFS")


def answers(monkeypatch: pytest.MonkeyPatch, value: bytes) -> None:
    monkeypatch.setattr(cephfs.os, "getxattr", lambda path, name: value)


def test_cephfs_says_over_how_many_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of docs.ceph.com, File Layouts; tests/replicator/backends/test_cephfs.py asks a real one."""
    answers(monkeypatch, b"stripe_unit=65536 stripe_count=4 object_size=4194304 pool=data")
    assert CephFS.original_striping(Path("x")) == OriginalStriping(KIB64, 4, "CephFS")
    answers(monkeypatch, b"stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=data")
    assert CephFS.original_striping(Path("x")) == OriginalStriping(4 * MIB, 0, "CephFS")
    answers(monkeypatch, b"stripe_unit=0 stripe_count=1 object_size=4194304 pool=data")
    with pytest.raises(PdlaError, match="cannot be read"):
        CephFS.original_striping(Path("x"))


def test_orangefs_says_over_how_many_datafiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pvfs2-viewdist prints, tests/replicator/backends/test_orangefs.py reads."""
    found = Placement("simple_stripe", "strip_size:65536", ("tcp://io0:3334", "tcp://io1:3334"))
    monkeypatch.setattr(orangefs, "mount_of", lambda path: Mount(path.parent, "tcp://io0:3334/orangefs", False))
    monkeypatch.setattr(orangefs.Client, "placement", lambda self, path: found)
    assert OrangeFS.original_striping(Path("/x/y")) == OriginalStriping(KIB64, 2, "OrangeFS")
    found = found._replace(distribution="varstrip_dist", parameters="0:64K;1:64K")
    with pytest.raises(PdlaError, match="its distribution is varstrip_dist"):
        OrangeFS.original_striping(Path("/x/y"))


def test_other_file_systems_say_nothing(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"a")
    for kind in (Lustre, BeeGFS, CephFS, OrangeFS):
        assert kind.original_striping(file) is None
        assert kind.original_striping(tmp_path / "missing") is None


def test_doctor_says_how_new_files_are_striped(like_lustre: StripingMount) -> None:
    (found,) = [one for one in probe_directory(like_lustre.mount) if one.name == "new files"]
    assert found == Fact("new files", "strips of 1 MiB on 1 server, as Lustre says")


def built(name: str, directory: Path) -> ctypes.CDLL:
    """A file of replicator/stub as a library of its own."""
    library = directory / f"{name}.so"
    sources = [REPOSITORY / f"replicator/stub/{one}.c" for one in dict.fromkeys((name, "originals"))]
    compiled(["gcc", "-shared", "-fPIC", *sources, "-o", library])
    return ctypes.CDLL(str(library))


def others_can_lock(file: Path) -> bool:
    """Whether another process can: a close of any descriptor of a file ends the process's fcntl locks on it."""
    taken = f"import fcntl; fcntl.lockf(open({str(file)!r}, 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return subprocess.run([sys.executable, "-c", taken], capture_output=True, check=False).returncode == 0


def test_h38_asking_beegfs_ends_no_lock_of_the_program(like_beegfs: StripingMount, tmp_path: Path) -> None:
    ask = built("striping", tmp_path).striping_of
    ask.restype = ctypes.c_char_p
    ask.argtypes = (ctypes.c_char_p, *[ctypes.c_int64] * 2, ctypes.c_void_p)
    file = like_beegfs.mount / "locked"
    with file.open("w+b") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        assert ask(os.fsencode(file), 1, 1, ctypes.create_string_buffer(400)) is None
        assert not others_can_lock(file)
    assert others_can_lock(file)


class Originals:
    """replicator/stub/originals.c in this process, and the descriptors that the process has of a file."""

    def __init__(self, library: ctypes.CDLL, file: Path) -> None:
        self.library, self.file = library, file

    def open(self, flags: int) -> int:
        found = self.library.original_open(os.fsencode(self.file), flags)
        assert isinstance(found, int) and found >= 0
        return found

    def close(self, descriptor: int) -> None:
        self.library.original_close(descriptor)

    def count(self) -> int:
        return sum(path.exists() and path.samefile(self.file) for path in Path("/proc/self/fd").iterdir())


@pytest.fixture
def originals(tmp_path: Path) -> Originals:
    file = tmp_path / "original"
    file.write_bytes(b"a")
    return Originals(built("originals", tmp_path), file)


def test_h38_a_closed_original_ends_no_lock_of_the_program(originals: Originals) -> None:
    with originals.file.open("r+b") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        originals.close(originals.open(os.O_RDONLY))
        assert not others_can_lock(originals.file)


def test_h38_what_is_kept_of_an_original_serves_the_next_open(originals: Originals) -> None:
    """One descriptor for each that was needed at a time; what can write can read, too, but not the reverse."""
    with originals.file.open("rb"):
        kept = originals.open(os.O_RDWR)
        originals.close(kept)
        for _ in range(10):
            reading, writing = originals.open(os.O_RDONLY), originals.open(os.O_WRONLY)
            assert reading == kept
            originals.close(reading)
            originals.close(writing)
        assert originals.count() == 3
        reading, another = originals.open(os.O_RDONLY), originals.open(os.O_RDONLY)
        assert (reading, os.pread(another, 1, 0)) == (kept, b"a")


def test_h38_what_is_kept_of_an_original_serves_no_other_file(originals: Originals) -> None:
    with originals.file.open("rb") as held:
        kept = originals.open(os.O_RDONLY)
        originals.close(kept)
        originals.file.unlink()
        originals.file.write_bytes(b"another")
        other = originals.open(os.O_RDONLY)
        assert other != kept and os.pread(other, 10, 0) == b"another"
        originals.close(other)
        assert os.pread(held.fileno(), 10, 0) == b"a"


def test_h38_an_original_is_kept_no_longer_than_the_program_has_it_open(originals: Originals) -> None:
    only_named = os.open(originals.file, os.O_PATH)
    originals.close(originals.open(os.O_RDONLY))
    assert originals.count() == 1
    with originals.file.open("rb"):
        originals.close(originals.open(os.O_RDONLY))
        assert originals.count() == 3
    originals.library.originals_close_kept()
    assert originals.count() == 1
    os.close(only_named)


# ---- what plans are made for -----------------------------------------------------------------------------------------


def test_what_the_file_system_says_comes_before_home(like_lustre: StripingMount, tmp_path: Path) -> None:
    file = on_osts(like_lustre, "home", 4, 1)
    found = home_of(cluster(tmp_path, 'servers = 8, strip = "1M"'), ["/missing", str(file)])
    assert (found.home_servers, found.home_strip) == (2, KIB64)
    assert found.home_source == f"as Lustre says of {file} ([home]: 1 MiB on 8)"
    found = home_of(cluster(tmp_path), [str(file)])
    assert (found.home_servers, found.home_strip, found.home_source) == (2, KIB64, f"as Lustre says of {file}")


def test_what_no_file_system_says_home_says(tmp_path: Path) -> None:
    described = cluster(tmp_path, 'servers = 8, strip = "1M"')
    assert home_of(described, [str(tmp_path / "cluster.toml")]) == described


def test_why_home_is_taken_for_a_file_of_lustre_is_told(like_lustre: StripingMount, tmp_path: Path) -> None:
    file = on_osts(like_lustre, "odd", 4, 4, 1)
    found = home_of(cluster(tmp_path, 'servers = 8, strip = "1M"'), [str(file)])
    why = f"{file}: its 3 strips are dealt unevenly to 2 servers"
    assert found.home_source == f"by [home], because it is not known of {why}"
    assert (found.home_servers, found.home_strip) == (8, MIB)
    with pytest.raises(ConfigError, match=rf"cluster.toml: \[home\] needs servers and strip: {why}$"):
        home_of(cluster(tmp_path), [str(file)])


def test_what_nobody_says_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"\[home\] needs servers: no file system says it of the originals$"):
        home_of(cluster(tmp_path, 'strip = "1M"'), [str(tmp_path / "cluster.toml")])
    answers(monkeypatch, b"stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=data")
    with pytest.raises(ConfigError, match=r"\[home\] needs servers: CephFS does not say it of /data$"):
        home_of(cluster(tmp_path), ["/data"])
    found = home_of(cluster(tmp_path, "servers = 3"), ["/data"])
    assert (found.home_servers, found.home_strip, found.home_source) == (3, 4 * MIB, "as CephFS says of /data")


def test_the_testbeds_of_papers_stay_as_they_were(like_lustre: StripingMount) -> None:
    file = on_osts(like_lustre, "testbed", 4, 1)
    assert home_of(load_cluster("pdla"), [str(file)]) == load_cluster("pdla")


def test_who_cannot_ask_the_originals_needs_the_whole_of_home(tmp_path: Path) -> None:
    cluster(tmp_path, 'strip = "1M"')
    with pytest.raises(ConfigError, match=r"\[home\] needs servers: only pdla plan, simulate and report ask the file"):
        load_cluster(tmp_path / "cluster.toml")
