"""The walk of one request, from bytes to outcome; the only place that knows its order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from router.classify.segments import Segments
from router.classify.sessions import SessionClassifier
from router.clock import Clock
from router.errors import Reason, RequestError
from router.fleet.model import PoolFacts, RouteFacts
from router.intake.parse import parse_request
from router.intake.request_ids import request_ids
from router.observe.recorder import Recorder
from router.relay.relay import Relay
from router.relay.sink import ResponseSink
from router.selection.chooser import Chooser
from router.types import Decision, Endpoint, Headers, Outcome, RequestContext


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request as it came in, body read."""

    endpoint: Endpoint
    path_qs: str
    headers: Headers
    body: bytes
    arrival_s: float


@dataclass(frozen=True, slots=True)
class RouteParts:
    """The objects that serve one route."""

    facts: RouteFacts
    segments: Segments
    chooser: Chooser
    relay: Relay
    recorder: Recorder


class Pipeline:
    """Parse → classify → choose → relay → record."""

    def __init__(
        self,
        routes: Mapping[str, RouteParts],
        classifier: SessionClassifier,
        clock: Clock,
        *,
        response_headers: bool,
    ) -> None:
        self._routes = routes
        self._classifier = classifier
        self._clock = clock
        self._response_headers = response_headers
        self._ids = request_ids()

    async def handle(self, raw: RawRequest, sink: ResponseSink) -> None:
        """Serves one request.

        Raises:
            RequestError: It is answered by an error of ours; the sink has not been started.
        """
        request = parse_request(raw.endpoint, raw.body, raw.headers)
        route = self._route(request.model)
        # Both read the same few lines of the request, which classifying drives out of the caches.
        session, segment = self._classifier.session(request), route.segments.segment(request)
        ctx = RequestContext(
            request_id=next(self._ids),
            request=request,
            classification=self._classifier.classify(request, session),
            arrival_s=raw.arrival_s,
            path_qs=raw.path_qs,
            headers=raw.headers,
            segment=segment,
            session=session,
        )
        decision = route.chooser.choose(request, ctx.classification, ctx.segment)
        await route.relay.run(
            ctx,
            decision,
            sink,
            extra=partial(self._own_headers, ctx),
            finish=partial(self._finish, route, ctx, decision),
        )

    def _finish(
        self, route: RouteParts, ctx: RequestContext, decision: Decision, outcome: Outcome
    ) -> None:
        self._classifier.learn(ctx.session, outcome)
        route.recorder.record(ctx, decision, outcome)

    def _route(self, model: str) -> RouteParts:
        route = self._routes.get(model)
        if route is None:
            known = ", ".join(repr(name) for name in self._routes)
            raise RequestError(
                Reason.UNKNOWN_MODEL,
                f"The model {model!r} is not served here. Served: {known}.",
                param="model",
            )
        return route

    def _own_headers(self, ctx: RequestContext, pool: PoolFacts) -> Headers:
        if not self._response_headers:
            return ()
        return (
            ("x-specroute-request-id", ctx.request_id),
            ("x-specroute-pool", pool.arm.arm_id),
            ("x-specroute-method", pool.arm.method),
            ("x-specroute-class", ctx.classification.class_id),
        )
