"""What signals ask of a process: to end, to end at once, to read its configuration again."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable

_log = logging.getLogger("specroute.process")


class Signals:
    """Signals of this process, from now on.

    Args:
        hurried: Called at every signal to end after the first.
    """

    def __init__(self, hurried: Callable[[int], None]) -> None:
        self._hurried = hurried
        self.end = asyncio.Event()
        """SIGTERM or SIGINT has come."""
        self.at_once = asyncio.Event()
        """The end is not to be announced first: somebody at a terminal waits, or asked twice."""
        self.first: int | None = None
        """The signal that asked for the end."""
        self.reload = asyncio.Event()
        """SIGHUP has come; whoever acts on it clears this."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked, number)
        loop.add_signal_handler(signal.SIGHUP, self.reload.set)

    def say_stopping(self) -> None:
        """Tells whoever reads the log that it was told to end, and by what."""
        if self.first is not None:
            _log.info(
                "stopping; running answers are finished first",
                extra={"signal": signal.Signals(self.first).name},
            )

    def _asked(self, number: int) -> None:
        if self.end.is_set() or number == signal.SIGINT:
            self.at_once.set()
        if self.end.is_set():
            self._hurried(number)
            return
        self.first = number
        self.end.set()
