"""Remedies as commands to copy."""

from __future__ import annotations

import shlex

from pdla.findings.seen import Seen
from pdla.layouts.config import NOMINAL, cluster_names


def replicas(seen: Seen) -> str:
    """Plan, build and use replicas."""
    return (
        f"pdla plan {shlex.quote(seen.trace_file)}{_cluster(seen)} -o plan.json && pdla replicate plan.json && "
        f"pdla run -- {_program(seen)}"
    )


def policy(seen: Seen, name: str) -> str:
    """Run with a policy that acts while the program runs."""
    if name == "e10":
        nodes = any(pool.kind == "node" for pool in seen.cluster.pools)
        where = _cluster(seen) if nodes else " --hint e10_cache_path=${TMPDIR:-/tmp}"
    else:
        where = _cluster(seen) or " --cluster cluster.toml"
    return f"pdla run --policy {name}{where} -- {_program(seen)}"


def hints(seen: Seen, **values: object) -> str:
    """Give ROMIO hints without a change to the program."""
    lines = "".join(f"{name} {value}\\n" for name, value in values.items())
    return f"printf '{lines}' > romio_hints && ROMIO_HINTS=$PWD/romio_hints {_program(seen)}"


def _cluster(seen: Seen) -> str:
    source = seen.cluster.source
    if source == NOMINAL:
        return ""
    name = source.removeprefix("example ")
    return f" --cluster {name if name in cluster_names() else shlex.quote(source)}"


def _program(seen: Seen) -> str:
    return seen.trace.command or "PROGRAM"
