"""Back ends of other packages: found by their entry points, and refused in one line if they are broken."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdla.errors import ConfigError
from pdla.layouts import plugins
from pdla.layouts.config import load_cluster
from pdla.replicator.backends import backend_of

TAPES = """
from pdla.replicator.backends.directories import Directories

class Tapes(Directories):
    name = "tapes"
    names_servers = True
    grain = "1M"
"""
CLUSTER = """
[home]
pool = "t"
servers = 1
strip = "64K"
[clients]
processes_per_node = 1
connect_seconds = 0
network_seconds_per_byte = 0
[pools.t]
kind = "hdd"
startup = [[0, 0.0]]
read_seconds_per_byte = 1e-9
write_seconds_per_byte = 1e-9
backend = "tapes"
where = ["t"]
servers = ["drive 1", "drive 2"]
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package with a module and the class of a back end in it, as pip would."""

    def write(package: str, source: str, kind: str = "Tapes", name: str = "tapes") -> None:
        site = tmp_path / package
        information = site / f"{package}-2.0.dist-info"
        information.mkdir(parents=True)
        (site / f"{package}_module.py").write_text(textwrap.dedent(source))
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.0\n")
        (information / "entry_points.txt").write_text(f"[pdla.backends]\n{name} = {package}_module:{kind}\n")
        monkeypatch.syspath_prepend(site)
        forget()

    forget()
    yield write
    monkeypatch.undo()
    forget()


def forget() -> None:
    plugins._registered.cache_clear()
    plugins.backend_class.cache_clear()
    for name in [name for name in sys.modules if name.endswith("_module") and name.startswith("tape_")]:
        del sys.modules[name]


def cluster(where: Path) -> Path:
    file = where / "cluster.toml"
    file.write_text(CLUSTER)
    return file


def test_the_built_in_back_ends_are_registered_like_all_others():
    assert {"cephfs", "directories", "orangefs"} <= set(plugins.backend_names())
    assert not plugins.backend_class("directories").names_servers
    assert plugins.backend_class("cephfs").names_servers


def test_a_pool_of_an_installed_back_end_has_its_grain_and_names_of_servers(install: Install, tmp_path: Path):
    install("tape_pool", TAPES)
    (pool,) = load_cluster(cluster(tmp_path)).pools
    assert (pool.names, pool.grain, pool.backend) == (("drive 1", "drive 2"), 1 << 20, "tapes")
    assert type(backend_of(pool)).__module__ == "tape_pool_module"


def test_a_back_end_that_is_not_installed_is_refused_with_those_that_are(tmp_path: Path):
    with pytest.raises(ConfigError, match=r'\[pools.t\]: backend must be "beegfs" or "cephfs" or .*\(got .tapes.\)'):
        load_cluster(cluster(tmp_path))


@pytest.mark.parametrize(
    ("source", "kind", "why"),
    [
        ("import no_such_module", "Tapes", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise RuntimeError('first line\\nsecond')", "Tapes", "cannot be loaded: RuntimeError: first line"),
        ("", "Tapes", "cannot be loaded: AttributeError: module 'tape_pool_module' has no attribute 'Tapes'"),
        ("class Tapes: pass", "Tapes", f"is not a subclass of {plugins.BASE}"),
        ("def Tapes(pool): pass", "Tapes", f"is not a subclass of {plugins.BASE}"),
        (
            "from pdla.replicator.backends.base import Backend\nclass Tapes(Backend):\n  name = 'tapes'",
            "Tapes",
            "does not define create, free, path, prepare",
        ),
        (TAPES.replace('"tapes"', '"discs"'), "Tapes", "has another name: 'discs'"),
    ],
    ids=["import", "lines", "missing", "another class", "function", "abstract", "name"],
)
def test_a_broken_plug_in_is_one_line_that_names_its_package(
    install: Install, tmp_path: Path, source: str, kind: str, why: str
):
    install("tape_pool", source, kind)
    with pytest.raises(ConfigError) as refused:
        load_cluster(cluster(tmp_path))
    line = f"[pools.t]: backend 'tapes' (tape_pool_module:{kind} of tape_pool 2.0) {why}"
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_broken_plug_in_does_not_harm_other_pools(install: Install):
    install("tape_pool", "import no_such_module")
    assert load_cluster(None).pools[0].backend == "directories"


def test_a_name_that_two_packages_register_is_refused(install: Install, tmp_path: Path):
    install("tape_pool", TAPES)
    install("tape_robot", TAPES)
    with pytest.raises(ConfigError, match="'tapes' is registered by several packages: tape_robot_module:Tapes of"):
        load_cluster(cluster(tmp_path))
