"""Runs one decided request: tries servers, passes the answer through, measures it.

Whatever happens, `finish` is called exactly once with the outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from policies.types import ArmId, Status
from router.clock import Clock
from router.engines.base import Ask, Reading
from router.errors import Reason, RequestError
from router.fleet.affinity import prefix_of
from router.fleet.model import PoolFacts, Replica, RouteFacts
from router.fleet.state import FleetState, Lease, Placement, Seen
from router.relay.harvest import Harvest, PassThrough, StreamHarvest, WholeHarvest
from router.relay.headers import header, to_client, to_upstream
from router.relay.sink import ClientGoneError, ResponseSink, error_ending
from router.relay.upstream import Upstream, UpstreamError, UpstreamRequest, UpstreamResponse
from router.types import (
    Attempt,
    AttemptEnd,
    Decision,
    Headers,
    Outcome,
    ReplicaId,
    RequestContext,
)

FinishFn = Callable[[Outcome], None]

_REPLICAS_PER_ARM = 2
_MOST_LOST = 2
"""Servers that took a request and were gone without an answer. It may be the request that ends
them, so it is not carried through the whole fleet."""
_MIN_TOKENS_FOR_TPOT = 2
_SERVER_ERROR = 500
_REDIRECT = 300
_CLIENT_ERROR = 400

_POOLS_FAULT = frozenset((404, 405, 429))
"""Path and model are ours by now, and a full server is no client's fault: who drew this pool would
have been served by another."""
_BUSY = frozenset((429, 503))
_SEEN = {
    AttemptEnd.UNREACHABLE: Seen.UNREACHABLE,
    AttemptEnd.DISCONNECTED: Seen.FAILED,
    AttemptEnd.TIMEOUT: Seen.FAILED,
}
_CREDENTIAL_REFUSED = frozenset((401, 403))

_HELD_S = 0.05
_HELD_SHARE = 0.1
"""A client that holds its answer up for longer than both has measured itself, not the pool."""


@dataclass(slots=True)
class _Progress:
    """What is known of a request so far; becomes its Outcome."""

    attempts: list[Attempt] = field(default_factory=list)
    status: Status = Status.FAILED
    http_status: int | None = None
    served: PoolFacts | None = None
    harvest: Harvest | None = None
    sent_s: float | None = None
    held_s: float = 0.0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    """A server has answered: who, with what, and what had been asked."""

    pool: PoolFacts
    response: UpstreamResponse
    ask: Ask
    lease: Lease


class Relay:
    """The built-in relay of one route."""

    def __init__(
        self, route: RouteFacts, fleet: FleetState, upstream: Upstream, clock: Clock
    ) -> None:
        self._route = route
        self._fleet = fleet
        self._upstream = upstream
        self._clock = clock

    async def run(
        self,
        ctx: RequestContext,
        decision: Decision,
        sink: ResponseSink,
        *,
        extra: Callable[[PoolFacts], Headers],
        finish: FinishFn,
    ) -> None:
        """Serves the request.

        Args:
            ctx: The request.
            decision: The arm to use.
            sink: Where the answer goes.
            extra: Our own response headers, given the pool that answered.
            finish: Gets the outcome, once, on cancellation too.

        Raises:
            RequestError: No server answered; nothing has been sent to the client yet.
        """
        progress = _Progress()
        try:
            async with AsyncExitStack() as stack:
                answer = await self._open(stack, ctx, decision, progress)
                progress.served = answer.pool
                await self._pass_through(answer, sink, extra(answer.pool), progress)
        except (asyncio.CancelledError, ClientGoneError) as error:
            self._client_left(progress)
            if isinstance(error, asyncio.CancelledError):
                raise
        except RequestError as error:
            progress.http_status, progress.error = error.http_status, error.reason.value
            raise
        finally:
            finish(self._outcome(ctx, progress))

    def _client_left(self, progress: _Progress) -> None:
        """A client that leaves with its answer complete, as many do at `[DONE]`, was served."""
        harvest = progress.harvest
        if harvest is not None and harvest.complete and progress.http_status is not None:
            progress.status = _status_of(
                progress.http_status, progress.served, broken=harvest.broken
            )
        else:
            progress.status = Status.ABORTED

    async def _open(
        self,
        stack: AsyncExitStack,
        ctx: RequestContext,
        decision: Decision,
        progress: _Progress,
    ) -> _Answer:
        """Tries servers until one answers; nothing reaches the client before that."""
        last = UpstreamError(AttemptEnd.UNREACHABLE, Reason.UPSTREAM_UNAVAILABLE, "no server")
        lost: list[ArmId] = []
        for pool, lease in self._candidates(stack, ctx, decision):
            replica = lease.replica
            if pool.arm.arm_id in lost and not pool.arm.baseline:
                continue  # straight to plain decoding
            ask = pool.adapter.prepare(ctx.request)
            for repeated in (False, True):
                progress.sent_s = self._clock.monotonic()
                try:
                    response = await self._try(stack, ctx, replica, ask, fresh=repeated)
                except UpstreamError as error:
                    last = error
                    progress.attempts.append(
                        Attempt(pool.arm.arm_id, replica.replica_id, error.end)
                    )
                    # A connection kept alive that the server had closed shows as a lost one: a
                    # fresh one settles it.
                    if error.end is not AttemptEnd.DISCONNECTED:
                        break
                else:
                    progress.attempts.append(
                        Attempt(pool.arm.arm_id, replica.replica_id, AttemptEnd.ANSWERED)
                    )
                    self._fleet.saw(replica, _seen_in(response.status), now=self._clock.monotonic())
                    return _Answer(pool, response, ask, lease)
            lease.release()
            self._fleet.saw(replica, _SEEN[last.end], now=self._clock.monotonic())
            if last.end is AttemptEnd.TIMEOUT:
                break  # it may still be working on the answer; a second server would double that
            if last.end is AttemptEnd.DISCONNECTED:
                lost.append(pool.arm.arm_id)
            if len(lost) == _MOST_LOST:
                break
        raise RequestError(
            last.reason, f"No server could answer for model {self._route.model!r}: {last}."
        ) from last

    def _candidates(
        self, stack: AsyncExitStack, ctx: RequestContext, decision: Decision
    ) -> Iterator[tuple[PoolFacts, Lease]]:
        """Servers of the chosen arm, then of the baseline: plain decoding is one step away."""
        placement = Placement(prefix_of(ctx.request), len(ctx.request.body))
        tried: set[ReplicaId] = set()
        for arm_id in dict.fromkeys((decision.arm_id, self._route.baseline)):
            for _ in range(_REPLICAS_PER_ARM):
                lease = self._fleet.lease(
                    arm_id, placement, frozenset(tried), now=self._clock.monotonic()
                )
                if lease is None:
                    break
                stack.callback(lease.release)
                tried.add(lease.replica.replica_id)
                yield self._route.pools[arm_id], lease

    async def _try(
        self,
        stack: AsyncExitStack,
        ctx: RequestContext,
        replica: Replica,
        ask: Ask,
        *,
        fresh: bool,
    ) -> UpstreamResponse:
        request = UpstreamRequest(
            method="POST",
            path_qs=ctx.path_qs,
            headers=to_upstream(ctx.headers, api_key=replica.api_key, identity=ask.strip_usage),
            body=ask.body,
            fresh=fresh,
        )
        async with AsyncExitStack() as attempt:
            response = await attempt.enter_async_context(self._upstream.open(replica, request))
            stack.push_async_exit(attempt.pop_all())
        return response

    async def _pass_through(
        self, answer: _Answer, sink: ResponseSink, extra: Headers, progress: _Progress
    ) -> None:
        response, streamed = answer.response, _is_event_stream(answer.response)
        harvest = _harvest_for(answer)
        progress.harvest, progress.http_status = harvest, response.status
        headers = to_client(
            response.headers, length_changes=answer.ask.strip_usage and streamed, extra=extra
        )
        await sink.start(response.status, headers)
        try:
            async for chunk in response.chunks():
                now = answer.lease.touched = self._clock.monotonic()
                data = harvest.feed(chunk, now)
                if data:
                    await sink.write(data)
                    progress.held_s += self._clock.monotonic() - now
        except UpstreamError as error:
            if not harvest.complete:
                await self._break_off(error.reason, str(error), sink, progress)
                return
            progress.status = _status_of(response.status, answer.pool, broken=harvest.broken)
        else:
            rest = harvest.finish()
            if rest:
                await sink.write(rest)
            progress.status = _status_of(response.status, answer.pool, broken=harvest.broken)
            if harvest.broken and progress.status is Status.FAILED:
                progress.error = Reason.UPSTREAM_PROTOCOL.value
                if not harvest.complete and not _shows_its_end(response):
                    await self._break_off(Reason.UPSTREAM_PROTOCOL, "no end mark", sink, progress)
                    return
        await sink.close()

    async def _break_off(
        self, reason: Reason, detail: str, sink: ResponseSink, progress: _Progress
    ) -> None:
        """Ends an answer of which a part is missing so that no client can take it for a whole one.

        Between events that is an error event, which clients raise with its message. Inside one,
        and in any other body, the connection is cut, as it would be without us. Bytes still held
        back are half an event, which could only confuse its reader.
        """
        progress.error = reason.value
        if progress.harvest is None or not progress.harvest.may_add:
            await sink.abort()
            return
        error = RequestError(reason, f"The engine's answer broke off: {detail}.")
        await sink.write(error_ending(error))
        await sink.close()

    def _outcome(self, ctx: RequestContext, progress: _Progress) -> Outcome:
        now = self._clock.monotonic()
        harvest, pool = progress.harvest, progress.served
        reading, ttft_s, tpot_s = Reading(), None, None
        if harvest is not None and pool is not None and progress.status is Status.OK:
            answer = harvest.answer()
            if answer is None:
                reading = Reading(unread=("answer",))
            else:
                reading = pool.adapter.read(ctx.request, answer)
        if harvest is not None and harvest.first_content_s is not None:
            ttft_s = harvest.first_content_s - ctx.arrival_s
            tpot_s = _tpot_s(harvest, reading.tokens)
        e2e_s = now - ctx.arrival_s
        return Outcome(
            status=progress.status,
            http_status=progress.http_status,
            served_by=pool.arm.arm_id if pool else None,
            attempts=tuple(progress.attempts),
            e2e_s=e2e_s,
            ttft_s=ttft_s,
            tpot_s=tpot_s,
            tokens=reading.tokens,
            prompt_tokens=reading.prompt_tokens,
            spec=reading.spec,
            overhead_s=None if progress.sent_s is None else progress.sent_s - ctx.arrival_s,
            error=progress.error,
            unread=reading.unread,
            held=progress.held_s > max(_HELD_S, _HELD_SHARE * e2e_s),
        )


def _seen_in(http_status: int) -> Seen:
    if http_status in _BUSY:
        return Seen.BUSY
    return Seen.FAILED if http_status >= _SERVER_ERROR else Seen.ANSWERED


def _status_of(http_status: int, pool: PoolFacts | None, *, broken: bool) -> Status:
    if http_status >= _SERVER_ERROR or http_status in _POOLS_FAULT:
        return Status.FAILED
    if http_status in _CREDENTIAL_REFUSED and pool is not None and pool.has_key:
        return Status.FAILED  # it was our key, not the client's
    if http_status >= _CLIENT_ERROR:
        return Status.REJECTED
    # A redirect is not followed and no client expects one: whoever sent it is no engine.
    return Status.FAILED if broken or http_status >= _REDIRECT else Status.OK


def _tpot_s(harvest: Harvest, tokens: int | None) -> float | None:
    first, last = harvest.first_content_s, harvest.last_content_s
    if first is None or last is None or tokens is None or tokens < _MIN_TOKENS_FOR_TPOT:
        return None
    return (last - first) / (tokens - 1)


def _is_event_stream(response: UpstreamResponse) -> bool:
    content_type = header(response.headers, "content-type") or ""
    return content_type.split(";")[0].strip().lower() == "text/event-stream"


def _is_json(response: UpstreamResponse) -> bool:
    content_type = (header(response.headers, "content-type") or "").split(";")[0].strip().lower()
    return content_type == "application/json" or content_type.endswith("+json")


def _harvest_for(answer: _Answer) -> Harvest:
    response = answer.response
    coding = (header(response.headers, "content-encoding") or "identity").strip().lower()
    if coding != "identity":
        return PassThrough()
    if _is_event_stream(response):
        return StreamHarvest(answer.pool.adapter.markers, strip_usage=answer.ask.strip_usage)
    return WholeHarvest() if _is_json(response) else PassThrough(foreign=True)


def _shows_its_end(response: UpstreamResponse) -> bool:
    """Whether a cut would have been noticed; else the end of the connection is all there is."""
    coding = (header(response.headers, "transfer-encoding") or "").lower()
    return "chunked" in coding or header(response.headers, "content-length") is not None
