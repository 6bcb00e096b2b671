"""Shows what tails of TTFT cost: gain against p99 TTFT, while seconds before it get dearer.

Usage: python -m bench.tails [--worlds llama8b-heavy,...] [--seeds 1] [--first 0] [--limits]

Of the default policy, to which a second is the dearer the longer the wait (`patience`), and of the
oracle that knows all parameters and what waits in each engine, to which all cost alike. Ratios are
to the same arrivals with all servers decoding plainly. With --limits: how low both tails get when
an oracle is told where those of plain decoding begin, whatever that costs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import product
from operator import attrgetter
from typing import Final

import numpy as np

from policies.sim.compare import Yardstick, yardstick
from policies.sim.references import OracleTruth, OracleWithin
from policies.sim.routing import Router
from policies.types import FloatArray
from router.simulate.contest import learner
from router.simulate.load import load_world
from router.simulate.tables import mean, percent, ratio, table

WORLDS: Final = ("llama8b-heavy", "llama70b-heavy", "spark-heavy", "rtx5090", "spark")
PATIENCE: Final = ((0, 0), (8, 4), (16, 10), (32, 30))
"""The policy's and the oracle's."""
TPOT_PRICES: Final = (0, 20, 50, 200)
TTFT_PRICES: Final = (0, 20, 50)
"""Seconds for a time e times as long as where the tail begins."""
_ALTRUISM: Final = {"oracle": 0.5, "oracle, altruist": 1.5}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--limits", action="store_true", help="an oracle that is told the tails")
    given = parser.parse_args(arguments)
    seeds = range(given.first, given.first + given.seeds)
    print((limits if given.limits else tables)(given.worlds.split(","), seeds))


def tables(worlds: Sequence[str], seeds: Sequence[int]) -> str:
    """Run and lay out."""
    rows = []
    for name in worlds:
        sticks = [yardstick(load_world(name), seed) for seed in seeds]
        for patience, price in PATIENCE:
            oracles = [_cells(sticks, _oracle(a, price)) for a in _ALTRUISM.values()]
            told = [cell for cells in oracles for cell in cells]
            rows.append(
                (name, str(patience), *_cells(sticks, _policy(patience)), str(price), *told)
            )
    columns = [f"{who}: {what}" for who in _ALTRUISM for what in ("gain", "TTFT")]
    return table(("world", "patience", "gain", "TTFT", "oracle's price", *columns), rows)


def limits(worlds: Sequence[str], seeds: Sequence[int]) -> str:
    """Tails of an oracle that is told where they begin, by what it pays for each."""
    rows = []
    for name in worlds:
        sticks = [yardstick(load_world(name), seed) for seed in seeds]
        for tpot, ttft in product(TPOT_PRICES, TTFT_PRICES):
            runs = [stick.run(_within(stick, tpot, ttft)) for stick in sticks]
            pairs = list(zip(sticks, runs, strict=True))
            gain = mean(stick.gain(run) for stick, run in pairs)
            tails = [
                ratio(mean(_p99(of(run)) / _p99(of(stick.plain)) for stick, run in pairs))
                for of in (attrgetter("tpot_s"), attrgetter("ttft_s"))
            ]
            rows.append((name, str(tpot), str(ttft), percent(gain), *tails))
    return table(("world", "price of TPOT", "of TTFT", "gain", "p99 TPOT", "p99 TTFT"), rows)


def _within(stick: Yardstick, tpot_price: float, ttft_price: float) -> Router:
    return OracleWithin(
        _p99(stick.plain.ttft_s),
        _p99(stick.plain.tpot_s),
        ttft_price=ttft_price,
        tpot_price=tpot_price,
    )


def _policy(patience: float) -> Callable[[Yardstick], Router]:
    return lambda stick: learner(stick.world, f"net_gain:patience={patience}", stick.seed)


def _oracle(altruism: float, patience: float) -> Callable[[Yardstick], Router]:
    return lambda _: OracleTruth(altruism=altruism, patience=patience)


def _cells(sticks: Sequence[Yardstick], router: Callable[[Yardstick], Router]) -> tuple[str, str]:
    runs = [stick.run(router(stick)) for stick in sticks]
    pairs = list(zip(sticks, runs, strict=True))
    gain = mean(stick.gain(run) for stick, run in pairs)
    return percent(gain), ratio(mean(_p99(r.ttft_s) / _p99(s.plain.ttft_s) for s, r in pairs))


def _p99(values: FloatArray) -> float:
    return float(np.nanquantile(values, 0.99))


if __name__ == "__main__":
    main()
