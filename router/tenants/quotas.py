"""Tokens per minute of tenants, in one process; what the others may have is told to it.

A bucket that fills evenly, holds a few seconds' worth and may be overdrawn: a request is let in
while there is anything in it, and pays a guess then and the truth at its end. So over minutes the
rate is exact, however long answers turn out.

Who is refused is told a time of its own, one after another as the bucket will have paid for those
before, and is let in when it comes back then: it is known by its body, and what it will take is
kept for it. Newcomers get what is left.
"""

from __future__ import annotations

from collections.abc import Mapping

from router.admission.promises import Promises, Told, name_of
from router.admission.stays import LONGEST_S, advised
from router.clock import Clock
from router.errors import Reason, RequestError
from router.types import TenantId

BURST_S = 3.0
"""What a bucket holds at most, as seconds of its rate. Judgement: a page's worth of requests at
once is let in, and a minute is exceeded by a twentieth at most."""

_OVERDRAFT_S = 2 * BURST_S
"""How far who comes back as told may overdraw it, as seconds of its rate. Judgement."""

_FIRST_GUESS = 500.0
_MEMORY = 20.0


class _Bucket:
    """One tenant's."""

    __slots__ = ("guess", "level", "per_byte", "per_minute", "promises", "since_s")

    def __init__(self, per_minute: float, now: float) -> None:
        self.per_minute = per_minute
        self.level = per_minute / 60.0 * BURST_S
        self.since_s = now
        self.promises = Promises()
        self.guess = _FIRST_GUESS
        """Tokens of a request, from those before."""
        self.per_byte: float | None = None
        """Tokens of a prompt for each byte of its body, from those before; None before any."""

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.per_minute / 60.0

    def lets_in(self, name: str, now: float, *, promised: bool) -> bool:
        """Whether a request may be served; who was promised it may overdraw more.

        Args:
            name: Of the request; empty where there is no promise at all.
            now: Monotonic clock.
            promised: Whether another process has promised it.
        """
        promises = self.promises
        due, _ = promises.waiting(now)
        anyway = self.level - due * self.guess > 0.0
        if not anyway and self.level <= -_OVERDRAFT_S * self.rate:
            return False
        if promises.redeem(name, now):
            return True
        if promised:
            promises.came()
        return anyway or promised

    def promise(self, name: str, now: float) -> tuple[int, float | None]:
        """Seconds after which a request that is refused now may come back, and when it is due."""
        promises = self.promises
        # One token more than the debt, so that who comes then is let in.
        _, waiting = promises.waiting(now)
        owed = 1.0 - self.level + waiting * self.guess
        due = max(promises.until_s, now + owed / self.rate)
        wait_s = advised(due - now)
        given = wait_s < LONGEST_S and promises.give(name, due)
        return wait_s, due if given else None

    def fill(self, now: float) -> None:
        # What is set aside for those who were refused is not lost while they are on their way.
        full = self.rate * BURST_S + len(self.promises) * self.guess
        self.level = max(self.level, min(self.level + self.rate * (now - self.since_s), full))
        self.since_s = now


class Bill:
    """What one request pays."""

    __slots__ = ("_bucket", "_paid", "_size")

    def __init__(self, bucket: _Bucket | None, paid: float, size: int = 0) -> None:
        """Args: `size` is that of the request's body in bytes."""
        self._bucket = bucket
        self._paid = paid
        self._size = size

    def settle(self, tokens: int, *, of_prompt: int | None = None) -> None:
        """Pays the truth in the place of the guess, once.

        Args:
            tokens: All of them; 0 where nothing was made.
            of_prompt: How many of them are the prompt's; None where nobody told.
        """
        bucket, self._bucket = self._bucket, None
        if bucket is None:
            return
        if of_prompt is not None and self._size:
            known = of_prompt / self._size
            before = known if bucket.per_byte is None else bucket.per_byte
            bucket.per_byte = before + (known - before) / _MEMORY
        _settle(bucket, self._paid, tokens)

    def settle_untold(self, seen: int = 0) -> None:
        """Leaves the guess, once, or pays what was surely used if that is more.

        So who leaves before an answer ends, and before anybody tells its tokens, saves nothing.

        Args:
            seen: Tokens of the answer that have passed.
        """
        bucket, self._bucket = self._bucket, None
        if bucket is not None:
            used = seen + int(self._size * (bucket.per_byte or 0.0))
            if used > self._paid:
                _settle(bucket, self._paid, used)


def _settle(bucket: _Bucket, paid: float, tokens: int) -> None:
    bucket.level += paid - tokens
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
        self.told = Told()

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

    def take(self, tenant: TenantId, body: bytes = b"") -> Bill:
        """Lets a request in.

        Args:
            tenant: Whose limit counts.
            body: Of the request, by which it is known when it comes back.

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
        name = name_of(tenant, body) if bucket.level <= 0.0 or len(bucket.promises) else ""
        if not bucket.lets_in(name, now, promised=self.told.elsewhere(name, now)):
            wait_s, due = bucket.promise(name, now)
            if due is not None:
                self.told.note(due, name)
            raise RequestError(
                Reason.TENANT_SATURATED,
                f"Too many tokens; the limit is {limit} per minute. Try again in {wait_s} s.",
                retry_after_s=wait_s,
            )
        bucket.level -= bucket.guess
        return Bill(bucket, bucket.guess, len(body))
