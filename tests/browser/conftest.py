"""A live proxy before simulated engines, and pages of it in the system's Chromium."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, Route, async_playwright, expect

from router.app import Application
from router.clock import Clock
from router.config.models import Config
from router.simfleet.fleet import SimFleet
from router.simfleet.traffic import Driver
from router.simulate.load import load_world
from tests.support.flow_client import get
from tests.support.simfleet_world import PushedPace

SEED = 7
TRAFFIC_S = 40.0
"""Of simulated time; with clocks that are pushed it takes as long as the machine needs."""

WITHIN_MS = 5000
"""In which what happens is to be seen."""

GUISES: tuple[tuple[Literal["light", "dark"], int], ...] = (
    *(("light", 1280), ("dark", 1280)),
    ("light", 390),
)

CHROMIUM_ARGS = ("--no-sandbox",)

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """Where the browser is."""
    named = os.environ.get("SPECROUTE_CHROMIUM")
    return named or next((found for name in _NAMES if (found := shutil.which(name))), None)


class Still(Application):
    """A proxy whose knowledge can be made to stand still, so that figures can be compared."""

    still = False

    async def refresh(self) -> None:
        """As always, until it is made to stand still."""
        if not self.still:
            await super().refresh()


@dataclass
class Shop:
    """A proxy, and pages that are looked at."""

    app: Still
    browser: Browser
    folder: Path
    complaints: list[str] = field(default_factory=list)
    """What pages wrote to their consoles, and errors that nobody caught."""

    async def page(self, path: str = "overview", **more: Any) -> Page:
        """Opens a page and waits until it shows the state."""
        context = await self.browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, **more}
        )
        page = await context.new_page()
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        await page.goto(f"{self.app.admin_url}/#/{path}")
        return page

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    async def caught_up(self) -> None:
        """The proxy knows what was learned and ordered until now, and stands still again."""
        await self.app.flush()
        self.app.still = False
        await self.app.refresh()
        self.app.still = True

    async def until(self, reached: Callable[[], Awaitable[bool]], within_s: float) -> None:
        """Asks again and again, as somebody who reloads."""
        async with asyncio.timeout(within_s):
            while not await reached():
                pass

    async def shot(self, page: Page, name: str) -> None:
        """Keeps a picture for review: in SPECROUTE_SCREENSHOTS, if that is set."""
        folder = Path(os.environ.get("SPECROUTE_SCREENSHOTS") or self.folder)
        await page.screenshot(path=folder / f"{name}.png", full_page=True)


@dataclass(kw_only=True)
class SimShop(Shop):
    """One before simulated engines."""

    fleet: SimFleet


async def asked(shop: Shop, path: str) -> Any:
    """What the admin port answers, as JSON."""
    reply = await get(shop.app.admin_url, path)
    return json.loads(reply.body)


def percent(value: float, *, sign: bool = False, digits: int = 0) -> str:
    """As the pages write it."""
    # As `toFixed`: of two that are as near the larger one.
    exact = Decimal(abs(value) * 100).quantize(Decimal(10) ** -digits, ROUND_HALF_UP)
    text = f"{exact:f}"
    if float(text) == 0:
        return f"{text} %"
    return f"{'−' if value < 0 else '+' if sign else ''}{text} %"


def answering(body: Any) -> Callable[[Route], Any]:
    """Answers with JSON."""

    async def answer(route: Route) -> None:
        await route.fulfill(body=json.dumps(body), content_type="application/json")

    return answer


async def serious_faults(page: Page) -> list[tuple[str, list[str]]]:
    """Faults of accessibility that axe calls serious or critical, and where."""
    found = await Axe().run(page)
    return [
        (of["id"], [node["html"] for node in of["nodes"]][:3])
        for of in found.response["violations"]
        if of["impact"] in ("serious", "critical")
    ]


async def in_every_guise(shop: Shop, page: Page, name: str) -> None:
    """Light and dark, wide and narrow: nothing is too wide, and nobody is shut out."""
    for scheme, width in GUISES:
        await page.emulate_media(color_scheme=scheme)
        await page.set_viewport_size({"width": width, "height": 900})
        await settled(page)
        assert await serious_faults(page) == [], (name, scheme, width)
        wide = await page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, (name, width)
        await shop.shot(page, f"{name}-{scheme}-{width}")


async def text_of(page: Page, selector: str) -> str:
    """All text there, blanks made one."""
    return " ".join((await page.inner_text(selector)).split())


async def settled(page: Page) -> None:
    """The state is there, and charts are drawn where the page has any."""
    await expect(page.locator("main h1")).to_be_visible()
    for place in await page.locator(".plot").all():
        await expect(place.locator("canvas")).to_be_visible(timeout=WITHIN_MS)


Open = Callable[..., Awaitable[SimShop]]


@pytest.fixture
async def open_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    """Starts a fleet, a proxy and a browser; ends them after the test.

    Servers are probed once at the start, and then when the test says so. Hours of the store are read
    anew whenever somebody asks.
    """
    monkeypatch.setattr("router.app.PROBE_INTERVAL_S", 3600.0)
    monkeypatch.setattr("router.estimates.history._FRESH_S", 0.0)
    path = chromium()
    if path is None:
        pytest.skip("no Chromium for the dashboard's tests: apt-get install chromium")
    async with AsyncExitStack() as stack:

        async def opened(
            *,
            traffic: bool = True,
            policy: dict[str, Any] | None = None,
            clock: Clock | None = None,
            **admin: Any,
        ) -> SimShop:
            fleet = SimFleet(load_world("llama8b-light"), pace=PushedPace)
            await fleet.start()
            stack.push_async_callback(fleet.stop)
            config = {**fleet.config(port=0), "admin": {"port": 0, **admin}}
            if policy is not None:
                config["routes"] = [{**route, "policy": policy} for route in config["routes"]]
            app = Still(Config.model_validate(config), clock, seed=SEED)
            await stack.enter_async_context(app.running())
            if traffic:
                driver = Driver(fleet.world, app.data_url, model="simulated", pace=PushedPace())
                await driver.run(duration_s=TRAFFIC_S)
                await app.flush()
                await app.refresh()
                await app.reckon()
            app.still = True
            playwright = await stack.enter_async_context(async_playwright())
            browser = await playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGS)
            stack.push_async_callback(browser.close)
            return SimShop(app, browser, tmp_path, fleet=fleet)

        yield opened
