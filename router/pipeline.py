"""The walk of one request, from bytes to outcome; the only place that knows its order."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from router.classify.segments import Segments
from router.classify.sessions import SessionClassifier
from router.clock import Clock
from router.endpoints.names import ModelNames
from router.endpoints.table import FACTS
from router.fleet.model import PoolFacts, RouteFacts
from router.intake.reading import read_request, with_model
from router.observe.recorder import Recorder
from router.relay.relay import Relay
from router.relay.sink import ResponseSink
from router.selection.chooser import Chooser
from router.types import Decision, Endpoint, Headers, Outcome, ParsedRequest, RequestContext


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
        self._names = ModelNames({name: parts.facts.aliases for name, parts in routes.items()})
        self._classifier = classifier
        self._clock = clock
        self._response_headers = response_headers

    async def handle(self, raw: RawRequest, sink: ResponseSink) -> None:
        """Serves one request.

        Raises:
            RequestError: It is answered by an error of ours; the sink has not been started.
        """
        request, route = self._route(self._read(raw))
        session = self._classifier.session(request)
        ctx = RequestContext(
            request_id=secrets.token_hex(8),
            request=request,
            classification=self._classifier.classify(request, session),
            arrival_s=raw.arrival_s,
            path_qs=raw.path_qs,
            headers=raw.headers,
            segment=route.segments.segment(request),
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

    def _read(self, raw: RawRequest) -> ParsedRequest:
        path = raw.path_qs.partition("?")[0]
        return read_request(FACTS[raw.endpoint], raw.body, raw.headers, path=path)

    def _route(self, request: ParsedRequest) -> tuple[ParsedRequest, RouteParts]:
        """The route that is meant, and the request as the route's servers know the model."""
        name = self._names.meant(request.model, FACTS[request.endpoint].model_in)
        if name != request.model:
            request = with_model(request, name)
        return request, self._routes[name]

    def _own_headers(self, ctx: RequestContext, pool: PoolFacts) -> Headers:
        if not self._response_headers:
            return ()
        return (
            ("x-specroute-request-id", ctx.request_id),
            ("x-specroute-pool", pool.arm.arm_id),
            ("x-specroute-method", pool.arm.method),
            ("x-specroute-class", ctx.classification.class_id),
        )
