"""Tenants over real sockets: keys, rights, and what a client that forges gains: nothing."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from router.app import Application
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import ScriptedBackend, send, until_gone
from tests.support.flow_client import Reply, ask, get, raw_client, request_bytes
from tests.support.flow_world import always, config_of, decisions, only_decision, pool

KNOWN: list[dict[str, Any]] = [
    {"id": "all"},
    {"id": "plain-only", "pools": ["plain"]},
    {"id": "no-draft", "methods": ["ngram"]},
    {"id": "pinned", "pool": "plain"},
    {"id": "own", "policy": {"name": "fixed", "parameters": {"arm": "plain"}}},
    {"id": "chooser", "may_choose": True},
]


def chat(*headers: str) -> bytes:
    """A request with these header lines."""
    return request_bytes(wire.chat(stream=False), headers=headers)


async def order(app: Application, path: str, body: object | None = None) -> Reply:
    """What the admin port answers to an order."""
    data = json.dumps({} if body is None else body).encode()
    return await ask(app.admin_url, request_bytes(data, target=path))


async def key_of(app: Application, tenant: str) -> str:
    """A new key that the proxy knows."""
    reply = await order(app, f"/api/tenants/{tenant}/keys")
    assert reply.status == 201
    await app.refresh()
    return str(json.loads(reply.body)["key"])


@pytest.fixture
async def app(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> Application:
    """A proxy that sends everything to `fast` unless somebody may not go there."""
    for backend in (plain, fast):
        backend.always(wire.llama_chat())
    return await start(
        config_of(
            pool("plain", plain),
            pool("fast", fast, method="draft_model"),
            folder=tmp_path,
            policy=always("fast"),
            tenants={"known": KNOWN},
        )
    )


@pytest.mark.parametrize(
    ("tenant", "expected", "reason"),
    [
        ("all", "fast", None),
        ("plain-only", "plain", "pool_not_for_tenant"),
        ("no-draft", "plain", "method_not_for_tenant"),
        ("pinned", "plain", None),
        ("own", "plain", None),
    ],
)
async def test_a_tenant_s_rights_hold(
    app: Application, tenant: str, expected: str, reason: str | None
) -> None:
    """By its key; the reason stands in the decision."""
    key = await key_of(app, tenant)
    reply = await ask(app.data_url, chat(f"Authorization: Bearer {key}"))
    assert (reply.status, reply.head.one("x-specroute-pool")) == (200, expected)
    line = await only_decision(app)
    assert line["excluded"].get("fast") == reason


async def test_no_key_of_ours_reaches_an_engine_a_log_or_the_store_s_documents(
    app: Application, fast: ScriptedBackend, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Nor the state, nor metrics; what the client sends for the engine passes."""
    caplog.set_level(logging.DEBUG)
    key = await key_of(app, "all")
    await ask(app.data_url, chat(f"X-Api-Key: {key}", "Authorization: Bearer sk-engine"))
    [received] = fast.requests
    assert received.header("authorization") == ["Bearer sk-engine"]
    assert received.header("x-api-key") == []
    listed = await get(app.admin_url, "/api/tenants/keys")
    metrics = await get(app.admin_url, "/metrics")
    shown = (str(app.state()), caplog.text, str(await decisions(app)))
    for text in (*shown, listed.body.decode(), metrics.body.decode()):
        assert key not in text
    assert json.loads(listed.body)["keys"][0]["tenant"] == "all"


FORGERIES = {
    "class and pool": ("x-specroute-class: math", "x-specroute-pool: plain"),
    "odd case": ("X-SPECROUTE-POOL: plain",),
    "another tenant": ("x-specroute-tenant: pinned", "x-tenant: pinned"),
    "an experiment": ("x-specroute-experiment: try/treatment", "x-specroute-variant: control"),
    "a forged key": ("x-api-key: srk-" + "A" * 43,),
    "a key id": ("authorization: Bearer k0000000",),
    "twice": ("x-specroute-pool: plain", "x-specroute-pool: plain"),
    "underscores": ("x_specroute_pool: plain", "x_specroute_class: math"),
    "a request id": ("x-specroute-request-id: 0000000000000000",),
    "a reason, a method": ("x-specroute-reason: none", "x-specroute-method: none"),
    "a key of ours and a name": ("authorization: Bearer srk-pinned", "x-specroute-tenant: all"),
    "two credentials": ("authorization: Bearer a", "authorization: Bearer srk-" + "B" * 43),
    "hop by hop": ("connection: x-specroute-pool", "x-specroute-pool: plain"),
}


@pytest.mark.parametrize("name", FORGERIES)
async def test_who_forges_gains_nothing(app: Application, fast: ScriptedBackend, name: str) -> None:
    """It is served as if it had not, and no line of ours reaches the engine."""
    honest = await ask(app.data_url, chat())
    forged = await ask(app.data_url, chat(*FORGERIES[name]))
    told = ("x-specroute-pool", "x-specroute-class", "x-specroute-experiment")
    assert [forged.head.one(of) for of in told] == [honest.head.one(of) for of in told]
    assert forged.status == honest.status == 200
    assert len(fast.requests) == 2
    for header, _ in fast.requests[-1].headers:
        assert not header.lower().startswith("x-specroute-")


async def test_a_wish_of_who_may_have_it_is_followed_where_it_can_be(app: Application) -> None:
    """A pool and a class that there are; what there is not is as if not asked for."""
    key = await key_of(app, "chooser")
    mine = f"Authorization: Bearer {key}"
    wished = await ask(
        app.data_url, chat(mine, "x-specroute-pool: plain", "x-specroute-class: math")
    )
    assert wished.head.one("x-specroute-pool") == "plain"
    assert wished.head.one("x-specroute-class") == "math"
    for line in ("x-specroute-pool: nothing", "x-specroute-class: nothing"):
        reply = await ask(app.data_url, chat(mine, line))
        assert (reply.status, reply.head.one("x-specroute-pool")) == (200, "fast")


async def test_strangers_are_refused_where_it_is_so_configured(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """In the shape of the endpoint's dialect; the engine hears nothing; rotated keys go over."""
    plain.always(wire.llama_chat())
    tenants = {"known": [{"id": "acme"}], "unknown": "refuse"}
    app = await start(config_of(pool("plain", plain), folder=tmp_path, tenants=tenants))
    refused = await ask(app.data_url, chat())
    assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
    assert refused.head.one("x-specroute-reason") == "unauthenticated"
    anthropic = await ask(app.data_url, request_bytes(wire.chat(), target="/v1/messages"))
    assert json.loads(anthropic.body)["error"]["type"] == "authentication_error"
    assert plain.requests == []
    key = await key_of(app, "acme")
    assert (await ask(app.data_url, chat(f"x-api-key: {key}"))).status == 200
    [record] = json.loads((await get(app.admin_url, "/api/tenants/keys")).body)["keys"]
    path = f"/api/tenants/keys/{record['key_id']}"
    fresh = json.loads((await order(app, f"{path}/rotate", {"grace_s": 0})).body)["key"]
    await app.refresh()
    for given, status in ((key, 401), (fresh, 200)):
        assert (await ask(app.data_url, chat(f"x-api-key: {given}"))).status == status
    assert (await order(app, f"{path}/rotate")).status == 409
    assert (await order(app, "/api/tenants/nobody/keys")).status == 404


@pytest.mark.parametrize("expects", [True, False], ids=["waits for leave", "begins"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "stranger"])
async def test_a_stranger_s_body_is_not_waited_for(
    start: Start, plain: ScriptedBackend, tmp_path: Path, *, known: bool, expects: bool
) -> None:
    """The refusal comes before the body does, and instead of the leave to send it."""
    plain.always(wire.llama_chat())
    tenants = {"known": [{"id": "acme"}], "unknown": "refuse"}
    app = await start(config_of(pool("plain", plain), folder=tmp_path, tenants=tenants))
    key = await key_of(app, "acme") if known else "nobody-s"
    body = wire.chat(prompt="x" * 1_000_000)
    lines = (f"Authorization: Bearer {key}", *(("Expect: 100-continue",) if expects else ()))
    begun = 0 if expects else 500_000
    whole = request_bytes(body, headers=lines)
    async with raw_client(app.data_url) as client:
        await client.send(whole[: len(whole) - len(body) + begun])
        if not known:
            refused = await client.reply()
            assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
            return
        if expects:
            assert (await client.head()).status == 100
        await client.send(body[begun:])
        assert (await client.reply()).status == 200


async def test_a_tenant_s_places_are_its_own_limit(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Lower than everybody's; the message names the number that holds for it."""
    app = await start(
        config_of(
            pool("plain", plain),
            folder=tmp_path,
            admission={"max_wait_s": 0},
            tenants={"known": [{"id": "acme", "max_concurrent": 1}], "header": "x-tenant"},
        )
    )
    with app._admission.try_enter("acme") or pytest.fail("no place"):  # type: ignore[arg-type]
        refused = await ask(app.data_url, chat("x-tenant: acme"))
    assert (refused.status, refused.error["code"]) == (429, "tenant_saturated")
    assert "the limit is 1" in refused.error["message"]


@pytest.mark.parametrize("engine", ["llamacpp", "generic"])
async def test_who_hangs_up_early_pays_for_what_has_come(
    start: Start, plain: ScriptedBackend, tmp_path: Path, engine: str
) -> None:
    """The engine never told how many tokens there were; what has passed shows it."""
    app = await start(
        config_of(
            pool("plain", plain, engine=engine),
            folder=tmp_path,
            tenants={"known": [{"id": "acme", "tokens_per_minute": 60_000}], "header": "x-tenant"},
        )
    )
    words = [wire.llama_chunk({"content": "words and more "}) for _ in range(4000)]
    last = wire.llama_chunk({"content": "the last"})
    begun = wire.STREAM_HEAD + wire.chunk(words[0])
    plain.then(send(begun), send(b"".join(map(wire.chunk, [*words, last]))), until_gone())
    async with raw_client(app.data_url) as client:
        lines = ("x-tenant: acme",)
        await client.send(request_bytes(wire.chat(stream=True), headers=lines))
        await client.head()
        await client.until(b"the last")
        client.leave()
        await plain.requests[0].gone.wait()
    line = await only_decision(app)
    assert (line["status"], line["tokens"]) == ("aborted", None)
    refused = await ask(app.data_url, chat("x-tenant: acme"))
    assert (refused.status, refused.error["code"]) == (429, "tenant_saturated")


async def test_a_request_that_an_engine_refuses_costs_nothing(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """However many there are."""
    app = await start(
        config_of(
            pool("plain", plain),
            folder=tmp_path,
            tenants={"known": [{"id": "acme", "tokens_per_minute": 6000}], "header": "x-tenant"},
        )
    )
    plain.always(wire.whole(b'{"error": {"message": "no"}}', "400 Bad Request"))
    statuses = {(await ask(app.data_url, chat("x-tenant: acme"))).status for _ in range(10)}
    assert statuses == {400}


@pytest.mark.parametrize(
    "lines",
    [
        ("x-tenant: chooser", "x-tenant: acme"),
        ("x-tenant: acme", "X-Tenant: chooser"),
        ("x-tenant: chooser, acme",),
        ("x_tenant: chooser",),
        ("x-tenant:  ",),
        ("x-tenant: CHOOSER",),
    ],
)
async def test_a_client_behind_the_gateway_cannot_be_another_tenant(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path, lines: tuple[str]
) -> None:
    """Its own line beside the gateway's, or one that only looks like it, makes it nobody."""
    for backend in (plain, fast):
        backend.always(wire.llama_chat())
    known = [{"id": "acme"}, {"id": "chooser", "may_choose": True}]
    app = await start(
        config_of(
            pool("plain", plain),
            pool("fast", fast, method="draft_model"),
            folder=tmp_path,
            policy=always("fast"),
            tenants={"known": known, "header": "X-Tenant"},
        )
    )
    wished = await ask(app.data_url, chat(*lines, "x-specroute-pool: plain"))
    assert wished.head.one("x-specroute-pool") == "fast"
    line = await only_decision(app)
    assert line["tenant"] == "anonymous"
    honest = await ask(app.data_url, chat("x-tenant: chooser", "x-specroute-pool: plain"))
    assert honest.head.one("x-specroute-pool") == "plain"
    [received] = plain.requests
    assert received.header("x-tenant") == []


async def test_a_client_cannot_choose_its_side_of_an_experiment(
    app: Application, fast: ScriptedBackend
) -> None:
    """Neither by name nor by what engines send back."""
    plan = {
        "name": "try",
        "model": wire.MODEL,
        "treatment": {"arm": "plain"},
        "unit": "session",
        "stages": [{"share": 0.5}],
    }
    assert (await order(app, "/api/experiments", {"plan": plan})).status == 201
    await app.refresh()
    told = "x-specroute-experiment"
    forged = ("x-specroute-experiment: try/treatment", "x-specroute-variant: treatment")
    for number in range(20):
        session = f"x-specroute-session: s{number}"
        honest = await ask(app.data_url, chat(session))
        asked = await ask(app.data_url, chat(session, *forged))
        assert honest.head.one(told) == asked.head.one(told)
    assert {line["experiment"] for line in await decisions(app)} == {"try/control", "try/treatment"}
    assert fast.requests
