"""What a run takes after earlier ones of the same program, from which a policy has learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pdla.accessmap import AccessMap
from pdla.model import Cluster, Int64Array, Layout, Pool
from pdla.policies.online import Online, pool_of
from pdla.simulator.machine import Machine
from pdla.simulator.online import simulate_online
from pdla.simulator.replicas import Replicas
from pdla.simulator.run import Result, outcome_of, result_of
from pdla.simulator.schemes import Scheme
from pdla.simulator.workload import Workload


def after_runs(calls: Workload, cluster: Cluster, policy: Online, scheme: Scheme, earlier: int) -> float:
    """Seconds in I/O of the slowest rank in the run after so many ``earlier`` ones.

    Raises:
        ConfigError: the cluster lacks what the policy needs.
    """
    runs = (earlier, earlier + 1) if earlier else (1,)
    taken = [simulate_online(repeated(calls, times), cluster, policy, scheme).slowest for times in runs]
    return taken[-1] - (taken[0] if earlier else 0.0)


def with_extents_on_ssds(calls: Workload, cluster: Cluster, scheme: Scheme, held: Mapping[str, Int64Array]) -> Result:
    """A run that reads these extents (rows start, length, place) of its files from SSD servers, as S4D-Cache's do.

    Raises:
        ConfigError: the cluster has no SSD servers.
    """
    machine, ssd = Machine(cluster), pool_of(cluster, "ssd", "s4d")
    for size in calls.sizes:
        machine.add_file(size)
    replicas = Replicas.of(None, calls, machine)
    for number, path in enumerate(calls.files):
        if path in held:
            access_map = AccessMap(extents=held[path])
            layout = Layout(ssd.name, ssd.servers, 1, (cluster.home_strip,) * ssd.servers, access_map.size)
            replicas.add(number, access_map, layout, "read", machine)
    return result_of(scheme.name, outcome_of(calls, machine, scheme, replicas), machine, replicas.sizes)


def beside_disks(cluster: Cluster) -> Cluster:
    """The storage with an SSD for each home server, together as fast as its SSDs are: iBridge and LiU need that."""
    count = cluster.home_servers

    def spread(pool: Pool) -> Pool:
        slower = count / pool.servers
        return replace(
            pool,
            servers=count,
            where=tuple(f"ssd{number}" for number in range(count)),
            startup=tuple((distance, seconds * slower) for distance, seconds in pool.startup),
            read_seconds_per_byte=pool.read_seconds_per_byte * slower,
            write_seconds_per_byte=pool.write_seconds_per_byte * slower,
        )

    return replace(cluster, pools=tuple(spread(one) if one.kind == "ssd" else one for one in cluster.pools))


def repeated(calls: Workload, times: int) -> Workload:
    """A program that makes all its calls so many times, the closes among them."""
    first, call, item = (calls.arrays[name] for name in ("first_call", "call", "item"))
    joint = int(call["collective"].max(initial=-1)) + 1
    made, items, begins = [], [], [0]
    count = 0
    for rank in range(calls.ranks):
        own = call[first[rank] : first[rank + 1]]
        low, high = int(call["item"][first[rank]]), int(call["item"][first[rank + 1]])
        for number in range(times):
            again = own.copy()
            again["item"] += count - low
            again["collective"][again["collective"] >= 0] += number * joint
            made.append(again)
            items.append(item[low:high])
            count += high - low
        begins.append(begins[-1] + times * len(own))
    end = call[-1:].copy()
    end["item"] = count
    arrays = {"first_call": np.array(begins), "call": np.concatenate([*made, end]), "item": np.concatenate(items)}
    return replace(calls, arrays={**calls.arrays, **arrays})
