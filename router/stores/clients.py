"""URL → a client of Redis or Valkey: one server, Sentinel or Cluster. It connects nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import Connection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from router.errors import ConfigError
from router.stores.patience import MOST

Client = Redis | RedisCluster
Clients = tuple[Client, tuple[Client, ...]]
"""The one to ask, and those that it asks itself; all want to be closed."""

_HOW = (
    "write redis://HOST:PORT/NUMBER, rediss://…, unix:///PATH, "
    "redis+sentinel://HOST:PORT,HOST:PORT/MASTER/NUMBER or redis+cluster://HOST:PORT,HOST:PORT"
)
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_SENTINEL_PORT, _PORT = 26379, 6379
_OF_SENTINELS = "sentinel_"


def open_clients(url: str, timeout_s: float) -> Clients:
    """A client that makes its first connection when it is first used.

    Options come as `?name=value`, named as the client library names them: `ssl_ca_certs`,
    `ssl_certfile`, `ssl_keyfile`, `ssl_cert_reqs`, `ssl_check_hostname`, `client_name`, …;
    `sentinel_username` and `sentinel_password` are the sentinels' own.

    Raises:
        ConfigError: The URL cannot be understood, or names a file that is not there.
    """
    try:
        return _clients(url, timeout_s)
    except (ValueError, TypeError):  # may quote the URL and the password in it
        raise ConfigError(f"store.url: not a URL that can be understood; {_HOW}") from None


def _clients(url: str, timeout_s: float) -> Clients:
    scheme, _, rest = url.partition("://")
    base, _, form = scheme.partition("+")
    common: dict[str, Any] = {
        "socket_timeout": MOST * timeout_s,  # each call has a limit of its own
        "socket_connect_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),  # the writer and the reader try again by themselves
    }
    if not form:
        _checked(parse_url(url))
        single: Redis = Redis.from_url(url, **common)
        return single, ()
    location, _, query = rest.partition("?")
    access, _, place = location.rpartition("@")
    hosts, _, path = place.partition("/")
    if not hosts:
        raise ValueError("no host")
    default = _SENTINEL_PORT if form == "sentinel" else _PORT
    addresses = [_address(host, default) for host in hosts.split(",")]
    ours, theirs = _told_apart(f"{base}://{access}{'@' if access else ''}host?{query}")
    if form == "cluster":
        if path.strip("/"):
            raise ValueError("a cluster has no databases")
        nodes = [ClusterNode(host, port) for host, port in addresses]
        return RedisCluster(startup_nodes=nodes, **common, **ours), ()
    name, _, number = path.partition("/")
    if not name:
        raise ValueError("no master")
    asked = {**common, "socket_timeout": timeout_s, **theirs}
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        addresses, sentinel_kwargs=asked, **common, **ours
    )
    master: Redis = sentinel.master_for(unquote(name), redis_class=Redis, db=int(number or 0))
    return master, tuple(sentinel.sentinels)


def _address(host: str, default: int) -> tuple[str, int]:
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise ValueError("no host")
    return parts.hostname, parts.port or default


def _told_apart(url: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of connections to servers, and to sentinels."""
    parsed = dict(parse_url(url))
    theirs = {
        name.removeprefix(_OF_SENTINELS): parsed.pop(name)
        for name in list(parsed)
        if name.startswith(_OF_SENTINELS)
    }
    options = _checked(parsed)
    options.pop("host", None)
    if options.pop("connection_class", None) is SSLConnection:
        options["ssl"] = True
    shared = {name: value for name, value in options.items() if name.startswith("ssl")}
    return options, {**shared, **theirs}


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, if a connection could be made with them."""
    found = dict(options)
    kind = found.get("connection_class", Connection)
    if found.get("path") is None:
        kind(**{name: value for name, value in found.items() if name != "connection_class"})
    for name in _FILES:
        file = found.get(name)
        if file is not None and not Path(file).is_file():
            raise ConfigError(f"store.url: {name}: there is no file {file}")
    return found
