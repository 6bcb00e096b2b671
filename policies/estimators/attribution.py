"""Tokens per step by class, from counters of whole servers: which classes ran decides which share.

An engine's counters say how many tokens and steps all requests made together in a slot of time, and
the finished requests how many tokens each class made in it. So slot by slot
`steps = sum over classes of tokens_c / tau_c`, which is linear in `1 / tau_c`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from policies.estimators.distributions import student_t_quantile
from policies.types import ClassId, FloatArray

MIN_TOKENS = 1000.0
"""Tokens below which a class is not told. Judgement: fewer are those of a few requests."""

MIN_ROWS_OVER = 8
"""Rows there must be beyond the unknowns."""

MAX_OVERCLAIM = 0.1
"""Share by which classes may have made more tokens than were counted. Where it is more, counters
and requests are not of the same servers, and nothing is said."""

_PRIOR_SD = 0.5
"""Of 1 / tau around that of all tokens: weak, since all of it lies within 1/(k+1) .. 1."""

_LOWEST_SHARE = 0.1
"""Of the mean tokens of a row: with fewer, a row has no more weight than this gives it."""

_HIGHEST_LEVERAGE = 0.95

_LEAST_OF_COMMON = 0.2
"""Of the variance that classes have in common, what each has at least."""


@dataclass(frozen=True, slots=True)
class Row:
    """What happened on all servers of an arm in one slot of time.

    Attributes:
        slot: Its number; neighbours differ by one.
        tokens: Generated, as the engines counted.
        steps: Decode steps, with a draft or without.
        made: Tokens by class, as the finished requests told.
        weight: By age, within (0, 1].
    """

    slot: int
    tokens: float
    steps: float
    made: Mapping[ClassId, float]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class CountedTau:
    """Tokens per step of a class, found from counters: estimate and interval.

    Attributes:
        value: Within 1 .. k + 1.
        low: Lower end of the interval; 1 where nothing is known.
        high: Upper end; k + 1 where nothing is known.
        tokens: Of the class in the rows, those of old rows by their weight.
    """

    value: float
    low: float
    high: float
    tokens: float


def attribute(
    rows: Sequence[Row], classes: Sequence[ClassId], k: int, level: float = 0.95
) -> Mapping[ClassId, CountedTau]:
    """Divide the steps of all rows among the classes that made tokens in them.

    Weighted least squares for `x_c = 1 / tau_c` with a weak prior, and the tokens that nobody
    claims as one more class. A row's variance grows with its tokens, so it weighs one over them.
    The covariance is the sandwich of White (1980) with the jackknife's leverage (HC3, MacKinnon and
    White 1985), with that of neighbouring rows added (Newey and West 1987, one lag), since requests
    run over borders. The estimate is the best one within the bounds, the interval that of Student's
    t around the unbounded one, cut at the bounds. Both are turned into tau.

    Args:
        rows: In the order of their slots; where one is missing its neighbours are none.
        classes: Whose tau is wanted; what others made counts as claimed by nobody.
        k: Longest draft, at least 1: tau is within 1 .. k + 1.
        level: Confidence in (0, 1).

    Returns:
        By class; classes with hardly any tokens are left out, and all are where rows are too few or
        more was made than was counted. Where mixes do not tell classes apart intervals are wide.

    Raises:
        ValueError: k or level is outside its range.

    Example:
        >>> a, b = ClassId("a"), ClassId("b")
        >>> rows = [Row(i, 900, 300 + 30 * i, {a: 900 - 60 * i, b: 60 * i}) for i in range(14)]
        >>> {key: round(tau.value, 2) for key, tau in attribute(rows, [a, b], k=4).items()}
        {'a': 3.0, 'b': 1.2}
    """
    if k < 1 or not 0.0 < level < 1.0:
        raise ValueError(f"k must be at least 1 and level within (0, 1), not {k}, {level}")
    usable = [row for row in rows if row.weight > 0.0 and 0.0 < row.steps <= row.tokens]
    present = [name for name in classes if any(row.made.get(name, 0.0) > 0.0 for row in usable)]
    if len(usable) < len(present) + 1 + MIN_ROWS_OVER or not present:
        return {}
    data = _laid_out(usable, present)
    counted, claimed = data.weight @ data.tokens, data.weight @ data.made
    overclaim = max(float(claimed.sum() / counted) - 1.0, 0.0)
    if overclaim > MAX_OVERCLAIM:
        return {}
    fit = _fit(data, lowest=1.0 / (k + 1))
    reach = student_t_quantile(0.5 + level / 2.0, max(fit.df, 1.0))
    found = {}
    for index, name in enumerate(present):
        if claimed[index] < MIN_TOKENS:
            continue
        x, free = float(fit.bounded[index]), float(fit.free[index])
        half = reach * math.hypot(float(fit.error[index]), overclaim * x)
        # An unbounded estimate far outside would leave an interval without any width.
        centre = min(max(free, 1.0 / (k + 1)), 1.0)
        low = max(min(centre - half, x), 1.0 / (k + 1))
        high = min(max(centre + half, x), 1.0)
        found[name] = CountedTau(1.0 / x, 1.0 / high, 1.0 / low, float(claimed[index]))
    return found


def position_rates(drafts: float, accepted: Sequence[float]) -> tuple[float | None, ...]:
    """Conditional acceptance by position of the draft, over all that was counted.

    Where drafts differ in length, a position that many of them do not have reads low.

    Args:
        drafts: Steps that had a draft.
        accepted: By position, the drafts whose token there was accepted.

    Returns:
        P(accepted | all before it were); None where no draft got there, or counts contradict.

    Example:
        >>> position_rates(43, (4, 3, 3))
        (0.09302325581395349, 0.75, 1.0)
    """
    return tuple(
        here / before if before > 0.0 and 0.0 <= here <= before else None
        for before, here in pairwise((drafts, *accepted))
    )


@dataclass(frozen=True, slots=True)
class _Data:
    """Rows as arrays: all of shape (rows,), `made` of (rows, classes)."""

    slot: FloatArray
    tokens: FloatArray
    steps: FloatArray
    weight: FloatArray
    made: FloatArray


@dataclass(frozen=True, slots=True)
class _Fit:
    """1 / tau by class, the unclaimed tokens last: free, within the bounds, and its error."""

    free: FloatArray
    bounded: FloatArray
    error: FloatArray
    df: float


def _laid_out(rows: Sequence[Row], classes: Sequence[ClassId]) -> _Data:
    return _Data(
        slot=np.array([row.slot for row in rows], dtype=np.float64),
        tokens=np.array([row.tokens for row in rows], dtype=np.float64),
        steps=np.array([row.steps for row in rows], dtype=np.float64),
        weight=np.array([row.weight for row in rows], dtype=np.float64),
        made=np.array([[row.made.get(name, 0.0) for name in classes] for row in rows]),
    )


def _fit(data: _Data, lowest: float) -> _Fit:
    # Not cut at 0: what a slot has too little its neighbour has too much, and a cut would turn the
    # noise of the borders into tokens of nobody.
    unclaimed = data.tokens - data.made.sum(axis=1)
    design = np.column_stack([data.made, unclaimed])
    weight = data.weight / np.maximum(data.tokens, _LOWEST_SHARE * data.tokens.mean())
    pooled = float(data.weight @ data.steps / (data.weight @ data.tokens))
    rows, unknowns = design.shape
    effective = data.weight.sum() ** 2 / (data.weight @ data.weight)
    gram = design.T @ (weight[:, None] * design)
    moment = design.T @ (weight * (data.steps - pooled * design.sum(axis=1)))
    scale = 1.0  # variance of a token's steps
    for _ in range(2):  # the prior is relative to it, so they settle each other
        free, _, used = _solved(gram, moment, pooled, scale)
        residual = data.steps - design @ free
        freedom = max(rows - used, 1.0)
        found = float(weight @ residual**2) / float(data.weight.sum()) * rows / freedom
        scale = max(found, 1e-12)
    free, inverse, used = _solved(gram, moment, pooled, scale)
    residual = data.steps - design @ free
    prior = np.eye(unknowns) * scale / _PRIOR_SD**2
    leverage = np.einsum("ij,jk,ik->i", design, inverse, design) * weight
    leverage = np.minimum(leverage, _HIGHEST_LEVERAGE)
    score = (weight * residual / (1.0 - leverage))[:, None] * design
    beside = np.diff(data.slot) == 1.0
    across = score[1:][beside].T @ score[:-1][beside]
    meat = score.T @ score + (across + across.T) / 2.0 + prior * scale
    variance = np.maximum(np.diag(inverse @ meat @ inverse), 0.0)
    # Of a request that runs over a border a faster one has more tokens in the slot for the same
    # steps, which pulls its class down and others up. How many requests do is unknown, so the
    # whole of what it would be if all did counts as an error.
    claimed = np.maximum(design, 0.0)
    varies = _variances(claimed, weight, residual**2 / (1.0 - leverage))
    spread = varies * (weight @ claimed)
    spread[-1] = 0.0
    pull = inverse @ (spread / np.clip(free, lowest, 1.0))
    form = gram + prior
    bounded = _minimum(form, form @ free, low=lowest, high=1.0)
    return _Fit(free, bounded, np.sqrt(variance + pull**2), float(effective) - used)


def _variances(claimed: FloatArray, weight: FloatArray, squares: FloatArray) -> FloatArray:
    """Variance of a token's steps by class, for residuals whose squares are its sum over tokens.

    Half of it is what all classes have in common: the squares alone would not tell ten apart.
    """
    form = claimed.T @ (weight[:, None] ** 2 * claimed)
    target = claimed.T @ (weight**2 * squares)
    common = float(target.sum() / form.sum())
    own = np.diag(form) + 1e-9 * form.max()  # where all is claimed, that of the rest is nothing
    low = _LEAST_OF_COMMON * common
    return _minimum(form + np.diag(own), target + own * common, low=low, high=math.inf)


def _solved(
    gram: FloatArray, moment: FloatArray, pooled: float, scale: float
) -> tuple[FloatArray, FloatArray, float]:
    """1 / tau under the prior, the inverse that gives it, and the freedom it uses up."""
    prior = np.eye(len(gram)) * scale / _PRIOR_SD**2
    inverse = np.asarray(np.linalg.inv(gram + prior), dtype=np.float64)
    return pooled + inverse @ moment, inverse, float(np.trace(inverse @ gram))


def _minimum(form: FloatArray, target: FloatArray, *, low: float, high: float) -> FloatArray:
    """Where `x' form x / 2 - target' x` is least within bounds, coordinate by coordinate."""
    x: FloatArray = np.clip(np.linalg.solve(form, target), low, high)
    tolerance = 1e-7 * max(float(np.abs(x).max()), low)
    for _ in range(200):
        before = x.copy()
        for index in range(len(x)):
            step = (target[index] - form[index] @ x) / form[index, index]
            x[index] = min(max(x[index] + step, low), high)
        if np.abs(x - before).max() <= tolerance:
            break
    return x
