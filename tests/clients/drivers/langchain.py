"""Runs cases with LangChain's models: `python -m tests.clients.drivers.langchain URL`."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

from tests.clients.cases import FOREIGN, PICTURE, QUESTION, TOOLS
from tests.clients.drivers.running import (
    HEADER,
    Case,
    dumped,
    main,
    result_of,
    result_of_async,
    told_of,
)

_TEXTS = ["a", "你好"]
_INVOKED = ("structured", "vision")


class City(BaseModel):
    """What the structured output is parsed into."""

    city: str
    country: str


def _options(url: str, case: Case) -> dict[str, Any]:
    return {
        "base_url": f"{url}/v1",
        "api_key": "sk-any",
        "model": case["model"],
        "max_retries": 0,
        "default_headers": {HEADER: case["name"]},
        **case["arguments"],
    }


def _embeddings(url: str, case: Case) -> OpenAIEmbeddings:
    # Else it cuts texts with a tokenizer that it loads from the network.
    return OpenAIEmbeddings(check_embedding_ctx_length=False, **_options(url, case))


def _asked(url: str, case: Case) -> tuple[Any, str, Any]:
    """What runs, the method's name without `a`, and its input."""
    call: str = case["call"]
    model: Any = ChatOpenAI(**_options(url, case))
    if call.startswith("tools"):
        model = model.bind_tools(TOOLS)
    if call == "structured":
        model = model.with_structured_output(City, include_raw=True)
    method = {"tools_stream": "stream", "tools": "invoke"}.get(call, call)
    given = {
        "vision": [HumanMessage(content=PICTURE[0]["content"])],
        "generate": [[HumanMessage(content=QUESTION[0]["content"])]],
        "batch": [QUESTION, FOREIGN],
    }
    return model, "invoke" if method in _INVOKED else method, given.get(call, QUESTION)


def _shown(value: Any) -> Any:
    """A result as JSON; names of runs are drawn at random and left out."""
    shown = dumped(value)
    if isinstance(shown, list):
        return [_shown(item) for item in shown]
    if not isinstance(shown, dict):
        return shown
    return {
        key: _shown(item)
        for key, item in shown.items()
        if key != "run" and not (key == "id" and str(item).startswith("lc_run-"))
    }


def sync(url: str, case: Case) -> Any:
    """One case with the synchronous methods."""

    def run() -> Any:
        if case["call"] == "embed":
            return _embeddings(url, case).embed_documents(_TEXTS)
        runs, method, asked = _asked(url, case)
        value = getattr(runs, method)(asked)
        return [_shown(item) for item in value] if method == "stream" else _shown(value)

    return result_of(run, told_of)


async def concurrent(url: str, case: Case) -> Any:
    """One case with the asynchronous methods."""

    async def run() -> Any:
        if case["call"] == "embed":
            return await _embeddings(url, case).aembed_documents(_TEXTS)
        runs, method, asked = _asked(url, case)
        value = getattr(runs, f"a{method}")(asked)
        if method == "stream":
            return [_shown(item) async for item in value]
        return _shown(await value)

    return await result_of_async(run(), told_of)


if __name__ == "__main__":
    main(sync, concurrent)
