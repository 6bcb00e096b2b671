"""Who is on which side: the same everywhere, and only a ramp moves anybody."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from policies.estimators.clusters import BUCKETS
from policies.types import ArmId, ClassId
from router.experiments.assign import Asker, Assignment, Unassigned, assign, point
from router.experiments.model import (
    Experiment,
    ExperimentName,
    Plan,
    Stage,
    Standing,
    Status,
    Treatment,
    Unit,
    Variant,
)
from router.types import ANONYMOUS, TenantId

STAGES = (Stage(0.05), Stage(0.5), Stage(1.0))
UNITS = tuple(f"user-{number}" for number in range(4000))


def experiment(stage: int = 0, status: Status = Status.RUNNING, **plan: Any) -> Experiment:
    """An experiment in one of its stages."""
    made = Plan(
        ExperimentName("try"), "m", "why", Treatment(arm=ArmId("fast")), stages=STAGES, **plan
    )
    return Experiment(made, Standing(status, stage, 0.0))


def asker(unit: str | None = "user-1", **more: Any) -> Asker:
    """A request of a session."""
    units = {} if unit is None else {Unit.SESSION: unit}
    given = {"model": "m", "tenant": ANONYMOUS, "group": "", "class_id": ClassId("chat")}
    return Asker(**{**given, "units": units, **more})


def treated(of: Experiment) -> set[str]:
    """The units that are treated."""
    return {
        unit
        for unit in UNITS
        if getattr(assign([of], asker(unit)), "variant", None) is Variant.TREATMENT
    }


def test_points_do_not_change_between_versions() -> None:
    """Another hash would throw everybody to another side in the middle of an experiment."""
    assert point("a", "user-1") == pytest.approx(0.70763, abs=1e-5)


def test_the_share_is_the_one_asked_for() -> None:
    """Within four standard errors."""
    for stage, share in enumerate(each.share for each in STAGES):
        found = len(treated(experiment(stage))) / len(UNITS)
        assert abs(found - share) <= 4 * math.sqrt(share * (1 - share) / len(UNITS))


def test_a_ramp_keeps_everybody_who_was_in() -> None:
    """5 to 50 to 100 %: nobody leaves."""
    few, half, everyone = (treated(experiment(stage)) for stage in range(3))
    assert few < half < everyone
    assert everyone == set(UNITS)


def test_experiments_are_independent_of_each_other() -> None:
    """Half of one's treated are treated in another."""
    one = treated(experiment(1))
    other = treated(experiment(1, salt="other"))
    assert abs(len(one & other) / len(one) - 0.5) < 0.05


def test_a_layer_shares_no_unit() -> None:
    """What one takes the other leaves, whatever their shares."""
    first = experiment(2, layer="l", layer_range=(0.0, 0.4))
    second = experiment(2, layer="l", layer_range=(0.4, 1.0), salt="x")
    one, other = treated(first), treated(second)
    assert not one & other
    assert one | other == set(UNITS)
    assert abs(len(one) / len(UNITS) - 0.4) < 0.04


def test_the_first_that_concerns_a_request_has_it() -> None:
    """In the order given, past those of other units of the layer."""
    first = experiment(2, layer="l", layer_range=(0.0, 0.4))
    rest = replace(first.plan, name=ExperimentName("rest"), layer_range=(0.4, 1.0))
    both = [first, Experiment(rest, first.standing)]
    names = {assign(both, asker(unit)).experiment for unit in UNITS[:100]}  # type: ignore[union-attr]
    assert names == {"try", "rest"}


def test_a_request_without_the_unit_is_told_apart() -> None:
    """It is in no variant, and can be counted."""
    assert assign([experiment()], asker(None)) == Unassigned(ExperimentName("try"))


@pytest.mark.parametrize(
    "more",
    [
        {"model": "other"},
        {"class_id": ClassId("math")},
        {"tenant": TenantId("t2"), "group": "beta"},
    ],
)
def test_others_are_left_alone(more: dict[str, Any]) -> None:
    """Other models, classes and tenants."""
    of = experiment(2, classes=(ClassId("chat"),), tenants=(ANONYMOUS,))
    assert assign([of], asker()) is not None
    assert assign([of], asker(**more)) is None


def test_a_group_is_enough() -> None:
    """Tenants are named, or their group is; having no group is no group."""
    of = experiment(2, groups=("beta",))
    assert assign([of], asker(tenant=TenantId("t2"), group="beta")) is not None
    assert assign([of], asker(tenant=TenantId("t2"))) is None


@pytest.mark.parametrize("status", [Status.DRAFT, Status.PAUSED, Status.ROLLED_BACK])
def test_nobody_is_in_what_does_not_run(status: Status) -> None:
    """Nobody is treated, nobody is counted."""
    assert assign([experiment(2, status)], asker()) is None


def test_text_that_is_no_text_is_still_a_unit() -> None:
    """Lone surrogates in a user's name change nothing."""
    assert 0.0 <= point("a", "\ud800") < 1.0


def test_a_unit_keeps_its_bucket_whatever_its_side() -> None:
    """So that sums of a bucket hold whole units; a request that is one by itself needs none."""
    few, half = ([assign([experiment(stage)], asker(unit)) for unit in UNITS] for stage in (0, 1))
    buckets = [of.bucket for of in few if isinstance(of, Assignment)]
    assert buckets == [of.bucket for of in half if isinstance(of, Assignment)]
    assert set(buckets) == set(range(BUCKETS))
    sides = {variant: Counter[int | None]() for variant in Variant}
    for of in half:
        assert isinstance(of, Assignment)
        sides[of.variant][of.bucket] += 1
    for counts in sides.values():
        # Both sides fill all buckets alike: chi-squared of 31 degrees of freedom.
        mean = sum(counts.values()) / BUCKETS
        assert sum((n - mean) ** 2 / mean for n in counts.values()) < 65.0
    alone = assign([experiment(unit=Unit.REQUEST)], replace(asker(), units={Unit.REQUEST: "r"}))
    assert isinstance(alone, Assignment)
    assert alone.bucket is None
