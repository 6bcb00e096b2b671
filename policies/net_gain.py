"""The default: time per token as step time over tokens per step, at the load of the moment.

It draws no arm and keeps nothing: `prepare` takes all that is known and makes joint draws of every
parameter, `NetGainPlan.propose` adds them up for one request. Steps of the reasoning are in
docs/policies.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from policies.beliefs import Exploring, Told, of_draws
from policies.cost import typical_tokens
from policies.curves import GRID, Curves, fit_curves, grid_index
from policies.drafts import draw_log_tau, of_part
from policies.estimators.effects import arm_effects
from policies.expected import failure_posterior
from policies.knowledge import Belief, Knowledge, Moment, parent
from policies.parameters import integer, number, parameter
from policies.types import ClassId, FloatArray, Proposal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from policies.types import Arm

_STEP_S: Final = 0.02
_PREFILL_S: Final = 2e-4
"""Where curves begin while nothing is known; only their ratios matter then."""
_RESIDUAL_SD: Final = 0.08
"""What the product of step time and tokens per step misses of a class on an arm. Judgement."""
_LOOKUP: Final = frozenset(("ngram", "suffix"))
_MATCHED: Final = 0.4
"""Share of its steps in which a look-up method drafts. Judgement, and only the place where a curve
is looked for."""
_LEAST_VARIANCE: Final = 1e-9
_SURE_TO_FAIL: Final = 0.999
_MOST_SCORE: Final = 1e9
_MOST_TOKENS: Final = 1e7
_MOST_N: Final = 1e9
_MOST_PROMPT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class NetGainParameters:
    """What can be set.

    Attributes:
        draws: Joint draws whose winners are counted.
        control: Share of the baseline in every class, which keeps gains causal.
        budget: Share that arms may have together that were not shown to be no worse.
        first_budget: The same while a class is unknown, or after drafting changed.
        settle: Answers of a class after which the budget has fallen by two thirds of the way.
        doubt: Share that is given by draws (Thompson sampling), so that what is uncertain is tried;
            the rest goes where the expected cost is least.
        learn: Answers of a class after which that share, from 1, has fallen as far.
        calm: Load at which the budget is half of what it is on an idle fleet.
        floor: Least share of each arm, so that change is seen; those held back have no more.
        proof: Probability of being no worse from which an arm counts as proven.
        altruism: How much of the time that others lose to it, step by step, counts as its own.
        courtesy: How much of the time that they wait for its prompt does. More than one, of both:
            those who come while it is served lose time as well.
    """

    draws: int = parameter(128, integer(16, 4096))
    control: float = parameter(0.005, number(0.0, 1.0))
    budget: float = parameter(0.01, number(0.0, 1.0))
    first_budget: float = parameter(0.6, number(0.0, 1.0))
    settle: float = parameter(15.0, number(1.0, 1e6))
    doubt: float = parameter(0.05, number(0.0, 1.0))
    learn: float = parameter(50.0, number(1.0, 1e6))
    calm: float = parameter(32.0, number(1.0, 1e6))
    floor: float = parameter(0.0005, number(0.0, 0.1))
    proof: float = parameter(0.8, number(0.5, 1.0))
    altruism: float = parameter(1.5, number(0.0, 10.0))
    courtesy: float = parameter(2.0, number(0.0, 10.0))


@dataclass(frozen=True, slots=True)
class _Part:
    """One class or part, ready to be asked about.

    Attributes:
        log_tau: Draws of log tokens per step, shape (arms, draws).
        rate: Steps per token of each arm times what the product misses, shape (arms, draws).
        hurdle: What failures multiply the cost by, shape (arms, draws).
        output: Tokens of an answer.
        budget: Share of what is not proven.
        held: Arms that are held back.
    """

    log_tau: FloatArray
    rate: FloatArray
    hurdle: FloatArray
    output: float
    budget: float
    doubt: float
    held: tuple[int, ...]


class NetGainPlan:
    """What the policy makes of one snapshot; see `policies.base.Prepared`.

    Parts are made ready when they are first asked for, in draws of their own, so the order in which
    they are asked for makes no difference.
    """

    def __init__(
        self, known: Knowledge, parameters: NetGainParameters, rng: np.random.Generator
    ) -> None:
        self._known = known
        self._p = parameters
        self._seed = int(rng.integers(2**62))
        draws, base = parameters.draws, known.baseline
        steps = fit_curves(
            known.steps, base, known.step_priors, draws, rng,
            start=_STEP_S, tokens=_tokens_per_step(known.arms),
        )  # fmt: skip
        self._steps = steps.values
        self._busy = _with_others(steps, parameters.altruism)
        self._prefill = fit_curves(known.prefill, base, None, draws, rng, start=_PREFILL_S).values
        offset = known.prefill_offset
        self._offset = offset if 0.0 <= offset <= _MOST_TOKENS else 0.0
        told = known.prompt_s
        alone = self._prefill[:, 0].mean(axis=1)
        self._prompt_s = alone if told is None or not 0.0 < told < _MOST_PROMPT_S else told
        self._tau = draw_log_tau(known, draws, rng)
        self._parts: dict[tuple[ClassId, str], _Part] = {}
        self._typical = _typical_index(known)
        self._arms = np.arange(len(known.arms))

    def warm(self) -> None:
        """Make every class ready, so that no first request waits for it; parts are left."""
        for class_id, part in self._known.beliefs:
            if not part:
                self._part(class_id, "")

    def propose(self, moment: Moment) -> Proposal:
        """Probabilities for one request, and its expected time on each arm as scores."""
        part = self._part(moment.class_id, moment.part)
        cost = self._cost(moment, part)
        gone = [a for a, load in enumerate(moment.load) if load <= 0]
        scores = np.minimum(cost.mean(axis=1), _MOST_SCORE)
        arms = len(scores)
        if len(gone) == arms:
            return Proposal(np.eye(arms)[self._known.baseline], scores)
        barred = _barred(arms, gone, part.held)
        cost[barred] = np.inf
        expected = scores.copy()
        expected[barred] = np.inf
        p = self._shares(cost, expected, part, moment)
        lows = np.full(arms, self._p.floor)
        lows[self._known.baseline] = max(self._p.control, self._p.floor)
        lows[gone] = 0.0
        return Proposal(_at_least(p, lows), scores)

    def told(self, moment: Moment) -> Told:
        """What the draws say of the arms, and what those that are not proven may have."""
        part, base = self._part(moment.class_id, moment.part), self._known.baseline
        cost = self._cost(moment, part)
        beliefs = of_draws(np.log(cost) - np.log(cost[base]))
        barred = _barred(len(cost), [a for a, n in enumerate(moment.load) if n <= 0], part.held)
        unproven = beliefs.better < self._p.proof
        unproven[barred] = False
        cost[barred] = np.inf
        wanted = self._wanted(cost, cost.mean(axis=1), part)
        names = self._known.beliefs.get((moment.class_id, moment.part))
        exploring = Exploring(
            proof=self._p.proof,
            unproven=tuple(int(a) for a in np.flatnonzero(unproven)),
            budget=self._budget(part, moment),
            wanted=float(wanted[unproven].sum()),
            floor=self._p.floor,
            held={} if names is None else dict(names.held_back),
        )
        return Told(beliefs, exploring)

    def _cost(self, moment: Moment, part: _Part) -> FloatArray:
        """Marginal seconds of the request, shape (arms, draws): its own, and what others lose."""
        index = [grid_index(load) for load in moment.load]
        output = part.output
        if moment.output_tokens is not None:
            output = min(output, max(float(moment.output_tokens), 1.0))
        cost = self._busy[self._arms, index]
        cost *= part.rate
        cost *= output
        prompt = min(max(moment.prompt_tokens, 0), _MOST_TOKENS)
        fresh = np.array([max(prompt - max(cached, 0), 0.0) for cached in moment.cached_tokens])
        cost += self._prefill[self._arms, index] * (fresh + self._offset)[:, None]
        # While a prompt is worked on, the others of its server wait.
        others = np.maximum(np.array(moment.load) - 1.0, 0.0)
        cost += (self._p.courtesy * others * fresh * self._prompt_s)[:, None]
        cost *= part.hurdle
        return cost

    def _shares(
        self, cost: FloatArray, expected: FloatArray, part: _Part, moment: Moment
    ) -> FloatArray:
        """Most to the least expected cost, some by draws, and no more than the budget unproven."""
        given, base = self._p, self._known.baseline
        p = self._wanted(cost, expected, part)
        if not np.isfinite(expected[base]):
            return p
        better = (cost <= cost[base]).mean(axis=1)
        better[base] = 1.0
        unproven = (better < given.proof) & (p > 0.0)
        risk = float(p[unproven].sum())
        budget = self._budget(part, moment)
        if risk > budget:
            p[unproven] *= budget / risk
            p[np.where(unproven, np.inf, expected).argmin()] += risk - budget
        return p

    def _wanted(self, cost: FloatArray, expected: FloatArray, part: _Part) -> FloatArray:
        """Most to the least expected cost, some by draws."""
        wins = np.bincount(cost.argmin(axis=0), minlength=len(cost))
        p: FloatArray = np.asarray(wins * (part.doubt / self._p.draws), dtype=np.float64)
        p[expected.argmin()] += 1.0 - part.doubt
        return p

    def _budget(self, part: _Part, moment: Moment) -> float:
        """Share that arms may have together that are not proven."""
        return part.budget / (1.0 + moment.load[self._known.baseline] / self._p.calm)

    def _part(self, class_id: ClassId, name: str) -> _Part:
        found = self._parts.get((class_id, name))
        if found is None:
            finest, belief = self._known.belief(class_id, name)
            if finest != name:
                found = self._part(class_id, finest)
            else:
                found = self._ready(class_id, name, belief)
            self._parts[class_id, name] = found
        return found

    def _ready(self, class_id: ClassId, name: str, belief: Belief | None) -> _Part:
        rng = np.random.default_rng((self._seed, *f"{class_id}/{name}".encode()))
        if name and belief is not None:
            return self._of_part(self._part(class_id, parent(name)), belief, rng)
        log_tau = self._tau.get(class_id)
        if log_tau is None:
            log_tau = self._of_any_class()
        rate, output = np.exp(-log_tau), float(typical_tokens(class_id))
        given = self._p
        if belief is None:
            hurdle = np.ones_like(rate)
            return _Part(log_tau, rate, hurdle, output, given.first_budget, 1.0, ())
        n = _settled(belief)
        a, b = failure_posterior(belief.view)
        failed = np.minimum(rng.beta(a, b, rate.T.shape).T, _SURE_TO_FAIL)
        return _Part(
            log_tau=log_tau,
            rate=rate * self._missed(belief, rate, rng),
            hurdle=1.0 / (1.0 - failed),
            output=_answer(belief, output),
            budget=given.budget + (given.first_budget - given.budget) * math.exp(-n / given.settle),
            doubt=given.doubt + (1.0 - given.doubt) * math.exp(-n / given.learn),
            held=tuple(belief.held_back),
        )

    def _of_part(self, above: _Part, belief: Belief, rng: np.random.Generator) -> _Part:
        """A part: what it is a part of, but for how drafts fare and how long answers are."""
        log_tau = of_part(above.log_tau, belief.drafting, self._known.arms, rng)
        rate = above.rate * np.exp(above.log_tau - log_tau)
        return replace(above, log_tau=log_tau, rate=rate, output=_answer(belief, above.output))

    def _of_any_class(self) -> FloatArray:
        """Draws for a class nothing is known or published of: those of the others in turn."""
        if not self._tau:
            return np.zeros((len(self._arms), self._p.draws))
        every = np.stack(list(self._tau.values()))
        turn = np.arange(self._p.draws) % len(every)
        found: FloatArray = every[turn, :, np.arange(self._p.draws)].T
        return found

    def _missed(self, belief: Belief, rate: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Factor by which measured costs differ from what the model expects, shape (arms, draws).

        Costs of the same time are compared with the baseline's; the model's expectation is for
        the loads at which they were measured.
        """
        base = self._known.baseline
        effects = arm_effects(belief.view)
        model = np.log(self._steps[self._arms, self._typical] * rate)
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
            centre[:, None] + left[:, None] * rng.standard_normal(model.shape)
        )
        return drawn


def _barred(arms: int, gone: list[int], held: tuple[int, ...]) -> list[int]:
    """Arms that get nothing; one that is held back is better than none where no other serves."""
    barred = [a for a in range(arms) if a in gone or a in held]
    return gone if len(barred) == arms else barred


def _answer(belief: Belief, otherwise: float) -> float:
    """Tokens of an answer."""
    told = belief.output_tokens
    return told if told is not None and 0.0 < told <= _MOST_TOKENS else otherwise


def _settled(belief: Belief) -> float:
    """Answers of a class since something changed."""
    if belief.settled is not None:
        n = belief.settled
    else:
        served = belief.view.served
        n = float(np.where((served >= 0.0) & (served <= _MOST_N), served, 0.0).sum())
    return n if 0.0 <= n <= _MOST_N else 0.0


def _tokens_per_step(arms: Sequence[Arm]) -> FloatArray:
    """Tokens of a request that a step verifies; look-up methods draft only where they match."""
    found: FloatArray = np.array(
        [
            1.0 + (arm.num_speculative_tokens or 0.0) * (_MATCHED if arm.method in _LOOKUP else 1.0)
            for arm in arms
        ]
    )
    return found


def _with_others(steps: Curves, altruism: float) -> FloatArray:
    """Time of a step, and what joining it costs the others, shape (arms, grid, draws)."""
    loads = np.exp2(GRID)
    slope = np.gradient(steps.values.mean(axis=2), loads, axis=1)
    both: FloatArray = steps.values + altruism * ((loads - 1.0) * slope)[:, :, None]
    return both


def _typical_index(known: Knowledge) -> list[int]:
    """Where on the grid each arm's requests of late were."""
    with np.errstate(all="ignore"):
        mean = known.steps.load.sum(axis=1) / known.steps.n.sum(axis=1)
    mean = np.where(np.isfinite(mean), np.clip(mean, 1.0, _MOST_N), 1.0)
    return [grid_index(round(load)) for load in mean.tolist()]


def _at_least(p: FloatArray, lows: FloatArray) -> FloatArray:
    total = float(lows.sum())
    shares: FloatArray = lows + max(1.0 - total, 0.0) * p
    shares /= shares.sum()
    return shares


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
    arms: Sequence[Arm],
    classes: Collection[ClassId] | None = None,  # noqa: ARG001 - classes come with what is known
) -> NetGainPolicy:
    """Build the policy after checking that shares that are promised leave something to give.

    Raises:
        ValueError: The floor is too high for that many arms.
    """
    if parameters.floor * len(arms) + parameters.control > 1.0:
        raise ValueError(f"policy 'net_gain': floor must be within 0..{1 / len(arms):.4g}")
    return NetGainPolicy(parameters)
