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
from functools import partial
from typing import Any

from aiohttp import web

from router import __version__
from router.admin.routes import admin_app
from router.clock import SystemClock
from router.errors import ConfigError, StartError, StoreError
from router.lifecycle import Lifecycle
from router.listeners import SharedPort, listen, url_of
from router.observe.metrics import Metrics
from router.observe.sums import Samples, counted, exposition, samples_of, summed
from router.processes.channel import Message, NoAnswerError
from router.processes.child import Child
from router.processes.merge import merged, silent_worker
from router.processes.reload import ConfigFile, Loaded, Reloader, Trigger
from router.processes.signals import Signals
from router.processes.started import Started
from router.stores.embedded import EmbeddedStore
from router.stores.open import open_store

_ASK_S = 2.0
"""What a worker may take to answer; one that is busier is shown as silent."""
_PREPARE_S = 60.0
"""What a worker may take to build what serves another configuration."""
_ENDING_S = 15.0
"""What a worker may take to end beyond the time that its answers are given."""
_STORE_LOOK_S = 1.0
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
        self._began = self._clock.monotonic()
        self._metrics = Metrics()
        self._lifecycle = Lifecycle()
        self._signals = Signals(self._pass_on)
        store = open_store(loaded.config.store, self._clock)
        self._store = store if isinstance(store, EmbeddedStore) else None
        self._children: dict[int, Child] = {}
        self._restarts: dict[int, int] = {}
        self._ended_samples: Samples = ()
        """What ended workers had counted."""
        self._served: set[int] = set()
        """Workers that have served at least once."""
        self._all_served = False
        self._when_all_serve: Callable[[], None] = lambda: None
        self._failed: Exception | None = None
        """Why the whole is given up."""
        self._kept = 0
        self._none_kept = asyncio.Event()
        self._data_url = ""
        self._reloader = Reloader(
            file, loaded, self._apply, clock=self._clock, count=self._metrics.count_reload
        )

    async def run(self, started: Callable[[Started], None]) -> None:
        """Serves until a signal; see `supervise`."""
        listen_, admin = self._loaded.config.listen, self._loaded.config.admin
        port = SharedPort(listen_.host, listen_.port, "listen.port")
        self._data_url = url_of(listen_.host, port.port)
        app = admin_app(self.state, self.exposition, self._reloader.asked)
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
            if self._store is not None:
                await self._store.close()
            port.close()
        if self._failed is not None:
            raise self._failed

    def _begun(self, started: Callable[[Started], None], admin_url: str) -> None:
        models = tuple(route.model for route in self._loaded.config.routes)
        started(Started(self._data_url, admin_url, models, len(self._children)))
        self._watch_configuration()

    # --- The store ----------------------------------------------------------------------------

    async def _start_store(self) -> None:
        if self._store is not None:
            await self._keep_store()
            self._lifecycle.every(_STORE_LOOK_S, "embedded store", self._keep_store)

    async def _keep_store(self) -> None:
        """Starts the embedded store unless it runs; workers go on without it."""
        if self._store is None:
            return
        try:
            await self._store.start()
        except StoreError as error:
            _log.warning("no store; workers go on without", extra={"error": str(error)})

    # --- Workers ------------------------------------------------------------------------------

    def _start_workers(self, port: int) -> None:
        for number in range(self._loaded.config.listen.workers):
            self._kept += 1
            self._restarts[number] = 0
            self._lifecycle.once("keep a worker", partial(self._keep, number, port))

    async def _keep(self, number: int, port: int) -> None:
        """Runs a worker, and another in its place when it has ended, until all are to end."""
        failures = 0
        try:
            while not self._signals.end.is_set():
                child = Child(number, self._clock, self._lifecycle, self._log_level)
                self._children[number] = child
                code = await child.run(self._orders(number, port), self._serves)
                self._ended_samples = summed([self._ended_samples, counted(child.metrics)])
                child.metrics = ()
                if self._signals.end.is_set():
                    return
                self._restarts[number] += 1
                self._metrics.worker_restarts.inc()
                wanted = child.unwanted or (code == 0 and child.served is not None)
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
                    self._give_up(ConfigError(child.why))
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
            "store_url": self._store.url if self._store is not None else config.store.url,
        }

    def _serves(self, child: Child) -> None:
        assert child.served is not None
        if child.served["hash"] != self._loaded.digest:
            # It began with a configuration that has been replaced meanwhile.
            self._replace(child)
            return
        _log.info("worker serves", extra={"worker": child.number, "pid": child.pid})
        self._served.add(child.number)
        if self._signals.end.is_set():
            child.signal(signal.SIGTERM)  # one that was sent before it listened may be lost
        elif not self._all_served and len(self._served) == len(self._children):
            self._all_served = True
            self._when_all_serve()

    def _replace(self, child: Child) -> None:
        child.unwanted = True
        child.signal(signal.SIGTERM)

    def _give_up(self, why: Exception) -> None:
        self._failed = self._failed or why
        self._signals.at_once.set()
        self._signals.end.set()

    async def _pause(self, failures: int) -> None:
        if failures:
            pause_s = min(_FIRST_PAUSE_S * 2 ** (failures - 1), _LONGEST_PAUSE_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._signals.end.wait()

    async def _end_workers(self) -> None:
        self._pass_on(self._signals.first or signal.SIGTERM)
        listen_ = self._loaded.config.listen
        try:
            async with asyncio.timeout(listen_.drain_delay_s + listen_.drain_s + _ENDING_S):
                await self._none_kept.wait()
        except TimeoutError:
            _log.error("workers do not end; killed")

    def _pass_on(self, number: int) -> None:
        for child in self._children.values():
            child.signal(number)

    # --- The configuration --------------------------------------------------------------------

    def _watch_configuration(self) -> None:
        self._lifecycle.every(0, "reload at a signal", self._reload_at_signal)
        poll_s = self._loaded.config.reload.poll_s
        if poll_s:
            self._lifecycle.every(poll_s, "look at the file", self._reloader.look)

    async def _reload_at_signal(self) -> None:
        await self._signals.reload.wait()
        self._signals.reload.clear()
        await self._reloader.reload(Trigger.SIGNAL)

    async def _apply(self, loaded: Loaded) -> None:
        """All workers take it, or none: it serves nowhere before everyone has built it."""
        serving = [child for child in self._children.values() if child.serving]
        if not serving:
            raise ConfigError("no worker is there to try it; ask again when one serves")
        refusals = await asyncio.gather(*(self._prepare(child, loaded) for child in serving))
        refused = next((why for why in refusals if why is not None), None)
        if refused is not None:
            await asyncio.gather(*(self._tell(child, "abandon") for child in serving))
            raise ConfigError(refused)
        self._loaded = loaded
        await asyncio.gather(*(self._commit(child, loaded) for child in serving))

    async def _prepare(self, child: Child, loaded: Loaded) -> str | None:
        """Why a worker cannot take a configuration; None if it can, or will start with it."""
        try:
            refusal = await child.ask("prepare", _PREPARE_S, text=loaded.text)
        except NoAnswerError as error:
            return None if child.gone else f"worker {child.number}: {error}"
        return refusal if refusal is None else str(refusal)

    async def _commit(self, child: Child, loaded: Loaded) -> None:
        try:
            refusal = await child.ask("commit", _ASK_S, hash=loaded.digest)
        except NoAnswerError as error:
            refusal = str(error)
        if refusal is not None and not child.gone:
            _log.error(
                "worker did not take the configuration; another takes its place",
                extra={"worker": child.number, "why": refusal},
            )
            self._replace(child)

    async def _tell(self, child: Child, order: str) -> None:
        with suppress(NoAnswerError):
            await child.ask(order, _ASK_S)

    # --- What operators ask -------------------------------------------------------------------

    async def state(self) -> dict[str, Any]:
        """The state of all workers as one."""
        children = list(self._children.values())
        answers = await asyncio.gather(*(self._state_of(child) for child in children))
        states = [answer for answer in answers if "routes" in answer]
        made = merged(states) if states else self._nobody()
        made["workers"] = [
            {**answer["workers"][0], "restarts": self._restarts[child.number]}
            for child, answer in zip(children, answers, strict=True)
        ]
        made["store"]["url"] = self._loaded.config.store.shown_url
        made["config"] = self._reloader.state()
        made["uptime_s"] = self._clock.monotonic() - self._began
        return made

    async def _state_of(self, child: Child) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = await child.ask("state", _ASK_S)
        except NoAnswerError as error:
            return {"workers": [silent_worker(child.number, child.pid, str(error))]}
        return answer

    def _nobody(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "time": self._clock.wall(),
            "data_url": self._data_url,
            "ready": False,
            "not_ready": "no worker answers",
            "window_s": self._loaded.config.estimates.window_s,
            "store": {
                "up": False,
                "error": "no worker answers",
                "snapshot_age_s": None,
                "dropped_increments": 0,
                "refused_increments": 0,
            },
            "routes": [],
        }

    async def exposition(self) -> bytes:
        """The metrics of all workers added up."""
        asked = list(self._children.values())
        answered = await asyncio.gather(*(child.count(_ASK_S) for child in asked))
        live = {id(child) for child, known in zip(asked, answered, strict=True) if known}
        # From here on nothing waits, so that no worker that ends meanwhile is counted twice.
        told = [
            child.metrics if id(child) in live else counted(child.metrics)
            for child in self._children.values()
        ]
        return exposition(summed([samples_of(self._metrics.registry), self._ended_samples, *told]))
