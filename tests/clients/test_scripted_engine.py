"""Through the proxy, each client gives its user what it gives without: recorded answers."""

from __future__ import annotations

import re

import orjson
import pytest

from tests.clients.cases import VLLM
from tests.clients.conftest import Run
from tests.clients.harness import CLIENTS, Client
from tests.support.flow_backend import Received

pytestmark = [pytest.mark.clients, pytest.mark.timeout(400)]

EACH = pytest.mark.parametrize(
    ("client", "name"),
    [
        pytest.param(client, case.name, id=f"{client.name}-{case.name}".replace(" ", "_"))
        for client in CLIENTS
        for case in client.cases
    ],
)

HOP = {"host", "connection", "content-length", "accept-encoding"}
"""Header lines that each hop says for itself; the length is checked with the body."""


def read(request: Received) -> object:
    """A request's body; a form's boundary is drawn at random and replaced."""
    [kind] = request.header("content-type")
    found = re.search("boundary=(.+)", kind)
    if found is not None:
        return request.body.replace(found[1].encode(), b"boundary")
    if request.line.split(" ")[1] == "/v1/chat/completions":
        body = orjson.loads(request.body)
        if body["model"] == VLLM and body.get("stream"):
            # An engine is asked for its figures there, whoever else wants them.
            body["stream_options"] = {**body.get("stream_options", {}), "include_usage": True}
            return body
    return request.body


def lines(request: Received) -> list[tuple[str, str]]:
    """Header lines that must arrive as they were sent."""
    kept = [(name.lower(), value) for name, value in request.headers if name.lower() not in HOP]
    return sorted((name, value.partition("; boundary=")[0]) for name, value in kept)


@EACH
def test_results(scripted: Run, client: Client, name: str) -> None:
    """The user of a client gets the same objects, events and errors, in the same order."""
    pair = scripted(client)
    expected = pair.direct.results[name]
    for outcome in expected.values():
        failed = isinstance(outcome, dict) and outcome.get("error") is not None
        assert failed == client.case(name).fails, outcome
    assert pair.proxied.results[name] == expected


@EACH
def test_answers(scripted: Run, client: Client, name: str) -> None:
    """Status and body reach the client byte for byte, and no header of the engine's is missing."""
    pair = scripted(client)
    direct, proxied = pair.direct.exchanges[name], pair.proxied.exchanges[name]
    assert [(answer.status, answer.body) for answer in proxied] == [
        (answer.status, answer.body) for answer in direct
    ]
    assert direct
    for one, other in zip(direct, proxied, strict=True):
        assert {line for line in one.headers if line[0] not in (*HOP, "transfer-encoding")} <= set(
            other.headers
        )


@EACH
def test_requests(scripted: Run, client: Client, name: str) -> None:
    """The engine gets each request once, with the client's target, header lines and body."""
    pair = scripted(client)
    direct, proxied = pair.direct.received[name], pair.proxied.received[name]
    assert [request.line for request in proxied] == [request.line for request in direct]
    assert [lines(request) for request in proxied] == [lines(request) for request in direct]
    assert [read(request) for request in proxied] == [read(request) for request in direct]
