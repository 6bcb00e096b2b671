"""What one configuration is made into: routes, classifier, pipeline. Replaced whole by a reload.

Listeners, the store and what has been counted outlive it (`router.app`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np

from policies.base import ContextPolicy, Policy
from policies.parameters import ParameterError
from policies.priors import MethodPrior
from policies.registry import build_any_policy
from policies.types import ArmView, ClassId
from router.account import Accountant
from router.admission.admission import Admission
from router.classify.configured import class_ids, configured_classifier
from router.classify.segments import Fingerprints, Segments, SegmentTable
from router.classify.sessions import SessionClassifier
from router.clock import Clock
from router.config.classes import Classify
from router.config.models import Config
from router.config.routes import Route
from router.endpoints.names import ModelNames
from router.errors import ConfigError
from router.estimates.counted import Counted
from router.estimates.detector import find_shift
from router.estimates.knowing import Knowing
from router.estimates.layout import SLOT_S
from router.estimates.reader import Past, Reader
from router.estimates.snapshot import Snapshot, SnapshotBuilder
from router.estimates.writer import Writer
from router.experiments.service import Source, Trials
from router.fleet.fetch import Fetch
from router.fleet.model import RouteFacts, build_routes
from router.fleet.state import FleetState
from router.fleet.upkeep import FleetUpkeep
from router.makers import PLAIN, Makers
from router.observe.decision_log import DecisionLog, why_unwritable
from router.observe.metrics import Metrics
from router.observe.recorder import Recorder
from router.pipeline import RawRequest, RouteParts
from router.relay.relay import Relay
from router.relay.sink import ResponseSink
from router.relay.wire.upstream import WireUpstream
from router.selection.chooser import Chooser
from router.selection.expectations import expectations
from router.selection.plans import Plan, context_plan_steps, plan_steps
from router.sentinel.evidence import Watched
from router.sentinel.exchange import Baseline
from router.sentinel.repeats import Sentinel
from router.sentinel.service import Quality
from router.simulate.load import load_priors
from router.stores.base import SharedStore
from router.tenants.book import TenantBook, plan_key
from router.tenants.keyring import KeyRing
from router.tenants.quotas import Quotas
from router.types import POOLED

_TTL_SLACK_S = 10 * SLOT_S
_NOTHING = Past({}, 0, frozenset())


@dataclass(frozen=True, slots=True)
class Ground:
    """What a process has once, whatever its configuration says."""

    clock: Clock
    rng: np.random.Generator
    store: SharedStore
    writer: Writer
    metrics: Metrics
    fetch: Fetch
    """Asks servers for their health and their gauges."""
    admission: Admission
    prefix: str
    """First part of every key in the store."""
    keys: KeyRing
    """API keys of tenants."""
    trials: Trials
    """Experiments."""
    quotas: Quotas
    """Tokens that tenants may have."""
    quality: Quality
    """Quarantines."""
    sentinel: Sentinel
    """Repeats of answers."""
    makers: Makers = PLAIN
    """What makes the parts that requests pass through."""


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of a route: what they are, how they do, and the connections to them."""

    facts: RouteFacts
    fleet: FleetState
    upkeep: FleetUpkeep
    upstream: WireUpstream
    relay: Relay
    counted: Counted
    """What their counters tell of each class."""


def make_servers(facts: RouteFacts, ground: Ground) -> Servers:
    """All that belongs to the servers of a route and ends with them."""
    clock, uniform = ground.clock, ground.rng.random
    fleet = FleetState(facts, clock, uniform=uniform)
    upstream, counted = ground.makers.upstream(), Counted(facts.arms)
    wall = ground.writer.slots.wall
    return Servers(
        facts,
        fleet,
        FleetUpkeep(facts, fleet, clock, ground.fetch, uniform=uniform, book=counted, wall=wall),
        upstream,
        ground.makers.relay(facts, fleet, upstream, clock),
        counted,
    )


@dataclass(slots=True)
class ServedRoute:
    """Everything that lives for one route."""

    config: Route
    servers: Servers
    segments: Segments
    policy: Policy | ContextPolicy
    reader: Reader
    builder: SnapshotBuilder
    knowing: Knowing
    parts: RouteParts
    snapshot: Snapshot
    accountant: Accountant
    others: dict[str, Policy | ContextPolicy | None] = field(default_factory=dict)
    """Policies of tenants and experiments, by `plan_key`; None for one that cannot be built."""


class Generation:
    """All that serves requests under one configuration.

    What a route knows outlives a reload as far as its configuration is the same: connections while
    its servers are, and what is known of each server that stays; what was read of the store while
    the window is; sessions while `classify` is; applications while they are told apart in the same
    way.
    """

    def __init__(self, config: Config, ground: Ground, before: Generation | None = None) -> None:
        """Builds everything and starts nothing; plans come with `Learning.refresh`.

        Args:
            config: The checked configuration.
            ground: What the process has.
            before: The generation that this one will replace.

        Raises:
            ConfigError: A policy's name or parameters are wrong, or weights or the decision log
                cannot be used.
        """
        self.config = config
        self._ground = ground
        self._before = before
        self.weights = _stamp(config.classify)
        self.class_ids = class_ids(config.classify)
        self.fingerprints = self._fingerprints()
        self.decision_log = self._decision_log()
        self.classifier = self._session_classifier()
        facts = build_routes(config)
        self.routes = {
            route.model: self._route(route, facts[route.model], index)
            for index, route in enumerate(config.routes)
        }
        self.tenants = TenantBook(config.tenants, ground.keys, ground.clock)
        """Who is who; hashes go by the store's key, so they outlast reloads and restarts."""
        self._pipeline = ground.makers.pipeline(
            {model: route.parts for model, route in self.routes.items()},
            self.classifier,
            ground.clock,
            admission=ground.admission,
            tenants=self.tenants,
            quotas=ground.quotas,
            rules=lambda: ground.trials.rules,
            sentinel=ground.sentinel,
            response_headers=config.listen.response_headers,
        )
        self._check_policies_of_tenants()
        self._before = None
        self.requests = 0
        """Being served now."""
        self._when_idle: Callable[[], None] | None = None

    @property
    def ttl_s(self) -> int:
        """How long the store has to keep sums."""
        return self.config.estimates.window_s + _TTL_SLACK_S

    @property
    def names(self) -> ModelNames:
        """What clients may call models."""
        return self._pipeline.names

    @property
    def response_headers(self) -> bool:
        """Whether replies carry headers of ours."""
        return self._pipeline.response_headers

    async def handle(self, raw: RawRequest, sink: ResponseSink) -> None:
        """Serves one request; see `Pipeline.handle`."""
        self.requests += 1
        try:
            await self._pipeline.handle(raw, sink)
        finally:
            self.requests -= 1
            if self.requests == 0 and self._when_idle is not None:
                self._when_idle()

    def retire(self, when_idle: Callable[[], None]) -> None:
        """Has `when_idle` called once no request is served by this generation any more."""
        self._when_idle = when_idle
        if self.requests == 0:
            when_idle()

    async def probe(self) -> None:
        """Finds the servers and asks every one for its health."""
        await asyncio.gather(*(route.servers.upkeep.round() for route in self.routes.values()))

    async def meet(self) -> None:
        """Finds the servers and asks those for their health that the generation before had not."""
        await asyncio.gather(*(route.servers.upkeep.meet() for route in self.routes.values()))

    def go_on(self, before: Generation) -> None:
        """Takes what the generation before knows of its servers now: requests begin to come."""
        now = self._ground.clock.monotonic()
        for model, route in self.routes.items():
            known = before.routes.get(model)
            if known is not None and known.servers is not route.servers:
                route.servers.fleet.go_on(known.servers.fleet, now)
                route.servers.upkeep.adopt(known.servers.upkeep)

    def not_ready(self) -> str | None:
        """Why it cannot serve; None if it can."""
        for model, route in self.routes.items():
            servers = route.servers
            if not any(servers.fleet.answers(arm_id) for arm_id in servers.facts.pools):
                return f"no server of model {model!r} answers"
        return None

    def other_policies(self, route: ServedRoute) -> Iterator[tuple[str, Policy | ContextPolicy]]:
        """Policies beside the route's own that tenants or experiments want asked."""
        wanted: list[tuple[str, Mapping[str, object]]] = [
            (tenant.policy.name, tenant.policy.parameters)
            for tenant in self.config.tenants.known
            if tenant.policy is not None
        ]
        wanted += self._ground.trials.policies(route.config.model)
        for name, parameters in wanted:
            key = plan_key(name, parameters)
            if key not in route.others:
                try:
                    arms = route.servers.facts.arms
                    route.others[key] = build_any_policy(name, parameters, arms, self.class_ids)
                except ValueError:
                    # It names arms of other routes, say; whoever wanted it gets the route's own.
                    route.others[key] = None
            policy = route.others[key]
            if policy is not None:
                yield key, policy

    def sources(self) -> dict[str, Source]:
        """Where the sums of each route are."""
        return {
            model: Source(route.reader.past, route.reader.history)
            for model, route in self.routes.items()
        }

    def baselines(self) -> dict[str, Baseline]:
        """Who is asked again, by model."""
        return {
            model: Baseline(route.servers.facts, route.servers.fleet, route.servers.upstream)
            for model, route in self.routes.items()
        }

    def watched(self, route: ServedRoute) -> Watched | None:
        """What of a route is judged; None where nothing can be, or nobody wants it."""
        facts, sentinel = route.servers.facts, route.config.sentinel
        others = len(facts.pools) - 1
        if not others or not sentinel.quarantine:
            return None
        return Watched(facts.baseline, others * len(self.class_ids), sentinel.quarantine_s)

    def plan_steps(
        self, route: ServedRoute, policy: Policy | ContextPolicy, past: Past, wall: float
    ) -> Iterator[Plan | None]:
        """Makes a plan from a route's newest snapshot in pieces; see `router.selection.plans`.

        Args:
            route: The route.
            policy: Its own, or another that somebody wants asked.
            past: What the snapshot was made of.
            wall: When it was.
        """
        snapshot, rng = route.snapshot, self._ground.rng
        arms = route.servers.facts.arms
        unseen = [class_id for class_id in self.class_ids if class_id not in snapshot.classes]
        if isinstance(policy, ContextPolicy):
            parts = {class_id: of.parts for class_id, of in snapshot.classes.items()}
            known = yield from route.knowing.look(past, parts, wall)
            classes = (*snapshot.classes, *unseen)
            yield from context_plan_steps(policy, known, classes, version=snapshot.version, rng=rng)
            return
        empty = ((class_id, POOLED, ArmView.empty(class_id, arms)) for class_id in unseen)
        views = chain(empty, snapshot.views())
        yield from plan_steps(policy, views, arms, version=snapshot.version, rng=rng)

    def _check_policies_of_tenants(self) -> None:
        for index, tenant in enumerate(self.config.tenants.known):
            policy = tenant.policy
            if policy is None:
                continue
            key = plan_key(policy.name, policy.parameters)
            if any(key in dict(self.other_policies(route)) for route in self.routes.values()):
                continue
            try:
                arms = next(iter(self.routes.values())).servers.facts.arms
                build_any_policy(policy.name, policy.parameters, arms, self.class_ids)
            except ValueError as error:
                where = f"tenants.known[{index}].policy.{_policy_key(error)}"
                raise ConfigError(f"{where}: {error}; so it can be used on no route") from error

    # --- What is taken over -------------------------------------------------------------------

    def _same(self, part: Callable[[Config], object]) -> bool:
        """Whether a part of the configuration is what it was before."""
        return self._before is not None and part(self._before.config) == part(self.config)

    def _fingerprints(self) -> Fingerprints:
        if self._before is not None and self._same(lambda config: config.classify.segment_key):
            return self._before.fingerprints
        key = self.config.classify.segment_key
        return Fingerprints(
            key.get_secret_value().encode("utf-8", "surrogatepass") if key else None
        )

    def _decision_log(self) -> DecisionLog:
        if self._before is not None and self._same(lambda config: config.decision_log):
            return self._before.decision_log
        path = self.config.decision_log.path
        why = why_unwritable(Path(path)) if path else None
        if why is not None:
            raise ConfigError(
                f"decision_log.path: {path} cannot be written to: {why}; name another file, or "
                "null for none"
            )
        before = self._before.decision_log if self._before is not None else None
        return DecisionLog(Path(path) if path else None, before)

    def _session_classifier(self) -> SessionClassifier:
        before, classify = self._before, self.config.classify
        same = before is not None and before.weights == self.weights
        if before is not None and same and self._same(lambda config: config.classify):
            # The operator's own weights may have been trained anew under the same name.
            return before.classifier
        return SessionClassifier(
            configured_classifier(classify), self._ground.clock, classify.sessions
        )

    def _route(self, route: Route, facts: RouteFacts, index: int) -> ServedRoute:
        policy = _policy(route, facts, index, self.class_ids)
        known = self._before.routes.get(route.model) if self._before is not None else None
        if known is not None and _same_servers(known.config, route):
            servers = known.servers
        else:
            servers = make_servers(facts, self._ground)
            if known is not None:
                servers.fleet.adopt(known.servers.fleet, self._ground.clock.monotonic())
                servers.upkeep.adopt(known.servers.upkeep)
        builder, snapshot = self._builder(facts, known)
        segments = self._segments(known)
        # Baseline only, and replaced before anything is served: `Learning.refresh`.
        plan = Plan(policy.name, snapshot.version, facts.arms, {})
        ground, reader = self._ground, self._reader(route, known)
        parts = RouteParts(
            facts=servers.facts,
            segments=segments,
            chooser=Chooser(
                servers.facts,
                servers.fleet,
                plan,
                uniform=ground.rng.random,
                quarantined=ground.quality.barred(route.model),
            ),
            relay=servers.relay,
            recorder=Recorder(
                ground.writer,
                ground.metrics,
                self.decision_log,
                ground.clock,
                route=servers.facts,
                noted=ground.trials.note,
            ),
        )
        return ServedRoute(
            route,
            servers,
            segments,
            policy,
            reader,
            builder,
            self._knowing(facts, known),
            parts,
            snapshot,
            self._accountant(facts, reader, known),
        )

    def _accountant(
        self, facts: RouteFacts, reader: Reader, known: ServedRoute | None
    ) -> Accountant:
        same = known is not None and known.servers.facts.arms == facts.arms
        if known is not None and same and known.reader is reader:
            return known.accountant
        window_s = self.config.estimates.window_s
        return Accountant(facts.arms, reader, self._ground.writer.slots, window_s)

    def _knowing(self, facts: RouteFacts, known: ServedRoute | None) -> Knowing:
        estimates = self.config.estimates
        same = known is not None and known.servers.facts.arms == facts.arms
        if known is not None and same and self._same(lambda config: config.estimates):
            return known.knowing
        expected = expectations(facts.arms, self.class_ids, published_priors())
        return Knowing(facts.arms, expected, estimates.half_life_s)

    def _segments(self, known: ServedRoute | None) -> Segments:
        classify = self.config.classify
        if known is not None and self._same(lambda config: _told_apart_by(config.classify)):
            return known.segments
        return Segments(self.fingerprints, SegmentTable(self._ground.clock, classify.segments))

    def _reader(self, route: Route, known: ServedRoute | None) -> Reader:
        if known is not None and self._same(lambda config: config.estimates.window_s):
            return known.reader
        ground = self._ground
        return Reader(
            ground.store,
            ground.writer,
            prefix=ground.prefix,
            model=route.model,
            window_s=self.config.estimates.window_s,
        )

    def _builder(
        self, facts: RouteFacts, known: ServedRoute | None
    ) -> tuple[SnapshotBuilder, Snapshot]:
        estimates = self.config.estimates
        same = known is not None and known.servers.facts.arms == facts.arms
        if known is not None and same and self._same(lambda config: config.estimates):
            return known.builder, known.snapshot
        builder = SnapshotBuilder(
            facts.arms,
            half_life_s=estimates.half_life_s,
            tail_limit=estimates.tail_limit,
            detect=find_shift,
        )
        return builder, builder.build(_NOTHING, self._ground.clock.wall())


def _told_apart_by(classify: Classify) -> tuple[object, ...]:
    return classify.segments, classify.segment_key


def _same_servers(one: Route, other: Route) -> bool:
    same = {"policy": other.policy, "sentinel": other.sentinel}
    return one.model_copy(update=same) == other


def _stamp(classify: Classify) -> tuple[int, int] | None:
    """Tells one content of the operator's own weights from another."""
    if classify.weights is None:
        return None
    try:
        found = Path(classify.weights).stat()
    except OSError:
        return None  # who loads them complains
    return found.st_mtime_ns, found.st_size


@cache
def published_priors() -> Mapping[str, MethodPrior]:
    """What is published of methods, read once."""
    return load_priors()


def _policy(
    route: Route, facts: RouteFacts, index: int, classes: tuple[ClassId, ...]
) -> Policy | ContextPolicy:
    try:
        return build_any_policy(route.policy.name, route.policy.parameters, facts.arms, classes)
    except ValueError as error:
        raise ConfigError(f"routes[{index}].policy.{_policy_key(error)}: {error}") from error


def _policy_key(error: ValueError) -> str:
    """Which key of a policy is meant: its name, or one of its parameters."""
    return f"parameters.{error.key}" if isinstance(error, ParameterError) else "name"
