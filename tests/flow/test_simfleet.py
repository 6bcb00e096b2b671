"""Simulated engines behind a whole proxy: what it learns is what the engines counted."""

from __future__ import annotations

import typing
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies.sim.spec import Event
from policies.types import ClassId
from router.app import Application
from router.config.base import EngineName
from router.config.load import load_config
from router.simfleet.faults import Fault, FaultKind
from router.simfleet.fleet import RunningEngine, SimFleet
from router.simfleet.settings import EngineSettings, Kind
from router.simfleet.traffic import Driver
from router.simulate.load import load_world
from tests.flow.conftest import Start
from tests.support.flow_client import ask, get, request_bytes
from tests.support.flow_wire import MODEL, dump
from tests.support.flow_world import always, config_of, decisions
from tests.support.simfleet_world import (
    PushedPace,
    ScriptedMachine,
    SimWorld,
    pool_of,
    simulated,
)

K = 4
REQUESTS = 24
PREFIX = {Kind.VLLM: "vllm:", Kind.LLAMACPP: "llamacpp:"}
KNOWN = typing.get_args(EngineName)
KINDS = [
    pytest.param(
        kind,
        marks=()
        if kind.value in KNOWN
        else pytest.mark.skip(f"the proxy has no adapter for {kind.value}"),
        id=kind.value,
    )
    for kind in Kind
]


async def fleet(
    kind: Kind, engines: AsyncExitStack, start: Start, folder: Path, **more: Any
) -> tuple[Application, SimWorld]:
    """A proxy that sends everything to the engine that speculates."""
    plain = EngineSettings(kind=kind, model=MODEL)
    fast = EngineSettings(kind=kind, model=MODEL, method="ngram", num_speculative_tokens=K)
    # Some steps find no draft, as with look-up methods.
    machine = ScriptedMachine(K, drafts=(True, True, False, True))
    worlds = [
        await engines.enter_async_context(simulated(plain)),
        await engines.enter_async_context(simulated(fast, machine=machine, **more)),
    ]
    pools = [pool_of("plain", worlds[0]), pool_of("fast", worlds[1])]
    app = await start(config_of(*pools, folder=folder, policy=always("fast")))
    return app, worlds[1]


def question(number: int) -> bytes:
    """Requests of all kinds, one after the other: whole, streams, with and without usage."""
    body: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"Say something about {number}."}],
        "max_tokens": 5 + number * 3,
        "ignore_eos": number % 2 == 0,
    }
    if number % 3:
        body["stream"] = True
    if number % 3 == 2:
        body["stream_options"] = {"include_usage": True}
    return dump(body)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_read_of_each_request_sums_up_to_the_engines_counters(
    kind: Kind, engines: AsyncExitStack, start: Start, tmp_path: Path
) -> None:
    """Drafted, accepted and generated tokens are equal to the last unit, and so are steps."""
    app, world = await fleet(kind, engines, start, tmp_path)
    for number in range(REQUESTS):
        reply = await ask(app.data_url, request_bytes(question(number)))
        assert reply.status == 200
    lines = await decisions(app)
    counters = world.machine.counters
    assert len(lines) == REQUESTS
    assert {line["acceptance_source"] for line in lines} == {"request"}
    assert sum(line["accepted"] for line in lines) == counters.accepted > 0
    assert sum(line["tokens"] for line in lines) == counters.generated
    if kind is not Kind.SGLANG:  # whose count of drafted tokens is nominal
        assert sum(line["drafted"] for line in lines) == counters.drafted
        metrics = await world.metrics()
        told = {
            name: sum(
                value for key, value in metrics.items() if key.startswith(PREFIX[kind] + name)
            )
            for name in (
                "spec_decode_num_drafts_total",
                "spec_decode_num_draft_tokens_total",
                "spec_decode_num_accepted_tokens_total",
                "spec_decode_num_accepted_tokens_per_pos_total",
            )
        }
        assert list(told.values()) == [
            counters.drafts,
            counters.drafted,
            counters.accepted,
            sum(counters.per_position),
        ]
    await app.flush()
    await app.refresh()
    cells = [
        item
        for entry in app.state()["routes"][0]["classes"]
        for item in entry["cells"]
        if item["pool"] == "fast" and item["tokens"]
    ]
    assert sum(item["acceptance_requests"] for item in cells) == REQUESTS
    assert sum(item["tokens"] for item in cells) == counters.generated
    steps = sum(item["tokens"] / item["tokens_per_step"] for item in cells)
    assert round(steps) == counters.generated - counters.accepted


async def test_the_client_gets_the_engines_bytes(
    engines: AsyncExitStack, start: Start, tmp_path: Path
) -> None:
    """What only the proxy asked for is not in them."""
    app, _ = await fleet(Kind.VLLM, engines, start, tmp_path)
    reply = await ask(app.data_url, request_bytes(question(1)))
    assert b'"usage"' not in reply.body
    assert reply.body.endswith(b"data: [DONE]\n\n")


async def test_a_fault_on_command_is_met_as_any_other(
    engines: AsyncExitStack, start: Start, tmp_path: Path
) -> None:
    """An engine that answers 503 is passed by, and the baseline steps in."""
    app, world = await fleet(Kind.LLAMACPP, engines, start, tmp_path)
    status, _, _ = await world.exchange("/sim/faults", {"kind": "status", "value": 503})
    assert status == 200
    reply = await ask(app.data_url, request_bytes(question(0)))
    [line] = await decisions(app)
    assert (reply.status, line["arm"], line["served_by"]) == (200, "fast", "plain")


async def test_servers_are_found_healthy(
    engines: AsyncExitStack, start: Start, tmp_path: Path
) -> None:
    """Probes and scrapes take a simulated engine for a real one."""
    app, _ = await fleet(Kind.VLLM, engines, start, tmp_path)
    ready = await get(app.data_url, "/ready")
    assert ready.status == 200


def world_of(engine: RunningEngine) -> SimWorld:
    """For exchanges with one server of a fleet."""
    service = engine.service
    return SimWorld(service, service.machine, PushedPace(), int(engine.url.rpartition(":")[2]))


@pytest.fixture
async def world_fleet() -> AsyncIterator[SimFleet]:
    """All servers of a world, each with a clock that is pushed by its own pauses."""
    fleet = SimFleet(load_world("llama8b-light"), pace=PushedPace)
    await fleet.start()
    yield fleet
    await fleet.stop()


async def test_a_world_behind_the_configuration_written_for_it(
    world_fleet: SimFleet, start: Start, tmp_path: Path
) -> None:
    """Its traffic is answered, in its classes, and all that is read is what its engines counted."""
    path = tmp_path / "sim.yaml"
    world_fleet.write_config(path, port=0, admin_port=0)
    given = load_config(path)
    log = {"path": str(tmp_path / "decisions.jsonl")}
    app = await start(given.model_validate(given.model_dump() | {"decision_log": log}))
    told_of: list[int] = []
    driver = Driver(
        world_fleet.world,
        app.data_url,
        model="simulated",
        pace=PushedPace(),
        answered=lambda arrival, _: told_of.append(arrival.index),
    )
    sent = await driver.run(duration_s=12.0)
    lines = await decisions(app)
    assert (sent.answered, sent.failed.total()) == (sent.sent, 0)
    assert sent.sent == len(lines) > 40
    assert sorted(told_of) == list(range(sent.sent))
    assert {line["class"] for line in lines} == set(world_fleet.world.traffic.classes)
    for pool in world_fleet.world.pools:
        counted = [e.service.machine.counters for e in world_fleet.engines if e.pool is pool]
        mine = [line for line in lines if line["served_by"] == pool.name]
        for name, theirs in (
            ("accepted", "accepted"),
            ("drafted", "drafted"),
            ("tokens", "generated"),
        ):
            told = sum(line[name] or 0 for line in mine)
            assert told == sum(getattr(item, theirs) for item in counted)


async def test_a_drafter_that_fails_leaves_plain_decoding(world_fleet: SimFleet) -> None:
    """From then on every step gives one token, and nothing is counted as drafted."""
    world_fleet.command([("eagle3", None, Fault(FaultKind.NO_DRAFTER))])
    [one, _] = [e for e in world_fleet.engines if e.pool.name == "eagle3"]
    world = SimWorld(
        one.service, one.service.machine, PushedPace(), int(one.url.rpartition(":")[2])
    )
    status, _, _ = await world.exchange(
        "/v1/chat/completions",
        {"model": "simulated", "messages": [{"role": "user", "content": "?"}], "max_tokens": 30},
        headers={"x-sim-class": "math", "x-sim-output-tokens": "30"},
    )
    counters = one.service.machine.counters
    assert (status, counters.generated, counters.drafted) == (200, 30, 0)


async def test_what_changes_in_a_world_does_so_at_its_request() -> None:
    """Counted over all servers; a server that fails is gone for its time."""
    events = (
        Event(2, "drift", pool="eagle3", class_id=ClassId("math"), factor=0.5),
        Event(3, "fail", pool="ngram", replica=1, seconds=30.0),
    )
    fleet = SimFleet(replace(load_world("llama8b-light"), events=events), pace=PushedPace)
    await fleet.start()
    asked = {"model": "simulated", "messages": [{"role": "user", "content": "?"}], "max_tokens": 3}
    seen = []
    try:
        plain, failing = fleet.engines[0], fleet.engines[3]
        drifting = [item for item in fleet.engines if item.pool.name == "eagle3"]
        for _ in range(3):
            await world_of(plain).exchange("/v1/chat/completions", asked)
            taus = {one.service.machine.spec.cells[ClassId("math")].tau for one in drifting}  # type: ignore[attr-defined]
            status, _, _ = await world_of(failing).exchange("/health")
            seen.append(
                (len(taus), min(taus) < drifting[0].pool.spec.cells[ClassId("math")].tau, status)
            )
    finally:
        await fleet.stop()
    assert seen == [(1, False, 200), (1, True, 200), (1, True, 0)]
