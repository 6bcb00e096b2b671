"""Ports: a server of aiohttp's, a socket, and what is said when it cannot be had."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import ExitStack

from aiohttp import web

from router.errors import ConfigError

_BACKLOG = 4096
"""Connections that may wait to be taken: Linux's own limit by default. With asyncio's 128 a rush of
clients, met by a busy moment, has some of them reset."""

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound


async def listen(
    runner: web.BaseRunner, host: str, port: int, key: str, *, shared: bool = False
) -> str:
    """Starts to listen; returns the URL.

    Args:
        runner: Serves the connections.
        host: Address.
        port: 0 for any.
        key: Of the configuration, for messages.
        shared: Whether other processes listen there too.

    Raises:
        ConfigError: The port cannot be had.
    """
    await runner.setup()
    site = web.TCPSite(runner, host, port, backlog=_BACKLOG, reuse_port=shared or None)
    try:
        await site.start()
    except OSError as error:
        raise _unavailable(host, port, key, error) from error
    return url_of(host, runner.addresses[0][1])


def url_of(host: str, port: int) -> str:
    """The URL under which this machine reaches a port of its own."""
    shown = "127.0.0.1" if host in _EVERYWHERE else host
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}"


class SharedPort:
    """Holds a port for processes that will listen on it together; takes no connection itself.

    So port 0 becomes one number for all, a port that is taken is found before anything starts, and
    the number stays ours while every process is down.
    """

    def __init__(self, host: str, port: int, key: str) -> None:
        """Takes the port.

        Raises:
            ConfigError: It cannot be had.
        """
        self._held = ExitStack()
        try:
            addresses = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            with self._held as held:
                self.port = self._take(addresses, port)
                self._held = held.pop_all()
        except OSError as error:
            raise _unavailable(host, port, key, error) from error

    def _take(self, addresses: Iterable[tuple[object, ...]], port: int) -> int:
        for family, kind, protocol, _, address in addresses:
            assert isinstance(family, int)
            assert isinstance(kind, int)
            assert isinstance(protocol, int)
            assert isinstance(address, tuple)
            place = (address[0], port, *address[2:])
            # Another program of ours that shares the same port would go unnoticed: to a socket
            # that does not share, it is taken.
            with socket.socket(family, kind, protocol) as probe:
                _prepare(probe)
                probe.bind(place)
            holder = self._held.enter_context(socket.socket(family, kind, protocol))
            _prepare(holder)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            holder.bind(place)
            port = holder.getsockname()[1]
        return port

    def close(self) -> None:
        """Lets go of the port."""
        self._held.close()


def _prepare(sock: socket.socket) -> None:
    # As asyncio does for a server.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)


def _unavailable(host: str, port: int, key: str, error: OSError) -> ConfigError:
    return ConfigError(
        f"{key}: cannot listen on {host}:{port}: {error.strerror or error}; "
        "stop what uses the port, or set another (0 picks a free one)"
    )
