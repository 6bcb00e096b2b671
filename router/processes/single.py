"""One process that does everything: what runs unless more workers are asked for."""

from __future__ import annotations

from collections.abc import Callable

from router.app import Application
from router.clock import SystemClock
from router.config.load import naming
from router.processes.descriptors import allow_descriptors
from router.processes.garbage import spare_what_stays
from router.processes.reload import ConfigFile, Loaded, Reloader, Trigger
from router.processes.signals import Signals
from router.processes.started import Started


async def serve(file: ConfigFile, loaded: Loaded, started: Callable[[Started], None]) -> None:
    """Serves until SIGTERM or SIGINT, then drains; at a second signal it waits no longer.

    Args:
        file: Where the configuration stands.
        loaded: What it holds.
        started: Called once the ports listen.
    """
    allow_descriptors(loaded.config)
    with naming(file.path):
        application = Application(loaded.config)
    signals = Signals(lambda _: application.end_answers())

    async def apply(new: Loaded) -> None:
        await application.apply(new.config)
        allow_descriptors(new.config)

    reloader = application.reloader = Reloader(
        file, loaded, apply, clock=SystemClock(), count=application.metrics().count_reload
    )

    async def reload_at_signal() -> None:
        await signals.reload.wait()
        signals.reload.clear()
        await reloader.reload(Trigger.SIGNAL)

    async with application.running():
        spare_what_stays()
        spare_what_stays()
        application.background.every(0, "reload at a signal", reload_at_signal)
        poll_s = loaded.config.reload.poll_s
        if poll_s:
            application.background.every(poll_s, "look at the file", reloader.look)
        started(Started(application.data_url, application.admin_url, application.models()))
        await signals.end.wait()
        signals.say_stopping()
        await application.announce_end(signals.at_once)
