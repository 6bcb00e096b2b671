"""Pages without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from router.fleet.fetch import Page


class FakeFetch:
    """A `router.fleet.fetch.Fetch` that answers by URL; what it was not told of is a 404."""

    def __init__(self) -> None:
        self.pages: dict[str, Page | Exception] = {}
        self.asked: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.held: dict[str, asyncio.Event] = {}
        """By the beginning of a URL, what an answer from there waits for."""

    async def get(
        self, url: str, *, headers: Mapping[str, str], timeout_s: float, most_bytes: int
    ) -> Page:
        """What was prepared for the URL."""
        self.asked.append(url)
        self.headers.append(headers)
        for beginning, event in self.held.items():
            if url.startswith(beginning):
                await event.wait()
        page = self.pages.get(url, Page(404))
        if isinstance(page, Exception):
            raise page
        return page

    async def close(self) -> None:
        """Holds nothing."""
