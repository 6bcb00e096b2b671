"""The report as a page."""

from __future__ import annotations

from typing import Any

from router.cli.report import report
from router.cli.report_html import html

GAIN = {"value": 0.4, "low": 0.3, "high": 0.5}


def cell(pool: str, gain: dict[str, float] | None, verdict: str | None) -> dict[str, Any]:
    """What the report looks at of a cell."""
    return {
        "pool": pool,
        "ok": 1200,
        "gain": gain,
        "verdict": verdict,
        "tokens_per_step": None if gain is None else 2.5,
        "tpot_s": {"p50": 0.0123},
        "tail_ratios": {},
    }


def state(class_id: str = "chat", model: str = "m") -> dict[str, Any]:
    """One class on two pools."""
    entry = {
        "class": class_id,
        "requests": 2400,
        "cells": [cell("plain", None, None), cell("fast", GAIN, "gain")],
        "segments": [],
        "bands": {},
    }
    route = {"model": model, "policy": "thompson", "baseline": "plain", "classes": [entry]}
    return {"time": 1_800_000_000.0, "window_s": 3600, "routes": [route]}


def test_figures_intervals_and_the_best_pool() -> None:
    """As in the state; what was not measured is a dash."""
    made = state()
    page = html(made, report(made))
    assert "+40% [+30%, +50%]" in page
    assert "fast</bdi> (best)" in page
    assert '<td class="number">–</td>' in page
    assert "12.3 ms" in page
    assert "2027-01-15 08:00 UTC" in page


def test_names_are_text() -> None:
    """Markup in names does nothing, and the page may load nothing."""
    hostile = "<script>alert(1)</script>"
    made = state(hostile, hostile)
    page = html(made, report(made))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "default-src 'none'" in page


def test_nothing_measured_is_said() -> None:
    """A route without a class."""
    made = state()
    made["routes"][0]["classes"] = []
    assert "No request has been measured yet." in html(made, report(made))
