"""Where the addresses of a pool's servers come from: a list, DNS or a file.

One interface: `find` gives the whole set as it is now, or says why it cannot. Keeping the last set
meanwhile is `router.fleet.finder`'s duty.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import yaml
from pydantic import ValidationError

from router.config.routes import Pool
from router.config.servers import DnsDiscovery, Replica
from router.config.yaml_errors import NO_YAML, in_words

_PORTS = {"http": 80, "https": 443}
_SMALLEST_WEIGHT = 0.01
"""Of a server whose record says 0 beside others that do not: next to nothing."""


class DiscoveryError(Exception):
    """Servers could not be found; the text says why and quotes no secrets."""


@dataclass(frozen=True, slots=True)
class Found:
    """One server."""

    url: str
    weight: float = 1.0


class Discovery(Protocol):
    """A source of addresses."""

    async def find(self) -> tuple[Found, ...]:
        """All servers there are now, in a steady order.

        Raises:
            DiscoveryError: It cannot be told.
        """


class StaticList:
    """The servers that the configuration names."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._found = _found(replicas)

    async def find(self) -> tuple[Found, ...]:
        """Always the same."""
        return self._found


# --- DNS ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Service:
    """One SRV record."""

    target: str
    port: int
    priority: int
    weight: int


class Resolver(Protocol):
    """The seam to DNS."""

    async def addresses(self, name: str) -> Sequence[str]:
        """IPv4 and IPv6 addresses.

        Raises:
            DiscoveryError: There are none, or nobody answered.
        """

    async def services(self, name: str) -> Sequence[Service]:
        """SRV records.

        Raises:
            DiscoveryError: There are none, or nobody answered.
        """


class SystemResolver:
    """Addresses as the system resolves them, its hosts file included; SRV records by its servers.

    Args:
        timeout_s: Limit of a question.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    async def addresses(self, name: str) -> Sequence[str]:
        """As `Resolver`."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                infos = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except TimeoutError as error:
            raise DiscoveryError(f"{name}: no answer within {self._timeout_s:g} s") from error
        except (OSError, UnicodeError) as error:
            raise DiscoveryError(f"{name}: {error}") from error
        return [str(info[4][0]) for info in infos]

    async def services(self, name: str) -> Sequence[Service]:
        """As `Resolver`."""
        # Only SRV needs it, and it takes a while to load.
        from dns.asyncresolver import Resolver as Stub  # noqa: PLC0415
        from dns.exception import DNSException  # noqa: PLC0415

        try:
            answer = await Stub().resolve(name, "SRV", lifetime=self._timeout_s, search=True)
        except (DNSException, OSError, ValueError) as error:  # a name that cannot be one
            raise DiscoveryError(f"{name}: {str(error) or type(error).__name__}") from error
        return [
            Service(
                record.target.to_text(omit_final_dot=True),
                record.port,
                record.priority,
                record.weight,
            )
            for record in answer
        ]


class DnsRecords:
    """The servers behind a name in DNS."""

    def __init__(self, settings: DnsDiscovery, resolver: Resolver) -> None:
        self._settings = settings
        self._resolver = resolver

    async def find(self) -> tuple[Found, ...]:
        """As `Discovery`."""
        if self._settings.type == "SRV":
            return self._by_service(await self._resolver.services(self._settings.name))
        addresses = await self._resolver.addresses(self._settings.name)
        port = self._settings.port or _PORTS[self._settings.scheme]
        ordered = sorted(set(addresses), key=_address_order)
        return tuple(Found(self._url(address, port)) for address in ordered)

    def _by_service(self, services: Sequence[Service]) -> tuple[Found, ...]:
        """Of the best priority only; weights relative to their mean, or equal where all are 0."""
        best = min((service.priority for service in services), default=0)
        chosen = sorted(
            {service for service in services if service.priority == best},
            key=lambda service: (service.target, service.port),
        )
        mean = sum(service.weight for service in chosen) / max(len(chosen), 1)
        weights = {
            self._url(service.target, service.port): (
                max(service.weight / mean, _SMALLEST_WEIGHT) if mean else 1.0
            )
            for service in chosen
        }
        return tuple(Found(url, weight) for url, weight in weights.items())

    def _url(self, host: str, port: int) -> str:
        return f"{self._settings.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _address_order(address: str) -> tuple[int, int]:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return parsed.version, int(parsed)


# --- A file ---------------------------------------------------------------------------------------


class WatchedFile:
    """The servers that a file lists, read again whenever it has changed.

    It is a list in YAML or JSON, of URLs or of what stands under `replicas` in a configuration.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, ...] | None = None
        self._found: tuple[Found, ...] = ()

    async def find(self) -> tuple[Found, ...]:
        """As `Discovery`."""
        return await asyncio.to_thread(self.check)

    def check(self) -> tuple[Found, ...]:
        """Looks at the file, and reads it if it is not the one read last.

        Raises:
            DiscoveryError: It cannot be read, or holds no list of servers.
        """
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp == self._stamp:
                return self._found
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DiscoveryError(f"{self._path}: cannot be read: {error}") from error
        self._found = servers_in(text, name=str(self._path))
        self._stamp = stamp
        return self._found


def servers_in(text: str, *, name: str) -> tuple[Found, ...]:
    """The servers that the text of a file lists.

    Raises:
        DiscoveryError: It is no list of servers.
    """
    try:
        data = yaml.safe_load(text)
    except NO_YAML as error:
        mark, words = getattr(error, "problem_mark", None), in_words(error)
        place = f" (line {mark.line + 1})" if mark else f": {words}" if words else ""
        raise DiscoveryError(f"{name}: not valid YAML or JSON{place}") from None
    if not isinstance(data, list):
        raise DiscoveryError(f"{name}: must be a list of URLs")
    replicas = []
    for number, item in enumerate(data):
        try:
            replicas.append(
                Replica.model_validate({"url": item} if isinstance(item, str) else item)
            )
        except ValidationError as error:
            detail = error.errors(include_url=False, include_input=False)[0]
            message = detail["msg"].removeprefix("Value error, ")
            raise DiscoveryError(f"{name}: [{number}]: {message}") from None
    urls = [replica.url for replica in replicas]
    twice = sorted({url for url in urls if urls.count(url) > 1})
    if twice:
        raise DiscoveryError(f"{name}: listed twice: {', '.join(twice)}")
    return _found(replicas)


def _found(replicas: Sequence[Replica]) -> tuple[Found, ...]:
    return tuple(Found(replica.url, replica.weight) for replica in replicas)


def discovery_for(pool: Pool, resolver: Resolver | None = None) -> Discovery:
    """The source that a pool's configuration asks for."""
    asked = pool.discover
    if asked is None:
        return StaticList(pool.replicas)
    if asked.file is not None:
        return WatchedFile(Path(asked.file))
    if asked.dns is None:
        raise AssertionError("one of the two is given")
    return DnsRecords(asked.dns, resolver or SystemResolver(asked.timeout_s))
