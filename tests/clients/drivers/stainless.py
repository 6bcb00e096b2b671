"""Runs cases with the client of OpenAI or of Anthropic, which are built alike.

`python -m tests.clients.drivers.stainless openai URL`
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from typing import Any

from pydantic import BaseModel

from tests.clients.drivers.running import (
    HEADER,
    Case,
    dumped,
    main,
    result_of,
    result_of_async,
    told_of,
)

_WAVE = b"RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00@\x1f\x00\x00"
_HELPERS = ("chat.completions.stream", "messages.stream")


class City(BaseModel):
    """What the structured output is parsed into."""

    city: str
    country: str


@functools.cache
def made(url: str, prefix: str) -> Any:
    """The client, made once: that takes longer than a case does."""
    module = importlib.import_module(sys.argv[1])
    name, base = ("OpenAI", f"{url}/v1") if sys.argv[1] == "openai" else ("Anthropic", url)
    make = getattr(module, prefix + name)
    return make(base_url=base, api_key="sk-any", max_retries=0, timeout=60)


def client_for(url: str, case: Case, prefix: str = "") -> Any:
    """The client, with the case's name in a header."""
    return made(url, prefix).with_options(default_headers={HEADER: case["name"]})


def bound(client: Any, url: str, case: Case) -> functools.partial[Any]:
    """The client's method with the case's arguments."""
    arguments = dict(case["arguments"])
    if case["call"] == "post":
        path = url + arguments.pop("path")
        arguments["model"] = case["model"]
        return functools.partial(client.post, path, cast_to=object, body=arguments)
    method = functools.reduce(getattr, case["call"].split("."), client)
    arguments["model"] = case["model"]
    if case["call"] == "audio.transcriptions.create":
        arguments["file"] = ("a.wav", _WAVE)
    if case["call"] in ("chat.completions.parse", "chat.completions.stream"):
        arguments.pop("tool_choice", None)
        if "response_format" in arguments:
            arguments["response_format"] = City
    known = inspect.signature(method).parameters
    extra = {key: arguments.pop(key) for key in tuple(arguments) if key not in known}
    return functools.partial(method, **arguments, extra_body=extra or None)


def sync(url: str, case: Case) -> Any:
    """One case with the synchronous client."""
    module = importlib.import_module(sys.argv[1])
    client = client_for(url, case)

    def run() -> Any:
        call = bound(client, url, case)
        if case["call"] in _HELPERS:
            with call() as stream:
                events = [dumped(event) for event in stream]
                return {"events": events, "final": dumped(_final(stream)())}
        value = call()
        if isinstance(value, module.Stream):
            return [dumped(event) for event in value]
        return dumped(value)

    return result_of(run, told_of)


async def concurrent(url: str, case: Case) -> Any:
    """One case with the asynchronous client."""
    module = importlib.import_module(sys.argv[1])
    client = client_for(url, case, "Async")

    async def run() -> Any:
        call = bound(client, url, case)
        if case["call"] in _HELPERS:
            async with call() as stream:
                events = [dumped(event) async for event in stream]
                return {"events": events, "final": dumped(await _final(stream)())}
        value = await call()
        if isinstance(value, module.AsyncStream):
            return [dumped(event) async for event in value]
        return dumped(value)

    return await result_of_async(run(), told_of)


def _final(stream: Any) -> Any:
    """The method that gives a stream's sum."""
    name = "get_final_completion" if sys.argv[1] == "openai" else "get_final_message"
    return getattr(stream, name)


if __name__ == "__main__":
    main(sync, concurrent)
