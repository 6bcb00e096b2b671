"""`specroute tenant` and `specroute experiment` against a running proxy of two workers."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from router.cli.admin import TOKEN_VARIABLE
from router.cli.main import CONFIG_EXIT, app
from router.errors import ConfigError
from tests.support import flow_wire as wire
from tests.support.flow_backend import ScriptedBackend
from tests.support.flow_client import ask, request_bytes
from tests.support.flow_process import SLOW_S, Serving, serving, write
from tests.support.flow_world import always, config_of, pool


async def run(proxy: Serving, *arguments: str) -> tuple[int, str, str]:
    """One command, in this process: exit code, output, and what is told beside it."""
    invoke = partial(CliRunner().invoke, app, [*arguments, "--url", proxy.admin])
    result = await asyncio.to_thread(invoke)
    if isinstance(result.exception, ConfigError):
        return CONFIG_EXIT, result.stdout, str(result.exception)
    return result.exit_code, result.stdout, result.stderr


async def until(proxy: Serving, request: bytes, status: int, served_by: str | None = None) -> None:
    """Asks until both workers have most likely answered as they should: ten times in a row."""
    async with asyncio.timeout(SLOW_S):
        in_a_row = 0
        while in_a_row < 10:
            reply = await ask(proxy.url, request)
            right = reply.status == status and (
                served_by is None or reply.head.one("x-specroute-pool") == served_by
            )
            in_a_row = in_a_row + 1 if right else 0


async def test_an_operator_s_day(
    plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """A key, an experiment from plan to report, the kill switch: workers follow in seconds."""
    plain.always(wire.llama_chat())
    fast.always(wire.llama_chat())
    config = config_of(
        pool("plain", plain),
        pool("fast", fast, method="draft_model"),
        folder=tmp_path,
        policy=always("plain"),
        store={"url": "embedded:", "flush_interval_s": 0.1, "refresh_interval_s": 0.2},
        listen={"workers": 2},
        tenants={"known": [{"id": "acme"}], "unknown": "refuse"},
    )
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        yaml.safe_dump(
            {
                "name": "try",
                "model": wire.MODEL,
                "hypothesis": "drafts help",
                "treatment": {"arm": "fast"},
                "unit": "request",
                "stages": [{"share": 0.5}, {"share": 1.0}],
            }
        )
    )
    async with serving(write(config, tmp_path / "specroute.yaml")) as proxy:
        code, key, told = await run(proxy, "tenant", "key", "create", "acme")
        assert (code, "shown only now" in told) == (0, True)
        chat = request_bytes(
            wire.chat(stream=False), headers=(f"Authorization: Bearer {key.strip()}",)
        )
        await until(proxy, chat, 200, "plain")
        assert (await ask(proxy.url, request_bytes(wire.chat()))).status == 401

        code, out, _ = await run(proxy, "experiment", "plan", str(plan))
        assert (code, "a gain of 5% shows after" in out) == (0, True)
        code, out, _ = await run(proxy, "experiment", "start", str(plan))
        assert (code, out) == (0, "try is running; 50% are treated\n")
        assert (await run(proxy, "experiment", "ramp", "try"))[0] == 0
        await until(proxy, chat, 200, "fast")

        code, out, _ = await run(proxy, "experiment", "stop", "--all", "--why", "incident")
        assert (code, out) == (0, "speculation is off: all requests decode plainly\n")
        await until(proxy, chat, 200, "plain")
        assert (await run(proxy, "experiment", "stop", "--all", "--undo"))[0] == 0
        await until(proxy, chat, 200, "fast")

        assert (await run(proxy, "experiment", "stop", "try"))[0] == 0
        await until(proxy, chat, 200, "plain")
        code, out, _ = await run(proxy, "experiment", "status")
        assert (code, "try  rolled back" in out) == (0, True)
        code, out, _ = await run(proxy, "experiment", "report", "try")
        assert (code, out.startswith("# Experiment try: rolled back")) == (0, True)
        code, out, _ = await run(proxy, "experiment", "report", "try", "--json")
        assert [line["what"] for line in json.loads(out)["audit"]] == [
            "started",
            "ramped",
            "stopped",
        ]
        code, _, err = await run(proxy, "experiment", "resume", "try")
        assert (code, "cannot be resumed" in err) == (2, True)

        code, out, _ = await run(proxy, "tenant", "key", "list")
        assert (code, "acme  valid" in out, key.strip() in out) == (0, True, False)
        assert (await run(proxy, "tenant", "key", "revoke", out.split()[0]))[0] == 0
        await until(proxy, chat, 401)


async def test_orders_go_with_the_token_of_the_environment(
    plain: ScriptedBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator throws the kill switch where the admin port asks for one."""
    file = write(config_of(pool("plain", plain), folder=tmp_path), tmp_path / "specroute.yaml")
    settings = yaml.safe_load(file.read_text())
    settings["admin"] = {**settings.get("admin", {}), "token": "t0ken-of-the-admin-port"}
    file.write_text(yaml.safe_dump(settings))
    async with serving(file) as proxy:
        monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
        code, _, told = await run(proxy, "experiment", "stop", "--all")
        assert (code, TOKEN_VARIABLE in told) == (CONFIG_EXIT, True)
        monkeypatch.setenv(TOKEN_VARIABLE, "t0ken-of-the-admin-port")
        code, out, _ = await run(proxy, "experiment", "stop", "--all")
        assert (code, out) == (0, "speculation is off: all requests decode plainly\n")
