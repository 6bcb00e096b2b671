"""One simulated engine: what it does with each request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import orjson

from policies.sim.machine import SimMachine
from policies.types import ClassId
from router.lifecycle import Lifecycle
from router.simfleet.answer import Answer, Asked, Choice, Door
from router.simfleet.asking import asked_of
from router.simfleet.driver import Driver
from router.simfleet.faults import Fault, FaultError, FaultKind, Faults, read_faults
from router.simfleet.flow import Flow, Trouble
from router.simfleet.http import HttpServer, Manner, Received, Reply
from router.simfleet.meter import Meter
from router.simfleet.names import Names
from router.simfleet.pace import Pace
from router.simfleet.prompts import Prompts, prompt_of
from router.simfleet.settings import EngineSettings, Kind
from router.simfleet.wire.about import pages_of
from router.simfleet.wire.complaints import (
    Complaint,
    anthropic,
    complaints_of,
    dying_stream,
    required,
)
from router.simfleet.wire.events import Mouth, dump
from router.simfleet.wire.llamacpp import LlamaMouth
from router.simfleet.wire.metrics import Gauges, metrics_text
from router.simfleet.wire.sglang import SglangMouth
from router.simfleet.wire.vllm import VllmMouth
from router.simfleet.words import Words

_SPARE_FLOWS = 64
"""Finished requests that are remembered before they are sorted out."""

FAULTS_PATH = "/sim/faults"

_OPEN = {
    Kind.VLLM: frozenset({"/health", "/metrics", "/ping", "/version"}),
    Kind.SGLANG: frozenset({"/health", "/metrics", "/ping"}),
    Kind.LLAMACPP: frozenset({"/health", "/v1/models", "/models"}),
}
_DOORS = {
    Kind.VLLM: frozenset(Door) - {Door.GENERATE},
    Kind.SGLANG: frozenset({Door.CHAT, Door.COMPLETIONS, Door.GENERATE}),
    Kind.LLAMACPP: frozenset(Door) - {Door.GENERATE},
}
_NUMBERS = ("temperature", "top_p", "max_tokens", "n", "presence_penalty", "frequency_penalty")
_METRICS_TYPE = {
    Kind.VLLM: "text/plain; version=1.0.0; charset=utf-8",
    Kind.SGLANG: "text/plain; version=0.0.4; charset=utf-8",
    Kind.LLAMACPP: "text/plain; version=0.0.4",
}


class Drafter(Protocol):
    """How the drafter of a machine is changed while it runs."""

    def drift(self, class_id: ClassId | None, factor: float) -> None:
        """Drafts are accepted so many times as often; for a class, or for all of them."""

    def disable(self) -> None:
        """Nothing is drafted any more."""

    def restore(self) -> None:
        """As in the beginning."""


class EngineService:
    """Answers for one engine."""

    def __init__(
        self,
        settings: EngineSettings,
        machine: SimMachine,
        *,
        prompts: Prompts,
        pace: Pace,
        drafter: Drafter | None = None,
        commands: bool = False,
        seed: int = 0,
        on_request: Callable[[], None] = lambda: None,
    ) -> None:
        """Builds it; nothing listens yet.

        Args:
            settings: The engine.
            machine: What it runs.
            prompts: Reads requests.
            pace: Its clock.
            drafter: How the machine's drafter is changed; None for one that never does.
            commands: Opens the path that faults are commanded through.
            seed: Of the ids it gives.
            on_request: Called for each request that is taken.
        """
        self.settings = settings
        self.faults = Faults(pace.now)
        self.meter = Meter(settings)
        self.machine = machine
        self._prompts = prompts
        self._pace = pace
        self._drafter = drafter
        self._commands = commands
        self._on_request = on_request
        self._names = Names(settings.kind, seed)
        self._complaints = complaints_of(settings)
        self._words = Words()
        self._mouth = _mouth(settings)
        self._driver = Driver(machine, pace, self.faults, self._happen, self.meter.stepped)
        self._flows: set[Flow] = set()
        self._tasks = Lifecycle()
        self._number = 0
        self._started = int(pace.wall())
        self._pages = pages_of(settings, self._started, self._driver)
        self._loading_until = 0.0
        self._drafting: tuple[Fault, ...] = ()
        self._http = HttpServer(self.handle, Manner(settings.kind, pace.wall))

    async def start(self, host: str, port: int) -> int:
        """Begins to listen; returns the port."""
        taken = await self._http.start(host, port)
        self._tasks.once("simulated engine", self._driver.run)
        return taken

    async def stop(self) -> None:
        """Ends everything."""
        await self._http.stop()
        await self._tasks.stop()

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return self._driver.running

    @property
    def inside(self) -> int:
        """Requests that run or wait."""
        return self._driver.inside

    def command(self, faults: list[Fault]) -> None:
        """Puts faults in force."""
        self.faults.add(faults)
        self._happen()

    def handle(self, request: Received, reply: Reply) -> None:
        """Answers one request, now or later."""
        self._happen()
        if request.path == FAULTS_PATH and self._commands:
            self._command(request, reply)
            return
        if self._pace.now() < self._loading_until:
            self._loading(reply)
            return
        if not self._allowed(request):
            self._complain(reply, self._complaints.unauthorized())
            return
        page = self._pages.get(request.path)
        if page is not None:
            self._page(request, reply, page)
            return
        try:
            door = Door(request.path)
        except ValueError:
            self._complain(reply, self._complaints.not_found())
            return
        if door not in _DOORS[self.settings.kind]:
            self._complain(reply, self._complaints.not_found())
        elif request.method != "POST":
            self._complain(reply, self._complaints.method("POST"))
        else:
            self._ask(door, request, reply)

    def _allowed(self, request: Received) -> bool:
        key = self.settings.api_key
        if key is None or request.path in _OPEN[self.settings.kind]:
            return True
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        return key in (given, request.headers.get("x-api-key"))

    def _complain(self, reply: Reply, complaint: Complaint) -> None:
        reply.whole(complaint.status, complaint.body, extra=complaint.extra, bare=complaint.bare)

    def _loading(self, reply: Reply) -> None:
        """llama.cpp says so; the ports of the others are not open yet."""
        if self.settings.kind is Kind.LLAMACPP:
            self._complain(reply, self._complaints.other(503, "Loading model"))
        else:
            reply.cut()

    def _page(self, request: Received, reply: Reply, page: Callable[[], Any]) -> None:
        if request.method != "GET":
            self._complain(reply, self._complaints.method("GET"))
            return
        if request.path == "/metrics":
            self._metrics(reply)
            return
        told = page()
        if told is None:
            reply.whole(200, b"", content=None)
        else:
            reply.whole(200, orjson.dumps(told))

    def _metrics(self, reply: Reply) -> None:
        if self.faults.active(FaultKind.NO_METRICS):
            self._complain(reply, self._complaints.not_found())
            return
        driver = self._driver
        gauges = Gauges(driver.running, driver.waiting, driver.kv_usage)
        text = metrics_text(self.settings, self.meter.totals, gauges)
        kind = self.settings.kind
        if kind is Kind.SGLANG:
            reply.start(_METRICS_TYPE[kind])
            reply.chunks([text])
            reply.end()
            return
        since = (("Process-Start-Time-Unix", str(self._started)),)
        extra = since if kind is Kind.LLAMACPP else ()
        reply.whole(200, text, content=_METRICS_TYPE[kind], extra=extra)

    def _ask(self, door: Door, request: Received, reply: Reply) -> None:
        body = self._read(door, request)
        if isinstance(body, Complaint):
            self._complain(reply, anthropic(body) if door is Door.MESSAGES else body)
            return
        asked = asked_of(door, body, self.settings.kind)
        tokens, text = prompt_of(door, body)
        complaint = self._refusal(asked, body, tokens)
        if complaint is not None:
            self._complain(reply, anthropic(complaint) if door is Door.MESSAGES else complaint)
            return
        self._number += 1
        self._on_request()
        if self._pace.now() < self._loading_until:  # it has just gone
            self._loading(reply)
            return
        prompt = self._prompts.read(asked, body, request.headers, tokens, text)
        number, class_id = self._number, prompt.class_id
        status = self.faults.hit(FaultKind.STATUS, number, class_id)
        if status is not None:
            self._fail(reply, status)
            return
        trouble = Trouble(
            self.faults.hit(FaultKind.CUT, number, class_id),
            self.faults.hit(FaultKind.GARBAGE, number, class_id),
            damaged_tools=self.faults.hit(FaultKind.DAMAGE_TOOLS, number, class_id) is not None,
            damaged_text=self.faults.hit(FaultKind.DAMAGE_TEXT, number, class_id) is not None,
        )
        answer = self._answer(asked, prompt.prompt_tokens, prompt.cached_tokens)
        flow = Flow(
            answer,
            prompt,
            reply,
            mouth=self._mouth,
            meter=self.meter,
            words=self._words,
            now=self._pace.now,
            kind=self.settings.kind,
            trouble=trouble,
            tool_argument=_argument(body, asked.tool),
        )
        delay = self.faults.hit(FaultKind.DELAY, number, class_id)
        if delay is None:
            self._submit(flow, reply, number)
            return

        async def later() -> None:
            await self._pace.wait(delay.value)
            if not reply.ended:
                self._submit(flow, reply, number)

        self._tasks.once("delayed request", later)

    def _submit(self, flow: Flow, reply: Reply, number: int) -> None:
        if len(self._flows) > 2 * self._driver.inside + _SPARE_FLOWS:
            self._flows = {item for item in self._flows if not item.ended}
        self._flows.add(flow)
        try:
            flow.submit(self._driver, str(number))
        except ValueError:
            self._complain(reply, self._complaints.overflow(flow.answer.prompt_tokens))

    def _read(self, door: Door, request: Received) -> dict[str, Any] | Complaint:
        try:
            body = orjson.loads(request.body)
        except orjson.JSONDecodeError:
            return self._complaints.bad_json(request.body)
        if not isinstance(body, dict):
            return self._complaints.missing(required(door), {})
        if required(door) not in body:
            return self._complaints.missing(required(door), body)
        for name in _NUMBERS:
            value = body.get(name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float)
            ):
                return self._complaints.no_number(name, value)
        return body

    def _refusal(self, asked: Asked, body: dict[str, Any], tokens: int) -> Complaint | None:
        settings = self.settings
        refused = self._complaints.refused(asked, body)
        if refused is not None:
            return refused
        if tokens >= settings.context:
            return self._complaints.overflow(tokens)
        if settings.max_waiting is not None and self._driver.waiting >= settings.max_waiting:
            return self._complaints.other(503, "The queue is full.")
        return None

    def _fail(self, reply: Reply, fault: Fault) -> None:
        complaint = self._complaints.other(int(fault.value), "This was asked for: a fault.")
        if fault.retry_after_s is not None:
            complaint = replace(complaint, extra=(("retry-after", str(fault.retry_after_s)),))
        self._complain(reply, complaint)

    def _answer(self, asked: Asked, prompt_tokens: int, cached_tokens: int) -> Answer:
        names = self._names
        name = names.answer(asked.door)
        separate = self.settings.kind is Kind.SGLANG and asked.stream
        choices = [
            Choice(
                index,
                names.answer(asked.door) if separate and index else name,
                names.tool() if asked.tool else "",
            )
            for index in range(asked.n)
        ]
        echoes = self.settings.kind is Kind.SGLANG and bool(asked.model)
        return Answer(
            asked=asked,
            created=lambda: int(self._pace.wall()),
            prompt_tokens=prompt_tokens,
            choices=choices,
            began=int(self._pace.wall()),
            model=asked.model if echoes else self.settings.model,
            cached_tokens=cached_tokens,
            prompt_ids=list(range(prompt_tokens)) if asked.token_ids else None,
            item_id=names.item(),
        )

    def _command(self, request: Received, reply: Reply) -> None:
        if request.method == "DELETE":
            self.faults.clear()
            self._happen()
        elif request.method == "POST":
            try:
                self.command(read_faults(orjson.loads(request.body)))
            except (FaultError, orjson.JSONDecodeError) as error:
                reply.whole(400, dump({"error": str(error)}))
                return
        reply.whole(200, dump({"faults": self.faults.state()}))

    def _happen(self) -> None:
        """Does what faults ask for whose time has come."""
        for fault in self.faults.begun():
            self._restart(fault.value)
        drafting = (
            *self.faults.active(FaultKind.NO_DRAFTER),
            *self.faults.active(FaultKind.DRIFT),
        )
        if self._drafter is not None and drafting != self._drafting:
            self._drafting = drafting
            self._drafter.restore()
            for fault in drafting:
                if fault.kind is FaultKind.NO_DRAFTER:
                    self._drafter.disable()
                else:
                    self._drafter.drift(fault.class_id, fault.value)

    def _restart(self, loading_s: float) -> None:
        self._driver.restart()
        self._prompts.cache.clear()
        self.meter.reset()
        self._started = int(self._pace.wall())
        self._loading_until = self._pace.now() + loading_s
        dying = dying_stream(self._complaints) if self.settings.kind is Kind.VLLM else None
        for flow in self._flows:
            flow.die(dying)
        self._flows.clear()


def _mouth(settings: EngineSettings) -> Mouth:
    match settings.kind:
        case Kind.VLLM:
            return VllmMouth(settings)
        case Kind.SGLANG:
            return SglangMouth(settings)
        case Kind.LLAMACPP:
            return LlamaMouth(settings)


def _argument(body: dict[str, Any], tool: str | None) -> str:
    """Name of the first argument that the tool takes."""
    for item in body.get("tools") or ():
        function = item.get("function", {}) if isinstance(item, dict) else {}
        if tool and function.get("name") == tool:
            properties = (function.get("parameters") or {}).get("properties") or {}
            return str(next(iter(properties), "value"))
    return "value"
