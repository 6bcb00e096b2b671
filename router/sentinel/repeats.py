"""Asks the baseline again for answers that speculation gave, compares them, and forgets both.

Only greedy requests of those who agreed, a share of them, at most so much of the route's time, and
only while the baseline is idle enough. What waits is held in memory and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from policies.types import ArmId, Status
from router.clock import Clock
from router.config.routes import Sentinel as SentinelConfig
from router.estimates.learned import Learned
from router.estimates.writer import Writer
from router.fleet.model import RouteFacts
from router.outputs.demand import Demand, demand_of
from router.outputs.judge import UNKNOWN, Judged, judged
from router.outputs.said import Said
from router.relay.upstream import UpstreamError
from router.sentinel.asking import repeatable
from router.sentinel.compare import Repeat, first_look, repeat_counts, second_look
from router.sentinel.exchange import Baseline, Waiting, ask_again
from router.types import Outcome, RequestContext

MOST_WAITING = 16
"""Answers of a route that wait for their repeat."""

STALE_S = 60.0
"""Older ones are not repeated: what the baseline does now would be compared with another hour."""

LONGEST_S = 120.0
"""For one repeat."""

_FIRST_S, _BURST_S = 5.0, 30.0
"""Time that may be spent in the beginning, and that may be saved up at most."""


@dataclass(slots=True)
class _Route:
    config: SentinelConfig
    waiting: deque[Waiting] = field(default_factory=deque)
    saved_s: float = _FIRST_S
    """Time that may be spent."""


class Ear:
    """Hears one answer that is to be repeated."""

    __slots__ = ("_arm_id", "_ctx", "_said", "_take")

    def __init__(self, ctx: RequestContext, arm_id: ArmId, take: Callable[[Waiting], None]) -> None:
        self._ctx = ctx
        self._arm_id = arm_id
        self._take = take
        self._said: Said | None = None

    def hear(self, said: Said | None) -> None:
        """Takes what the answer has said; None where that is not known."""
        self._said = said

    def done(self, outcome: Outcome, now: float) -> None:
        """Takes what came of it: only an answer that the chosen pool has finished is repeated."""
        said, ctx = self._said, self._ctx
        good = outcome.status is Status.OK and outcome.served_by == self._arm_id
        if good and said is not None and said.finish is not None:
            self._take(
                Waiting(
                    ctx.request,
                    ctx.method,
                    ctx.path_qs,
                    ctx.headers,
                    self._arm_id,
                    ctx.classification.class_id,
                    said,
                    outcome.valid,
                    now,
                )
            )


class Sentinel:
    """The repeats of one process."""

    def __init__(
        self,
        writer: Writer,
        clock: Clock,
        *,
        uniform: Callable[[], float],
        counted: Callable[[str, ArmId, str], None],
    ) -> None:
        """Repeats nothing yet.

        Args:
            writer: Takes what is found.
            clock: Time.
            uniform: Draws from [0, 1).
            counted: Is told what became of an answer: model, pool, result.
        """
        self._writer = writer
        self._clock = clock
        self._uniform = uniform
        self._counted = counted
        self._routes: dict[str, _Route] = {}

    def configure(self, routes: Mapping[str, SentinelConfig]) -> None:
        """Takes what the configuration says from now on, by model."""
        for model, config in routes.items():
            known = self._routes.setdefault(model, _Route(config))
            known.config = config
        for model in self._routes.keys() - routes.keys():
            del self._routes[model]

    def stop(self) -> None:
        """Forgets what waits; nothing is taken any more."""
        self._routes.clear()

    @property
    def waiting(self) -> int:
        """Answers that wait."""
        return sum(len(route.waiting) for route in self._routes.values())

    # --- The request path ---------------------------------------------------------------------

    def ear(
        self, facts: RouteFacts, ctx: RequestContext, arm_id: ArmId, own_share: float | None
    ) -> Ear | None:
        """Hears the answer to a request, if it is drawn to be repeated.

        Args:
            facts: Its route.
            ctx: It.
            arm_id: Who is to answer.
            own_share: Of its tenant; None for the route's.
        """
        route = self._routes.get(facts.model)
        if route is None or arm_id == facts.baseline:
            return None
        share = route.config.share if own_share is None else own_share
        if share <= 0.0 or self._uniform() >= share or not repeatable(ctx.request):
            return None
        return Ear(ctx, arm_id, lambda waiting: self._take(facts.model, waiting))

    def served(self, model: str, outcome: Outcome) -> None:
        """Takes that a request of a route was served, of whose time a share may be spent."""
        route = self._routes.get(model)
        if route is not None:
            earned = route.config.max_cost * outcome.e2e_s
            route.saved_s = min(route.saved_s + earned, _BURST_S)

    def _take(self, model: str, waiting: Waiting) -> None:
        route = self._routes.get(model)
        if route is None:
            return
        if len(route.waiting) >= MOST_WAITING:
            self._counted(model, waiting.arm_id, "dropped")
            return
        route.waiting.append(waiting)

    # --- In the background --------------------------------------------------------------------

    async def round(self, baselines: Mapping[str, Baseline], *, off: bool = False) -> None:
        """Repeats what waits, one answer at a time, for as long as there is time to spend.

        Args:
            baselines: By model.
            off: Speculation is off: nothing is in question.
        """
        for model, route in tuple(self._routes.items()):
            baseline = baselines.get(model)
            if off or baseline is None:
                route.waiting.clear()
                continue
            while (waiting := self._next(model, route, baseline)) is not None:
                await self._repeat(model, route, waiting, baseline)

    def _next(self, model: str, route: _Route, baseline: Baseline) -> Waiting | None:
        now = self._clock.monotonic()
        while route.waiting and now - route.waiting[0].since > STALE_S:
            self._counted(model, route.waiting.popleft().arm_id, "stale")
        may = route.config.max_cost > 0.0 and route.saved_s > 0.0
        if not route.waiting or not may or not _idle(route, baseline, now):
            return None
        return route.waiting.popleft()

    async def _repeat(
        self, model: str, route: _Route, waiting: Waiting, baseline: Baseline
    ) -> None:
        first = await self._asked(route, waiting, baseline)
        if first is None:
            self._counted(model, waiting.arm_id, "failed")
            return
        finding = first_look(waiting.said, first)
        if finding is None:
            second = await self._asked(route, waiting, baseline)
            if second is None:
                self._counted(model, waiting.arm_id, "failed")
                return
            finding = second_look(waiting.said, first.said, second.said)
        demand = demand_of(waiting.request)
        counts = repeat_counts(
            waiting.said,
            Judged(waiting.valid),
            first.said,
            _judged(demand, first.said),
            finding,
        )
        self._counted(model, waiting.arm_id, finding.value)
        self._writer.add(Learned(model, waiting.arm_id, waiting.class_id, counts))

    async def _asked(self, route: _Route, waiting: Waiting, baseline: Baseline) -> Repeat | None:
        """What the baseline answers; None if it does not, or not in a way that can be read."""
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(LONGEST_S):
                return await ask_again(waiting, baseline, began)
        except (UpstreamError, TimeoutError):
            return None  # says nothing about anybody's quality; those who probe it will notice
        finally:
            route.saved_s -= self._clock.monotonic() - began


def _judged(demand: Demand | None, said: Said) -> Judged:
    return UNKNOWN if demand is None else judged(demand, said)


def _idle(route: _Route, baseline: Baseline, now: float) -> bool:
    """Whether a server of the baseline would have this request almost to itself."""
    index = list(baseline.facts.pools).index(baseline.facts.baseline)
    meets = baseline.fleet.prospects((), now)[index].load
    return 0 < meets <= route.config.max_load
