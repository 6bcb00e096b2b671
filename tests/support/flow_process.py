"""The program in a process of its own, as an operator runs it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from router.cli.admin import fetch_state
from router.config.models import Config

SLOW_S = 40.0
"""A process takes seconds to import everything on a busy machine."""


def write(config: Config, path: Path) -> Path:
    """The file of a configuration, there at once and whole; JSON is YAML."""
    made = path.with_suffix(".new")
    made.write_text(json.dumps(config.model_dump(mode="json", exclude_none=True)))
    return made.replace(path)


async def command(*arguments: str | Path) -> Process:
    """Starts the program in a process of its own."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "router", *map(str, arguments)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        env={**os.environ, "PYTHONWARNINGS": "error", "NO_COLOR": "1"},
    )


async def outcome(process: Process) -> tuple[int, str, str]:
    """Exit code and both outputs of a process that ends by itself."""
    async with asyncio.timeout(SLOW_S):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


@dataclass(frozen=True, slots=True)
class Serving:
    """A running `specroute serve`."""

    process: Process
    url: str
    admin: str

    async def state(self) -> dict[str, Any]:
        """What it shows at `/api/state`."""
        return await asyncio.to_thread(fetch_state, self.admin)

    async def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Asks for its state until something holds of it; returns that state."""
        state: dict[str, Any] = {}
        try:
            async with asyncio.timeout(SLOW_S):
                while not holds(state := await self.state()):
                    pass
        except TimeoutError:
            pytest.fail(f"it never held; the last state: {state}")
        return state


@asynccontextmanager
async def serving(file: Path, *arguments: str) -> AsyncIterator[Serving]:
    """`specroute serve` in a process of its own, once it listens."""
    process = await command("serve", "-c", file, *arguments)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(SLOW_S):
            clients = (await process.stdout.readline()).decode().split()
            status = (await process.stdout.readline()).decode().split()
        assert (clients[:1], status[:1]) == (["clients"], ["status"])
        assert clients[2:4] == ["models:", "tiny"]
        yield Serving(process, clients[1].removesuffix("/v1"), status[1].rstrip("/"))
    finally:
        if process.returncode is None:
            process.kill()
        # Both outputs end when workers of a killed one are gone too.
        await outcome(process)
