"""A drift made in the simulated fleet is on the page within seconds of being known."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from playwright.async_api import expect

from policies.types import ClassId
from router.estimates.layout import BLOCK_S
from router.simfleet.service import FAULTS_PATH
from router.simfleet.traffic import Driver
from tests.browser.conftest import WITHIN_MS, Open, SimShop, asked, text_of
from tests.support.flow_client import ask, request_bytes
from tests.support.simfleet_world import PushedPace

MATH = ClassId("math")
BLOCKS = 24
"""Before the drift: what changed is told from what varies by as many."""
MOST_BLOCKS = 4
"""After it: eight minutes of traffic."""
BLOCK_TRAFFIC_S = 6.0
"""Of simulated time, at the rate of the driver: some thirty answers of each pool."""
RATE = 10.0


class SkippingClock:
    """The machine's clocks, which can be set forward while nothing runs."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic() + self.ahead_s

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time() + self.ahead_s


async def block(shop: SimShop, clock: SkippingClock, number: int) -> None:
    """Two minutes with some traffic, and then they are over."""
    world = shop.fleet.world
    classes = {MATH: world.traffic.classes[MATH]}
    alone = replace(world, traffic=replace(world.traffic, classes=classes))
    driver = Driver(
        alone, shop.app.data_url, model="simulated", rate=RATE, seed=number, pace=PushedPace()
    )
    await driver.run(duration_s=BLOCK_TRAFFIC_S)
    await shop.app.flush()
    clock.ahead_s += BLOCK_S
    await shop.app.refresh()


async def order_drift(shop: SimShop) -> None:
    """Drafts for math are accepted half as often from now on, by every server of the pool."""
    fault = json.dumps({"kind": "drift", "value": 0.4, "class_id": MATH}).encode()
    for engine in shop.fleet.engines:
        if engine.pool.name == "eagle3":
            reply = await ask(engine.url, request_bytes(fault, target=FAULTS_PATH))
            assert reply.status == 200


async def drifts(shop: SimShop) -> list[dict[str, Any]]:
    """Drifts of tokens per step that the admin port knows; times are this machine's own noise."""
    [route] = (await asked(shop, "/api/state"))["routes"]
    found = [event for event in route["events"] if event["kind"] == "drift"]
    return [event for event in found if event["change"]["figure"] == "tau"]


@pytest.mark.timeout(400)
async def test_a_drift_is_seen_within_seconds(open_shop: Open) -> None:
    """After at most four blocks, and on the open page five seconds after the state has it."""
    clock = SkippingClock()
    weights = {"plain": 1, "eagle3": 1}
    policy = {"name": "fixed", "parameters": {"weights": weights}}
    shop = await open_shop(traffic=False, policy=policy, clock=clock)
    shop.app.still = False
    for number in range(BLOCKS):
        await block(shop, clock, number)
    assert await drifts(shop) == []
    page = await shop.page("events")
    await expect(page.locator("main h1")).to_have_text("Events")
    await order_drift(shop)
    taken = 0
    while not await drifts(shop):
        taken += 1
        assert taken <= MOST_BLOCKS
        await block(shop, clock, BLOCKS + taken)
    known = time.monotonic()
    event = page.locator("[data-key=events] li", has_text="tokens per step")
    await expect(event).to_be_visible(timeout=WITHIN_MS)
    assert time.monotonic() - known <= WITHIN_MS / 1000
    [found] = await drifts(shop)
    assert (found["pool"], found["class"]) == ("eagle3", "math")
    before, after = found["change"]["before"], found["change"]["after"]
    assert after < before
    shown = await text_of(page, "[data-key=events]")
    assert f"Drift: eagle3 on math: tokens per step went from {before:.2f} to {after:.2f}" in shown
    await page.goto(f"{shop.app.admin_url}/#/overview")
    await expect(page.locator("[data-key=events]")).to_contain_text("Drift: eagle3 on math")
    await shop.shot(page, "drift")
    assert shop.complaints == []
