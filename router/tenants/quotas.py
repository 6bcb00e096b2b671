"""Tokens per minute of tenants, in one process; what the others may have is told to it.

A bucket that fills evenly, holds a few seconds' worth and may be overdrawn: a request is let in
while there is anything in it, and pays a guess then and the truth at its end. So over minutes the
rate is exact, however long answers turn out; who is refused is told when the debt will be paid.
"""

from __future__ import annotations

from collections.abc import Mapping

from router.admission.stays import advised
from router.clock import Clock
from router.errors import Reason, RequestError
from router.types import TenantId

BURST_S = 3.0
"""What a bucket holds at most, as seconds of its rate. Judgement: a page's worth of requests at
once is let in, and a minute is exceeded by a twentieth at most."""

_FIRST_GUESS = 500.0
_MEMORY = 20.0


class _Bucket:
    """One tenant's."""

    __slots__ = ("guess", "level", "per_minute", "since_s")

    def __init__(self, per_minute: float, now: float) -> None:
        self.per_minute = per_minute
        self.level = per_minute / 60.0 * BURST_S
        self.since_s = now
        self.guess = _FIRST_GUESS
        """Tokens of a request, from those before."""

    def fill(self, now: float) -> None:
        rate = self.per_minute / 60.0
        full = rate * BURST_S
        self.level = max(self.level, min(self.level + rate * (now - self.since_s), full))
        self.since_s = now


class Bill:
    """What one request pays."""

    __slots__ = ("_bucket", "_paid")

    def __init__(self, bucket: _Bucket | None, paid: float) -> None:
        self._bucket = bucket
        self._paid = paid

    def settle(self, tokens: int | None) -> None:
        """Pays the truth in the place of the guess, once; None where nobody told it."""
        bucket, self._bucket = self._bucket, None
        if bucket is None or tokens is None:
            return
        bucket.level += self._paid - tokens
        if tokens:
            bucket.guess += (tokens - bucket.guess) / _MEMORY


_FREE = Bill(None, 0.0)


class Quotas:
    """The buckets of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limits: Mapping[TenantId, int] = {}
        self._buckets: dict[TenantId, _Bucket] = {}
        self._processes = 1

    def change(self, limits: Mapping[TenantId, int], processes: int) -> None:
        """Uses other limits from now on; debts stay.

        Args:
            limits: Tokens per minute by tenant, over all processes.
            processes: That share them.
        """
        now = self._clock.monotonic()
        self._limits, self._processes = limits, processes
        self._buckets = {name: of for name, of in self._buckets.items() if name in limits}
        for name, bucket in self._buckets.items():
            bucket.fill(now)
            bucket.per_minute = limits[name] / processes

    def take(self, tenant: TenantId) -> Bill:
        """Lets a request in.

        Raises:
            RequestError: Its tenant has had all the tokens that it may have for now.
        """
        limit = self._limits.get(tenant)
        if limit is None:
            return _FREE
        now = self._clock.monotonic()
        bucket = self._buckets.get(tenant)
        if bucket is None:
            bucket = self._buckets[tenant] = _Bucket(limit / self._processes, now)
        bucket.fill(now)
        if bucket.level <= 0.0:
            # One token more than the debt, so that who comes then is let in.
            wait_s = advised((1.0 - bucket.level) / (bucket.per_minute / 60.0))
            raise RequestError(
                Reason.TENANT_SATURATED,
                f"Too many tokens; the limit is {limit} per minute. Try again in {wait_s} s.",
                retry_after_s=wait_s,
            )
        bucket.level -= bucket.guess
        return Bill(bucket, bucket.guess)
