"""One request, asked of the baseline once more, in the background. It compares nothing."""

from __future__ import annotations

from dataclasses import dataclass

from policies.types import ArmId, ClassId
from policies.values import value
from router.endpoints.table import FACTS
from router.fleet.model import RouteFacts
from router.fleet.state import FleetState, Lease
from router.outputs.said import Said
from router.relay.headers import to_upstream
from router.relay.transfer import is_event_stream
from router.relay.upstream import Upstream, UpstreamRequest, UpstreamResponse
from router.sentinel.asking import MOST_ANSWER, TELLS_LOGPROBS, read_repeat, repeat_body
from router.sentinel.compare import Repeat
from router.types import Headers, ParsedRequest

_OK = 200
_REFUSED = (400, 422)
"""Statuses of engines that do not want to tell log probabilities of such a request."""


@value
class Waiting:
    """An answer that waits for its repeat; the only place where text of answers is kept."""

    request: ParsedRequest
    method: str
    path_qs: str
    headers: Headers
    arm_id: ArmId
    class_id: ClassId
    said: Said
    valid: bool | None
    since: float


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a repeat needs of a route."""

    facts: RouteFacts
    fleet: FleetState
    upstream: Upstream


async def ask_again(waiting: Waiting, baseline: Baseline, now: float) -> Repeat | None:
    """What the baseline answers; None if it does not, or not in a way that can be read.

    Args:
        waiting: What is asked.
        baseline: Who.
        now: Monotonic.

    Raises:
        UpstreamError: There was no answer.
    """
    pool = baseline.facts.pools[baseline.facts.baseline]
    lease = baseline.fleet.lease(baseline.facts.baseline, now=now)
    if lease is None:
        return None
    try:
        if pool.adapter.name in TELLS_LOGPROBS:
            told = await _exchange(waiting, baseline.upstream, lease, logprobs=True)
            if not isinstance(told, int):
                return told
            if told not in _REFUSED:
                return None
        told = await _exchange(waiting, baseline.upstream, lease, logprobs=False)
        return None if isinstance(told, int) else told
    finally:
        lease.release()


async def _exchange(
    waiting: Waiting, upstream: Upstream, lease: Lease, *, logprobs: bool
) -> Repeat | int | None:
    """The answer, the status of an error, or None where nothing can be asked or read."""
    body = repeat_body(waiting.request, logprobs=logprobs)
    if body is None:
        return None
    replica = lease.replica
    response = await upstream.send(
        replica,
        UpstreamRequest(
            method=waiting.method,
            path_qs=waiting.path_qs,
            headers=to_upstream(waiting.headers, api_key=replica.api_key, identity=True),
            body=body,
            header_s=replica.header_s,
            idle_s=replica.idle_s,
        ),
    )
    try:
        if response.status != _OK:
            return response.status
        data = await _whole(response)
    finally:
        response.close()
    if data is None:
        return None
    dialect = FACTS[waiting.request.endpoint].dialect
    return read_repeat(dialect, data, streamed=is_event_stream(response))


async def _whole(response: UpstreamResponse) -> bytes | None:
    """The body; None for one beyond the limit."""
    pieces: list[bytes] = []
    size = 0

    def take(piece: bytes) -> None:
        nonlocal size
        size += len(piece)
        if size <= MOST_ANSWER:
            pieces.append(piece)

    await response.copy_to(take)
    return b"".join(pieces) if size <= MOST_ANSWER else None
