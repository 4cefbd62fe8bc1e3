"""The dashboard in packaging/grafana: a document of Grafana's, whose queries are PromQL and name metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pdla.catalog import Census
from pdla.replicator.metrics import ApplicationFigures, Metrics
from tests.support.compilers import REPOSITORY

DASHBOARD = json.loads((REPOSITORY / "packaging" / "grafana" / "pdla.json").read_text())
FUNCTIONS = {"sum", "avg", "max", "topk", "bottomk", "rate", "delta", "by"}


def queries() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


@pytest.fixture
def written(tmp_path: Path) -> dict[str, list[Any]]:
    """The samples of all metrics, as a daemon writes them."""
    metrics = Metrics(tmp_path / "m.prom")
    metrics.builds.labels("built").inc()
    metrics.cache_bytes.labels("hit").inc()
    metrics.cache_refused.labels("why").inc()
    metrics.set_applications([ApplicationFigures("app N", 3, 12.5, 0.9, 1 << 30, 1)], 2)
    metrics.update(Census({"valid": (1, 4096)}, {"planned": 1}))
    found: dict[str, list[Any]] = {}
    for family in text_string_to_metric_families((tmp_path / "m.prom").read_text()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def test_queries_name_metrics_and_labels_that_a_daemon_writes(written: dict[str, list[Any]]) -> None:
    for query in queries():
        names = set(re.findall(r"\bpdla_\w+", query))
        assert names and names <= written.keys(), query
        labels = {label for name in names for sample in written[name] for label in sample.labels}
        by = [word for group in re.findall(r"by \(([^)]*)\)", query) for word in group.split(", ")]
        assert {*by, *re.findall(r"{(\w+)=", query)} <= labels, query
    legends = {target["legendFormat"] for panel in DASHBOARD["panels"] for target in panel["targets"]}
    assert {word for legend in legends for word in re.findall(r"{{(\w+)}}", legend)} == {
        "application", "outcome", "state", "what",
    }  # fmt: skip


def test_it_has_what_grafana_asks_of_a_dashboard() -> None:
    """Grafana's documentation of the JSON model; a panel is within the grid of 24 columns, and none covers another."""
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time", "version"} <= DASHBOARD.keys()
    assert [one["type"] for one in DASHBOARD["templating"]["list"]] == ["datasource"]
    taken = set()
    for panel in DASHBOARD["panels"]:
        assert {"id", "type", "title", "gridPos", "targets", "fieldConfig", "datasource"} <= panel.keys()
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24 and not cells & taken
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_queries_are_promql(tmp_path: Path) -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool (of Prometheus) is not installed")
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries())]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "pdla", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", tmp_path / "rules.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"SUCCESS: {len(rules)} rules found" in done.stdout
