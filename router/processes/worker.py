"""One of several workers: an application without an admin port, which a supervisor asks and tells.

It learns its configuration from the supervisor, never from the file, and ends when that is gone.
"""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from pathlib import Path
from typing import Any

from router.admin.drain import DrainOrder
from router.app import Application, Place
from router.config.models import Config
from router.errors import ConfigError
from router.lifecycle import Lifecycle
from router.observe.sums import samples_of
from router.processes.channel import Channel, Message
from router.processes.descriptors import allow_descriptors
from router.processes.garbage import spare_what_stays
from router.processes.reload import ConfigFile, Loaded
from router.processes.signals import Signals

_ASKED = ("state", "metrics", "history", "beliefs", "decisions")
"""Questions that change nothing."""


async def work(descriptor: int) -> None:
    """Serves until SIGTERM, or until the supervisor is gone.

    Args:
        descriptor: This side of the line to the supervisor.
    """
    lifecycle = Lifecycle()
    channel = await Channel.over(socket.socket(fileno=descriptor), lifecycle)
    try:
        orders = await channel.receive()
        if orders is not None:
            await _serve(channel, orders, lifecycle)
    finally:
        await lifecycle.stop()
        await channel.close()


async def _serve(channel: Channel, orders: Message, lifecycle: Lifecycle) -> None:
    try:
        worker = Worker(orders)
        signals = Signals(lambda _: worker.application.end_answers())
        async with worker.application.running():
            spare_what_stays()
            spare_what_stays()
            channel.send({"news": "serving", "hash": worker.digest})
            lifecycle.once("line to the supervisor", partial(_obey, channel, worker, signals))
            await signals.end.wait()
            await worker.application.announce_end(signals.at_once)
    except ConfigError as error:
        channel.send({"news": "failed", "why": str(error)})
        return
    channel.send({"news": "ended", "metrics": worker.metrics()})


async def _obey(channel: Channel, worker: Worker, signals: Signals) -> None:
    await channel.run(worker.answer, lambda _: None)
    # The supervisor is gone: nobody will start anew what would be needed, so finish and end.
    signals.at_once.set()
    signals.end.set()


class Worker:
    """What a supervisor may ask.

    Args:
        orders: The supervisor's first message: text and name of the configuration, number of
            workers, number of this one, port, servers that were taken out, URL of the store.
    """

    def __init__(self, orders: Message) -> None:
        self._file = ConfigFile(Path(orders["path"]), orders["workers"])
        self._store_url: str = orders["store_url"]
        self._loaded = self._file.parse(orders["text"])
        self._prepared: Loaded | None = None
        allow_descriptors(self._loaded.config)
        place = Place(orders["number"], orders["port"])
        self.application = Application(self._own(self._loaded), place=place)
        for order in orders["drained"]:
            self.application.drain(DrainOrder(**order))

    def _own(self, loaded: Loaded) -> Config:
        """The configuration, with the store where the supervisor has it."""
        config = loaded.config
        store = config.store.model_copy(update={"url": self._store_url})
        return config.model_copy(update={"store": store})

    @property
    def digest(self) -> str:
        """Of the configuration that it serves by."""
        return self._loaded.digest

    def metrics(self) -> list[Any]:
        """All that was counted here, and gauges as they are now."""
        return samples_of(self.application.metrics().registry)

    async def answer(self, question: str, message: Message) -> Any:
        """Answers the supervisor; an order of which nothing became is answered by the reason."""
        if question in _ASKED:
            return await self._told(question, message)
        match question:
            case "prepare":
                return await self._prepare(message["text"])
            case "commit":
                return self._commit(message["hash"])
            case "drain":
                return self.application.drain(DrainOrder(**message["order"]))
            case "abandon":
                self._prepared = None
                self.application.abandon()
                return None
            case _:
                raise ValueError(question)

    async def _told(self, question: str, message: Message) -> Any:
        match question:
            case "state":
                state = self.application.state()
                state["workers"][0]["hash"] = self.digest
                return state
            case "history":
                return await self.application.history(message["since"], message["class"])
            case "beliefs":
                return await self.application.beliefs()
            case "decisions":
                return self.application.decisions(message["request_id"], message["limit"])
            case _:
                return self.metrics()

    async def _prepare(self, text: str) -> str | None:
        try:
            loaded = await asyncio.to_thread(self._file.parse, text)
            await self.application.prepare(self._own(loaded))
        except ConfigError as error:
            return str(error)
        self._prepared = loaded
        return None

    def _commit(self, digest: str) -> str | None:
        if self._prepared is None or self._prepared.digest != digest:
            return "something else was prepared"
        self.application.commit()
        self._loaded, self._prepared = self._prepared, None
        allow_descriptors(self._loaded.config)
        return None
