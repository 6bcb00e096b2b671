"""What another policy would have drawn by, and what that would have cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.base import ContextPolicy
from policies.knowledge import Knowledge, Moment
from policies.registry import build_policy
from policies.types import Arm, ArmId, ArmView, ClassId, FloatArray, Proposal, Status, Trial
from router.errors import ConfigError
from router.replay.lines import Entry, Log
from router.replay.replay import Settings, as_arrays, probabilities, replay
from router.types import POOLED

PLAIN, FAST = ArmId("plain"), ArmId("fast")
ARMS = (Arm(PLAIN, "none", baseline=True), Arm(FAST, "eagle3", 3))
CHAT = ClassId("chat")
START = 1_200_000_000.0


def entry(number: int, arm: ArmId = FAST, *, cost_s: float = 1.0, **more: Any) -> Entry:
    """Decided a second after the one before; plain and fast at even odds."""
    decided = START + number
    trial = Trial(
        CHAT, arm, Status.OK, streamed=True, propensity=0.5,
        ttft_s=0.1 * cost_s, tpot_s=0.9 * cost_s / 299, e2e_s=cost_s, tokens=300,
    )  # fmt: skip
    made = Entry(
        decided, decided + cost_s, POOLED, arm, 0.5, {PLAIN: 0.5, FAST: 0.5}, (), trial, None,
        "thompson", ARMS,
    )  # fmt: skip
    return replace(made, **more)


def log_of(entries: list[Entry], arms: tuple[Arm, ...] = ARMS) -> Log:
    """A log of these."""
    return Log("m", arms, tuple(entries), 0)


def both(count: int, fast_s: float = 0.6) -> list[Entry]:
    """Drawn at even odds; fast takes less."""
    rng = np.random.default_rng(5)
    made = []
    for number in range(count):
        fast = bool(rng.random() < 0.5)
        cost = (fast_s if fast else 1.0) * float(np.exp(rng.normal(0.0, 0.1)))
        made.append(entry(number, FAST if fast else PLAIN, cost_s=cost))
    return made


class Spy:
    """A policy that keeps what it was shown."""

    name = "spy"

    def __init__(self) -> None:
        self.seen: list[float] = []

    def propose(self, view: ArmView, rng: np.random.Generator) -> Proposal:
        """All to the baseline."""
        self.seen.append(float(view.n.sum()))
        return Proposal(np.array([1.0, 0.0]), np.zeros(2))


def test_a_policy_is_shown_what_had_ended_by_then_and_nothing_later() -> None:
    """The sums grow with the log, a look at a time."""
    spy = Spy()
    entries = [entry(number, cost_s=5.5) for number in range(40)]
    probabilities(log_of(entries), spy, Settings(refresh_s=10.0))
    assert len(spy.seen) == 4
    assert spy.seen[0] == 0.0
    # Decided at 0, 10, 20, 30; over 5.5 s later. Older ones count a little less.
    assert [round(seen) for seen in spy.seen[1:]] == [5, 15, 25]


def test_a_fixed_policy_wants_its_arm_unless_it_was_excluded() -> None:
    """The mask of the request holds for any policy."""
    entries = [entry(0), entry(1, PLAIN, excluded=(FAST,), probabilities={PLAIN: 1.0, FAST: 0.0})]
    made = build_policy("fixed", {"arm": "fast"}, ARMS)
    assert probabilities(log_of(entries), made, Settings()).tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_an_arm_that_came_later_was_not_there_to_be_chosen() -> None:
    """Lines before it do not name it."""
    entries = [entry(0, PLAIN, probabilities={PLAIN: 1.0}), entry(1)]
    made = build_policy("fixed", {"arm": "fast"}, ARMS)
    found = probabilities(log_of(entries), made, Settings())
    assert found.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_the_cost_of_an_arm_is_found() -> None:
    """Time saved against plain and against what was logged."""
    log = log_of(both(1200))
    found = replay(log, build_policy("fixed", {"arm": "fast"}, ARMS), Settings())
    against, logged = found.overall.against_baseline, found.overall.against_logged
    assert against is not None
    assert logged is not None
    assert against.low < np.log(0.6) < against.high
    assert logged.low < 0.5 * np.log(0.6) < logged.high
    assert found.shares == {PLAIN: 0.0, FAST: 1.0}
    assert found.logged_shares[FAST] == pytest.approx(0.5, abs=0.05)
    assert found.classes.keys() == {CHAT}


def test_a_policy_that_learns_does_so_from_the_log() -> None:
    """It moves to the faster arm as the log shows it."""
    log = log_of(both(600))
    found = probabilities(log, build_policy("thompson", {}, ARMS), Settings(refresh_s=30.0))
    assert found[:, 1][-100:].mean() > 0.9
    assert np.allclose(found.sum(axis=1), 1.0)
    again = probabilities(log, build_policy("thompson", {}, ARMS), Settings(refresh_s=30.0))
    assert found.tolist() == again.tolist()


def test_failures_bring_no_cost() -> None:
    """They are counted as unmeasured."""
    failed = Trial(CHAT, FAST, Status.FAILED, streamed=True, propensity=0.5)
    entries = [*both(100), entry(100, trial=failed)]
    arrays = as_arrays(log_of(entries))
    assert np.isnan(arrays.cost).tolist() == [False] * 100 + [True]


class Least:
    """A policy of moments that takes the least loaded arm."""

    name = "least"

    def __init__(self) -> None:
        self.known: list[Knowledge] = []

    def prepare(self, known: Knowledge, rng: np.random.Generator) -> Least:
        """Remember what was known."""
        self.known.append(known)
        return self

    def propose(self, moment: Moment) -> Proposal:
        """All to the least loaded."""
        p: FloatArray = np.zeros(len(moment.load))
        p[int(np.argmin([load or 999 for load in moment.load]))] = 1.0
        return Proposal(p, np.zeros(len(p)))


def test_a_policy_of_moments_is_asked_with_each_moment() -> None:
    """By the loads that the line tells, and with the knowledge of the log."""
    loads = [(1, 4), (4, 1), (2, 3)]
    entries = [
        entry(number * 20, moment=Moment(CHAT, "", load, 100, (0, 0)))
        for number, load in enumerate(loads)
    ]
    policy = Least()
    assert isinstance(policy, ContextPolicy)
    found = probabilities(log_of(entries), policy, Settings())
    assert found.argmax(axis=1).tolist() == [0, 1, 0]
    seen = [known.beliefs.get((CHAT, "")) for known in policy.known]
    assert [belief is not None for belief in seen] == [False, True, True]


def test_a_policy_of_moments_needs_them_in_every_line() -> None:
    """The reason says who decided without looking."""
    with pytest.raises(ConfigError, match="decided by thompson"):
        probabilities(log_of([entry(0)]), Least(), Settings())


def test_what_no_policy_drew_is_learned_from_and_not_judged() -> None:
    """A holdout in the log neither refuses the answer nor stands in it."""
    made = build_policy("fixed", {"arm": "fast"}, ARMS)
    held = [
        entry(
            number, PLAIN, policy="holdout", propensity=1.0, probabilities={PLAIN: 1.0, FAST: 0.0}
        )
        for number in range(400, 500)
    ]
    found = replay(log_of([*both(400), *held]), made, Settings())
    alone = replay(log_of(both(400)), made, Settings())
    assert (found.settled, alone.settled) == (100, 0)
    assert found.overall == alone.overall
    with pytest.raises(ConfigError, match="no policy drew"):
        replay(log_of(held), made, Settings())


def test_tenants_that_are_not_explored_with_are_not_judged() -> None:
    """What was preferred for them says nothing of what else could have been, nor refuses others."""
    moment = Moment(CHAT, "", (1, 4), 100, (0, 0))
    sure = [
        entry(
            n, policy="net_gain", propensity=1.0, probabilities={PLAIN: 0.0, FAST: 1.0}, drawn=False
        )
        for n in range(50)
    ]
    drawn = [entry(100 + n, moment=moment) for n in range(3)]
    assert len(probabilities(log_of([*sure, *drawn]), Least(), Settings())) == 3
