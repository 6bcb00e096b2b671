"""What a report shows of an experiment beside the evidence, as JSON values. Pure."""

from __future__ import annotations

from typing import Any

from policies.estimators.verdict import Gain
from router.experiments.evidence import gains_by_class, gains_by_metric
from router.experiments.model import Metric
from router.experiments.seen import Seen

_STRUCTURE = ("checked", "invalid", "finished", "truncated")
"""Sums of answers that had to have a structure."""


def figures_json(known: Seen, primary: Metric = Metric.COST) -> dict[str, Any]:
    """What a report shows beside the evidence: gains by class are of the primary metric."""
    ever = known.ever
    return {
        "classes": {
            class_id: _gain_json(gain) for class_id, gain in gains_by_class(known, primary).items()
        },
        "metrics": {
            metric.value: _gain_json(gain) for metric, gain in gains_by_metric(known).items()
        },
        "ended": {
            side: {
                name.removeprefix("status."): n
                for name, n in sorted(counts.items())
                if name.startswith("status.")
            }
            for side, counts in ever.items()
        },
        "structure": {
            side: {name: counts.get(name, 0) for name in _STRUCTURE}
            for side, counts in ever.items()
        },
    }


def _gain_json(gain: Gain | None) -> dict[str, float] | None:
    if gain is None:
        return None
    return {"value": gain.value, "low": gain.low, "high": gain.high}
