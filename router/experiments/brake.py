"""Sudden harm, seen in the last seconds alone. Pure.

What an experiment has gathered in hours hides a change of the last seconds. So the last stretch is
judged by itself, at a level at which days of looks, one a second, hardly ever err; what is wrong
more slightly is left to the guards, which gather evidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from policies.estimators.effects import arm_effects
from policies.estimators.verdict import fixed_sample_gain
from policies.types import Counts, Status
from router.experiments.model import METRIC_WORDS, Metric
from router.experiments.seen import CONTROL, TREATED, Seen

ALPHA = 1e-9
"""Chance that one look at a healthy treatment finds harm."""

FEW, RARE, ALPHA_OF_FEW = 75, 0.003, 3e-6
"""Where so few requests were treated and failures are so rare, four failures have to decide, or a
slot of 50 requests of which a fifth fails would pass: hence another level there. What it costs is
measured by `bench/verify_experiments.py`."""

LEAST_TREATED = 20
LEAST_CONTROL = 5

LEAST_RATIO = 1.2
"""Of costs; what is slower by less is not sudden harm."""

LEAST_EXCESS = 0.05
"""Of the share of failures."""


def sudden_harm(
    recent: Seen, before: Counts, metrics: Iterable[Metric] = (Metric.COST,)
) -> str | None:
    """Why the treatment must be left at once; None if it need not be.

    Args:
        recent: Sums of the last stretch of time, as one stratum for each class.
        before: Plain counts of both sides together, before that stretch: the more there are, the
            better it is known how much fails as a matter of course.
        metrics: What must not be suddenly slower; the level is that of each.

    Returns:
        The reason, in words.
    """
    now = recent.now
    treated, control = now[TREATED.arm_id], now[CONTROL.arm_id]
    if treated.get("n", 0) < LEAST_TREATED:
        return None
    failures = _failures(treated, control, before)
    slowness = (_slowness(recent, metric) for metric in metrics)
    return failures or next((why for why in slowness if why is not None), None)


def _slowness(recent: Seen, metric: Metric) -> str | None:
    view = recent.view(metric=metric)
    n = view.n.sum(axis=0)
    if n[1] < LEAST_TREATED or n[0] < LEAST_CONTROL:
        return None
    gain = fixed_sample_gain(arm_effects(view), 1, 1.0 - 2.0 * ALPHA)
    if gain is None or not np.isfinite(gain.high) or gain.high >= 0.0:
        return None
    if 1.0 - gain.value < LEAST_RATIO:
        return None
    return (
        f"suddenly slower: {1.0 - gain.value:.2f} times the control's {METRIC_WORDS[metric]} "
        "in the last seconds"
    )


def _failures(treated: Counts, control: Counts, before: Counts) -> str | None:
    name, n = f"status.{Status.FAILED}", treated["n"]
    failed = treated.get(name, 0)
    usual = max(_share(before.get(name, 0), before.get("n", 0)), _recent(control, name))
    alpha = ALPHA_OF_FEW if n <= FEW and usual <= RARE else ALPHA
    if failed / n - usual < LEAST_EXCESS or tail(failed, n, usual) >= alpha:
        return None
    return (
        f"suddenly failing: {failed} of the last {n} requests, "
        f"against {usual:.2%} as a matter of course"
    )


def _share(hits: int, n: int) -> float:
    """A share that is not 0 because nothing has happened yet."""
    return (hits + 1.0) / (n + 1.0)


def _recent(control: Counts, name: str) -> float:
    """What fails on both sides is not the treatment's fault."""
    n, failed = control.get("n", 0), control.get(name, 0)
    return failed / n if n and failed > 1 else 0.0


def tail(hits: int, n: int, p: float) -> float:
    """Chance of so many hits or more.

    >>> round(tail(1, 2, 0.5), 3), tail(0, 5, 0.1)
    (0.75, 1.0)
    """
    if hits <= 0:
        return 1.0
    p = min(max(p, 1e-12), 1.0 - 1e-12)
    logs = [
        math.lgamma(n + 1)
        - math.lgamma(k + 1)
        - math.lgamma(n - k + 1)
        + k * math.log(p)
        + (n - k) * math.log1p(-p)
        for k in range(hits, n + 1)
    ]
    most = max(logs)
    return min(1.0, math.exp(most) * sum(math.exp(log - most) for log in logs))
