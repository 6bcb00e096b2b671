"""What clients notice of a store that is frozen or killed: nothing.

Rounds with a healthy, a frozen (SIGSTOP) and a killed store alternate in one run, so that the
machine's moods meet all of them alike.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections import defaultdict

import numpy as np

from bench.backend import Backend, serving
from bench.proxy import REQUEST, Proxy, running

_CLIENTS = 8
_READ = 65_536
_PHASES = ("healthy", "frozen", "killed")


async def _client(port: int, until: float, took: list[float]) -> int:
    """Sends requests one after the other on one connection; returns how many failed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    failed = 0
    while time.monotonic() < until:
        began = time.monotonic()
        writer.write(REQUEST)
        body = b""
        while not body.endswith(b"0\r\n\r\n"):
            data = await reader.read(_READ)
            if not data:
                raise ConnectionError("the proxy closed the connection")
            body += data
        took.append(time.monotonic() - began)
        failed += not (body.startswith(b"HTTP/1.1 200") and b"[DONE]" in body)
    writer.close()
    return failed


async def _phase(proxy: Proxy, phase: str, seconds: float, took: list[float]) -> int:
    pid = proxy.store_pid()
    if phase == "frozen":
        os.kill(pid, signal.SIGSTOP)
    elif phase == "killed":
        os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + seconds
    try:
        return sum(
            await asyncio.gather(*(_client(proxy.port, until, took) for _ in range(_CLIENTS)))
        )
    finally:
        if phase == "frozen":
            os.kill(pid, signal.SIGCONT)
        await _until_healthy(proxy)


async def _until_healthy(proxy: Proxy) -> None:
    for _ in range(300):
        if (await proxy.state())["store"]["up"]:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError("the store did not come back")


async def measure(rounds: int, seconds: float) -> tuple[dict[str, list[float]], int, int]:
    """Returns request times by phase, how many requests failed, and how many the store counts."""
    took: defaultdict[str, list[float]] = defaultdict(list)
    failed = 0
    backends = [Backend(events=16, gap_s=0.0, tokens_per_step=t) for t in (1.0, 2.0)]
    async with (
        serving(backends[0]) as plain,
        serving(backends[1]) as draft,
        running([plain, draft]) as proxy,
    ):
        for turn in range(rounds):
            for phase in _PHASES:
                failed += await _phase(proxy, phase, seconds, took[phase])
            print(f"store: round {turn + 1} of {rounds}", file=sys.stderr)
        await asyncio.sleep(3)
        state = await proxy.state()
    counted = sum(cell["ok"] for entry in state["routes"][0]["classes"] for cell in entry["cells"])
    return took, failed, counted


def tables(*, rounds: int, seconds: float) -> str:
    """The comparison as a Markdown table."""
    took, failed, counted = asyncio.run(measure(rounds, seconds))
    base = {q: float(np.quantile(took["healthy"], q)) for q in (0.5, 0.99)}
    rows = []
    for phase in _PHASES:
        quantiles = {q: float(np.quantile(took[phase], q)) for q in (0.5, 0.99)}
        rows.append(
            f"| {phase} | {len(took[phase]):,} | {quantiles[0.5] * 1000:.2f} | "
            f"{quantiles[0.99] * 1000:.2f} | {quantiles[0.5] / base[0.5]:.2f} | "
            f"{quantiles[0.99] / base[0.99]:.2f} |"
        )
    sent = sum(len(times) for times in took.values())
    return (
        f"{sent:,} requests, {failed} failed; the store counts {counted:,} of them afterwards.\n\n"
        "| store | requests | p50 ms | p99 ms | p50 ratio | p99 ratio |\n"
        "|---|---:|---:|---:|---:|---:|\n" + "\n".join(rows) + "\n"
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    print(tables(rounds=arguments.rounds, seconds=arguments.seconds))


if __name__ == "__main__":
    main()
