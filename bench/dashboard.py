"""What an open dashboard costs: first paint, memory of the page, time of the server.

    python -m bench.dashboard [SECONDS [UPDATES]]

It fills a store with a week of 8 pools by 10 classes and a month of 200 tenants, opens the pages in
the system's Chromium and watches them for so long. Engines are not there; the process is busy with
estimates all the while, and what that takes is told apart. Then a page gets an hour of updates as
fast as it takes them, each of which changes every class, pool by pool.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from playwright.async_api import Page, async_playwright

from policies.estimators.cells import add_counts
from policies.estimators.increments import increments
from policies.types import ArmId, ClassId, SpecUsage, Status, Trial
from router.app import Application
from router.config.models import Config
from router.dashboard import feed
from router.estimates.layout import SLOT_S, RouteKeys, month_of, slot_at
from router.stores.base import Addition, Batch

MODEL = "bench"
POOLS = [f"pool{number}" for number in range(8)]
CLASSES = [f"class{number}" for number in range(10)]
REQUESTS = 25
"""Of each pool and class in every stretch of time."""
TENANTS = 200
HOUR_OF_UPDATES = 3600
WARM = 200
"""Updates before memory is looked at first: pages fill up with what they keep."""
T = TypeVar("T")
WEEK_H = 7 * 24
WINDOW_S = 3600
TTL_S = 10**6


_COUNTED = """
window.updates = 0;
const add = EventSource.prototype.addEventListener;
EventSource.prototype.addEventListener = function (type, act) {
  return add.call(this, type, (event) => { act(event); window.updates += 1; });
};
"""


class Told:
    """What it takes to make the state and to tell what changed of it, on the loop's thread."""

    def __init__(self) -> None:
        self.busy_s = 0.0

    def timed(self, work: Callable[[], T]) -> T:
        """Does it, and adds what it took."""
        began = time.thread_time()
        made = work()
        self.busy_s += time.thread_time() - began
        return made


TOLD = Told()


class TimedReader(feed.Reader):
    """What one page has been told, and what telling took."""

    def message(self, state: dict[str, Any]) -> bytes:
        """See `feed.Reader`."""
        return TOLD.timed(partial(super().message, state))


class Lively(Application):
    """A proxy whose figures change with every look at them, as if it had traffic."""

    lively = False
    looks = 0

    def state(self) -> dict[str, Any]:
        """Every class and pool differs from what was told before."""
        made = TOLD.timed(super().state)
        if not self.lively:
            return made
        self.looks += 1
        for entry in (entry for route in made["routes"] for entry in route["classes"]):
            entry["requests"] += self.looks
            for cell in entry["cells"]:
                cell["ok"] += self.looks
                cell["probability"] = (self.looks % 97) / 97
        for pool in (pool for route in made["routes"] for pool in route["pools"]):
            pool["replicas"][0]["in_flight"] = self.looks % 50
        return made


def config() -> Config:
    """One route over all pools; no server answers, and none is needed."""
    pools: list[dict[str, Any]] = [
        {
            "name": name,
            "method": "eagle3" if name != POOLS[0] else "none",
            "engine": "vllm",
            "replicas": [{"url": "http://127.0.0.1:9"}],
        }
        for name in POOLS
    ]
    route = {"model": MODEL, "baseline": POOLS[0], "policy": {"name": "thompson"}, "pools": pools}
    return Config.model_validate(
        {
            "listen": {"port": 0},
            "admin": {"port": 0},
            "store": {"url": "memory:"},
            "routes": [route],
        }
    )


def fields(rng: random.Random) -> dict[str, int]:
    """Sums of one stretch of time, as the store holds them."""
    made: dict[str, int] = {}
    for pool in POOLS:
        for name in CLASSES:
            sums: dict[str, int] = {}
            for _ in range(REQUESTS):
                sums = add_counts(sums, increments(_trial(pool, name, rng), 200))
            made |= {f"{pool}|{name}|{key}": value for key, value in sums.items()}
    return made


def _trial(pool: str, name: str, rng: random.Random) -> Trial:
    fast = pool != POOLS[0]
    tokens = rng.randint(50, 400)
    tpot_s = max(0.004, rng.gauss(0.012 if fast else 0.02, 0.003))
    return Trial(
        ClassId(name),
        ArmId(pool),
        Status.OK,
        streamed=True,
        propensity=0.2,
        ttft_s=max(0.02, rng.gauss(0.2, 0.05)),
        tpot_s=tpot_s,
        e2e_s=0.2 + tokens * tpot_s,
        tokens=tokens,
        spec=SpecUsage(steps=tokens // 2) if fast else None,
        load=rng.randint(1, 20),
    )


async def fill(app: Application) -> None:
    """A week by hours, and an hour by slots."""
    store = app._store  # noqa: SLF001 - a past that nobody served
    keys, now, sums = RouteKeys("specroute", MODEL), time.time(), fields(random.Random(1))
    hour, slot = int(now // 3600), slot_at(now)
    places = [keys.hour(hour - ago) for ago in range(WEEK_H + 1)]
    places += [keys.slot(slot - ago) for ago in range(1, WINDOW_S // SLOT_S, 4)]
    for number, key in enumerate(places, 1):
        await store.add(Batch("bench", number, TTL_S), [Addition({"": sums}, {key: TTL_S})])
    month = {
        f"tenant{number:03}|{stem}.y.s.{part}": value
        for number in range(TENANTS)
        for stem, n in (("out", 40), ("rest", 8000))
        for part, value in (("n", n), ("s", n * 10**6), ("q", n * 1_200_000))
    }
    key = keys.month(month_of(slot))
    await store.add(Batch("month", 1, TTL_S), [Addition({"": month}, {key: TTL_S})])


async def heap_mb(page: Page) -> float:
    """What the page's scripts hold once garbage is gone."""
    session = await page.context.new_cdp_session(page)
    for _ in range(2):  # what finalizers let go goes with the second
        await session.send("HeapProfiler.collectGarbage")
    used = await session.send("Runtime.getHeapUsage")
    return float(used["usedSize"]) / 1e6


async def watch(page: Page, path: str, seconds: float) -> None:
    """Leaves a page open, and prints what that did to it and to the server."""
    await page.goto(page.url.partition("#")[0] + f"#/{path}")
    await asyncio.sleep(3)
    before, nodes = await heap_mb(page), await page.evaluate("document.all.length")
    told_s, busy_s, began = TOLD.busy_s, time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    took_s = time.perf_counter() - began
    share, told = (time.process_time() - busy_s) / took_s, (TOLD.busy_s - told_s) / took_s
    print(
        f"{path}: heap {before:.1f} -> {await heap_mb(page):.1f} MB, nodes {nodes} -> "
        f"{await page.evaluate('document.all.length')}, the process busy {share:.1%}, of which "
        f"{told:.2%} of a core is the page's feed"
    )


async def updated(page: Page, updates: int) -> int:
    """Waits until a page has taken so many, and tells how many it has."""
    taken = 0
    while taken < updates:
        await page.wait_for_timeout(500)
        taken = int(await page.evaluate("window.updates"))
    return taken


async def hour(page: Page, path: str, updates: int) -> None:
    """Sends a page an hour of updates, and prints what it holds at each quarter of it."""
    await page.goto(page.url.partition("#")[0] + f"#/{path}")
    seen = await updated(page, WARM)
    held, nodes = [await heap_mb(page)], [await page.evaluate("document.all.length")]
    began = time.perf_counter()
    for quarter in range(1, 5):
        await updated(page, seen + quarter * updates // 4)
        held.append(await heap_mb(page))
        nodes.append(await page.evaluate("document.all.length"))
    took_s = time.perf_counter() - began
    print(
        f"{path}, {updates} updates in {took_s:.0f} s: heap "
        f"{' -> '.join(f'{of:.1f}' for of in held)} MB, nodes {min(nodes)} to {max(nodes)}, "
        f"{1000 * took_s / updates:.0f} ms an update",
        flush=True,
    )


async def main(seconds: float, updates: int) -> None:
    """Runs all of it."""
    feed.Reader = TimedReader  # type: ignore[misc]  # to be timed
    app = Lively(config(), seed=1)
    await fill(app)
    async with app.running(), async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        busy_s, began = time.process_time(), time.perf_counter()
        await asyncio.sleep(seconds)
        idle = (time.process_time() - busy_s) / (time.perf_counter() - began)
        print(f"no page open: the process busy {idle:.1%}")
        page = await browser.new_page(viewport={"width": 1280, "height": 900})
        began = time.perf_counter()
        await page.goto(f"{app.admin_url}/#/overview")
        await page.wait_for_selector(".plot canvas")
        paint = await page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        )
        print(f"first paint {paint:.0f} ms, charts after {time.perf_counter() - began:.2f} s")
        began = time.perf_counter()
        async with page.expect_response("**/api/history*"):
            await page.get_by_role("button", name="7 d").click()
        print(f"a week that nobody had asked for: {time.perf_counter() - began:.2f} s")
        await watch(page, "overview", seconds)
        await watch(page, "classes/class3/pool2", seconds)
        await watch(page, "policy", seconds)
        await watch(page, "experiments", seconds)
        await page.close()
        app.lively = True
        feed.INTERVAL_S = 0.0
        for path in ("overview", "classes/class3/pool2") if updates else ():
            page = await browser.new_page(viewport={"width": 1280, "height": 900})
            await page.add_init_script(_COUNTED)
            await page.goto(f"{app.admin_url}/#/{path}")
            await hour(page, path, updates)
            await page.close()
        await browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seconds", type=float, nargs="?", default=60.0, help="each page is watched")
    parser.add_argument(
        "updates", type=int, nargs="?", default=HOUR_OF_UPDATES, help="then, as fast as they go"
    )
    given = parser.parse_args()
    asyncio.run(main(given.seconds, given.updates))
