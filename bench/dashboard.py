"""What an open dashboard costs: first paint, memory of the page, time of the server.

    python -m bench.dashboard [SECONDS]

It fills a store with a week of 8 pools by 10 classes, opens the pages in the system's Chromium and
watches them for so long. Engines are not there; the process is busy with estimates all the while.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import time
from typing import Any

from playwright.async_api import Page, async_playwright

from policies.estimators.cells import add_counts
from policies.estimators.increments import increments
from policies.types import ArmId, ClassId, SpecUsage, Status, Trial
from router.app import Application
from router.config.models import Config
from router.estimates.layout import SLOT_S, RouteKeys, slot_at
from router.stores.base import Addition, Batch

MODEL = "bench"
POOLS = [f"pool{number}" for number in range(8)]
CLASSES = [f"class{number}" for number in range(10)]
REQUESTS = 25
"""Of each pool and class in every stretch of time."""
WEEK_H = 7 * 24
WINDOW_S = 3600
TTL_S = 10**6


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


async def heap_mb(page: Page) -> float:
    """What the page's scripts hold once garbage is gone."""
    session = await page.context.new_cdp_session(page)
    await session.send("HeapProfiler.collectGarbage")
    used = await session.send("Runtime.getHeapUsage")
    return float(used["usedSize"]) / 1e6


async def watch(page: Page, path: str, seconds: float) -> None:
    """Leaves a page open, and prints what that did to it and to the server."""
    await page.goto(page.url.partition("#")[0] + f"#/{path}")
    await asyncio.sleep(3)
    before, nodes = await heap_mb(page), await page.evaluate("document.all.length")
    busy_s, began = time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    share = (time.process_time() - busy_s) / (time.perf_counter() - began)
    print(
        f"{path}: heap {before:.1f} -> {await heap_mb(page):.1f} MB, nodes {nodes} -> "
        f"{await page.evaluate('document.all.length')}, the process busy {share:.1%}"
    )


async def main(seconds: float) -> None:
    """Runs all of it."""
    app = Application(config(), seed=1)
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
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0))
