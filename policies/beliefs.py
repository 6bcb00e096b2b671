"""What a policy believes of the arms of one class, for people to look at. It decides nothing.

Costs are told as logs of their ratio to the baseline's cost: what is unsure of all arms alike, the
machine or the length of answers, is no doubt about which of them is faster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import numpy as np

from policies.expected import PRIOR_SD, expected_cost
from policies.types import FloatArray

if TYPE_CHECKING:
    from policies.knowledge import Moment
    from policies.types import ArmView

POINTS: Final = 64
"""Of the grid on which densities are told."""

LEVEL: Final = 0.9
"""What the interval of a belief holds."""

_Z: Final = 1.645
_REACH: Final = 3.0
_LEAST_SD: Final = 1e-3
_MOST_LOG: Final = 20.0


@dataclass(frozen=True, slots=True)
class Beliefs:
    """Of each arm's log cost against the baseline's.

    Attributes:
        mean: Shape (arms,).
        low: Lower end of the central interval of `LEVEL`, shape (arms,).
        high: Upper end.
        better: Probability of costing no more than the baseline, shape (arms,); 1 for itself.
        grid: Log costs, rising, shape (points,).
        density: On the grid, shape (arms, points); all 0 of an arm about which there is no doubt.
    """

    mean: FloatArray
    low: FloatArray
    high: FloatArray
    better: FloatArray
    grid: FloatArray
    density: FloatArray


@dataclass(frozen=True, slots=True)
class Exploring:
    """What arms may have that are not shown to be worth it.

    Attributes:
        proof: Probability of being no worse from which an arm is proven.
        unproven: Which arms are not, without those held back; positions.
        budget: Share of requests that they may have together.
        wanted: Share that they would have had without the budget.
        floor: Share that each arm has in any case, so that change is seen.
        held: Arms that are held back, with the reason.
    """

    proof: float
    unproven: tuple[int, ...]
    budget: float
    wanted: float
    floor: float
    held: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Told:
    """What a policy tells of one class; `exploring` is None where it has no budget for it."""

    beliefs: Beliefs
    exploring: Exploring | None = None


@runtime_checkable
class TellsOfMoments(Protocol):
    """What `ContextPolicy.prepare` returned, if it can be looked into."""

    def told(self, moment: Moment) -> Told:
        """What is believed of requests such as this one."""
        ...


@runtime_checkable
class TellsOfViews(Protocol):
    """A policy of views that can be looked into."""

    def told(self, view: ArmView) -> Told:
        """What it believes, given the view."""
        ...


def of_view(view: ArmView, prior_sd: float = PRIOR_SD) -> Told:
    """Beliefs of policies that go by `policies.expected.expected_cost`."""
    known = expected_cost(view, prior_sd)
    return Told(of_normals(known.mean - known.mean[view.baseline_index], known.sd))


def of_normals(mean: FloatArray, sd: FloatArray) -> Beliefs:
    """Beliefs that are normal.

    Args:
        mean: Of the log cost against the baseline's, shape (arms,).
        sd: Shape (arms,); 0 for the baseline.

    Example:
        >>> known = of_normals(np.array([0.0, -0.5]), np.array([0.0, 0.25]))
        >>> known.better.round(3), known.low.round(2), known.high.round(2)
        (array([1.   , 0.977]), array([ 0.  , -0.91]), array([ 0.  , -0.09]))
    """
    mean, sd = _sound(mean), _sound(sd)
    doubt = sd > _LEAST_SD
    spread = np.where(doubt, sd, 1.0)
    grid = _grid(mean - _REACH * sd, mean + _REACH * sd)
    z = (grid - mean[:, None]) / spread[:, None]
    density = np.exp(-0.5 * z * z) / (math.sqrt(2.0 * math.pi) * spread[:, None])
    below = np.array([0.5 * math.erfc(at / math.sqrt(2.0)) for at in mean / spread])
    return Beliefs(
        mean,
        mean - _Z * sd,
        mean + _Z * sd,
        np.where(doubt, below, mean <= 0.0),
        grid,
        np.where(doubt[:, None], density, 0.0),
    )


def of_draws(draws: FloatArray) -> Beliefs:
    """Beliefs as joint draws, shape (arms, draws), of log costs against the baseline's.

    Densities are sums of normal kernels with the bandwidth of Silverman (1986, "Density
    Estimation", eq. 3.31).

    Example:
        >>> drawn = np.stack([np.zeros(1000), np.random.default_rng(0).normal(-0.5, 0.25, 1000)])
        >>> known = of_draws(drawn)
        >>> known.better.round(2), known.mean.round(1)
        (array([1.  , 0.98]), array([ 0. , -0.5]))
        >>> bool(abs(np.trapezoid(known.density[1], known.grid) - 1.0) < 0.02)
        True
    """
    draws = _sound(draws)
    low, quarter, three, high = np.quantile(draws, (0.05, 0.25, 0.75, 0.95), axis=1)
    sd = draws.std(axis=1)
    wide = np.minimum(sd, np.where(three > quarter, (three - quarter) / 1.34, sd))
    width = 0.9 * wide * draws.shape[1] ** -0.2
    doubt = width > _LEAST_SD * 0.1
    width = np.where(doubt, width, 1.0)
    grid = _grid(draws.min(axis=1) - sd / 2, draws.max(axis=1) + sd / 2)
    density = np.zeros((len(draws), len(grid)))
    for arm in np.flatnonzero(doubt):
        z = (grid[:, None] - draws[arm]) / width[arm]
        density[arm] = np.exp(-0.5 * z * z).mean(axis=1) / (math.sqrt(2.0 * math.pi) * width[arm])
    return Beliefs(draws.mean(axis=1), low, high, (draws <= 0.0).mean(axis=1), grid, density)


def _sound(values: FloatArray) -> FloatArray:
    found: FloatArray = np.clip(
        np.nan_to_num(values, nan=0.0, posinf=_MOST_LOG, neginf=-_MOST_LOG), -_MOST_LOG, _MOST_LOG
    )
    return found


def _grid(low: FloatArray, high: FloatArray) -> FloatArray:
    start, end = min(float(low.min()), 0.0), max(float(high.max()), 0.0)
    margin = max(0.05 * (end - start), 0.01)
    return np.linspace(start - margin, end + margin, POINTS)
