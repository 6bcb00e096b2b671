"""A cell as a series of blocks, which is what a detector of drift looks at. It detects nothing."""

from __future__ import annotations

from collections.abc import Iterable
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


def tau_series(blocks: Iterable[tuple[int, StepSums]]) -> tuple[BlockSum, ...]:
    """Tokens per step of a cell, block by block.

    A request counts as the observation `tau + (T - tau S) / mean S`, with tau and the mean of S
    over all blocks: the first-order part of its pull on tau, so a long answer counts for more.

    Args:
        blocks: Number of each block, and its sums.

    Example:
        >>> sums = StepSums(2, 60, 30, 1800, 900, 450)
        >>> tau_series([(7, sums), (8, StepSums())])
        (BlockSum(block=7, n=2.0, total=4.0, total_sq=8.0),)
    """
    there = [(block, sums) for block, sums in blocks if 0 < sums.steps <= sums.tokens]
    steps = sum(sums.steps for _, sums in there)
    n = sum(sums.n for _, sums in there)
    if not steps or not n:
        return ()
    tau, mean = sum(sums.tokens for _, sums in there) / steps, steps / n
    made = []
    for block, sums in there:
        off = (sums.tokens - tau * sums.steps) / mean
        off_sq = max(sums.tt - 2.0 * tau * sums.ts + tau * tau * sums.ss, 0.0) / mean**2
        total_sq = sums.n * tau * tau + 2.0 * tau * off + off_sq
        made.append(BlockSum(block, float(sums.n), sums.n * tau + off, total_sq))
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
