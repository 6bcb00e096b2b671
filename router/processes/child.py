"""One worker, as its supervisor sees it: started, asked, and gone again.

A worker is a program of its own (`specroute worker`), not a fork: a fork would inherit threads'
locks and an event loop in the middle of something.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from router.clock import Clock
from router.lifecycle import Lifecycle
from router.observe.sums import Samples
from router.processes.channel import Channel, Message, NoAnswerError

_GONE_S = 10.0
"""How long a process may take to end once it has closed its side of the line."""

_log = logging.getLogger("specroute.supervisor")


class Child:
    """One process.

    Args:
        number: Of the worker; one that takes its place has the same.
        clock: Time.
        lifecycle: For questions of its own.
        log_level: Of its log lines.
    """

    def __init__(self, number: int, clock: Clock, lifecycle: Lifecycle, log_level: str) -> None:
        self.number = number
        self.digest: str | None = None
        """Of the configuration that it serves by; None before it serves."""
        self.knows_drained = False
        """Whether it was told which servers an operator has taken out."""
        self.why: str | None = None
        """What is wrong with the configuration, where it said so."""
        self.trouble: str | None = None
        """Why it could not be started at all."""
        self.metrics: Samples = ()
        """As it last told them."""
        self.gone = False
        self.unwanted = False
        """Whether it was told to end so that another one takes its place."""
        self.started = clock.monotonic()
        self._clock = clock
        self._lifecycle = lifecycle
        self._log_level = log_level
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None
        self._last_word = False
        """Whether `metrics` can only be newer than any answer."""

    @property
    def pid(self) -> int | None:
        """Process id."""
        return self._process.pid if self._process else None

    @property
    def serving(self) -> bool:
        """Whether it has begun to serve, and is there."""
        return self.digest is not None and not self.gone

    async def run(self, orders: Message, on_serving: Callable[[Child], None]) -> int:
        """Starts it and stays until it has ended; returns its exit code.

        Args:
            orders: Its first message; see `router.processes.worker`.
            on_serving: Called once it listens.
        """

        def news(message: Message) -> None:
            match message.get("news"):
                case "serving":
                    self.digest = message["hash"]
                    on_serving(self)
                case "failed":
                    self.why = message["why"]
                case "ended":
                    self.metrics, self._last_word = message["metrics"], True
                case _:
                    _log.warning("unknown news of a worker", extra={"worker": self.number})

        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await self._start(theirs.fileno())
        except OSError as error:
            ours.close()
            self.gone, self.trouble = True, f"cannot be started: {error.strerror}"
            return -1
        self._channel = await Channel.over(ours, self._lifecycle)
        try:
            self._channel.send(orders)
            await self._channel.run(_no_questions, news)
        finally:
            self.gone = self._last_word = True
            await self._channel.close()
        return await self._ended(process)

    async def _start(self, descriptor: int) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "router", "worker", str(descriptor)),
            *("--log-level", self._log_level),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            pass_fds=(descriptor,),
            start_new_session=True,  # Ctrl-C is for the supervisor, which passes it on
        )
        return self._process

    async def _ended(self, process: asyncio.subprocess.Process) -> int:
        try:
            async with asyncio.timeout(_GONE_S):
                return await process.wait()
        except TimeoutError:
            _log.warning("worker does not end; killed", extra={"worker": self.number})
            self.kill()
            return await process.wait()

    async def ask(self, question: str, timeout_s: float, **more: Any) -> Any:
        """Asks it something.

        Raises:
            NoAnswerError: It did not answer.
        """
        if self._channel is None or not self.serving:
            raise NoAnswerError("it does not serve yet" if not self.gone else "it is gone")
        return await self._channel.ask(question, timeout_s, **more)

    async def count(self, timeout_s: float) -> bool:
        """Brings `metrics` up to date; returns whether it answered."""
        try:
            answer = await self.ask("metrics", timeout_s)
        except NoAnswerError:
            return False
        if not self._last_word:
            self.metrics = answer
        return True

    def replace(self) -> None:
        """Ends it, so that another one takes its place."""
        self.unwanted = True
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        """Sends it a signal."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def kill(self) -> None:
        """Ends it at once, whatever it does."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def lived_s(self) -> float:
        """Since it was started."""
        return self._clock.monotonic() - self.started


async def _no_questions(question: str, _: Message) -> None:
    raise ValueError(question)
