"""Starts workers that share a port, keeps them running, speaks for all of them, serves nobody.

It owns what there is once: the embedded store, the admin port, the configuration's file.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from aiohttp import web

from router.admin.desks import desks_of
from router.admin.drain import Answer, DrainOrder, order_json, together
from router.admin.routes import admin_app
from router.clock import SystemClock
from router.dashboard.routes import Sources
from router.errors import ConfigError, StartError, StoreError
from router.lifecycle import Lifecycle
from router.listeners import SharedPort, listen, url_of
from router.observe.metrics import Metrics
from router.processes.channel import Message, NoAnswerError
from router.processes.child import Child
from router.processes.reload import ConfigFile, Loaded, Reloader, Trigger
from router.processes.rollout import roll_out
from router.processes.signals import Signals
from router.processes.started import Started
from router.processes.summary import Summary
from router.stores.embedded import EmbeddedStore
from router.stores.open import open_store

_ENDING_S = 15.0
"""What a worker may take to end beyond the time that its answers are given."""
_STORE_LOOK_S = 1.0
_ORDER_S = 2.0
_COUNT_S = 10.0
"""What a worker that is killed has counted since is lost."""
_STARTS = 3
"""Failures of a worker before all have ever served, after which the whole is given up."""
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_SETTLED_S = 60.0
"""A worker that lived for so long did not fail at its start."""

_log = logging.getLogger("specroute.supervisor")


async def supervise(
    file: ConfigFile, loaded: Loaded, started: Callable[[Started], None], *, log_level: str
) -> None:
    """Serves with several workers until SIGTERM or SIGINT.

    Args:
        file: Where the configuration stands.
        loaded: What it holds.
        started: Called once all workers listen.
        log_level: Of the workers' log lines.

    Raises:
        ConfigError: The configuration cannot be used, or workers fail at their start.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigError("listen.workers: this system cannot share a port; set it to 1")
    await Supervisor(file, loaded, log_level).run(started)


class Supervisor:
    """All workers of one proxy."""

    def __init__(self, file: ConfigFile, loaded: Loaded, log_level: str) -> None:
        self._file = file
        self._loaded = loaded
        """What workers serve, and what those serve that start now."""
        self._log_level = log_level
        self._clock = SystemClock()
        self._lifecycle = Lifecycle()
        self._signals = Signals(self._pass_on)
        store = open_store(loaded.config.store, self._clock)
        self._documents = store
        self._store = store if isinstance(store, EmbeddedStore) else None
        self._store_is_lost = False
        self._children: dict[int, Child] = {}
        self._served: set[int] = set()
        """Workers that have served at least once."""
        self._all_served = False
        self._when_all_serve: Callable[[], None] = lambda: None
        self._failed: Exception | None = None
        """Why the whole is given up."""
        self._rolling_out = asyncio.Lock()
        """Held while workers are told to change something."""
        self._drained: list[DrainOrder] = []
        """Servers that an operator has taken out."""
        self._kept = 0
        self._none_kept = asyncio.Event()
        metrics = Metrics()
        self._reloader = Reloader(
            file, loaded, self._apply, clock=self._clock, count=metrics.count_reload
        )
        self._summary = Summary(self._children, self._reloader, metrics, self._clock)

    async def run(self, started: Callable[[Started], None]) -> None:
        """Serves until a signal; see `supervise`."""
        listen_, admin = self._loaded.config.listen, self._loaded.config.admin
        port = SharedPort(listen_.host, listen_.port, "listen.port")
        self._summary.data_url = url_of(listen_.host, port.port)
        app = admin_app(
            self._summary.state,
            self._summary.exposition,
            self._reloader.asked,
            self._drain,
            sources=Sources(
                self._summary.history,
                self._summary.decisions,
                self._summary.beliefs,
                self._clock,
            ),
            token=admin.shown_token,
            desks=desks_of(
                self._documents,
                self._loaded.config.store.prefix,
                self._clock.wall,
                lambda: self._loaded.config,
            ),
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        try:
            admin_url = await listen(runner, admin.host, admin.port, "admin.port")
            await self._start_store()
            self._when_all_serve = partial(self._begun, started, admin_url)
            self._start_workers(port.port)
            await self._signals.end.wait()
            await self._end_workers()
        finally:
            for child in self._children.values():
                child.kill()
            await runner.cleanup()
            await self._lifecycle.stop()
            await self._documents.close()
            port.close()
        if self._failed is not None:
            raise self._failed

    def _begun(self, started: Callable[[Started], None], admin_url: str) -> None:
        models = tuple(route.model for route in self._loaded.config.routes)
        started(Started(self._summary.data_url, admin_url, models, len(self._children)))
        self._begin_background()

    # --- The store ----------------------------------------------------------------------------

    async def _start_store(self) -> None:
        if self._store is None:
            return
        try:
            await self._store.start()
        except StoreError as error:
            self._store_lost(error)
        self._lifecycle.every(
            _STORE_LOOK_S, "embedded store", partial(self._keep_store, self._store)
        )

    async def _keep_store(self, store: EmbeddedStore) -> None:
        """Starts the embedded store unless it runs; workers go on without it."""
        try:
            await store.start()
        except (StoreError, ConfigError) as error:
            self._store_lost(error)
        else:
            self._store_is_lost = False

    def _store_lost(self, error: Exception) -> None:
        if not self._store_is_lost:
            _log.warning("no store; workers go on without", extra={"error": str(error)})
        self._store_is_lost = True

    # --- Workers ------------------------------------------------------------------------------

    def _start_workers(self, port: int) -> None:
        for number in range(self._loaded.config.listen.workers):
            self._kept += 1
            self._lifecycle.once("keep a worker", partial(self._keep_worker, number, port))

    async def _keep_worker(self, number: int, port: int) -> None:
        """Runs a worker, and another in its place when it has ended, until all are to end."""
        failures = 0
        try:
            while not self._signals.end.is_set():
                child = Child(number, self._clock, self._lifecycle, self._log_level)
                self._children[number] = child
                code = await child.run(self._orders(number, port), self._serves)
                self._summary.ended(child)
                if self._signals.end.is_set():
                    return
                self._summary.restarted(number)
                wanted = child.unwanted or (code == 0 and child.digest is not None)
                failures = 0 if wanted or child.lived_s() >= _SETTLED_S else failures + 1
                _log.log(
                    logging.INFO if wanted else logging.ERROR,
                    "worker ended; another takes its place",
                    extra={
                        "worker": number,
                        "pid": child.pid,
                        "code": code,
                        "why": child.why or child.trouble,
                    },
                )
                if not self._all_served and child.why is not None:
                    self._give_up(ConfigError(f"{self._file.path}: {child.why}"))
                elif not self._all_served and failures >= _STARTS:
                    why = child.trouble or f"ends with code {code}; see the log lines above"
                    self._give_up(StartError(f"worker {number} {why}"))
                await self._pause(failures)
        finally:
            self._kept -= 1
            if self._kept == 0:
                self._none_kept.set()
            if not self._signals.end.is_set():
                self._give_up(StartError(f"worker {number} is no longer kept running"))

    def _orders(self, number: int, port: int) -> Message:
        config = self._loaded.config
        return {
            "number": number,
            "port": port,
            "path": str(self._file.path),
            "text": self._loaded.text,
            "workers": config.listen.workers,
            "drained": [order_json(order) for order in self._drained],
            "store_url": self._store.url if self._store is not None else config.store.url,
        }

    def _serves(self, child: Child) -> None:
        self._lifecycle.once("catch up", self._catch_up)
        _log.info("worker serves", extra={"worker": child.number, "pid": child.pid})
        self._served.add(child.number)
        if self._signals.end.is_set():
            # What was sent before it listened for signals may be lost.
            child.signal(self._signals.first or signal.SIGINT)
        elif not self._all_served and len(self._served) == self._loaded.config.listen.workers:
            self._all_served = True
            self._when_all_serve()

    def _give_up(self, why: Exception) -> None:
        self._failed = self._failed or why
        self._signals.at_once.set()
        self._signals.end.set()

    async def _pause(self, failures: int) -> None:
        if failures > 1:
            pause_s = min(_FIRST_PAUSE_S * 2 ** (failures - 2), _LONGEST_PAUSE_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._signals.end.wait()

    async def _end_workers(self) -> None:
        self._pass_on(self._signals.first or signal.SIGINT)
        listen_ = self._loaded.config.listen
        self._signals.say_stopping()
        try:
            async with asyncio.timeout(listen_.drain_delay_s + listen_.drain_s + _ENDING_S):
                await self._none_kept.wait()
        except TimeoutError:
            _log.error("workers do not end; killed")
            for child in self._children.values():
                child.kill()
            await self._none_kept.wait()

    def _pass_on(self, number: int) -> None:
        for child in self._children.values():
            # One that has not come up yet would die of Ctrl-C with a traceback.
            child.signal(number if child.serving else signal.SIGTERM)

    # --- The configuration --------------------------------------------------------------------

    def _begin_background(self) -> None:
        self._lifecycle.every(_COUNT_S, "count", self._summary.count)
        self._lifecycle.every(0, "reload at a signal", self._reload_at_signal)
        poll_s = self._loaded.config.reload.poll_s
        if poll_s:
            self._lifecycle.every(poll_s, "look at the file", self._reloader.look)

    async def _reload_at_signal(self) -> None:
        await self._signals.reload.wait()
        self._signals.reload.clear()
        await self._reloader.reload(Trigger.SIGNAL)

    async def _apply(self, loaded: Loaded) -> None:
        def decided(new: Loaded) -> None:
            self._loaded = new

        async with self._rolling_out:
            await self._roll_out(self._serving(), loaded, decided)
        # Whoever came up meanwhile may have begun with the old one.
        await self._catch_up()

    async def _catch_up(self) -> None:
        """Gives workers that began with a configuration what has taken its place meanwhile."""
        async with self._rolling_out:
            for child in self._serving():
                if child.digest != self._loaded.digest:
                    await self._renew(child)
                if not child.knows_drained:
                    child.knows_drained = True
                    for order in self._drained:
                        await _ask_to_drain(child, order)

    async def _renew(self, child: Child) -> None:
        try:
            await self._roll_out([child], self._loaded, lambda _: None)
        except ConfigError as error:
            _log.warning("worker replaced", extra={"worker": child.number, "why": str(error)})
            child.replace()

    async def _roll_out(
        self, children: list[Child], loaded: Loaded, decided: Callable[[Loaded], None]
    ) -> None:
        await roll_out(children, loaded, decided)
        for child in children:
            child.digest = loaded.digest

    async def _drain(self, order: DrainOrder) -> Answer:
        """Takes a server out in all workers, those to come too, or puts it back."""
        async with self._rolling_out:
            children = self._serving()
            answers = await asyncio.gather(*(_ask_to_drain(child, order) for child in children))
            known = [answer for answer in answers if answer is not None]
            if not known:
                return 503, {"error": "no worker answers"}
            status, body = together(known)
            if "error" not in body:
                self._drained = [
                    other
                    for other in self._drained
                    if (other.replica_id, other.model) != (order.replica_id, body["model"])
                ]
                if order.draining:
                    self._drained.append(replace(order, model=body["model"]))
            return status, body

    def _serving(self) -> list[Child]:
        return [child for child in self._children.values() if child.serving]


async def _ask_to_drain(child: Child, order: DrainOrder) -> Answer | None:
    try:
        status, body = await child.ask("drain", _ORDER_S, order=order_json(order))
    except NoAnswerError:
        return None
    return status, body
