"""The proxy as a process of its own, in front of stand-in engines."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.backend import MODEL

BODY = json.dumps(
    {
        "model": MODEL,
        "stream": True,
        "messages": [{"role": "user", "content": "Write a short story about a lighthouse."}],
    }
).encode()
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    b"Content-Length: " + str(len(BODY)).encode() + b"\r\n\r\n" + BODY
)
"""A streamed chat request, ready to be written to a socket."""

_STOP_TIMEOUT_S = 60.0
_POOLS = (("plain", "none", None), ("draft", "draft_model", 4))


@dataclass(frozen=True, slots=True)
class Proxy:
    """A running proxy."""

    pid: int
    port: int
    admin: str

    async def state(self) -> dict[str, Any]:
        """What it shows at `/api/state`."""
        return await asyncio.to_thread(_state, self.admin)

    def store_pid(self) -> int:
        """Process id of its embedded store."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for child in children:
            if "valkey" in Path(f"/proc/{child}/cmdline").read_text():
                return int(child)
        raise RuntimeError("the proxy has no embedded store")


@asynccontextmanager
async def running(urls: Sequence[str]) -> AsyncIterator[Proxy]:
    """Starts a proxy with a plain and a drafting pool; stops it at the end."""
    with tempfile.TemporaryDirectory() as name:
        async with started(_config(Path(name), urls), Path(name)) as proxy:
            yield proxy


@asynccontextmanager
async def started(config: Mapping[str, Any], folder: Path) -> AsyncIterator[Proxy]:
    """Starts a proxy of a configuration; stops it at the end.

    Args:
        config: With free ports (0).
        folder: Where it may keep its configuration.
    """
    path = folder / f"specroute-{secrets.token_hex(4)}.yaml"
    path.write_text(yaml.safe_dump(dict(config)))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "serve", "-c", str(path)),
        *("--log-level", "error"),
        stdout=asyncio.subprocess.PIPE,
    )
    if process.stdout is None:
        raise RuntimeError("no output")
    try:
        data_line = (await process.stdout.readline()).decode().split()
        admin_line = (await process.stdout.readline()).decode().split()
        port = int(data_line[1].removesuffix("/v1").rsplit(":", 1)[1])
        yield Proxy(process.pid, port, admin_line[1].rstrip("/"))
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            raise RuntimeError("the proxy did not end after SIGTERM") from None


def _state(admin: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{admin}/api/state", timeout=10) as reply:
        state: dict[str, Any] = json.load(reply)
    return state


def _config(folder: Path, urls: Sequence[str]) -> dict[str, Any]:
    pools = [
        {
            "name": name,
            "method": method,
            "engine": "llamacpp",
            "num_speculative_tokens": k,
            "replicas": [{"url": url}],
        }
        for (name, method, k), url in zip(_POOLS, urls, strict=True)
    ]
    return {
        "listen": {"port": 0},
        "admin": {"port": 0},
        "store": {"url": "embedded:", "directory": str(folder / "store")},
        "decision_log": {"path": str(folder / "decisions.jsonl")},
        "routes": [{"model": MODEL, "baseline": "plain", "pools": pools}],
    }
