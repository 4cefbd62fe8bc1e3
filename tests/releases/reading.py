"""What the present pdla reads from the files of a release."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from pdla.catalog import open_catalog
from pdla.collectors.rawlog import read_raw
from pdla.collectors.tracefile import read_trace
from pdla.errors import FormatError
from pdla.policies.planfile import read_plan
from pdla.replicator.journals import read_journal
from pdla.replicator.mapfile import read_map, read_state
from pdla.traces.trace import Trace


def content(release: Path) -> dict[str, Any]:
    """The content of all files, as plain values."""
    trace, plan = read_trace(release / "run.h5"), read_plan(release / "plan.json")
    journal = read_journal(release / "cache.journal")
    return {
        "trace": _calls(trace),
        "plan": {"policy": plan.policy, "patterns": [str(one.signature) for one in plan.patterns]},
        "logs": _calls(read_raw(release / "logs")),
        "journal": {
            "target": journal.target.name,
            "count": journal.count,
            "home": journal.home,
            "extents": journal.entries[:, 1:].tolist(),
        },
        **_published(release),
        "catalog": catalog(release),
        "report": json.loads((release / "report.json").read_text())["report"]["redirected_calls"],
    }


def _published(release: Path) -> dict[str, Any]:
    """Its map and its state file, if this version reads them; the next publication writes new ones."""
    try:
        published = read_map(release / "replicas.map")
    except FormatError:
        return {}
    return {
        "map": [
            {
                "path": original.path.name,
                "replicas": [[one.id, one.access_map.pieces, len(one.components)] for one in original.replicas],
            }
            for original in published.originals
        ],
        "state": list(read_state(replace(published, state_path=release / "replicas.state")).stale),
    }


def _calls(trace: Trace) -> dict[str, Any]:
    records = trace.records
    return {
        "ranks": trace.ranks,
        "calls": records["kind"].astype(str).value_counts().sort_index().to_dict(),
        "bytes": int(records["length"].sum()),
        "posix": len(trace.posix) if trace.posix is not None else 0,
        "extents": trace.accesses()[["rank", "offset", "length"]].to_numpy().tolist()[:20],
    }


def catalog(release: Path) -> dict[str, Any]:
    """What the catalog has, after its upgrade to the present version."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "catalog.db"
        with closing(sqlite3.connect(path)) as database:
            database.executescript((release / "catalog.sql").read_text())
        with closing(open_catalog(f"sqlite:///{path}")) as found:
            return {
                "replicas": [[one.id, one.state, one.size] for one in found.replicas.find()],
                "runs": len(found.results.all()),
                "patterns": [str(one.signature) for one in found.patterns.find()],
            }
