"""Real llama.cpp servers for the tests that need them, started once for all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from router.demo.errors import DemoError
from router.demo.fleet import Fleet


@pytest.fixture(scope="session")
def fleet() -> Iterator[Fleet]:
    """The demo's pools: plain, n-gram and draft model, on the same real target."""
    running = Fleet()
    try:
        running.start()
    except DemoError as error:
        pytest.skip(f"real engines cannot run here: {error}")
    try:
        yield running
    finally:
        running.stop()
