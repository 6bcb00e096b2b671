"""A real Valkey server of a bench's own, which may be stopped, frozen and killed."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from redis import Redis

from router.stores.embedded import server_program

_READY = b"ready to accept connections"


class Server:
    """A real server that keeps an append-only file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self.url = f"unix://{folder / 's'}"

    async def start(self) -> None:
        """Starts it, and waits until it answers."""
        self._process = await asyncio.create_subprocess_exec(
            str(server_program()),
            *("--port", "0", "--unixsocket", str(self._folder / "s"), "--dir", str(self._folder)),
            *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
            stdout=asyncio.subprocess.PIPE,
        )
        if self._process.stdout is None:
            raise RuntimeError("no output")
        async for line in self._process.stdout:
            if _READY in line.lower():
                return
        raise RuntimeError("the server did not start")

    async def stop(self) -> None:
        """Shuts it down as an operator does."""
        if self._process is not None:
            self.resume()
            self._signal(signal.SIGTERM)
            await self._process.communicate()

    def client(self) -> Redis:
        """Looks at what it holds."""
        return Redis.from_url(self.url)

    def pause(self) -> None:
        """Freezes it: connections stay, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on."""
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Kills it without a word."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            await self._process.communicate()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
