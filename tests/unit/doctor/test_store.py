"""Stores that cannot be asked, and what is made of what others say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from router.config.keeping import Store
from router.doctor import store as doctor_store
from router.doctor.findings import Level
from router.doctor.store import store_findings
from router.errors import ConfigError, StoreError
from router.stores.facts import ServerFacts


async def levels(url: str, folder: Path) -> list[Level]:
    """Of what is found."""
    found = await store_findings(Store(url=url, directory=str(folder / "store")))
    return [item.level for item in found]


async def test_a_store_of_this_process_is_a_note(tmp_path: Path) -> None:
    """It works, and forgets."""
    assert await levels("memory:", tmp_path) == [Level.NOTE]


async def test_an_embedded_store_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its program and its folder are looked at; nothing is written."""
    assert await levels("embedded:", tmp_path) == [Level.OK]
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("router.doctor.store.os.access", lambda *_: False)
    assert await levels("embedded:", tmp_path) == [Level.PROBLEM]

    def missing() -> None:
        raise ConfigError("store.url: no valkey-server here")

    monkeypatch.setattr(doctor_store, "server_program", missing)
    assert await levels("embedded:", tmp_path) == [Level.PROBLEM]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, [Level.OK]),
        ({"eviction_policy": "noeviction", "role": "master"}, [Level.OK]),
        ({"eviction_policy": "allkeys-lru", "most_memory_bytes": 10}, [Level.OK, Level.WARNING]),
        ({"role": "slave"}, [Level.OK, Level.PROBLEM]),
        ({"latency_s": 0.2}, [Level.OK, Level.WARNING]),
    ],
)
async def test_what_a_server_says_is_judged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    facts: dict[str, Any],
    expected: list[Level],
) -> None:
    """Eviction, role, and how far away it is."""

    async def told(url: str, timeout_s: float) -> ServerFacts:
        return ServerFacts(**{"latency_s": 0.001, **facts})

    monkeypatch.setattr(doctor_store, "server_facts", told)
    assert await levels("redis://store.test:6379/0", tmp_path) == expected


@pytest.mark.parametrize("error", [ConfigError("store.url: no"), StoreError("gone")])
async def test_a_server_that_cannot_be_asked_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """With what to do."""

    async def fails(url: str, timeout_s: float) -> ServerFacts:
        raise error

    monkeypatch.setattr(doctor_store, "server_facts", fails)
    assert await levels("redis://store.test:6379/0", tmp_path) == [Level.PROBLEM]
