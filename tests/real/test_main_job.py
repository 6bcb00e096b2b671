"""The main job on real engines: same answers through the proxy, and traffic that finds its way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from router.app import Application
from router.config.models import Config
from router.demo.fleet import Fleet
from router.demo.prompts import DemoPrompt, load_prompts
from router.demo.run import route_config

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(400)]

QUESTION = [{"role": "user", "content": "Name the capital of France in one short sentence."}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
CASES: dict[str, dict[str, Any]] = {
    "question": {"messages": QUESTION, "max_tokens": 24},
    "json": {
        "messages": [{"role": "user", "content": "Describe a cat as a JSON object."}],
        "response_format": {"type": "json_object"},
        "max_tokens": 40,
    },
    "tools": {"messages": QUESTION, "tools": TOOLS, "max_tokens": 24},
    "stop": {"messages": QUESTION, "stop": ["France"], "max_tokens": 24},
    "usage": {"messages": QUESTION, "max_tokens": 8, "stream_options": {"include_usage": True}},
}


@asynccontextmanager
async def proxy(fleet: Fleet, folder: Path, policy: dict[str, Any]) -> AsyncIterator[Application]:
    """A proxy over the real pools; a store of its own."""
    config = Config.model_validate(
        {
            "listen": {"port": 0},
            "admin": {"port": 0},
            "store": {"url": "embedded:", "directory": str(folder / "store")},
            "routes": [route_config(fleet.model, fleet.pools, policy)],
        }
    )
    async with Application(config, seed=7).running() as application:
        yield application


async def seen(url: str, model: str, case: dict[str, Any], *, stream: bool) -> object:
    """What a user of the async client gets: text, tool calls, finish reason, token counts."""
    arguments = {key: value for key, value in case.items() if stream or key != "stream_options"}
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        reply = await client.chat.completions.create(
            model=model, temperature=0, stream=stream, **arguments
        )
        if not isinstance(reply, openai.AsyncStream):
            choice = reply.choices[0]
            usage = reply.usage
            return (choice.message.content, choice.message.tool_calls, choice.finish_reason, usage)
        events = [event async for event in reply]
    deltas = [choice.delta.content for event in events for choice in event.choices]
    return (deltas, [event.usage for event in events if event.usage], len(events))


def seen_sync(url: str, model: str) -> object:
    """The same for the plain client and the older completions API."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        reply = client.completions.create(
            model=model, prompt="One, two, three,", max_tokens=12, temperature=0
        )
        return reply.choices[0].text, reply.choices[0].finish_reason


@pytest.mark.parametrize("pool", ["plain", "ngram", "draft"])
async def test_the_client_gets_what_the_engine_gives(
    fleet: Fleet, tmp_path: Path, pool: str
) -> None:
    """At temperature 0 the official client parses the same results with and without the proxy.

    Token counts of cached prompts differ between first and later requests, so each request is made
    once beforehand.
    """
    direct = next(item.url for item in fleet.pools if item.name == pool)
    policy = {"name": "fixed", "parameters": {"arm": pool}}
    async with proxy(fleet, tmp_path, policy) as application:
        for case in CASES.values():
            for stream in (False, True):
                await seen(direct, fleet.model, case, stream=stream)
                expected = await seen(direct, fleet.model, case, stream=stream)
                actual = await seen(application.data_url, fleet.model, case, stream=stream)
                assert actual == expected
        expected = await asyncio.to_thread(seen_sync, direct, fleet.model)
        assert await asyncio.to_thread(seen_sync, application.data_url, fleet.model) == expected


def prompts_of(*labels: str) -> Sequence[DemoPrompt]:
    return [prompt for prompt in load_prompts() if prompt.label in labels]


async def test_traffic_finds_a_pool_that_does_not_lose(fleet: Fleet, tmp_path: Path) -> None:
    """Copied code has longer steps on n-gram than prose has, and no class is mostly sent to a loser.

    A loser is a pool that was measured to be slower for the class than plain decoding.
    """
    prompts = [*prompts_of("code_edit")[:6], *prompts_of("creative")[:6]]
    policy = {"name": "thompson", "parameters": {"floor": 0.15}}
    async with proxy(fleet, tmp_path, policy) as application:
        client = openai.AsyncOpenAI(
            base_url=f"{application.data_url}/v1", api_key="any", max_retries=0, timeout=300
        )

        async def send(prompt: DemoPrompt) -> None:
            body = {**prompt.body, "max_tokens": 40}
            stream = await client.chat.completions.create(model=fleet.model, stream=True, **body)
            async for _ in stream:
                pass

        async def worker(share: Sequence[DemoPrompt]) -> None:
            for _ in range(4):
                for prompt in share:
                    await send(prompt)

        await asyncio.gather(worker(prompts[::2]), worker(prompts[1::2]))
        await client.close()
        await application.flush()
        await application.refresh()
        route = application.state()["routes"][0]

    classes = {entry["class"]: entry["cells"] for entry in route["classes"]}
    lengths = {
        name: {cell["pool"]: cell["tokens_per_step"] for cell in cells}
        for name, cells in classes.items()
    }
    assert lengths["code_edit"]["plain"] == 1.0
    assert lengths["code_edit"]["ngram"] > 1.15 * lengths["creative"]["ngram"]
    favourites = {
        name: max(cells, key=lambda cell: float(cell["probability"]))
        for name, cells in classes.items()
        if sum(cell["ok"] for cell in cells) >= 15
    }
    assert set(favourites) >= {"code_edit", "creative"}
    assert [name for name, cell in favourites.items() if cell["verdict"] == "loss"] == []
    assert sum(cell["failed"] for cells in classes.values() for cell in cells) == 0
