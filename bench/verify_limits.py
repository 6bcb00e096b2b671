"""Limits of tenants over four worker processes under overload, and whether Retry-After is true.

Usage: python -m bench.verify_limits [--seconds 60]

A proxy with four workers, a real Valkey server and the simulated engines of a world. Obedient
clients send one request after another and, where one is refused, send it again when they were told
to. Impatient ones come as often as the limit bears, and do not come back. Of a rate, tokens by the
engines' count are added up over the time; of places, `/metrics` is read.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import aiohttp
import numpy as np

from bench.proxy import Proxy
from bench.rehearsal import rehearsal
from bench.store_server import Server
from router.simfleet.fleet import MODEL, FleetOptions, SimFleet
from router.simfleet.prompts import TOKENS_HEADER

WORKERS: Final = 4
PER_SECOND: Final = 1000
"""Tokens that the tenant of the rate may have."""
PLACES: Final = 16
CLIENTS: Final = 160
TOKENS: Final = (10, 40)
"""Length of answers, evenly between."""
LONG: Final = (600, 1000)
"""The same for places, so that many have to wait for longer than they may."""
MARGIN: Final = 0.02
SUCCESS: Final = 0.95
_WARM_S: Final = 20.0
"""Until all processes know of each other, and a burst is used up."""
_POLL_S: Final = 0.2
_PROMPT: Final = 12
"""Tokens of a prompt, about."""
_SPEED: Final = 4.0
_TENANT: Final = "x-tenant"
_IN_FLIGHT: Final = re.compile(r"^specroute_admission_in_flight(?:\{[^}]*\})? (\S+)", re.MULTILINE)


_Load = Callable[[], Awaitable[tuple["Counts", float, list[float]]]]


@dataclass(slots=True)
class Counts:
    """What clients saw from when they are counted on."""

    counted: bool = False
    tokens: int = 0
    served: int = 0
    refused: int = 0
    came_back: int = 0
    """Requests that were sent again when they had been told to."""
    in_vain: int = 0
    told: list[int] = field(default_factory=list)
    newcomers: int = 0
    newcomers_served: int = 0


@dataclass(frozen=True, slots=True)
class Asking:
    """How requests are sent.

    Attributes:
        url: Where to.
        tenant: Whose they are.
        counts: What comes of them.
        anew: A connection for each request; else each client keeps its own.
    """

    url: str
    tenant: str
    counts: Counts
    anew: bool
    lengths: tuple[int, int] = TOKENS

    async def send(self, session: aiohttp.ClientSession, body: dict[str, Any], tokens: int) -> Any:
        """One request; the tokens of its answer, or what `Retry-After` says."""
        headers = {_TENANT: self.tenant, TOKENS_HEADER: str(tokens)}
        async with session.post(self.url, json=body, headers=headers) as reply:
            if reply.status == 429:
                await reply.read()
                return None, int(reply.headers["Retry-After"])
            if reply.status != 200:
                raise RuntimeError(f"{reply.status}: {await reply.text()}")
            answer = await reply.json()
            return int(answer["usage"]["total_tokens"]), None

    def session(self) -> aiohttp.ClientSession:
        """One client's."""
        connector = aiohttp.TCPConnector(limit=0, force_close=self.anew)
        return aiohttp.ClientSession(connector=connector)


def _request(
    number: int, rng: np.random.Generator, lengths: tuple[int, int] = TOKENS
) -> tuple[dict[str, Any], int]:
    tokens = int(rng.integers(*lengths))
    messages = [{"role": "user", "content": f"Story {number} of {rng.integers(1 << 40)}"}]
    return {"model": MODEL, "messages": messages, "max_tokens": tokens}, tokens


async def obedient(asking: Asking, seed: int) -> None:
    """Sends one request after another, and again what was refused."""
    rng, counts = np.random.default_rng(seed), asking.counts
    await asyncio.sleep(float(rng.uniform(0.0, 2.0)))
    async with asking.session() as session:
        number = 0
        while True:
            number += 1
            body, length = _request(number, rng, asking.lengths)
            again = False
            while True:
                tokens, wait_s = await asking.send(session, body, length)
                if counts.counted:
                    counts.came_back += again
                    counts.in_vain += again and tokens is None
                if tokens is not None:
                    counts.served += counts.counted
                    counts.tokens += tokens * counts.counted
                    break
                counts.refused += counts.counted
                counts.told.append(wait_s)
                again = True
                await asyncio.sleep(wait_s)


async def impatient(asking: Asking, per_second: float) -> None:
    """Sends requests at a rate, and none of them again."""
    rng, counts = np.random.default_rng(7), asking.counts

    async def one(number: int) -> None:
        async with asking.session() as session:
            tokens, _ = await asking.send(session, *_request(number, rng))
        if counts.counted:
            counts.newcomers += 1
            counts.newcomers_served += tokens is not None
            counts.tokens += tokens or 0

    number = 0
    async with asyncio.TaskGroup() as group:
        while True:
            number += 1
            await asyncio.sleep(float(rng.exponential(1.0 / per_second)))
            group.create_task(one(number))


def _in_flight(admin: str) -> float:
    with urllib.request.urlopen(f"{admin}/metrics", timeout=10) as reply:
        return sum(map(float, _IN_FLIGHT.findall(reply.read().decode())))


async def phase(
    proxy: Proxy, tenant: str, seconds: float, *, anew: bool, newcomers: float = 0.0
) -> tuple[Counts, float, list[float]]:
    """One kind of load: what clients saw, in how many seconds, and places taken by the way."""
    counts = Counts()
    lengths = TOKENS if tenant == "rate" else LONG
    url = f"http://127.0.0.1:{proxy.port}/v1/chat/completions"
    asking = Asking(url, tenant, counts, anew, lengths)
    tasks = [asyncio.ensure_future(obedient(asking, seed)) for seed in range(CLIENTS)]
    if newcomers:
        tasks.append(asyncio.ensure_future(impatient(asking, newcomers)))
    try:
        await asyncio.sleep(_WARM_S)
        began, counts.counted = time.monotonic(), True
        taken = []
        while time.monotonic() < began + seconds:
            taken.append(await asyncio.to_thread(_in_flight, proxy.admin))
            await asyncio.sleep(_POLL_S)
            for task in tasks:
                if task.done():
                    task.result()
        counts.counted = False
        return counts, time.monotonic() - began, taken
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _config(fleet: SimFleet, store: Server) -> dict[str, Any]:
    known = [
        {"id": "rate", "tokens_per_minute": 60 * PER_SECOND, "max_concurrent": 4096},
        {"id": "places", "max_concurrent": PLACES},
    ]
    return fleet.config(port=0, admin_port=0) | {
        "listen": {"port": 0, "workers": WORKERS},
        "store": {"url": store.url},
        "tenants": {"known": known, "header": _TENANT},
    }


@dataclass(frozen=True, slots=True)
class Row:
    """A promise, and what was measured of it."""

    promise: str
    measured: str
    kept: bool


def _rate_row(name: str, counts: Counts, took: float) -> Row:
    share = counts.tokens / (PER_SECOND * took)
    told = f"{share:.1%} of it; {counts.served} served, {counts.refused} refused"
    return Row(f"{name}: rate of {PER_SECOND} tokens a second", told, abs(share - 1) <= MARGIN)


def _retry_row(name: str, counts: Counts) -> Row:
    kept = 1.0 - counts.in_vain / max(counts.came_back, 1)
    waits = f"{np.median(counts.told):.0f} s in the middle, {max(counts.told)} s at most"
    told = f"{kept:.1%} of {counts.came_back} ({waits})"
    if counts.newcomers:
        told += f"; of newcomers {counts.newcomers_served / counts.newcomers:.0%}"
    return Row(f"{name}: served when they came back as told", told, kept >= SUCCESS)


async def measure(seconds: float) -> list[Row]:
    """All loads, one after another."""
    rows: list[Row] = []
    async with rehearsal(FleetOptions(speed=_SPEED), _config) as (_, _, proxy):
        rate = partial(phase, proxy, "rate", seconds)
        newcomers = PER_SECOND / (sum(TOKENS) / 2 + _PROMPT)
        loads: list[tuple[str, _Load]] = [
            ("clients that keep their connection", partial(rate, anew=False)),
            ("a connection for each request", partial(rate, anew=True)),
            (
                "besides, newcomers that never come back",
                partial(rate, anew=False, newcomers=newcomers),
            ),
        ]
        for title, load in loads:
            counts, took, _ = await load()
            rows += [_rate_row(title, counts, took), _retry_row(title, counts)]
            print(f"limits: {rows[-2]} {rows[-1]}", file=sys.stderr)
        counts, took, taken = await phase(proxy, "places", seconds, anew=False)
        used = float(np.mean(taken)) / PLACES
        most = max(taken) / PLACES
        rows.append(
            Row(
                f"{PLACES} places: taken on the average, and at most",
                f"{used:.1%}, {most:.1%}",
                most <= 1.0 and used >= 1.0 - MARGIN,
            )
        )
        if counts.came_back:
            rows.append(_retry_row(f"{PLACES} places", counts))
    return rows


def tables(*, seconds: float) -> str:
    """All promises as a Markdown table."""
    rows = asyncio.run(measure(seconds))
    lines = [
        f"{WORKERS} workers, {CLIENTS} clients, {seconds:.0f} s of each load.",
        "",
        "| promise | measured | kept |",
        "|---|---|---|",
    ]
    lines += [f"| {row.promise} | {row.measured} | {'yes' if row.kept else 'NO'} |" for row in rows]
    return "\n".join(lines)


def main() -> int:
    """Prints the table; 1 where a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    made = tables(seconds=parser.parse_args().seconds)
    print(made)
    return 1 if "| NO |" in made else 0


if __name__ == "__main__":
    sys.exit(main())
