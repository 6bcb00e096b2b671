"""Runs one decided request: tries servers, passes the answer through, measures it.

Whatever happens, `finish` is called exactly once with the outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http.client import responses

from policies.types import ArmId, Status
from router.clock import Clock
from router.endpoints.table import FACTS
from router.engines.base import Ask, Reading
from router.errors import Reason, RequestError
from router.fleet.affinity import prefix_of
from router.fleet.model import PoolFacts, Replica, RouteFacts
from router.fleet.state import FleetState, Lease, Placement, Seen
from router.lifecycle import cancelled, in_background
from router.outputs.judge import UNKNOWN
from router.outputs.said import Said
from router.relay.attempts import (
    FOLLOWS,
    MOST_LOST,
    RetryBudget,
    retry_after_s,
    says_prompt_too_long,
)
from router.relay.headers import header, to_client, to_upstream
from router.relay.keepalive import KeepAlive, is_plain_stream
from router.relay.measured import judged_of, reading_of, status_of, tpot_of, was_held
from router.relay.sink import ResponseSink
from router.relay.spare import Spare, whole_error
from router.relay.told import EngineError
from router.relay.transfer import EarlyAnswerError, OvertakenError, Transfer
from router.relay.upstream import Upstream, UpstreamError, UpstreamRequest, UpstreamResponse
from router.types import (
    Attempt,
    AttemptEnd,
    Decision,
    Endpoint,
    Headers,
    Outcome,
    ReplicaId,
    RequestContext,
)

FinishFn = Callable[[Outcome], None]
HeardFn = Callable[[Said | None], None]

_log = logging.getLogger("specroute.relay")

_SERVERS_PER_ARM = 2
_OK = 200
_SERVER_ERROR = 500

_BUSY = frozenset((429, 503))
_REPEATED_AT_A_RISK = frozenset(("POST", "PATCH"))
_MAY_HAVE_ACTED = frozenset((AttemptEnd.DISCONNECTED, AttemptEnd.SERVER_ERROR))


class Relay:
    """The built-in relay of one route."""

    def __init__(
        self, route: RouteFacts, fleet: FleetState, upstream: Upstream, clock: Clock
    ) -> None:
        self.route = route
        self.fleet = fleet
        self.upstream = upstream
        self.clock = clock
        self.budget = RetryBudget()

    async def run(
        self,
        ctx: RequestContext,
        decision: Decision,
        sink: ResponseSink,
        *,
        extra: Callable[[PoolFacts | None], Headers],
        finish: FinishFn,
        heard: HeardFn | None = None,
    ) -> None:
        """Serves the request.

        Args:
            ctx: The request.
            decision: The arm to use.
            sink: Where the answer goes.
            extra: Our own response headers, given the pool that answered if one has.
            finish: Gets the outcome, once, on cancellation too.
            heard: Gets what an answer has said that ended well, before that.

        Raises:
            RequestError: No server answered; nothing has been sent to the client yet.
        """
        run = _Run(self, ctx, decision, sink, extra, heard=heard)
        try:
            await run.serve()
        except asyncio.CancelledError:
            run.client_left()
            raise
        except RequestError as error:
            run.http_status, run.error = error.http_status, error.reason.value
            raise
        except Exception:
            run.left_off()
            raise
        finally:
            outcome = run.outcome()
            run.let_go()
            finish(outcome)


class _Run:
    """One request being served; becomes its Outcome."""

    __slots__ = (
        "_asks",
        "_attempts",
        "_begun",
        "_ctx",
        "_decision",
        "_extra",
        "_goes_on",
        "_heard",
        "_keep_alive",
        "_last",
        "_lost",
        "_once",
        "_placement",
        "_relay",
        "_sent_s",
        "_sink",
        "_spare",
        "_status",
        "_transfer",
        "_tried",
        "error",
        "http_status",
    )

    def __init__(
        self,
        relay: Relay,
        ctx: RequestContext,
        decision: Decision,
        sink: ResponseSink,
        extra: Callable[[PoolFacts | None], Headers],
        *,
        heard: HeardFn | None,
    ) -> None:
        self._relay = relay
        self._heard = heard
        self._ctx = ctx
        self._decision = decision
        self._sink = sink
        self._extra = extra
        self._asks: dict[str, Ask] = {}
        self._attempts: list[Attempt] = []
        self._last: UpstreamError | None = None
        self._placement: Placement | None = None
        self._tried: set[ReplicaId] = set()
        self._lost = 0
        self._once = ctx.request.endpoint is Endpoint.OTHER and ctx.method in _REPEATED_AT_A_RISK
        """Whether doing it twice may not be the same as once (RFC 9110, section 9.2.2): nobody here
        knows what such a request does, which may be the upload of a file or the start of a job."""
        self._begun: asyncio.Future[None] | None = None
        self._goes_on = True
        """Whether the baseline may still be tried."""
        self._spare: Spare | None = None
        self._sent_s: float | None = None
        self._status = Status.FAILED
        self._transfer: Transfer | None = None
        self._keep_alive: KeepAlive | None = None
        after_s = relay.route.keepalive_s
        if after_s is not None and ctx.request.stream and FACTS[ctx.request.endpoint].speculates:
            self._keep_alive = KeepAlive(
                sink, after_s=after_s, extra=extra(None), now=relay.clock.monotonic
            )
        self.http_status: int | None = None
        self.error: str | None = None

    # --- Which server ----------------------------------------------------------------------------

    def serve(self) -> Awaitable[None]:
        """Tries servers until one has answered, or none is left."""
        return self._serve() if self._keep_alive is None else self._kept_alive(self._keep_alive)

    async def _kept_alive(self, keep_alive: KeepAlive) -> None:
        with keep_alive:
            await self._serve()

    async def _serve(self) -> None:
        relay, route = self._relay, self._relay.route
        relay.budget.arrived()
        chosen = self._decision.arm_id
        if chosen == route.baseline:
            await self._arm(chosen)
        elif route.hedge_s is not None:
            await self._hedged(chosen, route.hedge_s)
        elif not await self._arm(chosen) and self._goes_on:
            await self._arm(route.baseline)
        if self._transfer is None:
            await self._give_up()

    async def _hedged(self, chosen: ArmId, after_s: float) -> None:
        """Asks the baseline too, once the chosen arm has been silent for too long."""
        baseline = self._relay.route.baseline
        begun = self._begun = asyncio.get_running_loop().create_future()
        tries = {chosen: in_background(self._arm(chosen))}
        try:
            await asyncio.wait(
                [tries[chosen], begun], timeout=after_s, return_when=asyncio.FIRST_COMPLETED
            )
            failed = tries[chosen].done() and not tries[chosen].result()
            silent = self._transfer is None and not tries[chosen].done()
            late = silent and self._relay.budget.take()
            if self._transfer is None and self._goes_on and (failed or late):
                tries[baseline] = in_background(self._arm(baseline))
            while self._transfer is None and not all(task.done() for task in tries.values()):
                left = [task for task in tries.values() if not task.done()]
                await asyncio.wait([*left, begun], return_when=asyncio.FIRST_COMPLETED)
            if self._transfer is not None:
                winner = tries.pop(self._transfer.pool.arm.arm_id)
                await cancelled(tries.values())
                await winner
            for task in tries.values():
                if not task.cancelled():
                    task.result()
        finally:
            await cancelled(tries.values())

    async def _arm(self, arm_id: ArmId) -> bool:
        """Tries servers of one arm; whether one has answered."""
        relay, route = self._relay, self._relay.route
        pool = route.pools[arm_id]
        for _ in range(_SERVERS_PER_ARM):
            lease = relay.fleet.lease(
                arm_id,
                self._where(arm_id),
                frozenset(self._tried),
                now=relay.clock.monotonic(),
            )
            if lease is None or (self._attempts and not relay.budget.take()):
                if lease is not None:
                    lease.release()
                return False
            self._tried.add(lease.replica.replica_id)
            try:
                end = await self._server(pool, lease)
            finally:
                lease.release()
            if end is AttemptEnd.ANSWERED:
                return True
            follows = FOLLOWS[end]
            self._lost += end is AttemptEnd.DISCONNECTED
            self._goes_on = (
                follows.baseline
                and self._lost < MOST_LOST
                and not (self._once and end in _MAY_HAVE_ACTED)
            )
            if not self._goes_on or not (follows.same_arm or pool.arm.baseline):
                return False
        return False

    def _where(self, arm_id: ArmId) -> Placement:
        """What placing may look at; the prompt only where there is something to choose from."""
        request = self._ctx.request
        if self._placement is None or not self._placement.prefix:
            prefix = self._decision.prefix
            if prefix is None:
                prefix = prefix_of(request) if self._relay.fleet.has_choice(arm_id) else ()
            self._placement = Placement(prefix, len(request.body), streamed=request.stream)
        return self._placement

    async def _give_up(self) -> None:
        spare = self._spare
        if self._keep_alive is not None and self._keep_alive.begun:
            await self._give_up_late()
            return
        if spare is None:
            raise self._unanswered()
        headers = to_client(spare.headers, length_changes=False, extra=self._extra(spare.pool))
        if spare.status in _BUSY and header(headers, "retry-after") is None:
            headers = (*headers, ("Retry-After", "1"))
        self._sink.feed_from(None)
        self._sink.start(spare.status, spare.reason, headers)
        if spare.body:
            self._sink.write(spare.body)
        self.http_status = spare.status
        await self._sink.close()

    async def _give_up_late(self) -> None:
        """The client has been told 200 by a comment, so that the error can only be an event."""
        spare = self._spare
        error = self._unanswered() if spare is None else EngineError(spare.status, spare.body)
        dialect = FACTS[self._ctx.request.endpoint].dialect
        self._sink.feed_from(None)
        self._sink.write(dialect.error_ending(error, request_id=self._ctx.request_id))
        self.http_status = _OK
        if self._status is Status.FAILED:
            self.error = error.reason.value
        await self._sink.close()

    def _unanswered(self) -> RequestError:
        last = self._last
        why = last.reason if last is not None else Reason.UPSTREAM_UNAVAILABLE
        told = last if last is not None else "all are drained, or none was found"
        error = RequestError(
            why, f"No server could answer for model {self._relay.route.model!r}: {told}."
        )
        error.__cause__ = last
        return error

    async def _server(self, pool: PoolFacts, lease: Lease) -> AttemptEnd:
        # Once a server was lost, no other gets the request on a connection that may be stale: it
        # would be asked twice, and what ends servers may be the request.
        end = await self._try(pool, lease, fresh=self._once or self._lost > 0)
        if end is AttemptEnd.STALE:
            end = await self._try(pool, lease, fresh=True)
            # Its connection was open and now nobody listens: it was lost, not found missing.
            self._lost += end is AttemptEnd.UNREACHABLE
        if end is AttemptEnd.BUSY and self._spare is not None:
            after_s = retry_after_s(self._spare.headers, self._relay.clock.wall())
            self._saw(lease, Seen.BUSY, after_s)
        elif end is not AttemptEnd.ANSWERED:
            self._saw(lease, FOLLOWS[end].seen, why=end.value)
        elif self._transfer is None:
            self._saw(lease, Seen.ANSWERED)  # by an error that is the request's own fault
        return end

    def _saw(
        self,
        lease: Lease,
        seen: Seen | None,
        retry_after_s: float | None = None,
        why: str | None = None,
    ) -> None:
        if seen is not None:
            now = self._relay.clock.monotonic()
            replica = lease.replica
            if self._relay.fleet.saw(replica, seen, now=now, retry_after_s=retry_after_s):
                _log.warning(
                    "server is taken out by requests that failed",
                    extra={
                        "replica": replica.replica_id,
                        "url": replica.url,
                        "why": why,
                    },
                )

    # --- One try ---------------------------------------------------------------------------------

    async def _try(self, pool: PoolFacts, lease: Lease, *, fresh: bool) -> AttemptEnd:
        """One try at one server; whatever comes of it is noted."""
        try:
            end = await self._exchange(pool, lease, fresh=fresh)
        except UpstreamError as error:
            self._last, end = error, error.end
        except asyncio.CancelledError:
            if self._transfer is not None:  # the client is being served by another
                self._note(pool, lease, AttemptEnd.OVERTAKEN)
            raise
        self._note(pool, lease, end)
        return end

    def _note(self, pool: PoolFacts, lease: Lease, end: AttemptEnd) -> None:
        self._attempts.append(Attempt(pool.arm.arm_id, lease.replica.replica_id, end))

    async def _exchange(self, pool: PoolFacts, lease: Lease, *, fresh: bool) -> AttemptEnd:
        """Raises: UpstreamError: There was no answer, and the client knows nothing of the try."""
        ctx, relay, replica = self._ctx, self._relay, lease.replica
        ask = self._ask(pool)
        if self._sent_s is None:
            self._sent_s = relay.clock.monotonic()
        response = await relay.upstream.send(
            replica,
            UpstreamRequest(
                method=ctx.method,
                path_qs=ctx.path_qs,
                headers=to_upstream(ctx.headers, api_key=replica.api_key, identity=ask.strips),
                body=ask.body,
                header_s=_head_limit(replica, streamed=ctx.request.stream),
                idle_s=replica.idle_s,
                fresh=fresh,
            ),
        )
        try:
            if response.status in _BUSY or response.status >= _SERVER_ERROR:
                return await self._refused(pool, response)
            if self._keep_alive is not None and not is_plain_stream(response):
                return await self._without_events(self._keep_alive, pool, lease, response, ask)
            return await self._pass_through(pool, lease, response, ask)
        finally:
            response.close()

    async def _without_events(
        self,
        keep_alive: KeepAlive,
        pool: PoolFacts,
        lease: Lease,
        response: UpstreamResponse,
        ask: Ask,
    ) -> AttemptEnd:
        """Passes on what is no stream, unless the client has been told that it gets one."""
        if keep_alive.begun:
            return await self._refused(pool, response)
        keep_alive.unfit += 1
        try:
            return await self._pass_through(pool, lease, response, ask)
        finally:
            keep_alive.unfit -= 1

    def _ask(self, pool: PoolFacts) -> Ask:
        ask = self._asks.get(pool.adapter.name)
        if ask is None:
            ask = self._asks[pool.adapter.name] = pool.adapter.prepare(self._ctx.request)
        return ask

    async def _refused(self, pool: PoolFacts, response: UpstreamResponse) -> AttemptEnd:
        body = await whole_error(response)
        return self._keep(Spare(pool, response.status, response.reason, response.headers, body))

    def _keep(self, spare: Spare) -> AttemptEnd:
        """Keeps an engine's error in case no other server does better."""
        self._spare = spare
        if spare.status in _BUSY:
            return AttemptEnd.BUSY
        if spare.status >= _SERVER_ERROR and not says_prompt_too_long(spare.body):
            return AttemptEnd.SERVER_ERROR
        if spare.status >= _SERVER_ERROR:
            self._status = Status.REJECTED  # it says that the prompt is too long
        else:
            self._status = status_of(spare.status, spare.pool, broken=spare.status == _OK)
        return AttemptEnd.ANSWERED

    async def _pass_through(
        self, pool: PoolFacts, lease: Lease, response: UpstreamResponse, ask: Ask
    ) -> AttemptEnd:
        transfer = Transfer(
            self._ctx,
            pool,
            lease,
            response,
            ask=ask,
            sink=self._sink,
            extra=self._extra(pool),
            now=self._relay.clock.monotonic,
            commit=self._commit,
            heard=self._heard is not None,
        )
        try:
            broke_off = await transfer.run()
        except OvertakenError:
            return AttemptEnd.OVERTAKEN
        except EarlyAnswerError as early:
            status, body = early.error.status, early.error.body
            headers = (("Content-Type", "application/json"), ("Content-Length", str(len(body))))
            return self._keep(Spare(pool, status, responses.get(status, ""), headers, body))
        self.http_status = response.status
        self._status = status_of(
            response.status, pool, broken=broke_off is not None or transfer.harvest.broken
        )
        if broke_off is Reason.UPSTREAM_TIMEOUT and self._held():
            self._status, self.error = Status.ABORTED, broke_off.value
        elif broke_off is not None:
            self._saw(lease, Seen.FAILED)
            self.error = broke_off.value
        elif transfer.harvest.broken and self._status is Status.FAILED:
            self.error = Reason.UPSTREAM_PROTOCOL.value
        return AttemptEnd.ANSWERED

    def _commit(self, transfer: Transfer) -> None:
        """The first byte for the client: from here on nothing else is tried."""
        if self._transfer is not None:
            raise OvertakenError
        self._transfer = transfer
        if self._keep_alive is not None:
            self._keep_alive.transfer = transfer
        self._saw(transfer.lease, Seen.ANSWERED)
        self._sink.feed_from(transfer.response)
        if self._begun is not None and not self._begun.done():
            self._begun.set_result(None)

    # --- What came of it -------------------------------------------------------------------------

    def client_left(self) -> None:
        """A client that leaves with its answer complete, as many do at `[DONE]`, was served."""
        transfer = self._transfer
        if transfer is None:
            self._status = Status.ABORTED
            if self._keep_alive is not None and self._keep_alive.begun:
                self.http_status = _OK
            return
        self.left_off()
        self.http_status = transfer.status
        harvest = transfer.harvest
        if harvest.complete:
            self._status = status_of(transfer.status, transfer.pool, broken=harvest.broken)
        else:
            self._status = Status.ABORTED

    def left_off(self) -> None:
        """The answer stops here; the client may still be there, and whoever ends it has to know."""
        if self._transfer is not None:
            self._sink.left_at(self._transfer.harvest)

    def _overhead_s(self) -> float | None:
        """From its entry, which it may have had to wait for, until it was first handed on.

        What comes after that is the servers' time, however many are tried.
        """
        if self._sent_s is None:
            return None
        return self._sent_s - self._ctx.arrival_s - self._ctx.queue_s

    def _held(self) -> bool:
        """Whether times of this answer are those of its client."""
        held_s = self._sink.held_s
        if not held_s:
            return False
        return was_held(held_s, self._relay.clock.monotonic() - self._ctx.arrival_s)

    def let_go(self) -> None:
        """Cuts what refers back to this object: with it goes the request's body, at once."""
        self._sink.feed_from(None)
        self._transfer = self._keep_alive = self._last = None

    def outcome(self) -> Outcome:
        """What happened, as far as it is known."""
        ctx = self._ctx
        e2e_s = self._relay.clock.monotonic() - ctx.arrival_s
        transfer = self._transfer
        served = transfer.pool if transfer else self._spare.pool if self._spare else None
        reading, ttft_s, tpot_s = Reading(), None, None
        cached_tokens, structure, seen_tokens = None, UNKNOWN, 0
        if transfer is not None:
            harvest = transfer.harvest
            seen_tokens = harvest.seen_tokens
            if self._status is Status.OK:
                reading = reading_of(transfer.pool, ctx, harvest)
                cached_tokens = reading.cached_tokens
                structure, said = judged_of(
                    ctx, harvest, transfer.copy, wanted=self._heard is not None
                )
                if self._heard is not None:
                    self._heard(said)
            if harvest.first_content_s is not None:
                ttft_s = harvest.first_content_s - ctx.arrival_s
                tpot_s = tpot_of(harvest, reading.tokens)
        # In the order of the fields: naming each takes twice as long again.
        return Outcome(
            self._status,
            self.http_status,
            served.arm.arm_id if served else None,
            tuple(self._attempts),
            e2e_s,
            ttft_s,
            tpot_s,
            reading.tokens,
            reading.prompt_tokens,
            seen_tokens,
            reading.spec,
            self._overhead_s(),
            self.error,
            reading.unread,
            transfer.lease.load if transfer else None,
            transfer.lease.waiting if transfer else None,
            cached_tokens,
            self._held(),
            structure.valid,
            structure.truncated,
        )


def _head_limit(replica: Replica, *, streamed: bool) -> float:
    """The head comes before the content and before the end, so their limits are also its own."""
    limit_s = replica.header_s
    if streamed and replica.first_content_s is not None:
        limit_s = min(limit_s, replica.first_content_s)
    return limit_s if replica.total_s is None else min(limit_s, replica.total_s)
