"""Experiments over real sockets: two proxies on one store, ramps, restarts, orders, the switch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from router.app import Application
from router.cli.status import render_state
from router.config.models import Config
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import ScriptedBackend
from tests.support.flow_client import Reply, ask, get, request_bytes
from tests.support.flow_world import SEED, always, config_of, decisions, pool
from tests.support.valkey import ValkeyServer, short_folder, unix_server

SESSIONS = 60
PLAN: dict[str, Any] = {
    "name": "try",
    "model": wire.MODEL,
    "hypothesis": "drafts help",
    "treatment": {"arm": "fast"},
    "unit": "session",
    "salt": "fixed",
    "stages": [{"share": share, "dwell_s": 1e6} for share in (0.05, 0.5, 1.0)],
}


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    """A store that outlives proxies."""
    with short_folder() as folder, unix_server(folder) as server:
        yield server


@pytest.fixture
def config(
    plain: ScriptedBackend, fast: ScriptedBackend, server: ValkeyServer, tmp_path: Path
) -> Config:
    """Two pools, of which nothing goes to `fast` by itself."""
    for backend in (plain, fast):
        backend.always(wire.llama_chat())
    return config_of(
        pool("plain", plain),
        pool("fast", fast, method="draft_model"),
        folder=tmp_path,
        policy=always("plain"),
        store={"url": server.url},
        tenants={"known": [{"id": "acme", "group": "paying"}], "header": "x-tenant"},
    )


@pytest.fixture
async def two(start: Start, config: Config, monkeypatch: pytest.MonkeyPatch) -> list[Application]:
    """Two proxies on one store, which look at what was measured when the test says so."""
    monkeypatch.setattr("router.app.LOOK_S", 3600.0)
    return [await start(config), await start(config)]


def text_of(state: dict[str, Any]) -> str:
    """What `specroute status` prints."""
    console = Console(width=200, file=StringIO(), record=True)
    console.print(render_state(state))
    return console.export_text()


async def order(app: Application, path: str, body: object | None = None) -> Reply:
    """What the admin port answers to an order."""
    data = json.dumps({} if body is None else body).encode()
    return await ask(app.admin_url, request_bytes(data, target=path))


def chat(session: str, *headers: str) -> bytes:
    """A request of a session."""
    lines = (f"x-specroute-session: {session}", *headers)
    return request_bytes(wire.chat(stream=False), headers=lines)


async def sides(*apps: Application) -> dict[str, str | None]:
    """The side of each session, which must be the same at every proxy; and what it was given."""
    found: dict[str, str | None] = {}
    for number in range(SESSIONS):
        session = f"s{number}"
        replies = [await ask(app.data_url, chat(session)) for app in apps]
        told = {reply.head.one("x-specroute-experiment") for reply in replies}
        pools = {reply.head.one("x-specroute-pool") for reply in replies}
        assert len(told) == 1, session
        [found[session]] = told
        assert pools == {"fast" if found[session] == "try/treatment" else "plain"}
    return found


def treated(found: dict[str, str | None]) -> set[str]:
    """Sessions that are treated; all others are in the control."""
    assert set(found.values()) <= {"try/treatment", "try/control"}
    return {session for session, side in found.items() if side == "try/treatment"}


async def refreshed(*apps: Application) -> None:
    """All have read the book."""
    for app in apps:
        await app.refresh()


async def test_nobody_changes_sides_but_whom_a_ramp_moves_in(
    two: list[Application], config: Config
) -> None:
    """At two proxies, and at one that starts in the middle: 5 → 50 → 100 %."""
    first, second = two
    assert (await order(first, "/api/experiments", {"plan": PLAN})).status == 201
    await refreshed(*two)
    small = treated(await sides(*two))
    assert treated(await sides(*two)) == small
    assert (await order(second, "/api/experiments/try/ramp")).status == 200
    await refreshed(*two)
    half = treated(await sides(*two))
    assert small < half
    assert 18 <= len(half) <= 42  # mean 30, sd 3.9
    async with AsyncExitStack() as stack:
        third = Application(config, seed=SEED + 1)
        await stack.enter_async_context(third.running())
        assert treated(await sides(third)) == half
    assert (await order(first, "/api/experiments/try/ramp", {"stage": 2})).status == 200
    await refreshed(*two)
    assert len(treated(await sides(*two))) == SESSIONS
    assert (await order(first, "/api/experiments/try/ramp", {"stage": 1})).status == 200
    await refreshed(*two)
    assert treated(await sides(*two)) == half


async def test_a_pause_treats_nobody_and_a_stop_ends_it(two: list[Application]) -> None:
    """Everybody keeps their side for when it goes on; after a stop there are no sides."""
    first, second = two
    plan = {**PLAN, "stages": [{"share": 0.5}]}
    await order(first, "/api/experiments", {"plan": plan, "who": "ops"})
    await refreshed(*two)
    before = treated(await sides(*two))
    await order(second, "/api/experiments/try/pause", {"who": "ops", "why": "release"})
    await refreshed(*two)
    assert set((await sides(*two)).values()) == {None}
    await order(second, "/api/experiments/try/resume", {"who": "ops"})
    await refreshed(*two)
    assert treated(await sides(*two)) == before
    await order(first, "/api/experiments/try/stop", {"who": "ops"})
    await refreshed(*two)
    assert set((await sides(*two)).values()) == {None}
    shown = json.loads((await get(first.admin_url, "/api/experiments/try")).body)
    assert [line["what"] for line in shown["audit"]] == ["started", "paused", "resumed", "stopped"]
    assert shown["audit"][1]["why"] == "release"
    assert (await order(first, "/api/experiments/try/resume")).status == 409


async def test_only_whom_the_plan_names_is_in_it(two: list[Application]) -> None:
    """By group, told by the gateway; others, and requests for other classes, are in nothing."""
    first, _ = two
    plan = {**PLAN, "groups": ["paying"], "unit": "tenant", "stages": [{"share": 1.0}]}
    await order(first, "/api/experiments", {"plan": plan})
    await refreshed(first)
    inside = await ask(first.data_url, chat("a", "x-tenant: acme"))
    outside = await ask(first.data_url, chat("a"))
    told = [reply.head.one("x-specroute-experiment") for reply in (inside, outside)]
    assert told == ["try/treatment", None]


async def test_what_is_measured_comes_back_in_the_report(two: list[Application]) -> None:
    """From both proxies together: requests of each side by how they ended, and the last look."""
    first, second = two
    plan = {**PLAN, "stages": [{"share": 0.5}]}
    await order(first, "/api/experiments", {"plan": plan})
    await refreshed(*two)
    found = await sides(*two)
    for app in two:
        await app.flush()
    for app in two:
        await app.look()
    shown = json.loads((await get(second.admin_url, "/api/experiments/try")).body)
    evidence = shown["look"]["evidence"]
    n = 2 * len(treated(found))
    assert (evidence["treatment"], evidence["control"]) == (n, 2 * SESSIONS - n)
    page = (await get(second.admin_url, "/api/experiments/try/report")).body.decode()
    assert page.startswith("# Experiment try: running")
    assert f"- requests of treatment by how they ended: {n} ok" in page
    lines = [(line["policy"], line["experiment"]) for line in await decisions(first)]
    assert set(lines) == {("experiment", "try/treatment"), ("fixed", "try/control")}


async def test_damaged_answers_roll_the_treatment_back(
    two: list[Application], fast: ScriptedBackend, plain: ScriptedBackend
) -> None:
    """Valid HTTP, fast, and no JSON: a guard sees it, and the report counts what was served."""
    first, second = two
    plain.always(wire.llama_chat('{"a": 1}'))
    fast.always(wire.llama_chat('{"a": 1'))
    guards = [{"kind": "invalid_rate", "limit": 0.01}]
    plan = {**PLAN, "primary": "e2e", "guards": guards, "stages": [{"share": 0.5}]}
    assert (await order(first, "/api/experiments", {"plan": plan})).status == 201
    await refreshed(*two)
    body = wire.chat(stream=False, response_format={"type": "json_object"})
    served = 0
    for number in range(SESSIONS):
        lines = (f"x-specroute-session: s{number}",)
        reply = await ask(two[number % 2].data_url, request_bytes(body, headers=lines))
        served += reply.head.one("x-specroute-experiment") == "try/treatment"
    for app in two:
        await app.flush()
    await second.look()
    await refreshed(*two)
    shown = json.loads((await get(first.admin_url, "/api/experiments/try")).body)
    assert shown["standing"]["status"] == "rolled_back"
    assert shown["standing"]["why"].startswith("invalid_rate is above 0.01")
    page = (await get(first.admin_url, "/api/experiments/try/report")).body.decode()
    assert (
        f"- bad answers of treatment, since the start: 0 failed, {served} of {served} lacked"
        in page
    )
    assert "| decided by | e2e: whole time |" in page
    assert set((await sides_told(*two)).values()) == {None}


async def sides_told(*apps: Application) -> dict[str, str | None]:
    """What a session is told by each proxy after all is over."""
    replies = {app.data_url: await ask(app.data_url, chat("s0")) for app in apps}
    return {url: reply.head.one("x-specroute-experiment") for url, reply in replies.items()}


async def test_the_kill_switch_holds_for_all_traffic(two: list[Application]) -> None:
    """Of every proxy, in an experiment or not; and is lifted again."""
    first, second = two
    await order(first, "/api/experiments", {"plan": {**PLAN, "stages": [{"share": 1.0}]}})
    await refreshed(*two)
    assert len(treated(await sides(*two))) == SESSIONS
    assert (await order(second, "/api/speculation", {"on": False, "who": "ops"})).status == 200
    await refreshed(*two)
    assert set((await sides(*two)).values()) == {None}
    metrics = (await get(first.admin_url, "/metrics")).body.decode()
    assert "specroute_speculation_off 1.0" in metrics
    assert "speculation is off" in text_of(second.state())
    assert 'specroute_experiment_share{experiment="try"} 1.0' in metrics
    await order(second, "/api/speculation", {"on": True})
    await refreshed(*two)
    assert len(treated(await sides(*two))) == SESSIONS


async def test_the_configuration_can_throw_the_switch(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Without any store; a reload suffices."""
    plain.always(wire.llama_chat())
    fast.always(wire.llama_chat())
    config = config_of(
        pool("plain", plain),
        pool("fast", fast, method="draft_model"),
        folder=tmp_path,
        policy=always("fast"),
    )
    app = await start(config)
    assert (await ask(app.data_url, chat("a"))).head.one("x-specroute-pool") == "fast"
    await app.apply(config.model_copy(update={"speculation": False}))
    assert (await ask(app.data_url, chat("a"))).head.one("x-specroute-pool") == "plain"


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({"model": "other"}, "model: 'other' is not configured"),
        ({"treatment": {"arm": "fats"}}, "did you mean 'fast'?"),
        ({"treatment": {"policy": "thomson"}}, "treatment.policy: "),
        ({"tenants": ["nobody"]}, "tenants: 'nobody'"),
        ({"classes": ["chats"]}, "did you mean 'chat'?"),
        ({"stages": []}, "stages"),
    ],
)
async def test_a_plan_that_does_not_fit_is_refused(
    two: list[Application], plan: dict[str, Any], expected: str
) -> None:
    """With the member and what there is; nothing begins."""
    reply = await order(two[0], "/api/experiments", {"plan": {**PLAN, **plan}})
    assert reply.status == 422
    assert expected in json.loads(reply.body)["error"]
    assert json.loads((await get(two[0].admin_url, "/api/experiments")).body)["experiments"] == []


async def test_a_plan_is_reckoned_before_it_begins(two: list[Application]) -> None:
    """Nothing is known of the traffic yet, and it says so."""
    reply = await order(two[0], "/api/experiments/plan", {"plan": PLAN, "effect": 0.1})
    told = json.loads(reply.body)["forecast"]
    assert (told["requests_per_hour"], told["sd_is_assumed"], told["effect"]) == (None, True, 0.1)
    assert [stage["hours_for_effect"] for stage in told["stages"]] == [None] * 3
    assert told["stages"][1]["requests_for_effect"] < told["stages"][0]["requests_for_effect"]


async def test_the_api_describes_itself(two: list[Application]) -> None:
    """Every path that is served, with the shape of what it takes."""
    document = json.loads((await get(two[0].admin_url, "/api/openapi.json")).body)
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]["/api/experiments"]) == {"get", "post"}
    body = document["paths"]["/api/experiments"]["post"]["requestBody"]
    reference = body["content"]["application/json"]["schema"]["$ref"]
    assert reference.rpartition("/")[2] in document["components"]["schemas"]
    assert "PlanBody" in document["components"]["schemas"]
