"""Who is on which side, over processes and restarts: a ramp of 5, 50 and 100 % and back.

Usage: python -m bench.verify_assignment [--sessions 400]

Two proxies of two workers each on one real Valkey server. Sessions ask again and again, over a new
connection each time, so that any of the four processes may answer; one proxy is stopped and started
anew at each stage, one is killed and another takes its place, and every request is sent twice, as
by a client that tries again. A session must be on one side at every process of a stage, and who was
treated with a smaller share must be with a larger one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from bench.backend import MODEL, Backend, serving
from bench.proxy import Proxy, started
from bench.store_server import Server
from router.experiments.assign import point

WORKERS: Final = 2
SHARES: Final = (0.05, 0.5, 1.0)
SALT: Final = "verified"
NAME: Final = "ramp"
_REFRESH_S: Final = 2.5
"""Until all processes have read what was ordered, and servers are known after a start."""
_AT_ONCE: Final = 16
_SIDES: Final = frozenset((f"{NAME}/control", f"{NAME}/treatment"))
_HASHED: Final = 1_000_000
_TOLD: Final = "x-specroute-experiment"


@dataclass(slots=True)
class Watched:
    """What sessions were told."""

    answers: int = 0
    sides: dict[str, str] = field(default_factory=dict)
    """The side of each session in the present stage."""
    moved: int = 0
    """Answers that told another side than an earlier one of the session in this stage."""

    @property
    def treated(self) -> frozenset[str]:
        """Sessions that were treated."""
        return frozenset(s for s, side in self.sides.items() if side == f"{NAME}/treatment")


@dataclass(frozen=True, slots=True)
class Stage:
    """One stretch with one share."""

    title: str
    share: float
    treated: frozenset[str]
    moved: int
    answers: int

    def unexpected(self, others: Sequence[Stage]) -> int:
        """Sessions on another side than in earlier stages, beyond whom the ramp moved."""
        wrong: set[str] = set()
        for other in others:
            if other.share <= self.share:
                wrong |= other.treated - self.treated
            if other.share >= self.share:
                wrong |= self.treated - other.treated
        return len(wrong) + self.moved


class Scene:
    """Proxies that come and go."""

    def __init__(self, config: Mapping[str, Any], folder: Path, sessions: int) -> None:
        self._config = config
        self._folder = folder
        self._sessions = [f"session-{number}" for number in range(sessions)]
        self._running: list[tuple[AsyncExitStack, Proxy]] = []

    async def start(self) -> None:
        """One proxy more."""
        stack = AsyncExitStack()
        proxy = await stack.enter_async_context(started(self._config, self._folder))
        self._running.append((stack, proxy))

    async def stop(self, *, kill: bool = False) -> None:
        """The oldest proxy ends, as an operator or as a crash ends it."""
        stack, proxy = self._running.pop(0)
        if kill:
            for child in _children(proxy.pid):
                os.kill(child, signal.SIGKILL)
            os.kill(proxy.pid, signal.SIGKILL)
        await stack.aclose()

    async def close(self) -> None:
        """All end."""
        while self._running:
            await self.stop()

    async def order(self, path: str, body: Mapping[str, Any]) -> None:
        """Tells one proxy; all follow."""
        _, proxy = self._running[-1]
        await asyncio.to_thread(_post, f"{proxy.admin}{path}", body)
        await asyncio.sleep(_REFRESH_S)

    async def restart(self, *, kill: bool) -> None:
        """Another proxy in the place of the oldest one."""
        await self.stop(kill=kill)
        await self.start()
        await asyncio.sleep(_REFRESH_S)

    async def ask_all(self, watched: Watched) -> None:
        """Every session, at every proxy, twice."""
        gate = asyncio.Semaphore(_AT_ONCE)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector) as client,
            asyncio.TaskGroup() as all_,
        ):
            for _, proxy in self._running:
                for session in self._sessions:
                    all_.create_task(_ask(client, gate, (proxy, session), watched))


async def _ask(
    client: aiohttp.ClientSession,
    gate: asyncio.Semaphore,
    where: tuple[Proxy, str],
    watched: Watched,
) -> None:
    proxy, session = where
    url = f"http://127.0.0.1:{proxy.port}/v1/chat/completions"
    message = {"role": "user", "content": session}
    body = {"model": MODEL, "stream": True, "messages": [message]}
    headers = {"x-specroute-session": session}
    for _ in range(2):
        async with gate, client.post(url, json=body, headers=headers) as reply:
            await reply.read()
            told = reply.headers.get(_TOLD, "nothing")
        watched.answers += 1
        watched.moved += told != watched.sides.setdefault(session, told)


def _children(pid: int) -> Sequence[int]:
    return [int(of) for of in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _post(url: str, body: Mapping[str, Any]) -> None:
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as reply:
        reply.read()


def _config(urls: Sequence[str], store: Server) -> dict[str, Any]:
    methods = {"plain": "none", "draft": "draft_model"}
    pools = [
        {"name": name, "method": method, "engine": "llamacpp", "replicas": [{"url": url}]}
        for (name, method), url in zip(methods.items(), urls, strict=True)
    ]
    policy = {"name": "fixed", "parameters": {"arm": "plain"}}
    return {
        "listen": {"port": 0, "workers": WORKERS},
        "admin": {"port": 0},
        "store": {"url": store.url},
        "tenants": {"holdout": 0},
        "routes": [{"model": MODEL, "baseline": "plain", "policy": policy, "pools": pools}],
    }


async def measure(sessions: int) -> list[Stage]:
    """The ramp, with restarts at each stage."""
    with tempfile.TemporaryDirectory(prefix="assignment-") as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:
            store = Server(folder)
            await store.start()
            stack.push_async_callback(store.stop)
            engines = [Backend(events=2, gap_s=0.0, tokens_per_step=1.0) for _ in range(2)]
            urls = [await stack.enter_async_context(serving(engine)) for engine in engines]
            scene = Scene(_config(urls, store), folder, sessions)
            stack.push_async_callback(scene.close)
            await scene.start()
            await scene.start()
            await asyncio.sleep(_REFRESH_S)
            await scene.order("/api/experiments", {"plan": _plan()})
            found: list[Stage] = []
            for number, share in ((0, 0.05), (1, 0.5), (2, 1.0), (1, 0.5)):
                if found:
                    await scene.order(f"/api/experiments/{NAME}/ramp", {"stage": number})
                found.append(await _stage(scene, number, share, found))
                print(f"assignment: {found[-1].title}", file=sys.stderr)
            return found


async def _stage(scene: Scene, number: int, share: float, before: Sequence[Stage]) -> Stage:
    watched = Watched()
    await scene.ask_all(watched)
    await scene.restart(kill=number == 1)
    await scene.ask_all(watched)
    if set(watched.sides.values()) - _SIDES:
        raise RuntimeError(f"somebody is in nothing: {set(watched.sides.values())}")
    back = " again" if any(stage.share == share for stage in before) else ""
    return Stage(f"{share:.0%}{back}", share, watched.treated, watched.moved, watched.answers)


def _plan() -> dict[str, Any]:
    return {
        "name": NAME,
        "model": MODEL,
        "treatment": {"arm": "draft"},
        "unit": "session",
        "salt": SALT,
        "guards": [],
        "stages": [{"share": share, "dwell_s": 86_400} for share in SHARES],
    }


def tables(*, sessions: int) -> str:
    """Who was on which side, as a Markdown table.

    Raises:
        SystemExit: Somebody was on another side than it must be; the table has been printed.
    """
    found = asyncio.run(measure(sessions))
    lines = [
        "| stage | sessions treated | share | answers | on another side than before |",
        "|---|---:|---:|---:|---:|",
    ]
    wrong = [stage.unexpected(found[:number]) for number, stage in enumerate(found)]
    for stage, moved in zip(found, wrong, strict=True):
        n = len(stage.treated)
        part = f"{n} of {sessions} | {n / sessions:.1%}"
        lines.append(f"| {stage.title} | {part} | {stage.answers:,} | {moved} |")
    below = [point(f"experiment:{NAME}:{SALT}", f"session-{n}") for n in range(_HASHED)]
    told = ", ".join(f"{sum(at < s for at in below) / _HASHED:.2%} for {s:.0%}" for s in SHARES)
    text = "\n".join(lines) + f"\n\nOf {_HASHED:,} units by the hash alone: {told}.\n"
    if any(wrong):
        print(text)
        raise SystemExit("somebody changed sides")
    return text


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=400)
    print(tables(sessions=parser.parse_args().sessions))


if __name__ == "__main__":
    main()
