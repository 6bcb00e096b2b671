"""Whether there is a way to a server: its name, its port, its certificate."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

from router.clock import Clock
from router.doctor.findings import Finding, Level
from router.relay.wire.dial import trusting_system
from router.relay.wire.origin import Origin, origin_of

_CHECK = "reachable"
_LONGEST_HEAD = 65_536


async def reach(url: str, *, connect_s: float, clock: Clock) -> Finding:
    """Looks up the name, connects, and shakes hands where the address is https."""
    try:
        origin = origin_of(url)
    except ValueError as error:
        return _problem(f"{url} is no address: {error}", "correct the url of the replica")
    began = clock.monotonic()
    try:
        async with asyncio.timeout(connect_s):
            address = await _look_up(origin)
            named = clock.monotonic()
            await _connect(origin, address, tls=None)
            connected = clock.monotonic()
            if origin.tls:
                await _connect(origin, address, tls=trusting_system())
    except (OSError, TimeoutError) as error:
        return _explained(origin, error, connect_s)
    times = f"name {_ms(named - began)}, connection {_ms(connected - named)}"
    if origin.tls:
        times += f", TLS {_ms(clock.monotonic() - connected)}"
    return Finding(Level.OK, _CHECK, f"connects ({times})")


async def _look_up(origin: Origin) -> str:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    return str(found[0][4][0])


async def _connect(origin: Origin, address: str, *, tls: ssl.SSLContext | None) -> None:
    name = None if tls is None else origin.host.rstrip(".")
    _, writer = await asyncio.open_connection(address, origin.port, ssl=tls, server_hostname=name)
    await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):  # closed by the other side meanwhile
        await writer.wait_closed()


def _explained(origin: Origin, error: OSError | TimeoutError, limit_s: float) -> Finding:
    where = f"{origin.host}:{origin.port}"
    if isinstance(error, socket.gaierror):
        return _problem(
            f"the name {origin.host} is not known ({error.strerror})",
            "correct the url, or the name server of this machine",
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return _problem(
            f"the certificate of {where} is not believed: {error.verify_message}",
            "give the server a certificate for that name by an authority that this machine trusts "
            "(SSL_CERT_FILE names another bundle)",
        )
    if isinstance(error, ssl.SSLError):
        return _problem(
            f"{where} does not speak TLS ({error.reason or 'no handshake'})",
            "write http:// if it serves plainly, or name its TLS port",
        )
    if isinstance(error, TimeoutError):
        return _problem(
            f"{where} does not answer within {limit_s:g} s",
            "look for a firewall between here and there, or raise timeouts.connect_s of the pool",
        )
    if isinstance(error, ConnectionRefusedError):
        return _problem(
            f"nothing listens on {where}", "start the server, or correct the url of the replica"
        )
    return _problem(
        f"no connection to {where}: {error.strerror or type(error).__name__}",
        "correct the url of the replica, or the network of this machine",
    )


def _problem(text: str, remedy: str) -> Finding:
    return Finding(Level.PROBLEM, _CHECK, text, remedy)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


async def idle_close_s(
    url: str, path: str, *, clock: Clock, most_s: float, limit_s: float
) -> float | None:
    """After how long a server closes an idle connection; None if it keeps it for `most_s`.

    Raises:
        OSError: There is no connection, or it ended before an answer came.
        TimeoutError: No answer came within `limit_s`.
    """
    origin = origin_of(url)
    reader, writer = await asyncio.wait_for(
        asyncio.open_connection(
            origin.host, origin.port, ssl=trusting_system() if origin.tls else None
        ),
        limit_s,
    )
    try:
        request = f"GET {origin.prefix}{path} HTTP/1.1\r\nHost: {origin.authority}\r\n\r\n"
        writer.write(request.encode("latin-1", "replace"))
        async with asyncio.timeout(limit_s):
            if not await reader.read(_LONGEST_HEAD):
                raise ConnectionResetError("it closed the connection without an answer")
        answered = clock.monotonic()
        try:
            async with asyncio.timeout(most_s):
                while await reader.read(_LONGEST_HEAD):
                    answered = clock.monotonic()
        except TimeoutError:
            return None
        return clock.monotonic() - answered
    finally:
        await _close(writer)
