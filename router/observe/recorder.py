"""The one receiver of an Outcome: sums, metrics and the decision log. Never raises, never waits."""

from __future__ import annotations

import logging
from functools import partial

from policies.cost import typical_tokens
from policies.estimators.cells import increments
from policies.types import ArmId, Status, Trial
from router.clock import Clock
from router.estimates.layout import part_of
from router.estimates.learned import Learned
from router.estimates.ledger import ledger_counts
from router.estimates.writer import Writer
from router.observe.decision_log import DecisionLog, decision_record
from router.observe.metrics import Metrics
from router.types import AttemptEnd, Decision, Outcome, RequestContext, SegmentId, TenantId

_log = logging.getLogger("specroute.recorder")


class Recorder:
    """Records the outcomes of one route."""

    def __init__(
        self,
        writer: Writer,
        metrics: Metrics,
        decision_log: DecisionLog,
        clock: Clock,
        *,
        baseline: ArmId | None = None,
    ) -> None:
        """Takes nothing yet.

        Args:
            writer: Takes the sums.
            metrics: Takes counts and durations.
            decision_log: Takes a line for each request.
            clock: Time.
            baseline: Of the route, for the ledger.
        """
        self._writer = writer
        self._baseline = baseline
        self._metrics = metrics
        self._decision_log = decision_log
        self._clock = clock

    def record(self, ctx: RequestContext, decision: Decision, outcome: Outcome) -> None:
        """Takes the outcome of a request."""
        try:
            # The sums are worked out with those of other requests, and hold no request: its body
            # goes with it.
            trial = trial_of(ctx, decision, outcome)
            part = part_of(ctx.segment, ctx.classification.copy_ratio)
            self._writer.defer(
                partial(self._learned, ctx.request.model, trial, part, ctx.tenant, outcome)
            )
            self._metrics.observe(ctx, decision, outcome)
            if self._decision_log.kept:
                self._decision_log.append(
                    decision_record(ctx, decision, outcome, wall=self._clock.wall())
                )
        except Exception:  # noqa: BLE001
            # One of the three places that may catch everything: a flaw in the books must not
            # fail a request that has been served.
            self._metrics.recorder_errors.inc()
            _log.exception("outcome not recorded", extra={"request_id": ctx.request_id})

    def _learned(
        self,
        model: str,
        trial: Trial,
        part: SegmentId,
        tenant: TenantId,
        outcome: Outcome,
    ) -> Learned | None:
        """What a request adds to all sums; None for one that cannot be worked out."""
        try:
            return Learned(
                model=model,
                arm_id=trial.arm_id,
                class_id=trial.class_id,
                sums=increments(trial, typical_tokens(trial.class_id)),
                part=part,
                tenant=tenant,
                ledger=ledger_counts(outcome, self._baseline),
            )
        except Exception:  # noqa: BLE001
            # See `record`.
            self._metrics.recorder_errors.inc()
            _log.exception("outcome not learned from")
            return None

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
    )


def _served_s(duration_s: float | None, ctx: RequestContext) -> float | None:
    return None if duration_s is None else duration_s - ctx.queue_s
