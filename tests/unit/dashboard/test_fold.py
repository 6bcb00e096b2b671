"""A stretch of the past as figures."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from policies.estimators.increments import increments
from policies.types import ArmId, ClassId, SpecUsage, Status, Trial
from router.dashboard.fold import Figures, fold
from router.estimates.layout import COMMON, Cells, merge_cells
from router.types import POOLED, SegmentId
from tests.support.builders import ARMS, CHAT, FAST, PLAIN


def cells(*trials: Trial) -> Cells:
    """Sums of some requests, with a part and common sums beside them."""
    made: Cells = {}
    for trial in trials:
        sums = increments(trial, 100)
        merge_cells(made, {(trial.arm_id, trial.class_id, POOLED): sums})
        merge_cells(made, {(trial.arm_id, trial.class_id, SegmentId("app")): sums})
    merge_cells(made, {(PLAIN, COMMON, POOLED): {"n": 1000}})
    return made


def trial(
    arm: ArmId = FAST, tpot_s: float = 0.01, class_id: ClassId = CHAT, status: Status = Status.OK
) -> Trial:
    """A streamed answer of a hundred tokens in fifty steps."""
    return Trial(
        class_id,
        arm,
        status,
        streamed=True,
        propensity=0.5,
        ttft_s=0.2,
        tpot_s=tpot_s,
        e2e_s=0.2 + 99 * tpot_s,
        tokens=100,
        spec=SpecUsage(steps=50) if arm == FAST else None,
    )


def folded(of: Cells, class_id: ClassId | None) -> Mapping[ArmId, Figures]:
    """The last piece."""
    *_, found = fold(of, ARMS, class_id)
    assert found is not None
    return found


def test_figures_of_a_class() -> None:
    """Requests are counted once, whatever parts they belong to; quantiles and tau are theirs."""
    found = folded(cells(trial(), trial(), trial(PLAIN, 0.02)), CHAT)[FAST]
    assert (found.requests, found.failed, found.tokens) == (2, 0, 200)
    assert found.tokens_per_step == pytest.approx(2.0)
    assert found.ttft_p50 == pytest.approx(0.2, rel=0.03)
    assert found.tpot_p95 == pytest.approx(0.01, rel=0.03)


def test_all_classes_together_have_no_gain() -> None:
    """Classes are unlike work: their requests add up, a gain over them means nothing."""
    found = folded(cells(trial(), trial(class_id=ClassId("code"))), None)
    assert found[FAST].requests == 2
    assert found[FAST].gain is None


def test_gain_is_against_the_baseline_of_the_stretch() -> None:
    """Many requests at half the time per token show a gain with bounds around it."""
    many = [trial(PLAIN, 0.02 + 0.0001 * i) for i in range(30)]
    many += [trial(FAST, 0.01 + 0.0001 * i) for i in range(30)]
    found = folded(cells(*many), CHAT)
    assert found[PLAIN].gain is None
    gain = found[FAST].gain
    assert gain is not None
    value, low, high = gain
    assert 0.3 < value < 0.6
    assert low < value < high


def test_what_was_not_measured_is_none() -> None:
    """A failed request has no duration, and nothing makes a zero of that."""
    found = folded(cells(trial(status=Status.FAILED)), CHAT)[FAST]
    assert (found.requests, found.failed) == (1, 1)
    assert found.ttft_p50 is None
    assert found.tokens_per_step is None
