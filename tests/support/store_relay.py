"""Stands between a store and its clients: encrypts, holds back, cuts off."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

TLS = Path(__file__).parent / "tls"
CA, CERTIFICATE, CLIENT = TLS / "ca.pem", TLS / "localhost.pem", TLS / "client.pem"
_READ = 65_536


class StoreRelay:
    """Passes bytes on; what a test wants to go wrong goes wrong between two of them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.open = asyncio.Event()
        """Replies are held back while it is not set."""
        self.open.set()
        self.held = asyncio.Event()
        """A reply is being held back."""
        self.cut_after: int | None = None
        """Bytes of the next reply that are passed on before its connection ends."""
        self.cuts = 0
        self.connections = 0
        self.url = ""
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        self._writers.add(writer)
        below = await asyncio.open_connection("127.0.0.1", self._port)
        with suppress(OSError, ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._up(reader, below[1]))
                group.create_task(self._down(below[0], writer))
        for end in (writer, below[1]):
            end.close()
            with suppress(OSError):
                await end.wait_closed()
        self._writers.discard(writer)

    def drop(self) -> None:
        """Ends all connections; from Python 3.12 on a server is closed only then."""
        for writer in self._writers:
            writer.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_READ):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_READ):
            if not self.open.is_set():
                self.held.set()
                await self.open.wait()
            if self.cut_after is not None:
                data, self.cut_after = data[: self.cut_after], None
                self.cuts += 1
                writer.write(data)
                await writer.drain()
                break
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def store_relay(
    port: int, *, tls: bool = False, client_certificates: bool = False
) -> AsyncIterator[StoreRelay]:
    """A relay to a server's port, on a port of its own.

    Args:
        port: Of the server.
        tls: Whether clients have to speak TLS.
        client_certificates: Whether they have to show a certificate.
    """
    context = None
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(CERTIFICATE)
        if client_certificates:
            context.load_verify_locations(CLIENT)
            context.verify_mode = ssl.CERT_REQUIRED
    relay = StoreRelay(port)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0, ssl=context)
    relay.url = f"{'rediss' if tls else 'redis'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        relay.open.set()
        server.close()
        relay.drop()
        await server.wait_closed()
