"""What a month's holdout says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.estimators.increments import FIXED_POINT
from router.estimates.layout import RouteKeys
from router.experiments.holdout import held_out_gain, month_of_all
from router.stores.base import Addition, Batch
from router.stores.memory import MemoryStore
from tests.support.clock import ManualClock


def sums(stem: str, y: np.ndarray[tuple[int], np.dtype[np.float64]]) -> dict[str, int]:
    """Log costs as the ledger holds them."""
    return {
        f"{stem}.y.s.n": len(y),
        f"{stem}.y.s.s": round(float(y.sum()) * FIXED_POINT),
        f"{stem}.y.s.q": round(float((y**2).sum()) * FIXED_POINT),
    }


def test_the_gain_is_that_of_the_world() -> None:
    """With an interval that holds it."""
    rng = np.random.default_rng(5)
    out, rest = rng.normal(1.0, 0.6, 500), rng.normal(1.0 + math.log(0.7), 0.6, 99_500)
    told = held_out_gain({**sums("out", out), **sums("rest", rest)})
    assert (told["held_out"], told["others"]) == (500, 99_500)
    assert told["gain"]["value"] == pytest.approx(0.3, abs=0.06)
    assert told["gain"]["low"] < 0.3 < told["gain"]["high"]
    assert told["gain"]["low"] > 0.1


@pytest.mark.parametrize("n", [0, 1, 4])
def test_too_few_say_nothing(n: int) -> None:
    """Neither do spoiled sums raise."""
    rest = sums("rest", np.full(100, 0.5))
    assert held_out_gain({**sums("out", np.full(n, 1.0)), **rest})["gain"] is None
    assert held_out_gain({"out.y.s.n": 9, "out.y.s.s": -(10**12), "out.y.s.q": -5, **rest})


async def test_months_are_read_by_model_and_tenant() -> None:
    """Names that nobody understands are no reason to fail."""
    store = MemoryStore(ManualClock())
    fields = {"acme|out.y.s.n": 3, "acme|rest.y.s.n": 8, "acme|n": 20, "odd": 1}
    key = RouteKeys("p", "m").month("2027-01")
    await store.add(Batch("w", 1, 100), [Addition({"": fields}, {key: 100})])
    found = await month_of_all(store, "p", ["m", "other"], "2027-01")
    assert found["m"]["acme"] == {"held_out": 3, "others": 8, "gain": None}
    assert found["other"] == {}
