"""Arms that a request must not use."""

from __future__ import annotations

from typing import Any

import pytest

from policies.types import ArmId
from router.fleet.state import FleetState
from router.selection.eligibility import LOSSY, NO_SERVER, QUARANTINED, excluded_arms
from tests.support.builders import FAST, PLAIN, pool, request, route_facts

LOGPROBS = "logprobs_wrong_under_speculation"


def excluded(
    *pools: dict[str, Any],
    down: tuple[str, ...] = (),
    fields: dict[str, Any] | None = None,
    quarantined: tuple[ArmId, ...] = (),
    **route: Any,
) -> dict[ArmId, str]:
    """What is excluded while the named pools do not answer."""
    facts = route_facts(*pools, **route)
    fleet = FleetState(facts)
    for name in down:
        for replica in facts.pools[ArmId(name)].replicas:
            fleet.mark(replica, up=False, now=0.0)
    asked = request(**(fields or {}))
    return dict(excluded_arms(facts, fleet, asked, quarantined=quarantined))


FAST_POOL = pool("fast", method="draft_model")


@pytest.mark.parametrize(
    ("fields", "down", "expected"),
    [
        ({}, (), {}),
        ({"logprobs": True}, (), {FAST: LOGPROBS}),
        ({}, ("fast",), {FAST: NO_SERVER}),
        ({"logprobs": True}, ("fast",), {FAST: LOGPROBS}),
        ({}, ("plain",), {PLAIN: NO_SERVER}),
        ({}, ("plain", "fast"), {FAST: NO_SERVER}),
        ({"logprobs": True}, ("plain",), {FAST: LOGPROBS}),
    ],
)
def test_reasons_of_the_request_come_before_those_of_the_fleet(
    fields: dict[str, Any], down: tuple[str, ...], expected: dict[ArmId, str]
) -> None:
    """At least one arm is always left, and with all gone it is the baseline."""
    assert excluded(pool("plain"), FAST_POOL, down=down, fields=fields) == expected


@pytest.mark.parametrize(("allowed", "expected"), [(False, {FAST: LOSSY}), (True, {})])
def test_a_lossy_pool_needs_consent(*, allowed: bool, expected: dict[ArmId, str]) -> None:
    """The route's owner gives it."""
    pools = (pool("plain"), pool("fast", method="medusa", lossless=False))
    assert excluded(*pools, allow_lossy=allowed) == expected


@pytest.mark.parametrize(
    ("down", "expected"),
    [
        ((), {FAST: QUARANTINED}),
        (("fast",), {FAST: QUARANTINED}),
        (("plain",), {FAST: QUARANTINED}),
    ],
)
def test_a_quarantined_pool_serves_nobody_and_the_baseline_everybody(
    down: tuple[str, ...], expected: dict[ArmId, str]
) -> None:
    """Whatever the fleet does; a baseline in quarantine is still the baseline."""
    barred = (FAST, PLAIN)
    assert excluded(pool("plain"), FAST_POOL, down=down, quarantined=barred) == expected


def test_no_property_of_a_request_excludes_the_baseline() -> None:
    """Not even where the baseline speculates or is lossy itself: something has to serve it."""
    pools = (pool("plain", method="ngram", lossless=False), FAST_POOL)
    assert excluded(*pools, fields={"logprobs": True}) == {FAST: LOGPROBS}


def test_an_arm_with_one_answering_server_is_available() -> None:
    """Half a pool is a pool."""
    facts = route_facts(pool("plain"), pool("fast", method="mtp", replicas=2))
    fleet = FleetState(facts)
    fleet.mark(facts.pools[FAST].replicas[0], up=False, now=0.0)
    assert excluded_arms(facts, fleet, request()) == {}
