"""Measures what the statistics promise: false verdicts, coverage, learning, time to a verdict.

Usage: python -m bench.verify_statistics [--seeds 400]

The world is the model that `policies.estimators.effects` assumes: log cost
`y = level of the block + effect of the arm + N(0, sd^2)`, one request per second, results known at
once, levels walking by N(0, 0.2) from block to block. Blocks, window, half-life and refresh follow
the product's defaults. Estimates, verdicts and the policy are the product's own code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.checks import example_arms
from policies.estimators.effects import ArmEffects, arm_effects
from policies.estimators.verdict import (
    MARGIN,
    Gain,
    Verdict,
    fixed_sample_gain,
    gain_of,
    verdict,
)
from policies.estimators.window import exponential_weight
from policies.thompson import ThompsonPolicy
from policies.types import Arm, ArmView, ClassId, FloatArray

REFRESH: Final = 10
"""Requests between two looks; also between two refreshes of the policy."""

BLOCK: Final = 120
"""Requests in a block: two minutes."""

LEVEL_SD: Final = 0.2
CHAT: Final = ClassId("chat")
EFFECTS: Final = (0.0, 0.1, -0.5, -0.15)
"""Arm 2 saves 39 % of the time, arm 3 14 %, arm 1 costs 11 % more."""

_WORDS = (Verdict.GAIN, Verdict.LOSS)


@dataclass(frozen=True, slots=True)
class World:
    """What the requests meet.

    Attributes:
        phases: Requests, and the effect of each arm while they last; arm 0 is the baseline.
        thompson: Shares by Thompson sampling, else equal ones.
        sd: Noise of each arm, or of all.
        half_life_s: Age at which an observation counts half for the policy.
        window: Blocks that verdicts see; None is all.
        shared: Sd of what answers of an arm in a block have in common.
    """

    phases: tuple[tuple[int, tuple[float, ...]], ...]
    thompson: bool = False
    sd: float | tuple[float, ...] = 0.3
    half_life_s: float = 900.0
    window: int | None = None
    shared: float = 0.0


@dataclass(frozen=True, slots=True)
class Look:
    """One moment of a run.

    Attributes:
        served: Requests so far.
        p: Shares the last of them were drawn with.
        pulls: How many of the last went to each arm.
        view: What verdicts are made from.
    """

    served: int
    p: FloatArray
    pulls: FloatArray
    view: ArmView


def looks(world: World, seed: int) -> Iterator[Look]:
    """Run a world and look every `REFRESH` requests."""
    rng, policy = np.random.default_rng(seed), ThompsonPolicy()
    arms = len(world.phases[0][1])
    sd = np.broadcast_to(np.array(world.sd), arms)
    effects = [np.array(e) for requests, e in world.phases for _ in range(requests // REFRESH)]
    names = example_arms(arms)
    sums = np.zeros((len(effects) * REFRESH // BLOCK + 1, 3, arms))
    levels = rng.normal(0.0, LEVEL_SD, len(sums)).cumsum()
    moments = world.shared * np.random.default_rng((1, seed)).standard_normal((len(sums), arms))
    p = np.full(arms, 1.0 / arms)
    for index, effect in enumerate(effects):
        start = index * REFRESH
        block = start // BLOCK
        if world.thompson and start:
            ages = [start - (known + 1) * BLOCK for known in range(block + 1)]
            weight = np.array([exponential_weight(age, world.half_life_s) for age in ages])
            discounted = _view(names, sums[: block + 1] * weight[:, None, None])
            p = policy.propose(discounted, rng).probabilities
        arm = rng.choice(arms, REFRESH, p=p)
        y = levels[block] + (effect + moments[block])[arm] + sd[arm] * rng.standard_normal(REFRESH)
        pulls = np.bincount(arm, minlength=arms).astype(np.float64)
        sums[block, 0] += pulls
        sums[block, 1] += np.bincount(arm, y, arms)
        sums[block, 2] += np.bincount(arm, y * y, arms)
        first = 0 if world.window is None else max(0, block + 1 - world.window)
        yield Look(start + REFRESH, p, pulls, _view(names, sums[first : block + 1]))


def _view(arms: tuple[Arm, ...], sums: FloatArray) -> ArmView:
    n, total, total_sq = sums.copy().swapaxes(0, 1)
    return ArmView(CHAT, arms, n, total, total_sq, n.sum(axis=0), np.zeros(len(arms)))


IntervalOf = Callable[[ArmEffects, int], Gain | None]
EffectsOf = Callable[[ArmView], ArmEffects]


def by_block(view: ArmView) -> ArmEffects:
    """Effects as a snapshot has them: each stratum of these worlds is a block."""
    return arm_effects(view, blocks=np.arange(len(view.n)))


def words(
    view: ArmView, interval_of: IntervalOf = gain_of, effects_of: EffectsOf = by_block
) -> list[Verdict]:
    """Give the verdict on each arm but the baseline."""
    effects, n = effects_of(view), view.n.sum(axis=0)
    return [
        verdict(interval_of(effects, arm), n_arm=float(n[arm]), n_baseline=float(n[0]))
        for arm in range(1, len(n))
    ]


def false_verdicts(
    world: World,
    seeds: int,
    interval_of: IntervalOf = gain_of,
    effects_of: EffectsOf = by_block,
) -> FloatArray:
    """Count the looks that show a gain or a loss.

    Returns:
        Share of the looks by seed, arm and word (gain, loss), shape (seeds, arms - 1, 2).
    """
    shares = []
    for seed in range(seeds):
        shown = [
            [
                [word is wrong for wrong in _WORDS]
                for word in words(look.view, interval_of, effects_of)
            ]
            for look in looks(world, seed)
        ]
        shares.append(np.mean(np.array(shown, dtype=np.float64), axis=0))
    return np.array(shares)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Shares of (seed, arm) whose interval contains the truth, by seed."""

    always: FloatArray
    """By `gain_of`, at every look."""
    last: FloatArray
    """By `gain_of`, at the last look."""
    fixed: FloatArray
    """By `fixed_sample_gain`, at the last look."""


def coverage(world: World, seeds: int) -> Coverage:
    """Compare intervals with the truth; no bound yet excludes nothing."""
    truth = -np.expm1(world.phases[0][1])
    rows = []
    for seed in range(seeds):
        seen = [by_block(look.view) for look in looks(world, seed)]
        held = np.array([_held(effects, truth, gain_of) for effects in seen])
        fixed = np.array(_held(seen[-1], truth, fixed_sample_gain))
        rows.append((held.all(axis=0).mean(), held[-1].mean(), fixed.mean()))
    return Coverage(*np.array(rows).T)


def _held(effects: ArmEffects, truth: FloatArray, interval_of: IntervalOf) -> list[bool]:
    gains = [interval_of(effects, arm) for arm in range(1, len(truth))]
    return [
        gain is None or gain.low <= true <= gain.high
        for gain, true in zip(gains, truth[1:].tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Learning:
    """Where the traffic went, by seed."""

    shares: FloatArray
    """Of the last 200 requests, to each arm; shape (seeds, arms)."""
    took: FloatArray
    """Requests into the last phase until its best arm has half; infinite where it never has."""


def learning(world: World, seeds: int) -> Learning:
    """Follow the best arm of the last phase."""
    change = sum(requests for requests, _ in world.phases[:-1])
    best = int(np.argmin(world.phases[-1][1]))
    shares, took = [], []
    for seed in range(seeds):
        seen = list(looks(world, seed))
        shares.append(np.mean([look.pulls for look in seen[-200 // REFRESH :]], axis=0) / REFRESH)
        led = (
            look.served - REFRESH - change
            for look in seen
            if look.served > change and look.p[best] >= 0.5
        )
        took.append(float(next(led, np.inf)))
    return Learning(np.array(shares), np.array(took))


@dataclass(frozen=True, slots=True)
class FirstVerdict:
    """When the first verdict came, by seed."""

    word: Sequence[Verdict]
    served: FloatArray
    """Requests on all arms; infinite where the run ended without a verdict."""
    n: FloatArray
    """Observations of the side that had fewer."""


def first_verdict(world: World, seeds: int) -> FirstVerdict:
    """Wait for the first verdict on arm 1."""
    found = [_first(world, seed) for seed in range(seeds)]
    word, served, n = zip(*found, strict=True)
    return FirstVerdict(word, np.array(served), np.array(n))


def _first(world: World, seed: int) -> tuple[Verdict, float, float]:
    for look in looks(world, seed):
        word = words(look.view)[0]
        if word is not Verdict.NOT_ENOUGH_DATA:
            return word, float(look.served), float(look.view.n.sum(axis=0)[:2].min())
    return Verdict.NOT_ENOUGH_DATA, np.inf, np.inf


def percent_text(share_by_seed: Sequence[float] | FloatArray | NDArray[np.bool_]) -> str:
    """Mean of a share with its standard error over seeds."""
    by_seed = np.asarray(share_by_seed, dtype=np.float64)
    error = float(by_seed.std(ddof=1)) / len(by_seed) ** 0.5 if len(by_seed) > 1 else float("nan")
    return f"{by_seed.mean():.1%} ± {error:.1%}".replace("%", " %")


def count_text(values: FloatArray, q: float) -> str:
    """A quantile of counts, of which some may be infinite."""
    value = float(np.quantile(values, q, method="higher"))
    return "none" if np.isinf(value) else f"{value:.0f}"


def table_text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


SAME: Final = World(((2000, (0.0, 0.0, 0.0)),))
"""An A/A world: three arms that do not differ, 2,000 requests, 200 looks."""


def false_verdict_table(seeds: int) -> str:
    """False verdicts in A/A worlds, with the interval of one look for comparison."""
    sliding = replace(SAME, phases=((6000, (0.0, 0.0, 0.0)),), window=5)
    few = max(seeds // 4, 2)
    drawn, moving = replace(SAME, thompson=True), replace(SAME, shared=0.05)
    runs: list[tuple[str, World, int, IntervalOf, EffectsOf]] = [
        ("uniform", SAME, seeds, gain_of, by_block),
        ("thompson", drawn, seeds, gain_of, by_block),
        (
            "uniform, sd 0.15 / 0.6 / 0.3",
            replace(SAME, sd=(0.15, 0.6, 0.3)),
            few,
            gain_of,
            by_block,
        ),
        ("uniform, sliding window of 600 in 6,000 requests", sliding, few, gain_of, by_block),
        ("uniform, sd of an arm's block 0.05", moving, seeds, gain_of, by_block),
        ("uniform, sd of an arm's block 0.1", replace(SAME, shared=0.1), few, gain_of, by_block),
        (
            "the same 0.1, answers taken as independent",
            replace(SAME, shared=0.1),
            few,
            gain_of,
            arm_effects,
        ),
        ("uniform, interval of one look", SAME, few, fixed_sample_gain, by_block),
        ("thompson, interval of one look", drawn, few, fixed_sample_gain, by_block),
    ]
    rows = []
    for name, world, count, interval_of, effects_of in runs:
        _say(f"false verdicts: {name}, {count} seeds")
        shown = false_verdicts(world, count, interval_of, effects_of)
        ever = np.array(shown > 0.0)
        by_arm = np.logical_or(ever[:, :, 0], ever[:, :, 1])
        rows.append(
            [
                name,
                str(count),
                percent_text([arms.mean() for arms in by_arm]),
                *(percent_text([arms[:, word].mean() for arms in ever]) for word in (0, 1)),
                percent_text([arms.any() for arms in by_arm]),
                f"{shown.sum(axis=2).mean():.2%}".replace("%", " %"),
            ]
        )
    header = ["shares", "seeds", "an arm ever", "ever gain", "ever loss", "any of 2 arms ever"]
    return table_text([*header, "of all looks"], rows)


def coverage_table(seeds: int) -> str:
    """Coverage of the 95 % intervals with four arms that differ."""
    rows = []
    for thompson in (False, True):
        name = "thompson" if thompson else "uniform"
        for requests in (300, 1000):
            _say(f"coverage: {name}, {requests} requests, {seeds} seeds")
            held = coverage(World(((requests, EFFECTS),), thompson=thompson), seeds)
            cells = [percent_text(by_seed) for by_seed in (held.always, held.last, held.fixed)]
            rows.append([name, f"{requests:,}", *cells])
    header = ["shares", "requests", "at every look", "at the last look"]
    return table_text([*header, "interval of one look, at the last look"], rows)


def learning_table(seeds: int) -> str:
    """Shares that Thompson sampling gives, in still worlds and after a change."""
    after = (0.0, -0.5, 0.1, -0.15)
    rows = []
    change = ((500, EFFECTS), (1000, after))
    worlds = [
        ("arm 2 is best (−39 % time)", World(((600, EFFECTS),))),
        ("the baseline is best, others +35 to +49 % time", World(((600, (0.0, 0.3, 0.4, 0.35)),))),
        ("the baseline is best, others +5 % time", World(((600, (0.0, 0.05, 0.05, 0.05)),))),
        ("arms 1 and 2 change places, half-life 150 s", World(change, half_life_s=150.0)),
        ("arms 1 and 2 change places, half-life 900 s", World(change)),
    ]
    for name, world in worlds:
        _say(f"learning: {name}, {seeds} seeds")
        found = learning(replace(world, thompson=True), seeds)
        best = int(np.argmin(world.phases[-1][1]))
        given = [percent_text(found.shares[:, arm]) for arm in (best, 0)]
        rows.append([name, *given, *(count_text(found.took, q) for q in (0.5, 0.9))])
    header = ["world", "best arm, last 200", "baseline, last 200"]
    return table_text([*header, "half the traffic after (median)", "(90 % of seeds)"], rows)


def time_table(seeds: int) -> str:
    """Time to the first verdict on an arm against the baseline, two arms, sd 0.3."""
    worlds = [
        (-0.4, Verdict.GAIN, False, 600),
        (-0.2, Verdict.GAIN, False, 1200),
        (-0.1, Verdict.GAIN, False, 3000),
        (0.2, Verdict.LOSS, False, 1200),
        (0.0, Verdict.NO_DIFFERENCE, False, 4000),
        (-0.4, Verdict.GAIN, True, 3000),
        (-0.2, Verdict.GAIN, True, 3000),
        (-0.1, Verdict.GAIN, True, 3000),
    ]
    rows = []
    for effect, right, thompson, requests in worlds:
        name = "thompson" if thompson else "uniform"
        count = max(seeds // 2, 2) if thompson or effect == 0.0 else seeds
        _say(f"time to verdict: {name}, {effect}, {count} seeds")
        first = first_verdict(World(((requests, (0.0, effect)),), thompson=thompson), count)
        came = np.isfinite(first.served)
        wrong = [word not in (right, Verdict.NOT_ENOUGH_DATA) for word in first.word]
        rows.append(
            [
                name,
                str(count),
                f"{effect:+.1f}".replace("-", "−") if effect else "0",
                str(right),
                count_text(first.n, 0.5),
                count_text(first.n, 0.9),
                count_text(first.served, 0.5),
                count_text(first.served, 0.9),
                percent_text(came) + f" of {requests:,}",
                percent_text(wrong),
            ]
        )
    header = [
        "shares",
        "seeds",
        "true effect (log)",
        "right verdict",
        "n of the smaller side, median",
    ]
    header += ["90 %", "requests, median", "90 %", "a verdict within", "first verdict wrong"]
    return table_text(header, rows)


def tables(seeds: int) -> str:
    """Measure everything over so many seeds; Markdown."""
    margin = f"{MARGIN:.0%}".replace("%", " %")
    parts = [
        "### False verdicts where no arm differs\n",
        f"Three arms, a look every {REFRESH} requests, 200 looks (600 with the sliding window).",
        'Share of arms that are ever shown as "gain" or "loss"; 5 % is the promise.\n',
        false_verdict_table(seeds),
        "\n### Coverage of the 95 % interval of the gain\n",
        "Four arms: baseline, +11 %, −39 % and −14 % time.\n",
        coverage_table(seeds),
        "\n### What Thompson sampling gives to whom\n",
        "Four arms, floor 2 % each, so at most 94 % for one; 600 requests, or 500 and 1,000 after",
        "the change. Requests until the best arm has half the traffic count from the change.\n",
        learning_table(seeds),
        "\n### Time to the first verdict\n",
        f'Two arms, noise sd 0.3; "no difference" is within ±{margin}.\n',
        time_table(seeds),
    ]
    return "\n".join([*parts, f"\n{seeds} seeds unless said; ± is one standard error.", ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.verify_statistics")
    parser.add_argument("--seeds", type=int, default=400)
    print(tables(parser.parse_args(arguments).seeds))


if __name__ == "__main__":
    main()
