"""What requests of one arm at one time have in common beyond their stratum: its server's moment.

A server that is busy, warm or throttled makes all answers slower or faster that it gives just then,
so a hundred of them are not a hundred observations of its arm. The model is that of `effects` with
one more term, `y = mu_s + delta_a + u_ab + eps` with `u_ab ~ N(0, omega^2)` for arm a in block b:
what in meta-analysis is the variance between studies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from policies.types import FloatArray

OMEGA0 = 0.05
"""Prior sd of what the answers of an arm in a block share. Judgement: servers alike in all else
drift apart by some hundredths from one couple of minutes to the next. Twice as much makes the first
verdict come after twice as many requests (`bench/verify_statistics.py`)."""

NU_OMEGA = 8.0
"""Contrasts between blocks that this prior is worth. Judgement: gone after half an hour."""

_LEAST = 1e-9


@dataclass(frozen=True, slots=True)
class Blocks:
    """Reduced normal equations of each block (`effects.arm_effects`).

    Attributes:
        precision: `M_b`, shape (blocks, arms, arms).
        score: `c_b`, shape (blocks, arms).
        number: Of each block, in ascending order, shape (blocks,).
    """

    precision: FloatArray
    score: FloatArray
    number: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shared:
    """How much answers of one arm in one block share.

    Attributes:
        variance: omega^2.
        df: Contrasts between blocks behind it, those of the prior included.
    """

    variance: float
    df: float


NOTHING_SHARED = Shared(0.0, 1.0)


def by_block(w: FloatArray, ybar: FloatArray, block: NDArray[np.int64] | None) -> Blocks:
    """Add the normal equations of strata up by block.

    Args:
        w: Weights `n / sigma^2`, shape (strata, arms).
        ybar: Means, same shape.
        block: Which block each stratum is of, shape (strata,); None takes all as one.
    """
    level = w.sum(axis=1, keepdims=True)
    share = w / np.where(level > 0.0, level, 1.0)
    score = w * (ybar - (share * ybar).sum(axis=1, keepdims=True))
    if block is None or not len(block):
        lam = np.diag(w.sum(axis=0)) - w.T @ share
        return Blocks(lam[None], score.sum(axis=0)[None], np.zeros(1, dtype=np.int64))
    order = np.argsort(block, kind="stable")
    first = np.flatnonzero(np.diff(block[order], prepend=block[order[0]] - 1))
    precision = -np.add.reduceat(w[order, :, None] * share[order, None, :], first, axis=0)
    diagonal = np.arange(w.shape[1])
    precision[:, diagonal, diagonal] += np.add.reduceat(w[order], first, axis=0)
    return Blocks(precision, np.add.reduceat(score[order], first, axis=0), block[order][first])


def shared_variance(blocks: Blocks, keep: NDArray[np.bool_]) -> Shared:
    """Estimate omega^2 by moments and shrink it to `OMEGA0`.

    With `theta_b = M_b^+ c_b` what block b alone says, `Lambda = sum_b M_b` and `delta` the common
    effects, the generalised statistic of DerSimonian and Laird (1986, Controlled Clinical Trials 7;
    Jackson, White and Riley 2013, Biometrical Journal 55, for several effects)::

        Q    = sum_b (theta_b - delta)' M_b (theta_b - delta)
        E Q  = sum_b rank M_b - p + omega^2 (sum_b tr M_b - tr(Lambda^-1 sum_b M_b M_b))

    where p effects are estimated and their rows alone are kept in `Lambda` and its neighbour.

    Args:
        blocks: Of arms that are connected with the baseline; rows of others are 0.
        keep: Arms whose effects are estimated, shape (arms,).

    Example:
        >>> one = np.array([[1.0, -1.0], [-1.0, 1.0]])
        >>> alike = Blocks(np.stack([500 * one] * 60), np.zeros((60, 2)), np.arange(60))
        >>> moves = np.tile([0.1, -0.1], 30)[:, None] * [-500.0, 500.0]
        >>> apart = replace(alike, score=moves)
        >>> keep = np.array([False, True])
        >>> [round(shared_variance(of, keep).variance, 4) for of in (alike, apart)]
        [0.0003, 0.0039]
    """
    values, vectors = np.linalg.eigh(blocks.precision)
    told = values > _LEAST * np.maximum(values.max(initial=0.0), 1.0)
    along = np.einsum("bij,bi->bj", vectors, blocks.score)
    within = float((np.where(told, along**2, 0.0) / np.where(told, values, 1.0)).sum())
    lam = blocks.precision.sum(axis=0)[np.ix_(keep, keep)]
    inverse = np.linalg.pinv(lam, hermitian=True)
    score = blocks.score.sum(axis=0)[keep]
    q = within - float(score @ inverse @ score)
    spare = float(told.sum()) - float(keep.sum())
    squares = np.einsum("bij,bjk->ik", blocks.precision, blocks.precision)[np.ix_(keep, keep)]
    scale = float(np.trace(blocks.precision.sum(axis=0)) - np.trace(inverse @ squares))
    if spare <= 0.0 or not scale > _LEAST:
        return Shared(OMEGA0**2, NU_OMEGA)
    found = max((q - spare) / scale, 0.0)
    return Shared((NU_OMEGA * OMEGA0**2 + spare * found) / (NU_OMEGA + spare), NU_OMEGA + spare)


def marginal(blocks: Blocks, variance: float) -> Blocks:
    """The equations with what is shared integrated out: `(I + omega^2 M)^-1 M`, and so the score.

    It is the inverse of `M^-1 + omega^2 I`, also where M has none.

    Example:
        >>> lam, score = np.array([[[9.0, -9.0], [-9.0, 9.0]]]), np.array([[-1.0, 1.0]])
        >>> one = Blocks(lam, score, np.arange(1))
        >>> marginal(one, 0.5).precision[0, 1, 1].round(3).tolist()  # 1 / (1/9 + 2 * 0.5)
        0.9
    """
    shrink = np.linalg.inv(np.eye(blocks.score.shape[1]) + variance * blocks.precision)
    score = (shrink @ blocks.score[:, :, None])[:, :, 0]
    return replace(blocks, precision=shrink @ blocks.precision, score=score)


def with_shared(
    df: FloatArray, variance: FloatArray, own: FloatArray, shared: Shared
) -> FloatArray:
    """Degrees of freedom of both noises together (Satterthwaite 1946).

    Args:
        df: Of the noise of single answers, any shape, as the next two.
        variance: Of estimates.
        own: What it would be if nothing were shared.
        shared: What is.

    Example:
        >>> one = np.array([100.0]), np.array([0.02]), np.array([0.01])
        >>> with_shared(*one, Shared(0.005, 4.0)).round(1).tolist()
        [15.4]
    """
    common = np.maximum(variance - own, 0.0)
    found: FloatArray = variance**2 / ((variance - common) ** 2 / df + common**2 / shared.df)
    return found
