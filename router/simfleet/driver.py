"""Runs a step machine against a clock and hands out what each step gives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from policies.sim.machine import Emission, SimMachine, SimRequest, Step
from router.simfleet.faults import FaultKind, Faults
from router.simfleet.pace import Pace

Taker = Callable[[Emission, Step], None]

_THAW_S = 0.05
"""How often it is looked whether a freeze is over."""


class Driver:
    """One engine's loop: step, let its duration pass, tell everybody."""

    def __init__(
        self,
        machine: SimMachine,
        pace: Pace,
        faults: Faults,
        before: Callable[[], None],
        after: Callable[[Step], None],
    ) -> None:
        """Both calls frame each step: what has to happen before it, and what is counted after."""
        self._machine = machine
        self._pace = pace
        self._faults = faults
        self._before = before
        self._after = after
        self._takers: dict[str, Taker] = {}
        self._wake = asyncio.Event()
        self.running = 0
        """In the last step's batch."""
        self.kv_usage = 0.0

    @property
    def inside(self) -> int:
        """Requests that run or wait."""
        return len(self._takers)

    @property
    def waiting(self) -> int:
        """Requests that no step has taken in."""
        return max(len(self._takers) - self.running, 0)

    def submit(self, request: SimRequest, taker: Taker) -> None:
        """Takes a request in.

        Raises:
            ValueError: The machine could never run it.
        """
        self._machine.submit(request)
        self._takers[request.request_id] = taker
        self._wake.set()

    def cancel(self, request_id: str) -> None:
        """Drops a request; what its step gives is told to nobody."""
        if self._takers.pop(request_id, None) is not None:
            self._machine.cancel(request_id)

    def restart(self) -> None:
        """The machine forgets everything; nobody is told."""
        self._machine.restart()
        self._takers.clear()
        self.running, self.kv_usage = 0, 0.0

    async def run(self) -> None:
        """Steps until it is cancelled."""
        while True:
            self._before()
            step = self._machine.step()
            if step is None:
                self.running, self.kv_usage = 0, 0.0
                self._wake.clear()
                await self._wake.wait()
                continue
            self.running, self.kv_usage = step.running, step.kv_usage
            began = self._pace.now()
            slow = [fault.value for fault in self._faults.active(FaultKind.SLOW)]
            await self._pace.pause(step.duration_s * max(slow, default=1.0))
            while (left := self._faults.left(FaultKind.FREEZE)) > 0:
                await self._pace.wait(min(left, _THAW_S))
            # As long as it took by the clock: speed and faults are in it.
            self._tell(replace(step, duration_s=self._pace.now() - began))

    def _tell(self, step: Step) -> None:
        self._after(step)
        for emission in step.emissions:
            name = emission.request_id
            taker = self._takers.pop(name, None) if emission.finished else self._takers.get(name)
            if taker is not None:
                taker(emission, step)
        self.running = max(step.running - sum(item.finished for item in step.emissions), 0)
