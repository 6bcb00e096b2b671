"""The table of metrics, and the files that name what is in it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from router.observe.catalog import COUNTERS, GAUGES, HISTOGRAMS, exposed_names
from router.observe.catalog_page import metrics_page
from router.observe.metrics import Metrics

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
GRAFANA = ROOT / "deploy" / "grafana" / "specroute.json"

CLOSED = {
    "experiment",
    "class",
    "endpoint",
    "field",
    "model",
    "pool",
    "reason",
    "replica",
    "result",
    "status",
}
"""Labels whose values are bounded: by the configuration, or by a list in the code."""


def rules(path: Path) -> Iterator[dict[str, Any]]:
    """All rules of a file."""
    for group in yaml.safe_load(path.read_text())["groups"]:
        yield from group["rules"]


def expressions() -> Iterator[tuple[str, str]]:
    """Where, and what is asked there."""
    for path in (RULES, ALERTS):
        for rule in rules(path):
            yield rule.get("record") or rule["alert"], rule["expr"]
    for panel in json.loads(GRAFANA.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def test_what_is_exposed_is_in_the_table_and_nothing_else() -> None:
    """Families of a process, by name and kind."""
    metrics = Metrics()
    metrics.add_gauges(lambda: [(n, dict.fromkeys(GAUGES[n][1], "x"), 1.0) for n in GAUGES])
    families = {
        (family.name, family.type)
        for family in text_string_to_metric_families(metrics.exposition().decode())
        if not family.name.endswith("_created")
    }
    assert families == {
        *((name, "counter") for name in COUNTERS),
        *((name, "histogram") for name in HISTOGRAMS),
        *((name, "gauge") for name in GAUGES),
    }


def test_names_have_base_units_and_labels_are_bounded() -> None:
    """`specroute_`, and none of the units that Prometheus does without."""
    tables = {**COUNTERS, **GAUGES, **{name: of[:2] for name, of in HISTOGRAMS.items()}}
    for name, (text, labels) in tables.items():
        assert re.fullmatch(r"specroute_[a-z0-9_]+", name)
        assert not re.search(r"_(ms|milliseconds|kb|mb|percent|total)$", name), name
        assert set(labels) <= CLOSED
        assert text.endswith(".")


def test_the_page_lists_every_metric() -> None:
    """One row each."""
    rows = re.findall(r"^\| `(specroute_\w+)`", metrics_page(), re.MULTILINE)
    names = [*(f"{name}_total" for name in COUNTERS), *HISTOGRAMS, *GAUGES]
    assert sorted(rows) == sorted(names)


@pytest.mark.parametrize(("where", "expression"), [*expressions()])
def test_every_name_that_is_asked_for_exists(where: str, expression: str) -> None:
    """A metric of the table, or what a recording rule makes of one; brackets are closed."""
    recorded = {rule["record"] for rule in rules(RULES)}
    metrics = set(re.findall(r"\bspecroute_\w+", expression))
    made = set(re.findall(r"\bspecroute:[\w:]+", expression))
    assert metrics <= exposed_names(), where
    assert made <= recorded, where
    assert metrics | made, where
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing), where


@pytest.mark.parametrize(("where", "expression"), [*expressions()])
def test_only_labels_that_a_metric_has_are_asked_for(where: str, expression: str) -> None:
    """A matcher on a label that is not there would match nothing, for good."""
    labels = {f"{name}_total": of[1] for name, of in COUNTERS.items()}
    labels |= {name: of[1] for name, of in GAUGES.items()}
    labels |= {f"{name}_bucket": (*of[1], "le") for name, of in HISTOGRAMS.items()}
    for name, matchers in re.findall(r"\b(specroute_\w+)\{([^}]*)\}", expression):
        asked = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)
        assert set(asked) <= set(labels[name]), where


def test_alerts_say_what_to_do() -> None:
    """Each has a severity, a summary and advice."""
    for rule in rules(ALERTS):
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert {"summary", "do"} <= rule["annotations"].keys()


def test_panels_do_not_overlap() -> None:
    """Ids are unique, and no two panels share a place."""
    panels = json.loads(GRAFANA.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        places = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not places & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= places


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("path", [RULES, ALERTS], ids=lambda path: path.name)
def test_promtool_accepts_the_rules(path: Path) -> None:
    """Prometheus' own check."""
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
