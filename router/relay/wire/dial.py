"""Makes connections: name, address, TCP, TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Any

from aiohappyeyeballs import AddrInfoType, start_connection

from router.relay.wire.connection import Connection, Owner
from router.relay.wire.origin import Origin

_NEXT_ADDRESS_S = 0.25
"""After so long the next address of a name is tried beside the one before it (RFC 8305)."""

Addresses = Sequence[AddrInfoType]


def trusting_system() -> ssl.SSLContext:
    """TLS that believes whom the system believes."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Dialler:
    """Makes connections to one server."""

    def __init__(self, origin: Origin, tls: ssl.SSLContext | None) -> None:
        self._origin = origin
        self._tls = tls
        self._looking_up: asyncio.Future[Any] | None = None

    async def dial(self, owner: Owner) -> Connection:
        """A new connection.

        Raises:
            OSError: There is none to be had.
            ValueError: The host's name is none.
        """
        loop = asyncio.get_running_loop()
        addresses = await self._addresses(loop)
        to = _only(addresses)
        if to is None:
            to = {
                "sock": await start_connection(
                    addresses, happy_eyeballs_delay=_NEXT_ADDRESS_S, interleave=1
                )
            }
        _, connection = await loop.create_connection(
            lambda: Connection(loop, owner),
            ssl=self._tls,
            server_hostname=None if self._tls is None else self._origin.host.rstrip("."),
            **to,
        )
        return connection

    async def _addresses(self, loop: asyncio.AbstractEventLoop) -> Addresses:
        literal = _literal(self._origin)
        if literal is not None:
            return [literal]
        # Look-ups occupy threads, and those of a dead name server do so for long: one at a time,
        # for all that wait, so that one server's name cannot use up the threads of the others.
        if self._looking_up is None or self._looking_up.done():
            self._looking_up = loop.run_in_executor(
                None, _look_up, self._origin.host, self._origin.port
            )
            # All who wait may leave before it fails.
            self._looking_up.add_done_callback(lambda done: done.cancelled() or done.exception())
        found: Addresses = await asyncio.shield(self._looking_up)
        return found


def _look_up(host: str, port: int) -> Addresses:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _only(addresses: Addresses) -> dict[str, Any] | None:
    """Where to connect if there is no choice, which the loop by itself does with less work."""
    if len(addresses) != 1:
        return None
    [(family, _, _, _, address)] = addresses
    if family == socket.AF_INET6 and address[3:] != (0,):
        return None  # a link's address means nothing without its link
    return {"host": address[0], "port": address[1]}


def _literal(origin: Origin) -> AddrInfoType | None:
    for family, rest in ((socket.AF_INET, ()), (socket.AF_INET6, (0, 0))):
        try:
            socket.inet_pton(family, origin.host)
        except OSError:
            continue
        address = (origin.host, origin.port, *rest)
        return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address
    return None
