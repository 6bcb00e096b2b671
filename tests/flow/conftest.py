"""Fixtures of the flow tests: scripted engines, and whole proxies in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from router.app import Application
from router.clock import Clock
from router.config.models import Config
from tests.support.flow_backend import ScriptedBackend, scripted_backend
from tests.support.flow_world import SEED

Start = Callable[..., Awaitable[Application]]


@pytest.fixture
async def plain() -> AsyncIterator[ScriptedBackend]:
    """An engine without speculation."""
    async with scripted_backend() as backend:
        yield backend


@pytest.fixture
async def fast() -> AsyncIterator[ScriptedBackend]:
    """An engine that drafts."""
    async with scripted_backend() as backend:
        yield backend


@pytest.fixture
async def start(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Starts proxies; they are stopped, drain included, when the test has ended.

    Servers are probed once at the start, and then when the test says so; answers are repeated only
    then.
    """
    monkeypatch.setattr("router.app.REPEAT_S", 3600.0)
    monkeypatch.setattr("router.app.PROBE_INTERVAL_S", 3600.0)
    async with AsyncExitStack() as stack:

        async def started(config: Config, clock: Clock | None = None) -> Application:
            application = Application(config, clock, seed=SEED)
            return await stack.enter_async_context(application.running())

        yield started


@pytest.fixture
async def engines() -> AsyncIterator[AsyncExitStack]:
    """Ends the simulated engines after the proxy."""
    async with AsyncExitStack() as stack:
        yield stack
