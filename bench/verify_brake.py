"""How soon a treatment that turns bad is left: a real proxy before simulated engines.

Usage: python -m bench.verify_brake [--rounds 3]

A proxy with two workers, a real Valkey server, and two pools of the same engines: `plain`, which is
the baseline, and `tried`, to which experiments send half of their tenants' requests. Some time
after the start `tried` turns bad: its steps take twice as long, or one request in five fails. The
store is up, frozen or gone by then. A treatment is left when no request is sent there any more, by
either worker; each sees at least 50 treated requests in ten seconds, since without the store it has
nobody's evidence but its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import numpy as np

from bench.proxy import Proxy
from bench.rehearsal import rehearsal
from bench.store_server import Server
from router.simfleet.faults import Fault, FaultKind
from router.simfleet.fleet import MODEL, FleetOptions, RunningEngine, SimFleet
from router.simfleet.prompts import TOKENS_HEADER
from router.simfleet.settings import Kind

WORKERS: Final = 2
TENANTS: Final = ("acme", "globex")
"""Each is in an experiment of its own, at the same time."""
PER_SECOND: Final = 28.0
"""Requests of each tenant: half of them treated, half of these at each worker."""
TOKENS: Final = 40
SLOT_S: Final = 10.0
STORES: Final = ("up", "frozen", "gone")
HARMS: Final = {
    "TPOT x 2": (FaultKind.SLOW, 2.0, 1),
    "20 % errors": (FaultKind.STATUS, 500.0, 5),
}
_WARM_S: Final = 20.0
_AWAY_S: Final = 3.0
"""The store is away for so long when the harm begins."""
_WATCHED_S: Final = 20.0
_REST_S: Final = 15.0
"""Until the engines are well again, and reports hold the last requests."""
_SETTLES_S: Final = 60.0
_SPEED: Final = 4.0
_FAILED: Final = re.compile(r"bad answers of treatment, since the start: (\d+) failed")


@dataclass(slots=True)
class Seen:
    """What a tenant's client was told."""

    treated: list[float] = field(default_factory=list)
    """When requests were sent that were treated; monotonic clock."""

    def since(self, moment: float) -> list[float]:
        """Those after a moment."""
        return [at for at in self.treated if at >= moment]


@dataclass(frozen=True, slots=True)
class Run:
    """One tenant's experiment."""

    harm: str
    store: str
    left_s: float | None
    """From the harm until nobody was treated; None where it was not left."""
    bad: int
    """Treated requests since the harm began."""
    before: float
    """Treated requests in ten seconds before it, over both workers."""
    why: str
    """By the book, after the store had come back."""
    reported: int | None
    """Failures of the treatment by the report."""


async def traffic(url: str, tenant: str, seen: Seen, seed: int) -> None:
    """One tenant's requests, however long answers take."""
    rng = np.random.default_rng(seed)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        while True:
            await asyncio.sleep(float(rng.exponential(1.0 / PER_SECOND)))
            group.create_task(_request(session, url, tenant, seen))


async def _request(session: aiohttp.ClientSession, url: str, tenant: str, seen: Seen) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "stream": True,
    }
    began = time.monotonic()
    headers = {"x-tenant": tenant, TOKENS_HEADER: str(TOKENS)}
    async with session.post(url, json=body, headers=headers) as reply:
        await reply.read()
        if reply.headers.get("x-specroute-experiment", "").endswith("/treatment"):
            seen.treated.append(began)


def _ask(admin: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{admin}{path}", data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=20) as reply:
        told = reply.read()
    return json.loads(told) if told.startswith(b"{") else told.decode()


class Scene:
    """Everything that runs."""

    def __init__(self, proxy: Proxy, store: Server, tried: Sequence[RunningEngine]) -> None:
        self._proxy = proxy
        self._store = store
        self._tried = tried
        self._number = 0
        self.seen = {tenant: Seen() for tenant in TENANTS}
        self.left_before = 0
        """Runs that were begun again, because a treatment was left that had done no harm."""

    async def run(self, harm: str, store: str) -> list[Run]:
        """One harm, with the store in one state."""
        self._number += 1
        names = {tenant: f"b{self._number}-{tenant}" for tenant in TENANTS}
        for tenant, name in names.items():
            await self._order("/api/experiments", {"plan": _plan(name, tenant)})
        await asyncio.sleep(_WARM_S)
        if not await self._all_run(names.values()):
            self.left_before += 1
            return await self.run(harm, store)
        if store == "frozen":
            self._store.pause()
        elif store == "gone":
            await self._store.kill()
        if store != "up":
            await asyncio.sleep(_AWAY_S)
        kind, value, every = HARMS[harm]
        began = time.monotonic()
        for engine in self._tried:
            engine.service.command([Fault(kind, value, for_s=_WATCHED_S, every=every)])
        await asyncio.sleep(_WATCHED_S)
        if store == "frozen":
            self._store.resume()
        elif store == "gone":
            await self._store.start()
        await asyncio.sleep(_REST_S)
        return [await self._found(names[t], t, harm, store, began) for t in TENANTS]

    async def _all_run(self, names: Iterable[str]) -> bool:
        """Whether no treatment was left yet; if one was, the others are stopped."""
        told = {name: await self._order(f"/api/experiments/{name}") for name in names}
        running = [name for name, of in told.items() if of["standing"]["status"] == "running"]
        if len(running) == len(told):
            return True
        print(f"brake: left before any harm: {told.keys() - set(running)}", file=sys.stderr)
        for name in running:
            await self._order(f"/api/experiments/{name}/stop", {})
        return False

    async def _found(self, name: str, tenant: str, harm: str, store: str, began: float) -> Run:
        bad = self.seen[tenant].since(began)
        left_s = max(bad, default=began) - began
        ended = began + _WATCHED_S
        before = len(self.seen[tenant].since(began - SLOT_S)) - len(bad)
        standing = await self._rolled_back(name)
        page = await self._order(f"/api/experiments/{name}/report")
        reported = _FAILED.search(page)
        if standing["status"] != "rolled_back":
            await self._order(f"/api/experiments/{name}/stop", {})
        return Run(
            harm,
            store,
            left_s if began + left_s < ended - 2.0 else None,
            len(bad),
            before,
            standing["why"],
            int(reported.group(1)) if reported else None,
        )

    async def _rolled_back(self, name: str) -> Any:
        until = time.monotonic() + _SETTLES_S
        while True:
            standing = (await self._order(f"/api/experiments/{name}"))["standing"]
            if standing["status"] == "rolled_back" or time.monotonic() > until:
                return standing
            await asyncio.sleep(1.0)

    async def _order(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        for _ in range(30):
            try:
                return await asyncio.to_thread(_ask, self._proxy.admin, path, body)
            except OSError as error:  # the store is on its way back
                print(f"brake: {path}: {error}", file=sys.stderr)
                await asyncio.sleep(1.0)
        raise RuntimeError(f"{path} was not answered")


def _plan(name: str, tenant: str) -> dict[str, Any]:
    return {
        "name": name,
        "model": MODEL,
        "treatment": {"arm": "tried"},
        "tenants": [tenant],
        "unit": "request",
        "stages": [{"share": 0.5, "dwell_s": 86_400}],
    }


def _config(fleet: SimFleet, store: Server) -> dict[str, Any]:
    plain, tried = fleet.engines[:2]
    pools = [
        {"name": name, "method": method, "engine": "llamacpp", "replicas": [{"url": engine.url}]}
        for name, method, engine in (("plain", "none", plain), ("tried", "ngram", tried))
    ]
    policy = {"name": "fixed", "parameters": {"arm": "plain"}}
    return {
        "listen": {"port": 0, "workers": WORKERS},
        "admin": {"port": 0},
        "store": {"url": store.url},
        "tenants": {"known": [{"id": tenant} for tenant in TENANTS], "header": "x-tenant"},
        "routes": [{"model": MODEL, "baseline": "plain", "policy": policy, "pools": pools}],
    }


async def measure(rounds: int) -> list[Run]:
    """All harms in all states of the store, so many times."""
    runs: list[Run] = []
    options = FleetOptions(speed=_SPEED, kind=Kind.LLAMACPP)
    async with rehearsal(options, _config) as (store, fleet, proxy):
        scene = Scene(proxy, store, fleet.engines[1:2])
        url = f"http://127.0.0.1:{proxy.port}/v1/chat/completions"
        clients = [
            asyncio.ensure_future(traffic(url, tenant, scene.seen[tenant], seed))
            for seed, tenant in enumerate(TENANTS)
        ]
        try:
            for _ in range(rounds):
                for harm in HARMS:
                    for state in STORES:
                        runs += await scene.run(harm, state)
                        print(f"brake: {runs[-2:]}", file=sys.stderr)
            if scene.left_before:
                print(f"brake: begun again: {scene.left_before}", file=sys.stderr)
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
    return runs


def _line(harm: str, store: str, runs: Sequence[Run]) -> str:
    known = [run.left_s for run in runs if run.left_s is not None]
    within = sum(left_s <= SLOT_S for left_s in known)
    latest = f"{np.median(known):.1f} / {max(known):.1f}" if known else "–"
    before = min(run.before for run in runs) / WORKERS
    reported = [run.reported for run in runs if run.reported is not None]
    told = f"{np.mean(reported):.1f}" if reported else "–"
    return (
        f"| {harm} | {store} | {within} of {len(runs)} | {latest} | {before:.0f} | "
        f"{np.mean([run.bad for run in runs]):.0f} | {told} |"
    )


_HEAD: Final = (
    "| harm | store | left within a slot | median / latest, s | treated a slot at each worker "
    "| treated since the harm | failures in the report |"
)


def tables(*, rounds: int) -> str:
    """When treatments were left, as a Markdown table.

    Raises:
        SystemExit: One was not left within a slot; the table has been printed.
    """
    runs = asyncio.run(measure(rounds))
    lines = [_HEAD, "|---|---|---|---:|---:|---:|---:|"]
    for harm in HARMS:
        for store in STORES:
            of = [run for run in runs if (run.harm, run.store) == (harm, store)]
            lines.append(_line(harm, store, of))
    text = "\n".join(lines) + "\n"
    late = [run for run in runs if run.left_s is None or run.left_s > SLOT_S]
    if late:
        print(text)
        raise SystemExit(f"not left within a slot: {late}")
    return text


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    print(tables(rounds=parser.parse_args().rounds))


if __name__ == "__main__":
    main()
