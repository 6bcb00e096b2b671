"""How long drafts should be, from what a route measured: by class, and by batch size. No I/O.

A step of a batch costs by the tokens it verifies. A pool that drafts `k` verifies `load (1 + k)` at
once, so its own curve at `load (1 + k') / (1 + k)` is a step that verifies as much as drafts of
`k'` would at `load`. From that the drafting that falls away is taken: what a step at load 1 takes
more than plain decoding of the same number of tokens. How much of drafting goes by the length is
not in the data of one pool, and assumed by method (`cheaper_with_shorter`); intervals hold the
range. A step is never
taken for cheaper than plain decoding at that load, nor a shorter draft for dearer than a longer.

Tokens per step at `k'` come from the conditional acceptance by position, which is exact over the
same drafts (`acceptance.tau_from_position_rates`); beyond the `k` that was seen they are
extrapolated, and said to be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from policies.estimators.acceptance import tau_from_alpha, tau_from_position_rates
from policies.types import ArmId, ClassId, FloatArray

DRAWS: Final = 800
"""Of everything that was measured, within its interval; the first is what was measured."""

MARGIN: Final = 0.02
"""Judgement: what gains less is not worth a restart."""

LEAST_REQUESTS: Final = 30
"""Of a class in a pool, from which its acceptance is used. Judgement."""

SERIAL: Final = frozenset(("eagle", "eagle2", "eagle3", "mtp", "draft_model", "standalone"))
"""Methods whose drafter makes one token after the other."""

AT_ONCE: Final = frozenset(("ngram", "suffix", "dflash", "dspark", "medusa", "pard"))
"""Methods that make all tokens of a draft at once."""

_Z: Final = 1.959964
_LOW, _HIGH = 1.25, 98.75
"""Half of the draws stand for either assumption, and 95 % of each half have to be held."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A value, and an interval of at least 95 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Point:
    """Time of a step at a load that was seen, in seconds."""

    load: float
    time: Bounds


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What a pool's drafts came to in one class.

    Attributes:
        requests: Behind it.
        tau: Tokens per step.
        rates: Conditional acceptance by position; empty where drafts differed in length.
        alpha: The acceptance that every position would have, if all had the same.
    """

    requests: int
    tau: Bounds
    rates: tuple[float, ...] = ()
    alpha: float | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool as it was measured.

    Attributes:
        k: Length of its drafts; 0 for plain decoding.
        replicas: Its servers that answer.
        load: Requests at one of them, about.
        points: Step times at loads that were seen, by rising load.
        classes: Acceptance by class.
    """

    pool: ArmId
    method: str
    k: int
    replicas: int
    load: float
    points: tuple[Point, ...]
    classes: Mapping[ClassId, Acceptance] = field(default_factory=dict)
    baseline: bool = False


@dataclass(frozen=True, slots=True)
class Best:
    """The best length of drafts at one load.

    Attributes:
        k: The one that saves most of those that do so beyond doubt; else the pool's own.
        gain: Share of the time per token that it saves against the pool's own length.
        against_plain: And against plain decoding.
        likeliest: The length that looks best, gain shown or not.
    """

    k: int
    gain: Bounds
    against_plain: Bounds
    likeliest: int


@dataclass(frozen=True, slots=True)
class Range:
    """Batch sizes from `low` to `high`, and the length of drafts for them."""

    low: int
    high: int
    best: Best


@dataclass(frozen=True, slots=True)
class Advice:
    """What one pool should draft.

    Attributes:
        load: At which classes and the whole were judged.
        overall: For the mix of classes.
        classes: For each by itself.
        schedule: By batch size.
        longer: A longer draft that might gain, and what: extrapolated from the last position seen.
        lacking: Why there is no advice; empty where there is.
        notes: What was assumed.
    """

    pool: ArmId
    k: int
    load: float = 0.0
    overall: Best | None = None
    classes: Mapping[ClassId, Best] = field(default_factory=dict)
    schedule: tuple[Range, ...] = ()
    longer: tuple[int, Bounds] | None = None
    lacking: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def tau_at(known: Acceptance, k: int, wanted: int) -> float:
    """Tokens per step with drafts of another length.

    Args:
        known: What drafts of `k` came to. Steps without a draft keep their share.
        k: Length of the drafts.
        wanted: The other length.

    Example:
        >>> known = Acceptance(100, Bounds(2.2, 2.1, 2.3), rates=(0.8, 0.5, 0.0))
        >>> [round(tau_at(known, 3, k), 2) for k in (0, 1, 2, 3)]
        [1.0, 1.8, 2.2, 2.2]
    """
    if wanted <= 0:
        return 1.0
    if wanted == k:
        return known.tau.value
    if known.rates:
        longer = max(wanted - len(known.rates), 0)
        rates = (*known.rates, *([known.rates[-1]] * longer))
        full = tau_from_position_rates(known.rates)
        there = tau_from_position_rates(rates[:wanted])
    else:
        alpha = known.alpha or 0.0
        full, there = tau_from_alpha(alpha, k), tau_from_alpha(alpha, wanted)
    drafting = (known.tau.value - 1.0) / (full - 1.0) if full > 1.0 else 0.0
    return 1.0 + max(drafting, 0.0) * (there - 1.0)


class Drawn:
    """A pool's figures, drawn within their intervals: the first draw is what was measured."""

    def __init__(self, pool: Pool, seed: int) -> None:
        rng = np.random.default_rng((seed, 5))
        self.pool = pool
        self.loads = np.array([point.load for point in pool.points])
        self._knots = np.log(self.loads)
        self.steps = np.column_stack([_drawn(rng, point.time) for point in pool.points])
        self.taus: dict[ClassId, FloatArray] = {}
        for class_id, known in pool.classes.items():
            self.taus[class_id] = np.maximum(_drawn(rng, known.tau), 1.0)
        low, high = cheaper_with_shorter(pool.method)
        self.cheaper = np.where(rng.integers(0, 2, DRAWS) == 0, low, high)
        """Share of the time of drafting that falls and rises with the length: one bound or the
        other, so that intervals hold at both."""
        self.cheaper[0] = 1.0 if pool.method in SERIAL else 0.0

    def step(self, load: FloatArray | float) -> FloatArray:
        """Time of a step with the pool's own drafts, shape (draws,); held where it was not seen."""
        at = np.broadcast_to(np.asarray(load, dtype=np.float64), (DRAWS,))
        if len(self.loads) == 1:
            return self.steps[:, 0]
        place = np.log(np.clip(at, self.loads[0], self.loads[-1]))
        knots = self._knots
        right = np.clip(np.searchsorted(knots, place), 1, len(knots) - 1)
        rows = np.arange(DRAWS)
        share = (place - knots[right - 1]) / (knots[right] - knots[right - 1])
        low, high = self.steps[rows, right - 1], self.steps[rows, right]
        found: FloatArray = low + share * (high - low)
        return found

    def measured_step(self, load: float) -> float:
        """Time of a step with the pool's own drafts, as measured."""
        place = math.log(max(load, 1.0))
        return float(np.interp(place, self._knots, self.steps[0]))

    def tau(self, class_id: ClassId, k: int) -> FloatArray:
        """Tokens per step of a class with drafts of a length, shape (draws,)."""
        known, own = self.pool.classes[class_id], self.pool.k
        if not own:
            return np.ones(DRAWS)
        value = known.tau.value
        there = tau_at(known, own, k)
        if value <= 1.0:
            return np.ones(DRAWS)
        found: FloatArray = 1.0 + (self.taus[class_id] - 1.0) * (there - 1.0) / (value - 1.0)
        return found

    def sees(self, load: float) -> bool:
        """Whether a load lies among those that were seen."""
        return bool(self.loads[0] <= load <= self.loads[-1])


def cheaper_with_shorter(method: str) -> tuple[float, float]:
    """Bounds of the share of drafting time that goes by the length of the draft.

    Judgement, for one pool cannot tell: nearly all where tokens are made one after the other,
    nearly none where one pass or a look-up makes them all, anything where the method is not known.

    Example:
        >>> cheaper_with_shorter("eagle3"), cheaper_with_shorter("dflash")
        ((0.7, 1.0), (0.0, 0.3))
    """
    if method in SERIAL:
        return 0.7, 1.0
    return (0.0, 0.3) if method in AT_ONCE else (0.0, 1.0)


def _drawn(rng: np.random.Generator, of: Bounds) -> FloatArray:
    sd = (of.high - of.low) / (2.0 * _Z)
    found = of.value + sd * rng.standard_normal(DRAWS)
    found[0] = of.value
    return np.maximum(found, 0.05 * of.value)


def step_at(drawn: Drawn, plain: Drawn, load: float, k: int) -> FloatArray:
    """Time of a step with drafts of another length at a load, shape (draws,)."""
    own = drawn.pool.k
    if k == 0:
        return plain.step(load)
    if k == own:
        return drawn.step(load)
    idle = float(drawn.loads[0])
    drafting = np.maximum(drawn.step(idle) - plain.step(idle * (1 + own)), 0.0)
    scale = 1.0 + drawn.cheaper * (k / own - 1.0)
    found = drawn.step(load * (1 + k) / (1 + own)) + drafting * (scale - 1.0)
    least, most = plain.step(load), drawn.step(load)
    if k < own:
        return np.minimum(np.maximum(found, least), np.maximum(most, least))
    result: FloatArray = np.maximum(found, most)
    return result


def advise(
    pool: Pool,
    plain: Pool | None,
    mix: Mapping[ClassId, float],
    *,
    most_running: int | None = None,
    seed: int = 0,
) -> Advice:
    """The best lengths of drafts for a pool, up to the one that was seen.

    Args:
        pool: It.
        plain: The pool that decodes plainly, on servers like these; None if it was not measured.
        mix: Tokens by class.
        most_running: Requests that a server takes at most, where it told.
        seed: Of the draws.
    """
    known = {
        class_id: acceptance
        for class_id, acceptance in pool.classes.items()
        if acceptance.requests >= LEAST_REQUESTS and (acceptance.rates or acceptance.alpha)
    }
    lacking = _lacking(pool, plain, known)
    if lacking or plain is None:
        return Advice(pool.pool, pool.k, lacking=lacking)
    drawn, base = Drawn(pool, seed), Drawn(plain, seed + 1)
    shared = [load for load in drawn.loads.tolist() if base.sees(load)]
    load = min(shared, key=lambda at: abs(math.log(at / max(pool.load, 1.0))))
    whole = {class_id: max(mix.get(class_id, 0.0), 0.0) for class_id in known}
    if not sum(whole.values()) > 0.0:
        whole = dict.fromkeys(known, 1.0)
    classes = {class_id: best_at(drawn, base, load, {class_id: 1.0}) for class_id in sorted(known)}
    at = [(int(number), best_at(drawn, base, number, whole)) for number in shared]
    notes = _notes(pool, plain, known, shared, drawn.loads.tolist())
    return Advice(
        pool.pool,
        pool.k,
        load,
        best_at(drawn, base, load, whole),
        classes,
        _ranges(at, most_running),
        _longer(drawn, base, load, whole),
        notes=notes,
    )


def _lacking(
    pool: Pool, plain: Pool | None, known: Mapping[ClassId, Acceptance]
) -> tuple[str, ...]:
    reasons = []
    if pool.k < 1:
        reasons.append("the length of its drafts is not known")
    if not pool.points:
        reasons.append("the time of its steps was not measured with an interval")
    if not known:
        reasons.append(
            f"no class has {LEAST_REQUESTS} requests whose acceptance is known by position or rate"
        )
    if plain is None or not plain.points:
        reasons.append("the time of plain steps was not measured, so nothing says what drafts cost")
    elif pool.points and not any(
        plain.points[0].load <= point.load <= plain.points[-1].load for point in pool.points
    ):
        reasons.append("it was measured at no load at which plain decoding was")
    return tuple(reasons)


def _notes(
    pool: Pool,
    plain: Pool,
    known: Mapping[ClassId, Acceptance],
    shared: Sequence[float],
    loads: Sequence[float],
) -> tuple[str, ...]:
    notes = [
        f"servers of {pool.pool} and {plain.pool} are taken for alike but for the drafts",
        "steps are taken to cost by the tokens they verify, load x (1 + k)",
    ]
    equal = sorted(class_id for class_id, of in known.items() if not of.rates)
    low, high = cheaper_with_shorter(pool.method)
    notes.append(f"{low:.0%} to {high:.0%} of drafting are taken to go by the length of the draft")
    if equal:
        notes.append(
            f"{', '.join(equal)}: acceptance by position is not known, and taken for equal"
        )
    if len(shared) < len(loads):
        notes.append("loads at which plain decoding was not measured are left out")
    if plain.points[-1].load < plain.points[0].load * (1 + pool.k):
        notes.append(
            "plain decoding was not seen with as many tokens a step as one draft has: what "
            "drafting costs is rather overrated"
        )
    return tuple(notes)


def best_at(drawn: Drawn, plain: Drawn, load: float, mix: Mapping[ClassId, float]) -> Best:
    """The best length of drafts at a load for a mix of classes, no longer than what was seen."""
    own = drawn.pool.k
    cost = np.stack([_per_token(drawn, plain, load, mix, k) for k in range(own + 1)])
    chosen, best = own, Bounds(0.0, 0.0, 0.0)
    for k in range(own):
        gain = saved(cost[k], cost[own])
        if gain.low > 0.0 and gain.value >= max(MARGIN, best.value):
            chosen, best = k, gain
    return Best(chosen, best, saved(cost[chosen], cost[0]), int(cost[:, 0].argmin()))


def _per_token(
    drawn: Drawn, plain: Drawn, load: float, mix: Mapping[ClassId, float], k: int
) -> FloatArray:
    total = sum(mix.values())
    steps = sum((share / total / drawn.tau(name, k) for name, share in mix.items()), np.zeros(1))
    found: FloatArray = step_at(drawn, plain, load, k) * steps
    return found


def _longer(
    drawn: Drawn, plain: Drawn, load: float, mix: Mapping[ClassId, float]
) -> tuple[int, Bounds] | None:
    """The longer draft that looks best, where steps that verify as much were seen."""
    own = drawn.pool.k
    now = _per_token(drawn, plain, load, mix, own)
    best: tuple[int, Bounds] | None = None
    for k in range(own + 1, 2 * own + 1):
        if not drawn.sees(load * (1 + k) / (1 + own)):
            break
        gain = saved(_per_token(drawn, plain, load, mix, k), now)
        if gain.value >= MARGIN and (best is None or gain.value > best[1].value):
            best = k, gain
    return best


def saved(cost: FloatArray, against: FloatArray) -> Bounds:
    """Share of a cost that another saves, from draws of both.

    Example:
        >>> saved(np.full(DRAWS, 0.8), np.ones(DRAWS))
        Bounds(value=0.2, low=0.2, high=0.2)
    """
    share = 1.0 - cost / against
    low, high = np.percentile(share, [_LOW, _HIGH])
    return Bounds(round(float(share[0]), 6), round(float(low), 6), round(float(high), 6))


def _ranges(at: Sequence[tuple[int, Best]], most_running: int | None) -> tuple[Range, ...]:
    """Loads as ranges: each point stands for what is nearest to it on the log scale."""
    found: list[Range] = []
    start = 1
    for number, (load, best) in enumerate(at):
        last = number + 1 == len(at)
        end = max(load, most_running or load) if last else int(math.sqrt(load * at[number + 1][0]))
        end = max(end, start)
        if found and found[-1].best.k == best.k:
            found[-1] = Range(found[-1].low, end, found[-1].best)
        else:
            found.append(Range(start, end, best))
        start = end + 1
    return tuple(found)
