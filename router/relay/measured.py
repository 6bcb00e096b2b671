"""What came of an answer, from its status and from what the harvest saw."""

from __future__ import annotations

from policies.types import Status
from router.endpoints.table import FACTS
from router.engines.base import Reading
from router.engines.streams import with_counted_steps
from router.fleet.model import PoolFacts
from router.outputs.copy import StreamCopy
from router.outputs.demand import demand_of
from router.outputs.judge import UNKNOWN, Judged, judged
from router.outputs.said import Said, said_by
from router.relay.harvest import Harvest, StreamHarvest
from router.types import RequestContext

_SERVER_ERROR = 500
_REDIRECT = 300
_CLIENT_ERROR = 400
_MIN_TOKENS_FOR_TPOT = 2

_POOLS_FAULT = frozenset((404, 405, 429))
"""Path and model are ours by now, and a full server is no client's fault: who drew this pool would
have been served by another."""
_CREDENTIAL_REFUSED = frozenset((401, 403))

_HELD_S = 0.05
_HELD_SHARE = 0.1
"""A client that holds its answer up for longer than both has measured itself, not the pool."""


def status_of(http_status: int, pool: PoolFacts, *, broken: bool) -> Status:
    """How a request ended that a server of this pool has answered."""
    if http_status >= _SERVER_ERROR or http_status in _POOLS_FAULT:
        return Status.FAILED
    if http_status in _CREDENTIAL_REFUSED and pool.has_key:
        return Status.FAILED  # it was our key, not the client's
    if http_status >= _CLIENT_ERROR:
        return Status.REJECTED
    # A redirect is not followed and no client expects one: whoever sent it is no engine.
    return Status.FAILED if broken or http_status >= _REDIRECT else Status.OK


def was_held(held_s: float, e2e_s: float) -> bool:
    """Whether a client has kept its engine waiting for so long that durations say nothing."""
    return held_s > max(_HELD_S, _HELD_SHARE * e2e_s)


def reading_of(pool: PoolFacts, ctx: RequestContext, harvest: Harvest) -> Reading:
    """The figures of an answer: as its engine writes them, else as its events show them."""
    answer = harvest.answer()
    if answer is None:
        return Reading(unread=("answer",))
    reading = pool.adapter.read(ctx.request, answer)
    stream, rule = harvest.counted(), pool.adapter.step_rule
    if reading.spec is not None or stream is None or rule is None:
        return reading
    return with_counted_steps(
        reading,
        ctx.request,
        stream,
        rule,
        draft_length=pool.arm.num_speculative_tokens if pool.speculative else 0,
    )


def said_of(ctx: RequestContext, harvest: Harvest, copy: StreamCopy | None) -> Said | None:
    """What an answer has said; None where that is not known.

    Args:
        ctx: The request.
        harvest: What watched the answer.
        copy: Of what it said, of a stream of which one was made.
    """
    if copy is not None:
        return copy.said()
    answer = None if isinstance(harvest, StreamHarvest) else harvest.answer()
    return None if answer is None else said_by(FACTS[ctx.request.endpoint].dialect, answer)


def judged_of(
    ctx: RequestContext, harvest: Harvest, copy: StreamCopy | None, *, wanted: bool = False
) -> tuple[Judged, Said | None]:
    """Whether an answer has the structure that its request demands, and what it has said.

    Args:
        ctx: The request.
        harvest: What watched the answer.
        copy: Of what it said, of a stream of which one was made.
        wanted: Whether somebody wants to know what it has said where no structure is demanded.
    """
    demand = demand_of(ctx.request)
    if demand is None and not wanted:
        return UNKNOWN, None
    said = said_of(ctx, harvest, copy)
    return UNKNOWN if said is None or demand is None else judged(demand, said), said


def tpot_of(harvest: Harvest, tokens: int | None) -> float | None:
    """Seconds for each token after the first, by our clock and the engine's count."""
    first, last = harvest.first_content_s, harvest.last_content_s
    if first is None or last is None or tokens is None or tokens < _MIN_TOKENS_FOR_TPOT:
        return None
    return (last - first) / (tokens - 1)
