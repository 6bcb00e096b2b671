"""Whether a cell has changed, where, and what that is a sign of. It keeps nothing between looks.

Two figures of a cell are watched, block by block: steps per token (acceptance, 1 / tau), and log
cost against the baseline measured at the same time (time). A cell in which one of them jumped must
forget what was before; others must not.

A look asks whether the last few blocks differ from all before, for several lengths of "the last
few". Each is the generalised likelihood ratio of one split (Besson et al. 2022, arXiv 1902.01575,
`s kl(before, all) + (n - s) kl(after, all)`, for normal means the squared difference over its
variance). Their thresholds take blocks as independent and the variance as known. Neither is so
here: mixes wander, and neighbouring blocks are alike. So the variance is that of blocks around the
two means, at least that of sampling; it is inflated by the correlation of neighbours, which is
taken to fade no faster than by `PERSISTENCE` from block to block; and Student's t pays for its
being estimated. Where the change was is then the likeliest split.

`FALSE_PER_DAY` is met by sharing it out over all looks of a day and all lengths, which holds
however looks depend on each other. That tails are Student's is an approximation:
`bench/verify_models.py` counts the false alarms.

========  ============================================================================
field     sum over requests
========  ============================================================================
`dr.n`    requests whose steps are known, of at least 16 tokens
`dr.s`    steps per token, in millionths
`dr.q`    steps per token squared, in millionths
========  ============================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from policies.cost import MIN_STREAM_TOKENS, known_tokens
from policies.estimators.distributions import student_t_cdf, student_t_quantile
from policies.types import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from policies.types import Counts, FloatArray, Trial

FIELDS = frozenset(("dr.n", "dr.s", "dr.q"))
"""All fields."""

FALSE_PER_DAY = 0.01
"""False alarms of one figure of one cell, at most. Judgement: at a hundred cells one a day, each of
which costs one cell its memory of some hours."""

LOOKS_PER_DAY = 720
"""One at the end of each block of two minutes."""

LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Blocks that may be called new. Judgement: what takes longer to show is left to the half-life."""

PERSISTENCE = 0.8
"""From block to block so much is left of a correlation, at least. Judgement: half after six
minutes."""

CAUTION = 1.0
"""Standard errors by which the estimated correlation of neighbours is raised. With less, cells
whose mix wanders give more false alarms than promised; with more, small jumps are found late or
never."""

MIN_N = 10.0
"""Observations of a block; smaller ones are put together until they have as many. Judgement: means
of ten are near enough to normal for tails this far out, which the simulation checks."""

MIN_HISTORY = 20
"""Blocks before. Judgement: with fewer nobody knows how much they vary."""

_MOST_CORRELATION = 0.9
_LEAST_DF = 3.0
_TINY = 1e-300
_LENGTHS = np.array(LENGTHS)
_SURE = 2.0
_MEDIAN = 2.0 * 0.4549
"""Of the squared difference of two standard normals."""


@dataclass(frozen=True, slots=True)
class Block:
    """A figure over a block of time.

    Attributes:
        n: Observations, or what is worth as many; its sampling variance is that of one, over n.
        mean: Their mean.
        within: Sum of their squared distances from where they are expected.
        df: Degrees of freedom of `within`.
    """

    n: float
    mean: float
    within: float
    df: float


NOTHING = Block(0.0, 0.0, 0.0, 0.0)
"""A block without observations."""


@dataclass(frozen=True, slots=True)
class Change:
    """A jump of a figure.

    Attributes:
        at_block: First block after it, as an index into the blocks looked at.
        before: Mean before it.
        after: Mean from it on.
        evidence: Its strength: in 10^evidence days without any change the like is seen once at
            most.
    """

    at_block: int
    before: float
    after: float
    evidence: float


class Cause(StrEnum):
    """What a jump in one class of an arm is a sign of."""

    ENGINE = "engine"
    """The arm's other classes jumped with it: the engine, its version, or its machine."""
    CONTENT = "content"
    """They did not: what is asked, or a drafter that fails on it."""
    UNCLEAR = "unclear"
    """They are too few, or too uncertain."""


def increments(trial: Trial) -> dict[str, int]:
    """What a finished request adds to the cell of its arm and class; nothing where it cannot tell.

    Example:
        >>> from policies.types import ArmId, ClassId, SpecUsage, Trial
        >>> trial = Trial(ClassId("chat"), ArmId("fast"), Status.OK, True, 0.5, tokens=100,
        ...               spec=SpecUsage(steps=40))
        >>> increments(trial)
        {'dr.n': 1, 'dr.s': 400000, 'dr.q': 160000}
    """
    spec, tokens = trial.spec, known_tokens(trial)
    if spec is None or spec.steps is None or tokens is None or trial.status is not Status.OK:
        return {}
    if tokens < MIN_STREAM_TOKENS or not 0 < spec.steps <= tokens:
        return {}
    share = spec.steps / tokens
    return {"dr.n": 1, "dr.s": round(share * 1e6), "dr.q": round(share * share * 1e6)}


def steps_block(sums: Counts) -> Block:
    """Steps per token in one block of one cell; tau is 1 / mean.

    Example:
        >>> steps_block({"dr.n": 2, "dr.s": 900000, "dr.q": 410000}).mean
        0.45
    """
    n = float(sums.get("dr.n", 0))
    total, squares = sums.get("dr.s", 0) / 1e6, sums.get("dr.q", 0) / 1e6
    if not 0.0 < total <= n or not 0.0 < squares <= n:
        return NOTHING
    return Block(n, total / n, max(squares - total * total / n, 0.0), n - 1.0)


def cost_block(n: FloatArray, total: FloatArray, total_sq: FloatArray) -> Block:
    """Log cost of an arm less the baseline's in one block, stratum by stratum.

    A jump of the baseline shows in the same block for all arms of the class.

    Args:
        n: Observations, shape (strata, 2): the arm, the baseline.
        total: Sums of log cost, in log seconds.
        total_sq: Sums of its squares.

    Returns:
        The block; its n is that of the difference, `sum n_arm n_base / (n_arm + n_base)`.
    """
    both = (n > 0.0).all(axis=1)
    n, total, total_sq = n[both], total[both], total_sq[both]
    if not len(n):
        return NOTHING
    mean = total / n
    weight = n.prod(axis=1) / n.sum(axis=1)
    within = float(np.maximum(total_sq - total * mean, 0.0).sum())
    worth = float(weight.sum())
    difference = float(weight @ (mean[:, 0] - mean[:, 1])) / worth
    return Block(worth, difference, within, float((n - 1.0).clip(0.0).sum()))


def find_change(
    blocks: Sequence[Block],
    *,
    false_per_day: float = FALSE_PER_DAY,
    looks_per_day: float = LOOKS_PER_DAY,
) -> Change | None:
    """Look whether the last blocks differ from those before; to be asked once for each new block.

    Args:
        blocks: In their order, the newest last, the first being the first after the last change.
        false_per_day: False alarms that are allowed.
        looks_per_day: Looks at this cell.

    Example:
        >>> calm = [Block(60.0, 0.36 + 0.004 * (i % 3), 0.2, 59.0) for i in range(20)]
        >>> find_change(calm) is None
        True
        >>> find_change([*calm, Block(60.0, 0.5, 0.2, 59.0)]).at_block
        20
    """
    n, x, starts, noise = _units(blocks)
    splits = len(n) - _LENGTHS[len(n) - _LENGTHS >= MIN_HISTORY]
    if not len(splits):
        return None
    t, df = _contrasts(n, x, noise, splits)
    each = false_per_day / looks_per_day / len(LENGTHS)
    beyond = [
        1.0 - student_t_cdf(t_of, df_of)
        for t_of, df_of in zip(t.tolist(), df.tolist(), strict=True)
        if t_of > student_t_quantile(1.0 - each / 2.0, df_of)
    ]
    if not beyond:
        return None
    split = _most_likely(n, x)
    before, after = (
        float(np.average(part, weights=w))
        for part, w in zip((x[:split], x[split:]), (n[:split], n[split:]), strict=True)
    )
    # The distribution function of a double ends at 1e-16.
    rate = max(2.0 * min(beyond), 1e-16) * looks_per_day * len(LENGTHS)
    return Change(starts[split], before, after, -math.log10(rate))


def scan(
    blocks: Sequence[Block],
    *,
    false_per_day: float = FALSE_PER_DAY,
    looks_per_day: float = LOOKS_PER_DAY,
) -> Iterator[Change]:
    """All changes as they would have been found look by look; after each, memory begins anew.

    For a process that has just started and reads what was before.
    """
    since = 0
    for end in range(1, len(blocks) + 1):
        found = find_change(
            blocks[since:end], false_per_day=false_per_day, looks_per_day=looks_per_day
        )
        if found is not None:
            at = since + found.at_block
            yield Change(at, found.before, found.after, found.evidence)
            since = at


def memory(count: int, changes: Sequence[Change]) -> FloatArray:
    """Weights of a cell's blocks, shape (count,): 0 before the last change, else 1.

    To be multiplied with the weights by age, for this cell only.

    Example:
        >>> memory(4, [Change(2, 0.36, 0.5, 3.0)])
        array([0., 0., 1., 1.])
    """
    weights = np.ones(count)
    weights[: max((change.at_block for change in changes), default=0)] = 0.0
    return weights


@dataclass(frozen=True, slots=True)
class Shift:
    """By how much a figure differs after a block from before, whether or not that is a change."""

    value: float
    variance: float


def shift_at(blocks: Sequence[Block], at_block: int) -> Shift | None:
    """The difference of a class between the blocks from `at_block` on and those before it.

    Returns:
        The shift; None where one side has no observations, or they are too few to know how much
        blocks vary.
    """
    n, x, starts, noise = _units(blocks)
    split = sum(start < at_block for start in starts)
    sides = [(n[:split], x[:split]), (n[split:], x[split:])]
    if not 0 < split < len(n) or len(n) < MIN_HISTORY:
        return None
    means = [float(w @ y / w.sum()) for w, y in sides]
    away = np.concatenate([y - mean for (_, y), mean in zip(sides, means, strict=True)])
    df = len(n) - 2.0
    excess = max(float((n * away**2).sum()) / df / noise, 1.0)
    scaled = np.sqrt(n) * away
    found = float(scaled[1:] @ scaled[:-1]) / max(float(scaled @ scaled), _TINY)
    correlation = np.array([found]).clip(0.0, _MOST_CORRELATION)
    persistence = np.maximum(correlation, PERSISTENCE)
    variance = sum(
        noise / float(w.sum()) * float(_inflation(correlation, persistence, np.array([len(w)]))[0])
        for w, _ in sides
    )
    return Shift(means[1] - means[0], variance * excess)


def cause_of(own: Shift, others: Sequence[Shift]) -> Cause:
    """Tell a jump of the whole arm from one of a single class.

    The mean shift of the arm's other classes, which may differ among themselves (DerSimonian and
    Laird 1986, Controlled Clinical Trials 7, 177-188), is compared with half of this one's: surely
    above is the engine, surely below is the content, else nobody knows. Sure is two standard
    errors.

    Args:
        own: Of the class that has changed, at the block of its change.
        others: Of the arm's other classes, at the same block (`shift_at`).

    Example:
        >>> cause_of(Shift(0.14, 1e-4), [Shift(0.12, 1e-4), Shift(0.15, 2e-4)])
        <Cause.ENGINE: 'engine'>
        >>> cause_of(Shift(0.14, 1e-4), [Shift(0.01, 1e-4), Shift(-0.01, 2e-4)])
        <Cause.CONTENT: 'content'>
    """
    if not others or own.value == 0.0:
        return Cause.UNCLEAR
    sign = math.copysign(1.0, own.value)
    values = sign * np.array([shift.value for shift in others])
    variances = np.array([max(shift.variance, _TINY) for shift in others])
    weight = 1.0 / variances
    centre = float(weight @ values / weight.sum())
    spread = float(weight @ (values - centre) ** 2) - (len(values) - 1)
    scale = float(weight.sum() - (weight**2).sum() / weight.sum())
    between = max(spread / scale, 0.0) if len(values) > 1 else 0.0
    weight = 1.0 / (variances + between)
    centre = float(weight @ values / weight.sum())
    beyond = centre - abs(own.value) / 2.0
    error = math.sqrt(1.0 / float(weight.sum()) + own.variance / 4.0)
    if abs(beyond) <= _SURE * error:
        return Cause.UNCLEAR
    return Cause.ENGINE if beyond > 0.0 else Cause.CONTENT


def _units(blocks: Sequence[Block]) -> tuple[FloatArray, FloatArray, list[int], float]:
    """Blocks put together until each has `MIN_N`; what is left at the end waits for more.

    Returns:
        n, means, first blocks, and the variance of one observation.
    """
    n: list[float] = []
    means: list[float] = []
    starts: list[int] = []
    worth = total = within = df = 0.0
    start = 0
    for index, block in enumerate(blocks):
        if not worth:
            start = index
        worth += block.n
        total += block.n * block.mean
        within += block.within
        df += block.df
        if worth >= MIN_N:
            n.append(worth)
            means.append(total / worth)
            starts.append(start)
            worth = total = 0.0
    return np.array(n), np.array(means), starts, max(within / max(df, 1.0), 1e-12)


def _contrasts(
    n: FloatArray, x: FloatArray, noise: float, splits: NDArray[np.int64]
) -> tuple[FloatArray, FloatArray]:
    """Student's t of what comes after each split against what comes before; its whole df.

    Units on either side have one mean.
    """
    # Beyond sampling, units vary by what the median of their steps tells: a first guess that a jump
    # does not spoil, for the weights alone.
    last = len(x)
    steps = np.partition((x[1:] - x[:-1]) ** 2, last // 2)
    between = float(steps[last // 2]) / _MEDIAN - noise * float((1.0 / n).mean())
    w = n / (1.0 + n * max(between, 0.0) / noise)
    one = np.zeros((3, last + 1))  # sums of w, w x, w x^2 before each unit
    np.cumsum((w, w * x, w * x * x), axis=1, out=one[:, 1:])
    pair = np.sqrt(w[1:] * w[:-1])
    two = np.zeros((3, last))  # and of neighbours
    np.cumsum((pair, pair * (x[1:] + x[:-1]), pair * x[1:] * x[:-1]), axis=1, out=two[:, 1:])
    sides = (
        (one[:, splits], two[:, splits - 1]),
        # The pair that the split divides belongs to neither side.
        (one[:, -1:] - one[:, splits], two[:, -1:] - two[:, splits]),
    )
    mean = [first[1] / first[0] for first, _ in sides]
    around = sum(first[2] - m * first[1] for (first, _), m in zip(sides, mean, strict=True))
    neighbours = sum(
        both[2] - m * (both[1] - m * both[0]) for (_, both), m in zip(sides, mean, strict=True)
    )
    around = np.maximum(around, _TINY)
    free = last - 2.0
    unit = np.maximum(around / free, noise * float((w / n).mean()))
    # Estimated correlations are too low by about (1 + 3 rho) / n (Marriott and Pope 1954,
    # Biometrika 41, 390-402), and uncertain by 1 / sqrt(n).
    likely = neighbours / around
    likely = (likely + (1.0 + 3.0 * likely.clip(0.0)) / last).clip(0.0, _MOST_CORRELATION)
    correlation = (likely + CAUTION / math.sqrt(last)).clip(0.0, _MOST_CORRELATION)
    persistence = np.maximum(correlation, PERSISTENCE)
    variance = unit * (
        _inflation(correlation, persistence, last - splits) / sides[1][0][0]
        + _inflation(correlation, persistence, splits) / sides[0][0][0]
    )
    # A variance of so many neighbours is worth fewer independent ones; half of these pay for the
    # correlation, which is estimated too.
    df = free / 2.0 * (1.0 - likely**2) / (1.0 + likely**2)
    return np.abs(mean[1] - mean[0]) / np.sqrt(variance), np.floor(df).clip(_LEAST_DF)


def _inflation(
    correlation: FloatArray, persistence: FloatArray, length: NDArray[np.int64]
) -> FloatArray:
    """Variance of a mean of so many neighbours over that of independent ones.

    `1 + 2 sum (1 - j / m) r p^(j - 1)` over j below m, summed up.
    """
    left = 1.0 - persistence
    powers = 1.0 - persistence**length
    return np.asarray(1.0 + 2.0 * correlation / left * (1.0 - powers / (length * left)))


def _most_likely(n: FloatArray, x: FloatArray) -> int:
    """The split with the largest likelihood ratio: index of the first unit after the change."""
    worth, total = n.cumsum(), (n * x).cumsum()
    left, right = worth[:-1], worth[-1] - worth[:-1]
    gap = total[:-1] / left - (total[-1] - total[:-1]) / right
    return 1 + int(np.argmax(left * right * gap**2))
