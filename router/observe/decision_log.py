"""One JSON line per decision, with what came of it. No text of prompts or answers, no keys."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from policies.knowledge import Moment
from policies.types import Arm
from router.breath import breathe
from router.types import (
    ANONYMOUS,
    Classification,
    Decision,
    Endpoint,
    Outcome,
    RequestContext,
    SegmentId,
    TenantId,
)

MAX_PENDING_LINES = 10_000

LINES_PER_STEP = 16
"""Made without a pause: a fraction of a millisecond, then requests get their turn."""


REMEMBERED = 2000
"""Decisions that a process can tell of; a few kilobytes each."""


class DecisionRecord(NamedTuple):
    """All that is written of a request, and nothing that would keep its body in memory."""

    wall: float
    request_id: str
    model: str
    endpoint: Endpoint
    stream: bool
    segment: SegmentId
    queue_s: float
    classification: Classification
    decision: Decision
    outcome: Outcome
    arms: tuple[Arm, ...] = ()
    tenant: TenantId = ANONYMOUS
    experiment: str = ""
    """Its name and the side; empty for none."""

    def as_json(self) -> dict[str, Any]:
        """The members of the line. Unknown figures are null."""
        classification, decision, outcome = self.classification, self.decision, self.outcome
        spec = outcome.spec
        return {
            "time": round(self.wall, 3),
            "request_id": self.request_id,
            "model": self.model,
            "endpoint": self.endpoint.value,
            "stream": self.stream,
            "class": classification.class_id,
            "confidence": round(classification.confidence, 4),
            "class_reason": classification.reason,
            "copy_ratio": round(classification.copy_ratio, 4),
            "length_band": classification.length_band,
            "segment": self.segment,
            "tenant": self.tenant,
            "experiment": self.experiment or None,
            "policy": decision.policy,
            "snapshot": decision.snapshot_version,
            "arm": decision.arm_id,
            "propensity": decision.propensity,
            "drawn": decision.drawn,
            "probabilities": dict(decision.probabilities),
            "excluded": dict(decision.excluded),
            "loads": None
            if decision.loads is None
            else dict(zip(decision.probabilities, decision.loads, strict=True)),
            "moment": _moment_json(decision.moment),
            "arms": [[arm.arm_id, arm.method, arm.num_speculative_tokens] for arm in self.arms],
            "baseline": next((arm.arm_id for arm in self.arms if arm.baseline), None),
            "served_by": outcome.served_by,
            "attempts": [[a.replica_id, a.end.value] for a in outcome.attempts],
            "status": outcome.status.value,
            "http_status": outcome.http_status,
            "error": outcome.error,
            "ttft_s": outcome.ttft_s,
            "tpot_s": outcome.tpot_s,
            "e2e_s": outcome.e2e_s,
            "held": outcome.held,
            "valid": outcome.valid,
            "truncated": outcome.truncated,
            "queue_s": self.queue_s,
            "overhead_s": outcome.overhead_s,
            "load": outcome.load,
            "waiting": outcome.waiting,
            "prompt_tokens": outcome.prompt_tokens,
            "cached_tokens": outcome.cached_tokens,
            "tokens": outcome.tokens,
            "steps": spec.steps if spec else None,
            "drafted": spec.drafted if spec else None,
            "drafted_exact": spec.exact_drafted if spec else None,
            "accepted": spec.accepted if spec else None,
            "acceptance_source": spec.source.value if spec else None,
        }


def decision_record(
    ctx: RequestContext,
    decision: Decision,
    outcome: Outcome,
    *,
    wall: float,
    arms: tuple[Arm, ...] = (),
) -> DecisionRecord:
    """What is kept of a request until its line is written.

    Args:
        ctx: The request.
        decision: The choice.
        outcome: What came of it.
        wall: When it ended.
        arms: All that its route has.
    """
    request = ctx.request
    return DecisionRecord(
        wall,
        ctx.request_id,
        request.model,
        request.endpoint,
        request.stream,
        ctx.segment,
        ctx.queue_s,
        ctx.classification,
        decision,
        outcome,
        arms,
        ctx.tenant,
        ctx.experiment,
    )


def _moment_json(moment: Moment | None) -> dict[str, Any] | None:
    """What a policy looked at besides loads, class and part, which stand in the line already."""
    if moment is None:
        return None
    return {
        "prompt_tokens": moment.prompt_tokens,
        "cached_tokens": moment.cached_tokens,
        "output_tokens": moment.output_tokens,
        "ahead_tokens": moment.ahead_tokens,
        "waited_s": moment.waited_s,
    }


class DecisionLog:
    """Takes records without waiting; makes lines of them in steps, which a thread then writes.

    The thread only writes: one that worked on them would keep the interpreter from the loop for
    longer than the steps do.
    """

    def __init__(self, path: Path | None, before: DecisionLog | None = None) -> None:
        """Writes nothing yet.

        Args:
            path: The file; None for none.
            before: The log whose place this one takes: what it remembers stays known.
        """
        self._path = path
        self.recent: deque[DecisionRecord] = (
            before.recent if before is not None else deque(maxlen=2 * REMEMBERED)
        )
        """The last records and what has come since the last flush, the oldest first, whether there
        is a file or not."""
        self._records: deque[DecisionRecord] = deque()
        self._lines: list[bytes] = []
        self.dropped = 0
        """Lines that were not written: too many waiting, or the file could not be written."""

    def append(self, record: DecisionRecord) -> None:
        """Takes one record."""
        self.recent.append(record)
        if self._path is None:
            return
        if len(self._records) + len(self._lines) >= MAX_PENDING_LINES:
            self.dropped += 1
            return
        self._records.append(record)

    async def flush(self) -> None:
        """Writes what has piled up. A file that cannot be written costs lines, never requests.

        What is remembered no longer is let go of here: forty objects that nothing has touched for
        thousands of requests, which takes as long as to keep a new record.
        """
        for _ in range(len(self.recent) - REMEMBERED):
            self.recent.popleft()
        if self._path is None:
            return
        for _ in range(0, len(self._records), LINES_PER_STEP):
            self._make_lines()
            await breathe()
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        try:
            await asyncio.to_thread(_append, self._path, b"".join(lines))
        except OSError:
            self.dropped += len(lines)

    def _make_lines(self) -> None:
        for _ in range(min(LINES_PER_STEP, len(self._records))):
            record = self._records.popleft().as_json()
            try:
                self._lines.append(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
            except TypeError:
                self.dropped += 1  # a number that JSON readers could not hold, say


def why_unwritable(path: Path) -> str | None:
    """Why a file could not be appended to; None if it could. Nothing is created."""
    try:
        if path.is_dir():
            return "it is a folder"
        if path.exists():
            return None if os.access(path, os.W_OK) else "no permission to write to it"
        folder = next(parent for parent in path.absolute().parents if parent.exists())
    except OSError as error:
        return error.strerror or type(error).__name__
    if not folder.is_dir():
        return f"{folder} is no folder"
    return None if os.access(folder, os.W_OK | os.X_OK) else f"no permission to write to {folder}"


def _append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab") as file:
        file.write(data)
