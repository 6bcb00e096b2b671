"""The page about an experiment."""

from __future__ import annotations

from typing import Any

from router.cli.orders import plan_lines
from router.experiments.desk import ExperimentDesk
from router.experiments.model import NO_CONTROL, ExperimentName
from router.experiments.report import gain_text, markdown, variant_text
from router.stores.memory import MemoryStore
from tests.support.clock import ManualClock

PLAN: dict[str, Any] = {
    "name": "try",
    "model": "m|n",
    "hypothesis": "it is faster",
    "treatment": {"policy": "fixed", "parameters": {"arm": "fast"}},
    "tenants": ["acme"],
    "groups": ["paying"],
}
LOOK: dict[str, Any] = {
    "at": 0.0,
    "missing_units": 3,
    "classes": {"chat": {"value": 0.1, "low": 0.02, "high": 0.2}, "math": None},
    "metrics": {"cost": None, "ttft": {"value": 0.05, "low": -0.1, "high": 0.1}},
    "ended": {"control": {"ok": 9, "failed": 1}, "treatment": {}},
    "structure": {
        "control": {"checked": 0, "invalid": 0, "finished": 0, "truncated": 0},
        "treatment": {"checked": 50, "invalid": 2, "finished": 51, "truncated": 1},
    },
    "evidence": {
        "control": 10,
        "treatment": 0,
        "gain": None,
        "guards": [
            {"kind": "error_rate", "limit": 0.01, "value": None, "low": None, "breached": False}
        ],
    },
}


async def shown() -> dict[str, Any]:
    """An experiment that somebody has started and stopped."""
    clock = ManualClock(0.0)
    desk = ExperimentDesk(MemoryStore(clock), "p", clock.wall, lambda _: None)
    await desk.start(PLAN, "ops")
    return await desk.stop(ExperimentName("try"), "ops", "a | b\nc")


async def test_a_page_before_anybody_has_looked() -> None:
    """It says so; what people wrote cannot break its tables."""
    page = markdown(await shown())
    assert page.startswith("# Experiment try: rolled back\n\nit is faster\n")
    assert "Nobody has looked yet." in page
    assert "| model | m\\|n |" in page
    assert "| treatment | policy fixed (arm fast) |" in page
    assert "| whose requests | acme, group paying |" in page
    assert "| 1970-01-01 00:00:00 UTC | ops | stopped | a \\| b c |" in page


async def test_a_page_with_figures() -> None:
    """What is not known is not 0."""
    page = markdown({**await shown(), "look": LOOK})
    assert "- gain, chat: +10.0% of the time saved (+2.0% to +20.0%)" in page
    assert "- gain, math: not enough data" in page
    assert "- besides, by ttft: +5.0% of the time to the first token saved" in page
    assert "| decided by | cost: time |" in page
    assert "- requests of control by how they ended: 9 ok, 1 failed" in page
    assert "- requests of treatment by how they ended: none" in page
    assert "- bad answers of control, since the start: 1 failed\n" in page
    assert (
        "- bad answers of treatment, since the start: 0 failed, 2 of 50 lacked the structure "
        "demanded, 1 of 51 with a structure were cut\n"
    ) in page
    assert "| error_rate | 0.01 | – | – | no |" in page
    assert "named no unit, in one process: 3" in page


def test_variants_and_gains_in_words() -> None:
    """As the command line shows them too."""
    nothing = {"arm": None, "policy": None, "off": False, "default": True}
    assert variant_text(nothing) == "what the route does anyway"
    assert variant_text({**nothing, "arm": "fast"}) == "pool fast"
    assert gain_text({"value": -0.1, "low": -0.2, "high": 0.0}).startswith("-10.0%")


async def test_a_page_says_where_nothing_is_compared() -> None:
    """As the command line and the dashboard do, by the same notes."""
    clock = ManualClock(0.0)
    desk = ExperimentDesk(MemoryStore(clock), "p", clock.wall, lambda _: None)
    stages = [{"share": 0.5}, {"share": 1.0}]
    begun = await desk.start({**PLAN, "stages": stages}, "ops")
    assert begun["notes"] == []
    full = await desk.ramp(ExperimentName("try"), "ops", None)
    assert full["notes"] == [NO_CONTROL]
    assert "**No control left: nothing is compared" in markdown(full)
    lines = plan_lines(await desk.plan({**PLAN, "name": "next", "stages": stages}))
    assert any(line.startswith("stage 0, 50%: a gain of 5% shows") for line in lines)
    assert any(line.startswith(f"stage 1, 100%: {NO_CONTROL}; lasts") for line in lines)
    assert any(line.startswith("how alike requests of a unit are is not known") for line in lines)
