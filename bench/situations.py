"""Proxies with hours behind them, in each of which one pool hurts: to try the dashboard on people.

Usage: python -m bench.situations NAME [--admin-port PORT] [--blocks N] [--answer]

The engines are simulated ones, the requests real. Stretches of two minutes are told in seconds:
each gets some seconds of traffic, and then the proxy's clocks are set forward to its end, so that
history, intervals and events are what that many minutes would have brought. When history has
arrived at this moment the proxy stays, with traffic as it was, until it is stopped.

The question to whoever looks at the dashboard alone: which pool is hurting which class, since when,
and what should be changed? `--answer` prints what is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from policies.sim.spec import WorldSpec
from policies.types import ClassId
from router.app import Application
from router.config.models import Config
from router.estimates.layout import BLOCK_S
from router.simfleet.faults import Fault, FaultKind
from router.simfleet.fleet import FleetOptions, SimFleet
from router.simfleet.traffic import Driver
from router.simulate.load import load_world

BLOCKS: Final = 40
"""Of history; a drift is told from what varies by twenty at least."""
RATE: Final = 4.5
"""Requests in a simulated second, while history is told."""
ANSWERS: Final = 180
"""Of a stretch: some twenty of each pool and class."""
TELLING: Final = 1.25
"""Time that it takes, over that of the traffic alone. Judgement."""
LIVE_RATE: Final = 2.0
"""Requests in a real second, once it has been told."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What is wrong.

    Attributes:
        world: Whose engines and requests.
        pools: Of that world, the first is plain decoding.
        classes: Of the requests.
        hurt: The pool that hurts.
        answer: What a good operator says.
        fault: What happens to that pool; None where it was never better.
        after: Share of the history after which it happens.
        speed: Simulated seconds in a real one.
    """

    world: str
    pools: tuple[str, ...]
    classes: tuple[str, ...]
    hurt: str
    answer: str
    fault: Fault | None = None
    after: float = 0.0
    speed: float = 3.0


SITUATIONS: Final[Mapping[str, Situation]] = {
    "first": Situation(
        "rtx5090",
        ("plain", "mtp", "dflash"),
        ("chat", "code_gen", "structured"),
        "dflash",
        "dflash hurts code_gen since two thirds of the history: its drafts are accepted far less "
        "often. Train or replace its drafter, and send code_gen elsewhere until then.",
        Fault(FaultKind.DRIFT, 0.02, class_id=ClassId("code_gen")),
        after=0.65,
    ),
    "second": Situation(
        "rtx5090",
        ("plain", "mtp", "dflash"),
        ("chat", "code_gen", "structured"),
        "mtp",
        "mtp hurts all classes since four fifths of the history: drafts are accepted as before, "
        "but its steps take longer. Look at its servers, and take them out until then.",
        Fault(FaultKind.SLOW, 2.5),
        after=0.8,
    ),
    "third": Situation(
        "spark",
        ("plain", "mtp", "dflash"),
        ("chat", "creative", "structured"),
        "dflash",
        "dflash hurts chat and creative, and has from the start: too few of its drafts are "
        "accepted there. Keep it for structured, or shorten its drafts.",
        speed=8.0,
    ),
}


class TellingClock:
    """The machine's clocks, set back by the history that is to be told, and forward as it is."""

    def __init__(self, ahead_s: float) -> None:
        self.ahead_s = ahead_s

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic() + self.ahead_s

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time() + self.ahead_s


def world_of(situation: Situation) -> WorldSpec:
    """Its pools and classes alone."""
    world = load_world(situation.world)
    names = [ClassId(name) for name in situation.classes]
    mix = {name: world.traffic.classes[name] for name in names}
    pools = tuple(pool for pool in world.pools if pool.name in situation.pools)
    return replace(world, pools=pools, traffic=replace(world.traffic, classes=mix), events=())


async def told(situation: Situation, admin_port: int, blocks: int) -> None:
    """Tells the history, then stays."""
    fleet = SimFleet(world_of(situation), FleetOptions(speed=situation.speed))
    await fleet.start()
    try:
        even = dict.fromkeys(situation.pools, 1.0)
        config = fleet.config(port=0, admin_port=admin_port)
        policy = {"name": "fixed", "parameters": {"weights": even}}
        config["routes"] = [fleet.route(policy)]
        # Telling takes a while, and the history ends when it has been told.
        telling_s = blocks * ANSWERS / (RATE * situation.speed) * TELLING
        began = time.time() + telling_s - blocks * BLOCK_S
        clock = TellingClock(began - time.time())
        async with Application(Config.model_validate(config), clock, seed=0).running() as app:
            for number in range(blocks):
                if number == round(situation.after * blocks) and situation.fault is not None:
                    _break(fleet, situation)
                rate = RATE * situation.speed
                await _driver(fleet, app, number, rate).run(ANSWERS / rate)
                await app.flush()
                clock.ahead_s = min(began + (number + 1) * BLOCK_S - time.time(), 0.0)
                await app.refresh()
                print(f"\r{number + 1} of {blocks} stretches", end="", file=sys.stderr, flush=True)
            clock.ahead_s = 0.0
            print(f"\nready: {app.admin_url}", flush=True)
            await _driver(fleet, app, blocks, LIVE_RATE).run()
    finally:
        await fleet.stop()


def _driver(fleet: SimFleet, app: Application, seed: int, rate: float) -> Driver:
    return Driver(fleet.world, app.data_url, model=fleet.options.model, rate=rate, seed=seed)


def _break(fleet: SimFleet, situation: Situation) -> None:
    assert situation.fault is not None
    for engine in fleet.engines:
        if engine.pool.name == situation.hurt:
            engine.service.command([situation.fault])


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", choices=sorted(SITUATIONS))
    parser.add_argument("--admin-port", type=int, default=0)
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--answer", action="store_true", help="only print what is wrong")
    chosen = parser.parse_args()
    situation = SITUATIONS[chosen.name]
    if chosen.answer:
        print(situation.answer)
        return
    with suppress(KeyboardInterrupt):
        asyncio.run(told(situation, chosen.admin_port, chosen.blocks))


if __name__ == "__main__":
    main()
