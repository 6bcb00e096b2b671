"""Drawing an arm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.base import Prepared
from policies.knowledge import Moment
from policies.types import ArmId, Proposal
from router.fleet.state import FleetState, Placement
from router.selection.chooser import Chooser
from router.selection.plans import Plan
from router.selection.scope import Scope
from router.tenants.model import Rights
from router.types import Decision, SegmentId
from tests.support.builders import CHAT, FAST, PLAIN, classification, pool, request, route_facts

THIRD = ArmId("third")
FACTS = route_facts(pool("plain"), pool("fast", method="draft_model"), pool("third", method="mtp"))


def plan(*probabilities: float, version: int = 1) -> Plan:
    """A plan that knows one class."""
    proposal = Proposal(np.array(probabilities), np.zeros(len(probabilities)))
    return Plan("thompson", version, FACTS.arms, {CHAT: proposal})


def choose(
    u: float, *probabilities: float, down: tuple[ArmId, ...] = (), class_id: str = "chat"
) -> Decision:
    """The decision for one drawn number."""
    fleet = FleetState(FACTS)
    for arm_id in down:
        fleet.mark(FACTS.pools[arm_id].replicas[0], up=False, now=0.0)
    chooser = Chooser(FACTS, fleet, plan(*probabilities), uniform=lambda: u)
    return chooser.choose(request(), classification(class_id))


@pytest.mark.parametrize(
    ("u", "expected"), [(0.0, PLAIN), (0.19, PLAIN), (0.2, FAST), (0.49, FAST), (0.5, THIRD)]
)
def test_an_arm_is_drawn_with_its_probability(u: float, expected: ArmId) -> None:
    """The decision records all that is needed to judge it later."""
    made = choose(u, 0.2, 0.3, 0.5)
    assert made.arm_id == expected
    assert made.probabilities == pytest.approx({PLAIN: 0.2, FAST: 0.3, THIRD: 0.5})
    assert made.propensity == made.probabilities[expected]
    assert (made.excluded, made.policy, made.snapshot_version) == ({}, "thompson", 1)


def test_the_mask_comes_before_the_draw() -> None:
    """What is recorded is what was drawn from: the eligible arms' shares, renormalised."""
    made = choose(0.9, 0.2, 0.3, 0.5, down=(THIRD,))
    assert made.arm_id == FAST
    assert made.probabilities == pytest.approx({PLAIN: 0.4, FAST: 0.6, THIRD: 0.0})
    assert made.excluded == {THIRD: "no_server_available"}


@pytest.mark.parametrize(
    ("down", "expected"),
    [((FAST,), PLAIN), ((FAST, PLAIN), THIRD), ((PLAIN, FAST, THIRD), PLAIN)],
)
def test_when_the_wanted_arms_are_gone_plain_decoding_comes_first(
    down: tuple[ArmId, ...], expected: ArmId
) -> None:
    """Then whatever still answers."""
    made = choose(0.5, 0.0, 1.0, 0.0, down=down)
    assert (made.arm_id, made.propensity) == (expected, 1.0)


def test_a_class_without_a_proposal_gets_the_baseline() -> None:
    """Whatever the policy thinks of others."""
    assert choose(0.99, 0.0, 1.0, 0.0, class_id="new").arm_id == PLAIN


@pytest.mark.parametrize(
    ("segment", "copy_ratio", "expected"),
    [("", 0.0, PLAIN), ("new", 0.0, PLAIN), ("a1", 0.0, FAST), ("a1", 0.9, THIRD)],
)
def test_a_segment_that_is_told_apart_has_its_own_shares(
    segment: str, copy_ratio: float, expected: ArmId
) -> None:
    """And so have its requests that will repeat much of their prompt."""
    shares = {"a1": [0.0, 1.0, 0.0], "a1+": [0.0, 0.0, 1.0]}
    parts = {
        (CHAT, SegmentId(part)): Proposal(np.array(p), np.zeros(3)) for part, p in shares.items()
    }
    made = replace(plan(1.0, 0.0, 0.0), parts=parts)
    chooser = Chooser(FACTS, FleetState(FACTS), made, uniform=lambda: 0.5)
    about = replace(classification(), copy_ratio=copy_ratio)
    assert chooser.choose(request(), about, SegmentId(segment)).arm_id == expected


def test_a_new_plan_counts_from_the_next_request_on() -> None:
    """It is swapped whole."""
    chooser = Chooser(FACTS, FleetState(FACTS), plan(1.0, 0.0, 0.0), uniform=lambda: 0.5)
    first = chooser.choose(request(), classification())
    chooser.plan = plan(0.0, 0.0, 1.0, version=2)
    second = chooser.choose(request(), classification())
    assert [(d.arm_id, d.snapshot_version) for d in (first, second)] == [(PLAIN, 1), (THIRD, 2)]


@given(
    st.floats(0, 1, exclude_max=True),
    st.lists(st.integers(0, 100), min_size=3, max_size=3).filter(any),
    st.sets(st.sampled_from([PLAIN, FAST, THIRD])),
)
def test_propensities_are_exact(u: float, weights: list[int], down: set[ArmId]) -> None:
    """They sum to 1, the drawn arm's is above 0, and excluded arms have none."""
    made = choose(u, *(weight / sum(weights) for weight in weights), down=tuple(down))
    assert sum(made.probabilities.values()) == pytest.approx(1.0)
    assert made.propensity == made.probabilities[made.arm_id] > 0
    assert all(made.probabilities[arm_id] == 0.0 for arm_id in made.excluded)


class Watching:
    """A prepared policy that sends requests to the arm with the least load, and keeps moments."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []

    def propose(self, moment: Moment) -> Proposal:
        """All to one arm."""
        self.moments.append(moment)
        best = int(np.argmin([load or 99 for load in moment.load]))
        return Proposal(np.eye(len(moment.load))[best], np.zeros(len(moment.load)))


class Broken:
    """A prepared policy with a flaw."""

    def propose(self, moment: Moment) -> Proposal:
        """Fails."""
        raise ZeroDivisionError(moment)


def asked(prepared: Prepared, fleet: FleetState) -> Decision:
    """The decision of a policy that looks at the moment."""
    made = replace(plan(1.0, 0.0, 0.0), prepared=prepared)
    chooser = Chooser(FACTS, fleet, made, uniform=lambda: 0.5)
    body = request(messages=[{"role": "user", "content": "x" * 5000}])
    return chooser.choose(body, classification("chat"), SegmentId("a1"))


def test_a_policy_of_moments_is_told_what_the_request_would_meet() -> None:
    """And the decision keeps the load by arm, so that it can be judged later."""
    fleet, watching = FleetState(FACTS), Watching()
    held = [fleet.lease(arm, now=0.0) for arm in (PLAIN, PLAIN, THIRD)]
    made = asked(watching, fleet)
    assert (made.arm_id, made.loads) == (FAST, (3, 1, 2))
    [moment] = watching.moments
    assert (moment.class_id, moment.part, moment.load) == (CHAT, "a1", (3, 1, 2))
    assert moment.prompt_tokens > 1000
    assert len(held) == 3


def test_the_beginnings_of_a_prompt_are_worked_out_once() -> None:
    """The relay places by the same hashes, and the next turn finds what is cached."""
    fleet, watching = FleetState(FACTS), Watching()
    first = asked(watching, fleet)
    assert first.prefix
    lease = fleet.lease(first.arm_id, Placement(first.prefix, 5000), now=fleet._clock.monotonic())
    assert lease is not None
    asked(watching, fleet)
    cached = watching.moments[-1].cached_tokens
    assert cached[FACTS.arms.index(FACTS.pools[first.arm_id].arm)] > 1000


def test_a_policy_that_fails_for_a_moment_costs_the_choice_alone() -> None:
    """Plain decoding serves."""
    assert asked(Broken(), FleetState(FACTS)).arm_id == PLAIN


def test_a_mask_holds_for_policies_of_moments_too() -> None:
    """An arm without a server is never drawn, whatever is proposed."""
    fleet = FleetState(FACTS)
    fleet.mark(FACTS.pools[FAST].replicas[0], up=False, now=0.0)
    made = asked(Watching(), fleet)
    assert made.arm_id in (PLAIN, THIRD)
    assert made.excluded == {FAST: "no_server_available"}
    assert made.loads is not None
    assert made.loads[1] == 0


def test_who_is_held_out_is_kept_by_where_the_policy_leaned() -> None:
    """So that it is a control for what was sent at such moments; a wish is a control for nothing."""
    made = replace(plan(1.0, 0.0, 0.0), prepared=Watching())
    chooser = Chooser(FACTS, FleetState(FACTS), made, uniform=lambda: 0.5)
    drawn = chooser.choose(request(), classification("chat"))
    held, wished = (
        chooser.choose(
            request(), classification("chat"), scope=Scope(forced=PLAIN, why="w", by_lot=by_lot)
        )
        for by_lot in (True, False)
    )
    assert drawn.lean
    assert (held.arm_id, held.lean, held.moment) == (PLAIN, drawn.lean, None)
    assert wished.lean == ""
    unexplored = chooser.choose(
        request(), classification("chat"), scope=Scope(Rights(explore=False))
    )
    assert unexplored.lean == f"{drawn.lean}s"
    classless = Chooser(FACTS, FleetState(FACTS), plan(0.2, 0.7, 0.1), uniform=lambda: 0.5)
    assert classless.choose(request(), classification("chat")).lean == ""


def test_who_is_not_explored_with_gets_what_is_preferred() -> None:
    """No chance, and it says so; what the policy was asked about is kept all the same."""
    scope = Scope(Rights(explore=False))
    chooser = Chooser(FACTS, FleetState(FACTS), plan(0.2, 0.7, 0.1), uniform=lambda: 0.05)
    made = chooser.choose(request(), classification("chat"), scope=scope)
    assert (made.arm_id, made.propensity, made.drawn) == (FAST, 1.0, False)
    prepared = replace(plan(1.0, 0.0, 0.0), prepared=Watching())
    chooser = Chooser(FACTS, FleetState(FACTS), prepared, uniform=lambda: 0.05)
    of_moment = chooser.choose(request(), classification("chat"), scope=scope)
    assert of_moment.moment is not None
    assert of_moment.loads == of_moment.moment.load
    assert chooser.choose(request(), classification("chat")).drawn
