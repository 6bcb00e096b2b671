"""The spans of one request, by the semantic conventions for HTTP and for generative AI.

====================  =========  ==================================================================
span                  kind       from, to
====================  =========  ==================================================================
`POST /v1/…`          server     the request is here, body and all; its last byte has gone
`admit`               internal   the wait for a place, where there was one
`classify`            internal   what the request is about
`choose`              internal   which pool it is sent to
`chat MODEL`, …       client     one try at one server, until nobody waits for it any more
`connect`             internal   a new connection, where none was kept
`first content`       internal   from the request's start at that server to the first content
`stream`              internal   from the first to the end
====================  =========  ==================================================================

Attributes hold names, counts and times; never text of prompts or answers. Names of `gen_ai.*` are
those of `opentelemetry-semantic-conventions` 0.66, where they are in development.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from policies.types import Status
from router import __version__
from router.clock import Clock
from router.errors import RequestError
from router.fleet.model import Replica, RouteFacts
from router.pipeline import RawRequest
from router.relay.wire.origin import origin_of
from router.types import AttemptEnd, Decision, Endpoint, Headers, Outcome, RequestContext

_PROPAGATED: Final = ("traceparent", "tracestate")
_OPERATIONS: Final[Mapping[Endpoint, str]] = {
    Endpoint.CHAT: "chat",
    Endpoint.RESPONSES: "chat",
    Endpoint.MESSAGES: "chat",
    Endpoint.COMPLETIONS: "text_completion",
    Endpoint.LLAMA_COMPLETION: "text_completion",
    Endpoint.LLAMA_INFILL: "text_completion",
    Endpoint.EMBEDDINGS: "embeddings",
}
_SERVER_ERROR: Final = 500
_NS: Final = 1_000_000_000

Attributes = dict[str, AttributeValue]

current: ContextVar[Trace | None] = ContextVar("specroute_trace", default=None)
"""The trace of the request that is being served in this task."""


trying: ContextVar[Try | None] = ContextVar("specroute_try", default=None)
"""The try that this task makes; with a hedge there are two at a time."""


class Tracing:
    """Makes the traces of a process.

    Args:
        provider: Of OpenTelemetry's SDK; decides what is sampled and where spans go.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("specroute", __version__)
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def request(self, raw: RawRequest, clock: Clock) -> Iterator[Trace]:
        """A trace around all that is done for a request; errors end it and pass through."""
        told = {name.lower(): value for name, value in raw.headers}
        parent = self._propagator.extract({of: told[of] for of in _PROPAGATED if of in told})
        trace = Trace(self, raw, clock, parent)
        token = current.set(trace)
        try:
            yield trace
        except RequestError as error:
            trace.refused(error)
            raise
        finally:
            current.reset(token)
            trace.end()

    def start(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        context: otel_context.Context,
        at_ns: int,
    ) -> Span:
        """Begins a span at a time."""
        return self._tracer.start_span(name, context, kind, attributes, _NO_LINKS, start_time=at_ns)

    def headers(self, span: Span) -> Headers:
        """What tells a server whose span is the parent of its own."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, set_span_in_context(span))
        return tuple(carrier.items())

    def close(self) -> None:
        """Sends what is left; it may take seconds, so not on the event loop."""
        self._provider.shutdown()


_NO_LINKS: tuple[Link, ...] = ()


class Try:
    """The span of one try at one server."""

    def __init__(self, trace: Trace, replica: Replica, span: Span, began_s: float) -> None:
        self.trace = trace
        self.replica_id = replica.replica_id
        self.span = span
        self.began_s = began_s
        self.ended_s: float | None = None

    def headers(self, sent: Headers) -> Headers:
        """A request's lines, with the parent that this try is instead of the client's."""
        kept = tuple(line for line in sent if line[0].lower() not in _PROPAGATED)
        return (*kept, *self.trace.tracing.headers(self.span))

    def failed(self, why: str) -> None:
        """No answer, and why."""
        self.span.set_attribute("error.type", why)
        self.span.set_status(StatusCode.ERROR, why)
        self.ended()

    def ended(self, http_status: int | None = None) -> None:
        """Nobody waits for it any more. What is known of it may come later."""
        if self.ended_s is None:
            self.ended_s = self.trace.now_s()
            if http_status is not None:
                self.span.set_attribute("http.response.status_code", http_status)


class Trace:
    """One request. Times are those of the proxy's monotonic clock."""

    def __init__(
        self, tracing: Tracing, raw: RawRequest, clock: Clock, parent: otel_context.Context
    ) -> None:
        self.tracing = tracing
        self.request_id = raw.request_id
        self._clock = clock
        self._wall_s = clock.wall() - clock.monotonic()
        self.arrival_s = raw.arrival_s
        path = raw.path_qs.partition("?")[0]
        self._root = tracing.start(
            f"{raw.method} {raw.facts.endpoint}",
            SpanKind.SERVER,
            {
                "http.request.method": raw.method,
                "http.route": raw.facts.endpoint,
                "url.path": path,
                "specroute.request_id": raw.request_id,
            },
            parent,
            self.at_ns(raw.arrival_s),
        )
        self._tries: list[Try] = []
        self._ctx: RequestContext | None = None

    def now_s(self) -> float:
        """Now."""
        return self._clock.monotonic()

    def at_ns(self, monotonic_s: float) -> int:
        """A moment as spans have it: nanoseconds since the epoch."""
        return int((monotonic_s + self._wall_s) * _NS)

    @contextmanager
    def step(self, name: str) -> Iterator[Span]:
        """A piece of our own work."""
        span = self._inside(self._root, name, self.now_s())
        try:
            yield span
        finally:
            span.end(self.at_ns(self.now_s()))

    def lasted(self, name: str, from_s: float, to_s: float, of: Span | None = None) -> None:
        """A piece of time that has passed."""
        self._inside(of or self._root, name, from_s).end(self.at_ns(max(from_s, to_s)))

    def attempt(self, replica: Replica) -> Try:
        """A try at a server begins."""
        began_s = self.now_s()
        ctx = self._ctx
        operation = None if ctx is None else _OPERATIONS.get(ctx.request.endpoint)
        model = "" if ctx is None else ctx.request.model
        attributes: Attributes = {
            "specroute.request_id": self.request_id,
            "specroute.replica": replica.replica_id,
            **_address(replica),
        }
        if operation is not None:
            attributes["gen_ai.operation.name"] = operation
            attributes["gen_ai.request.model"] = model
        span = self.tracing.start(
            f"{operation or 'forward'} {model}".strip(),
            SpanKind.CLIENT,
            attributes,
            set_span_in_context(self._root),
            self.at_ns(began_s),
        )
        made = Try(self, replica, span, began_s)
        self._tries.append(made)
        return made

    @contextmanager
    def connecting(self, one: Try) -> Iterator[None]:
        """A try needs a connection of its own."""
        began_s = self.now_s()
        try:
            yield
        finally:
            self.lasted("connect", began_s, self.now_s(), one.span)

    def asked(self, ctx: RequestContext) -> None:
        """The request is about to be sent to a server."""
        self._ctx = ctx
        if ctx.queue_s > 0.0:
            self.lasted("admit", ctx.arrival_s, ctx.arrival_s + ctx.queue_s)

    def finished(
        self, ctx: RequestContext, decision: Decision, outcome: Outcome, facts: RouteFacts
    ) -> None:
        """What came of it."""
        self._root.set_attributes(_about(ctx, decision, outcome))
        if outcome.http_status is not None and outcome.http_status >= _SERVER_ERROR:
            self._root.set_status(StatusCode.ERROR)
        last = self._last(outcome)
        if last is None:
            return
        served = outcome.served_by or decision.arm_id
        last.span.set_attributes(_answered(ctx, outcome, facts, served))
        if outcome.status is Status.FAILED:
            last.span.set_status(StatusCode.ERROR, outcome.error)
        if outcome.ttft_s is not None:
            content_s = self.arrival_s + outcome.ttft_s
            self.lasted("first content", last.began_s, content_s, last.span)
            if ctx.request.stream:
                self.lasted("stream", content_s, last.ended_s or self.now_s(), last.span)

    def _last(self, outcome: Outcome) -> Try | None:
        """The try that answered; else the last."""
        answered = {of.replica_id for of in outcome.attempts if of.end is AttemptEnd.ANSWERED}
        return next(
            (one for one in reversed(self._tries) if one.replica_id in answered),
            self._tries[-1] if self._tries else None,
        )

    def refused(self, error: RequestError) -> None:
        """It is answered by an error of ours."""
        self._root.set_attribute("http.response.status_code", error.http_status)
        self._root.set_attribute("error.type", error.reason.value)
        if error.http_status >= _SERVER_ERROR:
            self._root.set_status(StatusCode.ERROR, error.reason.value)

    def end(self) -> None:
        """All is over."""
        now_s = self.now_s()
        for one in self._tries:
            one.span.end(self.at_ns(now_s if one.ended_s is None else one.ended_s))
        self._root.end(self.at_ns(now_s))

    def _inside(self, parent: Span, name: str, at_s: float) -> Span:
        return self.tracing.start(
            name, SpanKind.INTERNAL, {}, set_span_in_context(parent), self.at_ns(at_s)
        )


def _about(ctx: RequestContext, decision: Decision, outcome: Outcome) -> Attributes:
    told: Attributes = {
        "specroute.class": ctx.classification.class_id,
        "specroute.pool": decision.arm_id,
        "specroute.policy": decision.policy,
        "specroute.propensity": decision.propensity,
        "specroute.status": outcome.status.value,
        "specroute.attempts": len(outcome.attempts),
    }
    if outcome.http_status is not None:
        told["http.response.status_code"] = outcome.http_status
    if outcome.error is not None:
        told["error.type"] = outcome.error
    if outcome.served_by is not None and outcome.served_by != decision.arm_id:
        told["specroute.served_by"] = outcome.served_by
    if ctx.experiment:
        told["specroute.experiment"] = ctx.experiment
    return told


def _answered(ctx: RequestContext, outcome: Outcome, facts: RouteFacts, served: str) -> Attributes:
    """Of the last try: whose it is, and what its engine told."""
    pool = next(pool for arm, pool in facts.pools.items() if arm == served)
    told: Attributes = {
        "gen_ai.provider.name": pool.adapter.name,
        "gen_ai.request.stream": ctx.request.stream,
        "specroute.pool": pool.arm.arm_id,
        "specroute.method": pool.arm.method,
    }
    figures: dict[str, AttributeValue | None] = {
        "gen_ai.usage.input_tokens": outcome.prompt_tokens,
        "gen_ai.usage.output_tokens": outcome.tokens,
        "gen_ai.usage.cache_read.input_tokens": outcome.cached_tokens,
        "gen_ai.response.time_to_first_chunk": outcome.ttft_s,
        "error.type": outcome.error,
    }
    spec = outcome.spec
    if spec is not None:
        figures |= {
            "specroute.steps": spec.steps,
            "specroute.drafted_tokens": spec.drafted,
            "specroute.accepted_tokens": spec.accepted,
        }
    return told | {name: value for name, value in figures.items() if value is not None}


def _address(replica: Replica) -> Attributes:
    try:
        origin = origin_of(replica.url)
    except ValueError:
        return {}
    return {"server.address": origin.host, "server.port": origin.port}
