"""Time as a dependency, so that tests decide what time it is."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one to measure with, one that all processes share."""

    def monotonic(self) -> float:
        """Seconds that never go back; for durations."""

    def wall(self) -> float:
        """Seconds since the epoch; for slots and log lines."""


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)  # without a call of ours around it: asked all the time
    wall = staticmethod(time.time)
