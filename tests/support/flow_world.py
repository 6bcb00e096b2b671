"""Configurations for flow tests, and what a running proxy has written down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from router.app import Application
from router.config.models import Config
from tests.support.flow_backend import ScriptedBackend
from tests.support.flow_wire import MODEL

SEED = 20_260

_NEVER_S = 15.0
"""Limit of a probe that is never the busy machine's fault."""


def pool(
    name: str,
    *backends: ScriptedBackend,
    method: str = "none",
    engine: str = "llamacpp",
    **more: Any,
) -> dict[str, Any]:
    """One pool."""
    replicas = [{"url": backend.url} for backend in backends]
    return {
        "name": name,
        "method": method,
        "engine": engine,
        "replicas": replicas,
        "health": {"timeout_s": _NEVER_S},
        **more,
    }


def config_of(
    *pools: dict[str, Any],
    folder: Path,
    policy: dict[str, Any] | None = None,
    store: dict[str, Any] | None = None,
    listen: dict[str, Any] | None = None,
    classify: dict[str, Any] | None = None,
    admission: dict[str, Any] | None = None,
    tenants: dict[str, Any] | None = None,
    **route: Any,
) -> Config:
    """A configuration whose first pool is the baseline. Background rounds are the test's to call."""
    return Config.model_validate(
        {
            "listen": {"port": 0, "drain_s": 5.0, **(listen or {})},
            "admin": {"port": 0},
            "store": {
                "url": "memory:",
                "directory": str(folder / "store"),
                "flush_interval_s": 10,
                "refresh_interval_s": 60,
                **(store or {}),
            },
            "admission": admission or {},
            "tenants": {"holdout": 0, **(tenants or {})},
            "classify": classify or {},
            "decision_log": {"path": str(folder / "decisions.jsonl")},
            "routes": [
                {
                    "model": MODEL,
                    "baseline": pools[0]["name"],
                    "policy": policy or {"name": "fixed"},
                    "pools": list(pools),
                    **route,
                }
            ],
        }
    )


def always(arm: str) -> dict[str, Any]:
    """A policy that draws one arm."""
    return {"name": "fixed", "parameters": {"arm": arm}}


async def decisions(app: Application) -> list[dict[str, Any]]:
    """All lines of the decision log so far."""
    await app.flush()
    path = app.config.decision_log.path
    assert path is not None
    if not Path(path).exists():
        return []
    return [json.loads(line) for line in Path(path).read_bytes().splitlines()]


async def only_decision(app: Application) -> dict[str, Any]:
    """The one decision; fails when there are more, or none."""
    [line] = await decisions(app)
    return line


def in_flight(app: Application) -> int:
    """Requests now at servers."""
    return sum(
        replica["in_flight"]
        for route in app.state()["routes"]
        for item in route["pools"]
        for replica in item["replicas"]
    )


def cell(app: Application, arm: str) -> dict[str, Any]:
    """What the last snapshot shows of an arm, over the one class there is."""
    classes: Sequence[dict[str, Any]] = app.state()["routes"][0]["classes"]
    [found] = [cell for entry in classes for cell in entry["cells"] if cell["pool"] == arm]
    return dict(found)
