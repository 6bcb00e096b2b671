"""Where addresses come from."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import dns.asyncresolver
import pytest

from router.config.routes import Pool
from router.config.servers import Discover, DnsDiscovery, Replica
from router.fleet.discovery import (
    DiscoveryError,
    DnsRecords,
    Found,
    Service,
    StaticList,
    SystemResolver,
    WatchedFile,
    discovery_for,
    servers_in,
)


class FakeResolver:
    """Records without a network."""

    def __init__(self, *, addresses: Sequence[str] = (), services: Sequence[Service] = ()) -> None:
        self._addresses = addresses
        self._services = services
        self.asked: list[str] = []

    async def addresses(self, name: str) -> Sequence[str]:
        """As prepared."""
        self.asked.append(name)
        return self._addresses

    async def services(self, name: str) -> Sequence[Service]:
        """As prepared."""
        self.asked.append(name)
        return self._services


def pool(**fields: Any) -> Pool:
    """A pool whose servers are found."""
    return Pool.model_validate({"name": "plain", "method": "none", **fields})


def records(**fields: Any) -> DnsDiscovery:
    """Settings of DNS."""
    return DnsDiscovery.model_validate({"name": "llm.test", **fields})


async def test_a_list_stays_as_it_is() -> None:
    """In the order of the configuration, weights included."""
    replicas = [Replica(url="http://b:1", weight=2.0), Replica(url="http://a:1")]
    assert await StaticList(replicas).find() == (Found("http://b:1", 2.0), Found("http://a:1"))


async def test_addresses_become_urls() -> None:
    """Each once, in a steady order, those of IPv6 in brackets."""
    resolver = FakeResolver(addresses=["fd00::2", "10.0.0.10", "10.0.0.9", "10.0.0.10"])
    found = await DnsRecords(records(port=8000), resolver).find()
    assert [item.url for item in found] == [
        "http://10.0.0.9:8000",
        "http://10.0.0.10:8000",
        "http://[fd00::2]:8000",
    ]
    assert resolver.asked == ["llm.test"]


async def test_services_become_urls_with_weights() -> None:
    """Of the best priority only; weights are relative to their mean."""
    services = [
        Service("b.test", 8001, 10, 30),
        Service("a.test", 8000, 10, 10),
        Service("spare.test", 8000, 20, 10),
    ]
    settings = records(type="SRV", scheme="https")
    found = await DnsRecords(settings, FakeResolver(services=services)).find()
    assert found == (Found("https://a.test:8000", 0.5), Found("https://b.test:8001", 1.5))


async def test_services_without_weights_are_equal() -> None:
    """And one that says 0 beside others gets next to nothing, not nothing."""
    settings = records(type="SRV")
    equal = [Service(name, 1, 0, 0) for name in ("a", "b")]
    assert {
        item.weight for item in await DnsRecords(settings, FakeResolver(services=equal)).find()
    } == {1.0}
    mixed = [Service("a", 1, 0, 0), Service("b", 1, 0, 10)]
    assert [
        item.weight for item in await DnsRecords(settings, FakeResolver(services=mixed)).find()
    ] == [0.01, 2.0]


async def test_the_system_resolves_names() -> None:
    """Those of its hosts file too; one that there is not is an error that names it."""
    assert "127.0.0.1" in await SystemResolver(15.0).addresses("localhost")
    with pytest.raises(DiscoveryError, match=r"no-such-host\.invalid"):
        await SystemResolver(15.0).addresses("no-such-host.invalid")


class _Dns(asyncio.DatagramProtocol):
    """A name server that knows one SRV record."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        question = data[12 : data.index(b"\0", 12) + 5]
        target = b"\x02s1\x03llm\x04test\x00"
        record = b"\xc0\x0c" + struct.pack("!HHIHHHH", 33, 1, 5, 6 + len(target), 1, 7, 8000)
        head = data[:2] + struct.pack("!HHHHH", 0x8180, 1, 1, 0, 0)
        self.transport.sendto(head + question + record + target, addr)


async def test_srv_records_are_asked_for_on_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the name servers that the system is configured with."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(_Dns, local_addr=("127.0.0.1", 0))
    port = transport.get_extra_info("socket").getsockname()[1]

    class Local(dns.asyncresolver.Resolver):
        """Configured with that server."""

        def __init__(self) -> None:
            super().__init__(configure=False)
            self.nameservers = ["127.0.0.1"]
            self.port = port

    monkeypatch.setattr("dns.asyncresolver.Resolver", Local)
    try:
        assert await SystemResolver(15.0).services("_http._tcp.llm.test.") == [
            Service("s1.llm.test", 8000, 1, 7)
        ]
    finally:
        transport.close()


async def test_a_name_server_that_is_silent_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the limit."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]

        class Local(dns.asyncresolver.Resolver):
            """Configured with nobody."""

            def __init__(self) -> None:
                super().__init__(configure=False)
                self.nameservers = ["127.0.0.1"]
                self.port = port

        monkeypatch.setattr("dns.asyncresolver.Resolver", Local)
        with pytest.raises(DiscoveryError, match=r"_http\._tcp\.llm\.test"):
            await SystemResolver(0.05).services("_http._tcp.llm.test.")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", ()),
        ("- http://a:1\n- http://b:2/\n", (Found("http://a:1"), Found("http://b:2"))),
        ('["http://a:1"]', (Found("http://a:1"),)),
        ("- {url: http://a:1, weight: 2}\n", (Found("http://a:1", 2.0),)),
    ],
)
def test_a_file_lists_servers(text: str, expected: tuple[Found, ...]) -> None:
    """By URL alone or with a weight, in YAML or JSON."""
    assert servers_in(text, name="f") == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "f: must be a list of URLs"),
        ("http://a:1", "f: must be a list of URLs"),
        ("{url: http://a:1}", "f: must be a list of URLs"),
        ("- [", "f: not valid YAML or JSON (line 1)"),
        ("- 2024-13-45", "f: not valid YAML or JSON: a value looks like a date or a number"),
        (
            "- http://h:1\n- http://vllm..svc:1",
            "f: [1]: the parts of a host's name between its dots",
        ),
        ("- http://a:1\n- ftp://b\n", "f: [1]: must begin with http:// or https://"),
        ("- {url: http://a:1, wait: 2}\n", "f: [0]: Extra inputs are not permitted"),
        ("- 7\n", "f: [0]: "),
        ("- http://a:1\n- http://a:1/\n", "f: listed twice: http://a:1"),
    ],
)
def test_what_is_no_list_of_servers_says_why(text: str, says: str) -> None:
    """With the place; half-written files are the rule, not the exception."""
    with pytest.raises(DiscoveryError) as caught:
        servers_in(text, name="f")
    assert str(caught.value).startswith(says)


def test_a_file_is_read_when_it_has_changed(tmp_path: Path) -> None:
    """Replaced or written over; in between it is only looked at."""
    path = tmp_path / "servers.yaml"
    path.write_text("- http://a:1\n")
    watched = WatchedFile(path)
    assert watched.check() == (Found("http://a:1"),)
    path.chmod(0o600)
    assert watched.check() == (Found("http://a:1"),)
    other = tmp_path / "new.yaml"
    other.write_text("- http://b:1\n")
    other.replace(path)
    assert watched.check() == (Found("http://b:1"),)
    path.write_text("- http://c:1\n- http://d:1\n")
    assert [item.url for item in watched.check()] == ["http://c:1", "http://d:1"]


def test_a_file_that_is_wrong_is_an_error_each_time_until_it_is_right(tmp_path: Path) -> None:
    """Missing or not to be understood."""
    path = tmp_path / "servers.yaml"
    watched = WatchedFile(path)
    with pytest.raises(DiscoveryError, match="cannot be read"):
        watched.check()
    path.write_text("nonsense")
    for _ in range(2):
        with pytest.raises(DiscoveryError, match="must be a list"):
            watched.check()
    path.write_text("- http://a:1\n")
    os.utime(path, ns=(1, 1))
    assert watched.check() == (Found("http://a:1"),)


async def test_the_configuration_decides(tmp_path: Path) -> None:
    """List, DNS or file."""
    path = tmp_path / "servers.yaml"
    path.write_text("- http://c:1\n")
    resolver = FakeResolver(addresses=["10.0.0.1"])
    pools = (
        pool(replicas=[{"url": "http://a:1"}]),
        pool(discover={"dns": {"name": "llm.test", "port": 9}}),
        pool(discover={"file": str(path)}),
    )
    found = [await discovery_for(made, resolver).find() for made in pools]
    assert [item.url for each in found for item in each] == [
        "http://a:1",
        "http://10.0.0.1:9",
        "http://c:1",
    ]
    assert Discover(file="x").interval_s == 5.0
