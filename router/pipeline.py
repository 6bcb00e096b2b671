"""The walk of one request, from bytes to outcome; the only place that knows its order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from policies.types import Status
from policies.values import value
from router.admission.admission import Admission, Place
from router.classify.segments import Segments
from router.classify.sessions import SessionClassifier, session_name
from router.clock import Clock
from router.cohort import Cohort
from router.endpoints.names import ModelNames
from router.endpoints.table import FACTS, EndpointFacts
from router.experiments.placing import Question, Rules, place
from router.fleet.model import PoolFacts, RouteFacts
from router.intake.reading import read_request, with_model
from router.observe.recorder import Recorder
from router.relay.relay import Relay
from router.relay.sink import ResponseSink
from router.selection.chooser import Chooser
from router.selection.scope import Scope
from router.sentinel.repeats import Ear, Sentinel
from router.tenants.book import Tenants
from router.tenants.model import Tenant
from router.tenants.quotas import Bill, Quotas
from router.types import (
    UNCLASSIFIED,
    Classification,
    Decision,
    Headers,
    Outcome,
    ParsedRequest,
    RequestContext,
    SegmentId,
    SessionId,
)

_MADE = (Status.OK, Status.ABORTED)
"""Ends of requests for which an engine has worked, whether it has told or not."""


@value
class RawRequest:
    """A request as it came in, body read."""

    request_id: str
    facts: EndpointFacts
    """What its path is."""
    method: str
    path_qs: str
    path: str
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


@value
class Guest:
    """Whose request it is, the place it has, and what it pays."""

    tenant: Tenant
    place: Place
    bill: Bill

    def pays(self, outcome: Outcome) -> None:
        """Settles the bill by what the engine told; else by what was seen, or it stays a guess."""
        told = [n for n in (outcome.prompt_tokens, outcome.tokens) if n is not None]
        if told:
            self.bill.settle(sum(told), of_prompt=outcome.prompt_tokens)
        elif outcome.status in _MADE or outcome.seen_tokens:
            self.bill.settle_untold(outcome.seen_tokens)
        else:
            self.bill.settle(0)


class Walk:
    """What is known of a request before a pool is chosen; its steps fill it in, in this order."""

    __slots__ = (
        "classification",
        "ctx",
        "guest",
        "name",
        "raw",
        "request",
        "route",
        "scope",
        "segment",
        "session",
    )

    request: ParsedRequest
    route: RouteParts
    name: tuple[str, str] | None
    session: SessionId
    segment: SegmentId
    classification: Classification
    ctx: RequestContext
    scope: Scope

    def __init__(self, raw: RawRequest, guest: Guest) -> None:
        self.raw = raw
        self.guest = guest


class Pipeline:
    """Tell the tenant → admit → parse → classify → place → choose → relay → record."""

    def __init__(
        self,
        routes: Mapping[str, RouteParts],
        classifier: SessionClassifier,
        clock: Clock,
        *,
        admission: Admission,
        tenants: Tenants,
        quotas: Quotas,
        rules: Callable[[], Rules],
        sentinel: Sentinel,
        response_headers: bool,
    ) -> None:
        self._routes = routes
        self.names = ModelNames({name: parts.facts.aliases for name, parts in routes.items()})
        self._admission = admission
        self._tenants = tenants
        self._quotas = quotas
        self._rules = rules
        self._sentinel = sentinel
        self._classifier = classifier
        self._clock = clock
        self.response_headers = response_headers
        self.steps = (self._parse, self._tell_apart, self._classify, self._place)
        """From bytes to what is asked of the policy."""
        self._cohort = Cohort(self.steps)

    async def handle(self, raw: RawRequest, sink: ResponseSink) -> None:
        """Serves one request.

        Raises:
            RequestError: It is answered by an error of ours; the sink has not been started.
        """
        tenant = self._tenants.tenant(raw.headers)
        who = tenant.limited_as or tenant.id
        bill, admission = self._quotas.take(who, raw.body), self._admission
        try:
            with admission.try_enter(who) or await admission.wait(who, raw.body) as held:
                await self._serve(raw, sink, Guest(tenant, held, bill))
        finally:
            bill.settle(0)  # whoever was answered has settled already

    async def _serve(self, raw: RawRequest, sink: ResponseSink, guest: Guest) -> None:
        walk = Walk(raw, guest)
        if not raw.facts.speculates:
            self._parse(walk)
            await self._balance(walk, sink)
            return
        await self._walked(walk)
        # With no wait until a server's place is taken: whoever chooses next has to see it.
        decision = self._chosen(walk)
        route, ctx = walk.route, walk.ctx
        ear = self._sentinel.ear(route.facts, ctx, decision.arm_id, guest.tenant.sentinel)
        await route.relay.run(
            ctx,
            decision,
            sink,
            extra=partial(self._own_headers, ctx),
            finish=partial(self._finish, route, ctx, decision, guest, ear=ear),
            heard=None if ear is None else ear.hear,
        )

    async def _walked(self, walk: Walk) -> None:
        """Takes all steps, together with requests that have come at the same time."""
        await self._cohort.take(walk, len(walk.raw.body))

    # --- From bytes to a decision ----------------------------------------------------------------

    def _parse(self, walk: Walk) -> None:
        """The request, and the route that it means, as whose servers know the model.

        Raises:
            RequestError: It cannot be read, or means no route.
        """
        raw = walk.raw
        request = read_request(raw.facts, raw.body, raw.headers, path=raw.path)
        name = self.names.meant(request.model, FACTS[request.endpoint].model_in)
        walk.request = request if name == request.model else with_model(request, name)
        walk.route = self._routes[name]

    def _tell_apart(self, walk: Walk) -> None:
        request = walk.request
        walk.name = session_name(request)
        walk.session = self._classifier.session(request, walk.name)
        walk.segment = walk.route.segments.segment(request)

    def _classify(self, walk: Walk) -> None:
        walk.classification = self._classifier.classify(walk.request, walk.session)

    def _place(self, walk: Walk) -> None:
        raw, guest, facts = walk.raw, walk.guest, walk.route.facts
        asked = Question(
            guest.tenant,
            walk.request,
            walk.classification,
            raw.request_id,
            raw.headers,
            walk.name,
        )
        several = len(facts.pools) > 1
        placed = place(self._rules(), asked, baseline=facts.baseline, several=several)
        walk.scope = placed.scope
        # In the order of the fields: naming each takes twice as long again.
        walk.ctx = RequestContext(
            raw.request_id,
            walk.request,
            placed.classification,
            raw.arrival_s,
            raw.path_qs,
            self._tenants.passed_on(raw.headers),
            raw.method,
            walk.segment,
            walk.session,
            guest.tenant.id,
            guest.place.queue_s,
            placed.sides,
            placed.told,
        )

    def _chosen(self, walk: Walk) -> Decision:
        ctx = walk.ctx
        return walk.route.chooser.choose(ctx.request, ctx.classification, ctx.segment, walk.scope)

    # --- What needs no decision ------------------------------------------------------------------

    async def _balance(self, walk: Walk, sink: ResponseSink) -> None:
        """Serves what generates no text: any server of the baseline will do, nothing is learned."""
        raw, guest, route = walk.raw, walk.guest, walk.route
        ctx = RequestContext(
            request_id=raw.request_id,
            request=walk.request,
            classification=UNCLASSIFIED,
            arrival_s=raw.arrival_s,
            path_qs=raw.path_qs,
            headers=self._tenants.passed_on(raw.headers),
            method=raw.method,
            tenant=guest.tenant.id,
            queue_s=guest.place.queue_s,
        )
        await route.relay.run(
            ctx,
            route.chooser.balanced(),
            sink,
            extra=partial(self._own_headers, ctx),
            finish=partial(self._finish_balanced, route, ctx, guest),
        )

    # --- Afterwards ------------------------------------------------------------------------------

    def _finish_balanced(
        self, route: RouteParts, ctx: RequestContext, guest: Guest, outcome: Outcome
    ) -> None:
        guest.pays(outcome)
        route.recorder.record_balanced(ctx, outcome)

    def _finish(
        self,
        route: RouteParts,
        ctx: RequestContext,
        decision: Decision,
        guest: Guest,
        outcome: Outcome,
        *,
        ear: Ear | None,
    ) -> None:
        guest.pays(outcome)
        self._sentinel.served(route.facts.model, outcome)
        if ear is not None:
            ear.done(outcome, self._clock.monotonic())
        self._classifier.learn(ctx.session, outcome)
        route.recorder.record(ctx, decision, outcome)

    def _own_headers(self, ctx: RequestContext, pool: PoolFacts | None) -> Headers:
        if not self.response_headers:
            return ()
        told: Headers = (("x-specroute-request-id", ctx.request_id),)
        if pool is not None:
            told = (
                *told,
                ("x-specroute-pool", pool.arm.arm_id),
                ("x-specroute-method", pool.arm.method),
            )
        if ctx.classification is UNCLASSIFIED:
            return told
        told = (*told, ("x-specroute-class", ctx.classification.class_id))
        return (*told, ("x-specroute-experiment", ctx.experiment)) if ctx.experiment else told
