"""Recommendations in words and as JSON."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from policies.fleet_plan import Change, Plan, Split
from policies.recommend import Bounds
from policies.types import ArmId, ClassId
from router.recommend.render import recommend, text, verdict
from tests.support.measured_state import cell, pool, route

SPLIT = Split({ClassId("chat"): ArmId("draft")}, 0.01, outside=False)


def state(draft: dict[str, Any] | None = None) -> dict[str, Any]:
    """Two pools and a class."""
    pools = [
        pool("plain", "none", None, baseline=True, slope=0.0004),
        draft or pool("draft", "eagle3", 3, slope=0.0004),
    ]
    cells = {"plain": cell(), "draft": cell(1.0 + 0.6 + 0.3 + 0.12)}
    return {"time": 1.0, "window_s": 60, "routes": [route(pools, chat=cells)]}


def test_everything_is_told_in_words_and_as_json() -> None:
    """A schedule, a flag, the fleet."""
    made = recommend(state())
    assert orjson.loads(orjson.dumps(made))["routes"][0]["pools"][0]["pool"] == "draft"
    said = text(made)
    assert "## draft: eagle3 on vllm, drafts of 3" in said
    assert "flag: --speculative-config" in said
    assert "  chat: " in said
    assert "classes where they are fastest: draft: chat" in said
    assert "the split" in said


def test_what_lacks_is_told_instead() -> None:
    """No advice without a curve."""
    said = text(recommend(state(pool("draft", "eagle3", 3) | {"step_time": None})))
    assert "not enough data: the time of its steps was not measured" in said
    assert "flag:" not in said
    assert "not enough data: fewer than two pools" in said


def change(*gain: float, shown: bool) -> Change:
    """All servers on one method."""
    return Change("all servers on draft", Bounds(*gain), shown, outside=False)


@pytest.mark.parametrize(
    ("single", "said"),
    [
        (change(0.2, 0.1, 0.3, shown=True), "the split loses: the same servers all on draft save"),
        (change(-0.2, -0.3, -0.1, shown=False), "the split pays: the best single method, draft,"),
        (change(0.01, -0.05, 0.05, shown=False), "no difference shows"),
        (change(0.3, -0.4, 0.8, shown=False), "split or single: not enough data: all servers on"),
    ],
)
def test_the_split_is_judged_against_the_best_single_method(single: Change, said: str) -> None:
    """It loses, it pays, or nobody can tell."""
    found = Plan(SPLIT, {ArmId("draft"): single})
    assert verdict(found).startswith(said)


def test_an_unknown_split_is_not_judged() -> None:
    """Not enough data."""
    assert verdict(Plan()) == "split or single: not enough data"
