"""One JSON line per decision, with what came of it. No text of prompts or answers, no keys."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from pathlib import Path
from typing import Any

import orjson

from router.types import Decision, Outcome, RequestContext

MAX_PENDING_LINES = 10_000


def decision_record(
    ctx: RequestContext, decision: Decision, outcome: Outcome, *, wall: float
) -> dict[str, Any]:
    """All that is written of a request. Unknown figures are null."""
    spec = outcome.spec
    return {
        "time": round(wall, 3),
        "request_id": ctx.request_id,
        "model": ctx.request.model,
        "endpoint": ctx.request.endpoint.value,
        "stream": ctx.request.stream,
        "class": ctx.classification.class_id,
        "confidence": round(ctx.classification.confidence, 4),
        "class_reason": ctx.classification.reason,
        "copy_ratio": round(ctx.classification.copy_ratio, 4),
        "length_band": ctx.classification.length_band,
        "segment": ctx.segment,
        "policy": decision.policy,
        "snapshot": decision.snapshot_version,
        "arm": decision.arm_id,
        "propensity": decision.propensity,
        "probabilities": dict(decision.probabilities),
        "excluded": dict(decision.excluded),
        "served_by": outcome.served_by,
        "attempts": [[a.replica_id, a.end.value] for a in outcome.attempts],
        "status": outcome.status.value,
        "http_status": outcome.http_status,
        "error": outcome.error,
        "ttft_s": outcome.ttft_s,
        "tpot_s": outcome.tpot_s,
        "e2e_s": outcome.e2e_s,
        "held": outcome.held,
        "queue_s": ctx.queue_s,
        "overhead_s": outcome.overhead_s,
        "prompt_tokens": outcome.prompt_tokens,
        "tokens": outcome.tokens,
        "steps": spec.steps if spec else None,
        "drafted": spec.drafted if spec else None,
        "accepted": spec.accepted if spec else None,
        "acceptance_source": spec.source.value if spec else None,
    }


class DecisionLog:
    """Takes records without waiting; writes them from a thread, a batch at a time."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lines: deque[bytes] = deque()
        self.dropped = 0
        """Lines that were not written: too many waiting, or the file could not be written."""

    def append(self, record: dict[str, Any]) -> None:
        """Takes one record."""
        if self._path is None:
            return
        if len(self._lines) >= MAX_PENDING_LINES:
            self.dropped += 1
            return
        self._lines.append(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

    async def flush(self) -> None:
        """Writes what has piled up. A file that cannot be written costs lines, never requests."""
        if self._path is None or not self._lines:
            return
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        try:
            await asyncio.to_thread(_append, self._path, b"".join(lines))
        except OSError:
            self.dropped += len(lines)


def _append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab") as file:
        file.write(data)
