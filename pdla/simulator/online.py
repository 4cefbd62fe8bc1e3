"""Simulations in which a policy acts while the program runs."""

from __future__ import annotations

from pdla.model import Cluster
from pdla.policies.online import MEMORY, Online
from pdla.simulator import core
from pdla.simulator.enactor import Enactor
from pdla.simulator.machine import Machine
from pdla.simulator.replicas import Replicas
from pdla.simulator.run import Result, outcome_of, result_of
from pdla.simulator.schemes import Scheme
from pdla.simulator.workload import Workload


def simulate_online(
    workload: Workload,
    cluster: Cluster,
    policy: Online,
    scheme: Scheme,
    *,
    open_loop: bool = False,
    seed: int = 0,
    closes: list[tuple[int, float]] | None = None,
) -> Result:
    """Simulate ``workload`` with a policy that has served nothing before.

    ``closes`` receives each file that is closed or synchronized, and when.

    Raises:
        ConfigError: the cluster lacks what the policy needs.
    """
    machine = Machine(policy.storage(cluster, workload.ranks), aligned=policy.by_part)
    for size in workload.sizes:
        machine.add_file(size)
    clients = policy.clients(cluster)
    enactor = Enactor(policy, cluster, dict(enumerate(workload.sizes)), together=bool(clients.get("exchange")))
    decider = core.Decider(enactor.core, _objects(enactor, machine), policy.period or 0.0, enactor.raised)
    replicas = Replicas.of(None, workload, machine)
    outcome = outcome_of(
        workload, machine, scheme, replicas, open_loop=open_loop, seed=seed, clients=clients, decider=decider
    )
    if closes is not None:
        closes += [(int(one["file"]), float(one["time"])) for one in outcome.closes if one["file"] >= 0]
    space: dict[str, int] = {}
    for name, used in enactor.peak.items():
        level = name.partition("/")[0]
        space[level] = space.get(level, 0) + used
    reasons = enactor.reasons
    return result_of(scheme.name, outcome, machine, space, refused=sum(reasons.values()), reasons=reasons)


def _objects(enactor: Enactor, machine: Machine) -> list[int]:
    """Put the spaces on the machine; the object of each level."""
    objects: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for space in enactor.spaces:
        if space.level == MEMORY:
            objects[MEMORY] = objects.get(MEMORY) or machine.add_memory()
        elif space.layout:
            objects[space.level] = machine.add(space.layout, space.capacity)
        else:
            sizes[space.level] = max(space.capacity, sizes.get(space.level, 0))
    for level, size in sizes.items():
        objects[level] = machine.add_servers(level, size)
    return [objects[level] for level in enactor.levels]
