"""Time that moves only when a test says so."""

from __future__ import annotations


class ManualClock:
    """A `router.clock.Clock` whose two clocks stand still between calls of `advance`."""

    def __init__(self, wall: float = 1_800_000_000.0, monotonic: float = 1000.0) -> None:
        self._wall = wall
        self._monotonic = monotonic

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self._monotonic

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Lets time pass on both clocks."""
        self._monotonic += seconds
        self._wall += seconds

    def step_wall(self, seconds: float) -> None:
        """Sets the wall clock forward or back, as time services do."""
        self._wall += seconds
