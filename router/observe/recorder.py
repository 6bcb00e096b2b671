"""The one receiver of an Outcome: sums, metrics and the decision log. Never raises, never waits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from policies.cost import typical_tokens
from policies.estimators.increments import costs_by_kind, with_effects
from policies.types import OK, ArmId, ClassId, Counts, Status, Trial
from router.clock import Clock
from router.engines.counters import COUNTERS_MOVE, Moves
from router.estimates.extras import Points, made_by, more_cells
from router.estimates.layout import part_of, slot_at
from router.estimates.learned import Learned
from router.estimates.ledger import ledger_counts
from router.estimates.writer import Writer
from router.experiments.cells import add_holdout, side_cells, tried_sums
from router.experiments.placing import OFF, PINNED, TRIED, WISHED
from router.fleet.model import RouteFacts
from router.fleet.scrape import interval_s
from router.observe.decision_log import DecisionLog, DecisionRecord, decision_record
from router.observe.metrics import Metrics
from router.selection.eligibility import LOSSY, NO_SERVER, QUARANTINED
from router.types import AttemptEnd, Decision, Outcome, RequestContext

_log = logging.getLogger("specroute.recorder")

_AT_THE_END = Moves.AT_THE_END

_ENOUGH_TOLD = 100
"""Answers in a row with records of their own after which the engine's counters are not needed. One
without begins anew."""

Noted = Callable[[tuple[ArmId, ...], ClassId, Counts], None]
"""Takes sides of experiments, a class, and what a request adds to it."""


class Recorder:
    """Records the outcomes of one route."""

    def __init__(
        self,
        writer: Writer,
        metrics: Metrics,
        decision_log: DecisionLog,
        clock: Clock,
        *,
        route: RouteFacts | None = None,
        noted: Noted | None = None,
    ) -> None:
        """Takes nothing yet.

        Args:
            writer: Takes the sums.
            metrics: Takes counts and durations.
            decision_log: Takes a line for each request.
            clock: Time.
            route: Its pools: which of them is the baseline, which draft, whose counters are read.
            noted: Is told what requests in experiments add.
        """
        self._writer = writer
        metrics.put_off(writer.work_out)
        self._baseline = route.baseline if route else None
        pools = route.pools if route else {}
        self._arms = route.arms if route else ()
        self._plain = frozenset(arm for arm, pool in pools.items() if not pool.speculative)
        self._moves = {
            arm: COUNTERS_MOVE.get(pool.adapter.name)
            for arm, pool in pools.items()
            if interval_s(pool) > 0
        }
        """When counters move, of the pools whose counters are read."""
        self._points = Points()
        self._told: dict[ArmId, int] = {}
        """Answers of a pool in a row that brought records of their own."""
        self._metrics = metrics
        self._decision_log = decision_log
        self._clock = clock
        self._noted = noted

    def record(self, ctx: RequestContext, decision: Decision, outcome: Outcome) -> None:
        """Takes the outcome of a request.

        What becomes of it is worked out with that of others, and keeps no request: its body goes
        with it.
        """
        try:
            wall = self._clock.wall()
            made = decision_record(ctx, decision, outcome, wall=wall, arms=self._arms)
            self._writer.defer(partial(self._learned, made, ctx.sides))
            self._decision_log.append(made)
        except Exception:  # noqa: BLE001
            # One of the three places that may catch everything: a flaw in the books must not
            # fail a request that has been served.
            self._failed(ctx.request_id)

    def _learned(self, made: DecisionRecord, sides: tuple[ArmId, ...]) -> Learned | None:
        """Counts a request, and gives what it adds to all sums; None if that cannot be told."""
        try:
            decision, outcome = made.decision, made.outcome
            class_id = made.classification.class_id
            trial = _trial(class_id, decision, outcome, streamed=made.stream, queue_s=made.queue_s)
            arm_id = decision.arm_id
            self._metrics.observe(made.model, class_id, decision, outcome)
            sums, effects = with_effects(trial, typical_tokens(class_id))
            point = self._points.take(slot_at(made.wall), arm_id, trial.load)
            moves = self._moves.get(arm_id)
            if moves is not None and self._speaks_for_itself(trial):
                moves = None
            also = more_cells(trial, effects, self._plain, point=point)
            ledger = ledger_counts(outcome, self._baseline)
            if sides:
                of_sides = tried_sums(sides, trial, sums)
                costs = costs_by_kind(effects)
                also += side_cells(sides, class_id, of_sides, costs)
                add_holdout(ledger, sides, costs)
                if self._noted is not None and of_sides is not sums:
                    self._noted(sides, class_id, of_sides)
            # In the order of the fields, as in `_trial`.
            return Learned(
                made.model,
                arm_id,
                class_id,
                sums,
                part_of(made.segment, made.classification.copy_ratio),
                effects,
                also,
                made.tenant,
                ledger,
                None
                if moves is None
                else made_by(trial, outcome, made.wall, at_the_end=moves is _AT_THE_END),
            )
        except Exception:  # noqa: BLE001
            # See above.
            self._failed(made.request_id)
            return None

    def _speaks_for_itself(self, trial: Trial) -> bool:
        """Whether the answers of an arm bring records, so that nobody asks its counters."""
        if trial.status is not OK or trial.tokens is None:
            return self._told.get(trial.arm_id, 0) >= _ENOUGH_TOLD
        told = 0 if trial.spec is None else self._told.get(trial.arm_id, 0) + 1
        self._told[trial.arm_id] = told
        return told > _ENOUGH_TOLD

    def _failed(self, request_id: str) -> None:
        self._metrics.recorder_errors.inc()
        _log.exception("outcome not recorded", extra={"request_id": request_id})

    def record_balanced(self, ctx: RequestContext, outcome: Outcome) -> None:
        """Takes the outcome of a request that no policy decided about: it is only counted."""
        try:
            self._metrics.observe_balanced(ctx, outcome)
        except Exception:  # noqa: BLE001
            # See above.
            self._metrics.recorder_errors.inc()
            _log.exception("outcome not counted", extra={"request_id": ctx.request_id})


_CENSORED = frozenset((AttemptEnd.BUSY, AttemptEnd.OVERTAKEN))
"""Ends of a try that say neither that the arm is broken nor how fast it is."""


def _after_fallback(decision: Decision, outcome: Outcome) -> tuple[Status, bool]:
    """How it ended on the chosen arm, and whether it was overtaken there."""
    ends = {item.end for item in outcome.attempts if item.arm_id == decision.arm_id}
    if ends <= _CENSORED:
        return Status.ABORTED, AttemptEnd.OVERTAKEN in ends
    return Status.FAILED, False


def trial_of(ctx: RequestContext, decision: Decision, outcome: Outcome) -> Trial:
    """What the estimates learn from an outcome.

    After a fallback it is the chosen arm that failed; the answer of the arm that stepped in was
    not drawn by the policy and is left out of learning. An arm that was full, or that was overtaken
    by a hedge, has not failed: that is censored. Answers that were overtaken, or whose client left,
    are counted as abandoned: it is the slow ones that are. Of an answer that its client held up no
    duration is learned: whoever reads slowly, and is told the pool, could make one look slow. The
    wait for a place came before the draw and counts for no arm.
    """
    class_id = ctx.classification.class_id
    return _trial(class_id, decision, outcome, streamed=ctx.request.stream, queue_s=ctx.queue_s)


def _trial(
    class_id: ClassId, decision: Decision, outcome: Outcome, *, streamed: bool, queue_s: float
) -> Trial:
    fell_back = outcome.served_by not in (None, decision.arm_id)
    if fell_back or outcome.status is not OK:
        status = outcome.status
        abandoned = status is Status.ABORTED and not outcome.held
        if fell_back:
            status, abandoned = _after_fallback(decision, outcome)
        return Trial(
            class_id=class_id,
            arm_id=decision.arm_id,
            status=status,
            streamed=streamed,
            propensity=decision.propensity,
            abandoned=abandoned,
            compared=_might_have_gone_elsewhere(decision),
        )
    held, ttft_s = outcome.held, outcome.ttft_s
    # In the order of the fields: naming each takes a microsecond more.
    return Trial(
        class_id,
        decision.arm_id,
        outcome.status,
        streamed,
        decision.propensity,
        None if held or ttft_s is None else ttft_s - queue_s,
        None if held else outcome.tpot_s,
        None if held else outcome.e2e_s - queue_s,
        outcome.tokens,
        outcome.spec,
        outcome.load,
        outcome.waiting,
        # After a failed try TTFT holds the time of that, which is no prefill.
        outcome.prompt_tokens if len(outcome.attempts) <= 1 else None,
        outcome.cached_tokens,
        queue_s,
        outcome.overhead_s,
        held,
        outcome.valid,
        outcome.truncated,
        outcome.valid is None or _by_chance(decision),
        _might_have_gone_elsewhere(decision),
        decision.lean,
    )


_SENT = frozenset((PINNED, WISHED, OFF))
_CHOSEN = frozenset((PINNED, WISHED, TRIED, OFF))
_FOR_ALL = frozenset((NO_SERVER, QUARANTINED, LOSSY))
"""Reasons that hold for all requests of a class alike."""


def _by_chance(decision: Decision) -> bool:
    """Whether requests of all kinds had a chance to go there, so that arms can be compared by them.

    Who is held out is drawn as well. Tenants pinned to a pool, and requests that some engines do
    not serve, are of a kind of their own.
    """
    return decision.policy not in _CHOSEN and _FOR_ALL.issuperset(decision.excluded.values())


def _might_have_gone_elsewhere(decision: Decision) -> bool:
    """Whether neither somebody's wish nor what it demands has left one arm only.

    A tenant that is pinned to a pool, or whose requests one engine alone serves, asks for what it
    asks for wherever it goes: that would be put down to the pool. Sides of experiments and those
    held out are drawn by lot.
    """
    if decision.policy in _SENT:
        return False
    excluded = decision.excluded
    if not excluded or _FOR_ALL.issuperset(excluded.values()):
        return True
    return sum(arm_id not in excluded for arm_id in decision.probabilities) > 1
