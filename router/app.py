"""Composition root of one process: Config → objects → listeners. Nobody it builds knows it."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from aiohttp import web

from router import __version__
from router.account import ACCOUNT_S
from router.admin.desks import desks_of
from router.admin.drain import Answer, DrainOrder, drain_here
from router.admin.gauges import Gauge, route_gauges
from router.admin.routes import admin_app
from router.admin.state import RouteState, admission_json, route_json, store_json
from router.admission.admission import Admission
from router.admission.memory import BodyMemory
from router.clock import Clock, SystemClock
from router.config.models import Config
from router.dashboard.answers import Histories, RoutePast, decisions_json
from router.dashboard.policy import AskedPolicy, beliefs_json
from router.dashboard.routes import Sources
from router.endpoints.cors import Cors
from router.endpoints.names import ModelNames
from router.errors import StoreError
from router.estimates.writer import Writer
from router.experiments.service import LOOK_S, Trials
from router.fleet.fetch import AiohttpFetch
from router.fleet.state import FleetState
from router.fleet.upkeep import PROBE_INTERVAL_S
from router.intake.http import RunningAnswers, data_server
from router.learning import Learning
from router.lifecycle import Lifecycle
from router.listeners import listen
from router.makers import PLAIN
from router.observe.loop_lag import INTERVAL_S, LoopLag
from router.observe.metrics import Metrics
from router.pipeline import RawRequest
from router.processes.reload import Reloader
from router.relay.sink import ResponseSink
from router.sentinel.repeats import Sentinel
from router.sentinel.service import Quality
from router.serving import Generation, Ground, ServedRoute
from router.stores.base import SharedStore
from router.stores.embedded import EmbeddedStore
from router.stores.last_known import LastKnown
from router.stores.open import open_store
from router.tenants.keyring import KeyRing
from router.tenants.quotas import Quotas
from router.tenants.sharing import SharedLimits, limited, limits_of
from router.tracing.open import open_tracing
from router.types import Headers

REPEAT_S = 0.5
"""Between two looks whether the baseline has time for a repeat."""

_STOP_FLUSH_S = 5.0
_ENDING_S = 2.0
"""For answers to end once no more time is given."""

_log = logging.getLogger("specroute")


@dataclass(frozen=True, slots=True)
class Place:
    """Which of several workers a process is."""

    number: int
    port: int
    """That all of them listen on."""


class Application:
    """One running proxy, or one worker of it."""

    def __init__(
        self,
        config: Config,
        clock: Clock | None = None,
        seed: int | None = None,
        place: Place | None = None,
    ) -> None:
        """Builds everything and starts nothing.

        Args:
            config: The checked configuration.
            clock: Time; the machine's by default.
            seed: Of all randomness; drawn by default.
            place: Among workers; the admin port is then their supervisor's.

        Raises:
            ConfigError: A policy's name or parameters are wrong, or the store cannot be had.
        """
        self._place = place
        self._clock = clock or SystemClock()
        self._store: SharedStore = open_store(config.store, self._clock)
        prefix = config.store.prefix
        self._writer = Writer(self._store, self._clock, prefix=prefix, ttl_s=0)
        self._metrics = Metrics()
        self._traces = open_tracing(config.tracing, self._clock)
        self._fetch = AiohttpFetch()
        self._admission = Admission(limits_of(config), self._clock, self._metrics)
        self._memory = BodyMemory(config.listen.max_buffered_bytes, self._clock)
        rng = np.random.default_rng(seed if seed is not None else secrets.randbits(128))
        self._ground = Ground(
            self._clock,
            rng,
            self._store,
            self._writer,
            self._metrics,
            self._fetch,
            self._admission,
            prefix,
            KeyRing(),
            Trials(self._store, prefix, self._writer.slots.wall, _last_known(config)),
            Quotas(self._clock),
            Quality(self._store, prefix, self._writer.slots.wall),
            Sentinel(
                self._writer,
                self._clock,
                uniform=rng.random,
                counted=self._metrics.repeated,
            ),
            PLAIN if self._traces is None else self._traces.makers,
        )
        # Until the store tells of others, all workers of this host are there.
        self._shared = SharedLimits(
            prefix,
            self._admission,
            self._ground.quotas,
            self._clock,
            processes=max(config.listen.workers, 1) if place else 1,
            rank=place.number if place else 0,
        )
        self._current = Generation(config, self._ground)
        self._configure()
        self._writer.ttl_s = self._current.ttl_s
        self._prepared: Generation | None = None
        self._retired: list[Generation] = []
        self._kept_up: dict[int, list[Callable[[], object]]] = {}
        """What ends the work for servers, by their identity."""
        self._learning = Learning(self._ground)
        self._histories = Histories(self._writer.slots)
        self.background = Lifecycle()
        self._running = RunningAnswers()
        self.reloader: Reloader | None = None
        """Reads the configuration again; None where it came from no file, and in a worker."""
        self._requests = 0
        self._draining = False
        self._started = self._clock.monotonic()
        self.data_url = self.admin_url = ""
        self._metrics.add_gauges(self._gauges)

    @property
    def config(self) -> Config:
        """What new requests are served by."""
        return self._current.config

    # --- Background work ----------------------------------------------------------------------

    async def flush(self) -> None:
        """Adds what was learned to the store, and decisions to their file."""
        await self._learning.flush()
        for generation in (*self._retired, self._current):
            await generation.decision_log.flush()

    async def refresh(self) -> None:
        """Reads the store, and gives every route a new snapshot and a new plan."""
        await self._learning.refresh(self._current)
        await self._share_limits()

    async def probe(self) -> None:
        """Finds the servers and asks every one for its health."""
        await self._current.probe()

    async def reckon(self) -> None:
        """Looks what every route has saved."""
        for route in self._current.routes.values():
            await route.accountant.look()

    async def look(self) -> None:
        """Judges the experiments that run."""
        await self._ground.trials.look(self._current.sources())

    async def brake(self) -> None:
        """Leaves treatments that do sudden harm, whether or not a look waits for the store."""
        self._ground.trials.brake(self._current.sources())

    async def repeat(self) -> None:
        """Asks the baseline again for answers that were drawn for that."""
        off = self._ground.trials.rules.off
        await self._ground.sentinel.round(self._current.baselines(), off=off)

    def _configure(self) -> None:
        """Tells what outlives a configuration what the current one says."""
        current, config = self._current, self._current.config
        self._ground.trials.configure(speculation=config.speculation, class_ids=current.class_ids)
        self._ground.sentinel.configure({route.model: route.sentinel for route in config.routes})
        self._shared.apply(config)

    async def _share_limits(self) -> None:
        """Looks how many processes share what tenants may have, where that is limited."""
        if not limited(self.config):
            return
        try:
            await self._shared.refresh(self._store, self._writer.slots.wall(), self.config)
        except StoreError as error:
            self._learning.failed("share limits", error)
        else:
            self._learning.answered("share limits")

    def _keep_up(self) -> None:
        """Starts what is done for the servers that serve now, and ends it for others."""
        current = {id(route.servers): route.servers for route in self._current.routes.values()}
        for known in [key for key in self._kept_up if key not in current]:
            for end in self._kept_up.pop(known):
                end()
        for key, servers in current.items():
            if key not in self._kept_up:
                self._kept_up[key] = [
                    *(
                        self.background.every(PROBE_INTERVAL_S, name, work)
                        for name, work in servers.upkeep.work()
                    ),
                    servers.upkeep.end,
                ]

    # --- Reload -------------------------------------------------------------------------------

    async def apply(self, config: Config) -> None:
        """Serves new requests by another configuration from now on.

        Raises:
            ConfigError: It cannot be used; nothing has changed.
        """
        await self.prepare(config)
        self.commit()

    async def prepare(self, config: Config) -> None:
        """Builds what serves another configuration beside what serves now, plans included.

        Raises:
            ConfigError: It cannot be used.
        """
        self._prepared = None
        made = Generation(config, self._ground, self._current)
        try:
            await asyncio.gather(self._learning.refresh(made), made.meet())
        except BaseException:
            await self._close_servers(made, (self._current,))
            raise
        self._prepared = made

    def commit(self) -> None:
        """Lets what was prepared serve from the next request on; running ones keep theirs."""
        if self._prepared is None:
            raise RuntimeError("commit before prepare")
        before, self._current = self._current, self._prepared
        self._prepared = None
        self._current.go_on(before)
        self._configure()
        self._writer.ttl_s = self._current.ttl_s
        self._memory.most_bytes = self._current.config.listen.max_buffered_bytes
        self._retired.append(before)
        self._keep_up()
        before.retire(lambda: self.background.once("retire", lambda: self._dismiss(before)))

    def abandon(self) -> None:
        """Forgets what was prepared."""
        self._prepared = None

    async def _dismiss(self, generation: Generation) -> None:
        """Ends what only a generation had that serves nobody any more."""
        self._retired.remove(generation)
        await self._close_servers(generation, (*self._retired, self._current))
        await generation.decision_log.flush()

    @staticmethod
    async def _close_servers(generation: Generation, others: Iterable[Generation]) -> None:
        """Ends what belongs to servers that no other generation has."""
        kept = {id(route.servers) for other in others for route in other.routes.values()}
        for route in generation.routes.values():
            if id(route.servers) not in kept:
                await route.servers.upkeep.close()
                await route.servers.upstream.close()

    # --- Start and stop -----------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Application]:
        """Serves for as long as the block runs, then takes no more and finishes what runs.

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
        self.background.every(store.flush_interval_s, "flush", self.flush)
        self.background.every(store.refresh_interval_s, "refresh", self.refresh)
        self.background.every(LOOK_S, "look at experiments", self.look)
        self.background.every(LOOK_S, "brake experiments", self.brake)
        self.background.every(REPEAT_S, "repeat answers", self.repeat)
        self.background.once("reckon", self.reckon)
        self.background.every(ACCOUNT_S, "reckon", self.reckon)
        lag = LoopLag(INTERVAL_S, self._metrics.loop_lag.observe, monotonic)
        self.background.every(INTERVAL_S, "loop lag", lag.measure)
        self._keep_up()
        try:
            yield self
        finally:
            self._draining = True
            self._ground.sentinel.stop()
            self._admission.drain()
            no_more_time = asyncio.get_running_loop().call_later(
                self.config.listen.drain_s, self.end_answers
            )
            for runner in runners:
                await runner.cleanup()
            no_more_time.cancel()
            await self.background.stop()
            await self._release()

    async def announce_end(self, at_once: asyncio.Event) -> None:
        """Says on /ready that the end is near, and serves on while load balancers notice.

        Args:
            at_once: Ends the wait.
        """
        self._draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.listen.drain_delay_s):
                await at_once.wait()

    def end_answers(self) -> None:
        """Ends answers that still run, each with an error that its client can tell."""
        self._running.end()

    async def _start_store(self) -> None:
        if isinstance(self._store, EmbeddedStore):
            try:
                await self._store.start()
            except StoreError as error:
                self._learning.failed("read", error)

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(_STOP_FLUSH_S):
                await self.flush()
        except TimeoutError:
            _log.warning("the last sums were not stored in time")
        for generation in (*self._retired, self._current):
            await self._close_servers(generation, ())
        await self._fetch.close()
        await self._store.close()
        if self._traces is not None:
            await asyncio.to_thread(self._traces.close)

    async def _listen(self) -> list[web.BaseRunner]:
        config = self.config
        runners: list[web.BaseRunner] = [self._data_runner()]
        if self._place is None:
            app = admin_app(
                self._admin_state,
                self._exposition,
                self._asked_to_reload,
                self._asked_to_drain,
                sources=Sources(self.history, self._decisions, self.beliefs, self._clock),
                token=config.admin.shown_token,
                desks=desks_of(
                    self._store,
                    self._ground.prefix,
                    self._writer.slots.wall,
                    lambda: self.config,
                ),
            )
            runners.append(web.AppRunner(app, access_log=None, shutdown_timeout=1.0))
        try:
            self.data_url = await listen(
                runners[0],
                config.listen.host,
                config.listen.port if self._place is None else self._place.port,
                "listen.port",
                shared=self._place is not None,
            )
            for runner in runners[1:]:
                self.admin_url = await listen(
                    runner, config.admin.host, config.admin.port, "admin.port"
                )
        except BaseException:
            for runner in runners:
                await runner.cleanup()
            raise
        return runners

    def _data_runner(self) -> web.BaseRunner:
        listen_ = self.config.listen
        return data_server(
            self,
            self,
            self._clock,
            max_body_bytes=listen_.max_body_bytes,
            memory=self._memory,
            keepalive_s=listen_.keepalive_s,
            refused=self._metrics.refuse,
            running=self._running,
            shutdown_s=listen_.drain_s + _ENDING_S,
            cors=Cors.configured(listen_.cors),
        )

    # --- What others ask ----------------------------------------------------------------------

    def welcome(self, headers: Headers) -> None:
        """Refuses who is not served, before a body is read; see `Tenants.tenant`."""
        self._current.tenants.tenant(headers)

    def handle(self, raw: RawRequest, sink: ResponseSink) -> Awaitable[None]:
        """Serves one request by the configuration that holds when it comes."""
        self._requests += 1
        return self._current.handle(raw, sink)

    @property
    def names(self) -> ModelNames:
        """What clients may call models."""
        return self._current.names

    @property
    def response_headers(self) -> bool:
        """Whether replies carry headers of ours."""
        return self._current.response_headers

    def models(self) -> tuple[str, ...]:
        """One name for each route."""
        return tuple(self._current.routes)

    def drain(self, order: DrainOrder) -> Answer:
        """Takes a server of this process out, or puts it back."""
        return drain_here(self.fleets(), order)

    def fleets(self) -> dict[str, FleetState]:
        """The servers that new requests go to, by model."""
        return {model: route.servers.fleet for model, route in self._current.routes.items()}

    def not_ready(self) -> str | None:
        """Why traffic should go elsewhere; None when it may come."""
        return "draining" if self._draining else self._current.not_ready()

    def store_says(self) -> str:
        """How the store does, which traffic need not mind."""
        return self._learning.store_state(self.config.store.shown_url).says_briefly

    def state(self) -> dict[str, Any]:
        """Everything an operator asks about."""
        shown_url = self.config.store.shown_url
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
            "store": store_json(self._learning.store_state(shown_url)),
            "config": self.reloader.state() if self.reloader else None,
            "workers": [self._worker_state()],
            "routes": [route_json(self._route_state(r)) for r in self._current.routes.values()],
        }

    async def history(self, since: float, class_id: str | None) -> dict[str, Any]:
        """The past of every route, as columns for charts."""
        routes = [
            RoutePast(model, route.servers.facts.arms, route.reader)
            for model, route in self._current.routes.items()
        ]
        window_s = self.config.estimates.window_s
        return await self._histories.answer(routes, window_s, since, class_id)

    async def beliefs(self) -> dict[str, Any]:
        """What the policy of every route believes of its pools."""
        routes = [
            AskedPolicy(model, route.policy, route.parts.chooser.plan, route.snapshot)
            for model, route in self._current.routes.items()
        ]
        return await beliefs_json(routes, self._clock.wall())

    def decisions(self, request_id: str | None, limit: int) -> list[dict[str, Any]]:
        """The newest decisions of this process, or the one of a request."""
        return decisions_json(self._current.decision_log.recent, request_id, limit)

    def _worker_state(self) -> dict[str, Any]:
        return {
            "number": self._place.number if self._place else 0,
            "pid": os.getpid(),
            "answers": True,
            "ready": self.not_ready() is None,
            "not_ready": self.not_ready(),
            "uptime_s": self._clock.monotonic() - self._started,
            "speculation_off": self._ground.trials.rules.off,
            "requests": self._requests,
            "in_flight": sum(of.requests for of in (*self._retired, self._current)),
            "on_earlier_configurations": sum(of.requests for of in self._retired),
            "restarts": 0,
            "hash": self.reloader.loaded.digest if self.reloader else None,
            "down": [
                item.replica.replica_id
                for route in self._current.routes.values()
                for replicas in route.servers.fleet.view().values()
                for item in replicas
                if not item.up
            ],
        }

    def metrics(self) -> Metrics:
        """What is counted in this process."""
        return self._metrics

    async def _admin_state(self) -> dict[str, Any]:
        return self.state()

    async def _exposition(self) -> bytes:
        return self._metrics.exposition()

    async def _decisions(self, request_id: str | None, limit: int) -> list[dict[str, Any]]:
        return self.decisions(request_id, limit)

    async def _asked_to_drain(self, order: DrainOrder) -> Answer:
        return self.drain(order)

    async def _asked_to_reload(self) -> dict[str, Any] | None:
        return await self.reloader.asked() if self.reloader else None

    def _gauges(self) -> Iterator[Gauge]:
        store = self._learning.store_state(self.config.store.shown_url)
        yield "specroute_workers", {}, 1.0
        yield "specroute_admission_in_flight", {}, float(self._admission.in_flight)
        yield "specroute_admission_waiting", {}, float(self._admission.waiting)
        yield "specroute_buffered_bytes", {}, float(self._memory.used_bytes)
        yield "specroute_store_up", {}, float(store.up)
        if store.snapshot_age_s is not None:
            yield "specroute_snapshot_age_seconds", {}, store.snapshot_age_s
        yield "specroute_store_dropped_increments", {}, float(store.dropped_increments)
        yield "specroute_store_refused_increments", {}, float(store.refused_increments)
        yield "specroute_store_waiting_increments", {}, float(store.waiting_increments)
        yield "specroute_store_late_made_tokens", {}, float(store.late_made_tokens)
        if store.clock_skew_s is not None:
            yield "specroute_store_clock_skew_seconds", {}, store.clock_skew_s
        yield from self._ground.trials.gauges()
        yield from self._ground.quality.gauges()
        yield "specroute_background_errors", {}, float(self.background.errors)
        dropped = self._current.decision_log.dropped
        yield "specroute_decision_log_dropped_lines", {}, float(dropped)
        for route in self._current.routes.values():
            yield from route_gauges(self._route_state(route))

    def _route_state(self, route: ServedRoute) -> RouteState:
        servers = route.servers
        return RouteState(
            servers.facts,
            servers.fleet.view(),
            route.snapshot,
            route.parts.chooser.plan,
            servers.upkeep.finder.errors(),
            servers.upkeep.identifier.identities,
            self._ground.quality.book(route.config.model),
            route.accountant.account,
        )


def _last_known(config: Config) -> LastKnown:
    folder = config.store.last_known
    return LastKnown(None if folder is None else Path(folder))
