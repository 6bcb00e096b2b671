"""What can be set of the default policy, and the shares that follow from what is known.

It prices nothing and chooses no arm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.estimators.effects import ArmEffects
from policies.knowledge import Belief
from policies.parameters import integer, number, parameter
from policies.types import ArmView

_USEFUL_SD: Final = 0.08
"""Of the log of a gain. Judgement: gains below a tenth are seldom acted on."""
_MOST_N: Final = 1e9
_SETTLED: Final = 4.0
"""Standard errors; what an interval that holds at any look needs, with room to spare."""


@dataclass(frozen=True, slots=True)
class NetGainParameters:
    """What can be set.

    Attributes:
        draws: Joint draws whose winners are counted.
        control: Least share of the baseline in every class, which keeps gains causal.
        first_control: The same while what the class gains is not known well enough to be told.
        budget: Share that arms may have together that were not shown to be no worse.
        first_budget: The same while a class is unknown, or after drafting changed.
        settle: Answers of a class after which the budget has fallen by two thirds of the way.
        known: Answers after which what is left of the budget has halved, and so on.
        doubt: Share that is given by draws (Thompson sampling), so that what is uncertain is tried;
            the rest goes where the expected cost is least.
        learn: Answers of a class after which that share, from 1, has fallen as far.
        calm: Load at which the budget is half of what it is on an idle fleet.
        floor: Least share of each arm, so that change is seen; those held back have no more.
        proof: Probability of being no worse from which an arm counts as proven.
        altruism: How much of the time that others lose to it, step by step, counts as its own.
        courtesy: How much of the time that they wait for its prompt does. More than one, of both:
            those who come while it is served lose time as well.
        patience: How much more a second before the first token counts than one after it where the
            wait is far longer than usual; half as much at three times the usual. Only requests in
            the tail of TTFT pay for it with mean time.
        steadiness: How much more the time counts by which decoding takes longer than it would on
            the baseline at this moment, so that tails of TTFT are not paid for with those of TPOT.
    """

    draws: int = parameter(128, integer(16, 4096))
    control: float = parameter(0.005, number(0.0, 1.0))
    first_control: float = parameter(0.1, number(0.0, 1.0))
    budget: float = parameter(0.01, number(0.0, 1.0))
    first_budget: float = parameter(0.6, number(0.0, 1.0))
    settle: float = parameter(15.0, number(1.0, 1e6))
    known: float = parameter(300.0, number(1.0, 1e6))
    doubt: float = parameter(0.05, number(0.0, 1.0))
    learn: float = parameter(50.0, number(1.0, 1e6))
    calm: float = parameter(32.0, number(1.0, 1e6))
    floor: float = parameter(0.0005, number(0.0, 0.1))
    proof: float = parameter(0.8, number(0.5, 1.0))
    altruism: float = parameter(1.5, number(0.0, 10.0))
    courtesy: float = parameter(2.0, number(0.0, 10.0))
    patience: float = parameter(20.0, number(0.0, 100.0))
    steadiness: float = parameter(1.0, number(0.0, 100.0))


def least_control(given: NetGainParameters, effects: ArmEffects, view: ArmView) -> float:
    """Least share of the baseline: more of it while the gain of a class cannot be told yet.

    That is the gain of the arm that serves most of it. It can be told when it is known to
    `_USEFUL_SD`, or differs from none by `_SETTLED` standard errors.
    """
    first = max(given.first_control, given.control)
    served = np.where(np.isfinite(view.served), view.served, 0.0)
    served[view.baseline_index] = -1.0
    arm = int(served.argmax())
    variance = float(effects.covariance[arm, arm])
    if not (effects.identified[arm] and 0.0 < variance < np.inf) or served[arm] < 0.0:
        return first
    enough = max(_USEFUL_SD, abs(float(effects.mean[arm])) / _SETTLED)
    return given.control + (first - given.control) * min(variance / enough**2, 1.0) ** 2


def budget_of(given: NetGainParameters, n: float) -> float:
    """Share of what is not proven, n answers after something changed."""
    lasting = given.budget / (1.0 + n / given.known)
    return lasting + (given.first_budget - lasting) * math.exp(-n / given.settle)


def doubt_of(given: NetGainParameters, n: float) -> float:
    """Share that is given by draws, n answers after something changed."""
    return given.doubt + (1.0 - given.doubt) * math.exp(-n / given.learn)


def settled(belief: Belief) -> float:
    """Answers of a class since something changed."""
    if belief.settled is not None:
        n = belief.settled
    else:
        served = belief.view.served
        n = float(np.where((served >= 0.0) & (served <= _MOST_N), served, 0.0).sum())
    return n if 0.0 <= n <= _MOST_N else 0.0
