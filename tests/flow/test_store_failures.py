"""Everything that can become of a store, done to real servers behind a whole proxy.

In each case requests are answered at once, learning goes on in the process, what can be added later
is added once, and the state says what goes on. `docs/stores.md` has the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from router.app import Application
from router.clock import SystemClock
from router.estimates.layout import SLOTS_PER_HOUR, RouteKeys, slot_at
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import GUARD_S, ScriptedBackend
from tests.support.flow_client import ask, get, request_bytes
from tests.support.flow_world import cell, config_of, pool
from tests.support.store_relay import CA, CLIENT, store_relay
from tests.support.valkey import (
    ValkeyServer,
    free_port,
    frozen,
    short_folder,
    tcp_server,
    watched_servers,
)

SHORT_S = 0.3
"""Limit of a call to the store."""
AWAY = "away: requests are served, and learned from in this process alone"


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    """A server of this test's own."""
    with short_folder() as folder, tcp_server(folder) as found:
        yield found


@pytest.fixture
def opened(start: Start, plain: ScriptedBackend, tmp_path: Path) -> Callable[..., Any]:
    """Starts a proxy over the store of a URL."""
    plain.always(wire.llama_chat())

    async def started(url: str, clock: SystemClock | None = None) -> Application:
        store = {"url": url, "timeout_s": SHORT_S}
        return await start(config_of(pool("plain", plain), folder=tmp_path, store=store), clock)

    return started


async def serve(app: Application, n: int) -> None:
    """All of these requests must succeed."""
    for _ in range(n):
        assert (await ask(app.data_url, request_bytes(wire.chat()))).status == 200


async def served_while_away(app: Application, n: int, why: str) -> None:
    """Requests while the store fails: answered, learned from, and the state tells why."""
    async with asyncio.TaskGroup() as group:
        group.create_task(app.flush())
        group.create_task(serve(app, n))
    async with asyncio.timeout(GUARD_S):
        while True:  # connections that were kept may end first
            await app.flush()
            await app.refresh()
            told = app.state()["store"]
            assert told["up"] is False
            if why in told["error"]:
                break
    assert told["says"].startswith(f"{AWAY}; {told['error']}; ")
    assert told["waiting_increments"] > 0
    assert (told["dropped_increments"], told["refused_increments"]) == (0, 0)
    ready = await get(app.data_url, "/ready")
    assert (ready.status, ready.json) == (200, {"status": "ready", "store": AWAY})


async def answers_again(app: Application) -> None:
    """Goes on as the background work does until the store is up."""
    async with asyncio.timeout(GUARD_S):
        while True:
            await app.flush()
            await app.refresh()
            if app.state()["store"]["up"]:
                break
    assert app.state()["store"]["waiting_increments"] == 0
    assert (await get(app.data_url, "/ready")).json == {"status": "ready", "store": "answers"}


def known(app: Application) -> int:
    """Requests that the estimates know of."""
    return int(cell(app, "plain")["ok"])


def in_hours(client: Redis) -> int:
    """Requests in the hours of the store: nothing but what was really added."""
    found = 0
    for key in client.scan_iter("*:hour:*"):
        fields: Any = client.hgetall(key)
        found += sum(int(value) for name, value in fields.items() if name.endswith(b"|n"))
    return found


# --- What a server may be like for a while ----------------------------------------------------


@contextmanager
def read_only(server: ValkeyServer) -> Iterator[None]:
    """It became a replica of something that is gone."""
    with server.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        yield
        client.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def out_of_memory(server: ValkeyServer) -> Iterator[None]:
    """It holds as much as it may."""
    with server.client() as client:
        client.config_set("maxmemory", 1)
        yield
        client.config_set("maxmemory", 0)


@contextmanager
def other_password(server: ValkeyServer) -> Iterator[None]:
    """Somebody set one, and connections were ended."""
    with server.client() as client:
        client.config_set("requirepass", "0ther")
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        yield
        client.config_set("requirepass", "")


def forbidden(*commands: str) -> Callable[[ValkeyServer], AbstractContextManager[None]]:
    """The user may not do something any more."""

    @contextmanager
    def provoke(server: ValkeyServer) -> Iterator[None]:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "default", *(f"-{name}" for name in commands))
            yield
            client.execute_command("ACL", "SETUSER", "default", "+@all")

    return provoke


@contextmanager
def stopped(server: ValkeyServer) -> Iterator[None]:
    """It accepts connections and answers nothing."""
    with frozen(server.pid):
        yield


@pytest.mark.parametrize(
    ("provoke", "why"),
    [
        (read_only, "takes no writes (read-only replica)"),
        (out_of_memory, "out of memory"),
        (other_password, "refuses the user or the password"),
        (forbidden("evalsha", "eval"), "gives this user no permission"),
        (forbidden("hincrby"), "gives this user no permission"),
        (forbidden("expire"), "gives this user no permission"),
        (stopped, "no reply within"),
    ],
    ids=[
        "read-only",
        "memory",
        "password",
        "no script",
        "no increment",
        "no expiry",
        "frozen",
    ],
)
async def test_a_server_that_fails_for_a_while(
    server: ValkeyServer,
    opened: Callable[..., Any],
    provoke: Callable[[ValkeyServer], AbstractContextManager[None]],
    why: str,
) -> None:
    """Nothing is lost and nothing counts twice, here and in the store."""
    app = await opened(server.url)
    await serve(app, 3)
    await answers_again(app)
    with provoke(server):
        await served_while_away(app, 2, why)
        assert known(app) == 5
        await served_while_away(app, 2, why)
        assert known(app) == 7
    await serve(app, 1)
    await answers_again(app)
    assert known(app) == 8
    with server.client() as client:
        assert in_hours(client) == 8


async def test_a_server_that_lets_wait_what_it_was_sent_counts_it_once(
    server: ValkeyServer, opened: Callable[..., Any]
) -> None:
    """Slow: replies come after the proxy has stopped waiting; none is taken for another's."""
    async with store_relay(server.port) as relay:
        app = await opened(relay.url)
        await serve(app, 3)
        await answers_again(app)
        relay.open.clear()
        await served_while_away(app, 2, "no reply within")
        await relay.held.wait()
        relay.open.set()
        await answers_again(app)
        assert known(app) == 5
    with server.client() as client:
        assert in_hours(client) == 5


@pytest.mark.parametrize("after", [0, 1, 2])
async def test_a_connection_that_is_cut_in_a_reply_counts_what_was_sent_once(
    server: ValkeyServer, opened: Callable[..., Any], after: int
) -> None:
    """The server has added the batch; nobody was told."""
    async with store_relay(server.port) as relay:
        app = await opened(relay.url)
        await serve(app, 2)
        await answers_again(app)
        await serve(app, 3)
        relay.cut_after = after
        await app.flush()
        assert relay.cuts == 1
        assert app.state()["store"]["up"] is False
        with server.client() as client:
            assert in_hours(client) == 5
        await answers_again(app)
        assert known(app) == 5
    with server.client() as client:
        assert in_hours(client) == 5


async def test_a_server_that_was_not_there_at_the_start(opened: Callable[..., Any]) -> None:
    """What was learned until it came is added when it comes."""
    port = free_port()
    app = await opened(f"redis://127.0.0.1:{port}/0")
    await served_while_away(app, 4, "no connection")
    assert known(app) == 4
    with short_folder() as folder, tcp_server(folder, port=port) as server:
        await answers_again(app)
        assert known(app) == 4
        with server.client() as client:
            assert in_hours(client) == 4


async def test_a_server_that_ends_and_comes_back_empty(opened: Callable[..., Any]) -> None:
    """What it had forgotten is gone; what it had not confirmed is added."""
    with short_folder() as folder, tcp_server(folder) as server:
        app = await opened(server.url)
        await serve(app, 3)
        await answers_again(app)
        server.kill()
        await served_while_away(app, 2, "no connection")
        assert known(app) == 5
        with tcp_server(folder, port=server.port) as again, again.client() as client:
            await answers_again(app)
            assert in_hours(client) == 2
            assert known(app) == 2


async def test_a_server_that_was_flushed(server: ValkeyServer, opened: Callable[..., Any]) -> None:
    """What was confirmed is gone and does not come back twice; learning goes on at once."""
    app = await opened(server.url)
    await serve(app, 3)
    await answers_again(app)
    await serve(app, 2)
    with server.client() as client:
        client.flushall()
        client.script_flush()
        await answers_again(app)
        assert (known(app), in_hours(client)) == (2, 2)
        await serve(app, 4)
        await answers_again(app)
        assert (known(app), in_hours(client)) == (6, 6)


async def test_a_master_that_is_gone_and_its_replica_in_its_place(
    opened: Callable[..., Any],
) -> None:
    """The sentinel says who it is; batches and their numbers moved together."""
    with short_folder() as folder, watched_servers(folder) as servers:
        app = await opened(servers.url)
        await serve(app, 3)
        await answers_again(app)
        with servers.first.client() as client:
            assert client.wait(1, 5000) == 1
        servers.first.kill()
        await served_while_away(app, 2, "no connection")
        await asyncio.to_thread(servers.sentinel.until_says, "+switch-master")
        await answers_again(app)
        await serve(app, 1)
        await answers_again(app)
        assert known(app) == 6
        with servers.second.client() as client:
            assert in_hours(client) == 6


async def test_garbage_where_sums_belong(server: ValkeyServer, opened: Callable[..., Any]) -> None:
    """Requests are answered; what cannot be added to is counted, the rest is exact."""
    keys = RouteKeys("specroute", wire.MODEL)
    with server.client() as client:
        seconds, _ = client.time()
        slot = slot_at(seconds)
        for number in (slot, slot + 1, slot + 2):
            client.set(keys.slot(number), "not a hash")
        for hour in {number // SLOTS_PER_HOUR for number in (slot, slot + 2)}:
            client.hset(keys.hour(hour), mapping={"plain|other|n": "x", "a": "1", b"\xff": "1"})
        app = await opened(server.url)
        await serve(app, 3)
        await answers_again(app)
        assert known(app) == 3
        told = app.state()["store"]
        assert told["up"] is True
        assert told["dropped_increments"] == 0


async def test_a_store_of_another_version(server: ValkeyServer, opened: Callable[..., Any]) -> None:
    """Its keys are other keys: nothing of them is read, and nothing of them is touched."""
    with server.client() as client:
        seconds, _ = client.time()
        theirs = {}
        for version in ("v1", "v3"):
            for number in range(slot_at(seconds) - 5, slot_at(seconds) + 5):
                key = f"{{specroute:{wire.MODEL}}}:{version}:slot:{number}"
                client.hset(key, "plain|other|n", 1000)
                theirs[key] = client.hgetall(key)
        app = await opened(server.url)
        await serve(app, 3)
        await answers_again(app)
        assert known(app) == 3
        assert {key: client.hgetall(key) for key in theirs} == theirs


class WrongClock(SystemClock):
    """The clock of a host that nobody has set."""

    def __init__(self, wrong_s: float) -> None:
        self._wrong_s = wrong_s

    def wall(self) -> float:
        """Wrong by as much."""
        return SystemClock.wall() + self._wrong_s


async def test_proxies_whose_clocks_are_minutes_apart(
    server: ValkeyServer, opened: Callable[..., Any]
) -> None:
    """All go by the store's clock, see each other's sums at once, and say what is wrong."""
    apps = [await opened(server.url, WrongClock(wrong_s)) for wrong_s in (0.0, -400.0, 900.0)]
    for number, app in enumerate(apps, 1):
        await serve(app, number)
        await answers_again(app)
    for app, skew_s in zip(apps, (0.0, 400.0, -900.0), strict=True):
        await answers_again(app)
        assert known(app) == 6
        told = app.state()["store"]
        assert told["clock_skew_s"] == pytest.approx(skew_s, abs=1.0)
        assert ("which is allowed for" in told["says"]) is (skew_s != 0.0)
    with server.client() as client:
        assert in_hours(client) == 6


async def test_a_store_that_wants_a_certificate(
    server: ValkeyServer, opened: Callable[..., Any]
) -> None:
    """With one of ours all is well; without one, or without trust, the state says so."""
    async with store_relay(server.port, tls=True, client_certificates=True) as relay:
        trusted = f"{relay.url}/0?ssl_ca_certs={CA}"
        ours = f"{trusted}&ssl_certfile={CLIENT}&ssl_keyfile={CLIENT}"
        good = await opened(ours)
        await serve(good, 2)
        await answers_again(good)
        for url, why in ((trusted, ""), (f"{relay.url}/0", "certificate verify failed")):
            await served_while_away(await opened(url), 1, why)
    with server.client() as client:
        assert in_hours(client) == 2
