"""What is settled about a request before a policy is asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from policies.estimators.clusters import BUCKETS
from policies.types import ArmId, ClassId
from router.experiments.cells import HOLDOUT, at_bucket, side_arm
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
from router.experiments.placing import (
    HELD_OUT,
    OFF,
    PINNED,
    TRIED,
    WISHED,
    Placed,
    Question,
    Rules,
    place,
)
from router.tenants.book import plan_key
from router.tenants.model import Rights, Tenant
from router.types import TenantId
from tests.support.builders import FAST, MODEL, PLAIN, classification, request

TRY = ExperimentName("try")
CONTROL = side_arm(HOLDOUT, 0, Variant.CONTROL)
ACME = Tenant(TenantId("acme"), known=True)


def trial(share: float = 1.0, *, epoch: int = 4, **plan: Any) -> Experiment:
    """An experiment that runs."""
    made = {"treatment": Treatment(arm=FAST), "unit": Unit.REQUEST, **plan}
    return Experiment(
        Plan(TRY, MODEL, "why", stages=(Stage(share),), salt="s", **made),
        Standing(Status.RUNNING, 0, 0.0, "", epoch),
    )


def placed(
    rules: Rules,
    tenant: Tenant = ACME,
    *,
    request_id: str = "r1",
    headers: tuple[tuple[str, str], ...] = (),
    several: bool = True,
    **fields: Any,
) -> Placed:
    """A request, settled."""
    asked = Question(tenant, request(**fields), classification(), request_id, headers)
    return place(rules, asked, baseline=PLAIN, several=several)


def test_without_anything_nothing_is_settled() -> None:
    """The policy decides, and no further cell is counted."""
    found = placed(Rules())
    assert (found.scope.forced, found.scope.plan, found.sides, found.told) == (None, None, (), "")


def test_the_kill_switch_comes_before_everything() -> None:
    """Wishes, pins and experiments included; nothing is compared while it is thrown."""
    tenant = replace(ACME, rights=Rights(pool=FAST, may_choose=True), holdout=0.5)
    rules = Rules(off=True, experiments=(trial(),))
    found = placed(rules, tenant, headers=(("x-specroute-pool", "fast"),))
    assert (found.scope.forced, found.scope.why, found.sides) == (PLAIN, OFF, ())


def test_treatment_and_control_do_what_the_plan_says() -> None:
    """And say so to the client; rights go with both."""
    rights = Rights(lossless_only=True)
    tenant = replace(ACME, rights=rights)
    treated = placed(Rules(experiments=(trial(1.0),)), tenant)
    assert (treated.scope.forced, treated.scope.why) == (FAST, TRIED)
    assert (treated.sides, treated.told) == (("@try/4/treatment",), "try/treatment")
    assert treated.scope.rights == rights
    control = placed(Rules(experiments=(trial(1e-9),)), tenant)
    assert (control.scope.forced, control.sides) == (None, ("@try/4/control",))


@pytest.mark.parametrize(
    ("does", "forced", "plan"),
    [
        (Treatment(off=True), PLAIN, None),
        (Treatment(arm=ArmId("fast")), FAST, None),
        (
            Treatment(policy="fixed", parameters=(("arm", "fast"),)),
            None,
            plan_key("fixed", {"arm": "fast"}),
        ),
    ],
)
def test_what_a_variant_does(does: Treatment, forced: ArmId | None, plan: str | None) -> None:
    """It takes the place of what the tenant was given otherwise, not of its rights."""
    tenant = replace(ACME, rights=Rights(pool=PLAIN))
    found = placed(Rules(experiments=(trial(treatment=does),)), tenant)
    assert (found.scope.forced, found.scope.plan) == (forced, plan)


def test_a_treatment_that_was_left_here_treats_and_counts_nobody() -> None:
    """Until the book says something newer: another epoch."""
    left = frozenset({(TRY, 4)})
    found = placed(Rules(experiments=(trial(),), left=left))
    assert (found.scope.forced, found.sides, found.told) == (None, (), "")
    found = placed(Rules(experiments=(trial(epoch=5),), left=left))
    assert found.sides == ("@try/5/treatment",)


def test_a_session_keeps_its_side_and_requests_without_a_unit_are_counted() -> None:
    """By what names the session in every process; another tenant's is another session."""
    rules = Rules(experiments=(trial(0.5, unit=Unit.SESSION),))
    for session in range(40):
        headers = (("x-specroute-session", str(session)),)
        sides = set()
        for turn in range(5):
            parsed = replace(request(), headers=headers)
            asked = Question(ACME, parsed, classification(), f"{session}-{turn}", ())
            sides |= set(place(rules, asked, baseline=PLAIN, several=True).sides)
        assert len(sides) == 1
    assert placed(rules).sides == ()
    assert rules.missing == Counter({"try": 1})


def test_the_holdout_has_its_share_and_is_in_no_experiment() -> None:
    """A session at a time; where there is none, a request, which is counted."""
    tenant = replace(ACME, holdout=0.25)
    rules = Rules(experiments=(trial(),))
    found = [placed(rules, tenant, request_id=f"r{n}") for n in range(4000)]
    held = [of for of in found if of.scope.why == HELD_OUT]
    assert 900 < len(held) < 1100  # mean 1000, sd 27
    buckets = {at_bucket(CONTROL, bucket, 0.25) for bucket in range(BUCKETS)}
    assert {of.sides for of in held} == {(side,) for side in buckets}
    others = {of.sides for of in found if of.scope.why != HELD_OUT}
    assert {sides[1] for sides in others} == {"@try/4/treatment"}
    assert {sides[0] for sides in others} == {
        side.replace("control", "treatment") for side in buckets
    }
    assert rules.missing[HOLDOUT] == 4000


def test_one_session_is_held_out_as_a_whole() -> None:
    """However many requests it has."""
    tenant = replace(ACME, holdout=0.5)
    found = {
        placed(Rules(), tenant, request_id=str(n), prompt_cache_key="k").sides for n in range(50)
    }
    assert len(found) == 1


def test_where_there_is_one_pool_there_is_nothing_to_compare() -> None:
    """No cell is counted in vain."""
    tenant = replace(ACME, holdout=0.5, rights=Rights(pool=PLAIN))
    found = placed(Rules(experiments=(trial(),)), tenant, several=False)
    assert (found.sides, found.scope.why) == ((), PINNED)


def test_a_wish_takes_a_request_out_of_every_comparison() -> None:
    """Since who chose it is not chance; a class alone is no choice of an arm."""
    tenant = replace(ACME, rights=Rights(may_choose=True), holdout=0.5)
    rules = Rules(experiments=(trial(),), class_ids=(ClassId("math"),))
    found = placed(rules, tenant, headers=(("x-specroute-pool", "fast"),))
    assert (found.scope.forced, found.scope.why, found.sides) == (FAST, WISHED, ())
    found = placed(rules, tenant, headers=(("x-specroute-class", "math"),))
    assert found.classification.class_id == "math"
    assert found.sides
    found = placed(rules, tenant, headers=(("x-specroute-class", "none"),))
    assert found.classification == classification()
