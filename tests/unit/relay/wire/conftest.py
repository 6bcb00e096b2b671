"""Event loops of the wire's own tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """All of them on both: how transports behave is half of what the wire is about."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
