"""What is shown of a cell."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from policies.estimators.cells import CellSums, add_counts, increments
from policies.estimators.tau import Tau
from policies.types import Arm, Source, SpecUsage, Status, Trial
from router.estimates.summary import Acceptance, acceptance_of
from tests.support.builders import CHAT, FAST

ARM = Arm(FAST, "draft_model", num_speculative_tokens=3)
TRIAL = Trial(CHAT, FAST, Status.OK, True, 0.5, tokens=100, spec=SpecUsage(steps=40))  # noqa: FBT003


@dataclass(frozen=True)
class Counted:
    """What counters told."""

    value: float = 2.0
    low: float = 1.5
    high: float = 2.5
    tokens: float = 900.0


def acceptance(*trials: Trial, arm: Arm = ARM, counted: Counted | None = None) -> Acceptance:
    """Of an arm that gave these answers."""
    sums: dict[str, int] = {}
    for trial in trials:
        sums = add_counts(sums, increments(trial, 100))
    return acceptance_of(arm, CellSums.of(sums), by_parts=None, counted=counted)


STREAMED = replace(TRIAL, spec=SpecUsage(steps=50, source=Source.STREAM))


@pytest.mark.parametrize(
    ("trials", "counted", "expected"),
    [
        ((TRIAL, STREAMED), Counted(), (Source.REQUEST, 2.5, 1, 100)),
        ((STREAMED, STREAMED), Counted(), (Source.STREAM, 2.0, 2, 200)),
        ((), Counted(), (Source.COUNTERS, 2.0, 0, 900)),
        ((), None, (None, None, 0, 0)),
    ],
)
def test_the_best_source_is_shown(
    trials: tuple[Trial, ...], counted: Counted | None, expected: tuple[object, ...]
) -> None:
    """Request before stream before counters, with what is behind it; all are kept."""
    found = acceptance(*trials, counted=counted)
    tau = found.tau.value if found.tau else None
    assert (found.source, tau, found.requests, found.tokens) == expected
    assert (Source.COUNTERS in found.taus) is (counted is not None)


def test_counters_bring_their_interval() -> None:
    """And the alpha that equal positions would have, with its own."""
    found = acceptance(counted=Counted())
    assert found.tau == Tau(2.0, 1.5, 2.5)
    equal = found.equal_alpha
    assert equal is not None
    assert equal.low is not None
    assert equal.high is not None
    assert equal.low < equal.value < equal.high
    assert (found.rate, found.form) == (equal.value, "equal_alpha")


def test_the_bounds_of_alpha_stay_between_none_and_all() -> None:
    """However wide the interval of tau is."""
    equal = acceptance(counted=Counted(low=0.2, high=9.0)).equal_alpha
    assert equal is not None
    assert equal.low == pytest.approx(0.0)
    assert equal.high == pytest.approx(1.0)
    assert acceptance(counted=Counted(value=6.0)).equal_alpha is None


def test_tau_by_parts_takes_the_place_of_the_plain_one() -> None:
    """Its interval is the narrower: the mix of parts is known. Without an interval it does not."""
    cell = CellSums.of(increments(TRIAL, 100))
    own, of_class = Tau(2.5, 2.4, 2.6), Tau(2.0, 1.9, 2.1)
    found = acceptance_of(ARM, cell, by_parts=(own, of_class), counted=None)
    assert (found.tau, found.tau_of_class) == (own, of_class)
    thin = acceptance_of(ARM, cell, by_parts=(Tau(2.5), Tau(2.0)), counted=None)
    assert (thin.tau, thin.tau_of_class) == (Tau(2.5), Tau(2.0))
