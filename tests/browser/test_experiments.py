"""The page of experiments: what it shows is what the admin port tells, and its buttons act."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from router.simfleet.traffic import Driver
from tests.browser.conftest import (
    Open,
    SimShop,
    asked,
    in_every_guise,
    serious_faults,
    text_of,
)
from tests.support.simfleet_world import PushedPace

PLAN = """\
name: try-eagle
model: simulated
hypothesis: drafts help everybody
treatment: {arm: eagle3}
control: {off: true}
unit: request
stages:
  - {share: 0.5, dwell_s: 100000, min_requests: 100000}
  - {share: 0.75, dwell_s: 100000}
guards:
  - {kind: cost_ratio, limit: 1.5}
  - {kind: error_rate, limit: 0.2}
"""
LOOK_MS = 20_000
"""Hours of the store are read again after ten seconds."""


async def told(shop: SimShop, path: str = "/try-eagle") -> Any:
    """What the admin port tells of it."""
    return await asked(shop, f"/api/experiments{path}")


async def begun(shop: SimShop, page: Page, *, share: str = "0.5") -> None:
    """The plan is written into the page and started by somebody called ops."""
    await page.get_by_label("Plan, in YAML or JSON").fill(PLAN.replace("0.5,", f"{share},", 1))
    await page.get_by_role("button", name="Start it …").click()
    await confirm(page, "Start it")
    await expect(page.locator("[data-key=about] .badge")).to_have_text("running")
    await shop.caught_up()


async def confirm(page: Page, act: str, why: str = "") -> None:
    """Says yes in the dialog, as ops."""
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Your name").fill("ops")
    await dialog.get_by_label("Reason").fill(why)
    await dialog.get_by_role("button", name=act, exact=True).click()
    await expect(dialog).to_have_count(0)


async def test_without_experiments_the_page_says_what_to_do(open_shop: Open) -> None:
    """The command that plans one; a plan that is refused says why, another what it would need."""
    shop = await open_shop(traffic=False)
    page = await shop.page("experiments")
    await expect(page.locator("main .empty").first).to_contain_text(
        "specroute experiment plan try.yaml"
    )
    await page.get_by_label("Plan, in YAML or JSON").fill("name: [")
    await page.get_by_role("button", name="What will it need?").click()
    await expect(page.locator("[data-key=start] .alert")).to_contain_text("this is no YAML")
    await page.get_by_label("Plan, in YAML or JSON").fill(PLAN)
    await page.get_by_role("button", name="What will it need?").click()
    await expect(page.locator(".forecast")).to_contain_text("What try-eagle will need")
    await expect(page.locator(".forecast")).to_contain_text("traffic unknown")
    assert (await told(shop, ""))["experiments"] == []
    assert [of for of in shop.complaints if "422" not in of] == []


@pytest.mark.timeout(240)
async def test_an_experiment_is_followed_and_ordered_from_the_page(open_shop: Open) -> None:
    """Started, seen with the figures of its last look, paused, resumed, ramped, stopped; audited."""
    shop = await open_shop(traffic=False)
    page = await shop.page("experiments")
    await begun(shop, page)
    driver = Driver(shop.fleet.world, shop.app.data_url, model="simulated", pace=PushedPace())
    await driver.run(duration_s=40.0)
    await shop.caught_up()
    requests = page.locator("[data-key=requests]")
    await expect(requests).to_contain_text("Sample ratio", timeout=LOOK_MS)
    await expect(page.locator("[data-key=effects] .forest")).to_contain_text("all classes")
    look, shown = await seen_look(shop, page)
    seen = f"{look['sample_ratio']['seen'] * 100:.1f} % treated, 50.0 % planned"
    assert seen in shown["requests"]
    assert f"all classes {effect(look['evidence']['gain'])}" in shown["effects"]
    for class_id, gain in look["classes"].items():
        assert f"{class_id} {effect(gain)}" in shown["effects"]
    [ratio, errors] = look["evidence"]["guards"]
    value, low, high = (f"{ratio[of]:.2f} ×" for of in ("value", "low", "high"))
    assert f"cost ratio 1.50 × {value} [{low}, {high}] kept" in shown["guards"]
    assert errors["breached"] is False
    await in_every_guise(shop, page, "experiments-running")
    await page.set_viewport_size({"width": 1280, "height": 900})
    await page.locator("[data-key=about]").get_by_role("button", name="Pause").click()
    assert await serious_faults(page) == []
    await page.keyboard.press("Escape")
    await move(page, "Pause", "paused", why="release day")
    await move(page, "Resume", "running")
    await page.get_by_role("button", name="Go up to it").click()
    await confirm(page, "Move it")
    await expect(page.locator("[data-key=stages] tr.chosen")).to_contain_text("75 %")
    assert (await told(shop))["share"] == 0.75
    await move(page, "Stop for good", "rolled back", why="seen enough")
    audit = page.locator("[data-key=audit]")
    await expect(audit).to_contain_text("ops: seen enough")
    await expect(audit).to_contain_text("ops: release day")
    assert [line["who"] for line in (await told(shop))["audit"]] == ["ops"] * 5
    assert shop.complaints == []


async def move(page: Page, button: str, status: str, why: str = "") -> None:
    """Orders it, and sees where it stands then."""
    await page.locator("[data-key=about]").get_by_role("button", name=button).click()
    await confirm(page, button, why)
    await expect(page.locator("[data-key=about] .badge")).to_have_text(status)


def effect(gain: dict[str, float] | None) -> str:
    """As the page writes it."""
    if gain is None:
        return "not enough data"
    value, low, high = (
        f"{'−' if of < 0 else '+'}{abs(of) * 100:.1f} %"
        for of in (gain["value"], gain["low"], gain["high"])
    )
    return f"{value} [{low}, {high}]"


async def seen_look(shop: SimShop, page: Page) -> tuple[Any, dict[str, str]]:
    """A look with requests in it, and the texts of the panels that show it and no later one."""
    look: Any = None
    shown: dict[str, str] = {}

    async def same() -> bool:
        nonlocal look, shown
        look = (await told(shop))["look"]
        shown = {
            key: await text_of(page, f"[data-key={key}]")
            for key in ("requests", "effects", "guards")
        }
        control, treatment = (look["evidence"][of] for of in ("control", "treatment"))
        counts = f"{control} control, {treatment} treatment"
        again = (await told(shop))["look"]
        return control > 0 and look == again and counts in shown["requests"]

    await shop.until(same, LOOK_MS / 1000)
    return look, shown


async def test_the_kill_switch_is_thrown_and_taken_back(open_shop: Open) -> None:
    """It asks first; every page then says so, and who did it."""
    shop = await open_shop(traffic=False)
    page = await shop.page("experiments")
    await page.get_by_role("button", name="Turn all speculation off").click()
    await page.keyboard.press("Escape")
    assert (await told(shop, ""))["speculation"] is True
    await page.get_by_role("button", name="Turn all speculation off").click()
    await confirm(page, "Turn it off", "tails")
    await expect(page.locator("[data-key=switch]")).to_contain_text("by ops: tails")
    await shop.caught_up()
    await expect(page.locator("#alerts")).to_contain_text("Speculation is off")
    await page.get_by_role("button", name="Allow speculation again").click()
    await confirm(page, "Allow it")
    await expect(page.locator("[data-key=switch]")).to_contain_text("speculation allowed")
    assert (await told(shop, ""))["speculation"] is True
    assert shop.complaints == []
