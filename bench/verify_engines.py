"""The main job on real engines, longer than a test may take.

First every class is measured on every pool directly, one request at a time; then traffic of several
classes goes through the proxy, and what it learned is set beside what was measured.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.demo_fleet import Sample, choose, measure, table
from router.app import Application
from router.config.models import Config
from router.demo.fleet import Fleet
from router.demo.run import route_config
from router.demo.traffic import Traffic

CLASSES = ("code_edit", "structured", "creative")
_FLOOR = 0.1
_WORKERS = 2


def _direct(fleet: Fleet, per_class: int, rounds: int) -> str:
    results: defaultdict[str, list[Mapping[str, Sample]]] = defaultdict(list)
    for label, samples in measure(fleet.pools, choose(CLASSES, per_class), rounds):
        results[label].append(samples)
    return table(results, "plain")


async def _routed(fleet: Fleet, folder: Path, seconds: float) -> dict[str, Any]:
    policy = {"name": "thompson", "parameters": {"floor": _FLOOR}}
    config = Config.model_validate(
        {
            "listen": {"port": 0},
            "admin": {"port": 0},
            "store": {"url": "embedded:", "directory": str(folder / "store")},
            "routes": [route_config(fleet.model, fleet.pools, policy)],
        }
    )
    async with Application(config, seed=1).running() as application:
        traffic = Traffic(f"{application.data_url}/v1", fleet.model, choose(CLASSES, 100), seed=1)
        try:
            async with asyncio.timeout(seconds):
                await traffic.run(_WORKERS)
        except TimeoutError:
            print(f"{traffic.answered} answers, {traffic.failed} failed", file=sys.stderr)
        await application.flush()
        await application.refresh()
        return application.state()


def _learned(state: dict[str, Any]) -> str:
    lines = [
        "| class | pool | answers | share lately | τ | gain | 95 % interval | verdict |",
        "|---|---|---:|---:|---:|---:|---|---|",
    ]
    for entry in state["routes"][0]["classes"]:
        for cell in entry["cells"]:
            gain, length = cell["gain"], cell["tokens_per_step"]
            bounds = f"{gain['low']:+.0%} … {gain['high']:+.0%}" if gain else "–"
            lines.append(
                f"| {entry['class']} | {cell['pool']} | {cell['ok']} | "
                f"{'–' if cell['share'] is None else format(cell['share'], '.0%')} | "
                f"{'–' if length is None else format(length, '.2f')} | "
                f"{format(gain['value'], '+.0%') if gain else '–'} | {bounds} | "
                f"{cell['verdict'] or 'baseline'} |"
            )
    return "\n".join(lines)


def tables(*, per_class: int, rounds: int, seconds: float) -> str:
    """Both measurements as Markdown."""
    with tempfile.TemporaryDirectory() as name, Fleet(progress=_say) as fleet:
        direct = _direct(fleet, per_class, rounds)
        state = asyncio.run(_routed(fleet, Path(name), seconds))
    return (
        "Directly, one request at a time, pools in rotating order; speed-up of TPOT against plain "
        f"with its 90 % bootstrap interval:\n\n```\n{direct}\n```\n\n"
        f"Through the proxy, {seconds:.0f} s of traffic, {_WORKERS} at a time, `thompson` with "
        f"floor {_FLOOR}:\n\n{_learned(state)}\n"
    )


def _say(message: str) -> None:
    print(message, file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-class", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=300.0)
    given = parser.parse_args(arguments)
    print(tables(per_class=given.per_class, rounds=given.rounds, seconds=given.seconds))


if __name__ == "__main__":
    main()
