"""What one request and one streamed piece cost, over the upstream that serves and over aiohttp's.

CPU time of this process alone: the server is another one and sends what it had ready. Both forms
take turns, so that a busy machine is busy for both; the median of the rounds is printed, and its
ratio.

    python -m bench.upstream --rounds 7
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import cast

import uvloop

from router.fleet.model import Replica
from router.relay.reference import AiohttpUpstream
from router.relay.upstream import Upstream, UpstreamRequest
from router.relay.wire.upstream import WireUpstream
from router.types import ReplicaId

_LIMIT_S = 30.0
_BODY = b'{"model":"tiny","stream":true,"messages":[{"role":"user","content":"Tell me a story."}]}'
_HEADERS = (
    ("Accept", "application/json"),
    ("Authorization", "Bearer sk-test"),
    ("Content-Type", "application/json"),
    ("User-Agent", "bench/1.0"),
    ("X-Request-Id", "0123456789abcdef"),
)
_WHOLE = (
    b"HTTP/1.1 200 OK\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nServer: uvicorn\r\n"
    b"Content-Type: application/json\r\nContent-Length: 500\r\n\r\n" + b"x" * 500
)
_STREAM = (
    b"HTTP/1.1 200 OK\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nServer: uvicorn\r\n"
    b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_EVENT = b'data: {"choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
_CHUNK = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)
_PIECES = 400


class _Engine(asyncio.Protocol):
    """Answers whatever is asked: a target that holds `stream` with pieces, others at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the way back."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Every read is one request: they are small."""
        if b"stream" not in data[:64]:
            self._transport.write(_WHOLE)
            return
        self._transport.write(_STREAM)
        self._go_on(_PIECES)

    def _go_on(self, left: int) -> None:
        if left == 0:
            self._transport.write(b"0\r\n\r\n")
            return
        self._transport.write(_CHUNK)
        asyncio.get_running_loop().call_later(0.001, self._go_on, left - 1)


def _serve(ready: Connection) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Engine, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(run())


@dataclass(slots=True)
class _Load:
    """Requests sent one after the other on several connections."""

    upstream: Upstream
    replica: Replica
    pieces: int = 0

    async def ask(self, target: str, times: int) -> None:
        """Some requests, one after the other."""
        request = UpstreamRequest("POST", target, _HEADERS, _BODY, _LIMIT_S, _LIMIT_S)
        for _ in range(times):
            response = await self.upstream.send(self.replica, request)
            await response.copy_to(self._receive)
            response.close()

    def _receive(self, _: bytes) -> None:
        self.pieces += 1

    async def cpu_s(self, target: str, *, times: int, at_once: int) -> float:
        """CPU time that they took."""
        self.pieces = 0
        begun = time.process_time()
        await asyncio.gather(*(self.ask(target, times) for _ in range(at_once)))
        return time.process_time() - begun


async def _measure(load: _Load) -> tuple[float, float]:
    """Microseconds for each request, and for each piece of a stream."""
    requests, at_once = 250, 16
    each = await load.cpu_s("/whole", times=requests, at_once=at_once) / (requests * at_once)
    streams = 32
    streamed = await load.cpu_s("/stream", times=1, at_once=streams) - streams * each
    return each * 1e6, streamed / load.pieces * 1e6


async def _compare(port: int, rounds: int) -> None:
    replica = Replica(ReplicaId("bench/0"), f"http://127.0.0.1:{port}", _LIMIT_S, _LIMIT_S)
    forms: dict[str, Callable[[], WireUpstream | AiohttpUpstream]] = {
        "wire": WireUpstream,
        "reference": AiohttpUpstream,
    }
    upstreams = {name: make() for name, make in forms.items()}
    loads = {name: _Load(upstream, replica) for name, upstream in upstreams.items()}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in forms}
    for load in loads.values():
        await load.cpu_s("/whole", times=20, at_once=32)
    for _ in range(rounds):
        for name, load in loads.items():
            found[name].append(await _measure(load))
    for upstream in upstreams.values():
        await upstream.close()
    print(f"{'µs of CPU':<12}{'wire':>10}{'reference':>12}{'ratio':>8}")
    for index, what in enumerate(("request", "piece")):
        wire, reference = (statistics.median(x[index] for x in found[name]) for name in forms)
        print(f"{what:<12}{wire:>10.1f}{reference:>12.1f}{reference / wire:>8.1f}")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    options = parser.parse_args()
    run = uvloop.run if options.loop == "uvloop" else asyncio.run
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    engine = context.Process(target=_serve, args=(sending,), daemon=True)
    engine.start()
    try:
        run(_compare(receiving.recv(), options.rounds))
    finally:
        engine.terminate()
        engine.join()


if __name__ == "__main__":
    main()
