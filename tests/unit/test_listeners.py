"""Ports that several processes share."""

from __future__ import annotations

import socket
import sys

import pytest

from router.errors import ConfigError
from router.listeners import SharedPort, url_of

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "SO_REUSEPORT"), reason="this system cannot share a port"
)


def member(port: int) -> socket.socket:
    """A process that listens there together with others."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen()
    return sock


def test_port_zero_becomes_one_port_for_all() -> None:
    """Whoever holds it takes no connection; members do; once let go it is gone."""
    shared = SharedPort("127.0.0.1", 0, "listen.port")
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", shared.port)) != 0
    with member(shared.port) as one, member(shared.port) as other:
        taken = 0
        for _ in range(40):
            with socket.create_connection(("127.0.0.1", shared.port)) as client:
                client.settimeout(5)
                for sock in (one, other):
                    sock.settimeout(0)
                    try:
                        sock.accept()[0].close()
                    except BlockingIOError:
                        continue
                    taken += 1
        assert taken == 40
    shared.close()
    shared.close()


@pytest.mark.parametrize("sharing", [False, True])
def test_port_that_is_taken(*, sharing: bool) -> None:
    """Also where its owner would share it: two programs must not get half of the requests each."""
    with socket.socket() as owner:
        if sharing:
            owner.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        owner.bind(("127.0.0.1", 0))
        owner.listen()
        port = owner.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"^listen\.port: cannot listen on 127.0.0.1:{port}"):
            SharedPort("127.0.0.1", port, "listen.port")


def test_host_that_is_none() -> None:
    """It is said with the key."""
    with pytest.raises(ConfigError, match=r"^listen\.port: cannot listen on 192\.0\.2\.1:0: "):
        SharedPort("192.0.2.1", 0, "listen.port")


@pytest.mark.skipif(sys.platform != "linux", reason="names of loopback addresses")
def test_all_addresses_of_a_name_get_the_same_number() -> None:
    """Where a name has several."""
    shared = SharedPort("localhost", 0, "listen.port")
    assert shared.port > 0
    shared.close()


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://127.0.0.1:80"),
        ("::1", "http://[::1]:80"),
        ("localhost", "http://localhost:80"),
    ],
)
def test_urls(host: str, url: str) -> None:
    """As this machine reaches it."""
    assert url_of(host, 80) == url
