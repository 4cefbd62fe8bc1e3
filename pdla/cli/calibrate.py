"""pdla calibrate: measure the cost model's parameters on this storage."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from pdla.cli.options import Finite, Output, json_option, print_json
from pdla.cli.options import size as size_option
from pdla.cli.progress import progress
from pdla.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from pdla.layouts.calibrate import Calibration, Storage
    from pdla.layouts.compute_node import Node
    from pdla.layouts.fit import Fit
    from pdla.layouts.network import Network

LEAST_SECONDS = 1.0


@click.command()
@click.argument("directories", metavar="[DIR]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--pool", "pools", metavar="NAME[:KIND]=DIR,...", multiple=True, help="A pool of these directories.")
@click.option(
    "--lustre",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="All OSTs of the Lustre that DIR is on, in pools by OST pool.",
)
@click.option(
    "-o", "output", type=Output(), default="cluster.toml", show_default=True, metavar="FILE", help="File to write."
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--seconds", type=Finite(min=LEAST_SECONDS), default=30.0, show_default=True, help="Time for each pool.")
@click.option(
    "--size",
    callback=size_option,
    help="Scratch space in each directory; default: 1G, or a tenth of the free space if that is less.",
)
@json_option
def calibrate(
    directories: tuple[Path, ...],
    pools: tuple[str, ...],
    lustre: Path | None,
    output: Path,
    force: bool,
    seconds: float,
    size: int | None,
    as_json: bool,
) -> None:
    """Measure the cost model's parameters on this storage.

    Each DIR is one server of a pool: a directory on a disk, a mount or a storage server of its own.
    For several pools use --pool hdd=/mnt/a,/mnt/b --pool fast:ssd=/mnt/c. KIND is hdd, ssd or node.
    By default KIND is NAME if that is a kind; otherwise pdla asks the kernel.

    With --lustre, DIR is a directory of yours on a mounted Lustre: pdla measures every OST in it,
    and makes a directory for the replicas of each pool there.

    With mpiexec it also measures messages: between nodes, and between ranks of one node.
    """
    from pdla.atomic_files import replacing
    from pdla.cli.calibrate_lustre import lustre_storages
    from pdla.errors import PdlaError
    from pdla.layouts.calibrate import calibrate as measure
    from pdla.layouts.calibrate import scratch_sizes
    from pdla.layouts.clusterfile import cluster_text, home_assumed
    from pdla.layouts.compute_node import node
    from pdla.layouts.network import network
    from pdla.report.text import paragraph

    if lustre and (directories or pools):
        raise click.UsageError("give either --lustre DIR, or directories or pools")
    storages = [] if lustre else _storages(directories, pools)
    with network() as (first, between_nodes, exchange), ExitStack() as stack:
        if not first:
            return
        if output.exists() and not force:
            raise PdlaError(f"{output} already exists; give --force to replace it, or another name with -o")
        striped = stack.enter_context(lustre_storages(lustre)) if lustre else None
        storages = striped.storages if striped else storages
        sizes = scratch_sizes(storages, size)
        total = seconds * len(storages)
        space = sum(one * len(storage.directories) for one, storage in zip(sizes, storages, strict=True))
        click.echo(
            f"pdla: measuring for about {format_seconds(total)}, using {format_bytes(space)} of scratch space", err=True
        )
        passed = 0.0
        with progress("s") as advance:

            def pass_(more: float) -> None:
                nonlocal passed
                passed += more
                advance("measuring", round(min(passed, total), 1), total)

            done = [measure(storage, one, seconds, pass_) for storage, one in zip(storages, sizes, strict=True)]
        here = node(storages[0].directories[0], sizes[0], exchange)
        done = striped.placed(done) if striped else done
        made = f"{time.strftime('%Y-%m-%d %H:%M:%S %z')} on {socket.gethostname()}"
        text = cluster_text(done, between_nodes, here, made, striped.home if striped else None)
        with replacing(output) as temporary:
            temporary.write_text(text, encoding="utf-8")
    if as_json:
        print_json(
            {
                "cluster": str(output),
                "pools": [_pool_json(calibration) for calibration in done],
                "network": between_nodes and _network_json(between_nodes),
                "node": _node_json(here),
            }
        )
    else:
        click.echo("\n\n".join(_findings(calibration) for calibration in done))
        assumed = home_assumed(done[0].pool, striped.home if striped else None)
        click.echo("\n" + paragraph(f"Wrote {output}. It assumes that {assumed}. If not, change its section [home]."))


def _storages(directories: tuple[Path, ...], pools: tuple[str, ...]) -> list[Storage]:
    from pdla.layouts.calibrate import Storage
    from pdla.layouts.config import KINDS, RESERVED

    if bool(directories) == bool(pools):
        raise click.UsageError("give either the directories of one pool, or pools with --pool NAME=DIR,...")
    if directories:
        return [Storage(directories)]
    storages: list[Storage] = []
    for text in pools:
        head, _, names = text.partition("=")
        name, _, kind = head.partition(":")
        kind = kind or (name if name in KINDS else "")
        if not name or "+" in name or not all(names.split(",")) or name in RESERVED or (kind and kind not in KINDS):
            raise click.UsageError(
                f"--pool takes NAME=DIR,... or NAME:KIND=DIR,... where NAME has no + and is not "
                f"{' or '.join(RESERVED)}, and KIND is one of {', '.join(KINDS)} (got {text!r})"
            )
        if name in {storage.name for storage in storages}:
            raise click.UsageError(f"two pools are named {name!r}")
        storages.append(Storage(tuple(map(Path, names.split(","))), name, cast(Any, kind or None)))
    return storages


def _findings(calibration: Calibration) -> str:
    from pdla.layouts.clusterfile import findings
    from pdla.report.text import paragraph

    pool = calibration.pool
    head = f"{pool.name}: {counted(pool.servers, 'server')} of kind {pool.kind}"
    return "\n".join([head, *(paragraph(sentence, "  ") for sentence in findings(calibration))])


def _pool_json(calibration: Calibration) -> dict[str, Any]:
    pool = calibration.pool
    return {
        "name": pool.name,
        "kind": pool.kind,
        "where": list(pool.where),
        "grain": pool.grain,
        "read": _fit_json(calibration.reads),
        "write": _fit_json(calibration.writes),
        "scratch_bytes": calibration.size,
        "cached": calibration.cached or None,
        "together": calibration.together._asdict(),
        "streams": calibration.streams._asdict(),
        "slowest": calibration.slowest,
        "uneven": calibration.uneven,
    }


def _fit_json(fit: Fit) -> dict[str, Any]:
    return {
        "startup": [{"distance": distance, **estimate._asdict()} for distance, estimate in fit.startup],
        "seconds_per_byte": fit.seconds_per_byte._asdict(),
        "deviation": fit.deviation,
        "worst": fit.worst._asdict(),
        "overlap": fit.overlap,
    }


def _network_json(network: Network) -> dict[str, Any]:
    return {
        "nodes": network.nodes,
        "connect_seconds": network.connect._asdict(),
        "seconds_per_byte": network.seconds_per_byte._asdict(),
    }


def _node_json(node: Node) -> dict[str, Any]:
    return {
        "cores": node.cores,
        "client_read_ahead": node.read_ahead,
        "call_seconds": node.call._asdict(),
        "copy_seconds_per_byte": node.copy._asdict(),
        "exchange_seconds_per_byte": node.exchange and node.exchange._asdict(),
    }
