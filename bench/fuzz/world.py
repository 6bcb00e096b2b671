"""A whole proxy for each kind of engine, one engine behind them, and what may be left behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.fuzz.client import Got, converse, turns
from bench.fuzz.engine import Engine, EngineConnection, Script
from bench.fuzz.generate import ALIAS, ENGINES
from bench.fuzz.model import Answer, Dialogue, Exchange, Part, Request
from bench.fuzz.oracle import faults
from router.admission.memory import BodyMemory
from router.app import Application
from router.config.models import Config

SEED = 20_260
HANG_S = 20.0
"""After which a wave is given up: a thousand times what one takes."""
_HANGS = "does not come to an end"
_SETTLE_S = 5.0
_REST_S = 1.0
"""For so long no task ends where nothing is under way."""
_LOOK_S = 0.005
_COLLECT_EVERY = 64
_NEVER_S = 3600.0
_FILES = Path("/proc/self/fd")

_ORDINARY_BODY = b'{"model":"vllm","messages":[{"role":"user","content":"Hello"}]}'
_ORDINARY = Dialogue(
    "vllm",
    (
        Exchange(
            Request(
                "POST",
                "/v1/chat/completions",
                lines=(("Content-Type", "application/json"),),
                body=_ORDINARY_BODY,
                forwarded=_ORDINARY_BODY,
            ),
            Answer(parts=(Part(b'{"choices":[]}', b'{"choices":[]}'),)),
        ),
    ),
)
"""What is served all the same after everything else."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One dialogue that was not served as it had to be."""

    seed: str
    dialogue: Dialogue
    faults: tuple[str, ...]


class _Loud(logging.Handler):
    """Takes what the proxy and its libraries log as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        self.said.append(f"logged: {record.name}: {record.getMessage()} {cause!r}")


@dataclass(slots=True)
class World:
    """Proxies and an engine that run."""

    engine: Engine
    host: str
    applications: dict[str, Application]
    memories: Sequence[BodyMemory]
    loud: _Loud
    hang_s: float = HANG_S
    tasks: int = 0
    files: int = 0
    waves: int = 0
    count: int = 0
    said: list[str] = field(default_factory=list)

    async def wave(self, dialogues: Sequence[tuple[str, Dialogue]]) -> list[Finding]:
        """Plays dialogues side by side, then sees that nothing is left of them.

        Returns:
            What was wrong; a finding without a seed is of all of them together.
        """
        results: list[tuple[str, ...]] = [(_HANGS,)] * len(dialogues)

        async def one(index: int, dialogue: Dialogue) -> None:
            results[index] = await self._play(dialogue)

        try:
            async with asyncio.timeout(self.hang_s), asyncio.TaskGroup() as group:
                for index, (_, dialogue) in enumerate(dialogues):
                    group.create_task(one(index, dialogue))
        except TimeoutError:
            pass  # who has not come to an end says so
        found = [
            Finding(seed, dialogue, wrong)
            for (seed, dialogue), wrong in zip(dialogues, results, strict=True)
            if wrong
        ]
        left = await self._left()
        damaged = any(e.request_damage for _, played in dialogues for e in played.exchanges)
        if self.engine.strangers and not damaged:
            left.append("engine was sent a request that nobody has made")
        self.engine.strangers = 0
        if not left:
            left = [f"afterwards: {fault}" for fault in await self._play(_ORDINARY)]
        # Not before: the request of a client that has gone may still be on its way.
        self.engine.scripts.clear()
        if left:
            found.append(Finding("", dialogues[0][1], tuple(left)))
        return found

    async def _play(self, dialogue: Dialogue) -> tuple[str, ...]:
        names = [f"{self.count + index:07d}" for index in range(len(dialogue.exchanges))]
        self.count += len(names)
        scripts = [
            Script(exchange.answer, exchange.request.method == "HEAD", exchange.answer_damage)
            for exchange in dialogue.exchanges
        ]
        self.engine.scripts.update(zip(names, scripts, strict=True))
        parts = urlsplit(self.applications[dialogue.engine].data_url)
        address = (parts.hostname or "", parts.port or 0)
        got = await converse(dialogue, names, scripts, address)
        return tuple(self._faults(dialogue, names, scripts, got))

    def _faults(
        self,
        dialogue: Dialogue,
        names: Sequence[str],
        scripts: Sequence[Script],
        got: Sequence[Got],
    ) -> Iterator[str]:
        rows = zip(dialogue.exchanges, names, scripts, got, strict=True)
        for index, (exchange, name, script, seen) in enumerate(rows):
            if dialogue.pipelined and seen.left and not script.received:
                continue
            for fault in faults(exchange, name, script, seen, self.host):
                yield f"exchange {index}: {fault}"

    async def _left(self) -> list[str]:
        """What is still there though every client has gone; waits for it to go, but not long."""
        self.waves += 1
        if self.waves % _COLLECT_EVERY == 0:
            gc.collect()  # tells of exceptions that nobody has asked for
        found = self._remains()
        deadline = asyncio.get_running_loop().time() + _SETTLE_S
        while found and asyncio.get_running_loop().time() < deadline:
            await turns()
            found = self._remains()
            if found:
                await asyncio.sleep(_LOOK_S)
                found = self._remains()
        found += self.said + self.loud.said + self.engine.faults
        for told in (self.said, self.loud.said, self.engine.faults):
            told.clear()
        return found

    def _remains(self) -> list[str]:
        found: list[str] = []
        for name, application in self.applications.items():
            state = application.state()
            flying = sum(
                replica["in_flight"]
                for route in state["routes"]
                for pool in route["pools"]
                for replica in pool["replicas"]
            )
            admitted = state["admission"]["in_flight"] + state["admission"]["waiting"]
            if flying or admitted:
                found.append(f"left at {name}: {flying} at servers, {admitted} in admission")
        held = sum(memory.used_bytes for memory in self.memories)
        if held:
            found.append(f"left: {held} bytes of request bodies")
        if self.engine.busy:
            found.append(f"left: {self.engine.busy} exchanges that the engine is not free of")
        tasks = len(asyncio.all_tasks()) - self.tasks
        if tasks:
            found.append(f"left: {tasks} tasks")
        # A connection of the proxy to the engine has both its ends here.
        files = open_files() - self.files - 2 * len(self.engine.connections)
        if files:
            found.append(f"left: {files} file descriptors")
        return found


def open_files() -> int:
    """Descriptors of this process; 0 where they cannot be counted."""
    return len(os.listdir(_FILES)) if _FILES.is_dir() else 0  # noqa: PTH208 - hot, a list is enough


@asynccontextmanager
async def running(hang_s: float = HANG_S) -> AsyncIterator[World]:
    """Proxies and an engine for as long as the block runs."""
    loop = asyncio.get_running_loop()
    loud = _Loud()
    said: list[str] = []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: said.append(f"unhandled: {context}"))
    logging.getLogger().addHandler(loud)
    try:
        async with AsyncExitStack() as stack:
            world = await _built(stack, loud, said)
            world.hang_s = hang_s
            world.tasks = await _at_rest()
            world.files = open_files() - 2 * len(world.engine.connections)
            yield world
    finally:
        logging.getLogger().removeHandler(loud)
        loop.set_exception_handler(before)


async def _at_rest() -> int:
    """Tasks once what a start brings is over: servers that are asked what they are, first looks."""
    loop = asyncio.get_running_loop()
    least, since = len(asyncio.all_tasks()), loop.time()
    while loop.time() < since + _REST_S:
        await asyncio.sleep(_LOOK_S)
        now = len(asyncio.all_tasks())
        if now < least:
            least, since = now, loop.time()
    return least


async def _built(stack: AsyncExitStack, loud: _Loud, said: list[str]) -> World:
    loop = asyncio.get_running_loop()
    engine = Engine()
    server = await loop.create_server(
        lambda: EngineConnection(engine), "127.0.0.1", 0, backlog=1024
    )
    stack.callback(server.close)
    host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    gc.collect()
    older = {id(memory) for memory in _memories()}
    applications: dict[str, Application] = {}
    for name in ENGINES:
        application = Application(_config(name, host, folder), seed=SEED)
        applications[name] = await stack.enter_async_context(application.running())
    while engine.connections:
        await turns()
    # Nobody else has to know of them, so nobody hands them out.
    memories = [memory for memory in _memories() if id(memory) not in older]
    if len(memories) != len(applications):
        raise RuntimeError(f"{len(memories)} counts of buffered bodies for the proxies")
    return World(engine, host, applications, memories, loud, said=said)


def _memories() -> list[BodyMemory]:
    return [thing for thing in gc.get_objects() if isinstance(thing, BodyMemory)]


def _config(engine: str, host: str, folder: Path) -> Config:
    health: dict[str, Any] = {"interval_s": _NEVER_S, "timeout_s": 10.0}
    pool = {
        "name": "only",
        "method": "none",
        "engine": engine,
        "replicas": [{"url": f"http://{host}"}],
        "health": health,
        "balance": {"scrape_s": 0},
    }
    return Config.model_validate(
        {
            "listen": {"port": 0, "drain_s": 1.0},
            "admin": {"port": 0},
            "store": {"url": "memory:", "directory": str(folder / engine)},
            "decision_log": {"path": str(folder / f"{engine}.jsonl")},
            "routes": [
                {
                    "model": engine,
                    "aliases": [ALIAS + engine],
                    "baseline": "only",
                    "policy": {"name": "fixed"},
                    "pools": [pool],
                }
            ],
        }
    )
