"""Composition root: Config → objects → two listeners. Knows everybody; nobody knows it."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web

from policies.base import Policy
from policies.registry import build_policy
from policies.types import ArmView, ClassId
from router import __version__
from router.admin.routes import admin_app
from router.admin.state import (
    RouteState,
    StoreState,
    admission_json,
    route_json,
    store_json,
)
from router.admission.admission import Admission
from router.admission.memory import BodyMemory
from router.admission.queue import Limits
from router.admission.tenants import CredentialTenants
from router.classify.configured import class_ids, configured_classifier
from router.classify.segments import KEY_BYTES, Fingerprints, Segments, SegmentTable
from router.classify.sessions import SessionClassifier
from router.clock import Clock, SystemClock
from router.config.models import Config, Route
from router.endpoints.cors import Cors
from router.errors import ConfigError, StoreError
from router.estimates.layout import SLOT_S
from router.estimates.reader import Reader
from router.estimates.snapshot import Snapshot, SnapshotBuilder
from router.estimates.writer import Writer
from router.fleet.fetch import AiohttpFetch
from router.fleet.model import RouteFacts, build_routes
from router.fleet.state import FleetState
from router.fleet.upkeep import PROBE_INTERVAL_S, FleetUpkeep
from router.intake.http import RunningAnswers, data_server
from router.lifecycle import Lifecycle
from router.observe.decision_log import DecisionLog
from router.observe.metrics import Metrics
from router.observe.recorder import Recorder
from router.observe.replicas import replica_gauges
from router.pipeline import Pipeline, RouteParts
from router.relay.relay import Relay
from router.relay.wire.upstream import WireUpstream
from router.selection.chooser import Chooser
from router.selection.plans import Plan, plan_steps
from router.stores.base import SharedStore
from router.stores.embedded import EmbeddedStore
from router.stores.open import open_store
from router.types import POOLED

_TTL_SLACK_S = 10 * SLOT_S
_STOP_FLUSH_S = 5.0
_ENDING_S = 2.0
"""For answers to end once no more time is given."""

_BACKLOG = 4096
"""Connections that may wait to be taken: Linux's own limit by default. With asyncio's 128 a rush of
clients, met by a busy moment, has some of them reset."""

_log = logging.getLogger("specroute")


@dataclass(slots=True)
class _RouteRuntime:
    """Everything that lives for one route."""

    facts: RouteFacts
    fleet: FleetState
    policy: Policy
    reader: Reader
    builder: SnapshotBuilder
    upkeep: FleetUpkeep
    parts: RouteParts
    snapshot: Snapshot


@dataclass(slots=True)
class _StoreWatch:
    """What the background work saw of the store: reading and adding can fail apart."""

    errors: dict[str, str] = field(default_factory=dict)
    """By what was being done."""
    last_read: float | None = None

    @property
    def error(self) -> str | None:
        """Why the store is not up."""
        unread = "not read yet" if self.last_read is None else None
        return next(iter(self.errors.values()), unread)


class Application:
    """One running proxy."""

    def __init__(self, config: Config, clock: Clock | None = None, seed: int | None = None) -> None:
        """Builds everything and starts nothing.

        Args:
            config: The checked configuration.
            clock: Time; the machine's by default.
            seed: Of all randomness; drawn by default.

        Raises:
            ConfigError: A policy's name or parameters are wrong, or the store cannot be had.
        """
        self.config = config
        self._clock = clock or SystemClock()
        self._rng = np.random.default_rng(seed if seed is not None else secrets.randbits(128))
        self._metrics = Metrics()
        self._store: SharedStore = open_store(config.store, self._clock)
        self._writer = Writer(
            self._store,
            self._clock,
            prefix=config.store.prefix,
            ttl_s=config.estimates.window_s + _TTL_SLACK_S,
        )
        log_path = config.decision_log.path
        self._decision_log = DecisionLog(Path(log_path) if log_path else None)
        self._upstream = WireUpstream()
        self._fetch = AiohttpFetch()
        self._classifier = SessionClassifier(
            configured_classifier(config.classify), self._clock, config.classify.sessions
        )
        self._class_ids = class_ids(config.classify)
        segment_key = config.classify.segment_key
        self._fingerprints = Fingerprints(
            segment_key.get_secret_value().encode("utf-8", "surrogatepass") if segment_key else None
        )
        facts = build_routes(config)
        self._routes = {
            route.model: self._route(route, facts[route.model], index)
            for index, route in enumerate(config.routes)
        }
        self._admission = Admission(_limits(config), self._clock, self._metrics)
        self._watch = _StoreWatch()
        # Neither is made for two at a time, and the last flush may meet a running one.
        self._flushing, self._refreshing = asyncio.Lock(), asyncio.Lock()
        self._lifecycle = Lifecycle()
        self._running = RunningAnswers()
        self._draining = False
        self._started = self._clock.monotonic()
        self.data_url = self.admin_url = ""
        self._metrics.add_gauges(self._gauges)

    def _route(self, route: Route, facts: RouteFacts, index: int) -> _RouteRuntime:
        policy = _policy(route, facts, index, self._class_ids)
        fleet = FleetState(facts, self._clock, uniform=self._rng.random)
        estimates = self.config.estimates
        builder = SnapshotBuilder(
            facts.arms, half_life_s=estimates.half_life_s, tail_limit=estimates.tail_limit
        )
        reader = Reader(
            self._store,
            self._writer,
            self._clock,
            prefix=self.config.store.prefix,
            model=route.model,
            window_s=estimates.window_s,
        )
        snapshot = builder.build(reader.past(), self._clock.wall())
        *_, plan = self._plan_steps(policy, facts, snapshot)
        if plan is None:
            raise AssertionError("the last step is the plan")
        parts = RouteParts(
            facts=facts,
            segments=Segments(
                self._fingerprints, SegmentTable(self._clock, self.config.classify.segments)
            ),
            chooser=Chooser(facts, fleet, plan, uniform=self._rng.random),
            relay=Relay(facts, fleet, self._upstream, self._clock),
            recorder=Recorder(self._writer, self._metrics, self._decision_log, self._clock),
        )
        upkeep = FleetUpkeep(facts, fleet, self._clock, self._fetch, uniform=self._rng.random)
        return _RouteRuntime(facts, fleet, policy, reader, builder, upkeep, parts, snapshot)

    def _plan_steps(
        self, policy: Policy, facts: RouteFacts, snapshot: Snapshot
    ) -> Iterator[Plan | None]:
        unseen = (
            (class_id, POOLED, ArmView.empty(class_id, facts.arms))
            for class_id in self._class_ids
            if class_id not in snapshot.classes
        )
        views = chain(unseen, snapshot.views())
        return plan_steps(policy, views, facts.arms, version=snapshot.version, rng=self._rng)

    # --- Background work ----------------------------------------------------------------------

    async def flush(self) -> None:
        """Adds what was learned to the store, and decisions to their file."""
        async with self._flushing:
            try:
                await self._writer.flush()
            except StoreError as error:
                self._store_failed("add", error)
            else:
                self._store_answered("add")
            await self._decision_log.flush()

    async def refresh(self) -> None:
        """Reads the store, and gives every route a new snapshot and a new plan."""
        async with self._refreshing:
            for route in self._routes.values():
                await self._refresh(route)
            await self._learn_segment_key()

    async def _refresh(self, route: _RouteRuntime) -> None:
        try:
            past = await route.reader.refresh()
        except StoreError as error:
            self._store_failed("read", error)
            past = route.reader.past()
        else:
            self._watch.last_read = self._clock.monotonic()
            self._store_answered("read")
        for snapshot in route.builder.steps(past, self._clock.wall()):
            if snapshot is not None:
                route.snapshot = snapshot
            await asyncio.sleep(0)
        for plan in self._plan_steps(route.policy, route.facts, route.snapshot):
            if plan is not None:
                route.parts.chooser.plan = plan
            await asyncio.sleep(0)

    async def _learn_segment_key(self) -> None:
        """Reads the key that all processes hash applications with; makes it if it is missing."""
        if self._fingerprints.ready or "read" in self._watch.errors:
            return
        key = f"{self.config.store.prefix}:v1:segment-key"
        try:
            kept = await self._store.get_or_create(key, secrets.token_bytes(KEY_BYTES))
        except StoreError as error:
            self._store_failed("keep the key of segments", error)
        else:
            self._fingerprints.use(kept)
            self._store_answered("keep the key of segments")

    async def probe(self) -> None:
        """Finds the servers and asks every one for its health."""
        await asyncio.gather(*(route.upkeep.round() for route in self._routes.values()))

    def _store_failed(self, doing: str, error: StoreError) -> None:
        if not self._watch.errors:
            _log.warning("store lost; serving and learning go on", extra={"error": str(error)})
        self._watch.errors[doing] = str(error)

    def _store_answered(self, doing: str) -> None:
        if self._watch.errors.pop(doing, None) is not None and not self._watch.errors:
            _log.info("store answers")

    # --- Start and stop -----------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Application]:
        """Serves for as long as the block runs, then drains.

        Raises:
            ConfigError: A port is taken, or the embedded store cannot be used.
        """
        try:
            await self._start_store()
            await self.refresh()
            await self.probe()
            runners = await self._listen()
        except BaseException:
            await self._release()
            raise
        store = self.config.store
        self._lifecycle.every(store.flush_interval_s, "flush", self.flush)
        self._lifecycle.every(store.refresh_interval_s, "refresh", self.refresh)
        for route in self._routes.values():
            for name, work in route.upkeep.work():
                self._lifecycle.every(PROBE_INTERVAL_S, name, work)
        try:
            yield self
        finally:
            self._draining = True
            self._admission.drain()
            no_more_time = asyncio.get_running_loop().call_later(
                self.config.listen.drain_s, self.end_answers
            )
            for runner in runners:
                await runner.cleanup()
            no_more_time.cancel()
            await self._lifecycle.stop()
            await self._release()

    def end_answers(self) -> None:
        """Ends answers that still run, each with an error that its client can tell."""
        self._running.end()

    async def _start_store(self) -> None:
        if isinstance(self._store, EmbeddedStore):
            try:
                await self._store.start()
            except StoreError as error:
                self._store_failed("read", error)

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(_STOP_FLUSH_S):
                await self.flush()
        except TimeoutError:
            _log.warning("the last sums were not stored in time")
        await self._upstream.close()
        await self._fetch.close()
        await self._store.close()

    async def _listen(self) -> list[web.BaseRunner]:
        listen, admin = self.config.listen, self.config.admin
        data = data_server(
            self._pipeline(),
            self,
            self._clock,
            max_body_bytes=listen.max_body_bytes,
            memory=BodyMemory(listen.max_buffered_bytes, self._clock),
            keepalive_s=listen.keepalive_s,
            refused=self._metrics.refuse,
            running=self._running,
            shutdown_s=listen.drain_s + _ENDING_S,
            cors=Cors.configured(listen.cors),
        )
        control = web.AppRunner(
            admin_app(self.state, self._metrics.exposition, self.fleets),
            access_log=None,
            shutdown_timeout=1.0,
        )
        runners: list[web.BaseRunner] = [data, control]
        try:
            self.data_url = await _bind(data, listen.host, listen.port, "listen.port")
            self.admin_url = await _bind(control, admin.host, admin.port, "admin.port")
        except BaseException:
            for runner in runners:
                await runner.cleanup()
            raise
        return runners

    def _pipeline(self) -> Pipeline:
        return Pipeline(
            {model: route.parts for model, route in self._routes.items()},
            self._classifier,
            self._clock,
            admission=self._admission,
            tenants=CredentialTenants(),
            response_headers=self.config.listen.response_headers,
        )

    # --- What others ask ----------------------------------------------------------------------

    def models(self) -> tuple[str, ...]:
        """Names clients may ask for."""
        return tuple(self._routes)

    def fleets(self) -> dict[str, FleetState]:
        """The servers of every route, by model."""
        return {model: route.fleet for model, route in self._routes.items()}

    def not_ready(self) -> str | None:
        """Why traffic should go elsewhere; None when it may come."""
        if self._draining:
            return "draining"
        for model, route in self._routes.items():
            if not any(route.fleet.answers(arm_id) for arm_id in route.facts.pools):
                return f"no server of model {model!r} answers"
        return None

    def state(self) -> dict[str, Any]:
        """Everything an operator asks about."""
        return {
            "version": __version__,
            "time": self._clock.wall(),
            "uptime_s": self._clock.monotonic() - self._started,
            "tasks": len(asyncio.all_tasks()),
            "data_url": self.data_url,
            "ready": self.not_ready() is None,
            "not_ready": self.not_ready(),
            "window_s": self.config.estimates.window_s,
            "admission": admission_json(self._admission.state()),
            "store": store_json(self._store_state()),
            "routes": [
                route_json(
                    RouteState(
                        route.facts,
                        route.fleet.view(),
                        route.snapshot,
                        route.parts.chooser.plan,
                        route.upkeep.finder.errors(),
                    )
                )
                for route in self._routes.values()
            ],
        }

    def _store_state(self) -> StoreState:
        last = self._watch.last_read
        return StoreState(
            url=self.config.store.shown_url,
            up=self._watch.error is None,
            error=self._watch.error,
            snapshot_age_s=None if last is None else self._clock.monotonic() - last,
            dropped_increments=self._writer.dropped,
            refused_increments=self._writer.refused,
        )

    def _gauges(self) -> Iterator[tuple[str, dict[str, str], float]]:
        yield "specroute_admission_in_flight", {}, float(self._admission.in_flight)
        yield "specroute_admission_waiting", {}, float(self._admission.waiting)
        store = self._store_state()
        yield "specroute_store_up", {}, float(store.up)
        if store.snapshot_age_s is not None:
            yield "specroute_snapshot_age_seconds", {}, store.snapshot_age_s
        yield "specroute_store_dropped_increments", {}, float(store.dropped_increments)
        yield "specroute_store_refused_increments", {}, float(store.refused_increments)
        yield "specroute_background_errors", {}, float(self._lifecycle.errors)
        yield "specroute_decision_log_dropped_lines", {}, float(self._decision_log.dropped)
        for model, route in self._routes.items():
            yield from _route_gauges(model, route)


def _route_gauges(model: str, route: _RouteRuntime) -> Iterator[tuple[str, dict[str, str], float]]:
    for arm_id, replicas in route.fleet.view().items():
        for item in replicas:
            labels = {"model": model, "pool": arm_id, "replica": item.replica.replica_id}
            for name, value in replica_gauges(item):
                yield name, labels, value
    plan = route.parts.chooser.plan
    for class_id, known in route.snapshot.classes.items():
        for arm, p in zip(plan.arms, plan.proposal(class_id).probabilities, strict=True):
            labels = {"model": model, "pool": arm.arm_id, "class": class_id}
            cell = known.cells[arm.arm_id]
            yield "specroute_probability", labels, float(p)
            if cell.acceptance_length is not None:
                yield "specroute_tokens_per_step", labels, cell.acceptance_length
            if cell.acceptance_rate is not None:
                yield "specroute_acceptance_rate", labels, cell.acceptance_rate
            if cell.gain is not None:
                yield "specroute_gain_ratio", labels, cell.gain.value


def _limits(config: Config) -> Limits:
    admission = config.admission
    return Limits(
        max_concurrent=admission.max_concurrent,
        max_concurrent_per_tenant=admission.max_concurrent_per_tenant,
        max_waiting=admission.max_waiting,
        max_wait_s=admission.max_wait_s,
    )


def _policy(route: Route, facts: RouteFacts, index: int, classes: tuple[ClassId, ...]) -> Policy:
    try:
        return build_policy(route.policy.name, route.policy.parameters, facts.arms, classes)
    except ValueError as error:
        raise ConfigError(f"routes[{index}].policy: {error}") from error


async def _bind(runner: web.BaseRunner, host: str, port: int, key: str) -> str:
    await runner.setup()
    site = web.TCPSite(runner, host, port, backlog=_BACKLOG)
    try:
        await site.start()
    except OSError as error:
        raise ConfigError(
            f"{key}: cannot listen on {host}:{port}: {error.strerror or error}; "
            "stop what uses the port, or set another (0 picks a free one)"
        ) from error
    bound = runner.addresses[0]
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared, not bound
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{bound[1]}"


async def serve(config: Config, started: Any = None) -> None:
    """Serves until SIGTERM or SIGINT, then drains; at a second signal it waits no longer.

    Args:
        config: The checked configuration.
        started: Called with the application once it listens.
    """
    stop = asyncio.Event()
    application = Application(config)

    def on_signal() -> None:
        if stop.is_set():
            application.end_answers()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    async with application.running():
        if started is not None:
            started(application)
        await stop.wait()
