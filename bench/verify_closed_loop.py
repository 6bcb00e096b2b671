"""Shows that the proxy gains in front of a fleet over HTTP what its policy gains in the world.

Usage: python -m bench.verify_closed_loop [--requests 2000] [--seed 0] [--cases WORLD@SPEED,...]

The same arrivals go through the world as a model, and through a running proxy to simulated
engines that speak HTTP; there once with all servers decoding plainly and once as the world has
them. What is not the same is each request's luck, and what the machine adds: `speed` is how many
simulated seconds pass in one, and each millisecond of proxy and client counts that many times.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import uvloop

from bench.proxy import started
from policies.sim.compare import Yardstick, yardstick
from policies.sim.learner import HALF_LIFE_S
from policies.sim.spec import WorldSpec
from policies.sim.traffic import Arrival
from policies.types import FloatArray
from router.simfleet.fleet import FleetOptions, SimFleet
from router.simfleet.traffic import ROUND, Driver
from router.simulate.contest import learner
from router.simulate.load import load_world
from router.simulate.tables import percent, table

POLICY: Final = "net_gain"
CASES: Final = (("llama8b-light", 0.25), ("llama8b-heavy", 0.1))
"""Worlds, and speeds that two cores keep up with: a light load, and a heavy one."""
WITHIN: Final = 0.05
KEPT_UP: Final = 0.15
"""Where plain decoding over HTTP takes so much longer than in the model, the machine did not keep
up, and the comparison says nothing."""


class _Pace:
    """Time as the simulation counts it."""

    def __init__(self, speed: float) -> None:
        self._speed = speed

    def now(self) -> float:
        return time.monotonic() * self._speed

    def wall(self) -> float:
        return time.time()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)


@dataclass(frozen=True, slots=True)
class Loop:
    """One world, as a model and over HTTP; times in simulated seconds.

    Attributes:
        world: Its name.
        speed: Simulated seconds in a second.
        oracle: What could be gained, by the model.
        model: What the policy gains in the model.
        plain_s: Mean time of plain decoding: in the model, and over HTTP.
        policy_s: Mean time over HTTP through the policy.
        answered: Requests answered over HTTP, of both runs.
        failed: Those that were not, by what became of them.
        late_s: The latest that one was sent.
    """

    world: str
    speed: float
    oracle: float
    model: float
    plain_s: tuple[float, float]
    policy_s: float
    answered: int
    failed: Counter[str]
    late_s: float

    @property
    def gain(self) -> float:
        """Share of plain decoding's time that was saved over HTTP."""
        return 1.0 - self.policy_s / self.plain_s[1]


@dataclass(frozen=True, slots=True)
class _Passed:
    e2e_s: FloatArray
    failed: Counter[str]
    late_s: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=ROUND, help=f"at most {ROUND}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", default=",".join(f"{world}@{speed:g}" for world, speed in CASES))
    given = parser.parse_args(arguments)
    cases = [
        (name, float(speed))
        for name, _, speed in (c.partition("@") for c in given.cases.split(","))
    ]
    print(tables(min(given.requests, ROUND), given.seed, cases))


def tables(requests: int = ROUND, seed: int = 0, cases: Sequence[tuple[str, float]] = CASES) -> str:
    """Run and lay out."""
    loops = [uvloop.run(closed_loop(name, speed, requests, seed)) for name, speed in cases]
    header = (
        "world", "simulated seconds in a second", "plain e2e, model", "plain e2e, HTTP",
        "oracle gains", "gain, model", "gain, HTTP", "points apart", "at most 5 below", "answered",
        "failed", "sent late by at most",
    )  # fmt: skip
    rows = [
        (
            loop.world,
            f"{loop.speed:g}",
            f"{loop.plain_s[0]:.2f} s",
            f"{loop.plain_s[1]:.2f} s",
            percent(loop.oracle),
            percent(loop.model),
            percent(loop.gain),
            f"{100 * (loop.gain - loop.model):+.1f}",
            _verdict(loop),
            f"{loop.answered:,}",
            ", ".join(f"{n} {kind}" for kind, n in loop.failed.items()) or "0",
            f"{loop.late_s:.2f} s",
        )
        for loop in loops
    ]
    return f"`{POLICY}`, {requests:,} requests a run.\n\n" + table(header, rows)


def _verdict(loop: Loop) -> str:
    if loop.plain_s[1] > (1.0 + KEPT_UP) * loop.plain_s[0]:
        return "the machine did not keep up"
    return "yes" if loop.model - loop.gain <= WITHIN else "**no**"


async def closed_loop(name: str, speed: float, requests: int, seed: int) -> Loop:
    """One world in the model, then over HTTP."""
    whole = load_world(name)
    # Arrivals over HTTP are drawn in rounds of that many.
    world = replace(whole, traffic=replace(whole.traffic, requests=ROUND))
    stick = await asyncio.to_thread(yardstick, world, seed)
    run = await asyncio.to_thread(stick.run, learner(world, POLICY, seed))
    counted = slice(0, requests)
    plain = await _passed(world.merged(world.plain.name), "fixed", speed, requests, stick)
    policy = await _passed(world, POLICY, speed, requests, stick)
    return Loop(
        world=name,
        speed=speed,
        oracle=stick.gain(stick.oracle, counted),
        model=stick.gain(run, counted),
        plain_s=(float(stick.plain.e2e_s[counted].mean()), float(plain.e2e_s.mean())),
        policy_s=float(policy.e2e_s.mean()),
        answered=len(plain.e2e_s) + len(policy.e2e_s),
        failed=plain.failed + policy.failed,
        late_s=max(plain.late_s, policy.late_s),
    )


async def _passed(
    world: WorldSpec, policy: str, speed: float, requests: int, stick: Yardstick
) -> _Passed:
    """The world's arrivals through a proxy of its own."""
    took: dict[int, float] = {}

    def answered(arrival: Arrival, seconds: float) -> None:
        took[arrival.index] = seconds
        if len(took) % 250 == 0:
            print(f"{world.name} {policy}: {len(took)} answered", file=sys.stderr)

    fleet = SimFleet(world, FleetOptions(speed=speed, seed=stick.seed))
    await fleet.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            async with started(_config(fleet, policy, speed), Path(folder)) as proxy:
                driver = Driver(
                    world,
                    f"http://127.0.0.1:{proxy.port}",
                    model=fleet.options.model,
                    seed=stick.seed,
                    pace=_Pace(speed),
                    answered=answered,
                )
                sent = await driver.run(stick.known[requests - 1].at_s)
    finally:
        await fleet.stop()
    e2e = np.array([took[index] for index in sorted(took)])
    return _Passed(e2e, sent.failed, sent.late_s)


def _config(fleet: SimFleet, policy: str, speed: float) -> dict[str, Any]:
    parameters = {"arm": fleet.world.plain.name} if policy == "fixed" else {}
    config = fleet.config(port=0, admin_port=0)
    config["routes"][0]["policy"] = {"name": policy, "parameters": parameters}
    config["estimates"] = {"half_life_s": HALF_LIFE_S / speed}
    return config


if __name__ == "__main__":
    main()
