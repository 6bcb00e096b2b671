"""Whether a store that many processes add to holds what they learned, to the last unit.

Eight processes learn from 200 requests a second each (a proxy's writer and reader at a proxy's
intervals; eight whole proxies with clients and engines would need more than the machine has) and
add to one real server. On the way the server is shut down and started again, and one process is
killed with SIGKILL and another takes its place. Every process writes each request down before it
learns from it; in the end the log is added up by other code, and compared field by field.

What a killed process had added is a prefix of its log, since its batches are added in order and
whole: how long that prefix is says its own tenant's month, and everything else must agree with it.
It must hold all that the store had confirmed to the process; what it lost is what it had learned
since its last flush, and longer only where the store did not answer within a call's limit.

The server writes its append-only file before it replies (`appendfsync everysec` only delays the
disk), and SHUTDOWN ends with a sync: neither loses anything. A host that loses its power could lose
up to two seconds of what the server had confirmed, which would show here as months that end before
a log does although their process was not killed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis

from bench.store_server import Server
from bench.sums import MODEL, PREFIX, Expected, Line, expected, lines_of
from bench.sums_process import FLUSH_S
from router.estimates.layout import RouteKeys

_PROCESSES = 8
_RESTART_AT, _KILL_AT = 0.35, 0.7
"""Shares of the time after which the server is restarted and a process is killed."""
_AWAY_S = 3.0
"""For how long the server is gone."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found at the end."""

    lines: dict[str, list[Line]]
    """Logs by tenant."""
    told: dict[str, dict[str, Any]]
    """What processes that were not killed said at their end."""
    killed: str
    confirmed: int
    """Requests of the killed process that the store had confirmed."""
    held: Expected
    """What the store holds."""
    seconds: float


async def run(seconds: float, rate: float) -> Found:
    """The whole audit."""
    with tempfile.TemporaryDirectory(prefix="sums-") as name:
        folder = Path(name)
        server = Server(folder)
        running: dict[str, asyncio.subprocess.Process] = {}
        await server.start()
        try:
            names = [f"p{number}" for number in range(_PROCESSES)]
            for of in (*names, "p+"):
                running[of] = await _process(server.url, of, folder, rate)
            for process in running.values():
                await _ready(process)
            began = time.monotonic()
            for of in names:
                _begin(running[of], seconds)
            await asyncio.sleep(seconds * _RESTART_AT)
            print("sums: the server is shut down", file=sys.stderr)
            await server.stop()
            await asyncio.sleep(_AWAY_S)
            await server.start()
            print("sums: the server is there again", file=sys.stderr)
            await asyncio.sleep(max(0.0, began + seconds * _KILL_AT - time.monotonic()))
            killed = names[-1]
            os.kill(running[killed].pid, signal.SIGKILL)
            print("sums: a process is killed", file=sys.stderr)
            await running.pop(killed).communicate()
            _begin(running["p+"], max(1.0, began + seconds - time.monotonic()))
            outputs = {of: (await process.communicate())[0] for of, process in running.items()}
            took = time.monotonic() - began
            ended = {of: process.returncode for of, process in running.items()}
            if any(ended.values()):
                raise RuntimeError(f"processes ended badly: {ended}")
            lines = {of: lines_of((folder / of).read_bytes()) for of in [*names, "p+"]}
            confirmed = (folder / f"{killed}.confirmed").read_bytes().split()
            with server.client() as client:
                held = _held(client)
        finally:
            for process in running.values():
                if process.returncode is None:
                    process.kill()
            await server.stop()
    told = {of: json.loads(output) for of, output in outputs.items()}
    return Found(lines, told, killed, int(confirmed[-1]), held, took)


async def _process(url: str, tenant: str, folder: Path, rate: float) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.sums_process", url, tenant, str(folder / tenant)),
        *("--rate", str(rate)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def _ready(process: asyncio.subprocess.Process) -> None:
    if process.stdout is None or await process.stdout.readline() != b"ready\n":
        raise RuntimeError("a process did not start")


def _begin(process: asyncio.subprocess.Process, seconds: float) -> None:
    if process.stdin is not None:
        process.stdin.write(b"%f\n" % seconds)


def _held(client: Redis) -> Expected:
    """All that the store holds, over all slots, hours and months."""
    stem = RouteKeys(PREFIX, MODEL).slot(0).removesuffix("slot:0")
    found = {kind: Counter[str]() for kind in ("slot", "hour", "month", "made")}
    for key in client.scan_iter(f"{stem}*", count=1000):
        kind = key.decode().removeprefix(stem).partition(":")[0]
        if kind in found:
            fields: Any = client.hgetall(key)
            for name, value in fields.items():
                found[kind][name.decode()] += int(value)
    return Expected(*(dict(found[kind]) for kind in ("slot", "hour", "month", "made")))


def tables(*, seconds: float, rate: float = 200.0) -> str:
    """What was recorded and what was found, as Markdown."""
    found = asyncio.run(run(seconds, rate))
    log = found.lines[found.killed]
    stored = found.held.months.get(f"{found.killed}|n", 0)
    kept = [line for of, lines in found.lines.items() if of != found.killed for line in lines]
    want = expected([*kept, *log[:stored]])
    recorded = sum(map(len, found.lines.values()))
    lost = len(log) - stored
    rows = [
        _row("slots: classes, segments, load bands", found.held.slots, want.slots),
        _row("hours: classes", found.held.hours, want.hours),
        _row("months: tenants", found.held.months, want.months),
        _row("made tokens: arms and classes", found.held.made, want.made),
    ]
    totals = {
        name: sum(told[name] for told in found.told.values())
        for name in ("waiting", "dropped", "refused", "late_made_tokens", "failed_flushes")
    }
    record = sum(told["record_us"] for told in found.told.values()) / len(found.told)
    verdict = "agree" if all(row[1] for row in rows) and found.confirmed <= stored else "DISAGREE"
    return (
        f"{_PROCESSES} processes, {recorded:,} requests in {found.seconds:.0f} s "
        f"({recorded / found.seconds:,.0f} a second); the server was shut down and started again, "
        f"one process was killed and another took its place: the sums **{verdict}**.\n\n"
        "| what | sums | total | differ from the logs |\n|---|---:|---:|---:|\n"
        + "\n".join(row[0] for row in rows)
        + f"\n\nThe killed process had written down {len(log):,} requests, of which {lost} were "
        f"not stored: {lost / rate:.2f} s of its requests, with flushes every {FLUSH_S:g} s; the "
        f"store had confirmed {found.confirmed:,} and has {stored:,}. "
        f"The others: {totals['waiting']} increments unconfirmed, {totals['dropped']} dropped, "
        f"{totals['refused']} refused, {totals['late_made_tokens']} tokens told late; "
        f"{totals['failed_flushes']} flushes failed and were sent again. To take a "
        f"request cost {record:.1f} µs of the loop's thread on average.\n"
    )


def _row(name: str, held: dict[str, int], want: dict[str, int]) -> tuple[str, bool]:
    differ = [of for of in held.keys() | want.keys() if held.get(of, 0) != want.get(of, 0)]
    total = sum(abs(value) for value in want.values())
    return f"| {name} | {len(want):,} | {total:,} | {len(differ)} |", not differ


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--rate", type=float, default=200.0)
    arguments = parser.parse_args()
    print(tables(seconds=arguments.seconds, rate=arguments.rate))


if __name__ == "__main__":
    main()
