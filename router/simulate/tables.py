"""What came of a contest, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from policies.sim.compare import LEAST_GAIN
from router.simulate.contest import Scores

NOTHING = "–"

_HEAD = (
    "Times are over those of the same arrivals with all servers decoding plainly; share is of what "
    "the oracle saves, where that is 5 % and more."
)

Grouped = dict[str, dict[str, list[Scores]]]


def grouped(results: Iterable[Scores]) -> Grouped:
    """Scores by world, then by entrant."""
    found: Grouped = {}
    for item in results:
        found.setdefault(item.world, {}).setdefault(item.entrant, []).append(item)
    return found


def share_of(items: Sequence[Scores], *, warm: bool = False) -> float | None:
    """Share of what could be gained: of means over seeds; None where that is too little to ask."""
    most = mean(item.most_warm if warm else item.most for item in items)
    got = mean(item.gain_warm if warm else item.gain for item in items)
    return None if most < LEAST_GAIN else got / most


def mean(values: Iterable[float]) -> float:
    """Mean of some numbers."""
    return float(np.mean(list(values)))


def percent(value: float | None) -> str:
    """A share for people."""
    return NOTHING if value is None else f"{100.0 * value:.1f} %"


def ratio(value: float | None) -> str:
    """A ratio or share for people."""
    return NOTHING if value is None else f"{value:.2f}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def overview(results: Sequence[Scores]) -> str:
    """Every entrant in every world."""
    header = (
        "world", "entrant", "gain", "oracle", "share", f"share after {500}",
        "p99 TPOT", "p99 TTFT", "p99 e2e", "held out", "its cost",
    )  # fmt: skip
    rows = []
    for world, by_entrant in grouped(results).items():
        for entrant, items in by_entrant.items():
            tails = np.mean([item.tails for item in items], axis=0)
            rows.append(
                (
                    world,
                    entrant,
                    percent(mean(item.gain for item in items)),
                    percent(mean(item.most for item in items)),
                    ratio(share_of(items)),
                    ratio(share_of(items, warm=True)),
                    *(f"{tail:.2f}" for tail in tails),
                    f"{mean(item.held_out for item in items):.0f}",
                    percent(mean(item.held_cost for item in items)),
                )
            )
    return table(header, rows)


def by_world(results: Sequence[Scores], figure: Callable[[Sequence[Scores]], str]) -> str:
    """One figure, worlds down and entrants across."""
    groups = grouped(results)
    entrants = list(dict.fromkeys(item.entrant for item in results))
    rows = [
        (world, *(figure(row[name]) if name in row else NOTHING for name in entrants))
        for world, row in groups.items()
    ]
    return table(("world", *entrants), rows)


def worlds(results: Sequence[Scores]) -> str:
    """Which worlds these were: hashes and numbers of seeds."""
    rows = []
    for world, by_entrant in grouped(results).items():
        items = next(iter(by_entrant.values()))
        rows.append((world, items[0].digest[:12], str(len({item.seed for item in items}))))
    return table(("world", "SHA-256", "seeds"), rows)


def report(results: Sequence[Scores]) -> str:
    """All tables of a contest."""
    return "\n\n".join(
        (
            _HEAD,
            overview(results),
            worlds(results),
        )
    )
