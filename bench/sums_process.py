"""One process of the audit: learns from made-up requests as a proxy does, and writes them down.

Usage: python -m bench.sums_process URL TENANT LOG --rate 200

It says when it is ready, reads for how many seconds it shall run, and when that is over adds what
it has and prints its counters as JSON. A line is in the log before its request is learned from, so
that a killed process has not learned from more than its log says. After each flush that the store
confirmed it notes how many requests there were when that began, in LOG.confirmed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import uvloop

from bench.sums import MODEL, PREFIX, learned_of, made_up
from router.clock import SystemClock
from router.errors import StoreError
from router.estimates.reader import Reader
from router.estimates.writer import Writer
from router.stores.redis import RedisStore

FLUSH_S, REFRESH_S, TIMEOUT_S = 0.25, 1.0, 1.0
"""As a proxy's defaults."""
_TICK_S = 0.02
_WINDOW_S = 3600
_PATIENCE_S = 60.0


class Process:
    """A writer and a reader, and the rounds that a proxy has."""

    def __init__(self, url: str, tenant: str, log: Path) -> None:
        clock = SystemClock()
        self._store = RedisStore(url, TIMEOUT_S)
        self.writer = Writer(self._store, clock, prefix=PREFIX, ttl_s=_WINDOW_S * 2)
        self._reader = Reader(
            self._store, self.writer, prefix=PREFIX, model=MODEL, window_s=_WINDOW_S
        )
        self._tenant = tenant
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        confirmed = log.with_suffix(".confirmed")
        self._confirmed = os.open(confirmed, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.recorded = self.failed_flushes = self.failed_refreshes = 0
        self.record_s: list[float] = []
        self.over = False

    async def requests(self, rate: float, seconds: float) -> None:
        """Requests end, so many a second."""
        rng = random.Random(self._tenant)
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            while self.recorded < passed * rate:
                line = made_up(rng, self.recorded, self._tenant)
                os.write(self._log, line.encoded())
                started = time.thread_time()
                self.writer.defer(partial(learned_of, line, time.time()))
                self.record_s.append(time.thread_time() - started)
                self.recorded += 1
            await asyncio.sleep(_TICK_S)
        self.over = True

    async def flushes(self) -> None:
        """As often as a proxy's."""
        while not self.over:
            await asyncio.sleep(FLUSH_S)
            recorded = self.recorded
            try:
                await self.writer.flush()
            except StoreError:
                self.failed_flushes += 1
            else:
                os.write(self._confirmed, b"%d\n" % recorded)

    async def refreshes(self) -> None:
        """As often as a proxy's."""
        while not self.over:
            try:
                await self._reader.refresh()
            except StoreError:
                self.failed_refreshes += 1
            await asyncio.sleep(REFRESH_S)

    async def finish(self) -> None:
        """Adds what is left."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                try:
                    await self.writer.flush()
                except StoreError:
                    await asyncio.sleep(FLUSH_S)
                else:
                    break
        await self._store.close()


async def run(url: str, tenant: str, log: Path, *, rate: float, seconds: float) -> None:
    """The whole life of a process."""
    process = Process(url, tenant, log)
    async with asyncio.TaskGroup() as group:
        group.create_task(process.requests(rate, seconds))
        group.create_task(process.flushes())
        group.create_task(process.refreshes())
    await process.finish()
    writer = process.writer
    told = {
        "recorded": process.recorded,
        "waiting": writer.waiting,
        "dropped": writer.dropped,
        "refused": writer.refused,
        "late_made_tokens": writer.late_made_tokens,
        "failed_flushes": process.failed_flushes,
        "failed_refreshes": process.failed_refreshes,
        "record_us": statistics.mean(process.record_s) * 1e6,
    }
    print(json.dumps(told))


def main() -> None:
    """Runs one process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("tenant")
    parser.add_argument("log", type=Path)
    parser.add_argument("--rate", type=float, default=200.0)
    arguments = parser.parse_args()
    print("ready", flush=True)
    seconds = float(sys.stdin.readline())
    uvloop.run(
        run(
            arguments.url,
            arguments.tenant,
            arguments.log,
            rate=arguments.rate,
            seconds=seconds,
        )
    )


if __name__ == "__main__":
    main()
