"""A real proxy on a real Valkey server before simulated engines, for who watches all three."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bench.proxy import Proxy, started
from bench.store_server import Server
from router.simfleet.fleet import FleetOptions, SimFleet
from router.simulate.load import load_world

WORLD = "llama8b-light"


@asynccontextmanager
async def rehearsal(
    options: FleetOptions, config: Callable[[SimFleet, Server], Mapping[str, Any]]
) -> AsyncIterator[tuple[Server, SimFleet, Proxy]]:
    """Starts all of them, and ends them in turn.

    Args:
        options: Of the engines.
        config: Makes the proxy's, with free ports (0).
    """
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:
            store = Server(folder)
            await store.start()
            stack.push_async_callback(store.stop)
            fleet = SimFleet(load_world(WORLD), options)
            await fleet.start()
            stack.push_async_callback(fleet.stop)
            proxy = await stack.enter_async_context(started(config(fleet, store), folder))
            yield store, fleet, proxy
