"""OpenAI's client over every recorded answer of an engine: the same with the proxy as without."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.clients.cases import LLAMA, VLLM, Case
from tests.clients.harness import CLIENTS, Pair, scripted_pair
from tests.support.recordings import Recording, shared_folder

pytestmark = [pytest.mark.clients, pytest.mark.shared, pytest.mark.timeout(400)]

CALLS = {
    "/v1/chat/completions": "chat.completions.create",
    "/v1/completions": "completions.create",
    "/v1/responses": "responses.create",
}
BROKEN = {"stream_killed", "stream_terminated", "chat_loading"}
"""Answers that break off, after which the proxy says more than the engine could, and one that
sends a request to another server."""


def cases(folder: Path) -> tuple[Case, ...]:
    """A case for each recording that the client could have made."""
    found = [Recording(path) for path in sorted(folder.glob("*/*/*.http"))]
    return tuple(
        Case(
            recording.name,
            CALLS[recording.path_asked],
            {key: value for key, value in recording.body_asked.items() if key != "model"},
            str(recording.path.with_suffix("")),
            VLLM if recording.name.startswith("vllm") else LLAMA,
        )
        for recording in found
        if recording.case not in BROKEN
        and recording.path_asked in CALLS
        and "messages" in recording.body_asked | {"messages": recording.body_asked.get("prompt")}
    )


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
