"""What hurts stands first, in words: which pool, which class, since when, why, what is better."""

from __future__ import annotations

import copy
import json
from typing import Any

from playwright.async_api import Page, Route, expect

from tests.browser.conftest import Open, SimShop, serious_faults, text_of

LOSS = {"value": -0.72, "low": -0.86, "high": -0.59}
GAIN = {"value": 0.59, "low": 0.56, "high": 0.62}
NOON = 43_200.0
CHANGED: dict[str, Any] = {
    "class": "<b>code</b>",
    "pool": "eagle3",
    "harm": "loss",
    "gain": LOSS,
    "tail": None,
    "since": NOON,
    "measured_since": NOON,
    "changes": [{"figure": "tau", "since": NOON, "before": 5.28, "after": 1.09}],
    "tokens_per_step": 1.09,
    "num_speculative_tokens": 3,
    "share": 0.33,
    "instead": {"pool": "ngram", "gain": GAIN},
}
NEVER: dict[str, Any] = {
    **CHANGED,
    "class": "chat",
    "since": None,
    "changes": [],
    "tokens_per_step": 1.67,
    "num_speculative_tokens": 12,
    "instead": {"pool": "plain", "gain": None},
}
TAIL: dict[str, Any] = {
    **NEVER,
    "class": "math",
    "harm": "tail",
    "tokens_per_step": None,
    "tail": {"name": "ttft_p95", "value": 2.0, "low": 1.4, "high": 3.0},
}
SLOW: dict[str, Any] = {
    **CHANGED,
    "class": "prose",
    "harm": "gain_lost",
    "gain": {**LOSS, "value": 0.0},
    "changes": [{"figure": "cost", "since": NOON, "before": 0.46, "after": 1.03}],
}


async def shown(shop: SimShop, concerns: list[dict[str, Any]], path: str = "overview") -> Page:
    """A page of a route in which these are the concerns."""
    state = copy.deepcopy(shop.app.state())
    state["routes"][0] |= {"concerns": concerns, "policy": "fixed"}
    feed = f"event: state\ndata: {json.dumps(state)}\n\n"

    async def told(route: Route) -> None:
        await route.fulfill(body=feed, content_type="text/event-stream")

    context = await shop.browser.new_context(timezone_id="UTC")
    await context.route("**/api/events", told)
    page = await context.new_page()
    await page.goto(f"{shop.app.admin_url}/#/{path}")
    await expect(page.locator("[data-key=concerns]")).to_be_visible()
    return page


async def test_what_hurts_is_said_in_words(open_shop: Open) -> None:
    """Names are text; where nothing changed it says so; and where to send the class instead."""
    shop = await open_shop()
    page = await shown(shop, [CHANGED, NEVER, TAIL, SLOW])
    changed, never, tail, slow = [
        " ".join(text.split())
        for text in await page.locator("[data-key=concerns] li").all_inner_texts()
    ]
    assert "eagle3 makes <b>code</b> slower: answers take 72 % longer" in changed
    assert "since about 12:00, when it changed" in changed
    assert "5.28 tokens per step became 1.09" in changed
    assert "better off on ngram (+59 % [+56 %, +62 %])" in changed
    assert "eagle3 had 33 % of the class" in changed
    assert "policy fixed leaves it so: change routes[].policy" in changed
    assert "no change was seen: it was so all through the last" in never
    assert "Of 13 tokens that a step checks 1.67 are kept" in never
    assert "better off on plain, the baseline" in never
    assert "its TTFT P95 is 2.00 × the baseline's [1.40, 3.00]" in tail
    assert "saves no more time in prose" in slow
    assert "look at its servers" in slow
    assert await serious_faults(page) == []
    await shop.shot(page, "concerns")


async def test_it_stands_where_people_decide(open_shop: Open) -> None:
    """Before probabilities, and before advice on drafts, which is of the whole window."""
    shop = await open_shop()
    page = await shown(shop, [CHANGED], "policy")
    assert "eagle3 makes <b>code</b> slower" in await text_of(page, "[data-key=concerns]")
    page = await shown(shop, [CHANGED], "recommend")
    assert "eagle3 makes <b>code</b> slower" in await text_of(page, "[data-key=concerns]")
    assert "before eagle3 in <b>code</b> changed, too" in await text_of(page, "main")


async def test_nothing_that_hurts_is_said_too(open_shop: Open) -> None:
    """Instead of a blank."""
    shop = await open_shop()
    page = await shown(shop, [])
    assert "No pool is known to lose" in await text_of(page, "[data-key=concerns]")
