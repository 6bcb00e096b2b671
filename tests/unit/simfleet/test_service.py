"""One simulated engine over a socket: answers, counters, hints, clients that leave."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from router.simfleet.settings import Kind, Record
from tests.support.simfleet_world import (
    MODEL,
    PushedPace,
    ScriptedMachine,
    SimWorld,
    chat,
    settings_of,
    simulated,
    until,
)

KINDS = pytest.mark.parametrize("kind", list(Kind))


def unchunked(body: bytes) -> list[bytes]:
    """The chunks of a body."""
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            break
        parts.append(body[:length])
        body = body[length + 2 :]
    return parts


def events(body: bytes) -> list[dict[str, Any]]:
    """The JSON of all events."""
    joined = b"".join(unchunked(body))
    data = [item.rpartition(b"data: ")[2] for item in joined.split(b"\n\n")]
    return [json.loads(item) for item in data if item.startswith(b"{")]


@KINDS
async def test_an_answer_has_the_tokens_that_were_asked_for(kind: Kind) -> None:
    """`max_tokens` with `ignore_eos` is the length, and the reason of the end is `length`."""
    async with simulated(settings_of(kind)) as world:
        status, _, body = await world.exchange("/v1/chat/completions", chat(max_tokens=17))
    told = json.loads(body)
    assert (status, told["usage"]["completion_tokens"]) == (200, 17)
    assert told["choices"][0]["finish_reason"] == "length"


@KINDS
async def test_a_hint_decides_the_length_of_an_answer_that_ends_by_itself(kind: Kind) -> None:
    """Its last token is the end itself, which has no text."""
    async with simulated(settings_of(kind)) as world:
        _, _, body = await world.exchange(
            "/v1/chat/completions",
            chat(max_tokens=100, ignore_eos=False),
            headers={"x-sim-output-tokens": "9"},
        )
    told = json.loads(body)
    text = told["choices"][0]["message"]["content"]
    assert told["choices"][0]["finish_reason"] == "stop"
    assert (told["usage"]["completion_tokens"], len(text.split())) == (9, 8)


@KINDS
async def test_a_stream_holds_the_text_of_the_whole_answer(kind: Kind) -> None:
    """The same request gives the same text in both ways, for it is drawn by seed and place."""
    texts = []
    for streamed in (False, True):
        async with simulated(settings_of(kind)) as world:
            _, _, body = await world.exchange("/v1/chat/completions", chat(stream=streamed))
        if streamed:
            deltas = [c["delta"] for item in events(body) for c in item["choices"]]
            texts.append("".join(delta.get("content") or "" for delta in deltas))
        else:
            texts.append(json.loads(body)["choices"][0]["message"]["content"])
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("kind", "per_step"), [(Kind.VLLM, True), (Kind.LLAMACPP, False)])
async def test_events_are_steps_or_tokens(kind: Kind, *, per_step: bool) -> None:
    """One for each step from vLLM, one for each token from llama.cpp."""
    async with simulated(settings_of(kind)) as world:
        _, _, body = await world.exchange("/v1/chat/completions", chat(stream=True))
        counters = world.machine.counters
    told = [c["delta"].get("content") for item in events(body) for c in item["choices"]]
    expected = counters.steps if per_step else counters.generated
    assert sum(bool(text) for text in told) == expected


@KINDS
async def test_metrics_are_the_machines_counters(kind: Kind) -> None:
    """Whatever the moment at which an engine counts: when it is idle they are equal."""
    machine = ScriptedMachine(4, drafts=(True, False))
    async with simulated(settings_of(kind), machine=machine) as world:
        for tokens in (1, 2, 30):
            await world.exchange("/v1/chat/completions", chat(max_tokens=tokens))
        totals, counters = world.service.meter.totals, machine.counters
    assert totals.generated.total() == counters.generated
    assert totals.prompt.total() == counters.prompt
    assert (totals.drafts, totals.drafted) == (counters.drafts, counters.drafted)
    assert (totals.accepted, totals.steps) == (counters.accepted, counters.steps)
    assert tuple(totals.per_position) == counters.per_position


@pytest.mark.parametrize(
    ("kind", "moved"), [(Kind.VLLM, True), (Kind.SGLANG, False), (Kind.LLAMACPP, False)]
)
async def test_counters_move_with_steps_or_at_the_end(kind: Kind, *, moved: bool) -> None:
    """In the middle of an answer vLLM has counted its tokens, the others have not."""
    gate = asyncio.Semaphore(0)
    async with simulated(settings_of(kind), pace=PushedPace(gate=gate)) as world:
        asking = asyncio.ensure_future(world.exchange("/v1/chat/completions", chat()))
        for _ in range(3):
            gate.release()
        await until(
            lambda: world.machine.counters.steps >= 4
        )  # three are told, the fourth is in its pause
        assert (world.service.meter.totals.generated.total() > 0) is moved
        for _ in range(20):
            gate.release()
        status, _, _ = await asking
    assert status == 200


@KINDS
async def test_a_client_that_leaves_frees_its_place(kind: Kind) -> None:
    """The machine has nothing to do any more, and what was made stays counted."""
    gate = asyncio.Semaphore(0)
    async with simulated(settings_of(kind), pace=PushedPace(gate=gate)) as world:
        asking = asyncio.ensure_future(
            world.exchange("/v1/chat/completions", chat(stream=True, max_tokens=4000))
        )
        gate.release()
        await until(lambda: world.service.inside > 0)
        asking.cancel()
        await until(lambda: world.service.inside == 0, gate.release)
        assert world.machine.step() is None
        assert world.service.meter.totals.ended["abort"] == 1


@KINDS
async def test_several_choices(kind: Kind) -> None:
    """`n` choices are as many requests of the machine; llama.cpp counts one of them."""
    async with simulated(settings_of(kind)) as world:
        _, _, body = await world.exchange("/v1/chat/completions", chat(n=3, max_tokens=5))
        generated = world.machine.counters.generated
    told = json.loads(body)
    assert [choice["index"] for choice in told["choices"]] == [0, 1, 2]
    assert generated == 15
    assert told["usage"]["completion_tokens"] == (5 if kind is Kind.LLAMACPP else 15)


async def test_old_vllm_has_no_record() -> None:
    """Before 0.29 there is none, before 0.26 not even the place for it."""
    for version, expected in (("0.28.0", {"metrics": None}), ("0.25.1", {})):
        settings = settings_of(Kind.VLLM, version=version, record=Record.DETAILED)
        async with simulated(settings) as world:
            _, _, body = await world.exchange("/v1/chat/completions", chat())
        told = json.loads(body)
        assert {key: told[key] for key in ("metrics",) if key in told} == expected


@pytest.mark.parametrize(
    ("version", "keys"),
    [
        ("0.5.23", {"spec_num_correct_drafts"}),
        ("0.5.19", {"spec_num_correct_drafts", "spec_accepted_drafts"}),
    ],
)
async def test_generations_of_sglangs_keys(version: str, keys: set[str]) -> None:
    """The names that a version tells; before 0.5.19 nothing is told."""
    async with simulated(settings_of(Kind.SGLANG, version=version)) as world:
        _, _, body = await world.exchange(
            "/v1/chat/completions", chat(return_spec_tokens_details=True)
        )
    told = json.loads(body)["sglext"]["spec_tokens_details"]
    assert {key for key in told if key.endswith("ed_drafts") or "correct_d" in key} >= keys
    async with simulated(settings_of(Kind.SGLANG, version="0.5.18")) as world:
        _, _, body = await world.exchange(
            "/v1/chat/completions", chat(return_spec_tokens_details=True)
        )
    assert "sglext" not in json.loads(body)


async def test_sampling_that_vllm_refuses_when_it_drafts() -> None:
    """`min_p` and `logit_bias` are for engines without a drafter."""
    for method, status in (("ngram", 400), ("none", 200)):
        async with simulated(settings_of(Kind.VLLM, method=method)) as world:
            for more in ({"min_p": 0.1}, {"logit_bias": {"5": 1.0}}):
                got = await world.exchange("/v1/chat/completions", chat(**more))
                assert got[0] == status


async def test_a_full_queue() -> None:
    """Beyond the limit of those that wait new ones get 503 at once."""
    gate = asyncio.Semaphore(0)
    settings = settings_of(Kind.VLLM, max_waiting=1)
    async with simulated(settings, pace=PushedPace(gate=gate)) as world:
        first = asyncio.ensure_future(world.exchange("/v1/chat/completions", chat()))
        await until(lambda: world.service.running > 0)
        second = asyncio.ensure_future(world.exchange("/v1/chat/completions", chat()))
        await until(lambda: world.service.inside >= 2)
        status, _, body = await world.exchange("/v1/chat/completions", chat())
        for _ in range(60):
            gate.release()
        await asyncio.gather(first, second)
    assert (status, json.loads(body)["error"]["type"]) == (503, "ServiceUnavailableError")


async def test_a_prompt_seen_before_is_cached() -> None:
    """All of it in blocks but its last token, and nothing of another one."""
    async with simulated(settings_of(Kind.LLAMACPP)) as world:
        told = []
        for text in ("a" * 640, "a" * 640, "b" * 640):
            message = {"role": "user", "content": text}
            _, _, body = await world.exchange("/v1/chat/completions", chat(messages=[message]))
            told.append(json.loads(body)["timings"]["cache_n"])
    assert told == [0, 160, 0]


@KINDS
async def test_a_call_of_a_tool(kind: Kind) -> None:
    """Arguments are an object with the first of the tool's parameters."""
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    asked = chat(tools=[tool], tool_choice="required", ignore_eos=False, max_tokens=100)
    hint = {"x-sim-output-tokens": "8"}
    async with simulated(settings_of(kind)) as world:
        _, _, body = await world.exchange("/v1/chat/completions", asked, headers=hint)
    [choice] = json.loads(body)["choices"]
    [call] = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert (call["function"]["name"], list(json.loads(call["function"]["arguments"]))) == (
        "weather",
        ["city"],
    )


async def test_connections_are_kept() -> None:
    """Two requests sent at once on one connection are answered in their order."""
    async with simulated(settings_of(Kind.VLLM)) as world:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(
            b"GET /version HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        first = await reader.readuntil(b'{"version":"0.33.0"}')
        second = await reader.readuntil(b"\r\n\r\n")
        writer.close()
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"connection: close" not in first
    assert b"content-length: 0\r\n" in second


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("kind", [Kind.VLLM, Kind.LLAMACPP])
async def test_newer_dialects(kind: Kind, path: str) -> None:
    """Whole and streamed they tell the same tokens."""
    body = {"model": MODEL, "max_tokens": 7, "max_output_tokens": 7, "ignore_eos": True}
    body |= {"input": "Hello.", "messages": [{"role": "user", "content": "Hello."}]}
    async with simulated(settings_of(kind)) as world:
        _, _, whole = await world.exchange(path, body)
        _, _, streamed = await world.exchange(path, body | {"stream": True})
    assert json.loads(whole)["usage"]["output_tokens"] == 7
    assert b'"output_tokens":7' in streamed


@pytest.fixture
async def world() -> Any:
    """One engine of vLLM's kind."""
    async with simulated(settings_of(Kind.VLLM)) as running:
        yield running


async def test_token_ids_and_running_usage(world: SimWorld) -> None:
    """Each event tells the tokens of its step, in both ways."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    asked = chat(stream=True, stream_options=options, return_token_ids=True)
    _, _, body = await world.exchange("/v1/chat/completions", asked)
    told = [item for item in events(body) if item["choices"]]
    ids = [len(item["choices"][0].get("token_ids") or ()) for item in told]
    running = [item["usage"]["completion_tokens"] for item in told]
    assert [sum(ids[: at + 1]) for at in range(len(ids))] == running
    assert running[-1] == 12


async def test_prompts_of_several_choices() -> None:
    """Counted for each of them by vLLM, once by llama.cpp."""
    counted = {}
    for kind in (Kind.VLLM, Kind.LLAMACPP):
        async with simulated(settings_of(kind)) as world:
            await world.exchange("/v1/chat/completions", chat(n=3))
            counted[kind] = world.service.meter.totals.prompt.total()
    assert counted == {Kind.VLLM: 3 * 14, Kind.LLAMACPP: 14}


async def test_times_are_those_of_the_clock() -> None:
    """A step that a fault made longer is told as long as it took."""
    settings = settings_of(Kind.LLAMACPP)
    async with simulated(settings) as world:
        await world.exchange("/sim/faults", {"kind": "slow", "value": 4})
        _, _, body = await world.exchange("/v1/chat/completions", chat(max_tokens=3))
    told = json.loads(body)["timings"]
    assert (told["prompt_ms"], told["predicted_ms"]) == (40.0, 40.0)


@pytest.mark.parametrize("streamed", [False, True])
async def test_vllm_without_its_flags(*, streamed: bool) -> None:
    """Nothing is told of a request: null in whole answers, no key in streams."""
    settings = settings_of(Kind.VLLM, record=Record.NONE)
    options = {"stream": True, "stream_options": {"include_usage": True}} if streamed else {}
    async with simulated(settings) as world:
        _, _, body = await world.exchange("/v1/chat/completions", chat(**options))
    last = events(body)[-1] if streamed else json.loads(body)
    assert last["usage"]["completion_tokens"] == 12
    assert last.get("metrics", "no key") == ("no key" if streamed else None)


@pytest.mark.parametrize(
    ("version", "named"),
    [
        ("0.5.23", {"spec_num_correct_drafts"}),
        ("0.5.15", {"spec_num_correct_drafts", "spec_accepted_drafts"}),
        ("0.5.10", {"spec_accept_token_num"}),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_sglangs_own_endpoint_under_all_names(
    version: str, named: set[str], *, streamed: bool
) -> None:
    """The record needs no flag there; accepted tokens are called as the version calls them."""
    names = {"spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num"}
    sampling = {"max_new_tokens": 12, "ignore_eos": True}
    asked = {"text": "Go on.", "sampling_params": sampling, "stream": streamed}
    async with simulated(settings_of(Kind.SGLANG, version=version)) as world:
        _, _, body = await world.exchange("/generate", asked)
        accepted = world.machine.counters.accepted
    told = events(body)[-1] if streamed else json.loads(body)
    meta = told["meta_info"]
    assert meta["completion_tokens"] == len(told["output_ids"]) == 12
    assert {key: meta[key] for key in names if key in meta} == dict.fromkeys(named, accepted)
