"""A cell as a series of blocks, which is what a detector of drift looks at. It detects nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.estimators.effects import sound_cells
from policies.estimators.tau import StepSums
from policies.types import FloatArray


@dataclass(frozen=True, slots=True)
class BlockSum:
    """Sums of one block.

    Attributes:
        block: Its number.
        n: Observations; need not be whole.
        total: Their sum.
        total_sq: Sum of their squares.
    """

    block: int
    n: float
    total: float
    total_sq: float


def steps_series(blocks: Iterable[tuple[int, StepSums]]) -> tuple[BlockSum, ...]:
    """Steps per token of a cell, block by block; tau is the inverse of their mean.

    A block's mean is the ratio of its sums, so long answers count for more, and it counts as many
    observations as answers of the usual length would have as many tokens. How long answers are does
    not depend on what drafts do, so the same holds on both sides of the largest jump.

    Args:
        blocks: Number of each block, and its sums.

    Example:
        >>> sums = StepSums(2, 60, 30, 1800, 900, 450)
        >>> steps_series([(7, sums), (8, StepSums())])
        (BlockSum(block=7, n=2.0, total=1.0, total_sq=0.5),)
    """
    there = [(block, sums) for block, sums in blocks if 0 < sums.steps <= sums.tokens]
    answers = sum(sums.n for _, sums in there)
    if not answers:
        return ()
    usual = sum(sums.tokens for _, sums in there) / answers
    made = []
    for block, sums in there:
        n, total, rho = sums.tokens / usual, sums.steps / usual, sums.steps / sums.tokens
        within = max(sums.ss - 2.0 * rho * sums.ts + rho * rho * sums.tt, 0.0) / usual**2
        made.append(BlockSum(block, n, total, total * rho + within))
    return tuple(made)


def cost_series(
    sums: FloatArray, block: NDArray[np.int64], noise: FloatArray, *, arm: int, baseline: int
) -> tuple[BlockSum, ...]:
    """Difference of an arm's log cost to the baseline's, block by block, each within its strata.

    The strata of a block are weighed by the inverse of their variance. A block then counts as
    `n = unit / variance` observations of variance `unit = noise[arm] + noise[baseline]`.

    Args:
        sums: n, sum and sum of squares of log cost, shape (strata, 3, arms).
        block: Block of each stratum, shape (strata,); below 0 is none.
        noise: Variance of one observation, shape (arms,).
        arm: Index of the arm.
        baseline: Index of the baseline.

    Example:
        >>> one = np.array([[[50.0, 50.0], [0.0, -25.0], [4.5, 17.0]]])
        >>> [found] = cost_series(one, np.array([3]), np.array([0.09, 0.09]), arm=1, baseline=0)
        >>> found.block, round(found.n), round(found.total / found.n, 3)
        (3, 50, -0.5)
    """
    n, ybar, _ = sound_cells(sums[:, 0], sums[:, 1], sums[:, 2])
    both = (n[:, arm] > 0.0) & (n[:, baseline] > 0.0) & (block >= 0)
    n, ybar, of = n[both], ybar[both], block[both]
    precision = 1.0 / (noise[arm] / n[:, arm] + noise[baseline] / n[:, baseline])
    difference = ybar[:, arm] - ybar[:, baseline]
    unit = float(noise[arm] + noise[baseline])
    made = []
    for number in np.unique(of).tolist():
        here = of == number
        weight = float(precision[here].sum())
        mean = float((precision * difference)[here].sum()) / weight
        many = unit * weight
        made.append(BlockSum(int(number), many, many * mean, many * (mean * mean + unit)))
    return tuple(made)


def together(series: Sequence[Sequence[BlockSum]]) -> tuple[BlockSum, ...]:
    """Several series as one: each observation less the mean of its own, plus the mean of all.

    What a jump of all of them does is seen sooner than in each; a mix of them that changes does
    nothing.

    Example:
        >>> low, high = [BlockSum(1, 2.0, 2.0, 3.0)], [BlockSum(1, 2.0, 6.0, 19.0)]
        >>> together([low, high])
        (BlockSum(block=1, n=4.0, total=8.0, total_sq=18.0),)
    """
    sums = [(sum(of.n for of in one), sum(of.total for of in one)) for one in series]
    n = sum(of for of, _ in sums)
    if not n > 0.0:
        return ()
    mean = sum(total for _, total in sums) / n
    made: dict[int, BlockSum] = {}
    for one, (own_n, own_total) in zip(series, sums, strict=True):
        off = mean - own_total / own_n if own_n > 0.0 else 0.0
        for of in one:
            known = made.get(of.block, BlockSum(of.block, 0.0, 0.0, 0.0))
            made[of.block] = BlockSum(
                of.block,
                known.n + of.n,
                known.total + of.total + of.n * off,
                known.total_sq + of.total_sq + 2.0 * off * of.total + of.n * off * off,
            )
    return tuple(made[block] for block in sorted(made))
