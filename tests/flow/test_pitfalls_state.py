"""Learned state, metrics and neighbours that can harm nobody (docs/pitfalls.md, 30, 31, 36, 40)."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from policies.types import ArmView, Proposal
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import Gate, ScriptedBackend, opens, send, until_gone
from tests.support.flow_client import ask, get, raw_client, request_bytes
from tests.support.flow_world import config_of, decisions, pool

FLAWS = (KeyError("arm"), TypeError(), AttributeError(), RuntimeError(), ZeroDivisionError())


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: type(flaw).__name__)
async def test_a_policy_that_fails_fails_no_request(  # noqa: PLR0917 - fixtures
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flaw: Exception,
) -> None:
    """Plain decoding serves, from the start on; operators see for how many classes it failed."""
    from policies.thompson import ThompsonPolicy  # noqa: PLC0415 - patched below

    def spoiled(*_: object) -> Proposal:
        raise flaw

    monkeypatch.setattr(ThompsonPolicy, "propose", spoiled)
    plain.always(wire.llama_chat())
    pools = (pool("plain", plain), pool("fast", fast, method="draft_model"))
    app = await start(config_of(*pools, folder=tmp_path, policy={"name": "thompson"}))
    for _ in range(5):
        assert (await ask(app.data_url, request_bytes(wire.chat()))).status == 200
        await app.refresh()
    assert {line["arm"] for line in await decisions(app)} == {"plain"}
    assert fast.requests == []
    assert "chat" in app.state()["routes"][0]["policy_failed_for"]
    text = (await get(app.admin_url, "/metrics")).body.decode()
    [counted] = [x for x in text.splitlines() if x.startswith("specroute_policy_failed_classes{")]
    assert float(counted.rsplit(" ", 1)[1]) >= 1


async def test_a_policy_that_proposes_nonsense_fails_no_request(
    start: Start, plain: ScriptedBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it returns is looked at before anything is drawn from it."""
    from policies.thompson import ThompsonPolicy  # noqa: PLC0415 - patched below

    def nonsense(_: ThompsonPolicy, view: ArmView, __: object) -> object:
        return view.arms

    monkeypatch.setattr(ThompsonPolicy, "propose", nonsense)
    plain.always(wire.llama_chat())
    app = await start(config_of(pool("plain", plain), folder=tmp_path, policy={"name": "thompson"}))
    assert (await ask(app.data_url, request_bytes(wire.chat()))).status == 200


async def test_labels_do_not_grow_with_what_clients_send(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Models, paths, methods, keys, agents and sessions without number make no new series."""
    plain.always(wire.llama_chat())
    app = await start(config_of(pool("plain", plain), folder=tmp_path))

    async def names(count: int, seed: str) -> set[str]:
        for index in range(count):
            name = f"{seed}-{index}"
            lines = (
                f"Authorization: Bearer {name}",
                f"User-Agent: {name}",
                f"x-specroute-session: {name}",
                f"x-specroute-class: {name}",
            )
            await ask(app.data_url, request_bytes(wire.chat(user=name), headers=lines))
            other = json.dumps({"model": name, "messages": []}).encode()
            await ask(app.data_url, request_bytes(other, headers=lines))
            await ask(app.data_url, request_bytes(b"{}", f"/{name}", headers=lines))
            anything = wire.dump({"model": "tiny"})
            await ask(app.data_url, request_bytes(anything, f"/v1/{name}", headers=lines))
            await ask(app.data_url, request_bytes(b"", f"/v1/{name}", method=seed.upper()))
        text = (await get(app.admin_url, "/metrics")).body.decode()
        assert seed not in text
        return {x.rpartition(" ")[0] for x in text.splitlines() if not x.startswith("#")}

    known = await names(3, "zebra")
    assert await names(20, "okapi") == known


async def test_a_hung_model_keeps_no_other_one_waiting(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Nothing between them is shared but the places of admission, which other tenants have too."""
    hung = config_of(pool("fast", fast), folder=tmp_path).model_dump(mode="json", by_alias=True)
    config = config_of(
        pool("plain", plain), folder=tmp_path, admission={"max_concurrent_per_tenant": 20}
    )
    other = hung["routes"][0] | {"model": "hung"}
    raw = config.model_dump(mode="json", by_alias=True)
    app = await start(type(config).model_validate(raw | {"routes": [*raw["routes"], other]}))
    plain.always(wire.llama_chat())
    body = wire.dump({"model": "hung", "messages": [], "stream": True})
    gates = [Gate() for _ in range(20)]
    for gate in gates:
        fast.then(opens(gate), until_gone())
    async with AsyncExitStack() as stack:
        for gate in gates:
            client = await stack.enter_async_context(raw_client(app.data_url))
            await client.send(request_bytes(body, headers=("Authorization: Bearer one",)))
            await gate.wait()
        other_tenant = ("Authorization: Bearer two",)
        reply = await ask(app.data_url, request_bytes(wire.chat(), headers=other_tenant))
    assert reply.status == 200


async def test_connections_do_not_pile_up(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Neither those of answers that were left unfinished nor those of answers that were whole."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    plain.always(wire.llama_chat())
    for _ in range(20):
        there = Gate()
        plain.then(send(wire.llama_chat()[:-5]), opens(there), until_gone())
        async with raw_client(app.data_url) as client:
            await client.send(request_bytes(wire.chat()))
            await there.wait()
            await client.head()
            client.leave()
            await plain.requests[-1].gone.wait()
        assert (await ask(app.data_url, request_bytes(wire.chat()))).status == 200
    assert len(plain._open) <= 2
    used = [received.connection for received in plain.requests]
    assert len(set(used)) == 20 + 1
