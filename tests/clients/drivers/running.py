"""What all drivers do: read cases, run each, print what the client gave its user.

A driver runs in the client's own environment, as `python -m tests.clients.drivers.<name> URL`, with
the cases as JSON on its standard input. It imports nothing of the proxy.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Case = Mapping[str, Any]
Told = Callable[[Exception], Mapping[str, Any]]

HEADER = "x-case"


def result_of(run: Callable[[], Any], told: Told) -> Any:
    """What a call gave, or the error that it raised."""
    try:
        return run()
    except Exception as error:  # noqa: BLE001 - any error is what the user gets, so it is the result
        return {"error": told(error)}


async def result_of_async(run: Awaitable[Any], told: Told) -> Any:
    """The same for a coroutine."""
    try:
        return await run
    except Exception as error:  # noqa: BLE001 - as above
        return {"error": told(error)}


def told_of(error: Exception) -> dict[str, Any]:
    """An error of the clients by OpenAI and Anthropic: class, status, body, advice on retries."""
    response = getattr(error, "response", None)
    return {
        "class": type(error).__name__,
        "status": getattr(error, "status_code", None),
        "message": str(error),
        "body": getattr(error, "body", None),
        "retry_after": response.headers.get("retry-after") if response is not None else None,
    }


def dumped(value: Any) -> Any:
    """A result of a client as JSON."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", warnings=False)
    return value


def main(
    sync: Callable[[str, Case], Any], concurrent: Callable[[str, Case], Awaitable[Any]]
) -> None:
    """Runs every case with the synchronous and with the asynchronous client, and prints both.

    Args:
        sync: Runs one case against a base URL.
        concurrent: The same with the asynchronous client.
    """
    url = sys.argv[-1]
    cases: list[Case] = json.load(sys.stdin)

    async def all_cases() -> dict[str, Any]:
        return {case["name"]: await concurrent(url, case) for case in cases}

    first = {case["name"]: sync(url, case) for case in cases}
    second = asyncio.run(all_cases())
    both = {name: {"sync": first[name], "async": second[name]} for name in first}
    json.dump(both, sys.stdout)
