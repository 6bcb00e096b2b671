"""Many concurrent streams, many of them left in the middle: nothing may grow.

The proxy runs as a process of its own; its memory, descriptors and in-flight counters are read
before, during and after.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.backend import Backend, serving

_BODY = json.dumps(
    {
        "model": "bench-model",
        "stream": True,
        "messages": [{"role": "user", "content": "Write a short story about a lighthouse."}],
    }
).encode()
_REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    b"Content-Length: " + str(len(_BODY)).encode() + b"\r\n\r\n" + _BODY
)
_WARM_SHARE = 0.25
_READ = 65_536


@dataclass(slots=True)
class Counts:
    """What the clients saw."""

    finished: int = 0
    left: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """The proxy process at one moment."""

    seconds: float
    memory_mb: float
    descriptors: int
    in_flight: int


async def _client(port: int, rng: random.Random, counts: Counts, abort_share: float) -> None:
    while True:
        leaves_after = rng.randrange(1, 20) if rng.random() < abort_share else None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(_REQUEST)
            seen = 0
            tail = b""
            while b"0\r\n\r\n" not in tail:
                data = await reader.read(_READ)
                if not data:
                    counts.errors += 1
                    break
                seen += data.count(b"data: ")
                tail = (tail + data)[-64:]
                if leaves_after is not None and seen >= leaves_after:
                    counts.left += 1
                    break
            else:
                counts.finished += 1
            writer.close()
        except (ConnectionError, OSError):
            counts.errors += 1


def _config(folder: Path, urls: list[str]) -> Path:
    pools = [
        {
            "name": name,
            "method": method,
            "engine": "llamacpp",
            "num_speculative_tokens": k,
            "replicas": [{"url": url}],
        }
        for (name, method, k), url in zip(
            (("plain", "none", None), ("draft", "draft_model", 4)), urls, strict=True
        )
    ]
    data = {
        "listen": {"port": 0},
        "admin": {"port": 0},
        "store": {"url": "embedded:", "directory": str(folder / "store")},
        "decision_log": {"path": str(folder / "decisions.jsonl")},
        "routes": [{"model": "bench-model", "baseline": "plain", "pools": pools}],
    }
    path = folder / "specroute.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


def _state(admin: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{admin}/api/state", timeout=10) as reply:
        state: dict[str, Any] = json.load(reply)
    return state


async def _read(pid: int, admin: str, began: float) -> Reading:
    state = await asyncio.to_thread(_state, admin)
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    in_flight = sum(
        replica["in_flight"]
        for route in state["routes"]
        for pool in route["pools"]
        for replica in pool["replicas"]
    )
    return Reading(
        time.monotonic() - began,
        pages * 4096 / 1e6,
        len(list(Path(f"/proc/{pid}/fd").iterdir())),
        in_flight,
    )


async def soak(*, streams: int, seconds: float, abort_share: float) -> tuple[list[Reading], Counts]:
    """Runs the soak; returns readings over its course and what the clients saw."""
    counts = Counts()
    plain = Backend(events=64, gap_s=0.02, tokens_per_step=1.0)
    draft = Backend(events=64, gap_s=0.01, tokens_per_step=2.0)
    with tempfile.TemporaryDirectory() as name:
        async with serving(plain) as plain_url, serving(draft) as draft_url:
            config = _config(Path(name), [plain_url, draft_url])
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "router", "serve", "-c", str(config)),
                *("--log-level", "error"),
                stdout=asyncio.subprocess.PIPE,
            )
            try:
                readings = await _course(
                    process, counts, streams=streams, seconds=seconds, abort_share=abort_share
                )
            finally:
                process.terminate()
                await process.wait()
    return readings, counts


async def _course(
    process: asyncio.subprocess.Process,
    counts: Counts,
    *,
    streams: int,
    seconds: float,
    abort_share: float,
) -> list[Reading]:
    if process.stdout is None:
        raise RuntimeError("no output")
    data_line = (await process.stdout.readline()).decode().split()
    admin_line = (await process.stdout.readline()).decode().split()
    port = int(data_line[1].removesuffix("/v1").rsplit(":", 1)[1])
    admin = admin_line[1].rstrip("/")
    began = time.monotonic()
    readings = [await _read(process.pid, admin, began)]
    rng = random.Random(1)
    clients = [
        asyncio.ensure_future(_client(port, random.Random(rng.random()), counts, abort_share))
        for _ in range(streams)
    ]
    steps = 10
    for step in range(steps):
        await asyncio.sleep(seconds / steps)
        readings.append(await _read(process.pid, admin, began))
        print(f"soak: {step + 1}/{steps} {readings[-1]} {counts}", file=sys.stderr)
    for client in clients:
        client.cancel()
    for client in clients:
        with suppress(asyncio.CancelledError):
            await client
    last = await _read(process.pid, admin, began)
    for _ in range(100):
        if last.in_flight == 0:
            break
        await asyncio.sleep(0.1)
        last = await _read(process.pid, admin, began)
    readings.append(last)
    return readings


def tables(*, streams: int, seconds: float, abort_share: float = 0.3) -> str:
    """The course of the soak as a Markdown table."""
    readings, counts = asyncio.run(soak(streams=streams, seconds=seconds, abort_share=abort_share))
    rows = [
        f"| {r.seconds:.0f} | {r.memory_mb:.0f} | {r.descriptors} | {r.in_flight} |"
        for r in readings
    ]
    warm = readings[max(1, round(len(readings) * _WARM_SHARE))]
    growth = readings[-2].memory_mb / warm.memory_mb - 1
    return (
        f"{streams} concurrent streams, {abort_share:.0%} left in the middle: "
        f"{counts.finished:,} finished, {counts.left:,} left, {counts.errors} errors; memory "
        f"{growth:+.1%} from the first quarter to the end; {readings[-1].in_flight} in flight "
        "after the last client had gone.\n\n"
        "| s | memory MB | descriptors | in flight |\n|---:|---:|---:|---:|\n"
        + "\n".join(rows)
        + "\n"
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=120.0)
    arguments = parser.parse_args()
    print(tables(streams=arguments.streams, seconds=arguments.seconds))


if __name__ == "__main__":
    main()
