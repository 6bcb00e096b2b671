"""The dashboard as people and their browsers meet it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from playwright.async_api import Route, expect

from router.cli.report import report, saved_lines
from router.recommend.render import recommend
from router.types import ReplicaId
from tests.browser.conftest import (
    WITHIN_MS,
    Open,
    answering,
    in_every_guise,
    percent,
    settled,
    text_of,
)

PAGES = (
    *("overview", "classes", "classes/math/eagle3", "policy", "experiments", "recommend"),
    *("fleet", "explain", "events"),
)
HOSTILE = {
    "simulated": '<img src=x onerror="alert(1)">',
    "math": "ریاضی\u202e<script>alert(2)</script>",
    "chat": "=cmd|' /C calc'!A0,\"quoted\"",
    "eagle3": 'a"><svg onload=alert(3)>',
    "plain": "خط پایه",
}


@pytest.mark.timeout(240)
async def test_every_page_works_in_every_guise(open_shop: Open) -> None:
    """No complaint of a console or of the content policy, no fault of accessibility that is serious.

    Wide and narrow, light and dark; nothing is wider than the window. Nothing is asked of others.
    """
    shop = await open_shop()
    foreign: list[str] = []
    page = await shop.page()
    page.on("request", lambda request: foreign.append(request.url))
    for path in PAGES:
        await page.goto(f"{shop.app.admin_url}/#/{path}")
        await settled(page)
        await in_every_guise(shop, page, path.replace("/", "_"))
    assert shop.complaints == []
    assert [
        url for url in foreign if not url.startswith((shop.app.admin_url, "blob:", "data:"))
    ] == []


async def test_figures_are_those_of_the_state(open_shop: Open) -> None:
    """Gains, probabilities, tokens per step and servers, as /api/state has them."""
    shop = await open_shop()
    [route] = shop.app.state()["routes"]
    page = await shop.page("classes")
    await settled(page)
    known = 0
    for entry in route["classes"]:
        for cell in entry["cells"]:
            name = f"{entry['class']} on {cell['pool']}:"
            shown = " ".join((await page.locator(f'a[aria-label^="{name}"]').inner_text()).split())
            gain = cell["gain"]
            if cell["verdict"] is None:
                assert shown == f"baseline {cell['ok']} answers"
            elif gain is not None and gain["high"] - gain["low"] <= 2:
                known += 1
                bounds = [percent(gain[of], sign=True) for of in ("low", "high")]
                assert percent(gain["value"], sign=True) in shown
                assert f"[{bounds[0]}, {bounds[1]}]" in shown
    assert known
    await page.goto(f"{shop.app.admin_url}/#/policy")
    await expect(page.locator("main h1")).to_have_text("Policy")
    [math] = [entry for entry in route["classes"] if entry["class"] == "math"]
    shown = await text_of(page, "[data-key=math]")
    for cell in math["cells"]:
        assert f"{cell['pool']} {percent(cell['probability'], digits=1)}" in shown
    [cell] = [cell for cell in math["cells"] if cell["pool"] == "eagle3"]
    await page.goto(f"{shop.app.admin_url}/#/classes/math/eagle3")
    await settled(page)
    low, high = cell["tokens_per_step_interval"]
    shown = await text_of(page, "[data-key=acceptance]")
    assert f"{cell['tokens_per_step']:.2f} [{low:.2f}, {high:.2f}]" in shown
    await page.goto(f"{shop.app.admin_url}/#/fleet")
    await expect(page.locator("main h1")).to_have_text("Fleet")
    servers = [of["id"] for pool in route["pools"] for of in pool["replicas"]]
    assert [of for of in servers if of not in await text_of(page, "main")] == []
    assert shop.complaints == []


async def test_what_was_saved_is_the_same_everywhere(open_shop: Open) -> None:
    """On the overview, in /api/state and in the report; and nothing is claimed before traffic."""
    shop = await open_shop()
    [route] = shop.app.state()["routes"]
    today, page = route["saved_today"], await shop.page()
    await settled(page)
    shown = await text_of(page, '[data-key="Saved today"]')
    gain = [percent(today["gain"][of], sign=True) for of in ("value", "low", "high")]
    assert f"{gain[0]} [{gain[1]}, {gain[2]}]" in shown
    assert f"of waiting for {today['answers']} answers" in shown
    assert f"{today['tokens_per_s']['value']:.1f} [" in shown
    assert today["gain"]["low"] > 0
    assert f"{today['seconds']['value']:.0f} s" in shown or "min" in shown
    [line, *_] = saved_lines(report(shop.app.state())["routes"][0])
    assert line.startswith(f"Saved today: {today['seconds']['value']:,.0f} s")
    assert "not enough data" in await text_of(page, '[data-key="Against the holdout"]')
    empty = await open_shop(traffic=False)
    page = await empty.page()
    await settled(page)
    assert (await text_of(page, '[data-key="Saved today"]')).startswith("Saved today –")


async def test_what_happens_is_seen_at_once(open_shop: Open) -> None:
    """A server that goes, and one that comes back."""
    shop = await open_shop(traffic=False)
    page = await shop.page()
    await expect(page.locator("main .empty .what")).to_have_text("No traffic yet")
    fleet = shop.app.fleets()["simulated"]
    [replica] = [
        item.replica
        for states in fleet.view().values()
        for item in states
        if item.replica.replica_id == ReplicaId("ngram/0")
    ]
    fleet.mark(replica, up=False, now=0.0)
    await expect(page.locator("#alerts")).to_contain_text(
        "No answer from ngram/0", timeout=WITHIN_MS
    )
    fleet.mark(replica, up=True, now=0.0)
    await expect(page.locator("#alerts")).to_be_empty(timeout=2 * WITHIN_MS)


async def test_a_server_is_taken_out_and_put_back(open_shop: Open) -> None:
    """Two clicks take it out, one puts it back; by keyboard too."""
    shop = await open_shop(traffic=False)
    page = await shop.page("fleet")
    row = page.locator('tr[data-key="eagle3/0"]')
    await row.get_by_role("button", name="Take out").click()
    await row.get_by_role("button", name="Really take out?").focus()
    await page.keyboard.press("Enter")
    await expect(row.locator(".badge")).to_have_text("draining", timeout=WITHIN_MS)
    drained = [
        item.replica.replica_id
        for states in shop.app.fleets()["simulated"].view().values()
        for item in states
        if item.draining
    ]
    assert drained == ["eagle3/0"]
    await row.get_by_role("button", name="Put back").click()
    await expect(row.get_by_role("button", name="Take out")).to_be_visible(timeout=WITHIN_MS)
    assert shop.complaints == []


async def test_a_request_is_explained(open_shop: Open) -> None:
    """From the list, or by the id that its client got; an unknown id is said to be one."""
    shop = await open_shop()
    page = await shop.page("explain")
    [one] = shop.app.decisions(None, 1)
    await page.get_by_label("Request id").fill(one["request_id"])
    await page.keyboard.press("Enter")
    candidates = page.locator(".bars")
    await expect(candidates).to_contain_text("drawn")
    shown = await text_of(page, "main")
    assert f"with probability {percent(one['propensity'], digits=1)}" in shown
    assert f"by snapshot {one['snapshot']}" in shown
    await expect(page.locator(".bars tr.current")).to_contain_text(one["arm"])
    await page.get_by_label("Request id").fill("nobody")
    await page.get_by_role("button", name="Explain").click()
    await expect(page.locator("main [role=alert]")).to_contain_text("no decision about nobody")
    assert [of for of in shop.complaints if "404" not in of] == []


async def test_pictures_can_be_taken_along(open_shop: Open) -> None:
    """PNG, CSV with the columns of /api/history, and a table for whoever cannot see pictures."""
    shop = await open_shop()
    page = await shop.page()
    await settled(page)
    async with page.expect_download() as found:
        await page.get_by_role("button", name="Share of requests by pool: save as CSV").click()
    download = await found.value
    rows = (await download.path()).read_text().splitlines()
    assert rows[0] == "time,plain,ngram,eagle3,eagle3-k5"
    shares = [float(of) for of in rows[-1].split(",")[1:] if of]
    assert sum(shares) == pytest.approx(1.0)
    async with page.expect_download() as found:
        await page.get_by_role("button", name="Share of requests by pool: save as PNG").click()
    assert (await (await found.value).path()).read_bytes().startswith(b"\x89PNG")
    chart = page.locator("[data-keep=overview-share]")
    await chart.locator("summary").click()
    await expect(chart.locator("tbody tr").first).to_be_visible()
    assert shop.complaints == []


def renamed(value: Any) -> Any:
    """The same with hostile names."""
    if isinstance(value, dict):
        return {HOSTILE.get(key, key): renamed(of) for key, of in value.items()}
    if isinstance(value, list):
        return [renamed(of) for of in value]
    return HOSTILE.get(value, value) if isinstance(value, str) else value


STANDING = {
    "status": "running",
    "stage": 0,
    "since": 1.0,
    "why": "started",
    "epoch": 1,
    "began": 1.0,
}


def plan_of(names: dict[str, str]) -> dict[str, Any]:
    """A plan that says everything in hostile words."""
    return {
        "name": names["simulated"],
        "model": names["simulated"],
        "hypothesis": names["eagle3"],
        "treatment": {"arm": names["eagle3"], "policy": None, "off": False, "default": False},
        "control": {"arm": names["plain"], "policy": None, "off": False, "default": False},
        "tenants": [names["math"]],
        "groups": [names["chat"]],
        "classes": [names["math"]],
        "unit": "session",
        "stages": [{"share": 0.5, "dwell_s": 1.0, "min_requests": 1}],
    }


def look_of(names: dict[str, str]) -> dict[str, Any]:
    """A look at it."""
    gain = {"value": 0.1, "low": 0.0, "high": 0.2}
    evidence = {"control": 1, "treatment": 1, "gain": gain, "guards": [], "ratio_alarm": False}
    return {
        "at": 1.0,
        "evidence": {**evidence, "alarm": names["eagle3"]},
        "sample_ratio": None,
        "missing_units": 0,
        "classes": {names["math"]: gain},
        "ended": {"control": {"ok": 1}, "treatment": {"ok": 1}},
        "effects": [[1.0, 0, 1, 1, 0.1, 0.0, 0.2], [2.0, 0, 1, 1, 0.1, 0.0, 0.2]],
    }


def line_of(names: dict[str, str]) -> dict[str, Any]:
    """A line of its audit."""
    return {
        "at": 1.0,
        "who": names["simulated"],
        "what": "started",
        "why": names["eagle3"],
        "experiment": names["simulated"],
        "evidence": None,
    }


@pytest.mark.timeout(180)
async def test_hostile_names_are_text(open_shop: Open) -> None:
    """Markup in names of models, classes and pools is shown and does nothing; nor in any export."""
    shop = await open_shop()
    state = renamed(copy.deepcopy(shop.app.state()))
    history = renamed(await shop.app.history(state["time"] - 900, None))
    context = await shop.browser.new_context()
    feed = f"event: state\ndata: {json.dumps(state)}\n\n"

    async def told(route: Route) -> None:
        await route.fulfill(body=feed, content_type="text/event-stream")

    await context.route("**/api/events", told)
    await context.route("**/api/history*", answering(history))
    decisions = {"decisions": renamed(shop.app.decisions(None, 40))}
    await context.route("**/api/decisions*", answering(decisions))
    page = await context.new_page()
    page.on("dialog", lambda dialog: shop.complaints.append(dialog.message))
    page.on(
        "console",
        lambda message: shop.complaints.append(message.text) if message.type == "error" else None,
    )
    await context.route("**/api/beliefs", answering(renamed(await shop.app.beliefs())))
    experiment = {"plan": plan_of(HOSTILE), "standing": STANDING, "share": 0.5}
    listed = {"speculation": True, "experiments": [experiment], "audit": []}
    await context.route("**/api/experiments", answering(listed))
    shown = {**experiment, "look": look_of(HOSTILE), "audit": [line_of(HOSTILE)]}
    await context.route("**/api/experiments/*", answering(shown))
    gain = {"value": 0.1, "low": 0.0, "high": 0.2}
    month = {HOSTILE["simulated"]: {HOSTILE["math"]: {"gain": gain, "held_out": 9, "others": 99}}}
    await context.route("**/api/holdout/*", answering({"month": "2026-01", "models": month}))
    made = renamed(recommend(shop.app.state()))
    await context.route("**/api/recommend*", answering(made))
    for path in (
        "overview",
        "classes",
        "policy",
        "experiments",
        "recommend",
        "fleet",
        "explain",
        "events",
    ):
        await page.goto(f"{shop.app.admin_url}/#/{path}")
        await settled(page)
        assert await page.locator("main img, main script, svg[onload]").count() == 0
        assert HOSTILE["simulated"] in await page.inner_text("main")
    await page.goto(f"{shop.app.admin_url}/#/classes")
    names = page.locator("bdi.name", has_text="ریاضی")
    await expect(names.first).to_have_text(HOSTILE["math"])
    assert await names.first.get_attribute("dir") == "auto"
    await page.locator(".heat a", has_text="baseline").first.click()
    await settled(page)
    assert shop.complaints == []


async def test_nobody_gets_in_without_the_token(open_shop: Open) -> None:
    """A form asks for it; a wrong one is refused; after logging out it is asked for again."""
    shop = await open_shop(traffic=False, token="a-token-of-some-length")
    page = await shop.page()
    field = page.get_by_label("Token")
    await field.fill("a-wrong-token-entirely")
    await page.keyboard.press("Enter")
    await expect(page.locator("main [role=alert]")).to_have_text("that is not the token")
    await field.fill("a-token-of-some-length")
    await page.keyboard.press("Enter")
    await expect(page.locator("main h1")).to_have_text("Overview")
    await page.get_by_role("button", name="Log out").click()
    await expect(field).to_be_visible()
    assert [of for of in shop.complaints if "401" not in of] == []


async def test_a_silent_feed_is_said(open_shop: Open) -> None:
    """What is shown is old then, and the page says so and since when; it recovers by itself."""
    shop = await open_shop(traffic=False)
    page = await shop.page()
    await settled(page)
    await expect(page.locator("#feed")).to_contain_text("serving")
    await page.context.route("**/api/events", lambda route: route.abort())
    # As when somebody comes back to the page: it asks for a new feed.
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(page.locator("#feed")).to_contain_text(
        "what is shown is old", timeout=4 * WITHIN_MS
    )
    await page.context.unroute("**/api/events")
    await expect(page.locator("#feed")).to_contain_text("serving", timeout=2 * WITHIN_MS)


async def test_keys_alone_reach_everything(open_shop: Open) -> None:
    """The first stop skips to the content; links and buttons follow in the order of the page."""
    shop = await open_shop(traffic=False)
    page = await shop.page()
    await settled(page)
    await page.keyboard.press("Tab")
    await expect(page.locator(".skip")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#main")).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="15 min")).to_be_focused()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="1 h")).to_have_attribute("aria-pressed", "true")
    assert shop.complaints == []
