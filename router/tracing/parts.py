"""The parts of the walk, each with its step of the trace around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from router.clock import Clock
from router.fleet.model import PoolFacts, Replica
from router.makers import Makers
from router.outputs.said import Said
from router.pipeline import Pipeline, RawRequest, Walk
from router.relay.relay import FinishFn, Relay
from router.relay.sink import ResponseSink
from router.relay.upstream import Receive, UpstreamError, UpstreamRequest, UpstreamResponse
from router.relay.wire.connection import Connection
from router.relay.wire.pool import Pool
from router.relay.wire.upstream import WireUpstream
from router.tracing.spans import Trace, Tracing, Try, current, trying
from router.types import Decision, Headers, Outcome, RequestContext


def traced(tracing: Tracing, clock: Clock) -> Makers:
    """Makes parts that trace what they do."""
    return Makers(
        pipeline=partial(TracedPipeline, tracing, clock),
        relay=TracedRelay,
        upstream=TracedUpstream,
    )


class TracedPipeline(Pipeline):
    """The walk of a request, with a trace around it, and a span for each of its own steps."""

    def __init__(self, tracing: Tracing, clock: Clock, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._tracing = tracing
        self._time = clock

    async def handle(self, raw: RawRequest, sink: ResponseSink) -> None:
        """See `Pipeline.handle`."""
        with self._tracing.request(raw, self._time):
            await super().handle(raw, sink)

    async def _walked(self, walk: Walk) -> None:
        """By itself: the trace is that of the task, and a step lasts as long as its own work."""
        for step in self.steps:
            step(walk)

    def _classify(self, walk: Walk) -> None:
        trace = current.get()
        if trace is None:
            super()._classify(walk)
            return
        with trace.step("classify") as span:
            super()._classify(walk)
            span.set_attribute("specroute.class", walk.classification.class_id)
            span.set_attribute("specroute.confidence", walk.classification.confidence)

    def _chosen(self, walk: Walk) -> Decision:
        trace = current.get()
        if trace is None:
            return super()._chosen(walk)
        with trace.step("choose") as span:
            decision = super()._chosen(walk)
            span.set_attribute("specroute.pool", decision.arm_id)
            span.set_attribute("specroute.propensity", decision.propensity)
            return decision


class TracedRelay(Relay):
    """A relay that tells the trace what is asked and what came of it."""

    async def run(
        self,
        ctx: RequestContext,
        decision: Decision,
        sink: ResponseSink,
        *,
        extra: Callable[[PoolFacts | None], Headers],
        finish: FinishFn,
        heard: Callable[[Said | None], None] | None = None,
    ) -> None:
        """See `Relay.run`."""
        trace = current.get()
        if trace is not None:
            trace.asked(ctx)
            finish = partial(self._finish, trace, ctx, decision, finish)
        await super().run(ctx, decision, sink, extra=extra, finish=finish, heard=heard)

    def _finish(
        self,
        trace: Trace,
        ctx: RequestContext,
        decision: Decision,
        finish: FinishFn,
        outcome: Outcome,
    ) -> None:
        trace.finished(ctx, decision, outcome, self.route)
        finish(outcome)


class TracedUpstream(WireUpstream):
    """An upstream whose tries are spans, and which tells servers whose children theirs are."""

    async def send(self, replica: Replica, request: UpstreamRequest) -> UpstreamResponse:
        """See `Upstream.send`."""
        trace = current.get()
        if trace is None:
            return await super().send(replica, request)
        one = trace.attempt(replica)
        token = trying.set(one)
        try:
            response = await super().send(
                replica, replace(request, headers=one.headers(request.headers))
            )
        except UpstreamError as error:
            one.failed(error.end.value)
            raise
        except BaseException:
            one.ended()
            raise
        finally:
            trying.reset(token)
        return _Watched(response, one)

    async def _dial(self, pool: Pool, replica: Replica) -> Connection:
        one = trying.get()
        if one is None:
            return await super()._dial(pool, replica)
        with one.trace.connecting(one):
            return await super()._dial(pool, replica)


class _Watched:
    """An answer whose end is the end of its try."""

    __slots__ = ("_inner", "_try")

    def __init__(self, inner: UpstreamResponse, one: Try) -> None:
        self._inner = inner
        self._try = one

    @property
    def status(self) -> int:
        """See `UpstreamResponse`."""
        return self._inner.status

    @property
    def reason(self) -> str:
        """See `UpstreamResponse`."""
        return self._inner.reason

    @property
    def headers(self) -> Headers:
        """See `UpstreamResponse`."""
        return self._inner.headers

    @property
    def waited_s(self) -> float:
        """See `UpstreamResponse`."""
        return self._inner.waited_s

    async def copy_to(self, receive: Receive) -> None:
        """See `UpstreamResponse`."""
        await self._inner.copy_to(receive)

    def pause(self) -> None:
        """See `UpstreamResponse`."""
        self._inner.pause()

    def resume(self) -> None:
        """See `UpstreamResponse`."""
        self._inner.resume()

    def abort(self, error: UpstreamError) -> None:
        """See `UpstreamResponse`."""
        self._inner.abort(error)

    def close(self) -> None:
        """See `UpstreamResponse`."""
        self._inner.close()
        self._try.ended(self._inner.status)
