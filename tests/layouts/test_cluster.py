"""cluster.toml: the default, what is derived, and one clear line for everything that can be wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pdla.errors import ConfigError
from pdla.layouts.capacity import room
from pdla.layouts.config import DEFAULT_FILE, EXAMPLES, cluster_names, load_cluster
from pdla.model import Cluster
from pdla.units import GiB, KiB, MiB

GOOD = """\
[home]
pool = "disks"
servers = 8
strip = "64K"

[clients]
processes_per_node = 16
connect_seconds = 1e-4
network_seconds_per_byte = 8e-10

[plan]
threshold_seconds = 0.5

[pools.disks]
kind = "hdd"
startup = [[0, 0], ["1M", 0.005]]
read_seconds_per_byte = 6e-9
write_seconds_per_byte = 7e-9
capacity = "10G"
grain = "1M"
backend = "directories"
where = ["d0", "/data/d1"]
"""


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("PDLA_HOME", str(tmp_path / "home"))


def load(tmp_path: Path, text: str) -> Cluster:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    return load_cluster(path)


def test_every_key_arrives(tmp_path):
    cluster = load(tmp_path, GOOD)
    (pool,) = cluster.pools
    assert (cluster.home_pool, cluster.home_servers, cluster.home_strip) == ("disks", 8, 64 * KiB)
    assert (cluster.processes_per_node, cluster.connect_seconds) == (16, 1e-4)
    assert (cluster.network_seconds_per_byte, cluster.threshold_seconds) == (8e-10, 0.5)
    assert (pool.name, pool.kind, pool.servers, pool.startup) == ("disks", "hdd", 2, ((0, 0.0), (MiB, 0.005)))
    assert (pool.read_seconds_per_byte, pool.write_seconds_per_byte) == (6e-9, 7e-9)
    assert (pool.capacity, pool.grain, pool.backend) == (10 * GiB, MiB, "directories")
    assert cluster.source == str(tmp_path / "cluster.toml")


def test_processes_fill_a_node_before_the_next_and_all_before_one_gets_more(tmp_path):
    cluster = load(tmp_path, GOOD)
    assert (cluster.nodes, cluster.collective_buffer) == (None, 16 * MiB)
    assert [cluster.per_node(processes) for processes in (4, 16, 100)] == [4, 16, 16]
    few = load(tmp_path, GOOD.replace("[clients]", '[clients]\nnodes = 3\ncollective_buffer = "4M"'))
    assert (few.nodes, few.collective_buffer) == (3, 4 * MiB)
    assert [few.per_node(processes) for processes in (4, 48, 100)] == [4, 16, 34]


def test_the_testbeds_of_the_papers_come_along(tmp_path):
    assert cluster_names() == ["e10", "ibridge", "liu", "pdla", "s4d-cache"]
    cluster = load_cluster("pdla")
    assert (cluster.home_servers, cluster.pool("hdd").servers, cluster.pool("ssd").servers) == (8, 8, 4)
    assert cluster.pool("ssd").where[0] == str(tmp_path / "home" / "pools" / "pdla" / "ssd0")
    assert cluster.source == "example pdla"


@pytest.mark.parametrize("name", cluster_names())
def test_every_number_of_an_example_has_its_source(name):
    for line in (EXAMPLES / f"{name}.toml").read_text().splitlines():
        key = line.split(" = ")[0]
        # What is not said beside a number is said in the line above it, or is the paper's symbol for the same number.
        if key in ("servers", "nodes", "processes_per_node", "connect_seconds", "network_seconds_per_byte", "capacity"):
            assert "#" in line or (name, key) == ("e10", "processes_per_node"), line


def test_a_file_named_like_an_example_comes_first(tmp_path, monkeypatch):
    (tmp_path / "pdla").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    assert load_cluster("pdla").home_pool == "disks"


def test_start_up_and_transfer_overlap_only_in_pools_with_overlap(tmp_path):
    assert load(tmp_path, GOOD).pools[0].overlap is False
    assert load(tmp_path, GOOD.replace('kind = "hdd"', 'kind = "hdd"\noverlap = true')).pools[0].overlap is True


def test_relative_directories_start_from_the_file(tmp_path):
    assert load(tmp_path, GOOD).pools[0].where == (str(tmp_path / "d0"), "/data/d1")


def test_a_capacity_of_0_is_what_the_file_system_has_free(tmp_path):
    (pool,) = load(tmp_path, GOOD.replace('"10G"', "0").replace("/data/d1", "d1")).pools
    free = os.statvfs(tmp_path)
    assert pool.capacity is None
    # Other programs use the same file system meanwhile; both directories are on it, and it counts once.
    assert list(room([pool], lambda pool: 0).values()) == [pytest.approx(free.f_bavail * free.f_frsize, rel=0.05)]


def test_the_default_has_four_disks_and_two_ssds_in_pdla_home(tmp_path):
    cluster = load_cluster(None)
    pools = {pool.name: (pool.kind, pool.servers, pool.backend) for pool in cluster.pools}
    assert pools == {"hdd": ("hdd", 4, "directories"), "ssd": ("ssd", 2, "directories")}
    assert (cluster.home_pool, cluster.home_servers, cluster.home_strip) == ("hdd", 4, 64 * KiB)
    assert cluster.pool("ssd").where == tuple(str(tmp_path / "home" / "pools" / name) for name in ("ssd0", "ssd1"))
    assert {pool.capacity for pool in cluster.pools} == {None}
    assert cluster.source == "built-in default"


def test_the_default_is_a_file_that_users_can_copy(tmp_path):
    copy = load(tmp_path, DEFAULT_FILE.read_text())
    assert copy.pool("hdd").where[0] == str(tmp_path / "hdd0")
    assert copy.pool("hdd").startup == load_cluster(None).pool("hdd").startup


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[home]", "[home", "not TOML: Expected ']' at the end of a table declaration (at line 1, column 6)"),
        ("servers = 8", 'servers = "8"', "[home]: servers must be a whole number of at least 1 (got '8')"),
        ("servers = 8", "servers = true", "[home]: servers must be a whole number of at least 1 (got True)"),
        ("servers = 8\n", "", "[home] needs servers: only pdla plan, simulate and report ask"),
        ("servers = 8", "servers = 8\ncolour = 1", "[home]: unknown key 'colour' (known: pool, servers, strip)"),
        ('pool = "disks"', 'pool = "tape"', "[home]: pool 'tape' is not among [pools] (disks)"),
        ("strip = ", "strip = 0 #", "[home]: strip must be at least 1 byte (got 0)"),
        (
            "servers = 8",
            "servers = 4611686018427387904",
            "[home]: servers must be at most 65536 (got 4611686018427387904)",
        ),
        ("connect_seconds = ", "connect_seconds = -", "must be a number of at least 0 (got -0.0001)"),
        ("8e-10", "nan", "network_seconds_per_byte must be a number of at least 0 (got nan)"),
        ('kind = "hdd"', 'kind = "tape"', '[pools.disks]: kind must be "hdd" or "ssd" or "node" (got \'tape\')'),
        ("[0, 0], ", '["2M", 0], ', "startup must be a list of [distance in bytes, seconds], distances ascending"),
        ("[[0, 0]", "[[0, -1]", "startup must be a list of [distance in bytes, seconds], distances ascending"),
        (
            'kind = "hdd"',
            'kind = "hdd"\nclients_cost = [[8, 1e-4], [8, 2e-4]]',
            "clients_cost must be a list of [clients, seconds], clients ascending",
        ),
        ('kind = "hdd"', 'kind = "hdd"\noverlap = 1', "[pools.disks]: overlap must be true or false (got 1)"),
        ('"10G"', '"10 apples"', "capacity must be a number of bytes, or a text like \"64K\" (got '10 apples')"),
        ('"10G"', "-1", 'capacity must be a number of bytes, or a text like "64K" (got -1)'),
        ('"directories"', '"tape"', "or \"orangefs\" (got 'tape')"),
        ('"directories"', '"orangefs"', "[pools.disks]: servers is missing"),
        ('"directories"', '"orangefs"\nservers = []', "servers must be a list of at least one server (got [])"),
        ('"directories"', '"orangefs"\nservers = ["a", "a"]', "servers must be a list of servers, each once (got"),
        ('"directories"', '"orangefs"\nservers = ["a"]', "where must be one directory, for all servers of"),
        ('["d0", "/data/d1"]', "[]", "where must be a list of at least one directory (got [])"),
        ('["d0", "/data/d1"]', '["d0", "./d0"]', "d0 is already a server of pool 'disks'"),
        ("[pools.disks]", "[pools.original]", "plans use the name 'original' for the original file"),
        ("[pools.disks]", '[pools."a+b"]', "plans use + in the name of two pools together"),
        ("[clients]", "[clients]\nnodes = -1", "[clients]: nodes must be a whole number of at least 0 (got -1)"),
        ("[clients]", "[clients]\ncollective_buffer = 0", "collective_buffer must be at least 1 byte (got 0)"),
        ("[pools.disks]", "[pool.disks]", "table [pools] is missing; unknown key 'pool'"),
        ("[plan]", "[plans]", "unknown key 'plans' (known: home, clients, plan, autopilot, pools)"),
        ("[plan]\nthreshold_seconds = 0.5", "", None),
    ],
)
def test_what_is_wrong_is_reported_in_one_line(tmp_path, old, new, message):
    assert old in GOOD
    text = GOOD.replace(old, new)
    if message is None:
        assert load(tmp_path, text).threshold_seconds == 0.0
        return
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text)
    assert message in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "cluster.toml"))
    assert "\n" not in str(error.value)


def test_no_pool_at_all(tmp_path):
    with pytest.raises(ConfigError, match="no pool; describe at least one as"):
        load(tmp_path, GOOD[: GOOD.index("[pools.disks]")] + "[pools]\n")


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file or directory \(it should be a cluster file\)"):
        load_cluster(tmp_path / "none.toml")


def test_a_binary_file(tmp_path):
    (tmp_path / "x").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is a file of unknown content, not a cluster file"):
        load_cluster(tmp_path / "x")
