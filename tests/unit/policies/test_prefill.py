"""Time to first token: what a request adds, and what the model promises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.verify_models import prefill_sums
from policies.estimators.cells import add_counts
from policies.estimators.prefill import (
    FIELDS,
    FIXED_POINT,
    MOST_SLOW,
    MOST_TOKENS,
    PrefillModel,
    increments,
)
from policies.types import ArmId, ClassId, Counts, Status, Trial

TRIAL = Trial(
    ClassId("chat"),
    ArmId("fast"),
    Status.OK,
    streamed=True,
    propensity=0.5,
    ttft_s=0.5,
    load=4,
    waiting=1,
    prompt_tokens=1050,
    cached_tokens=800,
)


def blocks(
    *,
    count: int = 24,
    requests: int = 40,
    told: tuple[str, ...] = ("cached", "waiting"),
    seed: int = 0,
) -> list[tuple[float, dict[int, Counts]]]:
    """Requests of 20 ms, 0.1 ms for an uncached token, 1 us for a cached one, 50 ms in the queue."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        cells: dict[int, Counts] = {}
        for _ in range(requests):
            prompt = int(np.exp(rng.normal(6.0, 1.0))) + 10
            cached = int(prompt * rng.choice([0.0, 0.5, 0.9]))
            waiting = int(rng.poisson(0.5))
            mean = 0.02 + 1e-4 * (prompt - cached) + 1e-6 * cached + 0.05 * waiting
            trial = replace(
                TRIAL,
                prompt_tokens=prompt,
                cached_tokens=cached if "cached" in told else None,
                waiting=waiting if "waiting" in told else None,
                ttft_s=mean * float(np.exp(0.1 * rng.standard_normal() - 0.005)),
            )
            cells[1] = add_counts(cells.get(1, {}), increments(trial))
        found.append((1.0, cells))
    return found


def test_a_request_adds_products_of_figures_divided_by_their_scale() -> None:
    """0.25 s, 250 tokens at 1 ms, 800 cached ones at an eighth, one that waits: 0.85 s."""
    sums = increments(TRIAL)
    assert sums["pf.cw.n"] == 1
    one, u, k, y = (round(FIXED_POINT * figure / 0.85) for figure in (1.0, 0.25, 0.8, 0.5))
    assert sums["pf.cw.11"] == one * one
    assert sums["pf.cw.uk"] == u * k
    assert sums["pf.cw.wy"] == one * y
    assert sums["pf.cw.yy"] == y * y
    assert set(sums) <= FIELDS


@pytest.mark.parametrize(
    ("cached", "waiting", "kind"),
    [(800, 1, "cw"), (800, None, "c"), (None, 1, "w"), (None, None, "p"), (0, 0, "cw")],
)
def test_what_an_engine_does_not_tell_makes_another_kind_of_sums(
    cached: int | None, waiting: int | None, kind: str
) -> None:
    """Unknown is not 0: the two are never added up."""
    sums = increments(replace(TRIAL, cached_tokens=cached, waiting=waiting))
    assert {name.split(".")[1] for name in sums} == {kind}
    assert set(sums) <= FIELDS


@pytest.mark.parametrize(
    "changes",
    [
        {"status": Status.ABORTED},
        {"streamed": False},
        {"load": None},
        {"ttft_s": None},
        {"ttft_s": float("inf")},
        {"ttft_s": -1.0},
        {"prompt_tokens": None},
        {"prompt_tokens": 0},
        {"prompt_tokens": MOST_TOKENS + 1},
        {"cached_tokens": -1},
        {"cached_tokens": 1051},
        {"waiting": -1},
    ],
)
def test_a_request_that_cannot_tell_adds_nothing(changes: dict[str, Any]) -> None:
    """Missing and impossible figures alike."""
    assert increments(replace(TRIAL, **changes)) == {}


def test_an_absurd_time_is_cut() -> None:
    """At so many times what such a request may take at a slow server."""
    sums = increments(replace(TRIAL, ttft_s=1e6))
    assert sums["pf.cw.yy"] == round((MOST_SLOW * FIXED_POINT) ** 2)


@pytest.mark.parametrize("prompt", [1, 1000, MOST_TOKENS])
def test_ten_million_of_the_largest_requests_fit_into_62_bits(prompt: int) -> None:
    """Whatever their prompts, caches and queues."""
    for cached in (0, prompt // 2, prompt):
        for waiting in (0, 10**9):
            sums = increments(
                replace(
                    TRIAL, prompt_tokens=prompt, cached_tokens=cached, waiting=waiting, ttft_s=1e9
                )
            )
            assert max(sums.values()) * 10_000_000 < 2**62


def test_sums_in_bulk_are_those_of_the_requests_one_by_one() -> None:
    """What the checks measure is what the product adds, but for roundings."""
    rng = np.random.default_rng(1)
    shape = (2, 30)
    load, waiting = rng.integers(1, 60, shape), rng.integers(0, 4, shape)
    uncached, cached = rng.integers(1, 3000, shape), rng.integers(0, 3000, shape)
    ttft_s = rng.random(shape)
    for index, (_, bands) in enumerate(prefill_sums(load, uncached, cached, waiting, ttft_s)):
        sums: Counts = {}
        for column in range(shape[1]):
            at = (index, column)
            trial = replace(
                TRIAL,
                load=int(load[at]),
                waiting=int(waiting[at]),
                prompt_tokens=int(uncached[at] + cached[at]),
                cached_tokens=int(cached[at]),
                ttft_s=float(ttft_s[at]),
            )
            sums = add_counts(sums, increments(trial))
        bulk: Counts = {}
        for cell in bands.values():
            bulk = add_counts(bulk, cell)
        assert set(bulk) == set(sums)
        assert all(abs(bulk[name] - sums[name]) <= 1 for name in sums)


def test_the_coefficients_are_found() -> None:
    """What a token takes, cached or not, a place in the queue, and all else."""
    found = PrefillModel.of(blocks())
    assert found is not None
    cached, waiting = found.per_cached_token(), found.per_waiting()
    assert cached is not None
    assert waiting is not None
    assert found.per_token().value == pytest.approx(1e-4, rel=0.05)
    assert cached.value == pytest.approx(1e-6, abs=3e-6)
    assert waiting.value == pytest.approx(0.05, rel=0.1)
    assert found.fixed(4).value == pytest.approx(0.02, rel=0.1)
    seen = found.predict(1000, 500, 2, 4)
    assert seen.mean == pytest.approx(0.02 + 0.05 + 5e-4 + 0.1, rel=0.05)
    assert seen.low is not None
    assert seen.high is not None
    assert seen.low < seen.mean < seen.high
    assert not seen.extrapolated
    assert found.misfit is not None


def test_what_is_not_given_is_taken_as_usual() -> None:
    """The share of cached tokens, the queue and the load."""
    found = PrefillModel.of(blocks())
    assert found is not None
    usual = found.predict(1000)
    assert found.predict(1000, 1000).mean < usual.mean < found.predict(1000, 0).mean
    assert found.predict(1000, None, 0).mean < usual.mean < found.predict(1000, None, 4).mean


def test_an_engine_that_tells_little_has_a_smaller_model() -> None:
    """What it does not tell has no coefficient, and is not used where it is given."""
    found = PrefillModel.of(blocks(told=()))
    assert found is not None
    assert (found.kind, found.per_cached_token(), found.per_waiting()) == ("p", None, None)
    assert found.predict(1000, 900, 5, 4) == found.predict(1000, None, None, 4)


def test_the_kind_with_most_requests_is_used() -> None:
    """An engine may tell of its cache in some answers only."""
    few, many = blocks(count=2), blocks(count=20, told=("waiting",))
    found = PrefillModel.of([*few, *many])
    assert found is not None
    assert found.kind == "w"


def test_a_prompt_far_longer_than_all_seen_is_an_extrapolation() -> None:
    """The line may bend where nobody has been."""
    found = PrefillModel.of(blocks())
    assert found is not None
    assert found.predict(200_000, 0, 0, 4).extrapolated
    assert found.predict(500, 0, 500, 4).extrapolated


def test_a_load_that_was_not_seen_has_an_interval_as_wide_as_the_prior() -> None:
    """The band's own level is not known."""
    found = PrefillModel.of(blocks())
    assert found is not None
    seen, unseen = found.fixed(4), found.fixed(60)
    assert seen.low is not None
    assert seen.high is not None
    assert unseen.low is not None
    assert unseen.high is not None
    assert unseen.high - unseen.low > 10 * (seen.high - seen.low)


def test_no_sums_give_no_model() -> None:
    """Nor do sums that cannot be true."""
    assert PrefillModel.of([]) is None
    assert PrefillModel.of([(1.0, {1: {}})]) is None
    sums = increments(TRIAL)
    assert PrefillModel.of([(1.0, {1: {**sums, "pf.cw.1u": 10**14}})]) is None
    assert PrefillModel.of([(1.0, {1: {**sums, "pf.cw.yy": -1}})]) is None
    alone = PrefillModel.of([(1.0, {1: sums})])
    assert alone is not None
    assert (alone.per_token().low, alone.per_token().high) == (None, None)


@pytest.mark.parametrize("seed", range(40))
def test_times_and_weights_that_no_engine_has_give_figures_or_none(seed: int) -> None:
    """Nothing is raised, whatever was stored: bounds are in order, or there are none.

    Among others that rows of a few kinds, whose directions rest on roundings, leave a variance
    below 0.
    """
    rng = np.random.default_rng(seed)
    for _ in range(12):
        shortest = rng.uniform(-9.0, 0.0)
        longest = shortest + rng.uniform(0.0, 9.0)
        lightest = rng.choice([0.0, -1.0, -12.0, -300.0])
        prompts, loads = rng.choice([1, 2, 3, 21, 750, 10**6], 2), rng.integers(0, 5000, 2)
        found = []
        for _ in range(int(rng.integers(1, 40))):
            cells: dict[int, Counts] = {}
            for band in rng.integers(0, 9, 2):
                trial = replace(
                    TRIAL,
                    ttft_s=float(10.0 ** rng.uniform(shortest, longest)),
                    load=int(rng.choice(loads)),
                    prompt_tokens=int(rng.choice(prompts)),
                    cached_tokens=None if seed % 2 else 0,
                    waiting=None if seed % 3 else int(rng.integers(0, 10**9)),
                )
                cells[int(band)] = add_counts(cells.get(int(band), {}), increments(trial))
            found.append((float(10.0 ** rng.uniform(lightest, 0.0)), cells))
        model = PrefillModel.of(found)
        if model is not None:
            for interval in (model.per_token(), model.fixed(), model.fixed(3)):
                assert (
                    interval.low is None or interval.high is None or interval.low <= interval.high
                )
            assert model.predict(10**6).mean >= 0.0
