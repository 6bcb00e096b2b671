"""URL → client."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import SSLConnection
from redis.asyncio.sentinel import SentinelConnectionPool

from router.errors import ConfigError
from router.stores.clients import open_clients
from router.stores.patience import MOST
from tests.support.store_relay import CA, CLIENT

SENTINELS = "h1:26379,h2:26380,[::1],h3"


def test_a_plain_url_is_one_server() -> None:
    """With the limit on every call, and options by their names in the client library."""
    client, others = open_clients("redis://us%40er:p%3Aw@h:6380/3?client_name=x", 2.5)
    assert isinstance(client, Redis)
    assert others == ()
    options = client.connection_pool.connection_kwargs
    assert {
        name: options[name]
        for name in ("host", "port", "db", "username", "password", "client_name")
    } == {
        "host": "h",
        "port": 6380,
        "db": 3,
        "username": "us@er",
        "password": "p:w",
        "client_name": "x",
    }
    assert (options["socket_timeout"], options["socket_connect_timeout"]) == (2.5 * MOST, 2.5)


def test_tls_takes_files_from_the_url() -> None:
    """Whom to trust, and who we are."""
    url = f"rediss://h?ssl_ca_certs={CA}&ssl_certfile={CLIENT}&ssl_keyfile={CLIENT}"
    client, _ = open_clients(url, 1.0)
    assert isinstance(client, Redis)
    pool = client.connection_pool
    assert pool.connection_class is SSLConnection
    assert pool.connection_kwargs["ssl_ca_certs"] == str(CA)


def test_sentinels_are_asked_for_a_master() -> None:
    """With their own password if they have one; servers and sentinels both speak TLS or neither."""
    url = f"rediss+sentinel://u:p@{SENTINELS}/my%20main/2?sentinel_password=s&ssl_ca_certs={CA}"
    client, others = open_clients(url, 1.0)
    assert isinstance(client, Redis)
    pool = client.connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert pool.service_name == "my main"
    assert (pool.connection_kwargs["db"], pool.connection_kwargs["password"]) == (2, "p")
    asked = [other.connection_pool for other in others if isinstance(other, Redis)]
    assert [(of.connection_kwargs["host"], of.connection_kwargs["port"]) for of in asked] == [
        ("h1", 26379),
        ("h2", 26380),
        ("::1", 26379),
        ("h3", 26379),
    ]
    assert {of.connection_kwargs["password"] for of in asked} == {"s"}
    assert {of.connection_class for of in asked} == {SSLConnection}


def test_a_cluster_is_found_by_any_of_its_servers() -> None:
    """It has no databases."""
    client, others = open_clients("redis+cluster://u:p@h1:7000,h2", 1.0)
    assert isinstance(client, RedisCluster)
    assert others == ()
    nodes = client.nodes_manager.startup_nodes.values()
    assert {(node.host, node.port) for node in nodes} == {("h1", 7000), ("h2", 6379)}
    with pytest.raises(ConfigError, match=r"store\.url: not a URL"):
        open_clients("redis+cluster://h1/2", 1.0)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cret@h:port/0",
        "redis://:s3cret@h?socket_timeout=s3cret",
        "redis://:s3cret@h?no_such_option=1",
        "redis+sentinel://:s3cret@h1:26379",
        "redis+sentinel://:s3cret@h1:26379/main/first",
        "redis+sentinel://:s3cret@/main",
        "redis+sentinel://:s3cret@h1:99999999/main",
        "redis+cluster://:s3cret@",
        "redis+cluster://:s3cret@h1,,h2",
        "redis+cluster://:s3cret@h?no_such_option=1",
    ],
)
def test_a_url_that_cannot_be_understood_says_how_to_write_one(url: str) -> None:
    """At the start, and without the password in it."""
    with pytest.raises(ConfigError, match=r"store\.url: not a URL .*redis\+sentinel://") as caught:
        open_clients(url, 1.0)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("scheme", ["rediss", "rediss+cluster", "rediss+sentinel"])
def test_a_file_that_is_not_there_is_told_at_the_start(scheme: str, tmp_path: Path) -> None:
    """With the option that names it."""
    with pytest.raises(ConfigError, match=r"store\.url: ssl_ca_certs: there is no file /.*/none"):
        open_clients(f"{scheme}://h/main?ssl_ca_certs={tmp_path}/none", 1.0)
