"""The dashboard before the demo's real engines: what it shows is what they did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest
from playwright.async_api import async_playwright, expect

from router.config.models import Config
from router.demo.fleet import Fleet
from router.demo.prompts import load_prompts
from router.demo.run import route_config
from tests.browser.conftest import CHROMIUM_ARGS, Shop, Still, chromium, settled, text_of

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(400)]

PAGES = ("overview", "classes", "policy", "experiments", "recommend", "fleet", "explain", "events")
PROMPTS = 8
ROUNDS = 2


async def serve_some(app: Still, model: str) -> None:
    """Copied code and prose, streamed."""
    prompts = [of for of in load_prompts() if of.label in ("code_edit", "creative")]
    async with openai.AsyncOpenAI(
        base_url=f"{app.data_url}/v1", api_key="any", max_retries=0, timeout=300
    ) as client:
        for prompt in (prompts[:PROMPTS] + prompts[-PROMPTS:]) * ROUNDS:
            body: dict[str, Any] = {**prompt.body, "max_tokens": 24}
            stream = await client.chat.completions.create(model=model, stream=True, **body)
            async for _ in stream:
                pass
    await app.flush()
    await app.refresh()
    await app.probe()
    await app.reckon()
    app.still = True


async def test_every_page_shows_what_real_engines_did(fleet: Fleet, tmp_path: Path) -> None:
    """Tokens per step, answers, engines and their versions as the state has them; no complaint."""
    path = chromium()
    if path is None:
        pytest.skip("no Chromium for the dashboard's tests: apt-get install chromium")
    policy = {"name": "thompson", "parameters": {"floor": 0.2}}
    config = Config.model_validate(
        {
            "listen": {"port": 0},
            "admin": {"port": 0},
            "store": {"url": "embedded:", "directory": str(tmp_path / "store")},
            "routes": [route_config(fleet.model, fleet.pools, policy)],
        }
    )
    app = Still(config, seed=7)
    async with app.running(), async_playwright() as playwright:
        await serve_some(app, fleet.model)
        browser = await playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGS)
        shop = Shop(app, browser, tmp_path)
        page = await shop.page()
        for name in PAGES:
            await page.goto(f"{app.admin_url}/#/{name}")
            await settled(page)
            await shop.shot(page, f"real-{name}")
        [route] = app.state()["routes"]
        known = 0
        for entry in route["classes"]:
            for cell in entry["cells"]:
                if cell["tokens_per_step_interval"] is None:
                    continue
                known += 1
                await page.goto(f"{app.admin_url}/#/classes/{entry['class']}/{cell['pool']}")
                low, high = cell["tokens_per_step_interval"]
                acceptance = page.locator("[data-key=acceptance]")
                expected = f"{cell['tokens_per_step']:.2f} [{low:.2f}, {high:.2f}]"
                await expect(acceptance).to_contain_text(expected)
                about = await text_of(page, "[data-key=about]")
                assert f"{entry['class']} on {cell['pool']}" in about
                assert f"{cell['ok']} ok, {cell['failed']} failed" in about
        assert known
        await page.goto(f"{app.admin_url}/#/fleet")
        shown = await text_of(page, "[data-key=servers]")
        for pool in route["pools"]:
            for replica in pool["replicas"]:
                assert replica["id"] in shown
                assert replica["detected"]["engine"] in shown
        await browser.close()
    assert shop.complaints == []
