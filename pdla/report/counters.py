"""What a Darshan log counts, as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pdla.report.text import MOST, more, paragraph, table
from pdla.units import counted, format_bytes, format_count, format_seconds, format_share, parse_bytes

if TYPE_CHECKING:
    from pdla.collectors.darshan_counters import Calls, Counters, FileCounters, Layer

_CLASSES = {
    "0_100": "up to 100 B",
    "100_1K": "up to 1 KiB",
    "1K_10K": "up to 10 KiB",
    "10K_100K": "up to 100 KiB",
    "100K_1M": "up to 1 MiB",
    "1M_4M": "up to 4 MiB",
    "4M_10M": "up to 10 MiB",
    "10M_100M": "up to 100 MiB",
    "100M_1G": "up to 1 GiB",
    "1G_PLUS": "over 1 GiB",
}
_HEADERS = ("layer", "op", "calls", "bytes", "time", "collective", "sequential", "consecutive")
_LEGEND = (
    "time: of all ranks together. sequential: calls that begin behind the end of the rank's previous call; "
    "consecutive: exactly there. sizes: classes of bytes a call, with the number of calls in each."
)


def counters_text(counters: Counters, log: str) -> str:
    """A block for all files together and for each of the largest, and how to get a trace of the program."""
    blocks = [
        paragraph(
            f"{counted(counters.ranks, 'rank')}, {format_seconds(counters.seconds)}, "
            f"{counted(len(counters.files), 'file')}: {counters.command or 'command not known'}"
        )
    ]
    if len(counters.files) > 1:
        blocks.append(_block("all files", counters.total))
    blocks += [_file(file) for file in counters.files[:MOST]]
    blocks += more(len(counters.files), "files")
    blocks.append(paragraph(_LEGEND))
    blocks += [
        paragraph(f"Darshan ran out of memory for its records of {layer}: files are missing.")
        for layer in counters.partial
    ]
    how = (
        f"This log also has DXT records: 'pdla import darshan {log}' makes a trace of them."
        if counters.dxt
        else "Counters do not say where calls began, so they give no signatures and no plan. For a trace, run the "
        "program with 'pdla trace', or with Darshan and DXT_ENABLE_IO_TRACE=1 and then 'pdla import darshan'."
    )
    return "\n\n".join([*blocks, paragraph(how)])


def _file(file: FileCounters) -> str:
    return _block(f"{file.path} ({counted(file.ranks, 'rank')})", file.layers)


def _block(title: str, layers: Iterable[Layer]) -> str:
    layers = list(layers)
    rows = [
        _row(layer.layer, op, calls)
        for layer in layers
        for op, calls in (("read", layer.read), ("write", layer.write))
        if calls.calls
    ]
    facts = [
        line for layer in layers for line in [f"  {layer.layer}", *(paragraph(fact, "    ") for fact in _facts(layer))]
    ]
    moved = [table(_HEADERS, rows, "llrrrrrr")] if rows else []
    return "\n".join([paragraph(title), *moved, *facts, *_beneath({layer.layer: layer for layer in layers})])


def _row(layer: str, op: str, calls: Calls) -> list[str]:
    shares = (calls.collective, calls.sequential, calls.consecutive)
    return [
        *(layer, op, format_count(calls.calls), format_bytes(calls.bytes), _time(calls.seconds)),
        *("-" if share is None else format_share(share, calls.calls) for share in shares),
    ]


def _facts(layer: Layer) -> Iterable[str]:
    """What the counters of a layer say beyond calls and bytes, a sentence each."""
    collective = [] if layer.collective_opens is None else [f"{format_count(layer.collective_opens)} collective"]
    views = [f"{counted(layer.views, 'file view')} set"] if layer.views else []
    yield ", ".join([counted(layer.opens, "open"), *collective, *views, f"metadata {_time(layer.metadata_seconds)}"])
    for op, calls in (("reads", layer.read), ("writes", layer.write)):
        if calls.sizes:
            yield f"{op}: " + ", ".join(f"{_CLASSES[size]}: {format_count(of)}" for size, of in calls.sizes.items())
    for what, pairs in (("sizes", layer.common_sizes), ("strides", layer.strides)):
        if pairs:
            yield f"most common {what}: " + ", ".join(f"{_exact(of)} ({format_count(n)})" for of, n in pairs)
    for where, unaligned, unit in (
        ("in the file", layer.unaligned, layer.alignment),
        ("in memory", layer.unaligned_memory, layer.memory_alignment),
    ):
        if unaligned:
            share = format_share(unaligned, layer.read.calls + layer.write.calls)
            yield f"not aligned {where}" + (f" to {format_bytes(unit)}" if unit else "") + f": {share} of the calls"
    if layer.slowest and layer.fastest and layer.slowest[0] != layer.fastest[0]:
        pairs_of = ((format_seconds, layer.deviation_seconds), (format_bytes, layer.deviation_bytes))
        spread = " and ".join(form(of) for form, of in pairs_of if of is not None)
        ends = (("slowest", layer.slowest), ("fastest", layer.fastest))
        said = [f"{name} rank {rank}: {format_seconds(seconds)}" for name, (rank, seconds) in ends]
        yield ", ".join([*said, *([f"standard deviation of ranks: {spread}"] if spread else [])])


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_seconds(seconds)


def _exact(count: int) -> str:
    """Bytes with a unit if no digit is lost: strides may differ in their last digits."""
    text = format_bytes(count)
    exact = text.partition(" ")[0].isdigit() and parse_bytes(text) == count
    return text if exact else f"{format_count(count)} B"


def _beneath(layers: dict[str, Layer]) -> Iterable[str]:
    """How many bytes POSIX calls moved for those of MPI-IO calls: data sieving moves more."""
    if "MPI-IO" not in layers or "POSIX" not in layers:
        return
    above, below = layers["MPI-IO"], layers["POSIX"]
    pairs = (("read", above.read.bytes, below.read.bytes), ("written", above.write.bytes, below.write.bytes))
    said = [
        f"{format_bytes(under)} {what} for {format_bytes(over)}"
        + (f" ({under / over:.3g} times)" if over not in (0, under) else "")
        for what, over, under in pairs
        if over or under
    ]
    if said:
        yield paragraph(f"POSIX moved for MPI-IO: {', '.join(said)}", "  ")
