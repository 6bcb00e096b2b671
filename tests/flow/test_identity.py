"""A running proxy finds out what its servers are, and shows where that is not what is declared."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from router.cli.status import render_state
from tests.support.flow_backend import ScriptedBackend
from tests.support.flow_process import outcome, serving, write
from tests.support.flow_world import config_of, pool
from tests.support.recorded_pages import PATHS
from tests.support.recordings import OWN

WHY = "engine llamacpp is declared, but it is vllm 0.32.0"


def replicas(state: dict[str, Any]) -> list[dict[str, Any]]:
    """All servers that are shown."""
    return [item for made in state["routes"][0]["pools"] for item in made["replicas"]]


async def test_detected_engines_are_shown(
    plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """In /api/state, in `specroute status` and, where they are wrong, once in the log."""
    folder = OWN / "vllm-0.32.0/ngram"
    plain.pages = fast.pages = {
        path: file.read_bytes()
        for name, path in PATHS.items()
        if (file := folder / f"{name}.http").exists()
    }
    config = config_of(
        pool("plain", plain, engine="vllm", method="ngram", num_speculative_tokens=5),
        pool("fast", fast, engine="llamacpp", method="ngram"),
        folder=tmp_path,
    )
    async with serving(write(config, tmp_path / "config.yaml")) as proxy:
        state = await proxy.until(lambda state: all(item["detected"] for item in replicas(state)))
        proxy.process.terminate()
        _, _, err = await outcome(proxy.process)
    good, wrong = replicas(state)
    assert good["detected"] == {
        "engine": "vllm",
        "version": "0.32.0",
        "speculation": "speculation, k = 5",
        "models": ["smollm2-135m-instruct"],
        "context_tokens": 2048,
        "most_running": None,
        "evidence": ["/v1/models: owned_by vllm", "/metrics: vllm:*"],
    }
    assert (good["mismatch"], wrong["mismatch"]) == ([], [WHY])
    assert err.count(WHY) == 1
    console = Console(width=200, record=True, file=StringIO())
    console.print(render_state(state))
    shown = console.export_text()
    assert "engines  plain: vllm 0.32.0 · fast: vllm 0.32.0" in shown
    assert f"fast/0: {WHY}" in shown
