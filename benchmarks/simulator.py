"""The simulator's speed: python -m benchmarks.simulator (a minute; pip install simpy for the ratio).

It measures CPU seconds, so that other work on the machine matters little. Each case is a process of its own,
for its memory.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.results import keep
from pdla.layouts.config import load_cluster
from pdla.layouts.devices import startup
from pdla.model import Loop, Signature
from pdla.simulator.run import simulate
from pdla.simulator.schemes import BASELINES
from pdla.simulator.workload import from_signatures

REPEATS = 3
KIB, MIB = 1024, 1 << 20
CASES = {
    # (ranks, requests of each, bytes of a request)
    "wide": (64, 4096, 512 * KIB),  # each on eight servers
    "narrow": (64, 16384, 16 * KIB),  # each on one
    "large": (512, 32768, 16 * KIB),
    "many ranks": (100_000, 10, 64 * KIB),
    "simpy": (64, 128, 512 * KIB),
}


def strided(ranks: int, requests: int, size: int) -> Signature:
    """PIO-Bench's simple strided reads, as one signature."""
    loops = (Loop(size, ranks), Loop(size * ranks, requests))
    return Signature("/data", "read", False, 0, size, loops, tuple(range(ranks)), 1, ranks * requests)


def measured(case: str) -> dict[str, float]:
    """CPU seconds, sub-requests, and the largest memory of the process in bytes."""
    signature, cluster = strided(*CASES[case]), load_cluster("pdla")
    begin = time.process_time()
    result = simulate(from_signatures([signature]), cluster, BASELINES[0])
    return {
        "cpu": time.process_time() - begin,
        "subrequests": result.subrequests,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "simulated": result.seconds,
    }


def in_simpy(case: str) -> dict[str, float]:
    """The same model on SimPy: connections and links as resources, a process for each request and sub-request."""
    import simpy

    cluster, (ranks, requests, size) = load_cluster("pdla"), CASES[case]
    pool, servers = cluster.pool(cluster.home_pool), cluster.home_servers
    env = simpy.Environment()
    heads: dict[int, int] = {}
    accept, links, devices = ([simpy.Resource(env) for _ in range(servers)] for _ in range(3))
    nodes = -(-ranks // cluster.per_node(ranks))
    connects, node_links = ([simpy.Resource(env) for _ in range(nodes)] for _ in range(2))
    served = 0

    def hold(resource: Any, seconds: float) -> Iterator[Any]:
        with resource.request() as turn:
            yield turn
            yield env.timeout(seconds)

    def device(server: int, address: int, length: int) -> Iterator[Any]:
        nonlocal served
        with devices[server].request() as turn:
            yield turn
            distance = abs(address - heads.get(server, address))
            heads[server] = address + length
            yield env.timeout(startup(pool, distance) + length * pool.read_seconds_per_byte)
        served += 1

    def rank(number: int) -> Iterator[Any]:
        node = number // cluster.per_node(ranks)
        for turn in range(requests):
            start = (turn * ranks + number) * size
            parts = [(strip % servers, strip // servers * cluster.home_strip)
                     for strip in range(start // cluster.home_strip, (start + size) // cluster.home_strip)]  # fmt: skip
            e, v, length = cluster.connect_seconds, cluster.network_seconds_per_byte, cluster.home_strip
            both = [env.process(hold(connects[node], e * len(parts)))]
            yield env.all_of([*both, *(env.process(hold(accept[server], e)) for server, _ in parts)])
            yield env.all_of([env.process(device(server, address, length)) for server, address in parts])
            both = [env.process(hold(node_links[node], v * size))]
            yield env.all_of([*both, *(env.process(hold(links[server], v * length)) for server, _ in parts)])

    begin = time.process_time()
    for number in range(ranks):
        env.process(rank(number))
    env.run()
    return {"cpu": time.process_time() - begin, "subrequests": served, "simulated": env.now}


def best(case: str, how: str = "core") -> dict[str, float]:
    """The fastest of some runs, each in a process of its own, and how far the others were from it."""
    runs = []
    for _ in range(REPEATS):
        command = [sys.executable, "-m", "benchmarks.simulator", how, case]
        runs.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))
    seconds = [one["cpu"] for one in runs]
    fastest = min(runs, key=lambda one: one["cpu"])
    return {**fastest, "spread": (max(seconds) - min(seconds)) / statistics.median(seconds)}


def row(name: str, value: float, unit: str, goal: float | None, spread: float = 0.0, **more: Any) -> dict[str, Any]:
    """A row of build/bench.json."""
    return {"name": name, "value": value, "unit": unit, "baseline": None, "ratio": None, "goal": goal, "spread": spread,
            **more}  # fmt: skip


def main() -> None:
    """Measure, print, write."""
    rows = []
    for case in ("wide", "narrow"):
        found = best(case)
        rate = found["subrequests"] / found["cpu"] / 1e6
        rows.append(row(f"simulator: {case} requests", rate, "M sub-requests/s of CPU", 1.0, found["spread"]))
    large = best("large")
    rows.append(row("simulator: 16.8 M requests of 512 ranks", large["cpu"], "s of CPU", 120, large["spread"]))
    rows.append(row("simulator: the same, memory", large["memory"] / MIB, "MiB", 2048))
    many = best("many ranks")
    rows.append(row("simulator: 1 M requests of 100,000 ranks", many["cpu"], "s of CPU", None, many["spread"]))
    rows.append(row("simulator: the same, memory", many["memory"] / MIB, "MiB", None))
    if importlib.util.find_spec("simpy"):
        ours, theirs = best("simpy"), best("simpy", "simpy")
        rates = [one["subrequests"] / one["cpu"] for one in (ours, theirs)]
        more = {
            "baseline": rates[1],
            "ratio": rates[0] / rates[1],
            "simulated": [ours["simulated"], theirs["simulated"]],
        }
        rows.append(row("simulator: against SimPy", rates[0], "sub-requests/s of CPU", None, ours["spread"], **more))
    for one in rows:
        beside = f", {one['ratio']:.0f} times SimPy" if one["ratio"] else ""
        print(f"{one['name']}: {one['value']:.4g} {one['unit']}{beside}")
    keep(rows)


HOW: dict[str, Callable[[str], dict[str, float]]] = {"core": measured, "simpy": in_simpy}

if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(HOW[sys.argv[1]](sys.argv[2])))
    else:
        main()
