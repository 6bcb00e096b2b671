"""Requests are told apart: by class, by application, by session; seen in the decision log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from router.app import Application
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import ScriptedBackend
from tests.support.flow_client import ask, request_bytes
from tests.support.flow_world import SEED, config_of, decisions, pool

CODE = "Fix the bug in this function:\n```python\ndef add(a, b):\n    return a - b\n```"
ADA = "You are Ada, the assistant of the payments team. Today is Monday, 1 December 2025."
ADA_LATER = "You are Ada, the assistant of the payments team. Today is Sunday, 18 January 2026."
BOB = "You are Bob. You help people to plan their journeys."
BUSY = 25
"""Requests after which an application is told apart."""


async def say(
    app: Application, *texts: str, system: str = "", headers: tuple[str, ...] = (), **more: Any
) -> None:
    """Sends a conversation of a user, whose answers do not matter."""
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": "user", "content": text} for text in texts]
    body = wire.chat(messages=messages, **more)
    reply = await ask(app.data_url, request_bytes(body, headers=headers))
    assert reply.status == 200


async def last(app: Application) -> dict[str, Any]:
    """The latest line of the decision log."""
    return (await decisions(app))[-1]


async def settled(app: Application, system: str) -> str:
    """The segment of an application, once it is busy."""
    for _ in range(BUSY):
        await say(app, "hello", system=system)
    return str((await last(app))["segment"])


async def test_applications_are_told_apart(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """By what they send along each time, dates aside; what nothing is known of is pooled."""
    plain.always(wire.llama_chat())
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    ada, bob = await settled(app, ADA), await settled(app, BOB)
    assert len({ada, bob, ""}) == 3
    await say(app, "hello", system=ADA_LATER)
    assert (await last(app))["segment"] == ada
    assert await settled(app, "") == ""


async def test_the_key_is_kept_by_the_store(plain: ScriptedBackend, tmp_path: Path) -> None:
    """After a restart an application has the same name; beside another store it has another."""
    plain.always(wire.llama_chat())
    found = []
    for folder in ("a", "a", "b"):
        config = config_of(
            pool("plain", plain), folder=tmp_path / folder, store={"url": "embedded:"}
        )
        async with Application(config, seed=SEED).running() as app:
            found.append(await settled(app, ADA))
    assert found[0] == found[1]
    assert len(set(found)) == 2


async def test_without_the_store_s_key_all_are_pooled(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Requests are served; a key in the configuration needs no store."""
    plain.always(wire.llama_chat())
    away = {"url": "redis://127.0.0.1:1/0", "timeout_s": 0.2}
    app = await start(config_of(pool("plain", plain), folder=tmp_path / "a", store=away))
    assert await settled(app, ADA) == ""
    key = {"segment_key": "0123456789abcdef"}
    config = config_of(pool("plain", plain), folder=tmp_path / "b", store=away, classify=key)
    assert len(await settled(await start(config), ADA)) == 10


async def test_a_rule_decides_the_class(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """A class of one's own is learned, shown and decided about as the built-in ones are."""
    plain.always(wire.llama_chat())
    fast.always(wire.llama_chat())
    rules = [
        {"class": "billing", "when": {"header": {"X-App": "^billing"}}},
        {"class": "creative", "when": {"system_prompt": r"(?i)\bbob\b"}},
    ]
    policy = {"name": "rules", "parameters": {"table": {"billing": ["fast"], "creative": ["none"]}}}
    pools = (pool("plain", plain), pool("fast", fast, method="ngram"))
    config = config_of(*pools, folder=tmp_path, classify={"rules": rules}, policy=policy)
    app = await start(config)
    await say(app, CODE, headers=("x-app: billing/2",))
    line = await last(app)
    assert (line["class"], line["confidence"], line["arm"]) == ("billing", 1.0, "fast")
    assert line["class_reason"] == "rule 1 of the configuration"
    await say(app, CODE, system=BOB)
    line = await last(app)
    assert (line["class"], line["arm"]) == ("creative", "plain")
    await say(app, CODE)
    assert (await last(app))["class"] == "code_edit"
    await app.flush()
    await app.refresh()
    shown = [entry["class"] for entry in app.state()["routes"][0]["classes"]]
    assert set(shown) >= {"billing", "creative", "code_edit"}


async def test_a_turn_that_says_little_takes_after_its_session(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """By its header, or by how the conversation began; a session of its own has its own class."""
    plain.always(wire.llama_chat())
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    mine, other = ("x-specroute-session: 1",), ("x-specroute-session: 2",)
    await say(app, "ok", headers=other)
    alone = (await last(app))["class"]
    assert alone != "code_edit"
    await say(app, CODE, headers=mine)
    await say(app, "continue", headers=mine)
    assert (await last(app))["class"] == "code_edit"
    await say(app, "continue", headers=other)
    assert (await last(app))["class"] == alone
    await say(app, CODE)
    await say(app, CODE, "ok")
    assert (await last(app))["class"] == "code_edit"
    assert all("x-specroute-session" not in str(each).lower() for each in plain.requests)
