"""How many bytes of request bodies are in memory, over all requests; reads none of them.

A body is counted as it comes, not by the length it declares: a client that announces much and sends
nothing must not keep others out. And nobody waits for room with half a body read, since those who
wait for each other would hold what they wait for: where there is no room, the request is refused.

    with memory.body() as body:
        async for part in parts:
            body.grow(len(part))
        ...  # the body is held until the block ends, or `release` says it is needed no more
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from router.admission.stays import Stays, advised
from router.clock import Clock
from router.errors import Reason, RequestError


class BodyMemory:
    """Bytes of request bodies that are being read or held, against a limit."""

    def __init__(self, most_bytes: int, clock: Clock) -> None:
        self.most_bytes = most_bytes
        self._clock = clock
        self._stays = Stays(clock.monotonic())
        self.used_bytes = 0
        """Now."""

    def body(self) -> HeldBody:
        """Begins a body, of which nothing is there yet."""
        return HeldBody(self, self._clock.monotonic())

    def check(self, size: int) -> None:
        """Asks for room without taking it: for a declared length, before anything is read.

        Raises:
            RequestError: There is not so much room now.
        """
        if self.used_bytes + size > self.most_bytes:
            raise self._no_room(size)

    def take(self, size: int) -> None:
        """Counts bytes.

        Raises:
            RequestError: There is no room for them; nothing was counted.
        """
        self.check(size)
        self.used_bytes += size

    def give_back(self, size: int, since_s: float) -> None:
        """A body is in memory no longer, which began at `since_s`."""
        self.used_bytes -= size
        now = self._clock.monotonic()
        self._stays.saw(now - since_s, now)

    def _no_room(self, size: int) -> RequestError:
        # All that is held now is given back within a mean stay.
        missing = (self.used_bytes + size - self.most_bytes) / max(self.used_bytes, 1)
        retry_after_s = advised(missing * self._stays.mean_s(self._clock.monotonic()))
        return RequestError(
            Reason.BUFFERS_FULL,
            f"There is no room for the request body now. Try again in {retry_after_s} s.",
            retry_after_s=retry_after_s,
        )


class HeldBody:
    """One body's share."""

    __slots__ = ("_memory", "_since_s", "size")

    def __init__(self, memory: BodyMemory, since_s: float) -> None:
        self._memory = memory
        self._since_s = since_s
        self.size = 0
        """Bytes counted for it."""

    def grow(self, size: int) -> None:
        """Counts bytes that have come.

        Raises:
            RequestError: There is no room for them; what was counted before still is.
        """
        self._memory.take(size)
        self.size += size

    def release(self) -> None:
        """Gives all of it back; more than once is the same as once."""
        size, self.size = self.size, 0
        if size:
            self._memory.give_back(size, self._since_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
