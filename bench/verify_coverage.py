"""Measures whether intervals cover at their level: tau, quantiles, tails and gain, in one world.

Usage: python -m bench.verify_coverage [--seeds 500]

The world: one class of two segments that differ in everything (level, length, acceptance, and in
one world which arm is best), three arms, 20 blocks of 120 requests. The level of load walks from
block to block and inside blocks, doubles in the middle, and the mix of segments turns over. Shares
are equal ones, or set by Thompson sampling for each segment every 20 requests, so that every arm
gets a mix, and times of day, of its own. What is judged is the product's snapshot of the last
moment, against the truth of the traffic each arm got: the tokens it got of each segment, and for
quantiles the law its requests of each block were drawn from.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from policies.checks import example_arms
from policies.cost import typical_tokens
from policies.estimators.histogram import GAMMA, LOWEST_S
from policies.estimators.quantiles import Blocks, Quantile
from policies.estimators.tails import TailRatio, tail_ratio
from policies.estimators.tau import Tau
from policies.estimators.verdict import TAIL_LIMIT, Gain
from policies.thompson import ThompsonPolicy
from policies.types import ArmView, ClassId, FloatArray
from router.estimates.layout import BLOCK_S, Cells
from router.estimates.reader import Past
from router.estimates.snapshot import ClassSnapshot, SnapshotBuilder
from router.types import POOLED, SegmentId

CHAT: Final = ClassId("chat")
ARMS: Final = example_arms(3)
SEGMENTS: Final = (SegmentId("a"), SegmentId("b"))
BLOCKS: Final = 20
STEPS: Final = 6
"""Refreshes of shares in a block."""
PER_STEP: Final = 20
FIRST: Final = 1_000_000
NOISE: Final = 0.3
"""Sd of log TPOT inside a segment at one load."""
LENGTH: Final = np.array([100.0, 200.0])
"""Median tokens of an answer, by segment; the sd of their logarithm is `SPREAD`."""
SPREAD: Final = 0.5
TAU: Final = np.array([[1.0, 3.0, 2.5], [1.0, 1.6, 2.0]])
"""Tokens per step by segment and arm; of each request with sd `UNLIKE` on the log scale."""
UNLIKE: Final = 0.2
LEVEL: Final = np.array([-4.0, -3.7])
"""Log TPOT of the baseline by segment at the load of the start."""

ALIKE: Final = np.array([[0.0, -0.4, -0.1]] * 2)
OPPOSITE: Final = np.array([[0.0, -0.5, 0.1], [0.0, 0.2, -0.3]])


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests of one run, arrays of shape (requests,) unless said."""

    step: NDArray[np.int64]
    segment: NDArray[np.int64]
    arm: NDArray[np.int64]
    chance: FloatArray
    """Of a request to be of a segment and go to an arm, shape (steps, segments, arms)."""
    level: FloatArray
    """Log TPOT that was to be expected, same shape."""
    tpot: FloatArray
    tokens: NDArray[np.int64]
    steps: NDArray[np.int64]

    @property
    def block(self) -> NDArray[np.int64]:
        """Of each request."""
        return self.step // STEPS


def run(effects: FloatArray, *, thompson: bool, seed: int) -> Traffic:
    """Serves all requests of a world."""
    rng, policy = np.random.default_rng(seed), ThompsonPolicy()
    total = BLOCKS * STEPS
    load = rng.normal(0.0, 0.2, BLOCKS).cumsum().repeat(STEPS)
    load = load + rng.normal(0.0, 0.05, total) + np.where(np.arange(total) < total / 2, 0.0, 0.7)
    mix = np.linspace(0.8, 0.3, total)
    sums = np.zeros((len(SEGMENTS), BLOCKS, 3, len(ARMS)))
    shares = np.full((len(SEGMENTS), len(ARMS)), 1.0 / len(ARMS))
    expected = load[:, None, None] + LEVEL[:, None] + effects
    chance = np.stack([mix, 1.0 - mix], axis=1)[:, :, None] * np.ones(len(ARMS))
    drawn: list[tuple[NDArray[Any], ...]] = []
    for step in range(total):
        chance[step] *= shares
        segment = (rng.random(PER_STEP) > mix[step]).astype(int)
        arm = (rng.random((PER_STEP, 1)) > shares[segment].cumsum(axis=1)).sum(axis=1)
        arm = np.minimum(arm, len(ARMS) - 1)
        y = expected[step, segment, arm] + NOISE * rng.standard_normal(PER_STEP)
        for figure, power in enumerate((np.ones(PER_STEP), y, y * y)):
            np.add.at(sums, (segment, step // STEPS, figure, arm), power)
        if thompson:
            for index, of in enumerate(sums):
                shares[index] = policy.propose(_view(of[: step // STEPS + 1]), rng).probabilities
        drawn.append((segment, arm, y))
    where, at, found = (np.concatenate(of) for of in zip(*drawn, strict=True))
    length = LENGTH[where] * np.exp(SPREAD * rng.standard_normal(len(where)))
    tau = TAU[where, at] * np.exp(np.where(at > 0, UNLIKE, 0.0) * rng.standard_normal(len(where)))
    steps = np.maximum(np.round(length / np.maximum(tau, 1.0)), 1).astype(int)
    tokens = np.maximum(np.round(steps * np.maximum(tau, 1.0)), steps).astype(int)
    return Traffic(
        np.arange(total).repeat(PER_STEP),
        where,
        at,
        chance,
        expected,
        np.exp(found),
        tokens,
        steps,
    )


def _view(sums: FloatArray) -> ArmView:
    n, total, total_sq = sums.swapaxes(0, 1)
    return ArmView(CHAT, ARMS, n, total, total_sq, n.sum(axis=0), np.zeros(len(ARMS)))


def stored(traffic: Traffic) -> Past:
    """The sums that these requests leave, as `increments` adds them, cell by cell."""
    bucket = _bucket(np.log(traffic.tpot))
    y = np.log(traffic.tpot * typical_tokens(CHAT))
    blocks: dict[int, Cells] = {}
    for block in range(BLOCKS):
        cells = blocks.setdefault(FIRST + block, {})
        for index, arm in enumerate(ARMS):
            here = (traffic.block == block) & (traffic.arm == index)
            parts = [(POOLED, here)]
            parts += [(part, here & (traffic.segment == at)) for at, part in enumerate(SEGMENTS)]
            for part, of in parts:
                if not of.any():
                    continue
                small = _effects(y[of], traffic.tokens[of], traffic.steps[of])
                cells[arm.arm_id, CHAT, part] = small
                if part == POOLED:
                    small |= _more(traffic.tokens[of], traffic.steps[of], bucket[of])
    return Past(blocks, FIRST + BLOCKS - 1, frozenset(blocks))


def _bucket(log_seconds: FloatArray) -> NDArray[np.int64]:
    """As `policies.estimators.histogram.bucket`."""
    return np.ceil((log_seconds - math.log(LOWEST_S)) / math.log(GAMMA)).astype(np.int64)


def _effects(y: FloatArray, tokens: NDArray[np.int64], steps: NDArray[np.int64]) -> dict[str, int]:
    n = len(y)
    return {
        "n": n,
        "status.ok": n,
        "steps": int(steps.sum()),
        "steps.tokens": int(tokens.sum()),
        "y.s.n": n,
        "y.s.s": round(y.sum() * 1e6),
        "y.s.q": round((y * y).sum() * 1e6),
    }


def _more(
    tokens: NDArray[np.int64], steps: NDArray[np.int64], bucket: NDArray[np.int64]
) -> dict[str, int]:
    there, count = np.unique(bucket, return_counts=True)
    return {
        **{f"tpot.{b}": n for b, n in zip(there.tolist(), count.tolist(), strict=True)},
        "steps.n": len(steps),
        "steps.tt": int((tokens * tokens).sum()),
        "steps.ts": int((tokens * steps).sum()),
        "steps.ss": int((steps * steps).sum()),
        "tokens": int(tokens.sum()),
        "tokens.n": len(tokens),
    }


_GRID = np.linspace(-9.0, 9.0, 36_001)
_CDF = np.array([NormalDist().cdf(x) for x in _GRID.tolist()])


def _quantile(level: FloatArray, weight: FloatArray, q: float) -> float:
    """Quantile of a mixture of normal laws around these levels."""
    low, high = float(level.min()) - 3.0, float(level.max()) + 3.0
    for _ in range(40):
        middle = (low + high) / 2.0
        below = np.interp((middle - level) / NOISE, _GRID, _CDF)
        low, high = (middle, high) if float(weight @ below) < q else (low, middle)
    return low


def _law(traffic: Traffic, weight: FloatArray, arm: int) -> tuple[FloatArray, FloatArray]:
    """Levels of an arm's requests, and their weights where blocks have these weights."""
    chance = traffic.chance[:, :, arm].reshape(BLOCKS, -1)
    chance = chance / chance.sum(axis=1, keepdims=True) * (weight / weight.sum())[:, None]
    return traffic.level[:, :, arm].reshape(-1), chance.reshape(-1)


def _expected_tau(weight: FloatArray, arm: int) -> float:
    """Tau of so many tokens of each segment."""
    own = TAU[:, arm] * math.exp(-(UNLIKE**2) / 2.0 if arm else 0.0)
    return float(weight.sum() / (weight / own).sum())


Held = tuple[int, int, int]
"""Missed below the interval, covered, missed above it; all 0 where there is none."""


def _held(found: Tau | Quantile | TailRatio | Gain | None, truth: float) -> Held:
    if found is None or found.low is None or found.high is None:
        return 0, 0, 0
    below, above = truth < found.low, truth > found.high
    return int(below), int(not below and not above), int(above)


def judged(traffic: Traffic, known: ClassSnapshot, effects: FloatArray) -> dict[str, Held]:
    """Whether each interval of a snapshot holds the truth, by what it is about."""
    made: dict[str, Held] = {}
    n = np.zeros((BLOCKS, len(ARMS)))
    np.add.at(n, (traffic.block, traffic.arm), 1.0)
    in_class = np.array([traffic.tokens[traffic.segment == of].sum() for of in (0, 1)], float)
    for index, arm in enumerate(ARMS):
        mine = traffic.arm == index
        cell, name = known.cells[arm.arm_id], "baseline" if not index else f"arm {index}"
        level, even = _law(traffic, n[:, index], index)
        for q, found in ((0.5, cell.latency["tpot"].p50), (0.95, cell.latency["tpot"].p95)):
            truth = math.exp(_quantile(level, even, q))
            made[f"p{round(100 * q)} of TPOT, {name}"] = _held(found, truth)
        if not index:
            continue
        got = np.array(
            [traffic.tokens[mine & (traffic.segment == of)].sum() for of in (0, 1)], float
        )
        acceptance = cell.acceptance
        made[f"τ of its answers, {name}"] = _held(acceptance.tau, _expected_tau(got, index))
        by_class = _expected_tau(in_class, index)
        made[f"τ by the class's traffic, {name}"] = _held(acceptance.tau_of_class, by_class)
        if cell.comparison is None:
            raise AssertionError("only the baseline is not compared")
        for at, part in enumerate(SEGMENTS):
            gain = known.parts[part].gains[arm.arm_id] if part in known.parts else None
            truth = -math.expm1(effects[at, index])
            made[f"gain at all looks, {name}, segment {part}"] = _held(gain, truth)
        if (effects == effects[0]).all():
            truth = -math.expm1(effects[0, index])
            made[f"gain at all looks, {name}"] = _held(cell.gain, truth)
            made[f"gain at one look, {name}"] = _held(cell.comparison.gain_once, truth)
        weight = n[:, index] * n[:, 0] / np.maximum(n[:, index] + n[:, 0], 1.0)
        tops = [_quantile(*_law(traffic, weight, of), 0.95) for of in (index, 0)]
        ratio = math.exp(tops[0] - tops[1])
        made[f"ratio of p95, {name}"] = _held(cell.comparison.tails["tpot_p95"], ratio)
    return made


def coverage(effects: FloatArray, *, thompson: bool, seeds: int) -> dict[str, FloatArray]:
    """Counts of intervals by what they are about: missed below, covered, missed above."""
    counts: dict[str, FloatArray] = {}
    wall = (FIRST + BLOCKS) * float(BLOCK_S)
    for seed in range(seeds):
        traffic = run(effects, thompson=thompson, seed=seed)
        builder = SnapshotBuilder(ARMS, half_life_s=900.0, tail_limit=1.1)
        known = builder.build(stored(traffic), wall).classes[CHAT]
        for name, held in judged(traffic, known, effects).items():
            counts[name] = counts.get(name, np.zeros(3)) + held
    return counts


WORLDS: Final[Mapping[str, tuple[FloatArray, bool]]] = {
    "uniform": (ALIKE, False),
    "thompson": (ALIKE, True),
    "thompson, segments want opposite arms": (OPPOSITE, True),
}


def tables(seeds: int, say: Callable[[str], None] = lambda _: None) -> str:
    """Coverage of all intervals in all worlds; Markdown."""
    found = {}
    for name, (effects, thompson) in WORLDS.items():
        say(f"coverage of everything: {name}, {seeds} seeds")
        found[name] = coverage(effects, thompson=thompson, seeds=seeds)
    kinds = sorted({kind for counts in found.values() for kind in counts})
    rows = [[kind, *(_cell(counts.get(kind)) for counts in found.values())] for kind in kinds]
    say(f"tails that do not differ, {seeds} seeds")
    parts = [
        _ABOUT.format(seeds=seeds),
        _table(["95 % interval of", *found], rows),
        _ABOUT_TAILS.format(looks=BLOCKS),
        _table(
            ["sd of log TPOT", "answers of arm / baseline in a block", "ever", "of all looks"],
            [_false_row(sd, n_arm, n_base, seeds) for sd, n_arm, n_base in TAILED],
        ),
    ]
    return "\n".join(parts)


TAILED: Final = ((0.3, 40, 40), (0.5, 40, 40), (0.5, 100, 4), (0.8, 40, 40))
"""Worlds in which tails do not differ: noise, and answers of the arm and of the baseline."""


def false_tails(sd: float, n_arm: int, n_base: int, seeds: int) -> tuple[float, float]:
    """How often a tail that does not differ is shown as broken, looking after every block.

    Returns:
        Share of seeds in which any of four tails (p95 and p99 of two durations) ever is, and share
        of all looks at one of them.
    """
    ever, shown, looks = 0, 0, 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        level = rng.normal(0.0, 0.2, BLOCKS).cumsum() + LEVEL[0]
        pairs = [
            [_histograms(level, n, sd, rng) for n in (n_arm, n_base)] for _ in ("ttft", "tpot")
        ]
        broken = [
            _broken(arm, base, q, until)
            for until in range(1, BLOCKS + 1)
            for arm, base in pairs
            for q in (0.95, 0.99)
        ]
        ever, shown, looks = ever + any(broken), shown + sum(broken), looks + len(broken)
    return ever / seeds, shown / looks


def _histograms(level: FloatArray, n: int, sd: float, rng: np.random.Generator) -> Blocks:
    block = np.arange(BLOCKS).repeat(n)
    bucket = _bucket(level[block] + sd * rng.standard_normal(len(block)))
    return Blocks.of(block, bucket, np.ones(len(block), dtype=np.int64), BLOCKS)


def _broken(arm: Blocks, base: Blocks, q: float, until: int) -> bool:
    ratio = tail_ratio(
        Blocks(arm.counts[:until], arm.first), Blocks(base.counts[:until], base.first), q
    )
    return ratio is not None and ratio.low is not None and ratio.low > TAIL_LIMIT


def _false_row(sd: float, n_arm: int, n_base: int, seeds: int) -> list[str]:
    ever, shown = false_tails(sd, n_arm, n_base, seeds)
    shares = (f"{share}".replace("%", " %") for share in (f"{ever:.1%}", f"{shown:.2%}"))
    return [f"{sd}", f"{n_arm} / {n_base}", *shares]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_ABOUT_TAILS = """
Arms that do not differ: how often a tail is shown as broken (lower bound of p95 or p99 of TTFT or
TPOT above 1.10 times the baseline's), in {looks} looks, one after every block.
"""


_ABOUT = """\
Share of intervals that hold the truth (truth below / above), of those of {seeds} seeds that have
both bounds; at 95 % of 500 a standard error is 1.0 points. What holds "at all looks" together
covers more than 95 % at one look, by design; all others are intervals for one look.
"""


def _cell(counts: FloatArray | None) -> str:
    if counts is None or not counts.sum():
        return "–"
    n = counts.sum()
    below, covered, above = (counts / n).tolist()
    return f"{covered:.1%} ({below:.1%} / {above:.1%}) of {n:.0f}".replace("%", " %")


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.verify_coverage")
    parser.add_argument("--seeds", type=int, default=500)
    print(tables(parser.parse_args(arguments).seeds, say=_say))


if __name__ == "__main__":
    main()
