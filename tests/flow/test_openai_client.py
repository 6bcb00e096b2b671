"""OpenAI's official client gets through the proxy what it gets from the engine itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from router.app import Application
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import Received, ScriptedBackend, Step, send
from tests.support.flow_world import config_of, pool

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "سلام, 你好 😀"}]
TOOLS: list[ChatCompletionToolParam] = [
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
]
CALL = {"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": '{"a":1}'}}
TOOL_EVENTS = [
    wire.llama_chunk({"role": "assistant", "content": None}),
    wire.llama_chunk({"tool_calls": [{"index": 0, **CALL}]}),
    wire.llama_chunk({}, "tool_calls", timings=wire.llama_timings(9)),
    wire.DONE,
]


@dataclass(slots=True)
class Two:
    """The same client twice: to the proxy, and to the engine itself."""

    proxied: openai.AsyncOpenAI
    direct: openai.AsyncOpenAI
    backend: ScriptedBackend
    app: Application


@pytest.fixture(params=["llamacpp", "vllm"])
async def two(
    start: Start, plain: ScriptedBackend, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Two]:
    app = await start(config_of(pool("plain", plain, engine=request.param), folder=tmp_path))
    async with (
        openai.AsyncOpenAI(base_url=f"{app.data_url}/v1", api_key="sk-x", max_retries=0) as proxied,
        openai.AsyncOpenAI(base_url=f"{plain.url}/v1", api_key="sk-x", max_retries=0) as direct,
    ):
        yield Two(proxied, direct, plain, app)


async def dumped(stream: openai.AsyncStream[Any]) -> list[Any]:
    """All chunks, as far as the client has parsed them."""
    return [chunk.model_dump() async for chunk in stream]


async def test_chat(two: Two) -> None:
    """A whole chat answer: the same object, unknown fields included."""
    two.backend.always(wire.llama_chat("é 你好 😀", accepted=3))
    first, second = [
        await client.chat.completions.create(model="tiny", messages=MESSAGES, seed=7)
        for client in (two.proxied, two.direct)
    ]
    assert first.model_dump() == second.model_dump()
    assert first.choices[0].message.content == "é 你好 😀"
    sent, expected = two.backend.requests
    assert sent.body == expected.body
    assert sent.header("authorization") == expected.header("authorization") == ["Bearer sk-x"]
    assert sent.header("user-agent") == expected.header("user-agent")
    assert sent.header("accept-encoding") == expected.header("accept-encoding")


async def test_chat_stream(two: Two) -> None:
    """A streamed chat answer: the same chunks in the same order."""
    two.backend.always(wire.stream(wire.llama_events(["é", " 你", "😀"], accepted=1)))
    first, second = [
        await dumped(
            await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        )
        for client in (two.proxied, two.direct)
    ]
    assert first == second
    assert len(first) == 5


async def test_chat_stream_with_usage(two: Two) -> None:
    """A client that asks for usage in its stream finds it in the last chunk."""
    two.backend.always(wire.stream(wire.vllm_events(usage=True)))
    first, second = [
        await dumped(
            await client.chat.completions.create(
                model="tiny",
                messages=MESSAGES,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        for client in (two.proxied, two.direct)
    ]
    assert first == second
    assert first[-1]["usage"]["completion_tokens"] == 8


async def test_tools(two: Two) -> None:
    """Tool calls, whole and streamed, with their arguments untouched."""
    two.backend.always(wire.llama_chat("", tool_calls=[CALL]))
    first, second = [
        await client.chat.completions.create(model="tiny", messages=MESSAGES, tools=TOOLS)
        for client in (two.proxied, two.direct)
    ]
    assert first.model_dump() == second.model_dump()
    calls = first.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].model_dump() == CALL
    two.backend.always(wire.stream(TOOL_EVENTS))
    streams = [
        await dumped(
            await client.chat.completions.create(
                model="tiny", messages=MESSAGES, tools=TOOLS, tool_choice="required", stream=True
            )
        )
        for client in (two.proxied, two.direct)
    ]
    assert streams[0] == streams[1]
    assert two.backend.requests[0].body == two.backend.requests[1].body


async def test_json_mode(two: Two) -> None:
    """JSON mode and a schema reach the engine as they were written."""
    two.backend.always(wire.llama_chat('{"city":"Paris"}'))
    schema: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"a": [1.0]}}}
    forms: tuple[Any, ...] = ({"type": "json_object"}, schema)
    for form in forms:
        first, second = [
            await client.chat.completions.create(
                model="tiny", messages=MESSAGES, response_format=form
            )
            for client in (two.proxied, two.direct)
        ]
        assert first.model_dump() == second.model_dump()
        sent, expected = two.backend.requests[-2:]
        assert sent.body == expected.body


async def test_legacy_completions(two: Two) -> None:
    """The old endpoint, whole and streamed."""
    two.backend.always(wire.completions())
    first, second = [
        await client.completions.create(model="tiny", prompt="Paris is")
        for client in (two.proxied, two.direct)
    ]
    assert first.model_dump() == second.model_dump()
    two.backend.always(wire.completions(streamed=True))
    streams = [
        await dumped(await client.completions.create(model="tiny", prompt="a", stream=True))
        for client in (two.proxied, two.direct)
    ]
    # What llama.cpp says unasked in its last chunk is shown; a usage event that we asked for is not.
    assert streams[0] == streams[1]
    assert two.backend.requests[-1].target == "/v1/completions"


async def test_models(two: Two) -> None:
    """One model for each route, whatever the engines call theirs."""
    assert [model.id async for model in two.proxied.models.list()] == ["tiny"]
    model = await two.proxied.models.retrieve("tiny")
    assert (model.id, model.object) == ("tiny", "model")


async def test_raw_response_headers(two: Two) -> None:
    """The headers that explain a route can be read with the official client."""
    two.backend.always(wire.llama_chat())
    raw = await two.proxied.chat.completions.with_raw_response.create(
        model="tiny", messages=MESSAGES
    )
    assert raw.headers["x-specroute-pool"] == "plain"
    assert raw.parse().choices[0].message.content == "Paris."


async def test_many_at_once(two: Two) -> None:
    """Streams side by side do not mix."""

    def echo(received: Received) -> list[Step]:
        [name] = received.header("x-name")
        return [send(wire.stream(wire.llama_events([name] * 20)))]

    two.backend.always(echo)
    texts: dict[str, str] = {}

    async def one(name: str) -> None:
        stream = await two.proxied.chat.completions.create(
            model="tiny", messages=MESSAGES, stream=True, extra_headers={"X-Name": name}
        )
        async for chunk in stream:
            texts[name] = texts.get(name, "") + (chunk.choices[0].delta.content or "")

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for index in range(30):
            group.create_task(one(f"<{index}>"))
    assert texts == {f"<{index}>": f"<{index}>" * 20 for index in range(30)}


async def test_synchronous_client(two: Two) -> None:
    """The synchronous client works alike, whole and streamed."""
    two.backend.always(wire.llama_chat())

    def whole(url: str) -> Any:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-x", max_retries=0) as client:
            return client.chat.completions.create(model="tiny", messages=MESSAGES).model_dump()

    def streamed(url: str) -> list[Any]:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-x", max_retries=0) as client:
            stream = client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
            return [chunk.model_dump() for chunk in stream]

    urls = (two.app.data_url, two.backend.url)
    first, second = [await asyncio.to_thread(whole, url) for url in urls]
    assert first == second
    two.backend.always(wire.stream(wire.llama_events()))
    first, second = [await asyncio.to_thread(streamed, url) for url in urls]
    assert first == second
