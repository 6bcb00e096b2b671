"""The page of the policy: what it believes, and what it may spend on finding out."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from playwright.async_api import expect

from router.recommend.render import recommend
from tests.browser.conftest import (
    WITHIN_MS,
    Open,
    answering,
    asked,
    in_every_guise,
    percent,
    text_of,
)
from tests.support.measured_state import cell, pool, route


async def test_beliefs_are_drawn_as_the_policy_tells_them(open_shop: Open) -> None:
    """A hill for each pool about which there is doubt, a line for the baseline, and the figures."""
    shop = await open_shop(policy={"name": "net_gain"})
    told = await asked(shop, "/api/beliefs")
    [of_route] = told["routes"]
    page = await shop.page("policy")
    await expect(page.locator(".hills").first).to_be_visible(timeout=WITHIN_MS)
    assert of_route["policy"] == "net_gain"
    for entry in of_route["classes"]:
        panel = page.locator(f'section[data-key="{entry["class"]}"]')
        doubted = [of for of in entry["pools"] if of["density"] is not None]
        assert {of["pool"] for of in doubted} == {"ngram", "eagle3", "eagle3-k5"}
        await expect(panel.locator(".hill")).to_have_count(len(doubted))
        shown = " ".join((await panel.inner_text()).split())
        for of in doubted:
            value, low, high = (f"{of['time_ratio'][end]:.2f}" for end in ("value", "low", "high"))
            assert f"{value} × [{low}, {high}] {percent(of['no_worse'])}" in shown
        exploring = entry["exploring"]
        assert f"{percent(exploring['budget'], digits=1)}" in shown
        if exploring["unproven"]:
            assert f"Not proven: {', '.join(exploring['unproven'])}" in shown
            if exploring["got"] is not None:
                assert f"they had {percent(exploring['got'], digits=1)}" in shown
    await in_every_guise(shop, page, "policy-net-gain")
    assert shop.complaints == []


async def test_a_policy_without_beliefs_says_so(open_shop: Open) -> None:
    """Fixed weights know no cost; nothing is drawn in its stead."""
    policy: dict[str, Any] = {"name": "fixed", "parameters": {"weights": {"plain": 1, "ngram": 1}}}
    shop = await open_shop(policy=policy)
    page = await shop.page("policy")
    await expect(page.locator("main .grid section").first).to_contain_text("no belief to draw")
    assert await page.locator(".hill").count() == 0
    assert shop.complaints == []


def measured() -> dict[str, Any]:
    """A fleet of which enough is known for every kind of advice."""
    pools = [
        pool("plain", "none", None, baseline=True, slope=0.0004),
        pool("eagle3", "eagle3", 5, slope=0.0004),
        pool("mtp", "eagle3", 5, engine="sglang", slope=0.0004),
        pool("draft", "draft_model", 4, engine="llamacpp", slope=0.0004),
    ]
    cells = {"plain": cell(), "eagle3": cell(1.8), "mtp": cell(1.7), "draft": cell(1.5)}
    made = route(pools, chat=cells, math={**cells, "eagle3": cell(2.1)})
    return {"time": 1.0, "window_s": 3600, "routes": [{**made, "model": "simulated"}]}


async def test_advice_is_shown_with_its_flags(open_shop: Open) -> None:
    """Lengths by class and batch size, what they save, and flags that a click takes along."""
    shop = await open_shop(traffic=False)
    told = recommend(measured())
    page = await shop.page("overview")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.context.route("**/api/recommend*", answering(told))
    await page.goto(f"{shop.app.admin_url}/#/recommend")
    await expect(page.locator("[data-key=fleet] .verdict")).to_be_visible()
    [made] = told["routes"]
    assert made["fleet"]["verdict"] in await text_of(page, "[data-key=fleet]")
    changes = [*(made["fleet"]["single"] or {}).values(), *made["fleet"]["moves"][:6]]
    assert changes
    shown = await text_of(page, "[data-key=fleet]")
    for change in changes:
        assert f"{change['what']} {saves(change['gain'])}" in shown
    flags = 0
    for of in made["pools"]:
        panel = await text_of(page, f'[data-key="pool {of["pool"]}"]')
        for best in (
            of["overall"],
            *of["classes"].values(),
            *(at["best"] for at in of["schedule"]),
        ):
            assert saves(best["against_plain"]) in panel
        for line in of["flags"]:
            flags += 1
            assert line.removeprefix("FILE: ") in panel
    assert flags
    button = page.get_by_role("button", name="Copy the flag of eagle3")
    await button.click()
    await expect(page.locator("code.copied")).to_be_visible()
    [flag] = [of["flags"][0] for of in made["pools"] if of["pool"] == "eagle3"]
    assert await page.evaluate("navigator.clipboard.readText()") == flag
    await in_every_guise(shop, page, "recommend-advice")
    assert shop.complaints == []


def saves(gain: dict[str, float]) -> str:
    """As the page writes it."""
    value, low, high = (percent(gain[of], sign=True, digits=1) for of in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


@pytest.mark.timeout(180)
async def test_recommendations_are_those_of_the_command(open_shop: Open) -> None:
    """Verdict, lengths and flags as `specroute recommend` makes them, and a flag to take along."""
    shop = await open_shop()
    page = await shop.page("recommend")
    await expect(page.locator("[data-key=fleet] .verdict")).to_be_visible(timeout=60_000)
    [made] = (await asked(shop, "/api/recommend"))["routes"]
    assert made == orjson.loads(orjson.dumps(recommend(shop.app.state())))["routes"][0]
    assert made["fleet"]["verdict"] in await text_of(page, "main")
    assert made["pools"]
    for of in made["pools"]:
        panel = await text_of(page, f'[data-key="pool {of["pool"]}"]')
        for why in of["lacking"]:
            assert " ".join(why.split()) in panel
    assert shop.complaints == []
