"""Which connection is taken, and when one is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from router.relay.upstream import UpstreamError
from router.relay.wire.connection import Connection, Owner
from router.relay.wire.origin import origin_of
from router.relay.wire.pool import KEEP_S, Pool
from router.types import AttemptEnd
from tests.support.clock import ManualClock
from tests.support.wire import ManualLoop, ManualTransport

ORIGIN = origin_of("http://engine:8000")


class World:
    """A pool, and the connections that it has dialled."""

    def __init__(self, clock: ManualClock) -> None:
        self.loop = ManualLoop(clock)
        self.pool = Pool(ORIGIN, self, self.loop.loop)
        self.transports: dict[Connection, ManualTransport] = {}
        self.dialled: Callable[[Connection], object] = lambda _: None
        """What happens in the moment of success."""

    async def dial(self, owner: Owner) -> Connection:
        """Succeeds at once."""
        connection = Connection(self.loop.loop, owner)
        self.transports[connection] = ManualTransport(connection)
        connection.connection_made(self.transports[connection])
        self.dialled(connection)
        return connection

    async def open(self, number: int) -> list[Connection]:
        """Connections at work."""
        return [await self.pool.dial(1.0) for _ in range(number)]

    def lose(self, connection: Connection) -> None:
        """The loop says that it is closed."""
        self.transports[connection].aborted = True
        connection.connection_lost(None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Time that moves only when the test says so."""
    clock = ManualClock()
    monkeypatch.setattr("router.relay.wire.pool.monotonic", clock.monotonic)
    return clock


@pytest.fixture
def world(clock: ManualClock) -> Iterator[World]:
    """A pool of its own."""
    world = World(clock)
    yield world
    for transport in world.transports.values():
        transport.free()


async def test_the_last_is_the_first(world: World) -> None:
    """So that those a rush has left behind grow old."""
    first, second = await world.open(2)
    world.pool.free(first)
    world.pool.free(second)
    assert [world.pool.take(), world.pool.take(), world.pool.take()] == [second, first, None]


async def test_age_is_looked_at_when_one_is_taken(world: World, clock: ManualClock) -> None:
    """Engines close after five seconds: what is four seconds old is not trusted."""
    old, young = await world.open(2)
    world.pool.free(old)
    clock.advance(KEEP_S - 0.1)
    assert world.pool.take() is old
    world.pool.free(old)
    clock.advance(1)
    world.pool.free(young)
    clock.advance(KEEP_S - 0.5)
    assert world.pool.take() is young
    assert world.pool.take() is None
    assert world.transports[old].aborted


async def test_old_ones_are_swept(world: World) -> None:
    """Without any request, by one timer for all."""
    connections = await world.open(20)
    for connection in connections:
        world.pool.free(connection)
        world.loop.advance(0.1)
    assert len(world.loop.timers) == 1
    world.loop.advance(KEEP_S - 1.05)
    aborted = [world.transports[each].aborted for each in connections]
    assert (aborted, aborted.count(True) in range(8, 11)) == (sorted(aborted, reverse=True), True)
    world.loop.advance(KEEP_S)
    assert all(transport.aborted for transport in world.transports.values())
    assert world.loop.timers == []


async def test_the_dead_are_not_taken(world: World) -> None:
    """Neither one that is lost, nor one that is closing, nor one with something to read."""
    lost, closing, talking, good = await world.open(4)
    for connection in (good, lost, closing, talking):
        world.pool.free(connection)
    world.lose(lost)
    world.transports[closing].aborted = True
    world.transports[talking].theirs.send(b"x")
    assert [world.pool.take(), world.pool.take()] == [good, None]
    assert world.transports[talking].aborted


async def test_closing_ends_all(world: World) -> None:
    """Those kept and those at work; afterwards none is dialled, and closing again is nothing."""
    kept, working = await world.open(2)
    world.pool.free(kept)
    closing = asyncio.ensure_future(world.pool.close())
    again = asyncio.ensure_future(world.pool.close())
    await asyncio.sleep(0)
    assert (world.transports[kept].aborted, world.transports[working].aborted) == (True, True)
    world.lose(kept)
    await asyncio.sleep(0)
    assert not closing.done()
    world.lose(working)
    await closing
    await again
    await world.pool.close()
    assert world.loop.timers == []
    with pytest.raises(UpstreamError) as caught:
        await world.pool.dial(1.0)
    assert caught.value.end is AttemptEnd.UNREACHABLE


async def test_a_connection_that_comes_too_late(world: World) -> None:
    """Dialled while the pool was closed: it is cut, and nobody waits for it."""
    ends: list[asyncio.Future[None]] = []

    def close(_: Connection) -> None:
        ends.append(asyncio.ensure_future(world.pool.close()))

    world.dialled = close
    [late] = await world.open(1)
    await asyncio.sleep(0)
    world.lose(late)
    await ends[0]
    assert world.transports[late].aborted


async def test_a_connection_that_is_lost_at_once(world: World) -> None:
    """Closing does not wait for one whose end has been told before it was given out."""
    world.dialled = world.lose
    [gone] = await world.open(1)
    assert gone.closing
    await world.pool.close()
