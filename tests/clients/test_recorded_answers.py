"""OpenAI's client over every recorded answer of an engine: the same with the proxy as without."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.clients.cases import LLAMA, VLLM, Case
from tests.clients.harness import CLIENTS, Pair, scripted_pair
from tests.support.recordings import shared_folder

pytestmark = [pytest.mark.clients, pytest.mark.shared, pytest.mark.timeout(400)]

CALLS = {
    "/v1/chat/completions": "chat.completions.create",
    "/v1/completions": "completions.create",
    "/v1/responses": "responses.create",
}
CHANGED = {"stream_killed", "stream_terminated", "stream_engine_dies", "chat_loading"}
"""Failures of which the proxy makes something better on purpose (docs/decisions/0007): a stream that
breaks off ends with an error, one that begins with an error becomes an answer with its status, and a
server that is still loading is passed over."""


def case_of(answer: Path) -> Case | None:
    """The case that asks what was asked when an answer was recorded; None if no client would."""
    asked: dict[str, Any] = orjson.loads(
        answer.with_name(f"{answer.stem}.request.json").read_bytes()
    )
    body = asked.get("body")
    call = CALLS.get(asked["path"])
    if call is None or answer.stem in CHANGED or not isinstance(body, dict):
        return None
    if not {"messages", "prompt", "input"} & body.keys():
        return None  # the client itself refuses to send it
    engine, method = answer.parts[-3:-1]
    return Case(
        f"{engine}/{method}/{answer.stem}",
        call,
        {key: value for key, value in body.items() if key != "model"},
        str(answer.with_suffix("")),
        VLLM if engine.startswith("vllm") else LLAMA,
    )


def cases(folder: Path) -> tuple[Case, ...]:
    """A case for each recording that the client could have made."""
    found = (case_of(path) for path in sorted(folder.glob("*/*/*.http")))
    return tuple(case for case in found if case is not None)


SHARED = shared_folder()
CASES = cases(SHARED) if SHARED is not None else ()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """All recordings, both ways."""
    if not CASES:
        pytest.skip("no recordings in ../shared or SPECROUTE_SHARED")
    return asyncio.run(scripted_pair(CLIENTS[0], CASES, tmp_path_factory.mktemp("recorded")))


def test_results(pair: Pair) -> None:
    """Every answer is parsed alike, be it an object, a stream or an error."""
    different = [
        case.name
        for case in CASES
        if pair.proxied.results[case.name] != pair.direct.results[case.name]
    ]
    assert different == []


def test_bytes(pair: Pair) -> None:
    """Every body arrives byte for byte."""
    direct, proxied = pair.direct.exchanges, pair.proxied.exchanges
    different = [
        case.name
        for case in CASES
        if [item.body for item in proxied[case.name]] != [item.body for item in direct[case.name]]
    ]
    assert different == []
    assert all(direct.values())
