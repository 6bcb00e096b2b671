"""Measures what quarantines promise: how rarely a healthy pool is hit, how soon a damaged one is.

Usage: python -m bench.verify_sentinel [--seeds 1000]

Answers are drawn as sums, stretch by stretch, and judged after each by the product's own code:
`router.sentinel.evidence`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.types import ArmId, ClassId
from router.estimates.layout import Cells
from router.sentinel.evidence import ALPHA, Watched, folded, judged
from router.sentinel.model import Book, CellName
from router.types import POOLED, SegmentId

PLAIN: Final = ArmId("plain")
FAST: Final = ArmId("fast")
BLOCKS: Final = 300
"""Stretches of time, each with a look at its end."""

ANSWERS: Final = 100
"""In each of them, of both pools together."""

CLASSES: Final = 3
"""Classes of a healthy route, each of which may be quarantined by mistake."""

USUAL: Final = Watched(PLAIN, cells=2 * 13, quarantine_s=None)
"""What a damaged cell is one of: two pools that draft, and the built-in classes."""

BAD_APPLICATION: Final = 0.2
DIFFERING: Final = 0.03
REPEATED: Final = 20

Draw = Callable[[np.random.Generator, int, ClassId], Cells]
"""Sums of a class in one stretch of time."""


def _structured(rng: np.random.Generator, n: int, rate: float) -> dict[str, int]:
    return {"n": n, "drawn": n, "drawn.bad": int(rng.binomial(n, rate))}


def _pair(
    rng: np.random.Generator, class_id: ClassId, share: float, rates: tuple[float, float]
) -> Cells:
    """Answers of both pools; `rates` are those of the pool in question and of the baseline."""
    mine = int(rng.binomial(ANSWERS, share))
    return {
        (FAST, class_id, POOLED): _structured(rng, mine, rates[0]),
        (PLAIN, class_id, POOLED): _structured(rng, ANSWERS - mine, rates[1]),
    }


def even(rate: float, share: float) -> Draw:
    """Both invalid at the same rate."""
    return lambda rng, _, class_id: _pair(rng, class_id, share, (rate, rate))


def _swinging(rng: np.random.Generator, block: int, class_id: ClassId) -> Cells:
    """A rate from 0 to 50 %, and shares that follow it."""
    wave = 0.5 + 0.5 * np.sin(block / 15.0)
    return _pair(rng, class_id, 0.1 + 0.8 * wave, (0.5 * wave, 0.5 * wave))


def applications(*, told_apart: bool) -> Draw:
    """One application is invalid at 20 %, one never; the policy sends them to different pools."""

    def draw(rng: np.random.Generator, _: int, class_id: ClassId) -> Cells:
        cells: Cells = {}
        for arm_id, share in ((FAST, 0.8), (PLAIN, 0.2)):
            bad = int(rng.binomial(ANSWERS // 2, share))
            part = _structured(rng, bad, BAD_APPLICATION)
            whole = {**part, "n": ANSWERS // 2, "drawn": ANSWERS // 2}
            cells[arm_id, class_id, POOLED] = whole
            if told_apart:
                cells[arm_id, class_id, SegmentId("bad")] = part
        return cells

    return draw


def _repeats(rng: np.random.Generator, class_id: ClassId, odd: float, worse: float) -> Cells:
    """Comparisons: rates of the pool in question; the baseline's own changes are usual ones."""
    names = ("odd", "control", "worse", "better")
    rates = (odd, DIFFERING, worse, 0.01)
    counts = {
        f"repeat.{name}": int(rng.binomial(REPEATED, rate))
        for name, rate in zip(names, rates, strict=True)
    }
    return {(FAST, class_id, POOLED): {"n": REPEATED, "repeat.n": REPEATED, **counts}}


HEALTHY: Final[dict[str, Draw]] = {
    "no answer is invalid": even(0.0, 0.5),
    "2 % invalid on both, half each": even(0.02, 0.5),
    "2 % invalid on both, a tenth on the baseline": even(0.02, 0.9),
    "30 % invalid on both": even(0.3, 0.5),
    "0 to 50 % by the hour, shares that follow": _swinging,
    "two applications on different pools, told apart": applications(told_apart=True),
    "repeats: 3 % differ either way, 1 % invalid either way": lambda rng, _, class_id: _repeats(
        rng, class_id, DIFFERING, 0.01
    ),
}

UNPROMISED: Final[dict[str, Draw]] = {
    "two applications that something sends to different pools, told apart by nothing": applications(
        told_apart=False
    )
}


def quarantined(draw: Draw, seed: int, classes: int, watched: Watched) -> int | None:
    """The stretch of time after which a cell is quarantined; None if none ever is."""
    rng = np.random.default_rng(seed)
    names = [ClassId(f"class {number}") for number in range(classes)]
    book = Book()
    for block in range(BLOCKS):
        cells: Cells = {}
        for class_id in names:
            cells |= draw(rng, block, class_id)
        book = folded(book, {block: cells}, (block,), PLAIN, 0.0)
        book, changes = judged(book, watched, 0.0, block)
        if changes:
            return block
    return None


def _false_alarms(rows: dict[str, Draw], seeds: int) -> Iterator[str]:
    watched = Watched(PLAIN, CLASSES, None)
    for name, draw in rows.items():
        found = sum(quarantined(draw, seed, CLASSES, watched) is not None for seed in range(seeds))
        yield f"| {name} | {seeds} | {found} | {found / seeds:.2%} |"


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged cell: how its sums are drawn, and how many of its answers a stretch of time has."""

    name: str
    draw: Draw
    mine: float


def damages() -> Iterator[Damage]:
    """What is looked for."""
    for every in (100, 20):
        rate = 1.0 / every
        for share in (0.5, 0.9):
            yield Damage(
                f"structure, 1 in {every}, {share:.0%} of the traffic",
                lambda rng, _, c, r=rate, s=share: _pair(rng, c, s, (r, 0.0)),  # type: ignore[misc]
                ANSWERS * share,
            )
        yield Damage(
            f"structure, 1 in {every} beside 2 % as a matter of course, 50 % of the traffic",
            lambda rng, _, c, r=rate: _pair(rng, c, 0.5, (0.02 + r, 0.02)),  # type: ignore[misc]
            ANSWERS * 0.5,
        )
        yield Damage(
            f"repeats, 1 in {every} invalid",
            lambda rng, _, c, r=rate: _worse(rng, c, r),  # type: ignore[misc]
            REPEATED,
        )
        yield Damage(
            f"repeats, 1 in {every} differs",
            lambda rng, _, c, r=rate: _odd(rng, c, r),  # type: ignore[misc]
            REPEATED,
        )


def _worse(rng: np.random.Generator, class_id: ClassId, rate: float) -> Cells:
    return _alone(rng, (FAST, class_id), "repeat.worse", rate)


def _odd(rng: np.random.Generator, class_id: ClassId, rate: float) -> Cells:
    return _alone(rng, (FAST, class_id), "repeat.odd", rate)


def _alone(rng: np.random.Generator, cell: CellName, name: str, rate: float) -> Cells:
    hits = int(rng.binomial(REPEATED, rate))
    return {(*cell, POOLED): {"n": REPEATED, "repeat.n": REPEATED, name: hits}}


def _delays(seeds: int) -> Iterator[str]:
    for damage in damages():
        ends = [quarantined(damage.draw, seed, 1, USUAL) for seed in range(seeds)]
        found = sorted((end + 1) * damage.mine for end in ends if end is not None)
        never = f"more than {BLOCKS * damage.mine:,.0f}"
        half, most = (
            f"{found[index]:,.0f}" if index < len(found) else never
            for index in (seeds // 2, seeds * 9 // 10)
        )
        yield f"| {damage.name} | {len(found) / seeds:.0%} | {half} | {most} |"


_HOW = (
    f"{CLASSES} classes, {BLOCKS} looks, each at {ANSWERS} answers of a class, the baseline's "
    f"among them, or at {REPEATED} repeats. Promised: {ALPHA:.0%} at most."
)
_UNTIL = f"Answers (or repeats) of the damaged cell until then, as one of {USUAL.cells} cells."


def tables(seeds: int) -> str:
    """Both tables, in Markdown."""
    return "\n".join(
        (
            "### Healthy pools that lose a class",
            "",
            _HOW,
            "",
            "| healthy | routes | quarantined | share |",
            "|---|---:|---:|---:|",
            *_false_alarms(HEALTHY, seeds),
            "",
            "Not promised, since nothing tells these requests apart:",
            "",
            "| healthy | routes | quarantined | share |",
            "|---|---:|---:|---:|",
            *_false_alarms(UNPROMISED, max(seeds // 10, 1)),
            "",
            "### How many answers it takes",
            "",
            _UNTIL,
            "",
            "| damaged | found | by half of the runs | by nine in ten |",
            "|---|---:|---:|---:|",
            *_delays(max(seeds // 5, 1)),
        )
    )


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    sys.stdout.write(tables(parser.parse_args().seeds) + "\n")


if __name__ == "__main__":
    main()
