"""Clusters of which the tests know what is worth it on them."""

from __future__ import annotations

import re
from pathlib import Path

# On disks that seek as much as these, every replica is worth it.
SEEKING_DISKS = """
[home]
pool = "hdd"
servers = 4
strip = "64K"
[clients]
processes_per_node = 16
connect_seconds = 1e-4
network_seconds_per_byte = 8e-10
collective_buffer = "256K"
[pools.hdd]
kind = "hdd"
startup = [[0, 0.0], ["4K", 0.02]]
read_seconds_per_byte = 1e-7
write_seconds_per_byte = 1e-7
where = ["home/pools/hdd0"]
[pools.ssd]
kind = "ssd"
startup = [[0, 1e-5]]
read_seconds_per_byte = 5e-10
write_seconds_per_byte = 5e-10
where = ["home/pools/ssd0", "home/pools/ssd1"]
"""

NODES = """
[home]
pool = "disks"
servers = 1
strip = "64K"
[clients]
processes_per_node = 16
connect_seconds = 0.0
network_seconds_per_byte = 0.0
[pools.disks]
kind = "hdd"
startup = [[0, 0.0]]
read_seconds_per_byte = 1e-8
write_seconds_per_byte = 1e-8
where = ["disk"]
[pools.scratch]
kind = "node"
startup = [[0, 0.0]]
read_seconds_per_byte = 1e-9
write_seconds_per_byte = 1e-9
"""
"""Disks, and the devices of nodes, whose directory is to be added."""


def cluster_text(directory: Path, capacity: str) -> str:
    """Two disks and two SSD servers that have room for ``capacity``, all in ``directory``."""
    pools = "".join(
        f"[pools.{name}]\nkind = '{kind}'\nstartup = {startup}\nread_seconds_per_byte = 5e-9\n"
        f"write_seconds_per_byte = 5e-9\ncapacity = {size}\n"
        f"where = ['{directory}/{name}0', '{directory}/{name}1']\n"
        for name, kind, startup, size in (
            ("hdd", "hdd", '[[0, 0.0], ["1M", 0.005], ["100G", 0.012]]', "0"),
            ("ssd", "ssd", "[[0, 0.0], [4096, 8e-5]]", capacity),
        )
    )
    return (
        "[home]\npool = 'hdd'\nservers = 2\nstrip = '4K'\n[clients]\nprocesses_per_node = 16\nconnect_seconds = 0.0\n"
        "network_seconds_per_byte = 0.0\n" + pools
    )


STORAGE = """
[home]
pool = "hdd"
servers = 4
strip = "64K"
[clients]
processes_per_node = 16
connect_seconds = 1e-5
network_seconds_per_byte = 1e-10
[pools.hdd]
kind = "hdd"
startup = [[0, 0.0], ["4K", 0.004], ["32M", 0.012]]
read_seconds_per_byte = 2e-8
write_seconds_per_byte = 2e-8
where = ["hdd"]
[pools.ssd]
kind = "ssd"
startup = [[0, 1e-4]]
read_seconds_per_byte = 6.6e-9
write_seconds_per_byte = 6.6e-9
capacity = "1G"
where = ["ssd0", "ssd1"]
[pools.node]
kind = "node"
startup = [[0, 1e-4]]
read_seconds_per_byte = 2e-9
write_seconds_per_byte = 2e-9
where = ["node"]
"""


def described(directory: Path) -> Path:
    """A cluster of disks, SSD servers and devices of nodes, all in ``directory``."""
    path = directory / "cluster.toml"
    path.write_text(re.sub(r'"(hdd|ssd\d|node)"(?=[,\]])', rf'"{directory}/\1"', STORAGE))
    return path


FAVOURABLE = """
[home]
pool = "slow"
servers = 2
strip = "64K"
[clients]
processes_per_node = 16
connect_seconds = 0.0
network_seconds_per_byte = 0.0
[pools.slow]
kind = "hdd"
startup = [[0, 0.0], [1, 0.01]]
read_seconds_per_byte = 1e-8
write_seconds_per_byte = 1e-8
where = ["slow0", "slow1"]
[pools.fast]
kind = "ssd"
startup = [[0, 0.0]]
read_seconds_per_byte = 1e-9
write_seconds_per_byte = 1e-9
grain = "1K"
where = ["fast0", "fast1"]
"""


def favourable(directory: Path) -> Path:
    """A cluster on which replicas of anything are worth it: slow disks with originals, fast ones for replicas."""
    for name in ("slow0", "slow1", "fast0", "fast1"):
        (directory / name).mkdir()
    file = directory / "cluster.toml"
    file.write_text(FAVOURABLE)
    return file
