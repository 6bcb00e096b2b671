"""What a month's holdout says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.estimators.clusters import BUCKETS
from policies.estimators.increments import FIXED_POINT
from router.estimates.layout import RouteKeys
from router.experiments.holdout import held_out_gain, month_of_all, of_everybody
from router.stores.base import Addition, Batch
from router.stores.memory import MemoryStore
from router.types import TenantId
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


def month(
    rng: np.random.Generator,
    n: int,
    share: float,
    level: float,
    *,
    gain: float = 0.0,
    stems: tuple[str, str] = ("out", "rest"),
) -> dict[str, int]:
    """A tenant's, some of whose requests were held out."""
    held = rng.random(n) < share
    y = level + 0.4 * rng.standard_normal(n) + np.where(held, 0.0, math.log1p(-gain))
    return {**sums(stems[0], y[held]), **sums(stems[1], y[~held])}


SEEDS = range(20)


def test_tenants_that_hold_out_more_are_no_gain() -> None:
    """Nobody saves anything; those with long answers have the larger holdout."""
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        tenants = {
            TenantId("rag"): month(rng, 20_000, 0.05, math.log(12.0)),
            TenantId("chat"): month(rng, 80_000, 0.005, math.log(4.0)),
        }
        told = of_everybody(tenants)
        assert told["gain"]["low"] < 0.0 < told["gain"]["high"]
        assert abs(told["gain"]["value"]) < 0.1
        assert told["compared"] == 1.0


def test_the_gain_of_all_is_that_of_their_requests() -> None:
    """Not of those held out: a tenant counts by its traffic, and not where nothing was held out."""
    rng = np.random.default_rng(3)
    tenants = {
        TenantId("much"): month(rng, 80_000, 0.01, 1.0, gain=0.3),
        TenantId("little"): month(rng, 20_000, 0.2, 2.0),
        TenantId("none"): sums("rest", np.full(25_000, 9.0)),
    }
    told = of_everybody(tenants)
    truth = 1.0 - 0.7**0.8
    assert told["gain"]["value"] == pytest.approx(truth, abs=0.03)
    assert told["gain"]["low"] < truth < told["gain"]["high"]
    assert told["compared"] == pytest.approx(0.8)


def test_a_share_that_changed_in_a_month_is_no_gain() -> None:
    """Before it answers took a third of the time; nothing is saved."""
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        counts = {
            **month(rng, 60_000, 0.005, 0.0, stems=("out=5000", "rest=5000")),
            **month(rng, 20_000, 0.1, 1.1, stems=("out=100000", "rest=100000")),
        }
        gain = held_out_gain(counts)["gain"]
        assert gain["low"] < 0.0 < gain["high"]


def of_sessions(rng: np.random.Generator, *, by_bucket: bool) -> dict[str, int]:
    """A month of 5,000 sessions of twenty requests that are alike, a fiftieth held out."""
    sizes = 1 + rng.geometric(1.0 / 19.0, 5000)
    ids = np.repeat(np.arange(5000), sizes)
    held = (rng.random(5000) < 0.02)[ids]
    bucket = rng.integers(0, BUCKETS, 5000)[ids]
    y = 1.0 + 0.5 * rng.standard_normal(5000)[ids] + 0.3 * rng.standard_normal(len(ids))
    counts: dict[str, int] = {}
    for stem, mine in (("out=20000", held), ("rest=20000", ~held)):
        counts |= sums(stem, y[mine])
        for index in range(BUCKETS) if by_bucket else ():
            part = sums(f"{stem}.u{index:02d}", y[mine & (bucket == index)])
            counts |= {name: n for name, n in part.items() if not name.endswith("q")}
    return counts


def test_requests_of_a_session_are_alike() -> None:
    """So what is known is what sessions say; as many requests would say far more."""
    wrong = dict.fromkeys((True, False), 0)
    for seed in range(40):
        for by_bucket in wrong:
            counts = of_sessions(np.random.default_rng(seed), by_bucket=by_bucket)
            gain = held_out_gain(counts)["gain"]
            wrong[by_bucket] += not gain["low"] <= 0.0 <= gain["high"]
    assert wrong[True] <= 1
    assert wrong[False] >= 10


async def test_months_are_read_by_model_and_tenant() -> None:
    """Names that nobody understands are no reason to fail."""
    store = MemoryStore(ManualClock())
    fields = {"acme|out.y.s.n": 3, "acme|rest.y.s.n": 8, "acme|n": 20, "odd": 1}
    key = RouteKeys("p", "m").month("2027-01")
    await store.add(Batch("w", 1, 100), [Addition({"": fields}, {key: 100})])
    found = await month_of_all(store, "p", ["m", "other"], "2027-01")
    assert found["m"]["acme"] == {
        "held_out": 3,
        "others": 8,
        "gain": None,
        "compared": 0.0,
    }
    assert found["other"] == {}
