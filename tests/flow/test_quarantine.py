"""A pool that damages answers loses the classes in which it does, and only these."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from router.app import Application
from router.cli.main import app as commands
from router.simfleet.faults import Fault, FaultKind
from router.simfleet.settings import EngineSettings, Kind
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.clock import ManualClock
from tests.support.flow_backend import ScriptedBackend
from tests.support.flow_client import ask, get, request_bytes
from tests.support.flow_wire import MODEL, dump
from tests.support.flow_world import always, config_of, decisions, pool
from tests.support.simfleet_world import ScriptedMachine, SimWorld, pool_of, simulated

BLOCK_S = 150.0
"""A stretch of time is over, and nothing is added to it any more."""

THIRDS = {"plain": 1 / 3, "bad": 1 / 3, "good": 1 / 3}
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {"type": "object", "properties": {"word": {}}, "required": ["word"]},
    },
}


def question(number: int, **more: Any) -> bytes:
    """A request that makes its model call a tool."""
    return dump(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": f"Look for {number}."}],
            "max_tokens": 40,
            "temperature": 0,
            "tools": [TOOL],
            "tool_choice": "required",
            "stream": number % 2 == 0,
            **more,
        }
    )


async def asked(app: Application, count: int, clock: ManualClock) -> None:
    """Asks so many, lets their stretch of time end, and looks."""
    for number in range(count):
        reply = await ask(
            app.data_url,
            request_bytes(question(number), headers=("x-sim-output-tokens: 8",)),
        )
        assert reply.status == 200
    await app.flush()
    clock.advance(BLOCK_S)
    await app.refresh()


async def fleet(
    kind: Kind, engines: AsyncExitStack, start: Start, folder: Path, clock: ManualClock, **more: Any
) -> tuple[Application, SimWorld]:
    """A proxy before a baseline, a pool that will be damaged, and a healthy one."""
    plain = EngineSettings(kind=kind, model=MODEL)
    drafting = EngineSettings(kind=kind, model=MODEL, method="ngram", num_speculative_tokens=4)
    worlds = [
        await engines.enter_async_context(simulated(plain)),
        *[
            await engines.enter_async_context(simulated(drafting, machine=ScriptedMachine(4)))
            for _ in range(2)
        ],
    ]
    names = ("plain", "bad", "good")
    pools = [pool_of(name, world) for name, world in zip(names, worlds, strict=True)]
    policy = {"name": "fixed", "parameters": {"weights": THIRDS}}
    app = await start(config_of(*pools, folder=folder, policy=policy, **more), clock)
    return app, worlds[1]


def quarantines(app: Application) -> list[dict[str, Any]]:
    """What is shown of them."""
    found: list[dict[str, Any]] = app.state()["routes"][0]["quarantines"]
    return found


@pytest.mark.parametrize("kind", [Kind.VLLM, Kind.SGLANG, Kind.LLAMACPP])
async def test_a_pool_that_damages_calls_of_tools_is_quarantined_and_a_healthy_one_is_not(
    kind: Kind, engines: AsyncExitStack, start: Start, tmp_path: Path
) -> None:
    """In whatever way its engine writes them; it gets no more requests of the class."""
    clock = ManualClock()
    app, bad = await fleet(kind, engines, start, tmp_path, clock)
    bad.service.command([Fault(FaultKind.DAMAGE_TOOLS, every=3)])
    await asked(app, 240, clock)
    [found] = quarantines(app)
    assert (found["pool"], found["state"], found["times"]) == ("bad", "quarantined", 1)
    assert found["why"].startswith("structure: ")
    before = await served_by(app, "bad")
    await asked(app, 20, clock)
    assert await served_by(app, "bad") == before
    line = (await decisions(app))[-1]
    assert line["excluded"] == {"bad": "quarantined"}
    metrics = (await get(app.admin_url, "/metrics")).body.decode()
    labels = f'class="{found["class"]}",model="{MODEL}",pool="bad"'
    assert f"specroute_quarantined{{{labels}}} 1.0" in metrics
    kinds = [event["kind"] for event in app.state()["routes"][0]["events"]]
    assert kinds == ["quarantine"]


async def served_by(app: Application, arm: str) -> int:
    """Requests that a pool has answered so far."""
    return sum(line["served_by"] == arm for line in await decisions(app))


async def test_a_quarantine_ends_by_an_order(
    engines: AsyncExitStack, start: Start, tmp_path: Path
) -> None:
    """What was found before does not count again, and the order stands in the audit."""
    clock = ManualClock()
    app, bad = await fleet(Kind.VLLM, engines, start, tmp_path, clock)
    bad.service.command([Fault(FaultKind.DAMAGE_TOOLS, every=2)])
    await asked(app, 150, clock)
    [found] = quarantines(app)
    order = {"model": MODEL, "pool": "bad", "class": found["class"], "who": "me", "why": "mended"}
    bad.service.faults.clear()
    reply = await ask(app.admin_url, request_bytes(dump(order), "/api/quarantine/lift"))
    assert (reply.status, reply.json["quarantines"]) == (200, [])
    last = reply.json["audit"][-1]
    assert (last["what"], last["who"], last["why"]) == ("lifted", "me", "mended")
    await app.refresh()
    before = await served_by(app, "bad")
    await asked(app, 150, clock)
    assert quarantines(app) == []
    assert await served_by(app, "bad") > before
    again = await ask(app.admin_url, request_bytes(dump(order), "/api/quarantine/lift"))
    assert (again.status, "not quarantined" in again.json["error"]) == (404, True)
    listed = (await get(app.admin_url, "/api/quarantine")).json
    assert [line["what"] for line in listed["models"][MODEL]["audit"]] == ["quarantined", "lifted"]


async def run(app: Application, *arguments: str) -> str:
    """One command, in a thread of this process: what it says."""
    invoke = partial(CliRunner().invoke, commands, [*arguments, "--url", app.admin_url])
    result = await asyncio.to_thread(invoke)
    return result.stdout or str(result.exception)


async def test_an_operator_sees_and_lifts_it_from_the_command_line(
    engines: AsyncExitStack, start: Start, tmp_path: Path
) -> None:
    """With the reason in figures."""
    clock = ManualClock()
    app, bad = await fleet(Kind.VLLM, engines, start, tmp_path, clock)
    assert await run(app, "quarantine") == "nothing is quarantined\n"
    bad.service.command([Fault(FaultKind.DAMAGE_TOOLS, every=2)])
    await asked(app, 150, clock)
    [found] = quarantines(app)
    line = await run(app, "quarantine")
    assert line.startswith(f"{MODEL}  bad  {found['class']}  quarantined, until 20")
    assert line.strip().endswith(found["why"])
    where = (MODEL, "bad", found["class"])
    assert "serves" in await run(app, "quarantine", "lift", *where, "--why", "mended")
    assert "not quarantined" in await run(app, "quarantine", "lift", *where)
    assert await run(app, "quarantine") == "nothing is quarantined\n"


async def test_it_ends_after_its_time_and_lasts_twice_as_long_when_it_was_no_good(
    engines: AsyncExitStack, start: Start, tmp_path: Path
) -> None:
    """Probation: the pool serves again, and a relapse is found anew."""
    clock = ManualClock()
    sentinel = {"quarantine_s": 600}
    app, bad = await fleet(Kind.VLLM, engines, start, tmp_path, clock, sentinel=sentinel)
    bad.service.command([Fault(FaultKind.DAMAGE_TOOLS, every=2)])
    await asked(app, 150, clock)
    [first] = quarantines(app)
    clock.advance(600.0)
    await app.refresh()
    assert quarantines(app)[0]["state"] == "probation"
    clock.advance(BLOCK_S)  # what is left of this stretch of time counts for neither
    await asked(app, 150, clock)
    [second] = quarantines(app)
    assert (second["state"], second["times"]) == ("quarantined", 2)
    assert second["until"] - second["since"] == 2 * (first["until"] - first["since"])


async def test_who_does_not_want_it_has_no_quarantine(
    engines: AsyncExitStack, start: Start, tmp_path: Path
) -> None:
    """The figures are there all the same."""
    clock = ManualClock()
    sentinel = {"quarantine": False}
    app, bad = await fleet(Kind.VLLM, engines, start, tmp_path, clock, sentinel=sentinel)
    bad.service.command([Fault(FaultKind.DAMAGE_TOOLS, every=2)])
    await asked(app, 150, clock)
    assert quarantines(app) == []
    [entry] = app.state()["routes"][0]["classes"]
    structure = {cell["pool"]: cell["structure"] for cell in entry["cells"]}
    assert structure["bad"]["invalid"] > 10
    assert structure["good"]["invalid"] == structure["plain"]["invalid"] == 0


async def test_repeats_find_damage_where_the_baseline_serves_no_client(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Pairs need no traffic of the baseline's own; healthy answers beside them save nobody."""

    def call(arguments: str) -> bytes:
        return wire.llama_chat(
            "", tool_calls=[{"function": {"name": "look", "arguments": arguments}}]
        )

    fast.always(call('{"word": "a'))
    plain.always(call('{"word": "a"}'))
    clock = ManualClock()
    app = await start(
        config_of(
            pool("plain", plain),
            pool("fast", fast, method="draft_model"),
            folder=tmp_path,
            policy=always("fast"),
            sentinel={"share": 1.0, "max_cost": 1.0},
        ),
        clock,
    )
    for number in range(20):
        await ask(app.data_url, request_bytes(question(number, stream=False)))
        await app.repeat()
    await app.flush()
    clock.advance(BLOCK_S)
    await app.refresh()
    [found] = quarantines(app)
    assert found["why"].startswith("repeats: 20 of 20 answers invalid or cut")
    reply = await ask(app.data_url, request_bytes(question(1, stream=False)))
    assert reply.head.one("x-specroute-pool") == "plain"
