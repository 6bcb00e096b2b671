"""One contract for every store, and for a toy that proves outsiders can write one."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from router.config.keeping import Store
from router.errors import ConfigError, StoreError
from router.stores import embedded
from router.stores.base import Addition, Batch, CounterStore, Document, SharedStore
from router.stores.embedded import EmbeddedStore
from router.stores.memory import MemoryStore
from router.stores.open import open_store
from router.stores.redis import RedisStore
from tests.support.clock import ManualClock
from tests.support.store_relay import CA, store_relay
from tests.support.valkey import (
    Cluster,
    ValkeyServer,
    Watched,
    cluster,
    frozen,
    short_folder,
    tcp_server,
    unix_server,
    watched_servers,
)

TIMEOUT_S = 5.0
"""Generous, so that a busy machine is no failure; tests of timeouts use `SHORT_S`."""
SHORT_S = 0.2
INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [
        sign * (base + near)
        for sign in (1, -1)
        for base in (10**15, 9 * 10**15, 2**53, 2**62)
        for near in (-1, 0, 1)
    ]
)
Deltas = Mapping[str, Mapping[str, int]]
"""Increments by key and field."""
K1, K2, BATCH_KEY = "{t}:1", "{t}:2", "{t}:w"


class ToyStore:
    """A store from outside, over SQLite."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._db = sqlite3.connect(":memory:")
        self._db.executescript(
            "CREATE TABLE keys (key TEXT PRIMARY KEY, last INTEGER, until REAL);"
            "CREATE TABLE sums (key TEXT REFERENCES keys ON DELETE CASCADE, field TEXT,"
            " value INTEGER, PRIMARY KEY (key, field));"
            "CREATE TABLE secrets (key TEXT PRIMARY KEY, value BLOB);"
            "CREATE TABLE documents (key TEXT PRIMARY KEY, version INTEGER, data BLOB);"
            "CREATE TABLE logs (key TEXT, entry BLOB);"
            "PRAGMA foreign_keys = ON;"
        )

    async def add(self, batch: Batch, additions: Sequence[Addition]) -> int:
        """One transaction."""
        now = self._clock.wall()
        with self._db as db:
            db.execute("DELETE FROM keys WHERE until <= ?", (now,))
            [found] = db.execute(
                "SELECT count(*) FROM keys WHERE key = ? AND last >= ?", (batch.key, batch.number)
            ).fetchone()
            if found:
                return 0
            kept = [(key, None, ttl_s) for item in additions for key, ttl_s in item.keys.items()]
            for key, last, ttl_s in [(batch.key, batch.number, batch.ttl_s), *kept]:
                db.execute(
                    "INSERT INTO keys VALUES (?, ?, ?) ON CONFLICT DO UPDATE"
                    " SET last = excluded.last, until = excluded.until",
                    (key, last, now + ttl_s),
                )
            db.executemany(
                "INSERT INTO sums VALUES (?, ?, ?) ON CONFLICT DO UPDATE"
                " SET value = value + excluded.value",
                [
                    (key, stem + name, value)
                    for item in additions
                    for key in item.keys
                    for stem, fields in item.increments.items()
                    for name, value in fields.items()
                ],
            )
        return 0

    async def read(self, keys: Sequence[str]) -> Sequence[Mapping[str, int]]:
        """One query for each key."""
        now = self._clock.wall()
        query = "SELECT field, value FROM sums JOIN keys USING (key) WHERE key = ? AND until > ?"
        return [dict(self._db.execute(query, (key, now))) for key in keys]

    async def time(self, key: str) -> float:
        """This process's own clock."""
        return self._clock.wall()

    async def get_or_create(self, key: str, value: bytes) -> bytes:
        """One insertion that gives way, one query."""
        with self._db as db:
            db.execute("INSERT OR IGNORE INTO secrets VALUES (?, ?)", (key, value))
            [kept] = db.execute("SELECT value FROM secrets WHERE key = ?", (key,)).fetchone()
        return bytes(kept)

    async def get(self, key: str) -> Document | None:
        """One query."""
        query = "SELECT version, data FROM documents WHERE key = ?"
        found = self._db.execute(query, (key,)).fetchone()
        return Document(found[0], bytes(found[1])) if found else None

    async def put(
        self, key: str, data: bytes, *, expected: int, entries: Sequence[bytes] = ()
    ) -> bool:
        """One transaction."""
        with self._db as db:
            db.execute("INSERT OR IGNORE INTO documents VALUES (?, 0, NULL)", (key,))
            changed = db.execute(
                "UPDATE documents SET version = version + 1, data = ? WHERE key = ? AND version = ?",
                (data, key, expected),
            ).rowcount
            if changed:
                db.executemany("INSERT INTO logs VALUES (?, ?)", [(key, e) for e in entries])
            db.execute("DELETE FROM documents WHERE version = 0")
        return bool(changed)

    async def log(self, key: str, newest: int) -> Sequence[bytes]:
        """One query."""
        query = "SELECT entry FROM logs WHERE key = ? ORDER BY rowid DESC LIMIT ?"
        return [bytes(row[0]) for row in self._db.execute(query, (key, newest))][::-1]

    async def close(self) -> None:
        """Closes the file."""
        self._db.close()


@dataclass
class Subject:
    """A kind of store: how to open it, and how to make its keys expire."""

    open: Callable[[], SharedStore]
    expire: Callable[[int], None]
    """Lets as many seconds pass as far as the keys' lives are concerned."""


@pytest.fixture(scope="session")
def tcp() -> Iterator[ValkeyServer]:
    """A real server on a port."""
    with short_folder() as folder, tcp_server(folder) as server:
        yield server


@pytest.fixture(scope="session")
def unix() -> Iterator[ValkeyServer]:
    """A real server on a Unix socket."""
    with short_folder() as folder, unix_server(folder) as server:
        yield server


@pytest.fixture(scope="session")
def watched() -> Iterator[Watched]:
    """A master under a sentinel."""
    with short_folder() as folder, watched_servers(folder) as servers:
        yield servers


@pytest.fixture(scope="session")
def three() -> Iterator[Cluster]:
    """A real cluster."""
    with short_folder() as folder, cluster(folder) as servers:
        yield servers


@pytest.fixture
def folder() -> Iterator[Path]:
    """For an embedded server."""
    with short_folder() as name:
        yield name


@pytest.fixture
async def own(folder: Path) -> AsyncIterator[EmbeddedStore]:
    """An embedded store that has started."""
    store = EmbeddedStore(folder, TIMEOUT_S)
    try:
        await store.start()
        yield store
    finally:
        await store.close()


def socket_client(folder: Path) -> Redis:
    """A client of an embedded server."""
    return Redis(unix_socket_path=str(folder / "valkey.sock"))


def shorten(client: Redis, seconds: int) -> None:
    """Takes seconds from the life of every key, as if they had passed."""
    with client:
        for key in client.scan_iter():
            left = client.ttl(key)
            assert isinstance(left, int)
            if left < 0:
                continue  # it never expires
            client.delete(key) if left <= seconds else client.expire(key, left - seconds)


KINDS = ("memory", "embedded", "unix", "tcp", "tls", "sentinel", "cluster", "toy")


@pytest.fixture(params=KINDS)
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    """Every kind of store, empty."""
    clock = ManualClock()
    if request.param in ("memory", "toy"):
        shared: SharedStore = MemoryStore(clock) if request.param == "memory" else ToyStore(clock)
        yield Subject(lambda: shared, clock.advance)
        await shared.close()
    elif request.param == "embedded":
        folder = request.getfixturevalue("folder")
        async with AsyncExitStack() as stack:
            store = EmbeddedStore(folder, TIMEOUT_S)
            stack.push_async_callback(store.close)
            yield Subject(lambda: store, lambda s: shorten(socket_client(folder), s))
    else:
        async with AsyncExitStack() as stack:
            url, servers = await _behind(request.param, request, stack)
            for server in servers:
                with server.client() as client:
                    client.flushall()

            def open_one() -> SharedStore:
                store = open_store(Store(url=url, timeout_s=TIMEOUT_S), clock)
                stack.push_async_callback(store.close)
                return store

            def expire(seconds: int) -> None:
                for server in servers:
                    shorten(server.client(), seconds)

            yield Subject(open_one, expire)


async def _behind(
    kind: str, request: pytest.FixtureRequest, stack: AsyncExitStack
) -> tuple[str, Sequence[ValkeyServer]]:
    """How a store of real servers is reached, and which servers keep what it holds."""
    if kind == "sentinel":
        watched: Watched = request.getfixturevalue("watched")
        return watched.url, [watched.first]
    if kind == "cluster":
        three: Cluster = request.getfixturevalue("three")
        return three.url, three.nodes
    server: ValkeyServer = request.getfixturevalue("tcp" if kind == "tls" else kind)
    if kind == "tls":
        relay = await stack.enter_async_context(store_relay(server.port, tls=True))
        return f"{relay.url}/0?ssl_ca_certs={CA}", [server]
    return server.url, [server]


def added(deltas: Deltas, ttl_s: int = 100) -> list[Addition]:
    """Increments by key and field, in the form that stores take."""
    return [Addition({"": fields}, {key: ttl_s}) for key, fields in deltas.items()]


@dataclass
class Sender:
    """Numbers its batches."""

    store: CounterStore
    key: str = BATCH_KEY
    number: int = field(default=0)

    async def add(self, deltas: Deltas, ttl_s: int = 100) -> int:
        """Adds the next batch."""
        self.number += 1
        return await self.store.add(Batch(self.key, self.number, ttl_s), added(deltas, ttl_s))


# --- The contract -----------------------------------------------------------------------------


async def test_what_is_added_is_read(subject: Subject) -> None:
    """Keys in the order asked for; one that is not there is empty; all are independent."""
    store = subject.open()
    sender = Sender(store)
    assert await sender.add({K1: {"a": 1, "b|c d|é": -2}, K2: {"a": 10}}) == 0
    assert await sender.add({K1: {"a": 4}}) == 0
    assert await store.read([K2, "{t}:none", K1, K2]) == [
        {"a": 10},
        {},
        {"a": 5, "b|c d|é": -2},
        {"a": 10},
    ]


async def test_empty_calls_do_nothing(subject: Subject) -> None:
    """No keys, no increments, no fields."""
    store = subject.open()
    assert list(await store.read([])) == []
    assert await Sender(store).add({}) == 0
    assert await Sender(store, "{t}:w2").add({K1: {}}) == 0
    assert await store.read([K1]) == [{}]


async def test_large_integers_are_exact(subject: Subject) -> None:
    """Beyond what floats can hold."""
    store = subject.open()
    sender = Sender(store)
    await sender.add({K1: {"a": 2**53, "b": -(2**62)}})
    await sender.add({K1: {"a": 1, "b": -1}})
    assert await store.read([K1]) == [{"a": 2**53 + 1, "b": -(2**62) - 1}]


async def test_a_batch_counts_once_however_often_it_is_sent(subject: Subject) -> None:
    """By its name alone: its content may have moved to another slot by then."""
    store = subject.open()
    for deltas in ({K1: {"a": 1}}, {K1: {"a": 1}}, {K2: {"a": 1}}):
        assert await store.add(Batch(BATCH_KEY, 1, 100), added(deltas, 100)) == 0
    assert await store.read([K1, K2]) == [{"a": 1}, {}]


async def test_an_older_batch_that_comes_late_is_ignored(subject: Subject) -> None:
    """An abandoned call may be carried out after its successors."""
    store = subject.open()
    await store.add(Batch(BATCH_KEY, 2, 100), added({K1: {"a": 1}}, 100))
    await store.add(Batch(BATCH_KEY, 1, 100), added({K1: {"a": 10}}, 100))
    await store.add(Batch(BATCH_KEY, 3, 100), added({K1: {"a": 100}}, 100))
    assert await store.read([K1]) == [{"a": 101}]


@given(st.lists(st.tuples(st.sampled_from("ab"), INTEGERS), max_size=12))
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_sums_are_exact_whatever_their_size(
    unix: ValkeyServer, steps: list[tuple[str, int]]
) -> None:
    """Around what Lua's numbers hold too; what would overflow is refused and counted."""
    asyncio.run(_sums_are_exact(unix, steps))


async def _sums_are_exact(unix: ValkeyServer, steps: list[tuple[str, int]]) -> None:
    with unix.client() as client:
        client.flushall()
    store = RedisStore(unix.url, TIMEOUT_S)
    sender, sums = Sender(store), dict[str, int]()
    for name, value in steps:
        total = sums.get(name, 0) + value
        fits = -(2**63) <= total < 2**63
        assert await sender.add({K1: {name: value}}) == (not fits)
        if fits:
            sums[name] = total
    assert await store.read([K1]) == [sums]
    await store.close()


async def test_senders_do_not_mistake_each_other_s_batches(subject: Subject) -> None:
    """Each counts from 1."""
    store = subject.open()
    for sender in "xyz":
        await store.add(Batch(f"{{t}}:w:{sender}", 1, 100), added({K1: {"a": 1}}, 100))
    assert await store.read([K1]) == [{"a": 3}]


async def test_additions_from_many_clients_at_once_are_exact(subject: Subject) -> None:
    """None is lost, none counts twice, though each batch is sent twice at the same time."""
    stores = [subject.open() for _ in range(4)]

    async def send(at: int, number: int) -> None:
        batch = Batch(f"{{t}}:w:{at}", number, 100)
        deltas = {K1: {"a": 1, f"of {at}": number}, K2: {"b": at}}
        await asyncio.gather(*(stores[at].add(batch, added(deltas)) for _ in range(2)))

    async def client(at: int) -> None:
        for number in range(1, 26):
            await send(at, number)

    await asyncio.gather(*(client(at) for at in range(4)))
    assert await stores[0].read([K1, K2]) == [
        {"a": 100, "of 0": 325, "of 1": 325, "of 2": 325, "of 3": 325},
        {"b": 25 * (0 + 1 + 2 + 3)},
    ]


async def test_keys_expire_after_the_last_addition(subject: Subject) -> None:
    """Each addition starts the time anew, for its own keys."""
    store = subject.open()
    sender = Sender(store)
    await sender.add({K1: {"a": 1}, K2: {"a": 1}}, 100)
    subject.expire(60)
    await sender.add({K1: {"a": 1}}, 100)
    subject.expire(60)
    assert await store.read([K1, K2]) == [{"a": 2}, {}]
    subject.expire(60)
    assert await store.read([K1]) == [{}]
    await sender.add({K1: {"a": 7}}, 100)
    assert await store.read([K1]) == [{"a": 7}]


async def test_what_is_added_to_several_keys_lives_in_each_for_a_time_of_its_own(
    subject: Subject,
) -> None:
    """As a slot is kept for hours and a month for a year."""
    store = subject.open()
    counts = {"fast|chat|": {"n": 1, "tokens": 7}, "plain|chat|": {"n": 2}}
    additions = [
        Addition(counts, {K1: 100, K2: 1000}),
        Addition({"fast|chat|": {"n": 10}}, {K1: 100}),
    ]
    assert await store.add(Batch(BATCH_KEY, 1, 100), additions) == 0
    assert await store.read([K1, K2]) == [
        {"fast|chat|n": 11, "fast|chat|tokens": 7, "plain|chat|n": 2},
        {"fast|chat|n": 1, "fast|chat|tokens": 7, "plain|chat|n": 2},
    ]
    subject.expire(500)
    assert [len(fields) for fields in await store.read([K1, K2])] == [0, 3]


async def test_all_clients_are_told_the_same_time(subject: Subject) -> None:
    """Whatever their hosts think; nothing is kept for it."""
    one, two = subject.open(), subject.open()
    first, second, third = [await store.time(K1) for store in (one, two, one)]
    assert first <= second <= third <= first + TIMEOUT_S
    assert await one.read([K1]) == [{}]


async def test_a_batch_is_remembered_as_long_as_what_it_added(subject: Subject) -> None:
    """So sending it again after any outage cannot make it count twice."""
    store = subject.open()
    await store.add(Batch(BATCH_KEY, 1, 100), added({K1: {"a": 1}}, 100))
    subject.expire(99)
    await store.add(Batch(BATCH_KEY, 1, 100), added({K1: {"a": 1}}, 100))
    assert await store.read([K1]) == [{"a": 1}]
    subject.expire(2)
    await store.add(Batch(BATCH_KEY, 1, 100), added({K1: {"a": 1}}, 100))
    assert await store.read([K1]) == [{"a": 1}]


async def test_a_reply_is_the_caller_s_own(subject: Subject) -> None:
    """Changing it changes nothing in the store."""
    store = subject.open()
    deltas = {K1: {"a": 1}}
    await Sender(store).add(deltas)
    deltas[K1]["a"] = 5
    [first] = await store.read([K1])
    assert isinstance(first, dict)
    first["a"] = 9
    assert await store.read([K1]) == [{"a": 1}]


async def test_a_document_is_written_over_the_version_that_was_read(subject: Subject) -> None:
    """Nobody writes over what he has not seen; versions count from 1, and any bytes are kept."""
    store, other = subject.open(), subject.open()
    assert await store.get("{d}:1") is None
    assert await store.put("{d}:1", b"\x00first\xff", expected=0)
    assert await other.get("{d}:1") == Document(1, b"\x00first\xff")
    assert not await other.put("{d}:1", b"late", expected=0)
    assert await other.put("{d}:1", b"second", expected=1)
    assert not await store.put("{d}:1", b"late", expected=1)
    subject.expire(10**8)
    assert await store.get("{d}:1") == Document(2, b"second")
    assert await store.get("{d}:2") is None


async def test_a_document_s_log_grows_only_with_the_document(subject: Subject) -> None:
    """What was refused leaves no entry; the newest are read, the oldest of them first."""
    store = subject.open()
    assert list(await store.log("{d}:1", 10)) == []
    assert await store.put("{d}:1", b"1", expected=0, entries=[b"a", b"b"])
    assert not await store.put("{d}:1", b"x", expected=0, entries=[b"never"])
    assert await store.put("{d}:1", b"2", expected=1, entries=[b"c"])
    assert list(await store.log("{d}:1", 10)) == [b"a", b"b", b"c"]
    assert list(await store.log("{d}:1", 2)) == [b"b", b"c"]
    assert list(await store.log("{d}:1", 0)) == []
    assert list(await store.log("{d}:2", 10)) == []


async def test_of_many_writers_at_once_one_succeeds(subject: Subject) -> None:
    """However many have read the same version; and all know which."""
    stores = [subject.open() for _ in range(6)]
    for expected in range(3):
        done = await asyncio.gather(
            *(
                store.put("{d}:1", b"%d" % at, expected=expected, entries=[b"%d" % at])
                for at, store in enumerate(stores)
            )
        )
        assert sum(done) == 1
        kept = await stores[0].get("{d}:1")
        assert kept == Document(expected + 1, b"%d" % done.index(True))
    assert len(await stores[0].log("{d}:1", 10)) == 3


async def test_a_secret_is_the_first_that_was_kept(subject: Subject) -> None:
    """Whatever bytes it holds, and however long ago that was; keys are independent."""
    store, value = subject.open(), bytes(range(256))
    assert await store.get_or_create("s:1", value) == value
    subject.expire(10_000_000)
    assert await store.get_or_create("s:1", b"another") == value
    assert await subject.open().get_or_create("s:1", b"another") == value
    assert await store.get_or_create("s:2", b"another") == b"another"


async def test_all_who_ask_at_once_get_the_same_secret(subject: Subject) -> None:
    """Processes that start together hash alike."""
    stores = [subject.open() for _ in range(4)]
    kept = await asyncio.gather(
        *(store.get_or_create("s:1", b"%d" % at) for at, store in enumerate(stores))
    )
    assert len(set(kept)) == 1


# --- Real servers: what else may be there -----------------------------------------------------


async def test_a_secret_can_be_read_where_nothing_can_be_written(
    server: ValkeyServer, store: RedisStore
) -> None:
    """One that is not there yet is an error, as is a key that holds something else."""
    assert await store.get_or_create("s:1", b"kept") == b"kept"
    with server.client() as client:
        client.hset("s:3", "x", "y")
        with pytest.raises(StoreError, match="WRONGTYPE"):
            await store.get_or_create("s:3", b"new")
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        assert await store.get_or_create("s:1", b"new") == b"kept"
        with pytest.raises(StoreError, match=r"s:2 was not kept: .*(?i:read ?only)"):
            await store.get_or_create("s:2", b"new")


@pytest.fixture(params=["unix", "tcp"])
def server(request: pytest.FixtureRequest) -> Iterator[ValkeyServer]:
    """Real servers, empty."""
    found: ValkeyServer = request.getfixturevalue(request.param)
    with found.client() as client:
        client.flushall()
        yield found
        client.execute_command("REPLICAOF", "NO", "ONE")
        client.config_set("maxmemory", 0)
        client.flushall()


@pytest.fixture
async def store(server: ValkeyServer) -> AsyncIterator[RedisStore]:
    """A patient client of the server."""
    opened = RedisStore(server.url, TIMEOUT_S)
    yield opened
    await opened.close()


async def test_a_key_of_another_type_reads_as_empty_and_gives_way(
    server: ValkeyServer, store: RedisStore
) -> None:
    """Garbage costs what it replaced, never the sums beside it."""
    sender = Sender(store)
    await sender.add({K2: {"a": 1}})
    with server.client() as client:
        client.set(K1, "garbage")
    assert await store.read([K1, K2]) == [{}, {"a": 1}]
    assert await sender.add({K1: {"a": 2}, K2: {"a": 2}}) == 0
    assert await store.read([K1, K2]) == [{"a": 2}, {"a": 3}]


async def test_a_value_that_is_no_integer_is_left_out_and_refuses_its_increments(
    server: ValkeyServer, store: RedisStore
) -> None:
    """They are counted; the fields beside it are exact. Nor is a number that no server adds up."""
    with server.client() as client:
        garbage = {"bad": "x", "float": "1.5", "empty": "", b"\xff\xfe": "1", "huge": "9" * 400}
        client.hset(K1, mapping={**garbage, "high": str(2**63), "low": str(-(2**63) - 1), "a": "4"})
    assert await store.read([K1]) == [{"a": 4}]
    assert await Sender(store).add({K1: {"bad": 1, "a": 1, "float": 1}}) == 2
    assert await store.read([K1]) == [{"a": 5}]


async def test_a_sum_that_would_overflow_is_refused(store: RedisStore) -> None:
    """Rather than wrapped around."""
    sender = Sender(store)
    await sender.add({K1: {"a": 2**63 - 1}})
    assert await sender.add({K1: {"a": 1, "b": 1}}) == 1
    assert await store.read([K1]) == [{"a": 2**63 - 1, "b": 1}]


@pytest.mark.parametrize("kind", ["text", "hash"])
async def test_garbage_in_a_batch_s_key_does_not_stop_its_sender(
    server: ValkeyServer, store: RedisStore, kind: str
) -> None:
    """It is overwritten."""
    with server.client() as client:
        client.set(BATCH_KEY, "x") if kind == "text" else client.hset(BATCH_KEY, "x", "y")
    for _ in range(2):
        assert await store.add(Batch(BATCH_KEY, 1, 100), added({K1: {"a": 1}}, 100)) == 0
    assert await store.read([K1]) == [{"a": 1}]


async def test_a_server_that_forgot_the_script_is_taught_again(
    server: ValkeyServer, store: RedisStore
) -> None:
    """A restart or an operator empties its cache."""
    sender = Sender(store)
    await sender.add({K1: {"a": 1}})
    with server.client() as client:
        client.script_flush()
    await sender.add({K1: {"a": 1}})
    assert await store.read([K1]) == [{"a": 2}]


async def test_a_server_that_cannot_write_takes_nothing_and_can_be_asked_again(
    server: ValkeyServer, store: RedisStore
) -> None:
    """Read-only, or out of memory: the whole batch is refused, and counts once later."""
    batch = Batch(BATCH_KEY, 1, 100)
    deltas = {K1: {"a": 1}, K2: {"a": 1}}
    with server.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreError, match=r"(?i)read ?only"):
            await store.add(batch, added(deltas))
        client.execute_command("REPLICAOF", "NO", "ONE")
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreError, match=r"(?i)memory"):
            await store.add(batch, added(deltas))
        client.config_set("maxmemory", 0)
    assert await store.read([K1, K2]) == [{}, {}]
    for _ in range(2):
        assert await store.add(batch, added(deltas)) == 0
    assert await store.read([K1, K2]) == [{"a": 1}, {"a": 1}]


async def test_a_frozen_server_is_an_error_in_time_and_works_when_it_thaws(
    server: ValkeyServer,
) -> None:
    """What was sent meanwhile counts at most once, whether the server had kept it or not."""
    store = RedisStore(server.url, SHORT_S)
    sender = Sender(store)
    await sender.add({K1: {"a": 1}})
    loop = asyncio.get_running_loop()
    with frozen(server.pid):
        for call in (
            lambda: store.add(Batch(BATCH_KEY, 2, 100), added({K1: {"a": 10}}, 100)),
            lambda: store.add(Batch(BATCH_KEY, 2, 100), added({K1: {"a": 10}}, 100)),
            lambda: store.read([K1]),
        ):
            began = loop.time()
            with pytest.raises(StoreError):
                await call()
            assert loop.time() - began < SHORT_S + 2.0  # the machine may be busy
    patient = RedisStore(server.url, TIMEOUT_S)
    await patient.add(Batch(BATCH_KEY, 2, 100), added({K1: {"a": 10}}, 100))
    assert await patient.read([K1]) == [{"a": 11}]
    assert await store.read([K1]) == [{"a": 11}]
    await store.close()
    await patient.close()


async def test_no_server_is_an_error_at_once(folder: Path) -> None:
    """With the reason, and closing is harmless."""
    for url in (f"unix://{folder}/none", "redis://127.0.0.1:1/0"):
        store = RedisStore(url, TIMEOUT_S)
        with pytest.raises(StoreError, match=r"(?i)connect"):
            await store.read([K1])
        with pytest.raises(StoreError):
            await Sender(store).add({K1: {"a": 1}})
        await store.close()


async def test_a_refused_password_is_an_error_that_does_not_show_it(server: ValkeyServer) -> None:
    """Neither ours nor anybody's."""
    url = f"{server.url}?password=s3cret"
    with server.client() as client:
        client.config_set("requirepass", "0ther")
        store = RedisStore(url, TIMEOUT_S)
        with pytest.raises(StoreError) as caught:
            await store.read([K1])
        await store.close()
        client.config_set("requirepass", "")
    assert "s3cret" not in str(caught.value)


async def test_the_permissions_that_are_documented_suffice(server: ValkeyServer) -> None:
    """And are no more than what is used: without any one of them something fails."""
    page = (Path(__file__).parents[2] / "docs/stores.md").read_text("utf-8")
    [rule] = re.findall(r"^ACL SETUSER specroute (.*)$", page, re.MULTILINE)
    words = rule.replace("PASSWORD", "pw").replace("PREFIX", "p").split()
    separator = "&" if "?" in server.url else "?"
    url = f"{server.url}{separator}username=specroute&password=pw"
    with server.client() as client:
        for left_out in [None, *(word for word in words if word.startswith("+"))]:
            client.execute_command("ACL", "DELUSER", "specroute")
            kept = [word for word in words if word != left_out]
            client.execute_command("ACL", "SETUSER", "specroute", *kept)
            client.script_flush()
            client.flushall()
            client.set("{p:m}:k", "of another type")
            refused = await _refusal(url)
            if left_out is None:
                assert refused is None
            else:
                assert re.search("no permission|can't run", refused or ""), (left_out, refused)
        client.execute_command("ACL", "DELUSER", "specroute")


async def _refusal(url: str) -> str | None:
    """Does all that is ever done with a store; what was refused, if anything."""
    store = RedisStore(url, TIMEOUT_S)
    try:
        await store.time("{p}:clock")
        await store.add(Batch("{p:m}:w", 1, 100), added({"{p:m}:k": {"a": 1}}))
        await store.read(["{p:m}:k"])
        await store.get_or_create("p:secret", b"x")
        await store.put("{p:m}:d", b"x", expected=0, entries=[b"x"])
        await store.get("{p:m}:d")
        await store.log("{p:m}:d", 1)
    except StoreError as error:
        return str(error)
    finally:
        await store.close()
    return None


async def test_a_batch_as_large_as_after_a_long_outage_goes_in_one_call(store: RedisStore) -> None:
    """Within the time that a call may take."""
    fields = {f"arm|class|field {number}": number for number in range(50_000)}
    assert await Sender(store).add({K1: fields, K2: fields}) == 0
    [read] = await store.read([K2])
    assert (len(read), sum(read.values())) == (50_000, sum(range(50_000)))


# --- The embedded server ----------------------------------------------------------------------


async def until_it_answers(store: CounterStore) -> Mapping[str, int]:
    """Asks again until the store answers; its own attempts take as long as they take."""
    async with asyncio.timeout(20):
        while True:
            try:
                [found] = await store.read([K1])
            except StoreError:
                await asyncio.sleep(0)
            else:
                return found


async def test_a_killed_server_comes_back_by_itself_with_its_data(own: EmbeddedStore) -> None:
    """Whoever killed it, and as often as they do."""
    sender = Sender(own)
    for times in range(1, 3):
        await sender.add({K1: {"a": 1}})
        killed = own.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        assert await until_it_answers(own) == {"a": times}
        assert own.pid != killed


async def test_data_outlives_the_process(folder: Path) -> None:
    """The next start finds what the last one left."""
    for expected in (1, 2):
        store = EmbeddedStore(folder, TIMEOUT_S)
        await Sender(store, f"{{t}}:w{expected}").add({K1: {"a": 1}})
        assert await store.read([K1]) == [{"a": expected}]
        await store.close()


async def test_closing_ends_the_server(own: EmbeddedStore, folder: Path) -> None:
    """And lets go of the folder."""
    await own.close()
    assert own.pid is None
    with pytest.raises(FileNotFoundError), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(folder / "valkey.sock"))
    again = EmbeddedStore(folder, TIMEOUT_S)
    await again.start()
    await again.close()


async def test_a_folder_serves_one_process(
    own: EmbeddedStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one is told what to do, and the first is not disturbed."""
    monkeypatch.setattr(embedded, "_CLAIM_TIMEOUT_S", 0.05)
    second = EmbeddedStore(folder, TIMEOUT_S)
    with pytest.raises(
        ConfigError, match=r"store\.directory: .* in use by another specroute, or by .*; stop it"
    ):
        await second.start()
    with pytest.raises(StoreError, match="in use by another specroute"):
        await second.read([K1])
    await second.close()
    await Sender(own).add({K1: {"a": 1}})
    assert await own.read([K1]) == [{"a": 1}]


_PARENT = """
import asyncio, sys
from pathlib import Path
from router.stores.embedded import EmbeddedStore
from router.stores.base import Addition, Batch

async def main():
    store = EmbeddedStore(Path(sys.argv[1]), 5.0)
    await store.add(Batch("{t}:p", 1, 100), [Addition({"": {"a": 1}}, {"{t}:1": 100})])
    print(store.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_killed_proxy_leaves_its_folder_only_when_its_server_has_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers never write to one folder; the next start finds the data of the last."""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PARENT, str(folder), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    old = int(await parent.stdout.readline())
    store = EmbeddedStore(folder, TIMEOUT_S)
    with frozen(old):  # so it cannot end yet
        parent.kill()
        await parent.communicate()
        with monkeypatch.context() as patch:
            patch.setattr(embedded, "_CLAIM_TIMEOUT_S", 0.05)
            with pytest.raises(ConfigError, match="in use by another specroute"):
                await store.start()
    if sys.platform != "linux":  # there the kernel ends the server with its parent
        os.kill(old, signal.SIGTERM)
    assert await store.read([K1]) == [{"a": 1}]
    await store.close()


async def test_a_frozen_embedded_server_is_an_error_and_is_not_started_twice(folder: Path) -> None:
    """It still owns the data."""
    store = EmbeddedStore(folder, SHORT_S)
    await until_it_answers(store)
    pid = store.pid
    assert pid is not None
    with frozen(pid), pytest.raises(StoreError):
        await store.read([K1])
    assert await until_it_answers(store) == {}
    assert store.pid == pid
    await store.close()


async def test_many_first_calls_start_one_server(folder: Path) -> None:
    """However they come together."""
    store = EmbeddedStore(folder, TIMEOUT_S)
    await asyncio.gather(*(store.read([K1]) for _ in range(5)), store.start(), store.start())
    with socket_client(folder) as client:
        assert client.info("server")["process_id"] == store.pid
    await store.close()


async def test_the_server_listens_on_its_socket_only(own: EmbeddedStore, folder: Path) -> None:
    """Which is the owner's alone."""
    with socket_client(folder) as client:
        assert client.config_get("port") == {"port": "0"}
    assert (folder / "valkey.sock").stat().st_mode & 0o077 == 0


async def test_a_folder_with_a_long_path_works(folder: Path) -> None:
    """Sockets have short names; the data stays in the folder."""
    deep = folder / ("x" * 60) / ("y" * 60)
    store = EmbeddedStore(deep, TIMEOUT_S)
    await Sender(store).add({K1: {"a": 1}})
    assert await store.read([K1]) == [{"a": 1}]
    assert (deep / "appendonlydir").is_dir()
    await store.close()


async def test_a_folder_that_cannot_be_used_is_a_mistake_in_the_configuration(folder: Path) -> None:
    """Told with the key."""
    (folder / "file").write_text("")
    with pytest.raises(ConfigError, match=r"store\.directory: .* cannot be created"):
        await EmbeddedStore(folder / "file" / "x", TIMEOUT_S).start()
    (folder / "lock").mkdir()
    with pytest.raises(ConfigError, match=r"store\.directory: .* cannot be written to"):
        await EmbeddedStore(folder, TIMEOUT_S).start()


async def test_a_server_that_does_not_start_is_an_error_that_names_its_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call tries again, and works as soon as it can."""
    program = embedded.server_program()
    monkeypatch.setattr(embedded, "server_program", lambda: Path("/bin/false"))
    store = EmbeddedStore(folder, TIMEOUT_S)
    with pytest.raises(StoreError, match=r"ended with code 1; see .*valkey\.log"):
        await store.read([K1])
    monkeypatch.setattr(embedded, "server_program", lambda: folder / "absent")
    with pytest.raises(StoreError, match="could not be started"):
        await store.read([K1])
    monkeypatch.setattr(embedded, "server_program", lambda: program)
    assert await store.read([K1]) == [{}]
    await store.close()
