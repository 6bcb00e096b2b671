"""Engines that fail: what the client sees, who is charged, and what is never sent twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import openai
import pytest

from router.app import Application
from router.intake.server import ClientSink
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.clock import ManualClock
from tests.support.flow_backend import (
    GUARD_S,
    Gate,
    Received,
    ScriptedBackend,
    Step,
    close,
    does,
    opens,
    reset,
    scripted_backend,
    send,
    until_gone,
    wait,
)
from tests.support.flow_client import Reply, ask, get, raw_client, request_bytes
from tests.support.flow_world import (
    always,
    cell,
    config_of,
    decisions,
    in_flight,
    only_decision,
    pool,
)

FIRST, SECOND, *_ = wire.llama_events()
POISON = "poison"


@pytest.fixture
async def app(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> Application:
    """A proxy whose policy always draws `fast`."""
    plain.always(wire.llama_chat("from plain"))
    pools = (pool("plain", plain), pool("fast", fast, method="draft_model"))
    return await start(config_of(*pools, folder=tmp_path, policy=always("fast")))


async def test_chosen_pool_refuses_connections(
    app: Application, plain: ScriptedBackend, fast: ScriptedBackend
) -> None:
    """The baseline serves, the header names it, and the failure is the chosen arm's."""
    await fast.stop()
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert (reply.status, b"from plain" in reply.body) == (200, True)
    assert reply.head.one("x-specroute-pool") == "plain"
    assert reply.head.one("x-specroute-method") == "none"
    line = await only_decision(app)
    assert (line["arm"], line["served_by"], line["status"]) == ("fast", "plain", "ok")
    assert line["attempts"] == [["fast/0", "unreachable"], ["plain/0", "answered"]]
    await app.refresh()
    assert (cell(app, "fast")["failed"], cell(app, "fast")["ok"]) == (1, 0)
    assert (cell(app, "plain")["failed"], cell(app, "plain")["ok"]) == (0, 0)
    text = (await get(app.admin_url, "/metrics")).body.decode()
    assert 'specroute_fallbacks_total{model="tiny",pool="fast"} 1.0' in text
    assert 'specroute_replica_up{model="tiny",pool="fast",replica="fast/0"} 0.0' in text


async def test_pool_known_to_be_down_is_not_tried(
    app: Application, plain: ScriptedBackend, fast: ScriptedBackend
) -> None:
    """After one failure the arm is out, with the reason, until a probe finds it up again."""
    await fast.stop()
    await ask(app.data_url, request_bytes(wire.chat()))
    await ask(app.data_url, request_bytes(wire.chat()))
    second = (await decisions(app))[1]
    assert second["excluded"] == {"fast": "no_server_available"}
    assert (second["arm"], second["propensity"]) == ("plain", 1.0)
    assert (await get(app.data_url, "/ready")).status == 200
    await fast.start()
    fast.always(wire.llama_chat("from fast"))
    await app.probe()
    assert b"from fast" in (await ask(app.data_url, request_bytes(wire.chat()))).body


@pytest.mark.parametrize(
    ("health", "up"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", False),
        (b"", False),
        (b"SSH-2.0-OpenSSH\r\n", False),
    ],
)
async def test_health_before_the_first_request(
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    health: bytes,
    *,
    up: bool,
) -> None:
    """Servers are probed before the port opens: one that loads or lies gets no request."""
    fast.health = health
    plain.always(wire.llama_chat())
    fast.always(wire.llama_chat())
    pools = (pool("plain", plain), pool("fast", fast, method="ngram", engine="generic"))
    app = await start(config_of(*pools, folder=tmp_path, policy=always("fast")))
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert reply.head.one("x-specroute-pool") == ("fast" if up else "plain")


async def test_probe_that_comes_late(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """A server known to be alive may miss one probe, not two; one that never answered, none."""
    impatient = pool("fast", fast, method="ngram", health={"timeout_s": 0.1})
    app = await start(config_of(pool("plain", plain), impatient, folder=tmp_path))

    def fast_is_up() -> bool:
        pools = app.state()["routes"][0]["pools"]
        return bool(pools[1]["replicas"][0]["up"])

    answer, fast.health = fast.health, b"HTTP/1.1 200 OK\r\nContent-"
    fast.hangs = True
    await app.probe()
    assert fast_is_up()
    await app.probe()
    assert not fast_is_up()
    await app.probe()
    assert not fast_is_up()
    fast.health, fast.hangs = answer, False
    await app.probe()
    assert fast_is_up()


@pytest.mark.parametrize("idle", [1, 3])
async def test_connection_that_the_server_had_closed(
    app: Application, fast: ScriptedBackend, idle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many kept connections are dead, one fresh one settles it; the client sees nothing."""
    monkeypatch.setattr("router.relay.wire.connection.STALE_S", GUARD_S)
    together = [Gate() for _ in range(idle)]
    for gate in together:
        others = [wait(other) for other in together]
        fast.then(opens(gate), *others, send(wire.llama_chat()))
    async with asyncio.TaskGroup() as group:
        for _ in range(idle):
            group.create_task(ask(app.data_url, request_bytes(wire.chat())))
    assert fast.connections >= idle
    known = {received.connection for received in fast.requests}
    fast.always(
        lambda received: [close() if received.connection in known else send(wire.llama_chat("ok"))]
    )
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert (reply.status, b'"ok"' in reply.body) == (200, True)
    assert reply.head.one("x-specroute-pool") == "fast"
    line = (await decisions(app))[-1]
    assert (line["status"], line["served_by"]) == ("ok", "fast")
    assert line["attempts"] == [["fast/0", "stale"], ["fast/0", "answered"]]
    await app.refresh()
    assert (cell(app, "fast")["ok"], cell(app, "fast")["failed"]) == (idle + 1, 0)


@pytest.mark.parametrize("end", [close(), reset()], ids=["closed", "reset"])
async def test_engine_that_dies_at_every_request(
    app: Application, fast: ScriptedBackend, end: Step
) -> None:
    """A request that its engine does not survive is not sent there again; the baseline serves."""
    fast.always(lambda _: [end])
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert (reply.status, reply.head.one("x-specroute-pool")) == (200, "plain")
    assert len(fast.requests) == 1
    line = await only_decision(app)
    assert line["attempts"] == [["fast/0", "disconnected"], ["plain/0", "answered"]]


async def test_second_server_of_the_arm(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Another server of the same arm steps in before the baseline: that is no failure of the arm."""
    await plain.stop()
    fast.always(wire.llama_chat("from fast"))
    app = await start(config_of(pool("both", plain, fast), folder=tmp_path))
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert (reply.status, reply.head.one("x-specroute-pool")) == (200, "both")
    line = await only_decision(app)
    assert (line["served_by"], line["status"]) == ("both", "ok")


async def test_all_pools_down(
    app: Application, plain: ScriptedBackend, fast: ScriptedBackend
) -> None:
    """Only with every server gone does the client get an error: 502, with the reason."""
    await plain.stop()
    await fast.stop()
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert reply.status == 502
    assert reply.head.one("x-specroute-reason") == "upstream_unavailable"
    assert reply.error["code"] == "upstream_unavailable"
    line = await only_decision(app)
    assert (line["status"], line["served_by"], in_flight(app)) == ("failed", None, 0)
    assert (await get(app.data_url, "/ready")).json["reason"] == "no server of model 'tiny' answers"


ENDS: dict[str, list[Step]] = {
    "closed": [close()],
    "reset": [reset()],
    "framing broken": [send(b"zz\r\n")],
}
INSIDE: dict[str, list[Step]] = {
    "in the middle of an event": [send(wire.chunk(SECOND[:50])), close()],
    "in the middle of a chunk": [send(wire.chunk(SECOND)[:50]), close()],
}


@pytest.mark.parametrize("engine", ["llamacpp", "vllm"])
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
async def test_engine_dies_in_mid_stream(
    start: Start, plain: ScriptedBackend, tmp_path: Path, engine: str, end: list[Step]
) -> None:
    """The client gets what there was, an error, and the end mark; nothing is tried again."""
    only = pool("plain", plain, engine=engine, timeouts={"idle_s": 1})
    app = await start(config_of(only, folder=tmp_path))
    there = Gate()
    plain.then(send(wire.STREAM_HEAD + wire.chunk(FIRST) + wire.chunk(SECOND)), wait(there), *end)
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        body = await client.until(SECOND)
        there.open()
        body += await client.rest()
    assert body.startswith(FIRST + SECOND)
    error, last = [event for event in body.split(b"\n\n") if event.startswith(b"data:")][-2:]
    assert b'"type":"server_error"' in error
    assert last == b"data: [DONE]"
    assert len(plain.requests) == 1
    line = await only_decision(app)
    assert (line["status"], line["http_status"]) == ("failed", 200)
    assert line["error"] in ("upstream_protocol", "upstream_unavailable", "upstream_timeout")
    await app.refresh()
    assert (cell(app, "plain")["failed"], cell(app, "plain")["ttft_s"]["n"]) == (1, 0)


@pytest.mark.parametrize("end", INSIDE.values(), ids=INSIDE.keys())
async def test_engine_dies_inside_an_event(
    start: Start, plain: ScriptedBackend, tmp_path: Path, end: list[Step]
) -> None:
    """Half an event has reached the client, so nothing can be added to it: the connection is cut."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    there = Gate()
    plain.then(send(wire.STREAM_HEAD + wire.chunk(FIRST)), wait(there), *end)
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        await client.until(FIRST)
        there.open()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.rest()
    line = await only_decision(app)
    assert (line["status"], line["http_status"], len(plain.requests)) == ("failed", 200, 1)


@pytest.mark.parametrize("end", INSIDE.values(), ids=INSIDE.keys())
async def test_half_an_event_that_was_held_back_is_dropped(
    start: Start, plain: ScriptedBackend, tmp_path: Path, end: list[Step]
) -> None:
    """Where whole events are forwarded the client never saw the half one, and gets the error."""
    app = await start(config_of(pool("plain", plain, engine="vllm"), folder=tmp_path))
    there = Gate()
    plain.then(send(wire.STREAM_HEAD + wire.chunk(FIRST)), wait(there), *end)
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        body = await client.until(FIRST)
        there.open()
        body += await client.rest()
    error, last = [event for event in body.split(b"\n\n") if event.startswith(b"data:")][-2:]
    assert body.count(b"data: ") == 3  # the whole event, the error, the end mark
    assert b'"type":"server_error"' in error
    assert last == b"data: [DONE]"


async def test_half_an_event_that_was_held_back_is_no_answer_either(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Nor is it shown where the connection's end is the stream's: no client could read it."""
    app = await start(config_of(pool("plain", plain, engine="vllm"), folder=tmp_path))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    plain.then(send(head + FIRST + SECOND[:50]), close())
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert reply.body.startswith(FIRST + b'\n\ndata: {"error"')


async def test_stream_of_a_told_length_that_breaks_off(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """The client is not told the length, so that an error can still be said."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
    plain.then(send(head % (len(FIRST) + 20) + FIRST), close())
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert reply.head.one("content-length") is None
    assert reply.body.startswith(FIRST)
    assert b'"error"' in reply.body
    assert (await only_decision(app))["status"] == "failed"


async def test_head_of_a_stream_is_whole_without_a_body(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """An answer to HEAD says what the stream would be; nothing of it is missing."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    plain.then(send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"), close())
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(b"", "/v1/responses/resp_1", method="HEAD"))
        head = await client.head()
        assert (head.status, head.one("content-type")) == (200, "text/event-stream")
    assert len(plain.requests) == 1


async def test_stream_of_a_told_length_that_lacks_its_last_byte(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """It has come to its end mark, so it was served."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    body = b"".join(wire.llama_events())
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
    plain.then(send(head % (len(body) + 1) + body), close())
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert reply.body == body
    assert (await only_decision(app))["status"] == "ok"


@pytest.mark.parametrize("begun", [b"", b"data: {"], ids=["nothing", "half an event"])
async def test_stream_cut_before_its_first_event(
    app: Application, plain: ScriptedBackend, fast: ScriptedBackend, begun: bytes
) -> None:
    """The client knows nothing of it yet, so another server answers."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    fast.then(send(head + begun), close())
    plain.always(wire.stream(wire.llama_events()))
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert (reply.status, reply.body) == (200, b"".join(wire.llama_events()))
    line = await only_decision(app)
    assert line["attempts"] == [["fast/0", "disconnected"], ["plain/0", "answered"]]


async def test_request_that_ends_every_engine_is_not_carried_through_the_fleet(
    start: Start, tmp_path: Path
) -> None:
    """After two servers that took it and were gone, one of each arm, it is answered by 502."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(scripted_backend()) for _ in range(4)]
        for server in servers:
            for _ in range(2):
                server.then(close())
        pools = [pool("plain", *servers[:2]), pool("fast", *servers[2:], method="mtp")]
        app = await start(config_of(*pools, folder=tmp_path, policy=always("fast")))
        reply = await ask(app.data_url, request_bytes(wire.chat()))
        assert reply.status == 502
        tries = [len(server.requests) for server in servers]
        assert (sorted(tries[:2]), sorted(tries[2:])) == ([0, 1], [0, 1])


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "after a while"])
async def test_request_that_ends_every_engine_by_its_kept_connection(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, at_once: bool
) -> None:
    """No more of them than over new connections, whether they seem stale or not."""
    monkeypatch.setattr("router.relay.wire.connection.STALE_S", GUARD_S if at_once else 0.0)
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(scripted_backend()) for _ in range(4)]
        pools = [pool("plain", *servers[:2]), pool("fast", *servers[2:], method="mtp")]
        app = await start(config_of(*pools, folder=tmp_path, policy=always("fast")))
        # Log probabilities never go to a drafter.
        await warmed(app, servers[:2], wire.chat(logprobs=True))
        await warmed(app, servers[2:], wire.chat())
        ended: list[int] = []
        async with asyncio.TaskGroup() as group:

            def script(received: Received) -> Sequence[Step]:
                [server] = [each for each in servers if received in each.requests]
                ended.append(server.port)
                return [does(lambda: group.create_task(server.stop())), until_gone()]

            for server in servers:
                server.always(script)
            reply = await ask(app.data_url, request_bytes(wire.chat()))
        assert (reply.status, len(ended)) == (502, 2)
        [*_, line] = await decisions(app)
    first, second = line["attempts"][0], line["attempts"][-1]
    assert first[1] == ("stale" if at_once else "disconnected")
    assert second[1] == "disconnected"


async def warmed(app: Application, servers: list[ScriptedBackend], body: bytes) -> None:
    """Leaves a kept connection at each server of an arm."""
    held = Gate()
    for server in servers:
        server.always(lambda _: [wait(held), send(wire.llama_chat())])
    async with asyncio.TaskGroup() as group:
        for _ in servers:
            group.create_task(ask(app.data_url, request_bytes(body)))
        async with asyncio.timeout(GUARD_S):
            while not all(server.requests for server in servers):
                await get(app.data_url, "/health")
        held.open()


async def test_stream_of_unknown_length_that_just_ends(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Where only the connection's end ends a stream, a missing end mark shows that it was cut."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    plain.then(send(head + FIRST + SECOND), close())
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert reply.body.startswith(FIRST + SECOND)
    assert b'"code":"upstream_protocol"' in reply.body
    assert (await only_decision(app))["status"] == "failed"
    plain.then(send(head + b"".join(wire.llama_events())), close())
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert reply.body == b"".join(wire.llama_events())


async def test_stream_that_the_engine_ended_itself_is_left_alone(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """A stream whose framing is whole is the engine's own, end mark or not: nothing is added."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    plain.then(send(wire.stream([FIRST, SECOND])))
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert reply.body == FIRST + SECOND


@pytest.mark.parametrize("end", [close(), reset()], ids=["closed", "reset"])
async def test_whole_answer_that_is_cut(
    start: Start, plain: ScriptedBackend, tmp_path: Path, end: Step
) -> None:
    """The client sees a broken connection, never a short success."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    cut = Gate()
    plain.then(send(wire.llama_chat()[:-20]), wait(cut), end)
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat()))
        await client.head()
        cut.open()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.rest()
    line = await only_decision(app)
    assert (line["status"], line["http_status"]) == ("failed", 200)


async def test_cut_answer_is_an_error_for_a_client_of_http_1_0(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Where the end of the connection ends the body, a cut one must not end in an orderly way."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    cut = Gate()
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    plain.then(send(head + wire.chunk(b'{"choices":')), wait(cut), close())
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(), version="HTTP/1.0"))
        assert (await client.head()).one("content-length") is None
        cut.open()
        with pytest.raises(ConnectionError):
            await client.rest()


async def test_official_client_raises_when_the_engine_dies(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """OpenAI's client gets the text so far and then an APIError, not a silent end."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    died = Gate()
    plain.then(send(wire.STREAM_HEAD + wire.chunk(FIRST) + wire.chunk(SECOND)), wait(died), reset())
    text = ""
    async with openai.AsyncOpenAI(
        base_url=f"{app.data_url}/v1", api_key="x", max_retries=0
    ) as client:
        stream = await client.chat.completions.create(model="tiny", messages=[], stream=True)

        async def read() -> None:
            nonlocal text
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
                if text:
                    died.open()

        with pytest.raises(openai.APIError, match="broke off"):
            await read()
        plain.then(send(wire.llama_chat()[:-20]), close())
        with pytest.raises(openai.APIConnectionError):
            await client.chat.completions.create(model="tiny", messages=[])
    assert text == "The"


async def test_hung_engine_does_not_stall_others(
    app: Application, plain: ScriptedBackend, fast: ScriptedBackend
) -> None:
    """Many requests that hang at one engine take nothing from another one's."""
    held = Gate()
    fast.always(lambda _: [wait(held), send(wire.llama_chat("from fast"))])
    replies: list[Reply] = []

    async def one(body: bytes) -> None:
        replies.append(await ask(app.data_url, request_bytes(body)))

    async with asyncio.TaskGroup() as group:
        for _ in range(150):
            group.create_task(one(wire.chat()))
        async with asyncio.timeout(15):
            while len(fast.requests) < 150:
                await get(app.data_url, "/health")
        assert in_flight(app) == 150
        # Log probabilities never go to a drafter, so this one is the baseline's.
        reply = await ask(app.data_url, request_bytes(wire.chat(logprobs=True)))
        assert reply.head.one("x-specroute-pool") == "plain"
        held.open()
    assert [reply.status for reply in replies] == [200] * 150
    assert in_flight(app) == 0


async def test_an_answer_that_its_client_holds_up_is_marked(
    start: Start, plain: ScriptedBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long the engine had to wait for the client is no property of the pool."""
    plain.always(wire.stream(wire.llama_events()))
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    monkeypatch.setattr(ClientSink, "held_s", 1.0)
    await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert [line["held"] for line in await decisions(app)] == [False, True]


async def test_a_slow_upload_is_not_the_pools_time(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """The clock of a request starts when its body is there."""
    clock = ManualClock()
    plain.always(wire.llama_chat())
    app = await start(config_of(pool("plain", plain), folder=tmp_path), clock)
    body = wire.chat()
    head, _, _ = request_bytes(body, headers=("Expect: 100-continue",)).partition(body)
    async with raw_client(app.data_url) as client:
        await client.send(head)
        await client.head()  # 100 Continue
        clock.advance(30.0)
        await client.send(body)
        await client.reply()
    line = await only_decision(app)
    assert (line["e2e_s"], line["overhead_s"]) == (0.0, 0.0)


async def test_the_time_of_a_lost_server_is_not_the_proxy_s(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """What the proxy adds ends when the first server has the request."""
    clock = ManualClock()
    fast.then(does(lambda: clock.advance(30.0)), close())
    plain.always(wire.llama_chat())
    pools = (pool("plain", plain), pool("fast", fast, method="draft_model"))
    app = await start(config_of(*pools, folder=tmp_path, policy=always("fast")), clock)
    assert (await ask(app.data_url, request_bytes(wire.chat()))).status == 200
    line = await only_decision(app)
    assert (line["e2e_s"], line["overhead_s"]) == (30.0, 0.0)


@pytest.mark.parametrize("kind", ["text/html", "text/plain; charset=utf-8", ""])
async def test_page_with_status_200_is_no_answer(
    start: Start, plain: ScriptedBackend, tmp_path: Path, kind: str
) -> None:
    """What is neither JSON nor a stream passes unchanged and counts against the pool."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: 4\r\n\r\n"
    plain.then(send(head.encode() + b"oops"))
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert (reply.status, reply.body) == (200, b"oops")
    assert (await only_decision(app))["status"] == "failed"


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"])
async def test_what_nobody_knows_is_done_once(  # noqa: PLR0917 - fixtures
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    method: str,
    answer: bytes,
) -> None:
    """A request that its server may have carried out goes to another only where that is the same."""
    for backend in (plain, fast):
        backend.always(lambda _: [send(answer), close()])
    app = await start(config_of(pool("plain", plain, fast), folder=tmp_path))
    reply = await ask(app.data_url, request_bytes(b"{}", "/v1/files", method=method))
    assert reply.status == (500 if answer else 502)
    asked = len(plain.requests) + len(fast.requests)
    assert asked == (1 if method in ("POST", "PATCH") else 2)


async def test_what_is_done_once_gets_a_fresh_connection(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """One that is kept may be dead already, and nobody could tell whether the request arrived."""
    plain.always(wire.llama_chat())
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    for _ in range(2):
        reply = await ask(app.data_url, request_bytes(b"{}", "/v1/files"))
        assert reply.status == 200
    assert len({received.connection for received in plain.requests}) == 2


async def test_rubbish_with_status_200_is_no_answer(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """It is passed on as it came, and counts against its pool."""
    fast.always(wire.whole(b"[[[[ no json", headers=("Content-Type: application/json",)))
    config = config_of(
        pool("plain", plain),
        pool("fast", fast, method="ngram"),
        folder=tmp_path,
        policy={"name": "fixed", "parameters": {"arm": "fast"}},
    )
    app = await start(config)
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert (reply.status, reply.body) == (200, b"[[[[ no json")
    line = await only_decision(app)
    assert (line["status"], line["served_by"]) == ("failed", "fast")
