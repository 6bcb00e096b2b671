"""Time of a decode step by load: what a request adds, and the model that the sums give.

What is modelled is the mean step time of a request that meets a load when it comes, which is what
is known when an arm is chosen; load may change while it runs, and that is part of the mean.

The curve is continuous and does not fall, and it is linear within each of eleven buckets of load,
which are finer than the bands: one request alone is bound by memory, many by arithmetic, and
servers differ in where that turns. So sums of powers and products hold all that the fit needs. No
shape is selected by the data: an interval after a selection is too narrow. Where a bucket says
little, a prior continues its neighbours' line.

============  =========================================================================
field         sum over requests, `<i>` the bucket of their load
============  =========================================================================
`st.<i>.n`    requests
`st.<i>.l`    load
`st.<i>.ll`   load squared
`st.<i>.s`    step time, microseconds
`st.<i>.sl`   step time times load
`st.<i>.q`    step time squared, in 1e-9 s^2
`st.vn`       requests whose drafted tokens are known
`st.v`        tokens to verify in a step of those (one and the draft), in thousandths
============  =========================================================================
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from policies.cost import MIN_STREAM_TOKENS, known_duration, known_tokens
from policies.estimators.load import HIGHEST
from policies.estimators.regression import Fit, Interval, fit
from policies.types import OK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.types import Counts, FloatArray, Trial

KNOTS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96)
"""Largest load of each bucket but the last. Doubling below, closer above, where the turn mostly is;
each edge of a load band is one, and so are sizes for which engines capture graphs."""

BUCKETS = len(KNOTS) + 1

_NAMES = tuple(
    tuple(f"st.{bucket}.{part}" for part in ("n", "l", "ll", "s", "sl", "q"))
    for bucket in range(BUCKETS)
)

FIELDS = frozenset((*chain.from_iterable(_NAMES), "st.vn", "st.v"))
"""All fields."""

MIN_STEPS = 9
"""Judgement: first and last content mark the span to a fraction of a step each, where events are
merged or held up by a timer to about one; over eight steps that is an eighth at most."""

RANGE_S = (1e-4, 10.0)
"""Step times are clipped to it: small models on large devices take a millisecond, large ones on a
CPU seconds. One absurd request then moves a mean of a thousand by ten milliseconds at most."""

MOST_VERIFIED = 1024
"""Tokens to verify in one step of one request, at most."""

MIN_BUCKET_N = 5.0
"""Requests from which a bucket counts as seen. Judgement."""

_STEPS = np.diff([*KNOTS, 2.0 * KNOTS[-1]])
_EDGES = np.array(KNOTS, dtype=np.float64)
"""Segments begin there; the last one's length only sets the unit of its coefficient."""

_COLUMNS = 1 + len(KNOTS)
_JUMPS = BUCKETS - 1

_NOISE_PRIOR_N = 4.0
_LEAST_CV, _MOST_CV = 0.01, 1000.0
_MOST_N = 1e12


def increments(trial: Trial) -> dict[str, int]:
    """What a finished request adds to the part of its load band; nothing where it cannot tell.

    From first to last content a stream of so many steps takes all of them but the first.

    Args:
        trial: The request.

    Returns:
        Field to integer, for the cell (arm, `*`, `load.load_part(trial.load)`).

    Example:
        >>> from policies.types import ArmId, ClassId, SpecUsage, Trial
        >>> trial = Trial(ClassId("chat"), ArmId("fast"), OK, True, 0.5, tpot_s=0.01,
        ...               tokens=101, spec=SpecUsage(steps=51, drafted=150), load=4)
        >>> increments(trial)["st.2.s"], increments(trial)["st.v"]
        (20000, 3941)
    """
    spec, load = trial.spec, trial.load
    if spec is None or load is None or load < 1 or trial.status is not OK:
        return {}
    steps, tokens, tpot_s = spec.steps, known_tokens(trial), known_duration(trial.tpot_s)
    if steps is None or tokens is None or tpot_s is None or not trial.streamed:
        return {}
    if tokens < MIN_STREAM_TOKENS or not MIN_STEPS <= steps <= tokens:
        return {}
    low, high = RANGE_S
    s = min(max(tpot_s * (tokens - 1) / (steps - 1), low), high)
    load = min(load, HIGHEST)
    n, loads, loads_sq, total, product, total_sq = _NAMES[bisect_left(KNOTS, load)]
    sums = {
        n: 1,
        loads: load,
        loads_sq: load * load,
        total: round(s * 1e6),
        product: round(s * load * 1e6),
        total_sq: round(s * s * 1e9),
    }
    drafted = spec.drafted if spec.exact_drafted else None
    if drafted is not None and 0 <= drafted <= steps * MOST_VERIFIED:
        sums["st.vn"] = 1
        sums["st.v"] = round((1.0 + drafted / steps) * 1e3)
    return sums


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected seconds, with an interval for the mean.

    Attributes:
        mean: Expectation.
        low: Lower bound; None while too few stretches of time are known.
        high: Upper bound; None while too few stretches of time are known.
        extrapolated: Nothing was seen there, and the bounds rest on assumptions.
    """

    mean: float
    low: float | None
    high: float | None
    extrapolated: bool


@dataclass(frozen=True, slots=True)
class StepTimeModel:
    """Step time of an arm by load.

    Attributes:
        n: Requests behind it, weighted.
        seen: Stretches of load that were seen, each (from, to), in their order.
        misfit: Probability of bands as far from the curve if it were true; small is a misfit. None
            where that cannot be tested.
        verified_tokens: Mean tokens to verify in a step of one request; None where unknown.
        fit: The curve.
    """

    n: float
    seen: tuple[tuple[float, float], ...]
    misfit: float | None
    verified_tokens: float | None
    fit: Fit = field(repr=False)

    def predict(self, load: float, level: float = 0.95) -> Prediction:
        """Mean step time at a load, in seconds.

        Between and beyond the loads seen the bounds rest on two assumptions: a step does not get
        shorter with more requests, nor longer by a larger factor than their number does, since the
        batch could as well be done in parts.

        Args:
            load: Requests at the server, at least 1.
            level: Confidence in (0, 1).
        """
        below = [end for _, end in self.seen if end < load]
        above = [start for start, _ in self.seen if start > load]
        inside = len(below) + len(above) < len(self.seen)
        here = self._at(load, level)
        if inside:
            return Prediction(here.value, here.low, here.high, extrapolated=False)
        lows, highs = [0.0], [math.inf]
        means = [0.0, math.inf]
        unknown = here.high is None
        if below:
            near, grow = self._at(below[-1], level), load / below[-1]
            unknown = unknown or near.high is None
            means = [near.value, near.value * grow]
            lows.append(near.low or 0.0)
            highs.append((near.high or 0.0) * grow)
        if above:
            near, shrink = self._at(above[0], level), load / above[0]
            unknown = unknown or near.high is None
            means = [max(means[0], near.value * shrink), min(means[1], near.value)]
            lows.append((near.low or 0.0) * shrink)
            highs.append(near.high or 0.0)
        mean = min(max(here.value, means[0]), max(means))
        if unknown:
            return Prediction(mean, None, None, extrapolated=True)
        return Prediction(mean, min(max(lows), mean), max(min(highs), mean), extrapolated=True)

    def _at(self, load: float, level: float) -> Interval:
        found = self.fit.at(curve(load), level)
        low = None if found.low is None else max(found.low, 0.0)
        return Interval(max(found.value, 0.0), low, found.high)


class StepTime:
    """How the model comes from sums."""

    @staticmethod
    def fit(blocks: Sequence[tuple[float, Mapping[int, Counts]]]) -> StepTimeModel | None:
        """Fit the curve.

        Args:
            blocks: Stretches of time in their order, the oldest first, each with its weight and the
                sums of its load bands (`load.by_band`). The interval needs several: requests of
                one stretch say little about how others would have been.

        Returns:
            The model; None where no sums are sound.
        """
        places: list[tuple[int, int]] = []
        found: list[list[int]] = []
        weights = np.array([w if 0.0 < w < math.inf else 0.0 for w, _ in blocks])
        verified = np.zeros(2)
        for block, (_, bands) in enumerate(blocks):
            for sums in bands.values():
                for bucket, names in enumerate(_NAMES):
                    if names[0] in sums:
                        places.append((block, bucket))
                        found.append([sums.get(name, 0) for name in names])
                checked = sums.get("st.vn", 0), sums.get("st.v", 0) / 1e3
                verified += weights[block] * np.array(checked, dtype=np.float64)
        rows = np.zeros((len(blocks), BUCKETS, len(_UNITS)))
        if places:
            np.add.at(
                rows, tuple(np.array(places).T), _sound(np.array(found, dtype=np.float64) / _UNITS)
            )
        rows *= weights[:, None, None]
        if not rows[:, :, 0].any():
            return None
        return _model(rows, float(verified[1] / verified[0]) if verified[0] > 0.0 else None)


def curve(load: float) -> FloatArray:
    """The columns of the model at a load: 1, and how far each segment has been gone through.

    Example:
        >>> curve(12.0)[:6]
        array([1. , 1. , 1. , 1. , 0.5, 0. ])
    """
    gone = np.clip((load - _EDGES) / _STEPS, 0.0, _FULL)
    return np.concatenate([np.ones(1), gone])


_FULL = np.array([*[1.0] * (len(KNOTS) - 1), np.inf])


def _lines() -> tuple[FloatArray, FloatArray]:
    """Within a bucket the columns are linear: their values at load 0, and slopes."""
    at, slope = np.zeros((2, BUCKETS, _COLUMNS))
    for bucket in range(BUCKETS):
        segment = max(bucket - 1, 0)
        edge = float(_EDGES[segment])
        slope[bucket, 1 + segment] = 1.0 / _STEPS[segment]
        at[bucket] = curve(edge) - slope[bucket] * edge
    return at, slope


_AT, _SLOPE = _lines()
_AT_AT = _AT[:, :, None] * _AT[:, None, :]
_AT_SLOPE = _AT[:, :, None] * _SLOPE[:, None, :] + _SLOPE[:, :, None] * _AT[:, None, :]
_SLOPE_SLOPE = _SLOPE[:, :, None] * _SLOPE[:, None, :]


def _sound(rows: FloatArray) -> FloatArray:
    """Rows of n, l, ll, s, sl, q in seconds; zeros where they cannot come from requests."""
    n, load, load_sq, s, product, s_sq = rows.T
    lowest, highest = RANGE_S
    near = 1.0 + 1e-6
    sound = (
        ((n > 0.0) & (n < _MOST_N))
        & ((n <= load) & (load <= n * HIGHEST) & (load * load <= load_sq * n * near))
        & ((lowest * n <= s * near) & (s <= highest * n * near))
        & ((product >= 0.0) & (product <= s * HIGHEST * near))
        & (s * s <= s_sq * n * near + n * n * 1e-9)
    )
    return np.where(sound[:, None], rows, 0.0)


_UNITS = np.array([1.0, 1.0, 1.0, 1e6, 1e6, 1e9])


def _model(rows: FloatArray, verified_tokens: float | None) -> StepTimeModel:
    """Fits the curve to sums by block and bucket, shape (blocks, buckets, 6)."""
    weight = 1.0 / _noise(rows.sum(axis=0))
    n, load, load_sq, s, product, _ = np.moveaxis(rows * weight[:, None], -1, 0)
    products = np.zeros((len(rows), _COLUMNS + _JUMPS, _COLUMNS))
    products[:, :_COLUMNS] = (
        np.tensordot(n, _AT_AT, 1)
        + np.tensordot(load, _AT_SLOPE, 1)
        + np.tensordot(load_sq, _SLOPE_SLOPE, 1)
    )
    with_s = np.zeros((len(rows), _COLUMNS + _JUMPS))
    with_s[:, :_COLUMNS] = s @ _AT + product @ _SLOPE
    # Residuals are tested for a jump at each knot, which graphs of fixed sizes would give.
    squares = n[:, ::-1].cumsum(axis=1)[:, -2::-1]  # of being above each knot
    columns = n[:, :, None] * _AT + load[:, :, None] * _SLOPE
    for jump in range(_JUMPS):
        at, above = _COLUMNS + jump, slice(jump + 1, None)
        products[:, at] = columns[:, above].sum(axis=1)
        with_s[:, at] = s[:, above].sum(axis=1)
    total = rows.sum(axis=0)
    requests = float(total[:, 0].sum())
    found = fit(
        products,
        with_s,
        rows[:, :, 0].sum(axis=1),
        squares=squares,
        penalty=_penalty(float(total[:, 3].sum()) / requests),
        non_negative=range(1, _COLUMNS),
    )
    return StepTimeModel(requests, _seen(total), found.misfit, verified_tokens, found)


def _noise(total: FloatArray) -> FloatArray:
    """Variance of a request's step time around its bucket's line, by bucket.

    Those with few requests take after the others by their share of the mean.
    """
    n, load, load_sq, s, product, s_sq = total.T
    n = np.maximum(n, 1e-300)
    mean, spread = s / n, np.maximum(load_sq - load * load / n, 0.0)
    common = product - s * load / n
    varied = spread > 1e-9 * load_sq
    explained = np.where(varied, common**2 / np.where(varied, spread, 1.0), 0.0)
    around = np.maximum(s_sq - s * s / n - explained, 0.0)
    mean = np.where(mean > 0.0, mean, s.sum() / n.sum())
    square = np.maximum(mean**2, 1e-300)
    within = np.minimum(around, _MOST_CV**2 * n * square)
    relative = max(float((within / square).sum() / n.sum()), _LEAST_CV**2)
    variance = (around + _NOISE_PRIOR_N * relative * mean**2) / (n + _NOISE_PRIOR_N)
    return np.asarray(np.maximum(variance, (_LEAST_CV * mean) ** 2))


def _penalty(size: float) -> FloatArray:
    """Weak prior: how much slopes change from segment to segment, and that there are any.

    Judgement: that a segment rises by half the mean step time more than its neighbour's line is one
    standard deviation. A few requests of the segment outweigh it.
    """
    unit = np.eye(_COLUMNS)
    directions = [unit[j] / (3.0 * size) for j in range(1, _COLUMNS)]
    for j in range(1, _COLUMNS - 1):
        kink = unit[j + 1] - unit[j] * (_STEPS[j] / _STEPS[j - 1])
        directions.append(kink / (0.5 * size))
    stacked = np.array(directions)
    return np.asarray(stacked.T @ stacked)


def _seen(total: FloatArray) -> tuple[tuple[float, float], ...]:
    """Loads that were seen: two standard deviations around the mean of each bucket, within it."""
    ranges: list[tuple[float, float]] = []
    edges = [0, *KNOTS, HIGHEST]
    for bucket, (n, load, load_sq, *_) in enumerate(total.tolist()):
        if n < MIN_BUCKET_N:
            continue
        mean = load / n
        reach = 2.0 * math.sqrt(max(load_sq / n - mean * mean, 0.0))
        start, end = (
            max(mean - reach, edges[bucket] + 1.0),
            min(mean + reach, float(edges[bucket + 1])),
        )
        if ranges and start <= ranges[-1][1] + 1.0:
            start = ranges.pop()[0]
        ranges.append((start, end))
    return tuple(ranges)
