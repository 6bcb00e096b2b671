"""Many concurrent streams, many of them left in the middle: nothing may grow.

The proxy runs as a process of its own; its memory, descriptors and in-flight counters are read
before, during and after.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.backend import Backend, serving
from bench.proxy import REQUEST, Proxy, running

_READINGS = 10
_WARM_SHARE = 0.25
_READ = 65_536


@dataclass(slots=True)
class Counts:
    """What the clients saw."""

    finished: int = 0
    left: int = 0
    cut: int = 0
    """Answers that ended before their end."""
    refused: int = 0
    """Connections that were not taken, or reset."""


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
            writer.write(REQUEST)
            seen = 0
            tail = b""
            while b"0\r\n\r\n" not in tail:
                data = await reader.read(_READ)
                if not data:
                    counts.cut += 1
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
            counts.refused += 1


async def _read(proxy: Proxy, began: float) -> Reading:
    state = await proxy.state()
    pages = int(Path(f"/proc/{proxy.pid}/statm").read_text().split()[1])
    in_flight = sum(
        replica["in_flight"]
        for route in state["routes"]
        for pool in route["pools"]
        for replica in pool["replicas"]
    )
    return Reading(
        time.monotonic() - began,
        pages * resource.getpagesize() / 1e6,
        len(list(Path(f"/proc/{proxy.pid}/fd").iterdir())),
        in_flight,
    )


async def soak(*, streams: int, seconds: float, abort_share: float) -> tuple[list[Reading], Counts]:
    """Runs the soak; returns readings over its course and what the clients saw."""
    counts = Counts()
    plain = Backend(events=64, gap_s=0.02, tokens_per_step=1.0)
    draft = Backend(events=64, gap_s=0.01, tokens_per_step=2.0)
    async with (
        serving(plain) as plain_url,
        serving(draft) as draft_url,
        running([plain_url, draft_url]) as proxy,
    ):
        readings = await _course(
            proxy, counts, streams=streams, seconds=seconds, abort_share=abort_share
        )
    return readings, counts


async def _course(
    proxy: Proxy, counts: Counts, *, streams: int, seconds: float, abort_share: float
) -> list[Reading]:
    began = time.monotonic()
    readings = [await _read(proxy, began)]
    rng = random.Random(1)
    clients = [
        asyncio.ensure_future(_client(proxy.port, random.Random(rng.random()), counts, abort_share))
        for _ in range(streams)
    ]
    for step in range(_READINGS):
        await asyncio.sleep(seconds / _READINGS)
        readings.append(await _read(proxy, began))
        print(f"soak: {step + 1}/{_READINGS} {readings[-1]} {counts}", file=sys.stderr)
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    last = await _read(proxy, began)
    for _ in range(100):
        if last.in_flight == 0:
            break
        await asyncio.sleep(0.1)
        last = await _read(proxy, began)
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
        f"{counts.finished:,} finished, {counts.left:,} left, {counts.cut} cut, "
        f"{counts.refused} refused; memory "
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
