"""Many concurrent streams, many of them left in the middle: nothing may grow.

The proxy runs as a process of its own; its memory, descriptors, tasks and in-flight counters are
read before, during and after.
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
_MOST_GROWTH = 0.05
"""Of memory, from the end of the first quarter: an allocator's own noise is about a hundredth."""
_MOST_MORE = 8
"""Descriptors and tasks beyond those before the first client: what work in the background has."""
_SETTLES_S = 10.0
"""For what the last clients left to go; idle connections to engines are kept for four seconds."""
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
    tasks: int
    in_flight: int
    """At servers, and with a place or waiting for one."""


async def _client(port: int, rng: random.Random, counts: Counts, abort_share: float) -> None:
    while True:
        leaves_after = rng.randrange(1, 20) if rng.random() < abort_share else None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(REQUEST)
                await _stream(reader, counts, leaves_after)
            finally:
                writer.close()
        except (ConnectionError, OSError):
            counts.refused += 1


async def _stream(reader: asyncio.StreamReader, counts: Counts, leaves_after: int | None) -> None:
    """Reads one answer, or as many of its events as the client stays for."""
    seen = 0
    tail = b""
    while b"0\r\n\r\n" not in tail:
        data = await reader.read(_READ)
        if not data:
            counts.cut += 1
            return
        seen += data.count(b"data: ")
        tail = (tail + data)[-64:]
        if leaves_after is not None and seen >= leaves_after:
            counts.left += 1
            return
    counts.finished += 1


async def _read(proxy: Proxy, began: float) -> Reading:
    state = await proxy.state()
    pages = int(Path(f"/proc/{proxy.pid}/statm").read_text().split()[1])
    in_flight = sum(
        replica["in_flight"]
        for route in state["routes"]
        for pool in route["pools"]
        for replica in pool["replicas"]
    )
    admission = state["admission"]
    return Reading(
        time.monotonic() - began,
        pages * resource.getpagesize() / 1e6,
        len(list(Path(f"/proc/{proxy.pid}/fd").iterdir())),
        state["tasks"],
        max(in_flight, admission["in_flight"] + admission["waiting"]),
    )


async def soak(*, streams: int, seconds: float, abort_share: float) -> tuple[list[Reading], Counts]:
    """Runs the soak; returns readings over its course and what the clients saw."""
    counts = Counts()
    # Slow enough for one core to feed them all: a stream takes six seconds, or three.
    plain = Backend(events=64, gap_s=0.1, tokens_per_step=1.0)
    draft = Backend(events=64, gap_s=0.05, tokens_per_step=2.0)
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
    settles_by = time.monotonic() + _SETTLES_S
    last = await _read(proxy, began)
    while _left(readings[0], last) and time.monotonic() < settles_by:
        await asyncio.sleep(0.1)
        last = await _read(proxy, began)
    readings.append(last)
    return readings


def _left(first: Reading, last: Reading) -> list[str]:
    """What is still there after the last client has gone."""
    rows = (
        ("requests", last.in_flight, 0),
        ("descriptors", last.descriptors, first.descriptors + _MOST_MORE),
        ("tasks", last.tasks, first.tasks + _MOST_MORE),
    )
    return [f"{count} {name} are left" for name, count, most in rows if count > most]


def tables(*, streams: int, seconds: float, abort_share: float = 0.3) -> str:
    """The course of the soak as a Markdown table.

    Raises:
        SystemExit: Something grew, was left behind or was cut; the table has been printed.
    """
    readings, counts = asyncio.run(soak(streams=streams, seconds=seconds, abort_share=abort_share))
    warm = readings[max(1, round(len(readings) * _WARM_SHARE))]
    growth = readings[-2].memory_mb / warm.memory_mb - 1
    last = readings[-1]
    text = (
        f"{streams} concurrent streams, {abort_share:.0%} left in the middle: "
        f"{counts.finished:,} finished, {counts.left:,} left, {counts.cut} cut, "
        f"{counts.refused} refused; memory "
        f"{growth:+.1%} from the first quarter to the end; {last.in_flight} in flight, "
        f"{last.descriptors} descriptors and {last.tasks} tasks after the last client had gone.\n\n"
        "| s | memory MB | descriptors | tasks | in flight |\n|---:|---:|---:|---:|---:|\n"
        + "\n".join(
            f"| {r.seconds:.0f} | {r.memory_mb:.0f} | {r.descriptors} | {r.tasks} | {r.in_flight} |"
            for r in readings
        )
        + "\n"
    )
    wrong = _left(readings[0], last)
    if growth > _MOST_GROWTH:
        wrong.append(f"memory grew by {growth:.1%}")
    if counts.cut or counts.refused:
        wrong.append(f"{counts.cut} answers were cut, {counts.refused} connections refused")
    if wrong:
        print(text)
        raise SystemExit("; ".join(wrong))
    return text


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=1200.0)
    parser.add_argument("--aborts", type=float, default=0.3, help="share of streams left")
    arguments = parser.parse_args()
    print(
        tables(streams=arguments.streams, seconds=arguments.seconds, abort_share=arguments.aborts)
    )


if __name__ == "__main__":
    main()
