"""What operators are told of all workers together: state and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from router import __version__
from router.clock import Clock
from router.dashboard.answers import newest
from router.observe.metrics import Metrics
from router.observe.sums import Samples, counted, exposition, samples_of, summed
from router.processes.channel import NoAnswerError
from router.processes.child import Child
from router.processes.merge import merged, silent_worker
from router.processes.reload import Reloader

_ASK_S = 2.0
"""What a worker may take to answer; one that is busier is shown as silent."""
_HISTORY_S = 20.0
"""A week that nobody has asked for yet is read first."""


class Summary:
    """Speaks for all workers.

    Args:
        children: The workers, by number; changes as they come and go.
        reloader: Knows the configuration.
        metrics: What the supervisor itself counts.
        clock: Time.
    """

    def __init__(
        self, children: Mapping[int, Child], reloader: Reloader, metrics: Metrics, clock: Clock
    ) -> None:
        self._children = children
        self._reloader = reloader
        self._metrics = metrics
        self._clock = clock
        self._began = clock.monotonic()
        self._restarts: dict[int, int] = {}
        self._ended: Samples = ()
        """What workers had counted that have ended."""
        self.data_url = ""

    def ended(self, child: Child) -> None:
        """Keeps what a worker had counted that has ended."""
        self._ended = summed([self._ended, counted(child.metrics)])
        child.metrics = ()

    def restarted(self, number: int) -> None:
        """Counts a worker that takes another's place."""
        self._restarts[number] = self._restarts.get(number, 0) + 1
        self._metrics.worker_restarts.inc()

    async def state(self) -> dict[str, Any]:
        """The state of all workers as one."""
        children = list(self._children.values())
        answers = await asyncio.gather(*(_state_of(child) for child in children))
        states = [answer for answer in answers if "routes" in answer]
        made = merged(states) if states else self._nobody()
        made["workers"] = [
            {**answer["workers"][0], "restarts": self._restarts.get(child.number, 0)}
            for child, answer in zip(children, answers, strict=True)
        ]
        made["store"]["url"] = self._reloader.loaded.config.store.shown_url
        made["config"] = self._reloader.state()
        made["uptime_s"] = self._clock.monotonic() - self._began
        return made

    def _nobody(self) -> dict[str, Any]:
        why = "no worker answers"
        return {
            "version": __version__,
            "time": self._clock.wall(),
            "data_url": self.data_url,
            "ready": False,
            "not_ready": why,
            "window_s": self._reloader.loaded.config.estimates.window_s,
            "store": {
                "up": False,
                "error": why,
                "snapshot_age_s": None,
                "dropped_increments": 0,
                "refused_increments": 0,
                "waiting_increments": 0,
                "late_made_tokens": 0,
                "clock_skew_s": None,
                "says": why,
            },
            "admission": None,
            "routes": [],
        }

    async def history(self, since: float, class_id: str | None) -> dict[str, Any]:
        """The past of every route, by the first worker that tells: all read the same store."""
        asked = {"since": since, "class": class_id}
        told = await self._first("history", _HISTORY_S, **asked)
        return told or {"time": self._clock.wall(), **asked, "routes": []}

    async def beliefs(self) -> dict[str, Any]:
        """What the policies believe, by the first worker that tells: all see the same sums."""
        told = await self._first("beliefs", _ASK_S)
        return told or {"time": self._clock.wall(), "routes": []}

    async def _first(self, question: str, within_s: float, **more: Any) -> dict[str, Any] | None:
        """The answer of the first worker that gives one; None where none does."""
        for child in list(self._children.values()):
            try:
                told: dict[str, Any] = await child.ask(question, within_s, **more)
            except NoAnswerError:
                continue
            return told
        return None

    async def decisions(self, request_id: str | None, limit: int) -> list[dict[str, Any]]:
        """The newest decisions of all workers, or the one of a request."""
        children = list(self._children.values())
        told = await asyncio.gather(
            *(_decisions_of(child, request_id, limit) for child in children)
        )
        return newest(told, limit)

    async def count(self) -> None:
        """Notes what every worker has counted: little of it goes with one that is killed."""
        await asyncio.gather(*(child.count(_ASK_S) for child in self._children.values()))

    async def exposition(self) -> bytes:
        """The metrics of all workers added up."""
        asked = list(self._children.values())
        answered = await asyncio.gather(*(child.count(_ASK_S) for child in asked))
        live = {id(child) for child, known in zip(asked, answered, strict=True) if known}
        # From here on nothing waits, so that no worker that ends meanwhile is counted twice.
        told = [
            child.metrics if id(child) in live else counted(child.metrics)
            for child in self._children.values()
        ]
        return exposition(summed([samples_of(self._metrics.registry), self._ended, *told]))


async def _state_of(child: Child) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = await child.ask("state", _ASK_S)
    except NoAnswerError as error:
        return {"workers": [silent_worker(child.number, child.pid, str(error))]}
    return answer


async def _decisions_of(child: Child, request_id: str | None, limit: int) -> list[dict[str, Any]]:
    try:
        told: list[dict[str, Any]] = await child.ask(
            "decisions", _ASK_S, request_id=request_id, limit=limit
        )
    except NoAnswerError:
        return []
    return told
