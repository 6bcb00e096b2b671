"""Tokens per minute of tenants, in one process; what the others may have is told to it.

A bucket that fills evenly, holds a few seconds' worth and may be overdrawn: a request is let in
while there is anything in it, and pays a guess then and the truth at its end. So over minutes the
rate is exact, however long answers turn out.

Who is refused is told a time of its own, one after another at a little below the rate, and is let
in when it comes back then: it is known by its body, and what it will take is kept for it. Newcomers
get what is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from hashlib import blake2b

from router.admission.stays import LONGEST_S, advised
from router.clock import Clock
from router.errors import Reason, RequestError
from router.types import TenantId

BURST_S = 3.0
"""What a bucket holds at most, as seconds of its rate. Judgement: a page's worth of requests at
once is let in, and a minute is exceeded by a twentieth at most."""

_FIRST_GUESS = 500.0
_MEMORY = 20.0

_PROMISED_SHARE = 0.8
"""Of the rate: what answers turn out longer than guessed must not break promises. Judgement; see
`bench/verify_limits.py`."""

_KEPT_S = 3.0
"""For how long something is kept for who does not come: advice is in whole seconds, and the way
back takes its time."""

_MOST_PROMISES = 4096
_MOST_ALIKE = 8
"""Of requests with one body: a client that does not wait gets no more than that."""
_HEAD_BYTES, _TAIL_BYTES = 4096, 1024


class _Promises:
    """Times at which requests that were refused may come back, the soonest first."""

    __slots__ = ("_by_body", "_due", "until_s")

    def __init__(self, now: float) -> None:
        self._due: deque[tuple[float, bytes]] = deque()
        self._by_body: dict[bytes, list[float]] = {}
        self.until_s = now
        """Up to when the rate is spoken for."""

    def __len__(self) -> int:
        return len(self._due)

    def kept(self, now: float) -> int:
        """How many may come now."""
        while self._due and self._due[0][0] + _KEPT_S < now:
            due, body = self._due.popleft()
            self._drop(due, body)
        count = 0
        for due, _ in self._due:
            if due > now:
                break
            count += 1
        return count

    def redeem(self, body: bytes, now: float) -> bool:
        """Whether a request comes back as it was told; a promise holds once."""
        due = self._by_body.get(body)
        if not due or due[0] > now:
            return False
        at = due[0]
        self._drop(at, body)
        self._due.remove((at, body))
        return True

    def give(self, body: bytes, due: float) -> bool:
        """Promises a time, later than all before; False where there are too many."""
        alike = self._by_body.setdefault(body, [])
        if len(self._due) >= _MOST_PROMISES or len(alike) >= _MOST_ALIKE:
            return False
        alike.append(due)
        self._due.append((due, body))
        return True

    def _drop(self, due: float, body: bytes) -> None:
        alike = self._by_body.get(body, [])
        if due in alike:
            alike.remove(due)
        if not alike:
            self._by_body.pop(body, None)


class _Bucket:
    """One tenant's."""

    __slots__ = ("guess", "level", "per_byte", "per_minute", "promises", "since_s")

    def __init__(self, per_minute: float, now: float) -> None:
        self.per_minute = per_minute
        self.level = per_minute / 60.0 * BURST_S
        self.since_s = now
        self.promises = _Promises(now)
        self.guess = _FIRST_GUESS
        """Tokens of a request, from those before."""
        self.per_byte: float | None = None
        """Tokens of a prompt for each byte of its body, from those before; None before any."""

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.per_minute / 60.0

    def lets_in(self, body: bytes, now: float) -> bool:
        """Whether a request may be served; who was promised it may overdraw by a burst."""
        kept = self.promises.kept(now)
        if self.level - kept * self.guess > 0.0:
            self.promises.redeem(body, now)
            return True
        return self.level > -BURST_S * self.rate and self.promises.redeem(body, now)

    def promise(self, body: bytes, now: float) -> int:
        """Seconds after which a request that is refused now may come back."""
        promises = self.promises
        # One token more than the debt, so that who comes then is let in.
        paid_s = now + (1.0 - self.level) / self.rate
        next_s = max(promises.until_s, paid_s)
        wait_s = advised(next_s - now)
        if wait_s < LONGEST_S and promises.give(body, next_s):
            promises.until_s = next_s + self.guess / (_PROMISED_SHARE * self.rate)
        return wait_s

    def fill(self, now: float) -> None:
        full = self.rate * BURST_S
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
        name = _name(body) if bucket.level <= 0.0 or len(bucket.promises) else b""
        if not bucket.lets_in(name, now):
            wait_s = bucket.promise(name, now)
            raise RequestError(
                Reason.TENANT_SATURATED,
                f"Too many tokens; the limit is {limit} per minute. Try again in {wait_s} s.",
                retry_after_s=wait_s,
            )
        bucket.level -= bucket.guess
        return Bill(bucket, bucket.guess, len(body))


def _name(body: bytes) -> bytes:
    """What a body is known by: its length and its ends, since a long one takes its time."""
    data = body[:_HEAD_BYTES] + body[-_TAIL_BYTES:]
    return blake2b(data, digest_size=8, salt=len(body).to_bytes(8, "little")).digest()
