"""Through the proxy, each client gives its user what it gives without: real llama.cpp servers."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Run
from tests.clients.harness import CLIENTS, Client
from tests.clients.lasting import lasting

pytestmark = [pytest.mark.clients, pytest.mark.real_engine, pytest.mark.timeout(600)]

EACH = pytest.mark.parametrize(
    ("client", "name"),
    [
        pytest.param(client, case.name, id=f"{client.name}-{case.name}".replace(" ", "_"))
        for client in CLIENTS
        for case in client.cases
        if case.real
    ],
)


@EACH
def test_results(real: Run, client: Client, name: str) -> None:
    """At temperature 0 a client gives the same texts, calls, figures and errors."""
    pair = real(client)
    expected = pair.direct.results[name]
    for outcome in expected.values():
        failed = isinstance(outcome, dict) and outcome.get("error") is not None
        assert failed == client.case(name).fails, outcome
    assert lasting(pair.proxied.results[name]) == lasting(expected)
