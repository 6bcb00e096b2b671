"""Requests of an experiment drawn one by one, for each primary metric; `verify_experiments` asks.

TTFT and TPOT are log-normal, answers have 16 to 2,000 tokens, and the level of an hour moves all
times of both sides. What is planned, and what judges, is the product's own code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from bench.trials import CHAT, EXPERIMENT, HOUR, LEVEL_SD, PER_SECOND, SIDES, looks
from policies.cost import LENGTH_BANDS, typical_tokens
from policies.estimators.cells import CellSums, LogCostSums
from policies.estimators.effects import arm_effects
from policies.estimators.histogram import bucket
from policies.estimators.increments import FIXED_POINT
from policies.estimators.verdict import fixed_sample_gain
from policies.types import ArmId, FloatArray
from router.estimates.layout import Cells
from router.experiments.evidence import evidence_of
from router.experiments.forecast import Traffic, forecast, traffic_in
from router.experiments.model import Experiment, Metric
from router.experiments.rollout import harm
from router.experiments.seen import Seen
from router.types import POOLED

TTFT_SD: Final = 0.5
TPOT_SD: Final = 0.3
_BANDS: Final = len(LENGTH_BANDS)


@dataclass(frozen=True, slots=True)
class Requests:
    """Finished requests in their order, each of shape (requests,)."""

    hour: np.ndarray[tuple[int], np.dtype[np.int64]]
    side: np.ndarray[tuple[int], np.dtype[np.int64]]
    ttft: FloatArray
    tpot: FloatArray
    tokens: np.ndarray[tuple[int], np.dtype[np.int64]]

    @classmethod
    def drawn(
        cls, rng: np.random.Generator, n: int, *, ttft: float = 1.0, tpot: float = 1.0
    ) -> Requests:
        """Half of them treated; these have so many times the TTFT and the TPOT of the others."""
        hour = np.arange(n) // (PER_SECOND * HOUR)
        level = rng.normal(0.0, LEVEL_SD, hour[-1] + 1).cumsum()[hour]
        side = rng.integers(0, 2, n)
        tokens = np.exp(rng.normal(math.log(150.0), 0.7, n)).astype(np.int64).clip(16, 2000)
        return cls(
            hour,
            side,
            0.25 * np.exp(level + rng.normal(0.0, TTFT_SD, n)) * np.where(side, ttft, 1.0),
            0.02 * np.exp(level + rng.normal(0.0, TPOT_SD, n)) * np.where(side, tpot, 1.0),
            tokens,
        )

    def logs(self, metric: Metric) -> tuple[FloatArray, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """Log of the metric, and the stratum of each request."""
        nothing = np.zeros(len(self.side), dtype=np.int64)
        match metric:
            case Metric.TTFT:
                return np.log(self.ttft), nothing
            case Metric.TPOT:
                return np.log(self.tpot), nothing
            case Metric.COST:
                return np.log(self.ttft + (typical_tokens(CHAT) - 1) * self.tpot), nothing
            case Metric.E2E:
                e2e = self.ttft + (self.tokens - 1) * self.tpot
                return np.log(e2e / self.tokens), np.log2(self.tokens).astype(np.int64)


def planned(rng: np.random.Generator, metric: Metric, effect: float) -> int:
    """Requests that the product plans for an effect, from two thousand of the day before."""
    past = Requests.drawn(rng, 2000)
    cost, _ = past.logs(Metric.COST)
    sums = {"n": len(cost), "status.ok": len(cost), "y.s.n": len(cost)}
    sums["y.s.s"] = round(float(cost.sum()) * FIXED_POINT)
    sums["y.s.q"] = round(float((cost**2).sum()) * FIXED_POINT)
    for family, seconds in (("ttft", past.ttft), ("tpot", past.tpot)):
        for one in seconds.tolist():
            name = f"{family}.{bucket(one)}"
            sums[name] = sums.get(name, 0) + 1
    day: Cells = {(ArmId("plain"), CHAT, POOLED): sums}
    plan = replace(EXPERIMENT.plan, primary=metric)
    traffic: Traffic = traffic_in([day], metric)
    [stage] = forecast(plan, traffic, effect=effect)["stages"]
    return int(stage["requests_for_effect"])


def experiment_by(metric: Metric) -> Experiment:
    """The experiment that this metric decides, without guards."""
    return replace(EXPERIMENT, plan=replace(EXPERIMENT.plan, primary=metric, guards=()))


class Gathered:
    """Sums of one metric, as the product would have read them."""

    def __init__(self, requests: Requests, metric: Metric) -> None:
        self._requests = requests
        self._metric = metric
        self._y, self._kind = requests.logs(metric)
        self._sums = np.zeros((3, int(requests.hour[-1]) + 1, 2, _BANDS))
        self._known = 0

    def until(self, requests: int) -> Seen:
        """All sums of the first requests."""
        new = slice(self._known, requests)
        at = self._requests
        index = (at.hour[new] * 2 + at.side[new]) * _BANDS + self._kind[new]
        y, shape = self._y[new], self._sums.shape[1:]
        size = int(np.prod(shape))
        for power in range(3):
            self._sums[power] += np.bincount(index, y**power, minlength=size).reshape(shape)
        self._known = requests
        pairs = {
            (hour, 1): {side: self._cell(hour, column) for column, side in enumerate(SIDES)}
            for hour in range(shape[0])
            if self._sums[0, hour].any()
        }
        return Seen.of({CHAT: pairs}, 1)

    def _cell(self, hour: int, column: int) -> CellSums:
        n, s, q = self._sums[:, hour, column]
        stem = {Metric.E2E: "e", Metric.COST: "s"}.get(self._metric, self._metric.value)
        logs = {
            f"{stem}{kind}" if self._metric is Metric.E2E else stem: LogCostSums(
                int(n[kind]), round(s[kind] * FIXED_POINT), round(q[kind] * FIXED_POINT)
            )
            for kind in np.flatnonzero(n).tolist()
        }
        plain = {"n": int(n.sum()), "status.ok": int(n.sum())}
        if self._metric is Metric.COST:
            return CellSums(plain, log_cost=logs)
        return CellSums(plain, log_time=logs)


def stopped_by(seed: int, metric: Metric) -> bool:
    """Whether a treatment that does nothing would be stopped by the metric within six hours."""
    requests = Requests.drawn(np.random.default_rng(seed), 6 * HOUR * PER_SECOND)
    gathered, experiment = Gathered(requests, metric), experiment_by(metric)
    return any(
        harm(evidence_of(experiment, gathered.until(seconds * PER_SECOND))) is not None
        for seconds in looks()
    )


def found_by(seed: int, metric: Metric, effect: float) -> tuple[bool, bool, bool]:
    """Of an effect with the planned sample: was it found, and do both intervals hold it?"""
    rng = np.random.default_rng(seed)
    n = planned(rng, metric, effect)
    better = 1.0 - effect
    requests = Requests.drawn(
        rng,
        n,
        ttft=1.0 if metric is Metric.TPOT else better,
        tpot=1.0 if metric is Metric.TTFT else better,
    )
    known = Gathered(requests, metric).until(n)
    gain = evidence_of(experiment_by(metric), known).gain
    once = fixed_sample_gain(arm_effects(known.view(metric=metric)), 1)
    if gain is None or once is None:
        return False, False, False
    return gain[1] > 0.0, gain[1] <= effect <= gain[2], once.low <= effect <= once.high
