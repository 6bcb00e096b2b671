"""Proposals computed once for each snapshot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from policies.base import ContextPolicy
from policies.knowledge import Knowledge, Moment, Ratios
from policies.types import ArmView, ClassId, Proposal
from router.selection import plans
from router.selection.plans import (
    VIEWS_PER_STEP,
    Plan,
    baseline_only,
    context_plan_steps,
    make_plan,
    plan_steps,
)
from router.types import POOLED, SegmentId
from tests.support.builders import ARMS, CHAT, FAST, PLAIN

CODE = ClassId("code_gen")


@dataclass
class Scripted:
    """A policy that gives what it was told, or raises it."""

    answers: dict[ClassId, list[float] | Exception]
    name: str = "scripted"

    def propose(self, view: ArmView, rng: np.random.Generator) -> Proposal:
        """The answer for the view's class."""
        answer = self.answers[view.class_id]
        if isinstance(answer, Exception):
            raise answer
        return Proposal(np.array(answer), np.zeros(len(answer)))


def plan(answers: dict[ClassId, list[float] | Exception]) -> Plan:
    """The plan that comes of these answers."""
    views = {class_id: ArmView.empty(class_id, ARMS) for class_id in answers}
    return make_plan(Scripted(answers), views, ARMS, version=3, rng=np.random.default_rng(0))


def test_a_plan_holds_the_proposal_for_every_class() -> None:
    """And says whose it is, and of which snapshot."""
    made = plan({CHAT: [0.25, 0.75], CODE: [1.0, 0.0]})
    assert (made.policy, made.snapshot_version, made.arms, made.spoiled) == (
        "scripted",
        3,
        ARMS,
        (),
    )
    assert made.proposal(CHAT).probabilities.tolist() == [0.25, 0.75]
    assert made.proposal(CODE).probabilities.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    "answer",
    [
        ValueError("x"),
        KeyError("x"),
        ZeroDivisionError(),
        IndexError(),
        np.linalg.LinAlgError(),
        [1.0],
        [0.5, 0.4],
        [0.5, 0.6],
        [1.5, -0.5],
        [float("nan"), 1.0],
        [float("inf"), 0.0],
        [],
    ],
    ids=repr,
)
def test_a_class_for_which_the_policy_fails_gets_the_baseline(
    answer: list[float] | Exception,
) -> None:
    """The failure is shown, other classes keep their proposal, and no request fails."""
    made = plan({CHAT: answer, CODE: [0.25, 0.75]})
    assert made.spoiled == (CHAT,)
    assert made.proposal(CHAT).probabilities.tolist() == [1.0, 0.0]
    assert made.proposal(CODE).probabilities.tolist() == [0.25, 0.75]


def test_a_class_nobody_knows_gets_the_baseline() -> None:
    """A classifier may be newer than the plan."""
    assert plan({}).proposal(CHAT).probabilities.tolist() == [1.0, 0.0]
    assert baseline_only(ARMS[::-1]).probabilities.tolist() == [0.0, 1.0]


def parted(*names: str) -> Plan:
    """A plan in which these parts of a class are told apart, each with a share of its own."""
    views = [(CHAT, POOLED, ArmView.empty(CHAT, ARMS))]
    views += [(CHAT, SegmentId(name), ArmView.empty(CHAT, ARMS)) for name in names]
    shares = iter([i / 10 for i in range(len(views))])

    class Counting:
        name = "counting"

        def propose(self, view: ArmView, rng: np.random.Generator) -> Proposal:
            share = next(shares)
            return Proposal(np.array([1 - share, share]), np.zeros(2))

    *_, made = plan_steps(Counting(), views, ARMS, version=1, rng=np.random.default_rng(0))
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("told", "part", "share"),
    [
        ((), "a", 0.0),
        (("a",), "a", 0.1),
        (("a",), "b", 0.0),
        (("a",), "", 0.0),
        (("a",), "a+", 0.1),
        (("a",), "+", 0.0),
        (("+", "a"), "a+", 0.1),
        (("+", "a"), "a", 0.2),
        (("+", "a", "a+"), "a+", 0.3),
        (("+", "a"), "b+", 0.1),
        (("+", "a"), "b", 0.0),
    ],
)
def test_a_part_gets_its_own_proposal_or_its_classs(
    told: tuple[str, ...], part: str, share: float
) -> None:
    """Where the class is split by copy band, the band comes before the segment."""
    assert parted(*told).proposal(CHAT, SegmentId(part)).probabilities[1] == share


def test_a_part_for_which_the_policy_fails_gets_the_baseline() -> None:
    """And its class is named."""
    views = [(CHAT, part, ArmView.empty(CHAT, ARMS)) for part in (POOLED, SegmentId("a"))]
    *_, made = plan_steps(
        Scripted({CHAT: [2.0, 0.0]}), views, ARMS, version=1, rng=np.random.default_rng(0)
    )
    assert made is not None
    assert made.spoiled == (CHAT,)
    assert made.proposal(CHAT, SegmentId("a")).probabilities.tolist() == [1.0, 0.0]


def test_a_plan_is_made_in_pieces() -> None:
    """So that requests get their turn in between."""
    views = [(CHAT, SegmentId(f"s{i}"), ArmView.empty(CHAT, ARMS)) for i in range(40)]
    *pieces, made = plan_steps(
        Scripted({CHAT: [0.5, 0.5]}), views, ARMS, version=1, rng=np.random.default_rng(0)
    )
    assert pieces == [None] * (40 // VIEWS_PER_STEP)
    assert isinstance(made, Plan)


def test_odds_are_made_once_for_a_part_and_a_mask() -> None:
    """Of a part, with what is excluded; requests alike share them."""
    made = parted("a")
    part = SegmentId("a")
    assert made.odds(CHAT, part, ()) is made.odds(CHAT, part, {})
    assert made.odds(CHAT, part, ()).probabilities == {PLAIN: 0.9, FAST: 0.1}
    assert made.odds(CHAT, part, {FAST: "why"}).probabilities == {PLAIN: 1.0, FAST: 0.0}
    assert made.odds(CHAT, POOLED, ()).probabilities == {PLAIN: 1.0, FAST: 0.0}


def test_the_number_of_kept_odds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that is not replaced meets ever new segments; what it answers stays the same."""
    monkeypatch.setattr(plans, "MOST_ODDS", 2)
    made = parted("a")
    names = [SegmentId(name) for name in ("a", "b", "c", "a")]
    shares = [made.odds(CHAT, name, ()).probabilities[FAST] for name in names]
    assert shares == [0.1, 0.0, 0.0, 0.1]
    assert len(made._odds) <= 2


@dataclass
class Prepares:
    """A policy of moments that prepares itself, or fails at it."""

    answer: list[float] | Exception
    flawed: bool = False
    name: str = "prepares"

    def prepare(self, known: Knowledge, rng: np.random.Generator) -> Prepares:
        """Itself."""
        del known, rng
        if self.flawed:
            raise ValueError("x")
        return self

    def propose(self, moment: Moment) -> Proposal:
        """The answer, whatever the moment."""
        del moment
        if isinstance(self.answer, Exception):
            raise self.answer
        return Proposal(np.array(self.answer), np.zeros(len(self.answer)))


def context_plan(policy: ContextPolicy) -> Plan:
    """The plan that comes of it."""
    known = Knowledge(ARMS, {}, Ratios.none(2), Ratios.none(2))
    rng = np.random.default_rng(0)
    *_, made = context_plan_steps(policy, known, (CHAT, CODE), version=5, rng=rng)
    assert made is not None
    return made


def test_a_plan_of_a_policy_of_moments_shows_what_it_says_on_an_idle_fleet() -> None:
    """And asks it for each request."""
    made = context_plan(Prepares([0.25, 0.75]))
    assert (made.policy, made.snapshot_version, made.spoiled) == ("prepares", 5, ())
    assert made.proposal(CHAT).probabilities.tolist() == [0.25, 0.75]
    moment = Moment(CHAT, "", (1, 9), 10, (0, 0))
    assert made.odds_at(moment, ()).probabilities == {PLAIN: 0.25, FAST: 0.75}
    assert made.odds_at(moment, (FAST,)).probabilities == {PLAIN: 1.0, FAST: 0.0}


@pytest.mark.parametrize(
    "policy",
    [
        Prepares([0.5, 0.5], flawed=True),
        Prepares(ZeroDivisionError()),
        Prepares([float("nan"), 1.0]),
        Prepares([0.5, 0.2]),
    ],
)
def test_a_flawed_policy_of_moments_leaves_plain_decoding(policy: Prepares) -> None:
    """For every class and moment; the plan says which classes."""
    made = context_plan(policy)
    assert set(made.spoiled) == {CHAT, CODE}
    assert made.proposal(CHAT).probabilities.tolist() == [1.0, 0.0]
    odds = made.odds_at(Moment(CHAT, "", (1, 1), 10, (0, 0)), ())
    assert odds.probabilities == {PLAIN: 1.0, FAST: 0.0}


class GivesAgain:
    """A policy that always gives the same proposal."""

    name = "gives again"

    def __init__(self, *, writable: bool) -> None:
        self.given = Proposal(np.array([0.25, 0.75]), np.zeros(2))
        self.given.probabilities.setflags(write=writable)

    def prepare(self, known: Knowledge, rng: np.random.Generator) -> GivesAgain:
        """Itself."""
        del known, rng
        return self

    def propose(self, moment: Moment) -> Proposal:
        """The proposal, whatever the moment."""
        del moment
        return self.given


def test_odds_of_what_a_policy_keeps_are_kept() -> None:
    """By what is excluded as well, and not where the policy might still change them."""
    moment = Moment(CHAT, "", (1, 1), 10, (0, 0))
    made = context_plan(GivesAgain(writable=False))
    assert made.odds_at(moment, ()) is made.odds_at(moment, {})
    assert made.odds_at(moment, (FAST,)).probabilities == {PLAIN: 1.0, FAST: 0.0}
    assert made.odds_at(moment, ()).probabilities == {PLAIN: 0.25, FAST: 0.75}
    policy = GivesAgain(writable=True)
    made = context_plan(policy)
    assert made.odds_at(moment, ()).probabilities == {PLAIN: 0.25, FAST: 0.75}
    policy.given.probabilities[:] = (0.5, 0.5)
    assert made.odds_at(moment, ()).probabilities == {PLAIN: 0.5, FAST: 0.5}
