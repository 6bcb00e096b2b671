"""Requests that come at the same moment share steps of their way, and nothing else."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import Received, ScriptedBackend, Step, send
from tests.support.flow_client import raw_client, request_bytes
from tests.support.flow_world import config_of, decisions, in_flight, pool
from tests.support.simfleet_world import until

CLIENTS = 60
"""More than go together at once."""


def echo(received: Received) -> list[Step]:
    """Says how long the request was that it got, in the length of its answer."""
    return [send(wire.llama_chat(f"{len(received.body)}"))]


def body_of(number: int) -> bytes:
    """Of a length of its own; every fifth is no JSON, every seventh means a model that is not there."""
    if number % 5 == 0:
        return b"{" * (number + 1)
    model = "nobody" if number % 7 == 0 else wire.MODEL
    return wire.dump(
        {"model": model, "messages": [{"role": "user", "content": "word " * (number + 1)}]}
    )


async def test_each_gets_the_answer_to_its_own_request(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Whatever is wrong with others that came with it, and whoever of them has left."""
    plain.always(echo)
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    bodies = [body_of(number) for number in range(CLIENTS)]
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(raw_client(app.data_url)) for _ in range(CLIENTS)
        ]
        for client, body in zip(clients, bodies, strict=True):
            await client.send(request_bytes(body))
        gone = set(range(3, CLIENTS, 10))
        for number in gone:
            clients[number].leave()
        replies = await asyncio.gather(
            *(client.reply() for number, client in enumerate(clients) if number not in gone)
        )
    left = [number for number in range(CLIENTS) if number not in gone]
    for number, reply in zip(left, replies, strict=True):
        if number % 5 == 0:
            assert reply.status == 400
        elif number % 7 == 0:
            assert reply.status == 404
        else:
            assert reply.status == 200
            assert f'"{len(bodies[number])}"'.encode() in reply.body
    assert {seen.body for seen in plain.requests} <= set(bodies)
    await until(lambda: in_flight(app) == 0)


async def test_each_is_given_a_pool_by_the_load_that_those_before_it_make(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """A burst does not run to the pool that was idle when it came."""
    for backend in (plain, fast):
        backend.always(wire.llama_chat())
    pools = (pool("plain", plain), pool("fast", fast, method="draft_model"))
    app = await start(config_of(*pools, folder=tmp_path, policy={"name": "net_gain"}))
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(raw_client(app.data_url)) for _ in range(24)]
        await asyncio.gather(*(client.send(request_bytes(wire.chat())) for client in clients))
        await asyncio.gather(*(client.reply() for client in clients))
    met = [sum(line["loads"].values()) for line in await decisions(app)]
    # Each counts itself at both pools, and those that are there; answers may have come meanwhile.
    assert len(set(met)) > len(met) // 2
    assert max(met) - min(met) > len(met) // 2
