"""Routes as `/api/state` tells them, with figures of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def step_time(
    k: int, loads: Sequence[int] = (1, 2, 4, 8, 16), share: float = 0.01, slope: float = 0.0
) -> dict[str, Any]:
    """A curve that was seen at these loads."""
    points = []
    for load in loads:
        mean = 0.01 + slope * (load - 1) * (1 + k)
        points.append(
            {
                "load": load,
                "mean_s": mean,
                "low_s": mean * (1 - share),
                "high_s": mean * (1 + share),
                "extrapolated": False,
            }
        )
    return {"points": points, "seen": [[1.0, float(loads[-1])]], "verified_tokens": 1.0 + k}


def pool(
    name: str,
    method: str,
    k: int | None,
    *,
    engine: str = "vllm",
    in_flight: Sequence[int] = (4, 4),
    baseline: bool = False,
    slope: float = 0.0,
) -> dict[str, Any]:
    """A pool."""
    replicas = [
        {"id": f"{name}/{i}", "up": True, "draining": False, "in_flight": n, "detected": None}
        for i, n in enumerate(in_flight)
    ]
    return {
        "name": name,
        "method": method,
        "num_speculative_tokens": k,
        "engine": engine,
        "baseline": baseline,
        "step_time": step_time(k or 0, slope=slope),
        "replicas": replicas,
    }


def cell(tau: float | None = None, *, tokens: int = 1000, requests: int = 200) -> dict[str, Any]:
    """What a pool came to in a class; plain decoding has no tokens per step here."""
    told = tau is not None
    return {
        "tokens": tokens,
        "tokens_per_step": tau,
        "tokens_per_step_interval": [tau - 0.05, tau + 0.05] if tau is not None else None,
        "acceptance_rate_by_position": [0.6, 0.5, 0.4] if told else [],
        "acceptance_rate": 0.5 if told else None,
        "equal_acceptance_rate": None,
        "acceptance_requests": requests if told else 0,
    }


def route(pools: list[dict[str, Any]], **classes: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """A route with cells by class and pool."""
    return {
        "model": "m",
        "pools": pools,
        "classes": [
            {"class": name, "cells": [{"pool": of, **made} for of, made in cells.items()]}
            for name, cells in classes.items()
        ],
    }
