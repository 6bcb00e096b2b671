"""Measures what experiments promise: false stops, power, coverage, and how soon the brake holds.

Usage: python -m bench.verify_experiments [--seeds 1000]

Requests are drawn as sums, exactly as they would be distributed; what judges them is the product's
own code: `router.experiments.evidence`, `router.experiments.rollout.harm` and
`router.experiments.brake`. Log cost is `level of the hour + effect + N(0, 0.3^2)`, levels walk by
N(0, 0.2) from hour to hour, TPOT and TTFT are log-normal, one request in 1,000 fails.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from bench.metrics_of_requests import found_by, stopped_by
from bench.sessions import CASES, found_as_planned, watched
from bench.trials import (
    CHAT,
    EXPERIMENT,
    HOUR,
    LEVEL_SD,
    PER_SECOND,
    SD,
    SECONDS,
    SIDES,
    Row,
    looks,
)
from policies.estimators.cells import CellSums, LogCostSums
from policies.estimators.effects import arm_effects
from policies.estimators.histogram import bucket
from policies.estimators.increments import FIXED_POINT
from policies.estimators.sequential import requests_to_detect
from policies.estimators.verdict import fixed_sample_gain
from policies.types import ArmId, FloatArray
from router.experiments.brake import LEAST_EXCESS, sudden_harm
from router.experiments.evidence import evidence_of
from router.experiments.forecast import Traffic, forecast
from router.experiments.model import Experiment, GuardKind, Metric, Stage
from router.experiments.rollout import harm
from router.experiments.seen import Seen

FAILING: Final = 0.001
WINDOWS: Final = (10, 60)
"""Seconds that the brake judges by themselves, each second anew."""

_SUSPECT_T: Final = 3.5
"""Below it a window is no sudden harm at the brake's level, whatever the degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Requests of a run, by second and side.

    Attributes:
        n: Shape (seconds, 2), as all others.
        failed: Of these, those that failed.
        total: Log cost of the others, centred on what both sides have without an effect.
        total_sq: Its squares.
    """

    n: FloatArray
    failed: FloatArray
    total: FloatArray
    total_sq: FloatArray

    @property
    def ok(self) -> FloatArray:
        """Requests with a cost."""
        return self.n - self.failed


def drawn(
    rng: np.random.Generator,
    *,
    seconds: int = SECONDS,
    effect: float = 0.0,
    failing: float = FAILING,
    share: float = 0.5,
) -> Drawn:
    """Draws sums as they are distributed."""
    treated = rng.binomial(PER_SECOND, share, seconds)
    n = np.stack([PER_SECOND - treated, treated], axis=1)
    failed = rng.binomial(n, [FAILING, failing])
    ok = n - failed
    hours = np.arange(seconds) // HOUR
    level = rng.normal(0.0, LEVEL_SD, hours[-1] + 1).cumsum()[hours]
    mean = level[:, None] + np.array([0.0, effect])
    noise = SD * np.sqrt(ok) * rng.standard_normal(ok.shape)
    total = ok * mean + noise
    residual = SD**2 * rng.chisquare(np.maximum(ok - 1, 1e-9)) * (ok > 1)
    centre = total / np.maximum(ok, 1)
    return Drawn(n.astype(float), failed.astype(float), total, residual + ok * centre**2)


@dataclass(slots=True)
class Gathered:
    """What the product would have read from the store."""

    run: Drawn
    rng: np.random.Generator
    seconds: int = 0
    pairs: dict[tuple[int, int], dict[ArmId, CellSums]] = field(default_factory=dict)
    histograms: dict[int, list[dict[str, dict[int, int]]]] = field(default_factory=dict)

    def until(self, seconds: int) -> Seen:
        """All sums of the first seconds."""
        for hour in range(self.seconds // HOUR, (seconds - 1) // HOUR + 1):
            first, last = hour * HOUR, min((hour + 1) * HOUR, seconds)
            new = slice(max(first, self.seconds), last)
            kept = self.histograms.setdefault(hour, [{"tpot": {}, "ttft": {}} for _ in range(2)])
            self.pairs[hour, 1] = {
                side: self._cell(column, slice(first, last), new, kept[column])
                for column, side in enumerate(SIDES)
            }
        self.seconds = seconds
        return Seen.of({CHAT: self.pairs}, 1)

    def _cell(
        self, column: int, all_: slice, new: slice, kept: dict[str, dict[int, int]]
    ) -> CellSums:
        run = self.run
        for family, (buckets, shares) in _LATENCIES.items():
            n = int(run.ok[new, column].sum())
            counts = self.rng.multinomial(n, shares)
            for index in np.flatnonzero(counts).tolist():
                name = buckets[index]
                kept[family][name] = kept[family].get(name, 0) + int(counts[index])
        n, failed = (int(of[all_, column].sum()) for of in (run.n, run.failed))
        cost = LogCostSums(
            n - failed,
            round(float(run.total[all_, column].sum()) * FIXED_POINT),
            round(float(run.total_sq[all_, column].sum()) * FIXED_POINT),
        )
        plain = {"n": n, "status.ok": n - failed, "status.failed": failed}
        latency = {family: dict(of) for family, of in kept.items()}
        return CellSums(plain, latency=latency, log_cost={"s": cost})


def _latency(median_s: float, sd: float) -> tuple[list[int], FloatArray]:
    """Buckets of a log-normal duration and their shares."""
    z = np.linspace(-6.0, 6.0, 2001)
    density = np.exp(-(z**2) / 2.0)
    names = [bucket(median_s * math.exp(sd * at)) for at in z.tolist()]
    shares: dict[int, float] = {}
    for name, weight in zip(names, density.tolist(), strict=True):
        shares[name] = shares.get(name, 0.0) + weight
    total = sum(shares.values())
    return list(shares), np.array(list(shares.values())) / total


_LATENCIES = {"tpot": _latency(0.02, SD), "ttft": _latency(0.2, 0.6)}


def stopped(seed: int) -> str | None:
    """Why a treatment that does nothing would have been stopped within six hours."""
    rng = np.random.default_rng(seed)
    run = drawn(rng)
    for first, last in suspects(run):
        if sudden_harm(recent(run, first, last), before(run, first)) is not None:
            return "brake"
    gathered = Gathered(run, rng)
    for seconds in looks():
        evidence = evidence_of(EXPERIMENT, gathered.until(seconds))
        if harm(evidence) is not None:
            breached = [str(r.guard.kind) for r in evidence.guards if r.breached]
            return breached[0] if breached else "primary metric"
        if evidence.ratio_alarm:
            return "sample ratio"
    return None


def suspects(run: Drawn) -> Iterator[tuple[int, int]]:
    """Windows that could be sudden harm at all: the others are not worth the product's time."""
    zero = np.zeros((1, 2))
    ok, total, failed = (
        np.concatenate([zero, of.cumsum(axis=0)]) for of in (run.ok, run.total, run.failed)
    )
    for window in WINDOWS:
        n = np.maximum(ok[window:] - ok[:-window], 1.0)
        mean = (total[window:] - total[:-window]) / n
        spread = np.sqrt((SD**2 / n).sum(axis=1))
        slower = (mean[:, 1] - mean[:, 0]) / spread > _SUSPECT_T
        failing = (failed[window:] - failed[:-window])[:, 1] >= LEAST_EXCESS * (n[:, 1] + 1.0)
        for first in np.flatnonzero(slower | failing).tolist():
            yield first, first + window


def recent(run: Drawn, first: int, last: int) -> Seen:
    """A stretch of seconds as the brake sees it."""
    pair = {}
    for column, side in enumerate(SIDES):
        n, failed = (int(of[first:last, column].sum()) for of in (run.n, run.failed))
        cost = LogCostSums(
            n - failed,
            round(float(run.total[first:last, column].sum()) * FIXED_POINT),
            round(float(run.total_sq[first:last, column].sum()) * FIXED_POINT),
        )
        plain = {"n": n, "status.ok": n - failed, "status.failed": failed}
        pair[side] = CellSums(plain, log_cost={"s": cost})
    return Seen.of({CHAT: {(0, 1): pair}}, 1)


def before(run: Drawn, second: int) -> dict[str, int]:
    """How requests of both sides have ended so far."""
    return {
        "n": int(run.n[:second].sum()),
        "status.failed": int(run.failed[:second].sum()),
    }


def found(seed: int, effect: float) -> tuple[bool, bool, bool]:
    """Of an effect with the planned sample: was it found, and do both intervals hold it?"""
    rng = np.random.default_rng(seed)
    log_effect = math.log1p(-effect)
    requests = requests_to_detect(-log_effect, SD, 0.5)
    run = drawn(rng, seconds=math.ceil(requests / PER_SECOND), effect=log_effect)
    known = Gathered(run, rng).until(len(run.n))
    evidence = evidence_of(EXPERIMENT, known)
    once = fixed_sample_gain(arm_effects(known.view()), 1)
    if evidence.gain is None or once is None:
        return False, False, False
    _, low, high = evidence.gain
    return low > 0.0, low <= effect <= high, once.low <= effect <= once.high


def covered(seed: int, effect: float) -> bool:
    """Whether the interval that people are shown holds the effect at every look."""
    rng = np.random.default_rng(seed)
    run = drawn(rng, effect=math.log1p(-effect))
    gathered = Gathered(run, rng)
    for seconds in looks():
        gain = evidence_of(EXPERIMENT, gathered.until(seconds)).gain
        if gain is not None and not gain[1] <= effect <= gain[2]:
            return False
    return True


def braked(seed: int, *, effect: float, failing: float) -> int | None:
    """Seconds after which a treatment that turns bad is left; None if not within two slots.

    Fifty requests a slot are treated; before it there were ten good minutes.
    """
    rng = np.random.default_rng(seed)
    good = drawn(rng, seconds=600)
    bad = drawn(rng, seconds=20, effect=effect, failing=failing)
    earlier = before(good, 600)
    for second in range(1, 21):
        window = recent(bad, max(0, second - WINDOWS[0]), second)
        if sudden_harm(window, earlier) is not None:
            return second
    return None


def measured(seeds: range) -> Iterator[Row]:
    """All promises, one after another."""
    causes = [stopped(seed) for seed in seeds]
    stops = [cause for cause in causes if cause is not None]
    told = ", ".join(f"{c} {stops.count(c)}" for c in sorted(set(stops))) or "none"
    share = len(stops) / len(seeds)
    yield Row(
        "A/A, six hours, watched all the time: stopped for nothing",
        f"{share:.1%} ({told})",
        "≤ 5 %",
        share <= 0.05,
    )
    results = [found(100_000 + seed, 0.05) for seed in seeds]
    power, anytime, once = (float(np.mean(of)) for of in zip(*results, strict=True))
    for promise, value, demanded, kept in (
        ("a gain of 5 % found with the planned sample", power, "≥ 80 %", power >= 0.8),
        ("its interval for one look holds it", once, "93–97 %", 0.93 <= once <= 0.97),
        ("its interval for all looks holds it", anytime, "≥ 95 %", anytime >= 0.95),
    ):
        yield Row(promise, f"{value:.1%}", demanded, kept)
    always = float(np.mean([covered(200_000 + seed, 0.05) for seed in seeds]))
    yield Row("the same, at every look of six hours", f"{always:.1%}", "≥ 95 %", always >= 0.95)
    yield from _by_metric(seeds)
    yield from _by_session(seeds)
    yield from _as_printed(seeds)
    slow = math.log((0.1 + 299 * 0.04) / (0.1 + 299 * 0.02))
    for name, effect, failing in (("TPOT × 2", slow, FAILING), ("20 % errors", 0.0, 0.2)):
        took = [braked(300_000 + seed, effect=effect, failing=failing) for seed in seeds]
        kept_share = sum(second is not None and second <= 10 for second in took) / len(took)
        known = sorted(second for second in took if second is not None)
        median = f", median {known[len(known) // 2]} s" if known else ""
        yield Row(
            f"{name}, 50 treated a slot: left within it",
            f"{kept_share:.1%}{median}",
            "≥ 99 %",
            kept_share >= 0.99,
        )


SHARES: Final = (0.05, 0.5)
RATIOS: Final = (1.1, 1.2, 1.5)
EXCESSES: Final = (0.02, 0.05, 0.1)


def found_as_printed(seed: int, share: float, requests: int, harm_: Harm) -> bool:
    """Whether harm is found within the requests that `experiment plan` prints for it."""
    rng = np.random.default_rng(seed)
    seconds = math.ceil(requests / PER_SECOND)
    run = drawn(rng, seconds=seconds, effect=harm_.effect, failing=harm_.failing, share=share)
    gathered = Gathered(run, rng)
    experiment = staged(share)
    return any(
        harm(evidence_of(experiment, gathered.until(at))) is not None
        for at in (*range(0, seconds, max(seconds // 8, 1)), seconds)
        if at
    )


@dataclass(frozen=True, slots=True)
class Harm:
    """What a treatment does: to log cost, and how often it fails."""

    effect: float = 0.0
    failing: float = FAILING


def staged(share: float) -> Experiment:
    """The experiment with this share treated."""
    return replace(EXPERIMENT, plan=replace(EXPERIMENT.plan, stages=(Stage(share),)))


def _as_printed(seeds: range) -> Iterator[Row]:
    """Harm that is less than sudden: within what was printed before the start."""
    traffic = Traffic(3600.0 * PER_SECOND, SD, 24, shares={GuardKind.ERRORS: (FAILING, 36_000.0)})
    for share in SHARES:
        told = forecast(staged(share).plan, traffic)
        harms = [
            (f"{row['ratio']:g} times the time", row["requests"], Harm(math.log(row["ratio"])))
            for row in told["harm"]
            if row["ratio"] in RATIOS
        ]
        harms += [
            (
                f"{row['excess']:.0%} more failures",
                row["requests"],
                Harm(0.0, FAILING + row["excess"]),
            )
            for row in told["excesses"]
            if row["kind"] == GuardKind.ERRORS and row["excess"] in EXCESSES
        ]
        for number, (name, requests, harm_) in enumerate(harms):
            first = 600_000 + 10_000 * number
            found_ = [found_as_printed(first + seed, share, requests, harm_) for seed in seeds]
            kept = float(np.mean(found_))
            yield Row(
                f"{name}, {share:.0%} treated: found within the {requests} requests printed before",
                f"{kept:.1%}",
                "≥ 98 %",
                kept >= 0.98,
            )


def _by_metric(seeds: range) -> Iterator[Row]:
    """The same promises for the other primary metrics, of requests drawn one by one."""
    for metric in (Metric.TPOT, Metric.TTFT, Metric.E2E):
        stops = float(np.mean([stopped_by(400_000 + seed, metric) for seed in seeds]))
        yield Row(f"{metric}: A/A stopped for nothing", f"{stops:.1%}", "≤ 5 %", stops <= 0.05)
        results = [found_by(500_000 + seed, metric, 0.05) for seed in seeds]
        power, anytime, once = (float(np.mean(of)) for of in zip(*results, strict=True))
        yield Row(
            f"{metric}: a gain of 5 % found with the planned sample",
            f"{power:.1%}",
            "≥ 80 %",
            power >= 0.8,
        )
        yield Row(
            f"{metric}: the interval for one look holds it (for all looks)",
            f"{once:.1%} ({anytime:.1%})",
            "93–97 %",
            0.93 <= once <= 0.97,
        )


def _by_session(seeds: range) -> Iterator[Row]:
    """Units that bring many requests which are alike: a day, looked at each hour."""
    for name, of in CASES.items():
        runs = [watched(700_000 + seed, of) for seed in seeds]
        alone = [watched(700_000 + seed, of, by_unit=False) for seed in seeds]
        left, before_ = (float(np.mean([run.left for run in each])) for each in (runs, alone))
        yield Row(
            f"sessions, {name}: A/A stopped for nothing (if taken for independent)",
            f"{left:.1%} ({before_:.1%})",
            "≤ 5 %",
            left <= 0.05,
        )
        held = float(np.mean([run.held for run in runs]))
        promise = f"sessions, {name}: the interval holds 0 at every look"
        yield Row(promise, f"{held:.1%}", "≥ 95 %", held >= 0.95)
    name = "100 an hour of 10 requests"
    results = [found_as_planned(800_000 + seed, CASES[name], 0.1) for seed in seeds]
    power, held = (float(np.mean(each)) for each in zip(*results, strict=True))
    yield Row(
        f"sessions, {name}: a gain of 10 % found with the planned sample (held)",
        f"{power:.1%} ({held:.1%})",
        "≥ 75 %",
        power >= 0.75,
    )


def tables(seeds: int) -> str:
    """All promises as a table."""
    lines = ["| promise | measured | demanded | kept |", "|---|---|---|---|"]
    for row in measured(range(seeds)):
        kept = "yes" if row.kept else "NO"
        lines.append(f"| {row.promise} | {row.measured} | {row.demanded} | {kept} |")
    return "\n".join(lines)


def main() -> int:
    """Prints the table; 1 where a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    made = tables(parser.parse_args().seeds)
    print(made)
    return 1 if "| NO |" in made else 0


if __name__ == "__main__":
    sys.exit(main())
