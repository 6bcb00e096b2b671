"""The one receiver of an Outcome: sums, metrics and the decision log. Never raises, never waits."""

from __future__ import annotations

import logging

from policies.cost import typical_tokens
from policies.estimators.cells import increments
from policies.types import Status, Trial
from router.clock import Clock
from router.estimates.layout import part_of
from router.estimates.writer import Writer
from router.observe.decision_log import DecisionLog, decision_record
from router.observe.metrics import Metrics
from router.types import AttemptEnd, Decision, Outcome, RequestContext

_log = logging.getLogger("specroute.recorder")


class Recorder:
    """Records the outcomes of one route."""

    def __init__(
        self,
        writer: Writer,
        metrics: Metrics,
        decision_log: DecisionLog,
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._metrics = metrics
        self._decision_log = decision_log
        self._clock = clock

    def record(self, ctx: RequestContext, decision: Decision, outcome: Outcome) -> None:
        """Takes the outcome of a request."""
        try:
            trial = trial_of(ctx, decision, outcome)
            self._writer.add(
                ctx.request.model,
                trial.arm_id,
                trial.class_id,
                increments(trial, typical_tokens(trial.class_id)),
                part_of(ctx.segment, ctx.classification.copy_ratio),
            )
            self._metrics.observe(ctx, decision, outcome)
            self._decision_log.append(
                decision_record(ctx, decision, outcome, wall=self._clock.wall())
            )
        except Exception:  # noqa: BLE001
            # One of the three places that may catch everything: a flaw in the books must not
            # fail a request that has been served.
            self._metrics.recorder_errors.inc()
            _log.exception("outcome not recorded", extra={"request_id": ctx.request_id})

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


def _after_fallback(decision: Decision, outcome: Outcome) -> Status:
    ends = {item.end for item in outcome.attempts if item.arm_id == decision.arm_id}
    return Status.ABORTED if ends <= _CENSORED else Status.FAILED


def trial_of(ctx: RequestContext, decision: Decision, outcome: Outcome) -> Trial:
    """What the estimates learn from an outcome.

    After a fallback it is the chosen arm that failed; the answer of the arm that stepped in was
    not drawn by the policy and is left out of learning. An arm that was full, or that was overtaken
    by a hedge, has not failed: that is censored. Of an answer that its client held up no duration
    is learned: whoever reads slowly, and is told the pool, could make one look slow. The wait
    for a place came before the draw and counts for no arm.
    """
    fell_back = outcome.served_by not in (None, decision.arm_id)
    if fell_back or outcome.status is not Status.OK:
        return Trial(
            class_id=ctx.classification.class_id,
            arm_id=decision.arm_id,
            status=_after_fallback(decision, outcome) if fell_back else outcome.status,
            streamed=ctx.request.stream,
            propensity=decision.propensity,
        )
    return Trial(
        class_id=ctx.classification.class_id,
        arm_id=decision.arm_id,
        status=outcome.status,
        streamed=ctx.request.stream,
        propensity=decision.propensity,
        ttft_s=None if outcome.held else _served_s(outcome.ttft_s, ctx),
        tpot_s=None if outcome.held else outcome.tpot_s,
        e2e_s=None if outcome.held else _served_s(outcome.e2e_s, ctx),
        tokens=outcome.tokens,
        spec=outcome.spec,
        load=outcome.load,
        waiting=outcome.waiting,
        # After a failed try TTFT holds the time of that, which is no prefill.
        prompt_tokens=outcome.prompt_tokens if len(outcome.attempts) <= 1 else None,
        cached_tokens=outcome.cached_tokens,
    )


def _served_s(duration_s: float | None, ctx: RequestContext) -> float | None:
    return None if duration_s is None else duration_s - ctx.queue_s
