"""Arithmetic on proposals: mask, floor, draw. It knows no policy and no randomness of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from policies.types import ArmId

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from policies.types import FloatArray

_ROUNDING = 1e-12
_CLEAR = (0.6, 0.9)


def masked(probabilities: FloatArray, eligible: NDArray[np.bool_], fallback: int) -> FloatArray:
    """Restrict a PMF to the eligible arms and renormalise it.

    When the eligible arms hold no mass, or anything among them is negative or not finite, all mass
    goes to the fallback if it is eligible, else to the first eligible arm.

    Args:
        probabilities: Shape (arms,).
        eligible: Shape (arms,).
        fallback: Index of the arm to fall back on, normally the baseline.

    Returns:
        A PMF of shape (arms,), exactly 0 on arms that are not eligible.

    Raises:
        ValueError: No arm is eligible.

    Example:
        >>> masked(np.array([0.5, 0.3, 0.2]), np.array([False, True, True]), 0)
        array([0. , 0.6, 0.4])
        >>> masked(np.array([1.0, 0.0, 0.0]), np.array([False, True, True]), 0)
        array([0., 1., 0.])
    """
    if not eligible.any():
        raise ValueError("no arm is eligible")
    kept = np.where(eligible, probabilities, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        mass = float(kept.sum())
    if 0.0 < mass < np.inf and float(kept.min()) >= 0.0:
        pmf = kept / mass
        if abs(float(pmf.sum()) - 1.0) < _ROUNDING:  # a subnormal mass does not divide well
            return pmf
    pmf = np.zeros(len(kept))
    pmf[fallback if eligible[fallback] else int(eligible.argmax())] = 1.0
    return pmf


def with_floor(p: FloatArray, floor: float) -> FloatArray:
    """Mix a PMF with a uniform share so that every arm gets at least `floor`.

    `p' = floor + (1 - A floor) p`, the mixture of epsilon-greedy and Exp3 (Auer et al. 2002,
    section 3, with gamma = A floor): no arm falls below the floor, not even by rounding.

    Args:
        p: PMF, shape (arms,).
        floor: Least probability of an arm; `A * floor <= 1`.

    Returns:
        PMF, shape (arms,).

    Raises:
        ValueError: The floor is negative or leaves nothing to distribute.

    Example:
        >>> with_floor(np.array([1.0, 0.0]), 0.02)
        array([0.98, 0.02])
    """
    left = 1.0 - len(p) * floor
    if not (floor >= 0.0 and left >= -_ROUNDING):
        most = 1.0 / len(p)
        raise ValueError(f"floor must be within 0..{most:.4g} for {len(p)} arms, not {floor}")
    return floor + max(left, 0.0) * p


def draw(p: FloatArray, u: float) -> int:
    """Draw an arm by the inverse of the cumulative distribution.

    Args:
        p: PMF, shape (arms,); a sum off 1 by rounding is tolerated.
        u: Uniform number in [0, 1).

    Returns:
        Index of an arm whose probability is above 0.

    Example:
        >>> [draw(np.array([0.25, 0.0, 0.75]), u) for u in (0.0, 0.2499, 0.25, 0.9999)]
        [0, 0, 2, 2]
    """
    cumulative = np.cumsum(p)
    index = int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))
    return index if index < len(p) else int(np.flatnonzero(p)[-1])


def lean_of(arms: Sequence[ArmId], p: Sequence[float]) -> str:
    """Name where a proposal leans: which arm it prefers, and how clearly.

    Among requests of one lean chance alone decides between arms, as far as it is told: what led the
    policy to prefer one is the same for all of them (Rosenbaum and Rubin 1983, stratifying by the
    propensity). The bounds are a judgement: a policy that explores prefers an arm clearly or not.

    Args:
        arms: Their ids.
        p: Probability of each.

    Example:
        >>> names = [ArmId("plain"), ArmId("fast")]
        >>> lean_of(names, [0.02, 0.98]) == lean_of(names, [0.05, 0.95])
        True
        >>> lean_of(names, [0.02, 0.98]) == lean_of(names, [0.3, 0.7])
        False
    """
    most = max(p)
    clearly = sum(most >= bound for bound in _CLEAR)
    return f"x{crc32(arms[list(p).index(most)].encode()) & 0xFFFF:04x}{clearly}"
