"""What Ceph's monitors know: which OSDs are up, and which OSD holds an object. librados asks, and never waits long."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pdla.errors import PdlaError

TIMEOUT = "10"  # seconds, after which a monitor that does not answer is an error
OBJECT_SIZE = 128 << 20  # the default of osd_max_object_size
SEPARATOR = b"\x1f"  # between namespace and name in the hashed bytes: pg_pool_t::hash_key in osd/osd_types.cc

_Words = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class ObjectPool:
    """A pool of objects: the OSD that serves each of its placement groups; -1 if none does."""

    name: str
    owners: tuple[int, ...]

    def share(self, osd: int) -> float:
        """The share of the pool's objects that an OSD gets."""
        return self.owners.count(osd) / len(self.owners)

    def osds(self) -> list[int]:
        """The OSDs that get objects of the pool."""
        return sorted({owner for owner in self.owners if owner >= 0})

    def osds_of(self, keys: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """The OSD of each object. Its key, a row, is its namespace, ``SEPARATOR`` and its name."""
        count = len(self.owners)
        mask = (1 << (count - 1).bit_length()) - 1
        hashed = rjenkins(keys).astype(np.int64)
        # ceph_stable_mod in include/rados.h
        group = np.where(hashed & mask < count, hashed & mask, hashed & (mask >> 1))
        return np.array(self.owners, dtype=np.int64)[group]


@dataclass(frozen=True)
class CephMap:
    """A cluster as its monitors see it: the OSDs that are up, the pools asked about, and the largest object."""

    fsid: str
    up: frozenset[int]
    pools: Mapping[str, ObjectPool]
    object_size: int


def read_map(pools: Sequence[str]) -> CephMap:
    """The map of the cluster in ``$CEPH_CONF`` (default: /etc/ceph/ceph.conf), with those of ``pools`` that exist.

    Raises:
        PdlaError: there is no librados, or the monitors do not answer or refuse.
    """
    dump = ask("osd dump")
    found = {}
    for pool in dump["pools"]:
        if pool["pool_name"] in pools:
            if pool["object_hash"] != 2:
                raise PdlaError(f"Ceph pool {pool['pool_name']} does not hash its objects with rjenkins")
            groups = [ask("pg map", pgid=f"{pool['pool']}.{group:x}") for group in range(pool["pg_num"])]
            owners = tuple(group["acting"][0] if group["acting"] else -1 for group in groups)
            found[pool["pool_name"]] = ObjectPool(pool["pool_name"], owners)
    try:
        object_size = int(ask("config get", who="osd", key="osd_max_object_size"))
    except PdlaError:
        object_size = OBJECT_SIZE  # clients need not have the right to ask
    return CephMap(dump["fsid"], frozenset(one["osd"] for one in dump["osds"] if one["up"]), found, object_size)


def osd_of(pool: str, namespace: str, name: str) -> int:
    """The OSD that serves an object, as a monitor says; -1 if none does.

    Raises:
        PdlaError: as ``read_map``.
    """
    acting = ask("osd map", pool=pool, object=name, nspace=namespace)["acting"]
    return int(acting[0]) if acting else -1


def ask(command: str, **arguments: str) -> Any:
    """A monitor's answer to a command, parsed.

    Raises:
        PdlaError: as ``read_map``.
    """
    library, cluster = _connected(os.environ.get("CEPH_CONF", ""), os.environ.get("CEPH_ARGS", ""))
    text = json.dumps({"prefix": command, "format": "json", **arguments}).encode()
    answer, said = ctypes.c_void_p(), ctypes.c_void_p()
    size, length = ctypes.c_size_t(), ctypes.c_size_t()
    failed = library.rados_mon_command(
        cluster,
        (ctypes.c_char_p * 1)(text),
        ctypes.c_size_t(1),
        None,
        ctypes.c_size_t(0),
        ctypes.byref(answer),
        ctypes.byref(size),
        ctypes.byref(said),
        ctypes.byref(length),
    )
    try:
        if failed:
            why = (
                ctypes.string_at(said, length.value).decode(errors="replace") if length.value else os.strerror(-failed)
            )
            raise PdlaError(f"Ceph's monitors did not answer the command {command!r}: {why.strip()}")
        return json.loads(ctypes.string_at(answer, size.value))
    finally:
        for buffer in (answer, said):
            library.rados_buffer_free(buffer)


@cache
def _connected(configuration: str, arguments: str) -> tuple[ctypes.CDLL, ctypes.c_void_p]:
    """librados, and its handle of the cluster that the environment names."""
    try:
        library = ctypes.CDLL("librados.so.2")
    except OSError as error:
        raise PdlaError(f"choosing OSDs needs librados ({error}): install librados2, or name only data pools") from None
    cluster = ctypes.c_void_p()
    library.rados_create(ctypes.byref(cluster), None)
    failed = library.rados_conf_read_file(cluster, None) or library.rados_conf_parse_env(cluster, None)
    for option in ("rados_mon_op_timeout", "client_mount_timeout"):
        library.rados_conf_set(cluster, option.encode(), TIMEOUT.encode())
    for option in ("log_to_stderr", "err_to_stderr"):
        library.rados_conf_set(cluster, option.encode(), b"false")
    failed = failed or library.rados_connect(cluster)
    if failed:
        raise PdlaError(
            f"cannot reach Ceph's monitors: {os.strerror(-failed)} (is {configuration or '/etc/ceph/ceph.conf'} right, "
            "and has this user a key?)"
        )
    atexit.register(library.rados_shutdown, cluster)
    return library, cluster


def rjenkins(keys: npt.NDArray[np.uint8]) -> _Words:
    """Ceph's hash of object names, for every row of ``keys``: ceph_str_hash_rjenkins in common/ceph_hash.cc.

    >>> key = np.frombuffer(b"ns1" + SEPARATOR + b"foo", dtype=np.uint8)
    >>> hex(rjenkins(key[None, :])[0])
    '0xf4569544'
    """
    count, length = keys.shape
    # Twelve bytes at a time; in the last ones the length takes the place of the ninth.
    whole = length // 12 * 12
    padded = np.zeros((count, whole + 12), dtype=np.uint8)
    padded[:, :whole] = keys[:, :whole]
    rest = keys[:, whole:]
    padded[:, whole : whole + min(8, rest.shape[1])] = rest[:, :8]
    padded[:, whole + 9 : whole + 1 + rest.shape[1]] = rest[:, 8:]
    words = padded.view("<u4").astype(np.uint32)
    words[:, -1] += np.uint32(length)
    a = np.full(count, 0x9E3779B9, dtype=np.uint32)
    b, c = a.copy(), np.zeros(count, dtype=np.uint32)
    for at in range(0, words.shape[1], 3):
        a, b, c = _mix(a + words[:, at], b + words[:, at + 1], c + words[:, at + 2])
    return c


def _mix(a: _Words, b: _Words, c: _Words) -> tuple[_Words, _Words, _Words]:
    for first, second, third in ((13, 8, 13), (12, 16, 5), (3, 10, 15)):
        a = (a - b - c) ^ (c >> np.uint32(first))
        b = (b - c - a) ^ (a << np.uint32(second))
        c = (c - a - b) ^ (b >> np.uint32(third))
    return a, b, c
