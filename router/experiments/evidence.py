"""What is known of both sides → what a look sees. Pure: it decides nothing and reads nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from policies.estimators import histogram
from policies.estimators.clusters import Estimate, design_effect, mean_of
from policies.estimators.effects import ArmEffects, arm_effects
from policies.estimators.increments import FIXED_POINT
from policies.estimators.sequential import (
    RATIO_LEVEL,
    effective_share,
    quantile_ratio,
    rate_difference,
    sample_ratio_e_value,
)
from policies.estimators.verdict import Gain, anytime_reach, gain_of
from policies.types import ArmId, ArmView, ClassId, Status
from router.experiments.model import (
    Experiment,
    Guard,
    GuardKind,
    Metric,
    Plan,
)
from router.experiments.rollout import Evidence, Reading
from router.experiments.seen import CONTROL, SIDES, TREATED, Seen

GUARD_ALPHA = 0.02
"""Chance that any guard of a healthy treatment is ever breached, over all guards and epochs."""

_MOST_E = 1e300
"""An e-value beyond all doubt is infinite, which JSON has no word for."""

_QUANTILES = {
    GuardKind.TPOT_P95: ("tpot", 0.95),
    GuardKind.TPOT_P99: ("tpot", 0.99),
    GuardKind.TTFT_P95: ("ttft", 0.95),
    GuardKind.TTFT_P99: ("ttft", 0.99),
}
SHARES = {
    GuardKind.ERRORS: (f"status.{Status.FAILED}", "n"),
    GuardKind.ABORTS: (f"status.{Status.ABORTED}", "n"),
    GuardKind.INVALID: ("invalid", "checked"),
    GuardKind.TRUNCATED: ("truncated", "finished"),
}
"""Sums of guards that are about shares: what is counted, and of how many."""


def evidence_of(experiment: Experiment, known: Seen, alarm: str | None = None) -> Evidence:
    """What a look sees.

    Args:
        experiment: What was planned, and where it stands.
        known: Its sums.
        alarm: Sudden harm, where somebody found it.
    """
    # Sums without buckets say nothing of how alike requests of a unit are.
    known = replace(known, clustered=experiment.plan.clustered)
    now = known.now
    control, treatment = (now[arm.arm_id].get("n", 0) for arm in SIDES)
    metric = experiment.plan.primary
    gain = _gain(known, metric=metric)
    return Evidence(
        control=control,
        treatment=treatment,
        gain=None if gain is None else (gain.value, gain.low, gain.high),
        guards=tuple(_reading(experiment, known, guard) for guard in experiment.plan.guards),
        ratio_alarm=_ratio_alarm(experiment, control, treatment),
        alarm=alarm,
        primary=metric,
        compared=experiment.compares,
    )


def gains_by_class(known: Seen, metric: Metric = Metric.COST) -> dict[ClassId, Gain | None]:
    """Each class's own gain in a metric, from its own data."""
    return {class_id: _gain(known, class_id, metric=metric) for class_id in sorted(known.classes)}


def gains_by_metric(known: Seen) -> dict[Metric, Gain | None]:
    """The gain in each metric, over all classes; each interval holds by itself."""
    return {metric: _gain(known, metric=metric) for metric in Metric}


def _gain(
    known: Seen,
    class_id: ClassId | None = None,
    level: float = 0.95,
    metric: Metric = Metric.COST,
) -> Gain | None:
    effects = arm_effects(known.view(class_id, metric))
    if not known.clustered:
        return gain_of(effects, 1, level)
    return _clustered_gain(effects, known.contrast(class_id, metric).estimate, level)


def _clustered_gain(effects: ArmEffects, found: Estimate | None, level: float) -> Gain | None:
    """The same where units bring many requests: noise is what their buckets differ by.

    Never less than that of requests that are independent, which can be so by chance alone.
    """
    if found is None or not effects.identified[1]:
        return None
    variance = max(found.variance, float(effects.covariance[1, 1]))
    reach = anytime_reach(variance, found.df, float(effects.noise.sum()), level)
    if reach is None:
        return None
    return Gain(*(-math.expm1(d) for d in (found.value, found.value + reach, found.value - reach)))


def sample_ratio(experiment: Experiment, control: int, treatment: int) -> dict[str, Any] | None:
    """Whether requests are split as planned, as JSON values; None where nothing is to be split.

    Args:
        experiment: What was planned, and where it stands.
        control: Requests of the control in this stage.
        treatment: Requests of the treatment in it.

    Returns:
        `planned` and `seen`, shares of the treatment; `e_value`, evidence against the plan, None
        where the unit is not the request, and `alarm_at`, from which on it is an alarm.
    """
    share, n = experiment.share, control + treatment
    if not 0.0 < share < 1.0:
        return None
    tested = _by_request(experiment)
    e_value = sample_ratio_e_value((control, treatment), (1.0 - share, share)) if tested else None
    return {
        "planned": share,
        "seen": treatment / n if n else None,
        "e_value": None if e_value is None else min(e_value, _MOST_E),
        "alarm_at": 1.0
        / ((1.0 - RATIO_LEVEL) * _part_of_error(experiment.plan, experiment.standing.epoch)),
    }


def _ratio_alarm(experiment: Experiment, control: int, treatment: int) -> bool:
    told = sample_ratio(experiment, control, treatment)
    # One test for each epoch, which together keep the level.
    return told is not None and told["e_value"] is not None and told["e_value"] >= told["alarm_at"]


def _by_request(experiment: Experiment) -> bool:
    """Whether requests are split as units are: a session brings as many as it likes."""
    return experiment.plan.unit == "request"


def guard_level(plan: Plan, epoch: int = 1) -> float:
    """Confidence of each guard in an epoch; all guards and epochs together keep `GUARD_ALPHA`."""
    return 1.0 - GUARD_ALPHA * _part_of_error(plan, epoch) / max(len(plan.guards), 1)


def _part_of_error(plan: Plan, epoch: int) -> float:
    """What an epoch may spend of an error; however many there are, they sum to 1.

    A ramp has an epoch for each stage. Pauses and orders make more of them, nobody knows how many:
    those share one part more, the k-th of them 1 / (k (k + 1)) of it.
    """
    part, late = 1.0 / (len(plan.stages) + 1), epoch - len(plan.stages)
    return part if late <= 0 else part / (late * (late + 1))


def _reading(experiment: Experiment, known: Seen, guard: Guard) -> Reading:
    """A guard's figure, of requests of both sides at the same time; else none."""
    nothing = Reading(guard, None, None, None)
    if not experiment.compares:
        return nothing
    level = guard_level(experiment.plan, known.epoch)
    if guard.kind is GuardKind.COST:
        return _cost_reading(known, guard, level)
    if guard.kind in _QUANTILES:
        family, q = _QUANTILES[guard.kind]
        treated, control = (known.histogram(of.arm_id, family) for of in (TREATED, CONTROL))
        worth = _worth_of_times(known, family, level)
        low, high = quantile_ratio(treated, control, q, level, worth)
        top, bottom = histogram.quantile(treated, q), histogram.quantile(control, q)
        value = None if top is None or not bottom else top / bottom
        return Reading(guard, value, low, high)
    hits, trials = SHARES[guard.kind]
    worth_of_one = _worth_of_shares(known, hits, trials, level)
    treated_of, control_of = (
        (
            worth_of_one * known.now[of.arm_id].get(hits, 0),
            worth_of_one * known.now[of.arm_id].get(trials, 0),
        )
        for of in (TREATED, CONTROL)
    )
    found = rate_difference(treated_of, control_of, level)
    return nothing if found is None else Reading(guard, found.value, found.low, found.high)


def _worth_of_times(known: Seen, family: str, level: float) -> tuple[float, float]:
    """Independent observations that one of the treatment and of the control is worth.

    The design effect of a quantile is taken to be that of the mean of the logs; where units differ
    by their level, the quantile's is less (what lies beyond it is alike less than the times are).
    """
    if not known.clustered:
        return 1.0, 1.0
    treated, control = (
        _worth_of_logs(known, side.arm_id, family, level) for side in (TREATED, CONTROL)
    )
    return treated, control


def _worth_of_logs(known: Seen, side: ArmId, family: str, level: float) -> float:
    counts = {index: n for index, n in known.histogram(side, family).items() if n > 0}
    n = np.array(list(counts.values()), dtype=np.float64)
    y = np.log([histogram.representative(index) for index in counts])
    found = mean_of(
        known.bucket(side, f"t.{family}.n"), known.bucket(side, f"t.{family}.s") / FIXED_POINT
    )
    if found is None or not n.size:
        return 0.0
    variance = float((n * (y - (n * y).sum() / n.sum()) ** 2).sum() / n.sum() ** 2)
    return effective_share(design_effect(found, variance), found.df, _each(level))


def _worth_of_shares(known: Seen, hits: str, trials: str, level: float) -> float:
    """The same of shares; both sides have one design effect, or who has no hit had none."""
    if not known.clustered:
        return 1.0
    found = [
        mean_of(known.bucket(side.arm_id, trials), known.bucket(side.arm_id, hits))
        for side in SIDES
    ]
    told = [of for of in found if of is not None]
    if len(told) < len(SIDES):
        return 0.0
    n = [float(known.bucket(side.arm_id, trials).sum()) for side in SIDES]
    alone = sum(of.value * (1.0 - of.value) / by for of, by in zip(told, n, strict=True))
    both = Estimate(0.0, sum(of.variance for of in told), min(of.df for of in told))
    return effective_share(design_effect(both, alone), both.df, _each(level))


def _each(level: float) -> float:
    """Confidence of each side of a difference."""
    return 1.0 - (1.0 - level) / 2.0


def _cost_reading(known: Seen, guard: Guard, level: float) -> Reading:
    gain = _gain(known, level=level)
    if gain is None:
        return Reading(guard, None, None, None)
    # 1 - gain is the ratio of costs; its bounds change places.
    return Reading(guard, 1.0 - gain.value, 1.0 - gain.high, 1.0 - gain.low)


def log_cost_sd(view: ArmView) -> float | None:
    """Standard deviation of log cost inside strata; None without any.

    >>> log_cost_sd(ArmView.empty(ClassId("chat"), SIDES)) is None
    True
    """
    n, total, total_sq = view.n, view.total, view.total_sq
    many = n > 1.0
    if not many.any():
        return None
    residual = np.where(many, total_sq - total**2 / np.maximum(n, 1.0), 0.0).sum()
    return math.sqrt(max(float(residual), 0.0) / float((n - 1.0)[many].sum()))
