"""Whether two arms answered the same mix of the parts of a class. It judges no arm.

A policy that sends applications to arms on purpose gives each arm a mix of its own. Figures of
whole classes, such as tails, then show the applications and not the arm.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from policies.types import FloatArray

MIX_LIMIT = 0.02
"""Share of answers that would have to be of another part, beyond chance, from which on mixes are
not alike. Judgement: if all of them are slow, an arm's 95th percentile is the 97th of a like
mix."""

_SURE = 2.0
"""Standard deviations. Judgement: of few answers, like mixes are then taken for unlike once in ten
at most, and of many never."""

_MEAN = math.sqrt(2.0 / math.pi)
"""Of the absolute value of a standard normal."""


def mix_distance(arm: FloatArray, baseline: FloatArray) -> float:
    """Total variation distance between the mixes of two arms, beyond what chance makes of it.

    Half the sum over parts of how far their shares differ. Block b weighs
    `n_arm n_base / (n_arm + n_base)`, as in `tails.tail_ratio`, so it is about the mixture whose
    quantiles are compared. Where every request was drawn with the same probabilities the share of
    a part differs by a normal with the variance `sum_b u_b^2 p (1 - p) (1 / n_arm + 1 / n_base)`;
    the mean of the distance and two standard deviations are taken off, parts as if they were
    independent.

    Args:
        arm: Answers of the arm, shape (blocks, parts).
        baseline: Of the baseline in the same blocks.

    Returns:
        From 0, alike as far as can be told, to 1; 0 where no block has answers of both.

    Example:
        >>> alike, other = np.array([[500.0, 510.0]]), np.array([[900.0, 100.0]])
        >>> mix_distance(alike, alike[:, ::-1]), round(mix_distance(alike, other), 2)
        (0.0, 0.37)
    """
    n_arm, n_base = arm.sum(axis=1), baseline.sum(axis=1)
    both = (n_arm > 0.0) & (n_base > 0.0)
    arm, baseline, n_arm, n_base = arm[both], baseline[both], n_arm[both], n_base[both]
    n = n_arm + n_base
    weight = n_arm * n_base / n
    whole = float(weight.sum())
    if not whole > 0.0:
        return 0.0
    differ = (weight / whole) @ (arm / n_arm[:, None] - baseline / n_base[:, None])
    share = (arm + baseline) / n[:, None]
    variance = weight @ (share * (1.0 - share)) / whole**2
    chance = _MEAN * float(np.sqrt(variance).sum())
    spread = math.sqrt((1.0 - _MEAN**2) * float(variance.sum()))
    return max(0.5 * (float(np.abs(differ).sum()) - chance - _SURE * spread), 0.0)


def alike(answers: FloatArray, baseline: int) -> NDArray[np.bool_]:
    """Which arms answered the same mix as the baseline, within `MIX_LIMIT`.

    Args:
        answers: Shape (blocks, parts, arms).
        baseline: Index of the baseline.

    Example:
        >>> alike(np.array([[[500.0, 900.0, 50.0], [510.0, 100.0, 49.0]]]), 0)
        array([ True, False,  True])
    """
    of = [mix_distance(answers[:, :, a], answers[:, :, baseline]) for a in range(answers.shape[2])]
    return np.array(of) <= MIX_LIMIT
