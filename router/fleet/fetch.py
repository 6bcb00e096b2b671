"""Fetches small pages from servers, many side by side, each within its own time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import aiohttp

PLACES = 256
"""Pages fetched at a time: so many servers may hang at once before one waits for another."""


class GoneError(Exception):
    """There is no HTTP server at the address."""


class LateError(Exception):
    """It did not answer in time."""


@dataclass(frozen=True, slots=True)
class Page:
    """An answer."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)
    """First value of each, by its name in lower case."""


class Fetch(Protocol):
    """The seam to the network."""

    async def get(
        self, url: str, *, headers: Mapping[str, str], timeout_s: float, most_bytes: int
    ) -> Page:
        """Fetches a page, and of its body what fits; redirects are answers.

        Raises:
            GoneError: No connection, or no HTTP.
            LateError: Time is over. Waiting for one's turn takes none of it.
        """

    async def close(self) -> None:
        """Gives everything back."""


class AiohttpFetch:
    """The real one. It keeps one session, but no connections: that new ones work is the point."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(PLACES)
        self._session: aiohttp.ClientSession | None = None

    async def get(
        self, url: str, *, headers: Mapping[str, str], timeout_s: float, most_bytes: int
    ) -> Page:
        """As `Fetch`."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        async with self._places:
            try:
                async with (
                    asyncio.timeout(timeout_s),
                    self._session.get(url, headers=headers, allow_redirects=False) as response,
                ):
                    body = b""
                    while len(body) < most_bytes:
                        piece = await response.content.read(most_bytes - len(body))
                        if not piece:
                            break
                        body += piece
                    return Page(response.status, body, _by_name(response.headers))
            except TimeoutError as error:
                raise LateError(f"no answer within {timeout_s:g} s") from error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                # A ValueError is what the codec of names says of one that cannot be looked up.
                raise GoneError(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """As `Fetch`."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _by_name(headers: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers.items():
        found.setdefault(name.lower(), value)
    return found
