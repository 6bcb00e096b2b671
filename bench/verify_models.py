"""Measures what the cost models and the drift detector promise: coverage, false alarms, delays.

Usage: python -m bench.verify_models [--seeds 500]

Sums are made in bulk here and by `increments` in the product; a test holds them equal. Models,
intervals and the detector are the product's own code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.verify_statistics import count_text, percent_text, table_text
from policies.estimators import drift, prefill
from policies.estimators.drift import NOTHING, Block, Cause, Shift
from policies.estimators.load import BANDS, MOST
from policies.estimators.prefill import PrefillModel
from policies.estimators.step_time import KNOTS, StepTime
from policies.types import Counts, FloatArray
from router.estimates.drifts import KEPT

IntArray = NDArray[np.int64]
Blocks = list[tuple[float, dict[int, Counts]]]

BLOCKS: Final = 60
"""Blocks of two minutes that a model is made from: two hours."""

WINDOW: Final = KEPT
"""Blocks that the detector of drift sees."""

PERIOD: Final = 45
"""Blocks in which load goes up and down once."""

LOADS: Final = (1, 3, 8, 24, 40, 60)
"""Where step times are looked at."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What an arm meets.

    Attributes:
        requests: In a block.
        highest: Load around which the wave has its top.
        factor_sd: By how much whole blocks are slower or faster than others, as a share.
        correlation: Of that factor from block to block.
        noise: Spread of a request, as a share.
    """

    requests: int = 120
    highest: float = 64.0
    factor_sd: float = 0.05
    correlation: float = 0.3
    noise: float = 0.2

    def loads(self, rng: np.random.Generator) -> IntArray:
        """Load that each request meets, shape (blocks, requests): a wave, and chance."""
        wave = 0.5 + 0.5 * np.sin(
            rng.uniform(0.0, 2.0 * np.pi) + 2.0 * np.pi / PERIOD * np.arange(BLOCKS)
        )
        chance = 0.4 * rng.standard_normal((BLOCKS, self.requests))
        load = np.exp(np.log(self.highest) * wave[:, None] + chance)
        return np.asarray(np.maximum(np.rint(load), 1.0), dtype=np.int64)

    def factors(self, rng: np.random.Generator) -> FloatArray:
        """By what each request takes longer than is usual at its load; 1 on average."""
        share = np.sqrt(1.0 - self.correlation**2) * self.factor_sd
        block = np.empty(BLOCKS)
        state = self.factor_sd * rng.standard_normal()
        for index, step in enumerate((share * rng.standard_normal(BLOCKS)).tolist()):
            state = block[index] = self.correlation * state + step
        spread = self.noise * rng.standard_normal((BLOCKS, self.requests))
        return np.asarray((1.0 + block[:, None]) * np.exp(spread - self.noise**2 / 2.0))


# --- Step time ------------------------------------------------------------------------------------

Curve = Callable[[FloatArray], FloatArray]


def line(load: FloatArray) -> FloatArray:
    """The public simulator's 8B model on an H100 with EAGLE drafts of 3, in seconds.

    `overhead + draft + verify`, 1.207e-3 + 2.135e-3 + 5.886e-3 and 2.101e-5 for each of the four
    tokens a request has verified.
    """
    return np.asarray(9.228e-3 + 4 * 2.101e-5 * load)


def flat(load: FloatArray) -> FloatArray:
    """Bound by memory throughout."""
    return np.full_like(load, 9.228e-3)


def bend(load: FloatArray) -> FloatArray:
    """Bound by memory up to 30 requests, by arithmetic beyond; the turn is at no knot."""
    return np.asarray(9.228e-3 + 3e-4 * np.maximum(load - 30.0, 0.0))


def stairs(load: FloatArray) -> FloatArray:
    """Twice as slow beyond the largest graph that was captured, at 32 requests."""
    return np.where(load > 32.0, 2.0, 1.0) * 9.228e-3


def step_sums(load: IntArray, step_s: FloatArray) -> Blocks:
    """What requests add, in bulk; shapes (blocks, requests)."""
    bucket = np.searchsorted(KNOTS, load)
    ones = np.ones_like(load)
    figures = (
        ones,
        load,
        load * load,
        np.rint(step_s * 1e6).astype(np.int64),
        np.rint(step_s * load * 1e6).astype(np.int64),
        np.rint(step_s * step_s * 1e9).astype(np.int64),
    )
    at = np.arange(len(load))[:, None], bucket
    sums = np.zeros((len(figures), len(load), len(KNOTS) + 1), dtype=np.int64)
    for index, figure in enumerate(figures):
        np.add.at(sums[index], at, figure)
    bands = np.searchsorted(MOST, [*KNOTS, KNOTS[-1] + 1])
    found: Blocks = []
    for block in np.moveaxis(sums, 1, 0).tolist():
        cells: dict[int, Counts] = {}
        for index, band in enumerate(bands.tolist()):
            if block[0][index]:
                names = (f"st.{index}.{part}" for part in ("n", "l", "ll", "s", "sl", "q"))
                row = dict(zip(names, (figure[index] for figure in block), strict=True))
                cells[band] = {**cells.get(band, {}), **row}
        found.append((1.0, cells))
    return found


@dataclass(frozen=True, slots=True)
class StepCoverage:
    """Over seeds."""

    held: FloatArray
    """Whether the interval holds the truth, shape (seeds, loads); NaN where it is extrapolated."""
    reach: FloatArray
    """Half of the interval over the truth, shape (seeds, loads)."""
    misfit: FloatArray
    """Whether the fit is called a misfit at 5 %, shape (seeds,)."""
    beyond: FloatArray
    """Whether the interval at four times the highest load holds the truth, shape (seeds,)."""


def step_coverage(curve: Curve, traffic: Traffic, seeds: int) -> StepCoverage:
    """Compare the model with the truth."""
    truth = curve(np.array(LOADS, dtype=np.float64)).tolist()
    far = 4.0 * traffic.highest
    beyond_truth = float(curve(np.array([far]))[0])
    held = np.full((seeds, len(LOADS)), np.nan)
    reach = np.full((seeds, len(LOADS)), np.nan)
    misfit, beyond = np.zeros(seeds), np.zeros(seeds)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        load = traffic.loads(rng)
        step_s = curve(load.astype(np.float64)) * traffic.factors(rng)
        model = StepTime.fit(step_sums(load, step_s))
        assert model is not None
        for index, true in enumerate(truth):
            seen = model.predict(LOADS[index])
            assert seen.low is not None
            assert seen.high is not None
            if not seen.extrapolated:
                held[seed, index] = seen.low <= true <= seen.high
                reach[seed, index] = (seen.high - seen.low) / 2.0 / true
        misfit[seed] = model.misfit is not None and model.misfit < 0.05
        out = model.predict(far)
        assert out.low is not None
        assert out.high is not None
        beyond[seed] = out.low <= beyond_truth <= out.high
    return StepCoverage(held, reach, misfit, beyond)


STEP_WORLDS: Final[tuple[tuple[str, Curve, Traffic], ...]] = (
    ("line", line, Traffic()),
    ("line, blocks alike", line, Traffic(factor_sd=0.0)),
    ("line, factors last (correlation 0.6)", line, Traffic(correlation=0.6)),
    ("line, 20 requests a block", line, Traffic(requests=20)),
    ("flat", flat, Traffic()),
    ("bend at 30", bend, Traffic()),
    ("stairs at 32", stairs, Traffic()),
)


def step_table(seeds: int) -> str:
    """Coverage of `StepTimeModel.predict` at loads that were seen, and calls of a misfit."""
    rows = []
    for name, curve, traffic in STEP_WORLDS:
        _say(f"step time: {name}, {seeds} seeds")
        found = step_coverage(curve, traffic, seeds)
        by_load = [float(np.nanmean(found.held[:, i])) for i in range(len(LOADS))]
        by_seed = np.nanmean(found.held, axis=1)
        rows.append(
            [
                name,
                percent_text(by_seed),
                *(f"{share:.1%}".replace("%", " %") for share in by_load),
                f"{np.nanmean(found.reach):.1%}".replace("%", " %"),
                percent_text(found.misfit),
                percent_text(found.beyond),
            ]
        )
    header = ["world", "all loads", *(f"at {load}" for load in LOADS), "half width"]
    return table_text([*header, "called a misfit", "held at four times the load"], rows)


# --- Prefill --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prompts:
    """The truth of TTFT, in seconds.

    Attributes:
        fixed: At load band 0.
        bands: Added by each load band.
        token: For an uncached token.
        cached: For a cached one.
        waiting: For each request that waits.
        square: For each uncached token squared, which the model leaves out.
    """

    fixed: float = 0.03
    bands: tuple[float, ...] = (0.0, 0.002, 0.006, 0.016, 0.03)
    token: float = 1.2e-4
    cached: float = 4e-6
    waiting: float = 0.08
    square: float = 0.0


def prefill_sums(
    load: IntArray, uncached: IntArray, cached: IntArray, waiting: IntArray, ttft_s: FloatArray
) -> Blocks:
    """What requests add where the engine tells all, in bulk; shapes (blocks, requests)."""
    u, k = uncached * 1e-3, cached * 1e-3
    g = 0.25 + u + k / 8.0 + waiting / 4.0
    y = np.minimum(ttft_s / g, prefill.MOST_SLOW)
    parts = (1.0 / g, u / g, k / g, waiting / g, u * u / g / 16, y)
    figures = {
        letter: np.floor(part * prefill.FIXED_POINT + 0.5).astype(np.int64)
        for letter, part in zip("1ukwty", parts, strict=True)
    }
    at = np.arange(len(load))[:, None], np.searchsorted(MOST, load)
    names = [name for name in sorted(prefill.FIELDS) if name.startswith("pf.cw.")]
    sums = np.zeros((len(names), len(load), BANDS), dtype=np.int64)
    for index, name in enumerate(names):
        pair = name.rpartition(".")[2]
        if pair == "n":
            np.add.at(sums[index], at, np.ones_like(load))
        else:
            np.add.at(sums[index], at, figures[pair[0]] * figures[pair[1]])
    return [
        (
            1.0,
            {
                band: dict(zip(names, cell, strict=True))
                for band, cell in enumerate(np.array(block).T.tolist())
                if any(cell)
            },
        )
        for block in np.moveaxis(sums, 1, 0).tolist()
    ]


PREFILL_FIGURES: Final = ("token", "cached token", "waiting", "fixed", "prediction")


@dataclass(frozen=True, slots=True)
class PrefillCoverage:
    """Over seeds; columns are `PREFILL_FIGURES`."""

    held: FloatArray
    reach: FloatArray
    misfit: FloatArray


def prefill_coverage(truth: Prompts, traffic: Traffic, seeds: int) -> PrefillCoverage:
    """Compare coefficients, and the prediction for a prompt, with the truth."""
    held, reach = np.zeros((2, seeds, len(PREFILL_FIGURES)))
    misfit = np.zeros(seeds)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        load = traffic.loads(rng)
        prompt = np.rint(np.exp(rng.normal(6.5, 1.0, load.shape))).astype(np.int64) + 4
        share = np.where(rng.random(load.shape) < 0.5, 0.0, rng.random(load.shape))
        cached = (prompt * share).astype(np.int64) // 16 * 16
        waiting = rng.poisson(np.maximum(load - 16, 0) / 6.0)
        uncached = prompt - cached
        mean = (
            truth.fixed
            + np.array(truth.bands)[np.searchsorted(MOST, load)]
            + truth.token * uncached
            + truth.cached * cached
            + truth.waiting * waiting
            + truth.square * uncached**2
        )
        ttft_s = mean * traffic.factors(rng)
        model = PrefillModel.of(prefill_sums(load, uncached, cached, waiting, ttft_s))
        assert model is not None
        prompt_s = truth.fixed + truth.bands[3] + truth.token * 1500 + truth.cached * 500
        figures = (
            (model.per_token(), truth.token),
            (model.per_cached_token(), truth.cached),
            (model.per_waiting(), truth.waiting),
            (model.fixed(8), truth.fixed + truth.bands[2]),
            (model.predict(2000, 500, 1, 20), prompt_s + truth.waiting),
        )
        for index, (found, true) in enumerate(figures):
            assert found is not None
            assert found.low is not None
            assert found.high is not None
            held[seed, index] = found.low <= true <= found.high
            reach[seed, index] = (found.high - found.low) / 2.0 / true
        misfit[seed] = model.misfit is not None and model.misfit < 0.05
    return PrefillCoverage(held, reach, misfit)


PREFILL_TRAFFIC: Final = Traffic(highest=32.0, factor_sd=0.08, noise=0.4)

PREFILL_WORLDS: Final[tuple[tuple[str, Prompts, Traffic], ...]] = (
    ("as modelled", Prompts(), PREFILL_TRAFFIC),
    ("heavy tail (spread 1.0)", Prompts(), replace(PREFILL_TRAFFIC, noise=1.0)),
    ("40 requests a block", Prompts(), replace(PREFILL_TRAFFIC, requests=40)),
    ("a square term, +20 % at 2,000 tokens", Prompts(square=1.2e-8), PREFILL_TRAFFIC),
)


def prefill_table(seeds: int) -> str:
    """Coverage of the coefficients and of a prediction."""
    rows = []
    for name, truth, traffic in PREFILL_WORLDS:
        _say(f"prefill: {name}, {seeds} seeds")
        found = prefill_coverage(truth, traffic, seeds)
        rows.append(
            [
                name,
                *(
                    f"{percent_text(found.held[:, i])} (±{found.reach[:, i].mean():.0%})"
                    for i in range(len(PREFILL_FIGURES))
                ),
                percent_text(found.misfit),
            ]
        )
    return table_text(["world", *PREFILL_FIGURES, "called a misfit"], rows)


# --- Drift ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure of a cell over time.

    Attributes:
        requests: In a block, on average.
        sd: Of one request.
        wander: Standard deviation of the mix from block to block.
        correlation: Of the mix from block to block.
        jump: Added to the figure from `at` on.
        at: Block of the jump.
    """

    requests: float = 60.0
    sd: float = 0.07
    wander: float = 0.0
    correlation: float = 0.0
    jump: float = 0.0
    at: int = 1 << 30

    def blocks(self, rng: np.random.Generator, count: int) -> list[Block]:
        """The blocks as the product would have them, around 1 / 2.8 steps for a token."""
        n = rng.poisson(self.requests, count)
        mix = self.wander * rng.standard_normal()
        step = np.sqrt(1.0 - self.correlation**2) * self.wander * rng.standard_normal(count)
        found = []
        for index, size in enumerate(n.tolist()):
            mix = self.correlation * mix + float(step[index])
            if not size:
                found.append(NOTHING)
                continue
            mean = 1.0 / 2.8 + mix + (self.jump if index >= self.at else 0.0)
            figures = mean + self.sd * rng.standard_normal(size)
            middle = float(figures.mean())
            within = float(((figures - middle) ** 2).sum())
            found.append(Block(float(size), middle, within, size - 1.0))
        return found


def alarms(cell: Cell, seeds: int, looks: int) -> FloatArray:
    """False alarms by seed, in so many looks at a window of `WINDOW`; each shortens memory."""
    found = np.zeros(seeds)
    for seed in range(seeds):
        blocks = cell.blocks(np.random.default_rng(seed), WINDOW + looks)
        since = 0
        for end in range(WINDOW, WINDOW + looks):
            first = max(end - WINDOW + 1, since)
            change = drift.find_change(blocks[first : end + 1])
            if change is not None:
                found[seed] += 1
                since = first + change.at_block
    return found


@dataclass(frozen=True, slots=True)
class Delay:
    """Over seeds."""

    blocks: FloatArray
    """Blocks from the jump to the alarm, that of the jump counted; infinite where there is none."""
    off: FloatArray
    """Blocks by which the change is placed wrongly, of those found."""


def delays(cell: Cell, seeds: int, most: int = WINDOW) -> Delay:
    """Wait for the alarm after a jump that comes when the window is full."""
    cell = replace(cell, at=WINDOW)
    took, off = np.full(seeds, np.inf), np.full(seeds, np.nan)
    for seed in range(seeds):
        blocks = cell.blocks(np.random.default_rng(seed), WINDOW + most)
        for end in range(WINDOW, WINDOW + most):
            first = end - WINDOW + 1
            change = drift.find_change(blocks[first : end + 1])
            if change is not None:
                took[seed] = end - WINDOW + 1
                off[seed] = abs(first + change.at_block - WINDOW)
                break
    return Delay(took, off)


def causes(cell: Cell, shared: float, seeds: int, classes: int = 5) -> dict[Cause, float]:
    """What a jump of one class is called when this share of it is met by the arm's others."""
    called = dict.fromkeys(Cause, 0.0)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        own = replace(cell, at=WINDOW).blocks(rng, WINDOW + 4)
        other = replace(cell, at=WINDOW, jump=cell.jump * shared)
        shifts = [
            drift.shift_at(blocks, WINDOW)
            for blocks in (own, *(other.blocks(rng, WINDOW + 4) for _ in range(classes - 1)))
        ]
        known = [shift for shift in shifts if isinstance(shift, Shift)]
        called[drift.cause_of(known[0], known[1:])] += 1.0 / seeds
    return called


TAU: Final = 1.0 / 2.0 - 1.0 / 2.8
"""By what steps per token rise when tau falls from 2.8 to 2.0."""

TIME: Final = float(np.log(1.3))
"""By what log cost rises when everything takes 30 % longer."""

LOOKS: Final = 240
"""A third of a day for each seed."""


def alarm_table(seeds: int) -> str:
    """False alarms of cells that only wander."""
    worlds = [
        ("sampling alone", Cell()),
        ("mix wanders, correlation 0.5", Cell(wander=0.02, correlation=0.5)),
        ("mix wanders, correlation 0.8", Cell(wander=0.02, correlation=0.8)),
        ("mix wanders, correlation 0.9", Cell(wander=0.02, correlation=0.9)),
        ("6 requests a block, correlation 0.5", Cell(6.0, wander=0.02, correlation=0.5)),
    ]
    rows = []
    days = seeds * LOOKS / drift.LOOKS_PER_DAY
    for name, cell in worlds:
        _say(f"false alarms: {name}, {seeds} seeds")
        found = alarms(cell, seeds, LOOKS)
        error = float(found.std(ddof=1)) * np.sqrt(seeds) / days
        rows.append(
            [name, f"{days:.0f}", f"{found.sum():.0f}", f"{found.sum() / days:.3f} ± {error:.3f}"]
        )
    return table_text(["cell", "days", "alarms", "a day"], rows)


def delay_table(seeds: int) -> str:
    """How soon jumps are found, and where they are placed."""
    worlds = [
        ("τ 2.8 → 2.0", Cell(jump=TAU)),
        ("τ 2.8 → 2.0, mix wanders", Cell(jump=TAU, wander=0.02, correlation=0.5)),
        (
            "τ 2.8 → 2.0, mix wanders, correlation 0.8",
            Cell(jump=TAU, wander=0.02, correlation=0.8),
        ),
        ("τ 2.8 → 2.0, 6 requests a block", Cell(6.0, jump=TAU)),
        (
            "τ 2.8 → 2.5, mix wanders",
            Cell(jump=1.0 / 2.5 - 1.0 / 2.8, wander=0.02, correlation=0.5),
        ),
        ("time +30 %, 60 and 60 of the baseline", Cell(30.0, 0.3, jump=TIME)),
        ("the same, mix wanders", Cell(30.0, 0.3, 0.02, 0.5, TIME)),
        ("time +30 %, 20 and 20", Cell(10.0, 0.3, jump=TIME)),
        ("time +10 %, 60 and 60", Cell(30.0, 0.3, jump=float(np.log(1.1)))),
    ]
    rows = []
    for name, cell in worlds:
        _say(f"delays: {name}, {seeds} seeds")
        found = delays(cell, seeds)
        came = np.isfinite(found.blocks)
        rows.append(
            [
                name,
                count_text(found.blocks, 0.5),
                count_text(found.blocks, 0.9),
                percent_text(came),
                f"{np.nanmean(found.off):.1f}" if came.any() else "–",
            ]
        )
    header = ["jump", "blocks to the alarm, median", "90 %", f"found within {WINDOW}"]
    return table_text([*header, "placed wrongly by, blocks"], rows)


def cause_table(seeds: int) -> str:
    """Whether a jump is laid to the engine or to the content."""
    cell = Cell(jump=TAU, wander=0.02, correlation=0.5)
    few = replace(cell, requests=12.0, jump=TAU / 2.0)
    rows = []
    for name, world, shared in (
        ("all classes jump", cell, 1.0),
        ("one class jumps", cell, 0.0),
        ("the others jump by half", cell, 0.5),
        ("all by half of that, 12 requests a block", few, 1.0),
        ("one by half of that, 12 requests a block", few, 0.0),
    ):
        _say(f"causes: {name}, {seeds} seeds")
        found = causes(world, shared, seeds)
        rows.append([name, *(f"{found[cause]:.1%}".replace("%", " %") for cause in Cause)])
    return table_text(["what happens, of five classes", *Cause], rows)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def tables(seeds: int) -> str:
    """Measure everything over so many seeds; Markdown."""
    few = max(seeds // 5, 2)
    parts = [
        "### Step time by load\n",
        f"{BLOCKS} blocks, load going up and down between 1 and about 64, blocks slower or faster",
        "by 5 %, requests by 20 %. Share of 95 % intervals at loads that were seen which hold the",
        "truth.\n",
        step_table(seeds),
        "\n### TTFT by prompt, cache and queue\n",
        "Load up to about 32, blocks slower or faster by 8 %, requests by 40 %. Share of 95 %",
        "intervals which hold the truth, and half their width over the truth.\n",
        prefill_table(seeds),
        "\n### Drift: false alarms\n",
        f"{drift.FALSE_PER_DAY} a day for each figure of a cell is the promise, where a mix is",
        "correlated from block to block by 0.8 at most.\n",
        alarm_table(seeds),
        "\n### Drift: delay\n",
        f"60 requests a block unless said, {few} seeds.\n",
        delay_table(few),
        "\n### Drift: engine or content\n",
        f"Four blocks after τ 2.8 → 2.0, {few} seeds.\n",
        cause_table(few),
    ]
    return "\n".join([*parts, f"\n{seeds} seeds unless said; ± is one standard error.", ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.verify_models")
    parser.add_argument("--seeds", type=int, default=500)
    print(tables(parser.parse_args(arguments).seeds))


if __name__ == "__main__":
    main()
