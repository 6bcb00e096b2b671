"""Measures what a place costs: taken at once, and with others waiting.

Usage: python -m bench.admission
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from router.admission.admission import Admission
from router.admission.queue import Cause, FairQueue, Limits, Queued
from router.admission.tenants import CredentialTenants
from router.clock import SystemClock
from router.types import Headers, TenantId

ROUNDS = 7
COUNT = 20_000
HEADERS: Headers = (
    ("Host", "localhost:8080"),
    ("Accept-Encoding", "gzip, deflate"),
    ("Connection", "keep-alive"),
    ("Accept", "application/json"),
    ("Content-Type", "application/json"),
    ("User-Agent", "OpenAI/Python 2.8.1"),
    ("Authorization", "Bearer sk-0123456789abcdef0123456789abcdef"),
)
LIMITS = Limits(4096, 2048, 1024, 5.0)


class Nobody:
    """Looks away."""

    def queued(self, waited_s: float, refused: Cause | None, *, left: bool) -> None:
        """Nothing."""

    def turned_away(self, cause: Cause) -> None:
        """Nothing."""


def show(name: str, call: Callable[[], object], count: int = COUNT) -> None:
    """Prints the processor time of a call: median and best of rounds, each a mean."""
    taken = []
    gc.collect()
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(count):
            call()
        taken.append((time.thread_time() - start) / count * 1e6)
    print(f"{name:58} median {statistics.median(taken):6.2f} us  best {min(taken):6.2f} us")


def at_once(admission: Admission, tenant: TenantId) -> None:
    """Enters and goes."""
    place = admission.try_enter(tenant)
    if place is None:
        raise RuntimeError("there must be room")
    place.release()


def crowded(tenants: int) -> Callable[[], None]:
    """One event of a full house: a place is given back, another request lets in, one more joins."""
    now = time.monotonic()
    queue = FairQueue(replace(LIMITS, max_concurrent_per_tenant=LIMITS.max_concurrent), now)
    names = [TenantId(f"t{index}") for index in range(tenants)]
    holders = [names[index % tenants] for index in range(LIMITS.max_concurrent)]
    per_tenant = LIMITS.max_waiting // tenants
    for name in holders:
        if not queue.try_enter(name, now):
            raise RuntimeError("there must be room")
    owners = {}
    for name in names:
        for _ in range(per_tenant):
            joined = queue.join(name, now)
            if not isinstance(joined, Queued):
                raise TypeError("there must be room to wait")
            owners[joined.ticket] = name
    running = iter(range(10**12))

    def step() -> None:
        index = next(running) % len(holders)
        [ticket] = queue.finish(holders[index], 1.0, now)
        holders[index] = owners.pop(ticket)
        joined = queue.join(holders[index], now)
        if not isinstance(joined, Queued):
            raise TypeError("there must be room to wait")
        owners[joined.ticket] = holders[index]

    return step


def refused() -> Callable[[], object]:
    """A flood that finds the queue full of itself."""
    now = time.monotonic()
    queue = FairQueue(Limits(1, 1, 1024, 5.0), now)
    flood = TenantId("flood")
    queue.try_enter(flood, now)
    for _ in range(1024):
        queue.join(flood, now)
    return lambda: queue.join(flood, now)


def handed_over() -> float:
    """A place that passes from task to task through the event loop, in us."""

    async def run() -> float:
        admission = Admission(Limits(1, 1, 1024, 60.0), SystemClock(), Nobody())
        tenant = TenantId("t")

        async def one() -> None:
            with admission.try_enter(tenant) or await admission.wait(tenant):
                await asyncio.sleep(0)

        start = time.thread_time()
        for _ in range(COUNT // 1000):
            await asyncio.gather(*(one() for _ in range(1000)))
        return (time.thread_time() - start) / COUNT * 1e6

    return statistics.median(asyncio.run(run()) for _ in range(ROUNDS))


def main() -> None:
    """Print all figures."""
    admission, tenants = Admission(LIMITS, SystemClock(), Nobody()), CredentialTenants()
    idle, busy = TenantId("idle"), TenantId("busy")
    show("tenant of a request", lambda: tenants.tenant(HEADERS))
    show("enter at once, tenant that has nothing here, and go", lambda: at_once(admission, idle))
    held = admission.try_enter(busy)
    show("enter at once, tenant that has, and go", lambda: at_once(admission, busy))
    show("try_enter alone", lambda: admission.try_enter(busy), 250)
    if held is not None:
        held.release()
    for count in (1, 16, 512):
        show(f"full: one goes, one is let in, one joins; tenants: {count}", crowded(count))
    show("refused: queue full", refused())
    print(f"{'handed from task to task, task included':58} median {handed_over():6.2f} us")


if __name__ == "__main__":
    main()
