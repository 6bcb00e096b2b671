"""Events per second that one process of simulated engines makes, and what a step is late by.

    python -m bench.simfleet

Streams are read by a process of their own, which looks at nothing.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import time
from dataclasses import dataclass

import orjson
import uvloop

from router.simfleet.fleet import FleetOptions, SimFleet
from router.simulate.load import load_world

STREAMS = 64
TOKENS = 400
SPEED = 1e6
"""No step is waited for: what is left is work."""


@dataclass(frozen=True, slots=True)
class Made:
    """What came of it."""

    kind: str
    events: int
    seconds: float


def _read(address: tuple[str, int], count: int, body: bytes) -> None:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: sim\r\nContent-Length: {len(body)}\r\n"
    request = f"{head}Connection: close\r\n\r\n".encode() + body
    sockets = []
    for _ in range(count):
        one = socket.create_connection(address)
        one.sendall(request)
        sockets.append(one)
    for one in sockets:
        while one.recv(1 << 16):
            pass
        one.close()


async def measure(world: str, pool: str) -> Made:
    """All streams at one engine."""
    fleet = SimFleet(load_world(world), FleetOptions(speed=SPEED))
    await fleet.start()
    try:
        engine = next(item for item in fleet.engines if item.pool.name == pool)
        body = orjson.dumps(
            {
                "model": fleet.options.model,
                "messages": [{"role": "user", "content": "Go."}],
                "max_tokens": TOKENS,
                "ignore_eos": True,
                "stream": True,
            }
        )
        address = ("127.0.0.1", int(engine.url.rpartition(":")[2]))
        reader = multiprocessing.get_context("spawn").Process(
            target=_read, args=(address, STREAMS, body)
        )
        await asyncio.to_thread(reader.start)
        while engine.service.inside == 0:  # noqa: ASYNC110 - another process begins
            await asyncio.sleep(0.001)
        used = time.process_time()
        await asyncio.to_thread(reader.join)
        seconds = time.process_time() - used
        totals = engine.service.meter.totals
        kind = engine.settings.kind
        tokens = totals.generated.total()
        # One event a step from vLLM and SGLang, one a token from llama.cpp.
        events = tokens if kind == "llamacpp" else tokens - totals.accepted
        return Made(f"{kind} {pool}", events, seconds)
    finally:
        await fleet.stop()


def main() -> None:
    """Prints a table."""
    print(f"{STREAMS} streams of {TOKENS} tokens each; seconds of processor time")
    for world, pool in (
        ("llama8b-light", "plain"),
        ("llama8b-light", "eagle3"),
        ("rtx5090", "mtp"),
    ):
        made = uvloop.run(measure(world, pool))
        print(f"{made.kind:<20} {made.events / made.seconds:>9.0f} events/s")


if __name__ == "__main__":
    main()
