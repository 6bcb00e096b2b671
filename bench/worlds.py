"""Shows the worlds that policies are judged in.

Usage: python -m bench.worlds [NAME ...] [--seeds 3]

Without names: one line for each world, what could be gained there, and its hash. With names: the
pools of these worlds, tokens per step by class, speed-up by batch, and the references.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

from policies.sim.acceptance import acceptance_of
from policies.sim.compare import Yardstick, yardstick
from policies.sim.curves import speedup
from policies.sim.references import REFERENCES, FixedPool, LeastLoaded
from policies.sim.spec import WorldSpec
from policies.sim.world import Run
from policies.types import FloatArray
from router.simulate.load import load_world, world_names

BATCHES = (1, 4, 16, 64)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="worlds, or files of worlds; all if none")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each")
    given = parser.parse_args(arguments)
    if not given.names:
        print(overview([load_world(name) for name in world_names()], given.seeds))
    for name in given.names:
        print(portrait(load_world(name), given.seeds))


def overview(worlds: Sequence[WorldSpec], seeds: int) -> str:
    """One row for each world."""
    header = (
        "world", "pools", "replicas", "req/s", "plain e2e", "load", "oracle gains",
        "one method for all", "by", "SHA-256",
    )  # fmt: skip
    rows = []
    for world in worlds:
        sticks = _yardsticks(world, seeds)
        best, name = _best_all_in(sticks)
        rows.append(
            (
                world.name,
                ", ".join(pool.name for pool in world.pools),
                str(world.replicas),
                f"{world.traffic.rate:g}",
                f"{_mean([stick.plain.e2e_s.mean() for stick in sticks]):.2f} s",
                f"{_mean([stick.plain.load.mean() for stick in sticks]):.1f}",
                _percent([stick.gain(stick.oracle) for stick in sticks]),
                _percent(best),
                name,
                world.digest[:12],
            )
        )
    return _table(header, rows)


def _yardsticks(world: WorldSpec, seeds: int) -> list[Yardstick]:
    sticks = []
    for seed in range(seeds):
        print(f"{world.name}, seed {seed}", file=sys.stderr, flush=True)
        sticks.append(yardstick(world, seed))
    return sticks


def _best_all_in(sticks: Sequence[Yardstick]) -> tuple[list[float], str]:
    """The gains of the best method on all servers, and which it is."""
    gains = {
        pool.name: [stick.gain(stick.all_in(pool.name)) for stick in sticks]
        for pool in sticks[0].world.pools
    }
    best = max(gains, key=lambda name: float(np.mean(gains[name])))
    return gains[best], best


def portrait(world: WorldSpec, seeds: int) -> str:
    """All about one world."""
    parts = [f"## {world.name}", world.about, f"SHA-256 {world.digest}", _pools(world)]
    parts += [f"Tokens per step, of a stream of the class:\n\n{_taus(world)}"]
    parts += [
        f"Speed-up over plain decoding at batch {n}:\n\n{_speedups(world, n)}" for n in BATCHES
    ]
    sticks = _yardsticks(world, seeds)
    parts.append(
        f"What references gain over all servers decoding plainly:\n\n{_references(sticks)}"
    )
    return "\n\n".join(parts) + "\n"


def _pace(stick: Yardstick) -> str:
    began = time.process_time()
    stick.run(LeastLoaded())
    took = time.process_time() - began
    count = len(stick.known)
    return f"{count} requests take {took:.1f} s of CPU: {60 * count / took:,.0f} a minute."


def _pools(world: WorldSpec) -> str:
    header = ("pool", "method", "k", "engine", "replicas", "step over plain", "slots")
    plain = float(world.plain.spec.cost.seconds(1.0, 0.0, 500.0))
    return _table(
        header,
        [
            (
                pool.name,
                pool.method,
                str(pool.k),
                pool.engine,
                str(pool.replicas),
                f"{float(pool.spec.cost.seconds(1 + pool.k, pool.k, 500.0)) / plain:.2f}",
                str(pool.spec.slots),
            )
            for pool in world.pools
        ],
    )


def _taus(world: WorldSpec) -> str:
    classes = list(world.traffic.classes)
    rows = []
    for pool in world.pools:
        cells = [pool.spec.cell(class_id) for class_id in classes]
        taus = [acceptance_of(cell).mean_tau() if cell else 1.0 for cell in cells]
        rows.append((pool.name, *(f"{tau:.2f}" for tau in taus)))
    return _table(("pool", *classes), rows)


def _speedups(world: WorldSpec, batch: int) -> str:
    classes, plain = world.traffic.classes, world.plain.spec
    rows = []
    for pool in world.pools:
        values = [
            speedup(plain, pool.spec, class_id, batch, item.prompt[0] + item.output[0] / 2)
            for class_id, item in classes.items()
        ]
        rows.append((pool.name, *(f"{value:.2f}" for value in values)))
    return _table(("pool", *classes), rows)


def _references(sticks: Sequence[Yardstick]) -> str:
    runs: dict[str, list[Run]] = {"all plain": [stick.plain for stick in sticks]}
    for number, pool in enumerate(sticks[0].world.pools):
        if pool.k:
            runs[f"all {pool.name}"] = [stick.all_in(pool.name) for stick in sticks]
        runs[f"only {pool.name}"] = [stick.run(FixedPool(number)) for stick in sticks]
    for name, build in REFERENCES.items():
        runs[name] = [stick.run(build(stick.seed)) for stick in sticks]
    header = ("reference", "gain", "share of the oracle's", "p99 TTFT", "p99 TPOT", "load")
    rows = []
    for name, got in runs.items():
        pairs = list(zip(sticks, got, strict=True))
        shares = [stick.share(run) for stick, run in pairs]
        known = [share for share in shares if share is not None]
        rows.append(
            (
                name,
                _percent([stick.gain(run) for stick, run in pairs]),
                f"{np.mean(known):.2f}" if known else "too little to share",
                f"{_mean([_tail(run.ttft_s, stick.plain.ttft_s) for stick, run in pairs]):.2f}",
                f"{_mean([_tail(run.tpot_s, stick.plain.tpot_s) for stick, run in pairs]):.2f}",
                f"{_mean([run.load.mean() for run in got]):.1f}",
            )
        )
    return _table(header, rows) + "\n\nTails are over those of plain decoding."


def _tail(values: FloatArray, plain: FloatArray) -> float:
    return float(np.nanquantile(values, 0.99) / np.nanquantile(plain, 0.99))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _percent(by_seed: Sequence[float]) -> str:
    """Mean of a share, with its standard error where there are seeds to tell it."""
    told = f"{np.mean(by_seed):.1%}"
    if len(by_seed) > 1:
        told += f" ± {np.std(by_seed, ddof=1) / len(by_seed) ** 0.5:.1%}"
    return told.replace("%", " %")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
