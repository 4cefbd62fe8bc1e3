"""Write measurements to a cluster.toml, with comments on how well they fit: the inverse of pdla.layouts.config."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Sequence

from pdla.errors import PdlaError
from pdla.layouts.calibrate import MARKED, Calibration, SmallAndLarge
from pdla.layouts.compute_node import Node
from pdla.layouts.config import DEFAULT_FILE, load_cluster
from pdla.layouts.fit import Estimate
from pdla.layouts.network import Network
from pdla.layouts.timed_requests import STREAMS
from pdla.model import Pool
from pdla.units import counted, format_bytes, format_seconds, format_share

HOME_STRIP = "64K"  # the default strip of OrangeFS and of many Lustre systems
_WIDTH = 118


def cluster_text(
    calibrations: Sequence[Calibration],
    network: Network | None,
    node: Node,
    made: str,
    striped: tuple[int, int] | None = None,
) -> str:
    """The text of the file: the pools as measured, with the originals in the first. ``made`` says when and where.

    ``striped``: the servers and the bytes of a strip of new files, if the storage says it.

    Raises:
        PdlaError: the name of a directory is not valid text.
    """
    home = calibrations[0].pool
    servers, strip = striped or (home.servers, HOME_STRIP)
    lines = [
        *_comment(
            f"Measured by pdla calibrate, {made}. docs/cluster.md explains the keys, docs/calibration.md the figures."
        ),
        "",
        *_comment(
            f"Assumed, not measured: {home_assumed(home, striped)}. The file can be used as it is; change what is "
            "otherwise. pool is the one of those below whose devices hold the originals. servers is the number of "
            "servers over which their file system stripes a file (1: it does not), strip the bytes on one before the "
            "next one's turn: see lfs getstripe FILE, getfattr -n ceph.file.layout FILE, or pvfs2-viewdist -f FILE."
        ),
        "[home]",
        f"pool = {_text(home.name)}",
        f"servers = {servers}",
        f"strip = {_text(strip) if isinstance(strip, str) else strip}",
        "",
        *_clients(network),
        *_node(node),
    ]
    for calibration in calibrations:
        lines += ["", *_pool(calibration)]
    return "\n".join(lines) + "\n"


def home_assumed(pool: Pool, striped: tuple[int, int] | None = None) -> str:
    """What ``[home]`` says about the original files if they are where the replicas of ``pool`` will be.

    ``striped``: the servers and the bytes of a strip of new files, if the storage says it.
    """
    if striped:
        servers, strip = striped
        number = counted(servers, "server")
        return (
            f"the original files are striped as new files are, over {number} like those of pool {pool.name}, "
            f"{format_bytes(strip)} on each"
        )
    if pool.servers == 1:
        return f"the original files are on a device like the one of pool {pool.name}"
    return (
        f"the original files are striped over {pool.servers} servers like those of pool {pool.name}, "
        f"{HOME_STRIP} on each"
    )


def findings(calibration: Calibration) -> list[str]:
    """Sentences about a pool: how well the model fits the measurements, and what it cannot say."""
    pool, reads, worst, count = (
        calibration.pool,
        calibration.reads,
        calibration.reads.worst,
        calibration.pool.servers,
    )
    said = [
        f"Reads take {_interval(_rate(reads.seconds_per_byte))} MB/s and writes "
        f"{_interval(_rate(calibration.writes.seconds_per_byte))} MB/s of each server (95 % confidence).",
        "Start-up of reads: "
        + ", ".join(f"{_span(estimate)} at {format_bytes(distance)}" for distance, estimate in reads.startup)
        + f"; of writes: {_span(calibration.writes.startup[0][1])}.",
        f"The model's seconds are within {format_share(reads.deviation, 1)} of the measured ones for half of the reads "
        f"and {worst.ratio:.2f} times the measured ones for the worst, reads of {format_bytes(worst.size)}.",
    ]
    if calibration.cached:
        said.append(f"The page cache may be measured, not the storage: {calibration.cached}.")
    if reads.overlap:
        said.append("Start-up and transfer overlap: a request takes as long as the longer of the two.")
    if calibration.doubtful:
        said.append(
            f"The kernel says that the kind is {pool.kind}, but the start-up does not fit that: choose the kind with "
            "--pool NAME:KIND=DIR,..."
        )
    if max(calibration.together) > MARKED:
        said.append(
            f"The servers share a device or a link: requests to all {count} at once take {_both(calibration.together)} "
            "times as long as requests to one. The parameters are those of all servers at once."
        )
    if max(calibration.streams) > MARKED:
        said.append(
            f"A server serves requests in parallel: {STREAMS} streams get {_both(calibration.streams)} times what "
            "one gets. The parameters are those of one stream."
        )
    if calibration.uneven > MARKED:
        said.append(
            f"The servers are unequal: {calibration.slowest} takes {calibration.uneven:.2f} times as long as the "
            "fastest. The parameters are those of this server."
        )
    said.append(
        f"Measured in scratch files of {format_bytes(calibration.size)}: the start-up at distances beyond "
        f"{format_bytes(pool.startup[-1][0])} was not measured, and is assumed to be the same."
    )
    return said


def _clients(network: Network | None) -> list[str]:
    if network is None:
        nominal = load_cluster(None)
        return [
            *_comment(f"Not measured, because no other node took part: the values are those of {DEFAULT_FILE.name}."),
            "[clients]",
            f"processes_per_node = {nominal.processes_per_node}",
            f"connect_seconds = {nominal.connect_seconds:g}",
            f"network_seconds_per_byte = {nominal.network_seconds_per_byte:g}",
        ]
    return [
        *_comment(
            f"Ping-pong between 2 of {network.nodes} nodes: {_span(network.connect)} of the shortest message, "
            f"{_interval(_rate(network.seconds_per_byte))} MB/s (95 % confidence). processes_per_node is the number of "
            "processors of the first node."
        ),
        "[clients]",
        f"processes_per_node = {os.cpu_count() or 1}",
        f"connect_seconds = {network.connect.value:.4g}",
        f"network_seconds_per_byte = {network.seconds_per_byte.value:.4g}",
    ]


def _node(node: Node) -> list[str]:
    exchange = node.exchange and f"{_interval(_rate(node.exchange))} MB/s from rank to rank in collective calls"
    return [
        *_comment(
            f"Only for the simulator. A processor reads from the page cache in {_span(node.call)} and at "
            f"{_interval(_rate(node.copy))} MB/s; {exchange or 'collective calls were not measured: no other ranks'}."
        ),
        f"cores = {node.cores}",
        f"call_seconds = {node.call.value:.4g}",
        f"copy_seconds_per_byte = {node.copy.value:.4g}",
        *([f"exchange_seconds_per_byte = {node.exchange.value:.4g}"] if node.exchange else []),
        *(["client_cache = true", f"client_read_ahead = {node.read_ahead}"] if node.read_ahead else []),
    ]


def _pool(calibration: Calibration) -> list[str]:
    pool = calibration.pool
    return [
        *(line for sentence in findings(calibration) for line in _comment(sentence)),
        f"[pools.{pool.name if re.fullmatch('[A-Za-z0-9_-]+', pool.name) else _text(pool.name)}]",
        f"kind = {_text(pool.kind)}",
        f"startup = [{', '.join(f'[{distance}, {seconds:.4g}]' for distance, seconds in pool.startup)}]",
        *(["overlap = true"] if pool.overlap else []),
        f"read_seconds_per_byte = {pool.read_seconds_per_byte:.4g}",
        f"write_seconds_per_byte = {pool.write_seconds_per_byte:.4g}",
        "capacity = 0  # the free space of the file systems at the time of a plan",
        f"grain = {pool.grain}",
        f"backend = {_text(pool.backend)}",
        f"where = [{', '.join(map(_text, pool.where))}]",
        *([f"servers = [{', '.join(map(_text, pool.names))}]"] if pool.names else []),
    ]


def _text(text: str) -> str:
    """A TOML string. All escapes of JSON are valid in TOML; surrogates are valid in neither."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PdlaError(f"{text!a} cannot be written to a cluster.toml: the name is not UTF-8") from None
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(sentence: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(sentence, _WIDTH, break_on_hyphens=False)]


def _rate(estimate: Estimate) -> Estimate:
    """MB/s from seconds per byte."""
    return Estimate(1e-6 / estimate.value, 1e-6 / estimate.high, 1e-6 / estimate.low)


def _interval(estimate: Estimate) -> str:
    return "{} ({} to {})".format(*(f"{value:,.0f}" if value >= 1000 else f"{value:.4g}" for value in estimate))


def _span(estimate: Estimate) -> str:
    return f"{format_seconds(estimate.value)} ({format_seconds(estimate.low)} to {format_seconds(estimate.high)})"


def _both(ratio: SmallAndLarge) -> str:
    return f"{ratio.small:.2f} (small requests) and {ratio.large:.2f} (large ones)"
