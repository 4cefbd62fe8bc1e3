"""Plans as JSON (docs/json.md, ``plan.schema.json``), for people, scripts and ``pdla replicate``."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pdla.accessmap import MAX_EXTENTS
from pdla.atomic_files import replacing
from pdla.errors import FormatError
from pdla.file_kinds import PLAN, check
from pdla.model import STILL, Candidate, Cluster, Cost, Growth, Layout, Loop, PatternPlan, Plan, Pool, Signature

FORMAT = "pdla-plan"
VERSION = 2
SCHEMA = Path(__file__).with_name("plan.schema.json")
LARGEST = 2**62  # so that sums of two fit into 64 bits
_LINE = 120


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Plain values; ``plan_from_json`` makes an equal plan from them."""
    patterns, seen = [], Counter[str]()
    for pattern in plan.patterns:
        name = pattern_id(pattern.signature)
        seen[name] += 1
        patterns.append(_pattern_to_json(pattern, name if seen[name] == 1 else f"{name}-{seen[name]}"))
    return {
        "format": FORMAT,
        "version": VERSION,
        "policy": plan.policy,
        "selection": plan.selection,
        "gap": plan.gap,
        "command": plan.command,
        "patterns": patterns,
        "predicted_before": plan.predicted_before,
        "predicted_after": plan.predicted_after,
        "simulated": list(plan.simulated) if plan.simulated else None,
        "refused": [{"what": what, "why": why} for what, why in plan.refused],
        "cluster": _cluster_to_json(plan.cluster),
    }


def plan_from_json(value: Any) -> Plan:
    """The inverse of ``plan_to_json``.

    Raises:
        FormatError: ``value`` is not a plan, or is of another version; the message says what is
            missing or wrong.
    """
    if not isinstance(value, Mapping) or value.get("format") != FORMAT:
        raise FormatError(f'not a plan: "format" should be "{FORMAT}" (make one with pdla plan -o PLAN.json)')
    if value.get("version") != VERSION:
        raise FormatError(
            f"the plan has version {value.get('version')!r}, but this pdla reads version {VERSION}: make a new plan"
        )
    try:
        plan = Plan(
            policy=str(value["policy"]),
            command=str(value["command"]),
            patterns=tuple(_pattern_from_json(pattern) for pattern in value["patterns"]),
            refused=tuple((str(item["what"]), str(item["why"])) for item in value["refused"]),
            cluster=_cluster_from_json(value["cluster"]),
            selection=str(value["selection"]),
            gap=_number(value["gap"]),
            simulated=_pair(value.get("simulated")),
        )
        names = {pool.name for pool in plan.cluster.pools}
        for pattern in plan.patterns:
            layout = pattern.choice.layout
            known = layout is None or names.issuperset(layout.pool.split("+"))
            if layout and not (known and len(_servers(plan.cluster, layout.pool)) == layout.servers):
                raise ValueError(
                    f"{pattern.signature} goes to {layout.servers} servers of {layout.pool}, not in cluster"
                )
    except KeyError as error:
        raise FormatError(f"a damaged plan: {error} is missing") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FormatError(f"a damaged plan: {error}") from None
    return plan


def write_plan(plan: Plan, path: Path) -> None:
    """Write ``plan`` as JSON with sorted keys. Equal plans give equal bytes, so ``diff`` shows what differs.

    Raises:
        PdlaError: the file cannot be written.
    """
    # ASCII: paths may hold bytes that are not UTF-8, which JSON can only escape.
    text = _indented(plan_to_json(plan)) + "\n"
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="ascii")


def read_plan(path: Path) -> Plan:
    """Read the plan in ``path``.

    Raises:
        FormatError: no such file, not JSON, not a plan, or of another version.
    """
    check(path, PLAN)
    try:
        return plan_from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise FormatError(f"cannot read the plan {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is a damaged plan: not JSON: {error}") from None
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None


def pattern_id(signature: Signature) -> str:
    """A name for a pattern that is the same in every plan: it depends on what is accessed and by whom, not when."""
    value = _signature_to_json(signature)
    del value["t_start"], value["t_end"]
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _indented(value: Any, indent: str = "") -> str:
    """JSON in blocks; a value that fits on a line is on one line, and so is every list of numbers."""
    line = json.dumps(value, sort_keys=True)
    if not isinstance(value, (dict, list)) or len(indent) + len(line) <= _LINE:
        return line
    if isinstance(value, list) and not any(isinstance(item, (dict, list)) for item in value):
        return line
    inner = indent + "  "
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {_indented(value[key], inner)}" for key in sorted(value)]
    else:
        items = [_indented(item, inner) for item in value]
    ends = "{}" if isinstance(value, dict) else "[]"
    return f",\n{inner}".join([f"{ends[0]}\n{inner}{items[0]}", *items[1:]]) + f"\n{indent}{ends[1]}"


def _signature_to_json(signature: Signature) -> dict[str, Any]:
    return {
        field.name: _plain(getattr(signature, field.name))
        for field in dataclasses.fields(Signature)
        if field.name != "members"
    }


def _pattern_to_json(pattern: PatternPlan, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "pattern": str(pattern.signature),
        "signature": _signature_to_json(pattern.signature),
        "chosen": pattern.chosen,
        "reason": pattern.reason,
        "candidates": [_candidate_to_json(candidate) for candidate in pattern.candidates],
    }


def _candidate_to_json(candidate: Candidate) -> dict[str, Any]:
    layout, cost = candidate.layout, candidate.cost
    return {
        "space": candidate.space,
        "layout": layout.name if layout else None,
        "servers": layout.servers if layout else None,
        "groups": layout.groups if layout else None,
        "strips": list(layout.strips) if layout else [],
        "section": layout.section if layout else None,
        "seconds": {**dataclasses.asdict(cost), "total": cost.total},
        "simulated": candidate.simulated,
        "refused": candidate.refused or None,
    }


def _pattern_from_json(value: Mapping[str, Any]) -> PatternPlan:
    signature = _signature_from_json(value["signature"])
    found = tuple(_candidate_from_json(candidate) for candidate in value["candidates"])
    chosen = _whole(value["chosen"])
    if not 0 <= chosen < len(found):
        raise ValueError(f"pattern {signature} chooses candidate {chosen} of {len(found)}")
    return PatternPlan(signature, found, chosen, str(value["reason"]))


def _signature_from_json(value: Mapping[str, Any]) -> Signature:
    if value["op"] not in ("read", "write"):
        raise ValueError(f'op should be "read" or "write" (got {value["op"]!r})')
    signature = Signature(
        file=_path(value["file"]),
        op=value["op"],
        collective=bool(value["collective"]),
        start=_whole(value["start"]),
        length=_whole(value["length"]),
        loops=tuple(Loop(_whole(stride), _whole(count)) for stride, count in value["loops"]),
        ranks=_wholes(value["ranks"]),
        rank_loops=_whole(value["rank_loops"]),
        calls=_whole(value["calls"]),
        t_start=_number(value["t_start"]),
        t_end=_number(value["t_end"]),
        growth=tuple(_growth(grows) for grows in value.get("growth", ())),
    )
    if math.prod(loop.count for loop in signature.loops[: signature.rank_loops]) != len(signature.ranks):
        raise ValueError(f"the loops over the ranks of {signature} do not count its {len(signature.ranks)} ranks")
    if signature.growth:
        _check_growth(signature)
    if signature.length < 1 or min((loop.count for loop in signature.loops), default=1) < 1 or signature.extent[0] < 0:
        raise ValueError(f"{signature} accesses nothing, or bytes before the file's first")
    if signature.extent[1] > LARGEST:
        raise ValueError(f"{signature} reaches byte {signature.extent[1]}, of at most {LARGEST}")
    return signature


def _growth(value: Any) -> Growth:
    if len(value) != len(Growth._fields):
        raise ValueError(f"growth is [stride, length, count], got {value!r:.40}")
    return Growth(*_wholes(value))


def _check_growth(signature: Signature) -> None:
    """Check that one can compute with what grows: in 64 bits, and without shrinking to nothing."""
    if len(signature.growth) != len(signature.loops):
        raise ValueError(f"a pattern has {len(signature.loops)} loops but {len(signature.growth)} growths")
    if any(grows.count for grows in signature.growth[: max(0, signature.rank_loops - 1)]):
        raise ValueError("the rows of a pattern's ranks have different numbers of ranks")
    most, least, reach, length, shortest = 0, 0, abs(signature.start), signature.length, signature.length
    for (stride, count), grows in signature.nest.levels:
        least, most = count + min(0, least), count + max(0, most)
        reach += abs(stride) * most + abs(grows.stride) * most**2
        length, shortest = length + max(0, grows.length) * most, shortest + min(0, grows.length) * (most - 1)
        if min(least, shortest) < 1 or max(most, reach, length) > LARGEST or (grows != STILL and most > MAX_EXTENTS):
            raise ValueError(f"{signature} grows beyond 64 bits or {MAX_EXTENTS} iterations, or shrinks to nothing")
        least, most = grows.count * (most - 1), grows.count * (most - 1)


def _candidate_from_json(value: Mapping[str, Any]) -> Candidate:
    layout = None
    if value["layout"] is not None:
        servers, groups, section = (_whole(value[key]) for key in ("servers", "groups", "section"))
        layout = Layout(str(value["space"]), servers, groups, _wholes(value["strips"]), section)
    seconds = value["seconds"]
    cost = Cost(*(_number(seconds[field.name]) for field in dataclasses.fields(Cost)))
    simulated = value.get("simulated")
    return Candidate(
        str(value["space"]),
        layout,
        cost,
        str(value["refused"] or ""),
        None if simulated is None else _number(simulated),
    )


ONLY_SIMULATED = (
    "aggregators", "sieve_read", "sieve_write", "jitter_seconds", "client_cache", "client_sync", "client_read_ahead",
    "cores", "call_seconds", "copy_seconds_per_byte", "exchange_seconds_per_byte",
)  # fmt: skip
"""What only simulations depend on: plans do not contain it."""


def _cluster_to_json(cluster: Cluster) -> dict[str, Any]:
    value: dict[str, Any] = _plain(dataclasses.asdict(cluster))
    for pool in value["pools"]:
        del pool["parts"]  # only hybrids have parts, and they are made from them
        del pool["device"]
    for key in ONLY_SIMULATED:
        del value[key]
    if not cluster.home_source:
        del value["home_source"]
    return value


def _cluster_from_json(value: Mapping[str, Any]) -> Cluster:
    return Cluster(**{**value, "pools": tuple(_pool_from_json(pool) for pool in value["pools"])})


def _servers(cluster: Cluster, pool: str) -> list[str]:
    parts = cluster.pool(pool).parts or (cluster.pool(pool),)
    return [server for part in parts for server in part.names or part.where]


def _pool_from_json(value: Mapping[str, Any]) -> Pool:
    texts = {"where": value["where"], "names": value.get("names", [])}
    for listed in texts.values():
        if not isinstance(listed, list):
            raise ValueError(f"wanted a list of directories or servers, got {listed!r:.40}")
    startup = tuple((_whole(distance), _number(seconds)) for distance, seconds in value["startup"])
    numbers = {key: _whole(value[key]) for key in ("servers", "grain")}
    capacity = None if value["capacity"] is None else _whole(value["capacity"])
    rates = {key: _number(value[key]) for key in ("read_seconds_per_byte", "write_seconds_per_byte")}
    names = {key: tuple(map(_path, listed)) for key, listed in texts.items()}
    return Pool(**{**value, **numbers, **rates, **names, "capacity": capacity, "startup": startup})


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"wanted a whole number, got {value!r:.40}")
    if abs(value) > LARGEST:
        raise ValueError(f"wanted a whole number of at most {LARGEST}, got {value!r:.40}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= LARGEST:
        raise ValueError(f"wanted a number, got {value!r:.40}")
    return float(value)


def _pair(value: Any) -> tuple[float, float] | None:
    """The seconds before and after; plans of earlier versions have none."""
    if value is None:
        return None
    before, after = value
    return _number(before), _number(after)


def _path(value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"wanted a path, got {value!r:.40}")
    return value


def _wholes(values: Any) -> tuple[int, ...]:
    return tuple(_whole(value) for value in values)


def _plain(value: Any) -> Any:
    """Tuples as lists, so that what is written equals what is read."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
