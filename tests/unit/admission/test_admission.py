"""Places in an event loop: whatever happens to a task, its place is given back exactly once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.admission.admission import Admission, Place
from router.admission.queue import Cause, Limits
from router.errors import Reason, RequestError
from router.types import TenantId
from tests.support.clock import ManualClock
from tests.support.flow_backend import GUARD_S, Gate

A, B = TenantId("a"), TenantId("b")
LIMITS = Limits(1, 1, 10, 5.0)


class Seen:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, Cause | None, bool]] = []
        self.away: list[Cause] = []

    def queued(self, waited_s: float, refused: Cause | None, *, left: bool) -> None:
        """One waited."""
        self.ends.append((waited_s, refused, left))

    def turned_away(self, cause: Cause) -> None:
        """One did not."""
        self.away.append(cause)


class World:
    """An admission, its clock, and what was told about it."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.clock, self.seen = ManualClock(), Seen()
        self.admission = Admission(limits, self.clock, self.seen)

    def enter(self, tenant: TenantId = A) -> Place:
        """A place that there is."""
        place = self.admission.try_enter(tenant)
        assert place is not None
        return place

    async def comes(self, tenant: TenantId = A) -> asyncio.Task[Place]:
        """Somebody who waits, in a task of its own."""
        before = self.admission.waiting
        task = asyncio.get_running_loop().create_task(self.admission.wait(tenant))
        await asyncio.sleep(0)
        assert self.admission.waiting == before + 1
        return task

    @property
    def counts(self) -> tuple[int, int]:
        """Places taken, and requests waiting."""
        return self.admission.in_flight, self.admission.waiting


async def error_of(waiting: Awaitable[Place]) -> RequestError:
    """How a wait ended that was in vain."""
    with pytest.raises(RequestError) as caught:
        await waiting
    return caught.value


async def test_a_place_is_given_back_at_the_end_of_the_block() -> None:
    """Whether it ends well or not, and once."""
    world = World()
    with world.enter() as place:
        assert (place.tenant, place.queue_s, world.counts) == (A, 0.0, (1, 0))
        assert world.admission.try_enter(A) is None
        place.release()
        assert world.counts == (0, 0)
        other = world.enter()
    assert world.counts == (1, 0)
    other.release()
    assert world.counts == (0, 0)
    assert (world.seen.ends, world.seen.away) == ([], [])


async def test_a_block_that_fails_gives_its_place_back() -> None:
    """An exception passes through."""
    world = World()

    def fail() -> None:
        with world.enter():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert world.counts == (0, 0)


async def test_who_waits_is_let_in_in_order_and_knows_how_long_it_took() -> None:
    """The wait is measured to the moment at which it goes on."""
    world = World()
    holder = world.enter()
    first, second = await world.comes(), await world.comes()
    world.clock.advance(2.0)
    holder.release()
    place = await first
    assert (place.queue_s, second.done(), world.counts) == (2.0, False, (1, 1))
    world.clock.advance(0.5)
    place.release()
    place = await second
    assert place.queue_s == 2.5
    place.release()
    assert world.counts == (0, 0)
    assert world.seen.ends == [(2.0, None, False), (2.5, None, False)]


async def test_a_place_that_is_handed_over_cannot_be_taken_by_another() -> None:
    """It has a new owner before the task of that one runs again."""
    world = World(Limits(1, 1, 10, 5.0))
    holder = world.enter()
    task = await world.comes(B)
    holder.release()
    assert world.admission.try_enter(A) is None
    (await task).release()
    assert world.counts == (0, 0)


async def test_waiting_where_there_is_room_is_no_waiting() -> None:
    """A place is a place."""
    world = World()
    (await world.admission.wait(A)).release()
    assert world.counts == (0, 0)
    assert world.seen.ends == []


async def test_who_leaves_the_queue_frees_its_place_in_it_at_once() -> None:
    """And the next one moves up."""
    world = World(Limits(1, 1, 1, 5.0))
    holder = world.enter()
    task = await world.comes()
    assert (await error_of(world.admission.wait(A))).reason is Reason.TENANT_SATURATED
    world.clock.advance(1.0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert world.counts == (1, 0)
    assert world.seen.ends == [(1.0, None, True)]
    task = await world.comes()
    holder.release()
    (await task).release()
    assert world.counts == (0, 0)


@pytest.mark.parametrize("cancelled_first", [True, False])
async def test_who_is_cancelled_in_the_moment_of_being_let_in_loses_no_place(
    *, cancelled_first: bool
) -> None:
    """In either order within one turn of the loop; the next in line gets the place."""
    world = World()
    holder = world.enter()
    task, following = await world.comes(), await world.comes()
    for event in (
        (task.cancel, holder.release) if cancelled_first else (holder.release, task.cancel)
    ):
        event()
    place = await following
    await asyncio.wait([task])
    assert task.cancelled()
    assert world.counts == (1, 0)
    place.release()
    assert world.counts == (0, 0)


@pytest.mark.parametrize("cancelled_first", [True, False])
async def test_who_is_cancelled_in_the_moment_of_being_refused_is_only_cancelled(
    *, cancelled_first: bool
) -> None:
    """Nothing is given back that was not had."""
    world = World()
    holder = world.enter()
    task = await world.comes()
    world.clock.advance(5.0)
    events: list[Callable[[], object]] = [world.admission.expire, task.cancel]
    for event in reversed(events) if cancelled_first else events:
        event()
    await asyncio.wait([task])
    assert task.cancelled()
    assert world.counts == (1, 0)
    holder.release()
    assert world.counts == (0, 0)


async def test_a_wait_that_is_closed_leaves_the_queue() -> None:
    """As happens to a task that nobody runs any more."""
    world = World()
    holder = world.enter()
    waiting = world.admission.wait(A)
    waiting.send(None)
    assert world.counts == (1, 1)
    waiting.close()
    assert world.counts == (1, 0)
    holder.release()


async def test_who_has_waited_for_too_long_is_told_when_to_come_again() -> None:
    """429, by whose limit, and when."""
    world = World(Limits(2, 1, 10, 5.0))
    holders = world.enter(A), world.enter(B)
    mine, others = await world.comes(A), await world.comes(TenantId("c"))
    world.clock.advance(4.9)
    world.admission.expire()
    assert world.counts == (2, 2)
    world.clock.advance(0.1)
    world.admission.expire()
    errors = [await error_of(mine), await error_of(others)]
    assert [error.reason for error in errors] == [Reason.TENANT_SATURATED, Reason.SATURATED]
    assert [error.http_status for error in errors] == [429, 429]
    for error in errors:
        assert f"Try again in {error.retry_after_s} s." in error.message
        assert isinstance(error.retry_after_s, int)
        assert 1 <= error.retry_after_s <= 60
    assert world.seen.ends == [(5.0, Cause.DEADLINE, False)] * 2
    for holder in holders:
        holder.release()
    assert world.counts == (0, 0)


async def test_a_timer_ends_waits() -> None:
    """Nobody has to come for that; the loop's own clock decides."""
    clock = ManualClock()
    admission = Admission(Limits(1, 1, 10, 0.001), clock, Seen())
    holder = admission.try_enter(A)
    assert holder is not None
    waiting = asyncio.get_running_loop().create_task(admission.wait(A))
    await asyncio.sleep(0)
    clock.advance(0.001)
    async with asyncio.timeout(GUARD_S):
        assert (await error_of(waiting)).retry_after_s is not None
    holder.release()


async def test_a_full_queue_refuses_without_a_wait_and_displaces_who_has_most() -> None:
    """Both are told at once."""
    world = World(Limits(1, 1, 2, 5.0))
    holder = world.enter()
    kept, displaced = await world.comes(), await world.comes()
    assert (await error_of(world.admission.wait(A))).reason is Reason.TENANT_SATURATED
    assert world.seen.away == [Cause.QUEUE_FULL]
    task = asyncio.get_running_loop().create_task(world.admission.wait(B))
    error = await error_of(displaced)
    assert (error.reason, world.counts) == (Reason.TENANT_SATURATED, (1, 2))
    holder.release()
    (await kept).release()
    (await task).release()
    assert world.counts == (0, 0)
    assert world.seen.ends[0] == (0.0, Cause.DISPLACED, False)


async def test_draining_tells_all_who_wait_at_once() -> None:
    """503; who is being served goes on, and who would have to wait is told too."""
    world = World()
    holder = world.enter()
    tasks = [await world.comes() for _ in range(3)]
    world.admission.drain()
    for task in tasks:
        error = await error_of(task)
        assert (error.reason, error.http_status) == (Reason.DRAINING, 503)
    assert (await error_of(world.admission.wait(A))).reason is Reason.DRAINING
    assert world.counts == (1, 0)
    holder.release()
    assert world.counts == (0, 0)


async def test_limits_change_while_requests_run() -> None:
    """Who has room then goes on at once, and deadlines are the new ones."""
    world = World()
    holder = world.enter()
    tasks = [await world.comes(), await world.comes()]
    world.admission.change(Limits(2, 2, 10, 1.0))
    place = await tasks[0]
    world.clock.advance(1.0)
    world.admission.expire()
    assert (await error_of(tasks[1])).reason is Reason.TENANT_SATURATED
    for each in (holder, place):
        each.release()
    assert world.counts == (0, 0)


async def test_the_state_shows_the_busiest() -> None:
    """At most five tenants, those with most places first."""
    world = World(Limits(40, 10, 10, 5.0))
    held = [world.enter(TenantId(f"t{n}")) for n in range(8) for _ in range(n + 1)]
    state = world.admission.state()
    assert (state.in_flight, state.waiting, state.tenants) == (36, 0, 8)
    assert [(load.tenant, load.in_flight) for load in state.busiest] == [
        (f"t{n}", n + 1) for n in (7, 6, 5, 4, 3)
    ]
    for place in held:
        place.release()
    assert world.admission.state().busiest == ()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.builds(Limits, st.integers(1, 4), st.integers(1, 3), st.integers(0, 6), st.just(2.0)),
)
def test_no_order_of_ends_and_cancellations_loses_a_place(seed: int, limits: Limits) -> None:
    """Forty requests that end, fail, leave or are refused in any order: nothing is left of them."""
    rng = random.Random(seed)
    world = World(limits)
    served = 0

    async def one(tenant: TenantId, goes: Gate, *, fails: bool) -> None:
        nonlocal served
        admission = world.admission
        with admission.try_enter(tenant) or await admission.wait(tenant):
            served += 1
            assert admission.in_flight <= limits.max_concurrent
            await goes.wait()
            if fails:
                raise ZeroDivisionError

    async def run() -> None:
        tasks, gates = [], []
        for _ in range(40):
            gate = Gate()
            gates.append(gate)
            tenant = TenantId(rng.choice("abc"))
            coroutine = one(tenant, gate, fails=rng.random() < 0.2)
            tasks.append(asyncio.get_running_loop().create_task(coroutine))
            for _ in range(rng.randrange(4)):
                match rng.randrange(5):
                    case 0:
                        rng.choice(tasks).cancel()
                    case 1 | 2:
                        rng.choice(gates).open()
                    case 3:
                        world.clock.advance(rng.random())
                        world.admission.expire()
                    case _:
                        await asyncio.sleep(0)
        for gate in gates:
            gate.open()
        async with asyncio.timeout(GUARD_S):
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        expected = (RequestError, ZeroDivisionError, asyncio.CancelledError)
        assert [end for end in ends if end is not None and not isinstance(end, expected)] == []
        assert served > 0

    asyncio.run(run())
    assert world.counts == (0, 0)
    assert world.admission.state().tenants == 0
