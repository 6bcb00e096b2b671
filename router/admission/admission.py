"""Places for requests, and those who wait for one: the fair queue inside an event loop.

    with admission.try_enter(tenant) or await admission.wait(tenant) as place:
        ...  # served; the place is given back at the end of the block, whatever the end

A place belongs to a request from the moment at which it is let in, not from when its task runs
again. So nobody can come in between, and a request that is cancelled in that very moment has a
place to give back.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from router.admission.promises import Promises, Told, name_of
from router.admission.queue import Cause, FairQueue, Limits, Refused, TenantLoad, Ticket
from router.clock import Clock
from router.errors import Reason, RequestError
from router.types import TenantId

_SHOWN_TENANTS = 5
_EARLY_S = 0.05
"""Clocks of clients are not ours: who comes a moment early comes as told."""
_SOONEST_S = 0.001
"""Event loops may call a timer a millisecond early."""


class Watcher(Protocol):
    """Is told what becomes of those who could not enter at once."""

    def queued(self, waited_s: float, refused: Cause | None, *, left: bool) -> None:
        """A request has waited, and was let in unless it was refused or its client left."""

    def turned_away(self, cause: Cause) -> None:
        """A request was refused without having waited."""


@dataclass(frozen=True, slots=True)
class AdmissionState:
    """What an operator is shown."""

    in_flight: int
    waiting: int
    tenants: int
    """That have something here."""
    limits: Limits
    busiest: tuple[TenantLoad, ...]


class Place:
    """The right to be served now."""

    __slots__ = ("_admission", "_held", "_since_s", "queue_s", "tenant")

    def __init__(
        self, admission: Admission, tenant: TenantId, since_s: float, queue_s: float
    ) -> None:
        self._admission = admission
        self._held = True
        self._since_s = since_s
        self.tenant = tenant
        self.queue_s = queue_s
        """Seconds it was waited for."""

    def release(self) -> None:
        """Gives it back; more than once is the same as once."""
        if self._held:
            self._held = False
            self._admission._give_back(self.tenant, self._since_s)  # noqa: SLF001 - two halves of one thing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class _Waiter:
    """A request whose task waits."""

    __slots__ = ("admitted", "refused", "woken")

    def __init__(self) -> None:
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.admitted = False
        self.refused: Refused | None = None

    def wake(self) -> None:
        # Its client may have left, and its task not have run since.
        if not self.woken.done():
            self.woken.set_result(None)


class Admission:
    """The places of one process."""

    def __init__(self, limits: Limits, clock: Clock, watcher: Watcher) -> None:
        self._clock = clock
        self._watcher = watcher
        self._queue = FairQueue(limits, clock.monotonic())
        self._waiters: dict[Ticket, _Waiter] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._promises = Promises()
        self.told = Told()

    def try_enter(self, tenant: TenantId) -> Place | None:
        """A place, if there is one; None for those who have to wait."""
        now = self._clock.monotonic()
        if self._queue.try_enter(tenant, now):
            return Place(self, tenant, now, 0.0)
        return None

    async def wait(self, tenant: TenantId, body: bytes = b"") -> Place:
        """A place, as soon as there is one.

        Who comes back as it was told goes before others of its tenant.

        Args:
            tenant: Whose it is.
            body: Of the request, by which it is known when it comes back.

        Raises:
            RequestError: There is no room to wait, the wait was too long, or the process stops.
        """
        if (place := self.try_enter(tenant)) is not None:
            return place
        since_s = self._clock.monotonic()
        name = name_of(tenant, body)
        first = self._promises.redeem(name, since_s) or self.told.elsewhere(name, since_s)
        joined = self._queue.join(tenant, since_s, first=first)
        if isinstance(joined, Refused):
            self._watcher.turned_away(joined.cause)
            raise self._error(joined, tenant, name)
        if joined.displaced is not None:
            self._refuse([joined.displaced])
        waiter = self._waiters[joined.ticket] = _Waiter()
        self._set_timer()
        try:
            await waiter.woken
        except BaseException:  # cancelled: its client has left, or nobody wants the answer any more
            self._watcher.queued(self._clock.monotonic() - since_s, None, left=True)
            if waiter.admitted:
                self._give_back(tenant, None)
            elif waiter.refused is None:
                del self._waiters[joined.ticket]
                self._queue.leave(joined.ticket)
            raise
        now = self._clock.monotonic()
        waited_s = now - since_s
        refused = waiter.refused
        self._watcher.queued(waited_s, refused.cause if refused else None, left=False)
        if refused is not None:
            raise self._error(refused, tenant, name)
        return Place(self, tenant, now, waited_s)

    def expire(self) -> None:
        """Sends away who has waited too long; called by a timer as long as anybody waits."""
        self._refuse(self._queue.expire(self._clock.monotonic()))

    def change(self, limits: Limits) -> None:
        """Uses other limits from now on. Nobody is thrown out."""
        self._admit(self._queue.change(limits))
        self._stop_timer()
        self._set_timer()

    def drain(self) -> None:
        """Tells everybody who waits, at once, that this process stops."""
        self._refuse(self._queue.drain(self._clock.monotonic()))
        self._stop_timer()

    def state(self) -> AdmissionState:
        """How full it is, and of whom."""
        queue = self._queue
        busiest = heapq.nlargest(
            _SHOWN_TENANTS, queue.loads(), key=lambda load: (load.in_flight, load.waiting)
        )
        return AdmissionState(
            queue.in_flight, queue.waiting, queue.tenants, queue.limits, tuple(busiest)
        )

    @property
    def in_flight(self) -> int:
        """Places taken."""
        return self._queue.in_flight

    @property
    def waiting(self) -> int:
        """Requests waiting."""
        return self._queue.waiting

    def _give_back(self, tenant: TenantId, since_s: float | None) -> None:
        now = self._clock.monotonic()
        stay_s = None if since_s is None else now - since_s
        self._admit(self._queue.finish(tenant, stay_s, now))

    def _admit(self, tickets: Iterable[Ticket]) -> None:
        for ticket in tickets:
            waiter = self._waiters.pop(ticket)
            waiter.admitted = True
            waiter.wake()

    def _refuse(self, gone: Iterable[Refused]) -> None:
        for refused in gone:
            if refused.ticket is not None:
                waiter = self._waiters.pop(refused.ticket)
                waiter.refused = refused
                waiter.wake()

    def _error(self, refused: Refused, tenant: TenantId, name: str) -> RequestError:
        if refused.cause is Cause.DRAINING:
            return RequestError(Reason.DRAINING, "The proxy is stopping.")
        self._promise(name, refused.retry_after_s)
        advice = f"Try again in {refused.retry_after_s} s."
        if refused.by_tenant:
            return RequestError(
                Reason.TENANT_SATURATED,
                "Too many requests at a time with one API key; the limit is "
                f"{self._queue.limits.of(tenant)}. {advice}",
                retry_after_s=refused.retry_after_s,
            )
        return RequestError(
            Reason.SATURATED,
            f"Too many requests at a time. {advice}",
            retry_after_s=refused.retry_after_s,
        )

    def _promise(self, name: str, wait_s: int) -> None:
        now = self._clock.monotonic()
        self._promises.forget(now)
        due = now + wait_s - _EARLY_S
        if self._promises.give(name, due):
            self.told.note(due, name)

    def _set_timer(self) -> None:
        deadline = self._queue.next_deadline()
        if self._timer is None and deadline is not None:
            delay_s = max(deadline - self._clock.monotonic(), _SOONEST_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.expire()
        self._set_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
