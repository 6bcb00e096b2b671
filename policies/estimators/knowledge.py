"""Builds what policies know of a route from integer sums by stretch of time. It stores nothing.

A proxy hands over the cells of its slots (`knowledge`), a simulated world the same sums as arrays
(`belief`, `step_ratios`, `prefill_of`); both come to the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.estimators import step_time
from policies.estimators.breaks import latest_break
from policies.estimators.ended import abandoned_beyond, of_the_same_time
from policies.estimators.increments import FIXED_POINT
from policies.estimators.load import BANDS, MOST, by_band
from policies.guard import held_back
from policies.knowledge import BUCKETS, Belief, Drafting, Knowledge, Ratios
from policies.types import Arm, ArmId, ArmView, ClassId, Counts, FloatArray

COMMON: Final = ClassId("*")
"""Class of the cells that are an arm's, and of no class."""

FIELDS: Final = (
    "status.ok", "status.failed", "abandoned",
    "y.s.n", "y.s.s", "y.s.q",
    "tokens.n", "tokens",
    "steps.n", "steps.tokens", "steps", "steps.tt", "steps.ts", "steps.ss",
    "stream.n", "stream.tokens", "stream", "stream.tt", "stream.ts", "stream.ss",
)  # fmt: skip
"""Of a cell of a class: what beliefs are made of. A part's cells may lack all but `status`, `y` and
the totals of steps and their tokens."""

_ENDED, _COST, _OUTPUT, _STEPS, _STREAM = (
    slice(0, 3), slice(3, 6), slice(6, 8), slice(8, 14), slice(14, 20),
)  # fmt: skip

STEP_FIELDS: Final = tuple(
    f"st.{bucket}.{name}" for name in ("n", "l", "s", "q") for bucket in range(BUCKETS)
)
"""Of an arm's common cells: time of a step, by bucket of load."""

_KINDS: Final = ("cw", "c", "w", "p")
PREFILL_FIELDS: Final = tuple(
    f"pf.{kind}.{pair}" for pair in ("n", "11", "1u", "1y", "uu", "uy", "yy") for kind in _KINDS
)
"""Of an arm's common cells, by band of load: time to first token."""

STRATUM_S: Final = 120.0
"""Log costs are compared within stretches of this length, as in the reports of a proxy."""

RECENT_S: Final = 120.0
"""Half-life of what the guard takes for lately."""

_FORGOTTEN: Final = 0.02
"""Weight of what came before a change of drafting."""

_SHORT: Final = 0.064
"""Thousands of tokens that a first step is taken to be worth while little is known."""
_LEAST_N: Final = 8.0

Cell = tuple[ArmId, ClassId, str]
"""Arm, class, part; the part `~2` of a class or of `COMMON` is what met load band 2."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Sums of a class or part by stretch of time, oldest first.

    Attributes:
        ages_s: Age of each stretch, shape (rows,).
        sums: Shape (rows, len(FIELDS), arms).
    """

    ages_s: FloatArray
    sums: FloatArray


def belief(
    class_id: ClassId,
    arms: tuple[Arm, ...],
    rows: Rows,
    half_life_s: float,
    *,
    since_s: FloatArray | None = None,
    before: Collection[int] | None = None,
    alike: NDArray[np.bool_] | None = None,
) -> Belief:
    """What is known of a class or part.

    Args:
        class_id: The class.
        arms: The route's arms.
        rows: Its sums.
        half_life_s: Age at which a sum counts half.
        since_s: How long ago drafting changed, by arm (`changed_s`); infinite for never.
        before: Arms that the guard held back until now; None for a part, which its class guards.
        alike: Arms that answered the same mix of parts as the baseline (`mixes.alike`); None where
            no part is told apart.
    """
    base = next(index for index, arm in enumerate(arms) if arm.baseline)
    if since_s is None:
        since_s = np.full(len(arms), np.inf)
    ages = rows.ages_s
    weight = np.exp2(-np.maximum(ages, 0.0) / half_life_s)
    kept = np.where(ages[:, None] <= since_s, 1.0, _FORGOTTEN) * weight[:, None]
    kept[:, base] = weight
    found = np.einsum("ra,rfa->fa", kept, rows.sums)
    starts = _strata(ages)
    ended = rows.sums[:, _ENDED]
    served, failed = of_the_same_time(_added(ended * weight[:, None, None], starts), base)
    strata = _added(rows.sums[:, _COST] * kept[:, None, :], starts)
    strata = strata / np.array([1.0, FIXED_POINT, FIXED_POINT])[:, None]
    view = ArmView(class_id, arms, strata[:, 0], strata[:, 1], strata[:, 2], served, failed)
    held = {}
    if before is not None:
        late = np.exp2(-np.maximum(ages, 0.0) / RECENT_S)[:, None, None] * ended
        recent = _recent(_added(late, starts), base)
        held = held_back(recent, strata.sum(axis=0), base, before, alike)
    reported, tokens = found[_OUTPUT].sum(axis=1)
    last = float(since_s.min(initial=np.inf))
    return Belief(
        view=view,
        drafting=_drafting(found),
        output_tokens=float(tokens / reported) if reported > 0.0 else None,
        held_back=held,
        settled=None if np.isinf(last) else float(rows.sums[ages <= last, 0].sum()),
    )


def changed_s(rows: Rows, baseline: int) -> FloatArray:
    """How long ago drafting changed on each arm; infinite where no change is seen."""
    first = latest_break(_drafting_rows(rows.sums))
    ages = np.append(rows.ages_s, 0.0)
    since = np.where(first > 0, ages[first], np.inf)
    since[baseline] = np.inf
    return since


def _drafting_rows(sums: FloatArray) -> FloatArray:
    """Steps of either source; they are not added up for one request."""
    by_request, by_stream = sums[:, _STEPS], sums[:, _STREAM]
    return by_request if by_request[:, 0].any() else by_stream


def _drafting(found: FloatArray) -> Drafting:
    by_request, by_stream = found[_STEPS], found[_STREAM]
    chosen = np.where(by_request[2] > 0.0, by_request, by_stream)
    # Cells of parts do not count the requests that told their steps.
    n = np.where(chosen[0] > 0.0, chosen[0], np.where(chosen[2] > 0.0, found[0], 0.0))
    return Drafting(n, *chosen[1:])


def _strata(ages_s: FloatArray) -> NDArray[np.int64]:
    """First row of each stratum."""
    number = np.floor(ages_s / STRATUM_S)
    return np.flatnonzero(np.diff(number, prepend=np.inf)) if len(number) else np.zeros(0, np.int64)


def _added(rows: FloatArray, starts: NDArray[np.int64]) -> FloatArray:
    """Rows by stratum."""
    if not len(starts):
        return rows
    added: FloatArray = np.add.reduceat(rows, starts, axis=0)
    return added


def _recent(ended: FloatArray, baseline: int) -> FloatArray:
    """What the guard judges: requests served and failed, shape (2, arms).

    Answers that were abandoned beyond what the baseline's were at the same time have failed.
    """
    recent: FloatArray = ended[:, :2].sum(axis=0)
    recent[1] += abandoned_beyond(ended, baseline)
    return recent


def step_ratios(sums: FloatArray) -> Ratios:
    """Time of a step by arm and load, from discounted sums.

    Args:
        sums: Shape (len(STEP_FIELDS), arms).
    """
    n, load, total, total_sq = sums.reshape(4, BUCKETS, -1).transpose(0, 2, 1)
    return Ratios(n, load, total / 1e6, total_sq / 1e9)


@dataclass(frozen=True, slots=True)
class Prefill:
    """Time to first token; see `Knowledge`."""

    ratios: Ratios
    prompt_s: float | None
    usual_s: float | None


def prefill_of(sums: FloatArray, steps: Ratios) -> Prefill:
    """Wait besides one's own prompt by arm and load, the time of a token, and the usual TTFT.

    The time of a token is the slope within arms and bands: what a crowd adds to TTFT is not the
    prompt's, and would flatten it. What a band's requests wait beyond that is its intercept, and
    not a slope through the origin, by which arms that answer short prompts soon look as if they
    were quicker with long ones. Requests are weighed as `policies.estimators.prefill` weighs them,
    in the usual TTFT too: short prompts count most. That is a median over bands and arms, because
    of some dozens of requests that met a full server a mean would say that such waits are usual.

    Args:
        sums: Discounted, shape (bands, len(PREFILL_FIELDS), arms).
        steps: Of the same arms; they tell the mean load of a band.
    """
    arms = sums.shape[2]
    n, n11, n1u, n1y, nuu, nuy, nyy = (
        sums.reshape(BANDS, -1, len(_KINDS), arms).sum(axis=2).swapaxes(0, 1)
    )
    slope = _slope(np.stack([n, n11, n1u, n1y, nuu, nuy]))
    with np.errstate(all="ignore"):
        s = slope or 0.0
        wait = (n1y - s * n1u) / n11
        cv_sq = (nyy - 2.0 * s * nuy + s * s * nuu) / n11 / wait**2 - 1.0
        sound = (n > 0.0) & np.isfinite(wait) & (wait > 0.0) & np.isfinite(cv_sq)
        usual = _median(nyy / n1y, n)
    wait, cv_sq = np.where(sound, wait, 0.0), np.where(sound, np.maximum(cv_sq, 0.0), 0.0)
    n = np.where(sound, n, 0.0)
    found = np.zeros((4, arms, BUCKETS))
    found[0, :, :BANDS] = n.T
    found[1, :, :BANDS] = (n * _mean_load(steps)).T
    found[2, :, :BANDS] = (n * wait).T
    found[3, :, :BANDS] = (n * wait**2 * (1.0 + cv_sq)).T
    return Prefill(
        Ratios(*found),
        None if slope is None else slope / 1e3,
        usual if math.isfinite(usual) and usual > 0.0 else None,
    )


def _median(values: FloatArray, weights: FloatArray) -> float:
    """The weighted median of those that have a weight; NaN where none has."""
    there = (weights > 0.0) & np.isfinite(values)
    if not there.any():
        return math.nan
    order = np.argsort(values[there])
    reached = weights[there][order].cumsum()
    return float(values[there][order][np.searchsorted(reached, 0.5 * reached[-1])])


def _slope(sums: FloatArray) -> float | None:
    """Seconds of a thousand tokens, from sums of shape (6, bands, arms).

    Within bands and arms; where that cannot be told, through the origin of a short prompt.
    """
    seen = sums[:, sums[1] > 0.0]
    n, n11, n1u, n1y, nuu, nuy = seen
    spread, product = float((nuu - n1u**2 / n11).sum()), float((nuy - n1u * n1y / n11).sum())
    if float(n.sum()) >= _LEAST_N and spread > 0.0 and product > 0.0:
        return product / spread
    up = float((nuy + _SHORT * n1y).sum())
    down = float((nuu + 2.0 * _SHORT * n1u + _SHORT**2 * n11).sum())
    return up / down if up > 0.0 and down > 0.0 else None


_BAND_OF: Final = np.searchsorted(MOST, [*step_time.KNOTS, 1 << 20])
_MIDDLE: Final = np.array([1.0, 3.0, 10.0, 30.0, 80.0])


def _mean_load(steps: Ratios) -> FloatArray:
    """Mean load of a band, shape (bands, arms)."""
    found = np.empty((BANDS, len(steps.n)))
    for band in range(BANDS):
        inside = band == _BAND_OF
        n, load = steps.n[:, inside].sum(axis=1), steps.load[:, inside].sum(axis=1)
        found[band] = np.where(n > 0.0, load / np.maximum(n, 1e-9), _MIDDLE[band])
    return found


@dataclass(frozen=True, slots=True)
class Stretch:
    """Cells of one stretch of time.

    Attributes:
        age_s: Since its end.
        cells: Their sums.
    """

    age_s: float
    cells: Mapping[Cell, Counts]


@dataclass(frozen=True, slots=True)
class Expectations:
    """What is expected before anything was measured; see `Knowledge`."""

    tau: Mapping[ClassId, FloatArray] = field(default_factory=dict)
    steps: FloatArray | None = None


def knowledge(
    arms: tuple[Arm, ...],
    stretches: Iterable[Stretch],
    half_life_s: float,
    *,
    expected: Expectations | None = None,
    before: Mapping[ClassId, Collection[int]] | None = None,
) -> Knowledge:
    """What policies know of a route.

    Args:
        arms: Its arms.
        stretches: All that is stored of it, in any order; cells of other arms are left out.
        half_life_s: Age at which a sum counts half.
        expected: Priors.
        before: Arms that were held back, by class.
    """
    place = {arm.arm_id: index for index, arm in enumerate(arms)}
    base = next(index for index, arm in enumerate(arms) if arm.baseline)
    ordered = sorted(stretches, key=lambda stretch: -stretch.age_s)
    rows: dict[tuple[ClassId, str], list[tuple[float, FloatArray]]] = {}
    steps = np.zeros((len(STEP_FIELDS), len(arms)))
    first = np.zeros((BANDS, len(PREFILL_FIELDS), len(arms)))
    costs: dict[ClassId, FloatArray] = {}
    for stretch in ordered:
        weight = 2.0 ** (-max(stretch.age_s, 0.0) / half_life_s)
        for (arm_id, class_id, part), sums in stretch.cells.items():
            a = place.get(arm_id)
            if a is None:
                continue
            band = next(iter(by_band({part: sums})), None)
            if class_id == COMMON:
                if band is not None:
                    steps[:, a] += weight * _values(sums, STEP_FIELDS)
                    first[band, :, a] += weight * _values(sums, PREFILL_FIELDS)
            elif band is not None:
                row = costs.setdefault(class_id, np.zeros((3, len(arms), BANDS)))
                row[:, a, band] += weight * band_costs(sums)
            else:
                into = rows.setdefault((class_id, part), [])
                if not into or into[-1][0] != stretch.age_s:
                    into.append((stretch.age_s, np.zeros((len(FIELDS), len(arms)))))
                into[-1][1][:, a] += _values(sums, FIELDS)
    whole = {
        key: Rows(np.array([age for age, _ in row]), np.stack([s for _, s in row]))
        for key, row in rows.items()
    }
    since = {
        class_id: changed_s(found, base) for (class_id, part), found in whole.items() if not part
    }
    step = step_ratios(steps)
    ttft = prefill_of(first, step)
    expected = expected or Expectations()
    return Knowledge(
        arms=arms,
        beliefs={
            (class_id, part): belief(
                class_id,
                arms,
                found,
                half_life_s,
                since_s=since.get(class_id),
                before=None if part else (before or {}).get(class_id, ()),
            )
            for (class_id, part), found in whole.items()
        },
        steps=step,
        prefill=ttft.ratios,
        prompt_s=ttft.prompt_s,
        usual_s=ttft.usual_s,
        costs=costs,
        tau_priors=expected.tau,
        step_priors=expected.steps,
    )


def band_costs(sums: Counts) -> FloatArray:
    """Number, sum and sum of squares of the log costs in a cell."""
    found: FloatArray = _values(sums, FIELDS[_COST]) / np.array([1.0, FIXED_POINT, FIXED_POINT])
    return found


def _values(sums: Counts, names: Sequence[str]) -> FloatArray:
    return np.array([sums.get(name, 0) for name in names], dtype=np.float64)


ALL_FIELDS: Final = frozenset(chain(FIELDS, STEP_FIELDS, PREFILL_FIELDS))
"""All that is read."""
