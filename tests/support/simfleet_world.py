"""Simulated engines for tests: a scripted machine, a clock that is pushed, and raw exchanges."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from policies.sim.machine import Emission, EngineCounters, SimMachine, SimRequest, Step
from router.simfleet.prompts import Prompts
from router.simfleet.service import EngineService
from router.simfleet.settings import EngineSettings, Kind
from tests.support.clock import ManualClock

MODEL = "sim-model"
STEP_S = 0.01
_MANY_TURNS = 100_000


@dataclass
class ScriptedMachine:
    """Everything submitted runs at once; drafts are accepted by a pattern."""

    k: int = 0
    pattern: tuple[int, ...] = (2, 0, 3, 1)
    """Accepted drafts of each request's steps, again and again."""
    drafts: tuple[bool, ...] = (True,)
    """Whether there is a draft at all."""
    _left: dict[str, int] = field(default_factory=dict)
    _at: dict[str, int] = field(default_factory=dict)
    _counters: EngineCounters = field(
        default_factory=lambda: EngineCounters(0, 0, 0, (), 0, 0, 0, 0)
    )

    def submit(self, request: SimRequest) -> None:
        """See `SimMachine`."""
        self._left[request.request_id] = request.output_tokens
        self._at[request.request_id] = -1
        self._counters = replace(
            self._counters, prompt=self._counters.prompt + request.prompt_tokens
        )

    def cancel(self, request_id: str) -> None:
        """See `SimMachine`."""
        self._left.pop(request_id, None)

    def step(self) -> Step | None:
        """See `SimMachine`."""
        if not self._left:
            return None
        running = len(self._left)
        emissions = tuple(self._emit(name) for name in tuple(self._left))
        self._counters = replace(self._counters, steps=self._counters.steps + 1)
        return Step(STEP_S, emissions, running, 0, running / 10)

    def _emit(self, name: str) -> Emission:
        at, left = self._at[name], self._left[name]
        first = at < 0
        drafted = 0 if first or not self.drafts[at % len(self.drafts)] else self.k
        accepted = min(self.pattern[at % len(self.pattern)], drafted, left - 1) if drafted else 0
        tokens = 1 + accepted
        self._at[name], self._left[name] = at + 1, left - tokens
        finished = self._left[name] == 0
        if finished:
            del self._left[name]
        counters = self._counters
        positions = list(counters.per_position) + [0] * (drafted - len(counters.per_position))
        for position in range(accepted):
            positions[position] += 1
        self._counters = replace(
            counters,
            drafts=counters.drafts + (drafted > 0),
            drafted=counters.drafted + drafted,
            accepted=counters.accepted + accepted,
            per_position=tuple(positions),
            generated=counters.generated + tokens,
            finished=counters.finished + finished,
        )
        return Emission(name, tokens, drafted, accepted, finished=finished, first=first)

    def restart(self) -> None:
        """See `SimMachine`."""
        self._left.clear()
        self._counters = EngineCounters(0, 0, 0, (), 0, 0, 0, 0)

    @property
    def counters(self) -> EngineCounters:
        """See `SimMachine`."""
        return self._counters


class PushedPace:
    """Time passes only in pauses, and these take no time.

    With `gate` steps wait until the test lets them go.
    """

    def __init__(
        self, clock: ManualClock | None = None, gate: asyncio.Semaphore | None = None
    ) -> None:
        self.clock = clock or ManualClock()
        self.gate = gate
        self.now = self.clock.monotonic
        self.wall = self.clock.wall

    async def pause(self, seconds: float) -> None:
        """See `Pace`."""
        if self.gate is not None:
            await self.gate.acquire()
        await self.wait(seconds)

    async def wait(self, seconds: float) -> None:
        """See `Pace`."""
        await asyncio.sleep(0)
        self.clock.advance(seconds)


async def until(holds: Callable[[], bool], push: Callable[[], object] = lambda: None) -> None:
    """Lets the loop go on until something holds; fails when it never does."""
    for _ in range(_MANY_TURNS):
        if holds():
            return
        push()
        await asyncio.sleep(0)
    raise AssertionError("it never came to pass")


@dataclass
class SimWorld:
    """One engine that listens."""

    service: EngineService
    machine: SimMachine
    pace: PushedPace
    port: int

    @property
    def url(self) -> str:
        """Of its port."""
        return f"http://127.0.0.1:{self.port}"

    async def exchange(
        self,
        path: str,
        body: object = None,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own: status, headers, body with its framing."""
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        verb = method or ("GET" if body is None else "POST")
        lines = [f"{verb} {path} HTTP/1.1", "Host: sim", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        lines += [f"Content-Length: {len(raw)}", "", ""]
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write("\r\n".join(lines).encode() + raw)
        got = b""
        try:
            while data := await reader.read(65536):
                got += data
        except ConnectionError:
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        head, _, rest = got.partition(b"\r\n\r\n")
        if not head:
            return 0, {}, b""
        first, *rows = head.decode("latin-1").split("\r\n")
        pairs = (row.partition(": ") for row in rows)
        return int(first.split()[1]), {name.lower(): value for name, _, value in pairs}, rest

    async def metrics(self) -> dict[str, float]:
        """The samples of `/metrics`, names with their labels."""
        _, _, body = await self.exchange("/metrics")
        rows = [row for row in body.decode().splitlines() if row and not row.startswith("#")]
        pairs = (row.rpartition(" ") for row in rows)
        return {name: float(value) for name, _, value in pairs if ":" in name}


def chat(**more: Any) -> dict[str, Any]:
    """A short question."""
    message = {"role": "user", "content": "Name the capital of France in one short sentence."}
    return {"model": MODEL, "messages": [message], "max_tokens": 12, "ignore_eos": True, **more}


def settings_of(kind: Kind, **more: Any) -> EngineSettings:
    """An engine that speculates."""
    return EngineSettings(
        kind=kind, **{"model": MODEL, "method": "ngram", "num_speculative_tokens": 4, **more}
    )


@asynccontextmanager
async def simulated(
    settings: EngineSettings,
    *,
    machine: ScriptedMachine | None = None,
    pace: PushedPace | None = None,
    **more: Any,
) -> AsyncIterator[SimWorld]:
    """Runs one simulated engine on a free port."""
    made = machine or ScriptedMachine(settings.num_speculative_tokens or 0)
    given = pace or PushedPace()
    prompts = Prompts(context=settings.context)
    service = EngineService(settings, made, prompts=prompts, pace=given, commands=True, **more)
    port = await service.start("127.0.0.1", 0)
    try:
        yield SimWorld(service, made, given, port)
    finally:
        await service.stop()


def pool_of(name: str, world: SimWorld) -> dict[str, Any]:
    """A pool with one simulated server."""
    settings = world.service.settings
    return {
        "name": name,
        "method": "ngram" if settings.speculates else "none",
        "engine": settings.kind.value,
        "num_speculative_tokens": settings.num_speculative_tokens,
        "replicas": [{"url": world.url}],
    }
