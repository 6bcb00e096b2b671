"""Names, addresses, TCP and TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from router.relay.wire.connection import Connection
from router.relay.wire.dial import Dialler, trusting_system
from router.relay.wire.origin import origin_of
from tests.support.flow_backend import GUARD_S

TLS = Path(__file__).parents[3] / "support" / "tls"


def trusting_tests() -> ssl.SSLContext:
    """TLS that believes the tests' own authority."""
    context = trusting_system()
    context.load_verify_locations(TLS / "ca.pem")
    return context


def showing_localhost() -> ssl.SSLContext:
    """A server's side of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "localhost.pem")
    return context


class Keeper:
    """Waits for the end of a connection."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    def free(self, connection: Connection) -> None:
        """Not asked for here."""

    def lost(self, connection: Connection) -> None:
        """It is over."""
        self.over.set()


async def listen(stack: AsyncExitStack, host: str, tls: ssl.SSLContext | None = None) -> int:
    """A server that takes connections and says nothing."""
    server = await asyncio.start_server(_be_silent, host, 0, ssl=tls)
    await stack.enter_async_context(server)
    port: int = server.sockets[0].getsockname()[1]
    return port


async def _be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await reader.read()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def dialled(url: str, tls: ssl.SSLContext | None = None) -> None:
    """Makes a connection and closes it."""
    keeper = Keeper()
    async with asyncio.timeout(GUARD_S):
        connection = await Dialler(origin_of(url), tls).dial(keeper)
        connection.cut()
        await keeper.over.wait()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_over_tcp(host: str) -> None:
    """By address and by name."""
    async with AsyncExitStack() as stack:
        port = await listen(stack, "127.0.0.1")
        await dialled(f"http://{host}:{port}")


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
async def test_over_ipv6() -> None:
    """An address in brackets."""
    async with AsyncExitStack() as stack:
        try:
            port = await listen(stack, "::1")
        except OSError:
            pytest.skip("no IPv6 here")
        await dialled(f"http://[::1]:{port}")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_over_tls(host: str) -> None:
    """The certificate must be signed by someone believed, and be for this host."""
    async with AsyncExitStack() as stack:
        port = await listen(stack, "127.0.0.1", showing_localhost())
        await dialled(f"https://{host}:{port}", trusting_tests())


async def test_a_name_with_its_last_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates are written without it."""
    async with AsyncExitStack() as stack:
        port = await listen(stack, "127.0.0.1", showing_localhost())
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
        monkeypatch.setattr("router.relay.wire.dial.socket.getaddrinfo", lambda *_, **__: found)
        await dialled(f"https://localhost.:{port}", trusting_tests())


async def test_a_certificate_of_nobody() -> None:
    """The system does not know the tests' authority."""
    async with AsyncExitStack() as stack:
        port = await listen(stack, "127.0.0.1", showing_localhost())
        with pytest.raises(ssl.SSLCertVerificationError, match="certificate"):
            await dialled(f"https://localhost:{port}", trusting_system())


async def test_a_certificate_of_another_host() -> None:
    """Signed well, but for another name."""
    async with AsyncExitStack() as stack:
        port = await listen(stack, "127.0.0.1", showing_localhost())
        dialler = Dialler(origin_of(f"https://127.0.0.2:{port}"), trusting_tests())
        server = await asyncio.start_server(_be_silent, "127.0.0.2", port, ssl=showing_localhost())
        async with server:
            with pytest.raises(ssl.SSLCertVerificationError, match=r"127\.0\.0\.2"):
                await dialler.dial(Keeper())


async def test_tls_with_a_server_that_has_none() -> None:
    """What answers in clear is no server of ours."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ssl.SSLError):
            await dialled(f"https://127.0.0.1:{port}", trusting_tests())


async def test_one_look_up_for_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead name server occupies one thread, not one for each request; leaving is no failure."""
    asked, answer = [], threading.Event()

    def look_up(host: str, port: int, **_: object) -> list[object]:
        asked.append(host)
        answer.wait(GUARD_S)
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    dialler = Dialler(origin_of("http://engine.test:1"), None)
    keeper = Keeper()
    monkeypatch.setattr("router.relay.wire.dial.socket.getaddrinfo", look_up)
    tasks = [asyncio.ensure_future(dialler.dial(keeper)) for _ in range(20)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    answer.set()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert asked == ["engine.test"]
    assert isinstance(ends[0], asyncio.CancelledError)
    assert all(isinstance(end, socket.gaierror) for end in ends[1:])
    with pytest.raises(socket.gaierror):
        await dialler.dial(keeper)
    assert asked == ["engine.test"] * 2


async def test_the_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may have addresses at which nobody listens."""
    async with AsyncExitStack() as stack:
        port = await listen(stack, "127.0.0.1")
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))
            for host in ("127.0.0.3", "127.0.0.1")
        ]
        monkeypatch.setattr("router.relay.wire.dial.socket.getaddrinfo", lambda *_, **__: found)
        await dialled(f"http://engine.test:{port}")
