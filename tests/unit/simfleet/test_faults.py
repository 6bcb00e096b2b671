"""What goes wrong on command, and when."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from policies.types import ClassId
from router.simfleet.faults import Fault, FaultError, FaultKind, Faults, read_faults
from router.simfleet.prompts import Prompts
from router.simfleet.service import EngineService
from router.simfleet.settings import Kind
from tests.support.clock import ManualClock
from tests.support.simfleet_world import (
    PushedPace,
    ScriptedMachine,
    chat,
    settings_of,
    simulated,
    until,
)

CHAT = "/v1/chat/completions"
KINDS = pytest.mark.parametrize("kind", list(Kind))


def test_a_fault_is_in_force_from_its_time_on_for_its_time() -> None:
    """Times are counted from the command on; `for_s` of null is until it is taken back."""
    clock = ManualClock()
    faults = Faults(clock.monotonic)
    faults.add([Fault(FaultKind.SLOW, 2.0, at_s=5.0, for_s=10.0), Fault(FaultKind.FREEZE)])
    seen = []
    for _ in range(4):
        seen.append((bool(faults.active(FaultKind.SLOW)), bool(faults.active(FaultKind.FREEZE))))
        clock.advance(5.0)
    faults.clear()
    assert seen == [(False, True), (True, True), (True, True), (False, True)]
    assert faults.state() == []


def test_a_restart_happens_once() -> None:
    """When its time has come, whoever asks first does it."""
    clock = ManualClock()
    faults = Faults(clock.monotonic)
    faults.add([Fault(FaultKind.RESTART, at_s=1.0)])
    assert faults.begun() == []
    clock.advance(1.0)
    assert [len(faults.begun()), len(faults.begun())] == [1, 0]


def test_one_in_so_many_and_one_class() -> None:
    """`every` counts requests, `class_id` leaves the others alone."""
    fault = Fault(FaultKind.CUT, every=3, class_id=ClassId("code"))
    met = [number for number in range(1, 10) if fault.meets(number, ClassId("code"))]
    assert met == [3, 6, 9]
    assert not fault.meets(3, ClassId("prose"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (7, "an object"),
        ({"kind": "quake"}, "kind must be one of"),
        ({"kind": "slow"}, "above 0"),
        ({"kind": "delay", "value": -1}, "at least 0"),
        ({"kind": "status", "value": 200}, "must be one of"),
        ({"kind": "cut", "every": 0}, "at least 1"),
        ({"kind": "cut", "often": 1}, "unknown: often"),
    ],
)
def test_commands_that_are_none(given: object, said: str) -> None:
    """What is wrong is said."""
    with pytest.raises(FaultError, match=said):
        read_faults(given)


async def command(world: Any, *faults: dict[str, Any]) -> None:
    """Puts faults in force."""
    status, _, _ = await world.exchange("/sim/faults", list(faults))
    assert status == 200


@KINDS
async def test_a_status_with_the_time_to_wait(kind: Kind) -> None:
    """429 in the engine's shape, with Retry-After."""
    async with simulated(settings_of(kind)) as world:
        await command(world, {"kind": "status", "value": 429, "retry_after_s": 7})
        status, headers, body = await world.exchange(CHAT, chat())
        await world.exchange("/sim/faults", method="DELETE")
        again, _, _ = await world.exchange(CHAT, chat())
    assert (status, headers["retry-after"], again) == (429, "7", 200)
    assert json.loads(body)


@KINDS
async def test_a_stream_is_cut_after_so_many_events(kind: Kind) -> None:
    """What was sent stays readable, and the machine drops the request."""
    async with simulated(settings_of(kind)) as world:
        await command(world, {"kind": "cut", "value": 3})
        status, _, body = await world.exchange(CHAT, chat(stream=True, max_tokens=500))
        assert world.service.inside == 0
    assert status in (200, 0)  # a cut may overtake what was written
    assert b"[DONE]" not in body


async def test_garbage_in_a_stream() -> None:
    """Bytes that are no chunk."""
    async with simulated(settings_of(Kind.VLLM)) as world:
        await command(world, {"kind": "garbage", "value": 3})
        _, _, body = await world.exchange(CHAT, chat(stream=True, max_tokens=500))
    assert b"[DONE]" not in body


@KINDS
async def test_a_restart_forgets(kind: Kind) -> None:
    """Counters, prompts and what runs; vLLM's streams say so, the others break off."""
    gate = asyncio.Semaphore(0)
    async with simulated(settings_of(kind), pace=PushedPace(gate=gate)) as world:
        asking = asyncio.ensure_future(world.exchange(CHAT, chat(stream=True, max_tokens=500)))
        gate.release()
        gate.release()
        await until(lambda: world.machine.counters.steps >= 3)
        await command(world, {"kind": "restart"})
        _, _, body = await asking
        assert world.machine.counters.steps == 0
        assert world.service.meter.totals.generated.total() == 0
        assert (b"EngineCore" in body) is (kind is Kind.VLLM)


async def test_loading_after_a_restart() -> None:
    """llama.cpp says that it loads, on every path, until it has."""
    clock = ManualClock()
    async with simulated(settings_of(Kind.LLAMACPP), pace=PushedPace(clock)) as world:
        await command(world, {"kind": "restart", "value": 30})
        status, _, body = await world.exchange("/health")
        clock.advance(30.0)
        after, _, _ = await world.exchange("/health")
    assert (status, after) == (503, 200)
    assert json.loads(body)["error"]["message"] == "Loading model"


async def test_slow_steps_and_a_late_start() -> None:
    """Steps take so many times as long, and a request is taken so much later."""
    clock = ManualClock()
    async with simulated(settings_of(Kind.LLAMACPP), pace=PushedPace(clock)) as world:
        await command(world, {"kind": "slow", "value": 5}, {"kind": "delay", "value": 3})
        before = clock.monotonic()
        _, _, body = await world.exchange(CHAT, chat(max_tokens=1))
    assert json.loads(body)["usage"]["completion_tokens"] == 1
    assert clock.monotonic() - before == pytest.approx(3.0 + 5 * 0.01)


async def test_a_freeze_holds_everything_until_it_is_over() -> None:
    """Connections stay open, and the answer comes whole when it is over."""
    clock = ManualClock()
    async with simulated(settings_of(Kind.VLLM), pace=PushedPace(clock)) as world:
        await command(world, {"kind": "freeze", "for_s": 2.0})
        before = clock.monotonic()
        status, _, _ = await world.exchange(CHAT, chat(max_tokens=1))
    assert status == 200
    assert clock.monotonic() - before >= 2.0


async def test_metrics_that_are_missing() -> None:
    """Only while it lasts."""
    async with simulated(settings_of(Kind.VLLM)) as world:
        await command(world, {"kind": "no_metrics"})
        status, _, _ = await world.exchange("/metrics")
        await world.exchange("/sim/faults", method="DELETE")
        after, _, _ = await world.exchange("/metrics")
    assert (status, after) == (404, 200)


async def test_damaged_arguments_of_tools() -> None:
    """One answer in so many cannot be read as JSON."""
    tool = {"type": "function", "function": {"name": "weather", "parameters": {}}}
    asked = chat(tools=[tool], tool_choice="required", ignore_eos=False, max_tokens=50)
    readable = []
    async with simulated(settings_of(Kind.VLLM)) as world:
        await command(world, {"kind": "damage_tools", "every": 2})
        for _ in range(4):
            _, _, body = await world.exchange(CHAT, asked, headers={"x-sim-output-tokens": "9"})
            [choice] = json.loads(body)["choices"]
            text = choice["message"]["tool_calls"][0]["function"]["arguments"]
            readable.append(text.endswith('"}'))
    assert readable == [True, False, True, False]


async def test_damaged_text() -> None:
    """One answer in so many has another word in its middle, and all else is as it was."""
    texts = []
    async with simulated(settings_of(Kind.SGLANG)) as world:
        await command(world, {"kind": "damage_text", "every": 2})
        for _ in range(3):
            _, _, body = await world.exchange(CHAT, chat(temperature=0))
            texts.append(json.loads(body)["choices"][0]["message"]["content"].split())
    sound, damaged, again = texts
    assert sound == again
    assert [i for i, word in enumerate(damaged) if word != sound[i]] == [6]


class NotedDrafter:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def drift(self, class_id: ClassId | None, factor: float) -> None:
        """See `service.Drafter`."""
        self.told.append((class_id, factor))

    def disable(self) -> None:
        """See `service.Drafter`."""
        self.told.append("disable")

    def restore(self) -> None:
        """See `service.Drafter`."""
        self.told.append("restore")


async def test_the_drafter_is_told_when_it_changes() -> None:
    """At the beginning of a fault and at its end, not with every request."""
    drafter, clock = NotedDrafter(), ManualClock()
    settings = settings_of(Kind.VLLM)
    service = EngineService(
        settings,
        ScriptedMachine(4),
        prompts=Prompts(context=settings.context),
        pace=PushedPace(clock),
        drafter=drafter,
    )
    service.command([Fault(FaultKind.DRIFT, 0.5, for_s=5.0, class_id=ClassId("code"))])
    service.command([Fault(FaultKind.NO_DRAFTER, for_s=9.0)])
    for _ in range(3):
        clock.advance(4.0)
        service.command([])
    assert drafter.told == [
        *["restore", ("code", 0.5)],
        *["restore", "disable", ("code", 0.5)],
        *["restore", "disable"],
        "restore",
    ]


async def test_without_leave_there_are_no_commands() -> None:
    """The path is not found."""
    settings = settings_of(Kind.VLLM)
    service = EngineService(
        settings, ScriptedMachine(4), prompts=Prompts(context=64), pace=PushedPace()
    )
    port = await service.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /sim/faults HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n[]")
    line = await reader.readline()
    writer.close()
    await service.stop()
    assert line == b"HTTP/1.1 404 Not Found\r\n"
