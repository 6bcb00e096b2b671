"""Lines below the tables of `specroute status`."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from router.cli.status import class_table, render_state


def event(**more: Any) -> dict[str, Any]:
    """Something that was found."""
    return {
        "time": 5.0,
        "kind": "segment_differs",
        "class": "chat",
        "segment": "3fa2",
        "copying": False,
        "pool": "fast",
        "time_ratio": {"value": 0.61, "low": 0.5, "high": 0.75},
        "level": 0.99,
        "change": None,
        **more,
    }


ADMISSION = {
    "in_flight": 7,
    "waiting": 3,
    "limits": {"max_concurrent": 8, "max_concurrent_per_tenant": 5},
    "busiest": [
        {"tenant": "key-1", "in_flight": 5, "waiting": 3},
        {"tenant": "key-2", "in_flight": 2, "waiting": 0},
    ],
}


def shown(*events: dict[str, Any], states: tuple[str, ...] = ()) -> str:
    """What is printed of a route with these events, and servers in these states."""
    replicas = [{"id": f"p/{index}", "state": word} for index, word in enumerate(states)]
    pools = [{"name": "p", "replicas": replicas, "discovery_error": None}]
    return route_shown(pools if states else [], *events)


def route_shown(
    pools: list[dict[str, Any]],
    *events: dict[str, Any],
    concerns: tuple[dict[str, Any], ...] = (),
) -> str:
    """What is printed of a route with these pools, events and concerns."""
    route = {"model": "m", "policy": "thompson", "baseline": "plain", "pools": pools, "classes": []}
    state = {
        "version": "1",
        "data_url": "http://x",
        "ready": True,
        "store": {"url": "memory:", "up": True},
        "admission": ADMISSION,
        "config": None,
        "workers": [{"number": 0, "answers": True}],
        "routes": [{**route, "events": list(events), "concerns": list(concerns)}],
    }
    console = Console(width=400, record=True, file=StringIO())
    console.print(render_state(state))
    return console.export_text()


def test_places_and_who_waits_for_one() -> None:
    """An operator sees how full the proxy is, and whom a limit of their own stops."""
    assert "requests 7 of 8, waiting 3; at their limit: key-1" in shown()


def test_servers_that_work_are_counted() -> None:
    """One that is coming back counts as up; any other is named."""
    text = shown(states=("up", "up, 50%", "down", "open"))
    assert "servers up 2/4" in text
    assert "down: p/2" in text
    assert "p/3: open" in text


def test_a_segment_that_differs_is_a_line_below_the_table() -> None:
    """With its figures."""
    line = (
        "chat, segment 3fa2: pool fast takes 0.61 times (0.50 … 0.75) the time it takes in the "
        "rest of the class"
    )
    assert line in shown(event())
    assert "segment 3fa2, answers that repeat the request:" in shown(event(copying=True))
    assert "segment" not in shown()


def test_a_class_that_splits_is_a_line_too() -> None:
    """It names no segment."""
    line = shown(event(kind="class_splits", segment="", **{"class": "text_edit"}))
    assert "text_edit is two kinds of work" in line


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("quarantine", "pool fast gets no requests of chat: 9 of 90 invalid"),
        ("probation", "pool fast serves again, on probation, chat: 9 of 90 invalid"),
    ],
)
def test_a_quarantine_is_a_line_with_its_reason(kind: str, said: str) -> None:
    """Also once it is over and the pool is on probation."""
    found = event(kind=kind, segment="", time_ratio=None, level=None, why="9 of 90 invalid")
    assert said in shown(found)


def test_only_the_newest_are_shown() -> None:
    """All of them are in /api/state."""
    text = shown(*(event(time=float(i), segment=f"seg{i}x") for i in range(9)))
    assert [i for i in range(9) if f"seg{i}x" in text] == [4, 5, 6, 7, 8]


def test_engines_and_what_is_wrong_with_them_are_lines_too() -> None:
    """Once for each version of a pool; servers that have told nothing are left out."""
    detected = {"engine": "vllm", "version": "0.32.0"}
    replica = {"id": "plain/0", "state": "up", "detected": detected, "mismatch": ["it is not so"]}
    pools = [
        {"name": "plain", "replicas": [replica, {**replica, "mismatch": []}], "mismatch": []},
        {"name": "fast", "replicas": [{**replica, "detected": None}], "mismatch": ["they differ"]},
    ]
    lines = route_shown([{"discovery_error": None, **pool} for pool in pools]).splitlines()
    kept = [line.strip() for line in lines if "vllm" in line or ": " in line]
    assert "engines  plain: vllm 0.32.0" in kept
    assert "plain/0: it is not so" in kept
    assert "fast: they differ" in kept


def test_what_hurts_is_a_line_with_what_is_better() -> None:
    """Whether it changed, and then since when, or was so all along."""
    loss = {"value": -0.72, "low": -0.86, "high": -0.59}
    concern: dict[str, Any] = {
        "class": "code_gen",
        "pool": "dflash",
        "harm": "loss",
        "gain": loss,
        "tail": None,
        "since": 43_200.0,
        "measured_since": 43_200.0,
        "instead": {"pool": "mtp", "gain": {"value": 0.59, "low": 0.56, "high": 0.62}},
    }
    line = route_shown([], concerns=(concern,))
    assert "dflash costs time in code_gen (-72%" in line
    assert "since it changed about 12:00 UTC; code_gen is better off on mtp (+59%" in line
    tail = {"name": "ttft_p95", "value": 2.0, "low": 1.4, "high": 3.0}
    slow = {**concern, "harm": "tail", "tail": tail, "since": None}
    slow["instead"] = {"pool": "plain", "gain": None}
    line = route_shown([], concerns=(slow,))
    assert "dflash has a bad tail in code_gen (TTFT P95 2.00 times the baseline's)" in line
    assert "without a change since 12:00 UTC at the latest" in line
    assert "better off on plain, the baseline" in line


def test_a_drift_is_a_line_with_before_and_after() -> None:
    """And since when, in UTC."""
    change = {"figure": "tau", "since": 43_200.0, "before": 2.5, "after": 1.5}
    more: dict[str, Any] = {"kind": "drift", "time_ratio": None, "level": None}
    line = "chat: tokens per step of pool fast was 2.50 until 12:00 UTC and is 1.50 since"
    assert line in shown(event(change=change, **more))
    cost = {**change, "figure": "cost", "before": 0.6, "after": 1.1}
    assert "time against the baseline of pool fast was 60% until" in shown(
        event(change=cost, **more)
    )


@pytest.mark.parametrize(
    ("more", "share", "said"),
    [
        (True, 0.254, "40 +2 failed, 25% abandoned"),
        (False, 0.254, "40 +2 failed "),
        (None, None, "40 +2 failed "),
    ],
)
def test_why_a_gain_is_none_is_said_beside_the_answers(
    *, more: bool | None, share: float | None, said: str
) -> None:
    """Where answers are abandoned more often than the baseline's; a verdict alone says no reason."""
    quantiles = {"p50": None, "p95": None}
    cell = {
        "pool": "fast", "verdict": "not enough data", "ok": 40, "failed": 2, "since": None,
        "share": 0.5, "tokens_per_step": None, "acceptance_rate": None, "gain": None,
        "tpot_s": quantiles, "ttft_s": quantiles,
        "abandoned_share": share, "abandoned_more": more,
    }  # fmt: skip
    route = {"baseline": "plain", "classes": [{"class": "chat", "cells": [cell]}]}
    out = StringIO()
    Console(file=out, width=200).print(class_table(route, "m"))
    assert said in out.getvalue()
