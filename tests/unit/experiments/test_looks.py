"""The document of looks: what is kept of the past, and how much."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

from router.experiments.looks import MOST_EFFECTS, thinned
from router.stores.memory import MemoryStore
from tests.support.clock import ManualClock
from tests.support.trial_world import PLAN, TRY, TrialWorld

START = 1_800_000_000.0


async def looked(seconds: int, *, before: bytes | None = None) -> dict[str, Any]:
    """What is shown of an experiment after so long, where some document was there before."""
    clock = ManualClock(START)
    world = TrialWorld(MemoryStore(clock), clock, 2)
    if before is not None:
        await world.store.put("{p:experiments}:v1:look:try", before, expected=0)
    await world.desk.start({**PLAN, "stages": [{"share": 0.5, "min_requests": 10**6}]}, "ops")
    await world.refresh()
    await world.run(seconds, np.random.default_rng(3))
    look: dict[str, Any] = (await world.desk.shown(TRY))["look"]
    return look


async def test_the_past_of_the_effect_ends_in_the_last_look() -> None:
    """Whoever looked, one row a second at most; the newest is the evidence that is shown."""
    look = await looked(30)
    times = [effect[0] for effect in look["effects"]]
    assert times == sorted(set(times))
    assert len(times) > 1
    evidence = look["evidence"]
    gain = [evidence["gain"][of] for of in ("value", "low", "high")]
    assert look["effects"][-1] == [
        look["at"], 0, evidence["control"], evidence["treatment"], *gain
    ]  # fmt: skip


async def test_requests_are_said_to_be_split_as_planned() -> None:
    """With the evidence against it, and what would be an alarm."""
    ratio = (await looked(20))["sample_ratio"]
    assert (ratio["planned"], ratio["alarm_at"]) == (0.5, pytest.approx(2000.0))
    assert ratio["seen"] == pytest.approx(0.5, abs=0.1)
    assert ratio["e_value"] < 1.0


@pytest.mark.parametrize(
    "rubbish", [b"x", b"[]", b'{"evidence": 1, "effects": [[null, 0, 0, 0, 0, 0, 0], [1]]}']
)
async def test_a_document_that_nobody_understands_is_written_anew(rubbish: bytes) -> None:
    """Looks go on from what is understood of it, which is nothing."""
    look = await looked(3, before=rubbish)
    assert all(effect[0] >= START for effect in look["effects"])


def test_eight_days_of_looks_stay_few_and_even() -> None:
    """Row by row as looks come, the newest always there."""
    kept: list[list[float | int | None]] = []
    for at in range(0, 8 * 86_400, 7):
        kept = thinned([*kept, [START + at, 0, at, at, 0.1, 0.0, 0.2]])
        assert kept[-1][0] == START + at
        assert len(kept) <= MOST_EFFECTS
    times = np.array([of[0] for of in kept], dtype=float)
    assert len(kept) > MOST_EFFECTS / 3
    assert np.diff(times)[1:-1].max() <= 2 * np.diff(times)[1:-1].min()
    assert orjson.loads(orjson.dumps(kept)) == kept
