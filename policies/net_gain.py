"""The default: time per token as step time over tokens per step, at the load of the moment.

It draws no arm and keeps nothing: `prepare` takes all that is known and makes joint draws of every
parameter, `Prepared.propose` adds them up for one request.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from policies.cost import typical_tokens
from policies.curves import GRID, Curves, fit_curves, grid_index
from policies.drafts import draw_log_tau
from policies.estimators.effects import arm_effects
from policies.expected import failure_posterior
from policies.knowledge import PREFILL_OFFSET, Belief, Knowledge, Moment
from policies.parameters import integer, number, parameter
from policies.types import ArmView, ClassId, FloatArray, Proposal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from policies.types import Arm

_STEP_S: Final = 0.02
_PREFILL_S: Final = 2e-4
_RESIDUAL_SD: Final = 0.08
"""What the product of step time and tokens per step misses of a class on an arm. Judgement."""
_PART_SD: Final = 0.12
"""How much a part differs from its class."""
_LEAST_VARIANCE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class NetGainParameters:
    """What can be set.

    Attributes:
        draws: Joint draws whose winners are counted.
        control: Share of the baseline in every class, which keeps gains causal.
        budget: Share that arms may have together that were not shown to be no worse.
        first_budget: The same while a class is unknown.
        settle: Answers of a class after which the budget has fallen by two thirds of the way.
        floor: Least share of each arm that is not held back, so that change is seen.
        proof: Probability of being no worse from which an arm counts as proven.
        altruism: How much of the time that others lose to a request counts as its own.
    """

    draws: int = parameter(128, integer(16, 4096))
    control: float = parameter(0.005, number(0.0, 1.0))
    budget: float = parameter(0.02, number(0.0, 1.0))
    first_budget: float = parameter(0.6, number(0.0, 1.0))
    settle: float = parameter(15.0, number(1.0, 1e6))
    floor: float = parameter(0.001, number(0.0, 0.1))
    proof: float = parameter(0.8, number(0.5, 1.0))
    altruism: float = parameter(0.7, number(0.0, 2.0))


@dataclass(frozen=True, slots=True)
class _Part:
    """One class or part, ready to be asked about.

    Attributes:
        rate: Steps per token of each arm times what the product misses, shape (arms, draws).
        hurdle: What failures multiply the cost by, shape (arms, draws).
        output: Tokens of an answer.
        budget: Share of what is not proven.
        out: Arms that are held back.
    """

    rate: FloatArray
    hurdle: FloatArray
    output: float
    budget: float
    out: tuple[int, ...]


class NetGainPlan:
    """What the policy makes of one snapshot; see `policies.base.Prepared`."""

    def __init__(
        self, known: Knowledge, parameters: NetGainParameters, rng: np.random.Generator
    ) -> None:
        self._known = known
        self._p = parameters
        self._rng = rng
        draws, base = parameters.draws, known.baseline
        steps = fit_curves(known.steps, base, known.step_priors, draws, rng, start=_STEP_S)
        self._prefill = fit_curves(known.prefill, base, None, draws, rng, start=_PREFILL_S).values
        self._busy = _with_others(steps, parameters.altruism)
        self._tau = draw_log_tau(known, draws, rng)
        self._steps = steps
        self._parts: dict[tuple[ClassId, str], _Part] = {}
        self._typical = _typical_index(known)
        self._arms = np.arange(len(known.arms))
        self._draw_index = np.arange(draws)

    def propose(self, moment: Moment) -> Proposal:
        """Probabilities for one request."""
        part = self._part(moment.class_id, moment.part)
        index = [grid_index(load) for load in moment.load]
        fresh = np.array(
            [moment.prompt_tokens - cached + PREFILL_OFFSET for cached in moment.cached_tokens]
        )
        output = part.output
        if moment.output_tokens is not None:
            output = min(output, float(moment.output_tokens))
        cost = self._busy[self._arms, index] * part.rate
        cost *= output
        cost += self._prefill[self._arms, index] * fresh[:, None]
        cost *= part.hurdle
        gone = [a for a, load in enumerate(moment.load) if load == 0]
        for a in (*gone, *part.out):
            cost[a] = np.inf
        return self._share(cost, part, gone)

    def _share(self, cost: FloatArray, part: _Part, gone: list[int]) -> Proposal:
        known, given = self._known, self._p
        arms, base = len(known.arms), known.baseline
        p = np.bincount(cost.argmin(axis=0), minlength=arms) / given.draws
        scores = np.minimum(cost.mean(axis=1), 1e9)
        if base in gone:
            return Proposal(p, scores)
        better = (cost <= cost[base]).mean(axis=1)
        unproven = [
            a for a in range(arms) if a != base and better[a] < given.proof and p[a] > 0.0
        ]
        risk = float(p[unproven].sum())
        if risk > part.budget:
            p[unproven] *= part.budget / risk
            trusted = np.ones(arms, dtype=np.bool_)
            trusted[unproven] = False
            rest = np.where(trusted, scores, np.inf).argmin()
            p[rest] += risk - part.budget
        lows = [given.floor] * arms
        lows[base] = max(given.control, given.floor)
        for a in (*gone, *part.out):
            lows[a] = 0.0
        return Proposal(_at_least(p, np.array(lows)), scores)

    def _part(self, class_id: ClassId, name: str) -> _Part:
        found = self._parts.get((class_id, name))
        if found is None:
            belief = self._known.beliefs.get((class_id, name))
            if belief is None and name:
                return self._part(class_id, "")
            found = self._parts[class_id, name] = self._ready(class_id, belief)
        return found

    def _ready(self, class_id: ClassId, belief: Belief | None) -> _Part:
        known, given = self._known, self._p
        arms, draws = len(known.arms), given.draws
        log_tau = self._tau.get(class_id)
        if log_tau is None:
            log_tau = next(iter(self._tau.values()), np.zeros((arms, draws)))
        rate = np.exp(-log_tau)
        hurdle = np.ones((arms, draws))
        output, n, out = float(typical_tokens(class_id)), 0.0, ()
        if belief is not None:
            rate = rate * self._missed(belief, rate)
            a, b = failure_posterior(belief.view)
            hurdle = 1.0 / (1.0 - np.minimum(self._rng.beta(a, b, (draws, arms)).T, 0.999))
            output = belief.output_tokens or output
            n = float(belief.view.served.sum())
            out = tuple(belief.held_back)
        budget = given.budget + (given.first_budget - given.budget) * math.exp(-n / given.settle)
        return _Part(rate, hurdle, output, budget, out)

    def _missed(self, belief: Belief, rate: FloatArray) -> FloatArray:
        """Factor by which measured costs differ from what the model expects, shape (arms, draws).

        Costs of the same time are compared with the baseline's; the model's expectation is for
        the loads at which they were measured.
        """
        base = self._known.baseline
        effects = arm_effects(belief.view)
        model = np.log(self._steps.values[self._arms, self._typical] * rate)
        model = model - model[base]
        expected, spread = model.mean(axis=1), model.var(axis=1)
        variance = np.diagonal(effects.covariance)
        known = effects.identified & np.isfinite(variance) & (variance > 0.0)
        known[base] = False
        noise = np.where(known, variance, 1.0) + spread + _LEAST_VARIANCE
        trust = np.where(known, _RESIDUAL_SD**2 / (_RESIDUAL_SD**2 + noise), 0.0)
        centre = trust * np.where(known, effects.mean - expected, 0.0)
        left = _RESIDUAL_SD * np.sqrt(np.where(known, 1.0 - trust, 0.0))
        drawn: FloatArray = np.exp(
            centre[:, None] + left[:, None] * self._rng.standard_normal(model.shape)
        )
        return drawn


def _with_others(steps: Curves, altruism: float) -> FloatArray:
    """Time of a step, and what joining it costs the others, shape (arms, grid, draws)."""
    loads = np.exp2(GRID)
    slope = np.gradient(steps.values.mean(axis=2), loads, axis=1)
    return steps.values + altruism * ((loads - 1.0) * slope)[:, :, None]


def _typical_index(known: Knowledge) -> list[int]:
    """Where on the grid each arm's requests of late were."""
    n, load = known.steps.n.sum(axis=1), known.steps.load.sum(axis=1)
    return [grid_index(max(round(float(b / a)), 1)) if a > 0 else 0 for a, b in zip(n, load, strict=True)]


def _at_least(p: FloatArray, lows: FloatArray) -> FloatArray:
    left = max(1.0 - float(lows.sum()), 0.0)
    shares: FloatArray = lows + left * p
    return shares / shares.sum()


@dataclass(frozen=True, slots=True)
class NetGainPolicy:
    """See the module."""

    parameters: NetGainParameters = field(default_factory=NetGainParameters)
    name: str = "net_gain"

    def prepare(self, known: Knowledge, rng: np.random.Generator) -> NetGainPlan:
        """Make the draws."""
        return NetGainPlan(known, self.parameters, rng)


def build_net_gain(
    parameters: NetGainParameters,
    arms: Sequence[Arm],  # noqa: ARG001 - any number will do
    classes: Collection[ClassId] | None = None,  # noqa: ARG001 - classes come with what is known
) -> NetGainPolicy:
    """Build the policy."""
    return NetGainPolicy(parameters)


__all__ = ["ArmView", "Mapping", "NetGainParameters", "NetGainPlan", "NetGainPolicy", "build_net_gain"]
