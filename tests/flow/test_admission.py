"""More requests than places, over real sockets: who waits, who is sent away, and what is left."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import openai
import pytest

from router.app import Application
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import (
    GUARD_S,
    Gate,
    ScriptedBackend,
    close,
    opens,
    send,
    until_gone,
    wait,
)
from tests.support.flow_client import RawClient, ask, get, raw_client, request_bytes
from tests.support.flow_world import SEED, config_of, decisions, in_flight, pool

FIRST, *REST = wire.llama_events()
ONE = {"max_concurrent": 1, "max_concurrent_per_tenant": 1}
PATIENT = {**ONE, "max_wait_s": 60.0}


def chat(key: str = "", prompt: str = "Hello", *, stream: bool = False) -> bytes:
    """A request of the tenant with this key."""
    headers = (f"Authorization: Bearer {key}",) if key else ()
    return request_bytes(wire.chat(prompt=prompt, stream=stream), headers=headers)


def load(app: Application) -> tuple[int, int]:
    """Places taken, and requests waiting."""
    shown = app.state()["admission"]
    return shown["in_flight"], shown["waiting"]


async def reached(app: Application, taken: int, waiting: int) -> None:
    """Waits until so many are being served and waiting."""
    async with asyncio.timeout(GUARD_S):
        while load(app) != (taken, waiting):
            await get(app.data_url, "/health")


async def metrics(app: Application) -> str:
    """What Prometheus is told."""
    return (await get(app.admin_url, "/metrics")).body.decode()


async def test_who_finds_no_place_waits_and_is_served_in_order(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """The engine never sees more than there are places."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path, admission=PATIENT))
    gates = [Gate() for _ in range(3)]
    for gate in gates:
        plain.then(wait(gate), send(wire.llama_chat()))
    async with AsyncExitStack() as stack:
        clients = []
        for number in range(3):
            client = await stack.enter_async_context(raw_client(app.data_url))
            await client.send(chat(prompt=f"number {number}"))
            clients.append(client)
            await reached(app, 1, number)
        for number, (client, gate) in enumerate(zip(clients, gates, strict=True)):
            await reached(app, 1, 2 - number)
            assert in_flight(app) <= 1
            gate.open()
            assert (await client.reply()).status == 200
    await reached(app, 0, 0)
    assert [
        f"number {n}".encode() in received.body for n, received in enumerate(plain.requests)
    ] == [True] * 3
    assert len(plain.requests) == 3
    waits = [line["queue_s"] for line in await decisions(app)]
    assert [wait > 0 for wait in waits] == [False, True, True]
    for line in await decisions(app):
        assert line["queue_s"] + line["overhead_s"] <= line["e2e_s"]
    text = await metrics(app)
    assert "specroute_queue_seconds_count 2.0" in text
    assert "specroute_admission_in_flight 0.0" in text
    assert "specroute_admission_waiting 0.0" in text


async def test_a_stream_holds_its_place_to_its_end(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Not only until its head has been sent."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path, admission=PATIENT))
    go_on = Gate()
    rest = b"".join(wire.chunk(event) for event in REST)
    plain.then(send(wire.STREAM_HEAD + wire.chunk(FIRST)), wait(go_on), send(rest + wire.END))
    plain.always(wire.llama_chat())
    async with raw_client(app.data_url) as streaming, raw_client(app.data_url) as waiting:
        await streaming.send(chat(stream=True))
        await streaming.head()
        assert await streaming.piece() == FIRST
        await waiting.send(chat())
        await reached(app, 1, 1)
        go_on.open()
        await streaming.rest()
        assert (await waiting.reply()).status == 200
    await reached(app, 0, 0)


async def test_a_tenant_at_its_limit_is_told_and_the_others_are_served(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """429 in OpenAI's shape, with the seconds after which to try again."""
    limits = {"max_concurrent": 5, "max_concurrent_per_tenant": 1, "max_wait_s": 0}
    app = await start(config_of(pool("plain", plain), folder=tmp_path, admission=limits))
    held = Gate()
    plain.then(wait(held), send(wire.llama_chat()))
    plain.always(wire.llama_chat())
    async with raw_client(app.data_url) as client:
        await client.send(chat("first-key"))
        await reached(app, 1, 0)
        refused = await ask(app.data_url, chat("first-key"))
        assert (refused.status, refused.error["code"]) == (429, "tenant_saturated")
        assert refused.error["type"] == "rate_limit_error"
        assert refused.head.one("x-specroute-reason") == "tenant_saturated"
        assert 1 <= int(refused.head.one("retry-after") or "") <= 60
        for key in ("second-key", ""):
            assert (await ask(app.data_url, chat(key))).status == 200
        held.open()
        assert (await client.reply()).status == 200
        assert (await ask(app.data_url, chat("first-key"))).status == 200
    text = await metrics(app)
    assert 'specroute_admission_refused_total{reason="queue_full"} 1.0' in text
    assert 'specroute_refused_requests_total{reason="tenant_saturated"} 1.0' in text
    assert "first-key" not in text
    assert "first-key" not in str(app.state())
    assert len(await decisions(app)) == 4


async def test_all_places_taken_is_told_apart(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Also 429, for another reason: nobody's fault in particular."""
    limits = {**ONE, "max_waiting": 0}
    app = await start(config_of(pool("plain", plain), folder=tmp_path, admission=limits))
    held = Gate()
    plain.then(wait(held), send(wire.llama_chat()))
    async with raw_client(app.data_url) as client:
        await client.send(chat("first-key"))
        await reached(app, 1, 0)
        refused = await ask(app.data_url, chat("second-key"))
        assert (refused.status, refused.error["code"]) == (429, "saturated")
        assert refused.head.one("retry-after") is not None
        held.open()
        assert (await client.reply()).status == 200


async def test_who_waits_too_long_is_told(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """The engine never hears of it."""
    limits = {**ONE, "max_wait_s": 0.05}
    app = await start(config_of(pool("plain", plain), folder=tmp_path, admission=limits))
    held = Gate()
    plain.then(wait(held), send(wire.llama_chat()))
    async with raw_client(app.data_url) as client:
        await client.send(chat())
        await reached(app, 1, 0)
        refused = await ask(app.data_url, chat())
        assert (refused.status, refused.error["code"]) == (429, "tenant_saturated")
        held.open()
        assert (await client.reply()).status == 200
    assert len(plain.requests) == 1
    assert 'specroute_admission_refused_total{reason="deadline"} 1.0' in await metrics(app)


async def test_official_client_sees_a_rate_limit(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """It raises what it raises for OpenAI's own limits, and finds when to try again."""
    limits = {**ONE, "max_waiting": 0}
    app = await start(config_of(pool("plain", plain), folder=tmp_path, admission=limits))
    held = Gate()
    plain.then(wait(held), send(wire.llama_chat()))
    async with (
        raw_client(app.data_url) as client,
        openai.AsyncOpenAI(base_url=f"{app.data_url}/v1", api_key="x", max_retries=0) as official,
    ):
        await client.send(chat())
        await reached(app, 1, 0)
        with pytest.raises(openai.RateLimitError) as caught:
            await official.chat.completions.create(model="tiny", messages=[])
        assert int(caught.value.response.headers["retry-after"]) >= 1
        assert caught.value.code == "saturated"
        held.open()
        await client.reply()


async def test_a_client_that_leaves_the_queue_frees_its_place_at_once(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """The engine never hears of it, nothing is learned, and the next one moves up."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path, admission=PATIENT))
    held = Gate()
    plain.then(wait(held), send(wire.llama_chat()))
    plain.always(wire.llama_chat())
    async with (
        raw_client(app.data_url) as first,
        raw_client(app.data_url) as leaving,
        raw_client(app.data_url) as last,
    ):
        await first.send(chat(prompt="first"))
        await reached(app, 1, 0)
        await leaving.send(chat(prompt="leaving"))
        await reached(app, 1, 1)
        await last.send(chat(prompt="last"))
        await reached(app, 1, 2)
        leaving.leave()
        await reached(app, 1, 1)
        held.open()
        assert [(await client.reply()).status for client in (first, last)] == [200, 200]
    await reached(app, 0, 0)
    assert [b"leaving" in received.body for received in plain.requests] == [False, False]
    assert [line["status"] for line in await decisions(app)] == ["ok", "ok"]
    text = await metrics(app)
    assert "specroute_admission_left_total 1.0" in text
    assert "specroute_refused_requests_total{" not in text


PHASES = {
    "before the head": (False, []),
    "after the head": (True, [send(wire.STREAM_HEAD)]),
    "mid-stream": (True, [send(wire.STREAM_HEAD + wire.chunk(FIRST))]),
    "mid-answer": (False, [send(wire.llama_chat()[:-20])]),
}


@pytest.mark.parametrize("phase", PHASES)
async def test_a_client_that_leaves_in_any_phase_gives_its_place_to_the_next(
    start: Start, plain: ScriptedBackend, tmp_path: Path, phase: str
) -> None:
    """Who waits is served because of it."""
    streamed, steps = PHASES[phase]
    app = await start(config_of(pool("plain", plain), folder=tmp_path, admission=PATIENT))
    there = Gate()
    plain.then(*steps, opens(there), until_gone())
    plain.always(wire.llama_chat())
    async with raw_client(app.data_url) as leaving, raw_client(app.data_url) as waiting:
        await leaving.send(chat(stream=streamed))
        await there.wait()
        await waiting.send(chat())
        await reached(app, 1, 1)
        leaving.leave()
        assert (await waiting.reply()).status == 200
    await reached(app, 0, 0)
    assert in_flight(app) == 0


async def test_every_end_gives_the_place_back(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Requests that are refused here, that an engine refuses, and that an engine lets down."""
    limits = {**ONE, "max_waiting": 0}
    app = await start(config_of(pool("plain", plain), folder=tmp_path, admission=limits))
    for target in (
        request_bytes(b"no json"),
        request_bytes(b'{"model": "unknown"}'),
        request_bytes(wire.chat(), target="/v9/nothing"),
    ):
        assert (await ask(app.data_url, target)).status in (400, 404)
        assert load(app) == (0, 0)
    for answer, status in (
        (send(wire.whole(b"{}", "400 Bad Request")), 400),
        (send(wire.whole(b"{}", "500 Internal Server Error")), 500),
        (send(wire.llama_chat()), 200),
    ):
        plain.then(answer)
        assert (await ask(app.data_url, chat())).status == status
        await reached(app, 0, 0)
    for _ in range(4):
        plain.then(close())
    assert (await ask(app.data_url, chat())).status == 502
    await reached(app, 0, 0)


async def test_draining_tells_who_waits_and_finishes_who_is_served(
    plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Nobody waits in a process that stops."""
    held, stop, started = Gate(), Gate(), Gate()
    plain.then(wait(held), send(wire.llama_chat()))
    config = config_of(pool("plain", plain), folder=tmp_path, admission=PATIENT)
    app = Application(config, seed=SEED)

    async def run() -> None:
        async with app.running():
            started.open()
            await stop.wait()

    async def told(client: RawClient) -> None:
        reply = await client.reply()
        assert (reply.status, reply.error["code"]) == (503, "draining")

    async with asyncio.TaskGroup() as group:
        group.create_task(run())
        await started.wait()
        async with AsyncExitStack() as stack:
            served, *queued = [
                await stack.enter_async_context(raw_client(app.data_url)) for _ in range(4)
            ]
            await served.send(chat())
            await reached(app, 1, 0)
            for client in queued:
                await client.send(chat())
            await reached(app, 1, 3)
            stop.open()
            for client in queued:
                await told(client)
            assert not held.opened
            held.open()
            assert (await served.reply()).status == 200
    assert load(app) == (0, 0)


async def test_a_rush_leaves_nothing_behind(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Sixty clients of three tenants on four places, every third of whom leaves."""
    limits = {"max_concurrent": 4, "max_concurrent_per_tenant": 2, "max_waiting": 20}
    config = config_of(
        pool("plain", plain), folder=tmp_path, admission={**limits, "max_wait_s": 60}
    )
    app = await start(config)
    plain.always(wire.llama_chat())
    most = 0

    async def one(number: int) -> int | None:
        nonlocal most
        async with raw_client(app.data_url) as client:
            await client.send(chat(f"key-{number % 3}"))
            if number % 3 == 0 and number % 2:
                client.leave()
                return None
            status = (await client.reply()).status
            most = max(most, load(app)[0])
            return status

    statuses = await asyncio.gather(*(one(number) for number in range(60)))
    await reached(app, 0, 0)
    assert set(statuses) <= {200, 429, None}
    assert 200 in statuses
    assert most <= 4
    assert in_flight(app) == 0
    shown = app.state()["admission"]
    assert (shown["tenants"], shown["busiest"]) == (0, ())
