"""Tells pages what changed of the state, once a second; the state is made once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import orjson
from aiohttp import web

from router.clock import Clock
from router.dashboard.pages import HEADERS

INTERVAL_S = 1.0
MAX_READERS = 32

StateFn = Callable[[], Awaitable[dict[str, Any]]]
Path = tuple[str | int, ...]


def parts_of(state: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """The state in pieces that change apart from each other; together they are all of it."""
    for name, value in state.items():
        if name == "routes":
            for index, route in enumerate(value):
                yield from _parts_of_route(index, route)
        elif name != "time":  # that goes with every message
            yield (name,), value


def _parts_of_route(index: int, route: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    for name, value in route.items():
        if name in ("pools", "classes"):
            for place, item in enumerate(value):
                yield ("routes", index, name, place), item
        else:
            yield ("routes", index, name), value


def shape_of(state: dict[str, Any]) -> list[Any]:
    """What is there, whatever its figures: where that changes, pages get all anew."""
    return [
        [
            route["model"],
            [pool["name"] for pool in route["pools"]],
            [entry["class"] for entry in route["classes"]],
        ]
        for route in state["routes"]
    ]


class Reader:
    """What one page has been told."""

    def __init__(self) -> None:
        self._shape: list[Any] | None = None
        self._told: dict[Path, bytes] = {}

    def message(self, state: dict[str, Any]) -> bytes:
        """The next event: the whole state, or what differs from what was told."""
        shape = shape_of(state)
        parts = {path: orjson.dumps(value) for path, value in parts_of(state)}
        if shape != self._shape:
            self._shape, self._told = shape, parts
            return _event("state", orjson.dumps(state))
        changed = [
            b'{"path":%b,"value":%b}' % (orjson.dumps(path), value)
            for path, value in parts.items()
            if self._told.get(path) != value
        ]
        self._told = parts
        time = orjson.dumps(state["time"])
        return _event("change", b'{"time":%b,"parts":[%b]}' % (time, b",".join(changed)))


class Feed:
    """Server-sent events of the state; nothing is made while nobody reads.

    Args:
        state: Makes the state.
        clock: Time.
    """

    def __init__(self, state: StateFn, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._made: tuple[float, dict[str, Any]] | None = None
        self._making = asyncio.Lock()
        self._closing = asyncio.Event()
        self._readers = 0

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Streams until the page or the proxy goes."""
        if self._readers >= MAX_READERS:
            raise web.HTTPServiceUnavailable(text="Too many pages are open.\n")
        self._readers += 1
        try:
            response = web.StreamResponse(
                headers={**HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
            )
            response.content_type = "text/event-stream"
            await response.prepare(request)
            await response.write(b"retry: 1000\n\n")
            with suppress(ConnectionError):
                await self._tell(response)
        finally:
            self._readers -= 1
        return response

    async def _tell(self, response: web.StreamResponse) -> None:
        reader = Reader()
        while not self._closing.is_set():
            await response.write(reader.message(await self._current()))
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S):
                    await self._closing.wait()

    async def _current(self) -> dict[str, Any]:
        async with self._making:
            now = self._clock.monotonic()
            if self._made is None or now - self._made[0] >= INTERVAL_S / 2:
                self._made = now, await self._state()
            return self._made[1]

    async def close(self, _: web.Application) -> None:
        """Lets every page go."""
        self._closing.set()


def _event(name: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
