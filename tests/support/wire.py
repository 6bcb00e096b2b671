"""A transport and a time of the test's own, for what sockets and clocks cannot be told to do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from tests.support.clock import ManualClock

_MOST = 100
"""Timers that fire within one step; what starts itself again at once would go on for ever."""


class ManualLoop(asyncio.AbstractEventLoop):
    """As much of a loop as a connection needs; timers fire when the test lets time pass."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.timers: list[asyncio.TimerHandle] = []
        self.started = 0
        """Timers ever started."""

    def get_debug(self) -> bool:
        """Never."""
        return False

    def create_future(self) -> asyncio.Future[Any]:
        """One of the loop that runs the test."""
        return asyncio.get_running_loop().create_future()

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Starts a timer."""
        handle = asyncio.TimerHandle(self._clock.monotonic() + delay, callback, args, self)
        self.timers.append(handle)
        self.started += 1
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self.timers.remove(handle)

    def advance(self, seconds: float) -> None:
        """Lets time pass and fires what is due, in order."""
        until = self._clock.monotonic() + seconds
        for _ in range(_MOST):
            due = [timer for timer in self.timers if timer.when() <= until]
            if not due:
                break
            timer = min(due, key=lambda handle: handle.when())
            self._clock.advance(max(0.0, timer.when() - self._clock.monotonic()))
            self.timers.remove(timer)
            timer._run()
        self._clock.advance(until - self._clock.monotonic())


class ManualTransport(asyncio.Transport):
    """Keeps what is written; takes `room` bytes at once and the rest when the test says so."""

    def __init__(self, protocol: asyncio.Protocol, *, room: int = 1 << 40) -> None:
        super().__init__()
        self._protocol = protocol
        self._room = room
        self._left = 0
        self._ours, self.theirs = socket.socketpair()
        self.writes: list[bytes] = []
        self.reading = True
        self.aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """A socket that is silent until the test writes to `theirs`."""
        return self._ours if name == "socket" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Any byte left pauses, whatever is asked."""

    def is_closing(self) -> bool:
        """Whether it has been aborted."""
        return self.aborted

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Takes what there is room for."""
        self.writes.append(bytes(data))
        self._left += len(data)
        self._move()
        if self._left:
            self._protocol.pause_writing()

    def _move(self) -> None:
        moved = min(self._left, self._room)
        self._left -= moved
        self._room -= moved

    def take(self, size: int) -> None:
        """The other side reads."""
        self._room += size
        paused = self._left > 0
        self._move()
        if paused and not self._left:
            self._protocol.resume_writing()

    def pause_reading(self) -> None:
        """Nothing is read."""
        self.reading = False

    def resume_reading(self) -> None:
        """Reading goes on."""
        self.reading = True

    def abort(self) -> None:
        """Closes at once."""
        self.aborted = True

    def free(self) -> None:
        """Closes the sockets."""
        self._ours.close()
        self.theirs.close()
