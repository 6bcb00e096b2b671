"""Event loops of the contract suites."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

LoopFactories = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> LoopFactories:
    """What depends on how a loop reads and writes is shown on both; the rest on the usual one."""
    usual: LoopFactories = {"asyncio": asyncio.new_event_loop}
    if item.path.name != "test_upstreams.py":
        return usual
    return {**usual, "uvloop": uvloop.new_event_loop}
