"""Whether a cell has changed, where, and what that is a sign of. It keeps nothing between looks.

Two figures of a cell are watched, block by block: steps per token (acceptance, 1 / tau), and log
cost against the baseline measured at the same time (time). A cell in which one of them jumped must
forget what was before; others must not.

A look asks whether the last few blocks differ from all before, for several lengths of "the last
few". Each is the generalised likelihood ratio of one split (Besson et al. 2022, arXiv 1902.01575,
`s kl(before, all) + (n - s) kl(after, all)`, for normal means the squared difference over its
variance). Their thresholds take blocks as independent and the variance as known. Neither is so
here: mixes wander, and neighbouring blocks are alike. So a block is its mean, what sampling adds,
of known variance, and what the mix adds, of which as much is left from block to block as one of
`PERSISTENCE` says. The difference and its variance are those of generalised least squares under
that covariance, for many variances of the mix. None of them is taken for the true one, since few
blocks do not tell: the chance of a difference is its mean over all, each weighing as well as it
explains what was seen (Zellner and Tiao 1964, JASA 59, 763-778, for errors that follow each other,
with flat priors). So a jump out of a slow mix shows in its first block, and blocks that sampling
explains are not taken for a mix that wanders. Where the change was is then the likeliest split.

`FALSE_PER_DAY` is met by sharing half of it out over all looks of a day and all lengths, which
holds however looks depend on each other. `bench/verify_models.py` counts the false alarms.

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
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from policies.cost import MIN_STREAM_TOKENS, known_tokens
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

PERSISTENCE = (0.6, 0.9)
"""From block to block so much of a mix is left. Judgement: half after three minutes, and half after
a quarter of an hour; what lies between the data place between, and what takes longer is the
business of the half-life."""

MIN_N = 10.0
"""Observations of a block; smaller ones are put together until they have as many. Judgement: means
of ten are near enough to normal for tails this far out, which the simulation checks."""

MIN_HISTORY = 8
"""Blocks before. Judgement: how much they vary is averaged over, so few of them only ask for a
larger jump; a window of an hour has thirty, or half as many where a cell gets five requests in
each."""

MOST_UNITS = 64
"""Blocks, put together or not, that are looked at: the last ones. Judgement: more would tell a
little more of how they vary, and cost with the square of their number."""

_TINY = 1e-300
_LENGTHS = np.array(LENGTHS)
# Variances of the mix over that of what neighbours differ by: none, and from where it does not show
# to where all that does is its first step of a long way. The factor is half of what sixty blocks
# leave open.
_RATIOS = np.array([0.0, *2.0 ** np.arange(-6.0, 7.5, 0.5)])
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
    found = _contrasts(n, x, noise, splits)
    t = np.abs(found.value) / np.sqrt(found.variance)
    chance = float((found.weight * _outside(t)).sum(axis=0).min())
    if chance > false_per_day / looks_per_day / len(LENGTHS):
        return None
    anywhere = np.arange(1, len(n))
    split = int(anywhere[_contrasts(n, x, noise, anywhere).likelihood.argmax()])
    before, after = (
        float(np.average(part, weights=w))
        for part, w in zip((x[:split], x[split:]), (n[:split], n[split:]), strict=True)
    )
    rate = max(chance, _TINY) * looks_per_day * len(LENGTHS)
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
    if not 0 < split < len(n) or len(n) < MIN_HISTORY:
        return None
    found = _contrasts(n, x, noise, np.array([split]))
    value = float((found.weight * found.value).sum())
    spread = found.variance + (found.value - value) ** 2
    return Shift(value, float((found.weight * spread).sum()))


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
    noise = max(within / max(df, 1.0), 1e-12)
    return np.array(n[-MOST_UNITS:]), np.array(means[-MOST_UNITS:]), starts[-MOST_UNITS:], noise


@dataclass(frozen=True, slots=True)
class _Contrasts:
    """What comes after each split against what comes before; shapes (supposed, splits).

    Attributes:
        value: Differences of means, by what is supposed of the mix.
        variance: Of the difference if that is true.
        weight: How likely it is; sums to 1 for each split.
        likelihood: Logarithm of that of a change there, shape (splits,); only differences count.
    """

    value: FloatArray
    variance: FloatArray
    weight: FloatArray
    likelihood: FloatArray


def _contrasts(n: FloatArray, x: FloatArray, noise: float, splits: NDArray[np.int64]) -> _Contrasts:
    """Compares both sides of each split; units on either have one mean."""
    # Units of many requests vary as the mix does, those of few as sampling does: scaled by a first
    # guess of both, which a jump does not spoil, they all vary about alike.
    last = len(x)
    steps = np.partition(np.diff(x) ** 2, last // 2)
    wander = max(float(steps[last // 2]) / _MEDIAN - noise * float((1.0 / n).mean()), 0.0)
    w = n / (1.0 + n * wander / noise)
    sampling = noise * float((w / n).mean())
    root = np.sqrt(w)
    y = root * (x - float(w @ x / w.sum()))
    after = root[:, None] * (np.arange(last)[:, None] >= splits)
    # Along the axes of the mix's covariance all that differs is independent, whatever its variance.
    length, axes = _spectrum(last)
    z = axes.transpose(0, 2, 1) @ np.column_stack((y, root, after))
    scatter = max(float((np.diff(y) ** 2).mean()) / 2.0, sampling)
    variance = (scatter * _RATIOS)[:, None] * length[:, None] + sampling
    precision = 1.0 / variance
    squares = precision @ z**2
    with_y = precision @ (z[..., :1] * z[..., 1:])
    with_one = precision @ (z[..., 1:2] * z[..., 2:])
    one = squares[..., 1:2]
    known = squares[..., 2:] - with_one**2 / one
    value = (with_y[..., 1:] - with_one * with_y[..., :1] / one) / known
    rest = squares[..., :1] - with_y[..., :1] ** 2 / one - value**2 * known
    fit = -0.5 * (np.log(variance).sum(axis=-1)[..., None] + np.log(one * known) + rest)
    highest = fit.max(axis=(0, 1))
    weight = np.exp(fit - highest)
    total = weight.sum(axis=(0, 1))
    shape = (-1, len(splits))
    return _Contrasts(
        value=value.reshape(shape),
        variance=(1.0 / known).reshape(shape),
        weight=(weight / total).reshape(shape),
        likelihood=highest + np.log(total),
    )


@lru_cache(maxsize=MOST_UNITS)
def _spectrum(count: int) -> tuple[FloatArray, FloatArray]:
    """Variances along the axes of the covariance of so many units, and the axes, by persistence."""
    apart = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    found = np.linalg.eigh(np.array(PERSISTENCE)[:, None, None] ** apart)
    return found.eigenvalues, found.eigenvectors


def _outside(t: FloatArray) -> FloatArray:
    """Probability of a standard normal to be farther from 0; up to 6 % too large near 0.

    Abramowitz and Stegun 7.1.13.
    """
    x = t / math.sqrt(2.0)
    return np.asarray(
        2.0 / math.sqrt(math.pi) * np.exp(-x * x) / (x + np.sqrt(x * x + 4.0 / math.pi))
    )
