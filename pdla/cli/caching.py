"""The options of pdla run --policy: a policy that acts while the program runs, and its hints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pdla.errors import ConfigError, PdlaError
from pdla.file_policies import NONE, FilePolicies
from pdla.units import parse_bytes

if TYPE_CHECKING:
    from pdla.model import Cluster, Pool

RUNS = ("e10", "s4d", "ibridge", "liu")
"""Policies that real programs can run with."""
AUTO = "auto"
"""The one with which earlier runs were fastest."""


def _one_of(*words: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in words:
            raise ValueError(f"must be {', '.join(words[:-1])} or {words[-1]}")
        return value

    return read


def _directory(value: str) -> str:
    if not Path(value).is_absolute():
        raise ValueError("must be an absolute path of a directory on the node's own device")
    return value


def _pattern(value: str) -> str:
    if not value:
        raise ValueError("must be a file name, with * and ? as in a shell")
    return value


def _bytes(value: str) -> str:
    try:
        number = parse_bytes(value)
    except ValueError:
        number = 0
    if number == 0:
        raise ValueError("must be a number of bytes above 0, or one with K, M, G or T")
    return str(number)


HINTS: Mapping[str, Callable[[str], str]] = {
    "e10_cache": _one_of("enable", "disable", "coherent"),
    "e10_cache_path": _directory,
    "e10_cache_flush_flag": _one_of("flush_immediate", "flush_onclose"),
    "e10_cache_discard_flag": _one_of("enable", "disable"),
    "romio_cb_write": _one_of("enable", "disable", "automatic"),
    "cb_buffer_size": _bytes,
    "ind_wr_buffer_size": _bytes,
    "cache_bytes": _bytes,
    "deferred_close": _pattern,
}
"""The hints that --hint may set, and what reads their values."""

SSD_POLICIES = ("s4d", "ibridge", "liu")
"""Policies whose cache is on SSD servers."""
SSD_HINTS = ("cache_bytes",)
"""Those that they know."""


def check_policy(word: str) -> None:
    """Refuse what is not ``[PATTERN=]NAME`` with the name of a policy.

    Raises:
        ConfigError: a program cannot run with it.
    """
    names = FilePolicies.of_words([word]).words
    name = names[0].rpartition("=")[2]
    known = (*RUNS, NONE) if "=" in word else (*RUNS, NONE, AUTO)
    if name not in known:
        raise ConfigError(f"unknown policy {name!r}: pdla run has {', '.join(known)}")


def read_hints(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    """Callback of --hint: the values by name, checked."""
    hints = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        if name not in HINTS:
            raise click.BadParameter(f"unknown hint {name!r}: choose one of {', '.join(HINTS)}")
        try:
            hints[name] = HINTS[name](value)
        except ValueError as error:
            raise click.BadParameter(f"{name} {error} (got {value!r})") from None
    return hints


def on_ssds(policies: FilePolicies) -> list[str]:
    """Those of the policies whose cache is on SSD servers."""
    return [name for name in policies.names if name in SSD_POLICIES]


def variables(
    policies: FilePolicies, coherence: str, hints: Mapping[str, str], cluster: Cluster | None
) -> dict[str, str]:
    """The environment variables with which the library runs the policies of a program's files.

    Raises:
        PdlaError: ``cluster`` lacks what a policy needs.
        click.UsageError: no policy knows a hint, or policies mean different things by it.
    """
    ssds = on_ssds(policies)
    others = [name for name in policies.names if name not in ssds]
    if shared := [name for name in hints if ssds and others and name in SSD_HINTS]:
        raise click.UsageError(
            f"--hint {shared[0]} would be for {others[0]} and for {ssds[0]}: say it by the pools of --cluster"
        )
    found = {"PDLA_POLICY": str(policies), "PDLA_COHERENCE": coherence}
    found |= _ssds(ssds, {} if others else hints, cluster) if ssds else {}
    found |= _devices(hints, cluster) if others else {}
    return found


def _devices(hints: Mapping[str, str], cluster: Cluster | None) -> dict[str, str]:
    """The hints of E10, and what decides whether pieces are exchanged (docs/caching.md)."""
    found = {"e10_cache": "enable"}
    if cluster is not None:
        found |= _device(cluster, needs_path="e10_cache_path" not in hints)
    found |= hints
    return {**_costs(cluster), **{f"PDLA_{name.upper()}": value for name, value in found.items()}}


def _ssds(policies: Sequence[str], hints: Mapping[str, str], cluster: Cluster | None) -> dict[str, str]:
    """What S4D-Cache, iBridge and LiU judge requests by, and where the SSD servers are (docs/ssd-cache.md)."""
    from pdla.policies.online import pool_of

    if unknown := [name for name in hints if name not in SSD_HINTS]:
        raise click.UsageError(f"--policy {policies[0]} has no hint {unknown[0]}: it has {', '.join(SSD_HINTS)}")
    if cluster is None:
        raise click.UsageError(
            f"--policy {policies[0]} needs --cluster: with its costs it finds out which requests are critical"
        )
    home, ssd = cluster.pool(cluster.home_pool), pool_of(cluster, "ssd", f"pdla run --policy {policies[0]}")
    if wrong := [where for where in ssd.where if ":" in where]:
        raise ConfigError(f"{wrong[0]!r} of {cluster.source} has a colon, which separates directories here")
    numbers = [cluster.home_strip, cluster.home_servers, ssd.servers, _way_home(home, cluster)]
    model = [*numbers, *_device_numbers(home), *_device_numbers(ssd)]
    reserved = reserved_bytes(cluster, hints)
    return {
        "PDLA_SSD_COSTS": " ".join(map(repr, model)),
        "PDLA_SSD_PATH": ":".join(str(Path(where).absolute()) for where in ssd.where),
        **({"PDLA_SEGMENTS": _segments(cluster)} if "liu" in policies else {}),
        **({"PDLA_SSD_BYTES": str(reserved)} if reserved else {}),
    }


def _segments(cluster: Cluster) -> str:
    """Bytes of a head and of a body over all home servers, and of the buffer of a node; the locality."""
    from pdla.policies.liu import LiU

    liu = LiU()
    sizes = (size * cluster.home_servers for size in (*liu.segment(cluster), liu.buffer))
    return " ".join(map(repr, [*sizes, liu.locality]))


def reserved_bytes(cluster: Cluster, hints: Mapping[str, str]) -> int:
    """The bytes of the SSD pool that are kept for writes; 0: its devices say what there is."""
    from pdla.replicator.critical_reads import reserved_for_writes

    return int(hints.get("cache_bytes", reserved_for_writes(cluster)))


def _way_home(home: Pool, cluster: Cluster) -> float:
    """Seconds of all disks for a byte that comes home, in the order of the file."""
    from pdla.layouts.devices import startup
    from pdla.layouts.plugins import backend_class

    each = startup(home, math.inf, "write") / cluster.home_strip if backend_class(home.backend).strip_by_strip else 0.0
    return (each + home.write_seconds_per_byte) / cluster.home_servers


def _device_numbers(pool: Pool) -> list[float]:
    """As replicator/stub/critical_requests.c reads a device."""
    from pdla.layouts.devices import curve

    curves = [curve(pool, op) for op in ("read", "write")]
    points = [number for one in curves for number in (len(one), *(number for point in one for number in point))]
    return [pool.read_seconds_per_byte, pool.write_seconds_per_byte, *points]


def _costs(cluster: Cluster | None) -> dict[str, str]:
    """What decides whether pieces are exchanged; without a cluster the library has values of its own."""
    if cluster is None:
        return {}
    from pdla.policies.e10 import exchange_costs

    return {"PDLA_EXCHANGE_COSTS": ",".join(map(repr, exchange_costs(cluster)))}


def _device(cluster: Cluster, *, needs_path: bool) -> dict[str, str]:
    """The hints that follow from a cluster's pool of kind "node"."""
    from pdla.policies.online import pool_of

    pool = pool_of(cluster, "node", "pdla run --policy e10")
    if needs_path and len(pool.where) > 1:
        raise PdlaError(
            f"pool {pool.name} of {cluster.source} has {len(pool.where)} directories, not one that all nodes have: "
            "name the directory of the nodes' device with --hint e10_cache_path=DIRECTORY"
        )
    share = {} if pool.capacity is None else {"cache_bytes": str(pool.capacity // pool.servers)}
    return {"e10_cache_path": pool.where[0], **share} if needs_path else share
