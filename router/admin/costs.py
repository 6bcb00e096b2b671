"""Models of what an arm costs as JSON values: curves as points, marked where nothing was seen."""

from __future__ import annotations

from typing import Any

from policies.estimators.prefill import PrefillModel
from policies.estimators.regression import Interval
from policies.estimators.step_time import Prediction, StepTimeModel
from router.estimates.costs import ArmCosts

_LOADS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)


def costs_json(costs: ArmCosts | None) -> dict[str, Any]:
    """Time of a step by load, and TTFT by what it is made of; null where nothing was measured."""
    known = costs or ArmCosts()
    return {
        "step_time": None if known.step is None else _step_json(known.step),
        "prefill": None if known.prefill is None else _prefill_json(known.prefill),
    }


def _step_json(model: StepTimeModel) -> dict[str, Any]:
    most = model.seen[-1][1] if model.seen else 1.0
    # One point beyond what was seen shows where it goes, and that it is not known.
    beyond = next((load for load in _LOADS if load > most), _LOADS[-1])
    return {
        "requests": round(model.n, 1),
        "seen": [[round(low, 1), round(high, 1)] for low, high in model.seen],
        "misfit": model.misfit,
        "verified_tokens": model.verified_tokens,
        "points": [
            {"load": load, **_prediction(model.predict(load))} for load in _LOADS if load <= beyond
        ],
    }


def _prefill_json(model: PrefillModel) -> dict[str, Any]:
    return {
        "requests": round(model.n, 1),
        "tells_cached": model.tells_cached,
        "tells_waiting": model.tells_waiting,
        "misfit": model.misfit,
        "fixed_s": _interval(model.fixed()),
        "per_token_s": _interval(model.per_token()),
        "per_cached_token_s": _interval(model.per_cached_token()),
        "per_waiting_s": _interval(model.per_waiting()),
    }


def _prediction(found: Prediction) -> dict[str, Any]:
    return {
        "mean_s": found.mean,
        "low_s": found.low,
        "high_s": found.high,
        "extrapolated": found.extrapolated,
    }


def _interval(found: Interval | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"value": found.value, "low": found.low, "high": found.high}
