"""What a request adds besides to its class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policies.cost import typical_tokens
from policies.estimators.increments import effect_fields, increments
from policies.types import ArmId, ClassId, Counts, SpecUsage, Status, Trial
from router.estimates.extras import MAX_POINTS, Points, made_by, more_cells
from router.estimates.layout import COMMON
from router.estimates.made import Made
from tests.support.builders import CHAT, FAST, PLAIN, outcome


def trial(**more: Any) -> Trial:
    """A streamed answer of 101 tokens in 51 steps, one of 20 at its server."""
    given: dict[str, Any] = {
        "ttft_s": 0.2,
        "tpot_s": 0.01,
        "e2e_s": 1.2,
        "tokens": 101,
        "spec": SpecUsage(51, 150, 50),
        "load": 20,
        "prompt_tokens": 300,
    }
    return Trial(CHAT, FAST, Status.OK, streamed=True, propensity=0.5, **{**given, **more})


def cells(of: Trial) -> dict[tuple[ArmId, ClassId, str], Counts]:
    """Its further cells."""
    effects = effect_fields(increments(of, typical_tokens(CHAT)))
    return {(a, c, str(part)): sums for (a, c, part), sums in more_cells(of, effects, {PLAIN})}


def test_the_band_of_load_of_its_class_gets_what_bears_on_effects() -> None:
    """And the arm's own cell how long steps and prefill took."""
    made = cells(trial())
    assert set(made) == {(FAST, CHAT, "~3"), (FAST, COMMON, "~3")}
    assert made[FAST, CHAT, "~3"] == effect_fields(increments(trial(), typical_tokens(CHAT)))
    common = made[FAST, COMMON, "~3"]
    assert any(name.startswith("st.") for name in common)
    assert any(name.startswith("pf.") for name in common)


def test_an_arm_that_never_drafts_takes_a_step_for_each_token() -> None:
    """Whether its engine says so or not; of a drafting one unknown steps stay unknown."""
    silent = trial(spec=None)
    plain = cells(replace(silent, arm_id=PLAIN))[PLAIN, COMMON, "~3"]
    assert plain["st.5.s"] == 10_000
    fast = cells(silent)[FAST, COMMON, "~3"]
    assert not [name for name in fast if name.startswith("st.")]


def test_a_failure_counts_in_its_band_alone() -> None:
    """It took no time that says anything."""
    failed = Trial(CHAT, FAST, Status.FAILED, streamed=True, propensity=0.5, load=1)
    assert set(cells(failed)) == {(FAST, CHAT, "~0")}


def test_without_load_there_is_nothing() -> None:
    """An unknown load is no band."""
    assert cells(trial(load=None)) == {}


@pytest.mark.parametrize(
    ("more", "at_the_end", "expected"),
    [
        ({}, False, Made(101, 999.0, 1000.0)),
        ({}, True, Made(101, 1000.0, 1000.0)),
        ({"ttft_s": None, "overhead_s": 0.1}, False, Made(101, 998.9, 1000.0)),
        ({"ttft_s": None, "overhead_s": None}, False, Made(101, 998.8, 1000.0)),
    ],
)
def test_when_tokens_were_made(more: dict[str, Any], expected: Made, *, at_the_end: bool) -> None:
    """From the first content to the end, or at the end where the engine counts them then."""
    ended = replace(outcome(), **{"ttft_s": 0.2, "e2e_s": 1.2, **more})
    made = made_by(trial(), ended, 1000.0, at_the_end=at_the_end)
    assert made is not None
    assert (made.tokens, made.last_s) == (expected.tokens, expected.last_s)
    assert made.first_s == pytest.approx(expected.first_s)


def test_what_nobody_counted_is_claimed_for_nobody() -> None:
    """No tokens, no answer."""
    assert made_by(trial(tokens=None), outcome(), 1000.0, at_the_end=True) is None
    failed = replace(trial(), status=Status.ABORTED)
    assert made_by(failed, outcome(), 1000.0, at_the_end=True) is None


def test_the_first_requests_of_every_slot_arm_and_band_are_points_of_the_curves() -> None:
    """So that a crowd costs no more than what a curve needs."""
    points = Points()
    assert [points.take(1, FAST, 20) for _ in range(MAX_POINTS + 2)] == [
        *[True] * MAX_POINTS,
        *[False] * 2,
    ]
    others = points.take(1, PLAIN, 20), points.take(1, FAST, 1), points.take(2, FAST, 20)
    assert others == (True, True, True)
    assert not points.take(2, FAST, None)


def test_a_request_that_is_no_point_counts_in_its_class_all_the_same() -> None:
    """Only the arm's curves are made of fewer requests."""
    effects = effect_fields(increments(trial(), typical_tokens(CHAT)))
    [(key, sums)] = more_cells(trial(), effects, {PLAIN}, point=False)
    assert (key, sums) == ((FAST, CHAT, "~3"), effects)
