"""The default: time per token as step time over tokens per step, at the load of the moment.

It draws no arm and keeps nothing: `prepare` takes all that is known and makes joint draws of every
parameter, `NetGainPlan.propose` adds them up for one request. Steps of the reasoning are in
docs/policies.md.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from policies.bands import MIDDLES, ahead_bands, prompt_bands, waited_bands
from policies.beliefs import Exploring, Told, of_draws
from policies.budgets import NetGainParameters, budget_of, doubt_of, least_control, settled
from policies.cost import typical_tokens
from policies.curves import GRID, Curves, fit_curves, grid_index
from policies.drafts import draw_log_tau, of_part
from policies.estimators.effects import ArmEffects, arm_effects
from policies.expected import failure_posterior
from policies.knowledge import Belief, Knowledge, Moment, parent
from policies.parameters import ParameterError
from policies.types import ClassId, FloatArray, Proposal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from policies.types import Arm

_STEP_S: Final = 0.02
_FIRST_S: Final = 0.03
_PROMPT_S: Final = 5e-5
"""Where curves begin while nothing is known; only their ratios matter then."""
_TAIL: Final = 3.3
"""Times the usual TTFT at which the price of a wait is half of what it comes to, and from which the
wait of another tells something. Judgement: the tail of plain decoding begins there or beyond."""
_BLOCKED: Final = 8
"""One of so many draws holds that whoever waits for long does not stand in the others' way."""
_FAR: Final = 1e6
"""Times that, beyond which a wait is as far as it can be; absurd figures are no larger."""
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
_MOST_WAIT_S: Final = 1e4
_MOST_ANSWERS: Final = 4096
"""Kept of a plan; far more than the requests of one snapshot ask for."""


class _Asked(NamedTuple):
    """All that a plan looks at of a moment, so answers are kept by it.

    Attributes:
        part: Number of the part.
        load: Requests at the server of each arm, this one included.
        fresh: Bands of what each arm has to prefill.
        ahead: Bands of what it has to prefill before.
        waited: Bands of how long the first in line there has waited, where that is long.
        limit: Most tokens of the answer; None where the client sets none that matters.
    """

    part: int
    load: tuple[int, ...]
    fresh: tuple[int, ...]
    ahead: tuple[int, ...]
    waited: tuple[int, ...]
    limit: int | None


@dataclass(frozen=True, slots=True)
class _Part:
    """One class or part, ready to be asked about.

    Attributes:
        number: Which of the plan's parts it is.
        log_tau: Draws of log tokens per step, shape (arms, draws).
        rate: Steps per token of each arm times what the product misses, shape (arms, draws).
        decoding: Steps of an answer, failures counted, shape (arms, draws).
        hurdle: What failures multiply the cost by, shape (arms, draws).
        output: Tokens of an answer.
        control: Least share of the baseline.
        budget: Share of what is not proven.
        doubt: Share that is given by draws.
        held: Arms that are held back.
    """

    number: int
    log_tau: FloatArray
    rate: FloatArray
    decoding: FloatArray
    hurdle: FloatArray
    output: float
    control: float
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
        self._busy = _with_others(steps, parameters.altruism).reshape(-1, draws)
        wait = fit_curves(known.prefill, base, None, draws, rng, start=_FIRST_S).values
        self._wait = wait.reshape(-1, draws)
        self._rows = range(0, len(self._busy), len(GRID))
        self._even = np.full(draws, 1.0 / draws)
        # That the first waits for something of its own, and nobody behind it will, is believed by
        # some draws: else nobody would come to overtake it, and show that.
        self._lines = (np.arange(draws) % _BLOCKED != 0).astype(float)
        self._prompt_s = _within(known.prompt_s, _MOST_PROMPT_S) or _PROMPT_S
        usual_s = _within(known.usual_s, _MOST_WAIT_S)
        self._long_s = math.inf if usual_s is None else _TAIL * usual_s
        self._per_tail = 1.0 / self._long_s
        self._tau = draw_log_tau(known, draws, rng)
        self._parts: dict[tuple[ClassId, str], _Part] = {}
        self._answers: dict[_Asked, Proposal] = {}
        self._typical = _typical_index(known)
        self._arms = np.arange(len(known.arms))

    def warm(self) -> None:
        """Make every class ready, so that no first request waits for it; parts are left."""
        for class_id, part in self._known.beliefs:
            if not part:
                self._part(class_id, "")

    def propose(self, moment: Moment) -> Proposal:
        """Probabilities for one request, and its expected time on each arm as scores.

        What is asked again until the next snapshot is looked up. Prompts count as the middle of
        their band: 4.5 % more or less.
        """
        part = self._part(moment.class_id, moment.part)
        asked = self._asked(moment, part)
        found = self._answers.get(asked)
        if found is None:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            found = self._answers[asked] = self._proposal(part, asked)
            found.probabilities.setflags(write=False)
            found.scores.setflags(write=False)
        return found

    def _asked(self, moment: Moment, part: _Part) -> _Asked:
        most = moment.output_tokens
        limit = max(most, 1) if most is not None and most < part.output else None
        return _Asked(
            part.number,
            moment.load,
            prompt_bands(moment),
            ahead_bands(moment),
            waited_bands(moment, self._long_s, self._prompt_s),
            limit,
        )

    def _proposal(self, part: _Part, asked: _Asked) -> Proposal:
        cost, load = self._cost(part, asked), asked.load
        scores = np.minimum(cost @ self._even, _MOST_SCORE)
        arms, base = len(scores), self._known.baseline
        gone = [a for a in range(arms) if load[a] <= 0]
        if len(gone) == arms:
            return Proposal(np.eye(arms)[base], scores)
        barred = _barred(arms, gone, part.held)
        expected = scores.tolist()
        for a in barred:
            cost[a] = np.inf
            expected[a] = np.inf
        judges = slice(None, None, _BLOCKED) if any(asked.waited) else slice(None)
        p = self._shares(cost, expected, part, load[base], judges)
        lows = [self._p.floor] * arms
        lows[base] = max(part.control, self._p.floor)
        for a in gone:
            lows[a] = 0.0
        return Proposal(_at_least(p, lows), scores)

    def _cost(self, part: _Part, asked: _Asked) -> FloatArray:
        """Marginal seconds, shape (arms, draws): the request's own, and what others lose."""
        loads = zip(self._rows, asked.load, strict=True)
        rows = np.array([row + grid_index(n) for row, n in loads])
        cost: FloatArray = self._busy.take(rows, axis=0)
        cost *= part.decoding
        if asked.limit is not None:
            cost *= asked.limit / part.output
        base = self._known.baseline
        if asked.load[base] > 0:
            # An early start must not be bought with tokens that come slower than plainly decoded.
            cost += self._p.steadiness * np.maximum(cost - cost[base], 0.0)
        first = self._wait.take(rows, axis=0)
        before, own, others = np.array(self._prompts(asked))[:, :, None]
        first += before
        if any(asked.waited):
            # What fills a server up may never have been seen before: whoever is next in line will
            # wait for about as long as the first has already (Ibrahim and Whitt 2009).
            waited = np.array([MIDDLES[band] / 1e3 for band in asked.waited])
            np.maximum(first, waited[:, None] * self._lines, out=first)
        first += own
        # Seconds count more the longer a wait is, so that those pay who would be in the tail.
        far = np.minimum(first * self._per_tail, _FAR)
        far *= far
        far /= 1.0 + far
        first *= 1.0 + self._p.patience * far
        first += others
        first *= part.hurdle
        cost += first
        return cost

    def _prompts(self, asked: _Asked) -> tuple[list[float], list[float], list[float]]:
        """Seconds that prompts make it wait on each arm, and that its own makes others wait.

        Prompts before it are worked on first; while its own is, the others at its server wait.
        """
        prompt_s, courtesy = self._prompt_s, self._p.courtesy
        fresh = [MIDDLES[band] for band in asked.fresh]
        return (
            [prompt_s * MIDDLES[before] for before in asked.ahead],
            [prompt_s * tokens for tokens in fresh],
            [
                prompt_s * courtesy * max(n - 1, 0) * tokens
                for n, tokens in zip(asked.load, fresh, strict=True)
            ],
        )

    def told(self, moment: Moment) -> Told:
        """What the draws say of the arms, and what those that are not proven may have."""
        part, base = self._part(moment.class_id, moment.part), self._known.baseline
        cost = self._cost(part, self._asked(moment, part))
        beliefs = of_draws(np.log(cost) - np.log(cost[base]))
        barred = _barred(len(cost), [a for a, n in enumerate(moment.load) if n <= 0], part.held)
        unproven = beliefs.better < self._p.proof
        unproven[barred] = False
        expected = cost.mean(axis=1)
        cost[barred] = np.inf
        expected[barred] = np.inf
        wanted = np.array(self._wanted(cost, expected.tolist(), part))
        names = self._known.beliefs.get((moment.class_id, moment.part))
        exploring = Exploring(
            proof=self._p.proof,
            unproven=tuple(int(a) for a in np.flatnonzero(unproven)),
            budget=self._budget(part, moment.load[base]),
            wanted=float(wanted[unproven].sum()),
            floor=self._p.floor,
            held={} if names is None else dict(names.held_back),
        )
        return Told(beliefs, exploring)

    def _shares(
        self, cost: FloatArray, expected: list[float], part: _Part, load: int, judges: slice
    ) -> list[float]:
        """Most to the least expected cost, some by draws, and no more than the budget unproven.

        `judges` are the draws that say whether an arm is proven: those that look beyond a line,
        which is no property of the arm.
        """
        given, base = self._p, self._known.baseline
        p = self._wanted(cost, expected, part)
        if expected[base] == np.inf:
            return p
        plain = cost[base, judges]
        needed = given.proof * len(plain)
        unproven = [
            a
            for a, share in enumerate(p)
            if share > 0.0 and a != base and np.count_nonzero(cost[a, judges] <= plain) < needed
        ]
        risk = sum(p[a] for a in unproven)
        budget = self._budget(part, load)
        if risk > budget:
            for a in unproven:
                p[a] *= budget / risk
                expected[a] = np.inf
            p[expected.index(min(expected))] += risk - budget
        return p

    def _wanted(self, cost: FloatArray, expected: list[float], part: _Part) -> list[float]:
        """Most to the least expected cost, some by draws."""
        wins = np.bincount(cost.argmin(axis=0), minlength=len(expected)).tolist()
        scale = part.doubt / self._p.draws
        p = [count * scale for count in wins]
        p[expected.index(min(expected))] += 1.0 - part.doubt
        return p

    def _budget(self, part: _Part, load: int) -> float:
        """Share that arms may have together that are not proven; `load` is the baseline's."""
        return part.budget / (1.0 + load / self._p.calm)

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
        rng = np.random.default_rng((self._seed, zlib.crc32(f"{class_id}/{name}".encode())))
        if name and belief is not None:
            return self._of_part(self._part(class_id, parent(name)), belief, rng)
        log_tau = self._tau.get(class_id)
        if log_tau is None:
            log_tau = self._of_any_class()
        rate, output = np.exp(-log_tau), float(typical_tokens(class_id))
        given = self._p
        if belief is None:
            hurdle = np.ones_like(rate)
            return _Part(
                number=len(self._parts),
                log_tau=log_tau,
                rate=rate,
                decoding=rate * output,
                hurdle=hurdle,
                output=output,
                control=given.first_control,
                budget=given.first_budget,
                doubt=1.0,
                held=(),
            )
        n = settled(belief)
        a, b = failure_posterior(belief.view)
        failed = np.minimum(rng.beta(a, b, rate.T.shape).T, _SURE_TO_FAIL)
        effects = arm_effects(belief.view)
        rate, hurdle = rate * self._missed(effects, rate, rng), 1.0 / (1.0 - failed)
        output = _answer(belief, output)
        return _Part(
            number=len(self._parts),
            log_tau=log_tau,
            rate=rate,
            decoding=rate * hurdle * output,
            hurdle=hurdle,
            output=output,
            control=least_control(given, effects, belief.view),
            budget=budget_of(given, n),
            doubt=doubt_of(given, n),
            held=tuple(belief.held_back),
        )

    def _of_part(self, above: _Part, belief: Belief, rng: np.random.Generator) -> _Part:
        """A part: what it is a part of, but for how drafts fare and how long answers are."""
        log_tau = of_part(above.log_tau, belief.drafting, self._known.arms, rng)
        rate = above.rate * np.exp(above.log_tau - log_tau)
        output = _answer(belief, above.output)
        decoding = rate * above.hurdle * output
        return replace(
            above,
            number=len(self._parts),
            log_tau=log_tau,
            rate=rate,
            decoding=decoding,
            output=output,
        )

    def _of_any_class(self) -> FloatArray:
        """Draws for a class nothing is known or published of: those of the others in turn."""
        if not self._tau:
            return np.zeros((len(self._arms), self._p.draws))
        every = np.stack(list(self._tau.values()))
        turn = np.arange(self._p.draws) % len(every)
        found: FloatArray = every[turn, :, np.arange(self._p.draws)].T
        return found

    def _missed(
        self, effects: ArmEffects, rate: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """Factor by which measured costs differ from what the model expects, shape (arms, draws).

        Costs of the same time are compared with the baseline's; the model's expectation is for
        the loads at which they were measured.
        """
        base = self._known.baseline
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


def _within(value: float | None, most: float) -> float | None:
    return value if value is not None and 0.0 < value <= most else None


def _barred(arms: int, gone: list[int], held: tuple[int, ...]) -> list[int]:
    """Arms that get nothing; one that is held back is better than none where no other serves."""
    barred = [a for a in range(arms) if a in gone or a in held]
    return gone if len(barred) == arms else barred


def _answer(belief: Belief, otherwise: float) -> float:
    """Tokens of an answer."""
    told = belief.output_tokens
    return told if told is not None and 0.0 < told <= _MOST_TOKENS else otherwise


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


def _at_least(p: list[float], lows: list[float]) -> FloatArray:
    left = max(1.0 - sum(lows), 0.0)
    shares = [low + left * share for low, share in zip(lows, p, strict=True)]
    total = sum(shares)
    return np.array([share / total for share in shares])


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
    control = max(parameters.control, parameters.first_control)
    if parameters.floor * len(arms) + control > 1.0:
        most = 1 / len(arms)
        raise ParameterError("floor", f"policy 'net_gain': floor must be within 0..{most:.4g}")
    return NetGainPolicy(parameters)
