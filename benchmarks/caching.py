"""What the core that decides costs: python -m benchmarks.caching [--before PYTHON]

Prints the processor time of a decision with 10^4 and 10^6 extents; and with ``--before``, how many times as fast a
simulation with a policy is as in the pdla of another Python, in turns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.results import add_rows, row
from pdla.collectors import workloads
from pdla.layouts.config import load_cluster
from pdla.policies import make_online
from pdla.simulator.online import simulate_online
from pdla.simulator.schemes import Scheme
from pdla.simulator.workload import from_trace

ROOT = Path(__file__).resolve().parents[1]
GOALS = {10**4: 300.0, 10**6: 600.0}
"""Nanoseconds of a decision, by the number of extents."""
IDENTIFY = 200.0
"""Of S4D-Cache's judgement of a request, with so many in the critical data table."""
CLUSTERS = {"s4d": "s4d-cache", "ibridge": "ibridge", "liu": "liu", "e10": "e10"}
SCHEME = Scheme("independent", collective=False, sieve=False)
TOGETHER = Scheme("together", together=True)
FASTER, TURNS = 20.0, 3


def decisions() -> list[dict[str, Any]]:
    """Nanoseconds of a decision of each policy."""
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        program, room = Path(directory) / "decisions", ROOT / "pdla/caching"
        sources = [ROOT / "benchmarks/decisions.c", *room.glob("*.c")]
        subprocess.run(["gcc", "-std=gnu11", "-O2", f"-I{room}", "-o", program, *sources], check=True)
        asked = [(policy, extents, goal) for policy in CLUSTERS for extents, goal in GOALS.items()]
        for policy, extents, goal in [*asked, *(("identify", extents, IDENTIFY) for extents in GOALS)]:
            said = subprocess.run([program, policy, str(extents)], check=True, capture_output=True, text=True).stdout
            middle, least = map(float, said.split())
            rows.append(row(f"{policy}, {extents} extents, least", [least], "ns a decision", goal))
            rows.append(row(f"{policy}, {extents} extents", [middle], "ns a decision", goal))
    return rows


def simulated(policy: str) -> float:
    """Seconds of processor time of a simulation: 16 ranks, 256 requests each at random places.

    Of 40 KiB; of 1 MiB if they are made together, so that the simulator itself has less to do.
    """
    size = 1 << 20 if policy == "e10" else 40 << 10
    workload = from_trace(workloads.pio_random_strided(16, size, 256, "write"))
    cluster, made = load_cluster(CLUSTERS[policy]), make_online(policy)
    if policy == "e10":
        made.exchange = "two-phase"  # type: ignore[attr-defined]  # as before
    begin = time.process_time()
    simulate_online(workload, cluster, made, TOGETHER if policy == "e10" else SCHEME)
    return time.process_time() - begin


def simulations(before: str) -> list[dict[str, Any]]:
    """How many times as fast as with the Python ``before``."""
    rows = []
    for policy in CLUSTERS:
        seconds: dict[str, list[float]] = {sys.executable: [], before: []}
        for _ in range(TURNS):
            for python, measured in seconds.items():
                command = [python, __file__, "--simulate", policy]
                said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
                measured.append(json.loads(said))
        times = [then / now for now, then in zip(seconds[sys.executable], seconds[before], strict=True)]
        rows.append(row(f"simulations with {policy}", times, "times as fast", FASTER))
    return rows


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", metavar="PYTHON")
    parser.add_argument("--simulate", choices=CLUSTERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.simulate:
        print(json.dumps(simulated(options.simulate)))
        return
    add_rows("caching", decisions() + (simulations(options.before) if options.before else []))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
