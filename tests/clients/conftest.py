"""Pairs of runs, made once for all tests of a client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from router.demo.errors import DemoError
from router.demo.fleet import DEFAULT_POOLS, Fleet, PoolSpec, RunningPool
from tests.clients.harness import Client, MissingError, Pair, real_pair, scripted_pair

Run = Callable[[Client], Pair]

EMBEDDER = PoolSpec("embeddings", "none", None, ("--embeddings", "--pooling", "mean"))


def _once(make: Run) -> Run:
    """Runs each client once; a client that is not installed is skipped every time."""
    made: dict[str, Pair] = {}
    failed: set[str] = set()

    def run(client: Client) -> Pair:
        try:
            client.command()
        except MissingError as error:
            pytest.skip(str(error))
        if client.name in failed:
            pytest.fail(f"no runs of {client.name}; the first test of it says why")
        if client.name not in made:
            failed.add(client.name)
            made[client.name] = make(client)
            failed.discard(client.name)
        return made[client.name]

    return run


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Both ways to a scripted engine."""

    def make(client: Client) -> Pair:
        place = tmp_path_factory.mktemp("scripted")
        return asyncio.run(scripted_pair(client, client.cases, place))

    return _once(make)


@pytest.fixture(scope="session")
def engines() -> Iterator[dict[str, RunningPool]]:
    """Real servers: one that drafts from what it has seen, one that embeds."""
    running = Fleet(pools=(DEFAULT_POOLS[1], EMBEDDER))
    try:
        running.start()
    except DemoError as error:
        pytest.skip(f"real engines cannot run here: {error}")
    try:
        yield {pool.name: pool for pool in running.pools}
    finally:
        running.stop()


@pytest.fixture(scope="session")
def real(engines: dict[str, RunningPool], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Both ways to real engines."""

    def make(client: Client) -> Pair:
        return asyncio.run(real_pair(client, engines, tmp_path_factory.mktemp("real")))

    return _once(make)
