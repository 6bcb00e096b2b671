"""The loop closes: what was measured changes where the next requests go, and it can be seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from router.app import Application
from router.observe.log import JsonFormatter
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.clock import ManualClock
from tests.support.flow_backend import (
    Exchange,
    ScriptedBackend,
    Step,
    close,
    does,
    send,
)
from tests.support.flow_client import ask, get, raw_client, request_bytes
from tests.support.flow_world import (
    always,
    cell,
    config_of,
    decisions,
    only_decision,
    pool,
)

HALVES = {"name": "fixed", "parameters": {"weights": {"plain": 1, "fast": 1}}}
TOKENS = 32


def timed_script(
    clock: ManualClock, seen: asyncio.Queue[None], *, ttft_s: float, tpot_s: float
) -> tuple[bytes, list[Step]]:
    """A stream of 32 tokens whose times are exact: time moves when the client has seen the first."""
    opening, first, *rest = wire.llama_events(["x"] * TOKENS)

    async def until_seen(_: Exchange) -> None:
        await seen.get()

    return first, [
        send(wire.STREAM_HEAD + wire.chunk(opening)),
        does(lambda: clock.advance(ttft_s)),
        send(wire.chunk(first)),
        until_seen,
        does(lambda: clock.advance(tpot_s * (TOKENS - 1))),
        send(b"".join(wire.chunk(event) for event in rest) + wire.END),
    ]


async def streamed(app: Application, first: bytes, seen: asyncio.Queue[None]) -> None:
    """One request, whose client says when it has seen the first token."""
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        await client.until(first)
        seen.put_nowait(None)
        assert (await client.rest()).endswith(wire.DONE)


@pytest.mark.parametrize("policy", ["thompson", "net_gain"])
async def test_traffic_moves_to_the_faster_pool(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path, policy: str
) -> None:
    """A pool measured three times as fast gets nearly everything after the next refresh.

    Whether the policy looks at classes once a refresh, or at each request.
    """
    clock, seen = ManualClock(), asyncio.Queue[None]()
    first, slow = timed_script(clock, seen, ttft_s=0.3, tpot_s=0.06)
    _, quick = timed_script(clock, seen, ttft_s=0.1, tpot_s=0.02)
    plain.always(lambda _: slow)
    fast.always(lambda _: quick)
    pools = (pool("plain", plain), pool("fast", fast, method="draft_model"))
    config = config_of(*pools, folder=tmp_path, policy={"name": policy})
    app = await start(config, clock)

    def chances() -> dict[str, float]:
        shown = app.state()["routes"][0]["classes"]
        return {cell["pool"]: cell["probability"] for entry in shown for cell in entry["cells"]}

    for _ in range(40):
        await streamed(app, first, seen)
    before = await decisions(app)
    await app.refresh()
    assert {line["arm"] for line in before} == {"plain", "fast"}
    assert chances()["fast"] >= 0.95
    for _ in range(40):
        await streamed(app, first, seen)
    after = (await decisions(app))[40:]
    await app.refresh()

    assert sum(line["arm"] == "fast" for line in after) >= 34
    assert all(line["probabilities"]["fast"] >= 0.95 for line in after)
    assert all(line["snapshot"] > before[0]["snapshot"] for line in after)
    assert all(line["propensity"] == line["probabilities"][line["arm"]] for line in before + after)
    assert {round(line["tpot_s"], 9) for line in after if line["arm"] == "fast"} == {0.02}
    assert {round(line["ttft_s"], 9) for line in after if line["arm"] == "fast"} == {0.1}
    counted = {arm: sum(line["arm"] == arm for line in before + after) for arm in ("plain", "fast")}
    for arm, n in counted.items():
        assert (cell(app, arm)["ok"], cell(app, arm)["tokens"]) == (n, n * TOKENS)
    assert cell(app, "fast")["tpot_s"]["p50"] == pytest.approx(0.02, rel=0.1)
    assert cell(app, "fast")["gain"]["low"] > 0.4
    assert cell(app, "fast")["verdict"] == "gain"

    text = (await get(app.admin_url, "/metrics")).body.decode()
    class_id = after[0]["class"]
    labels = f'class="{class_id}",model="tiny",pool="fast"'
    [line] = [
        line for line in text.splitlines() if line.startswith(f"specroute_probability{{{labels}")
    ]
    assert float(line.split()[-1]) == pytest.approx(chances()["fast"])
    assert f'specroute_requests_total{{{labels},status="ok"}} {counted["fast"]}.0' in text
    assert "specroute_recorder_errors_total 0.0" in text


async def test_pool_that_fails_fast_gets_no_traffic(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """A pool that answers 500 at once never looks fast: of its even share little is left, breaker or none.

    By seed 0.03 to 0.05 are left after 180 requests; 0.1 is twice that.
    """
    clock = ManualClock()
    plain.always(lambda _: [does(lambda: clock.advance(0.5)), send(wire.llama_chat())])
    fast.always(wire.whole(b"{}", "500 Internal Server Error"))
    patient = {"breaker": {"failures": 1000, "least_requests": 1000}}
    pools = (pool("plain", plain), pool("fast", fast, method="ngram", health=patient))
    app = await start(config_of(*pools, folder=tmp_path, policy={"name": "thompson"}), clock)
    shares = []
    for _ in range(6):
        for _ in range(30):
            await ask(app.data_url, request_bytes(wire.chat()))
        await app.flush()
        await app.refresh()
        shares.append(cell(app, "fast")["probability"])
    shown = cell(app, "fast")
    assert shown["failed"] > 0
    assert shown["e2e_whole_s"]["n"] == 0
    assert max(shares) < 0.5 / 2
    assert shares[-1] < 0.1


@pytest.mark.parametrize(
    "asked",
    [{"logprobs": True, "top_logprobs": 3}, {"top_logprobs": 2}, {"n_probs": 5}, {"logprobs": 1}],
)
async def test_log_probabilities_never_come_from_a_drafter(
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    asked: dict[str, Any],
) -> None:
    """llama.cpp's drafters report them wrongly, so such requests go to plain decoding."""
    plain.always(wire.llama_chat())
    fast.always(wire.llama_chat())
    pools = (pool("plain", plain), pool("fast", fast, method="draft_model"))
    app = await start(config_of(*pools, folder=tmp_path, policy=always("fast")))
    await ask(app.data_url, request_bytes(wire.chat(**asked)))
    assert (len(plain.requests), len(fast.requests)) == (1, 0)
    line = await only_decision(app)
    assert line["excluded"] == {"fast": "logprobs_wrong_under_speculation"}
    assert line["probabilities"] == {"plain": 1.0, "fast": 0.0}
    await ask(app.data_url, request_bytes(wire.chat(logprobs=False)))
    assert len(fast.requests) == 1
    text = (await get(app.admin_url, "/metrics")).body.decode()
    assert 'reason="logprobs_wrong_under_speculation"} 1.0' in text


async def test_log_probabilities_are_not_served_by_a_drafter_after_a_fallback(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """With plain decoding gone such a request fails rather than get wrong figures."""
    fast.always(wire.llama_chat())
    await plain.stop()
    pools = (pool("plain", plain), pool("fast", fast, method="draft_model"))
    app = await start(config_of(*pools, folder=tmp_path, policy=always("fast")))
    reply = await ask(app.data_url, request_bytes(wire.chat(logprobs=True)))
    assert (reply.status, fast.requests) == (502, [])


@pytest.mark.parametrize("consent", [True, False])
async def test_lossy_pools_only_by_consent(
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    *,
    consent: bool,
) -> None:
    """A pool that may change the text serves only a route that allows it."""
    plain.always(wire.llama_chat())
    fast.always(wire.llama_chat())
    pools = (pool("plain", plain), pool("fast", fast, method="medusa", lossless=False))
    config = config_of(*pools, folder=tmp_path, policy=always("fast"), allow_lossy=consent)
    app = await start(config)
    for _ in range(5):
        await ask(app.data_url, request_bytes(wire.chat()))
    assert (len(plain.requests), len(fast.requests)) == ((0, 5) if consent else (5, 0))
    reasons = {} if consent else {"fast": "lossy_without_consent"}
    assert [line["excluded"] for line in await decisions(app)] == [reasons] * 5


CANARY = "CANARY7f3a91"


async def test_nothing_that_was_said_is_written_down(
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No text of prompts, answers or errors, and no key, in logs, metrics, decisions or store."""
    caplog.set_level(logging.DEBUG)
    plain.always(wire.stream(wire.llama_events([f"{CANARY}-answer", "x"], accepted=1)))
    pools = (pool("plain", plain), pool("fast", fast, method="ngram", api_key=f"{CANARY}-pool"))
    config = config_of(*pools, folder=tmp_path, policy=HALVES, store={"url": "embedded:"})
    app = await start(config)
    answers: Sequence[Sequence[Step]] = (
        [send(wire.llama_chat(f"{CANARY}-answer"))],
        [send(wire.whole(f'{{"error":"{CANARY}-error"}}'.encode(), "400 Bad Request"))],
        [send(wire.whole(f"{CANARY}-oops".encode(), "500 Oops"))],
        [send(wire.STREAM_HEAD + wire.chunk(f"data: {CANARY}-cut".encode())), close()],
        [send(f"{CANARY} is no HTTP\r\n\r\n".encode()), close()],
        [close()],
    )

    fast.always(lambda _: answers[len(fast.requests) % len(answers)])
    headers = (
        f"Authorization: Bearer {CANARY}-key",
        f"X-User: {CANARY}-user",
        f"X-Specroute-Session: {CANARY}-session",
        f"User-Agent: {CANARY}-agent",
    )
    for index in range(24):
        body = wire.chat(
            stream=index % 2 == 0,
            messages=[
                {"role": "system", "content": f"{CANARY}-system: you review the code of a shop"},
                {"role": "user", "content": f"{CANARY}-prompt: fix this code"},
            ],
            user=f"{CANARY}-user",
            tools=[{"type": "function", "function": {"name": f"{CANARY}_tool"}}],
        )
        target = f"/v1/chat/completions?key={CANARY}-query"
        # An answer that is cut inside an event ends in a cut connection.
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await ask(app.data_url, request_bytes(body, target, headers=headers))
    await ask(app.data_url, request_bytes(f'{{"model":"tiny","{CANARY}":'.encode()))
    await ask(app.data_url, request_bytes(f'{{"model":"{CANARY}-model"}}'.encode()))
    await get(app.data_url, f"/v1/{CANARY}-path")
    lines = await decisions(app)
    assert len(lines) == 24
    assert [len(line["segment"]) for line in lines] == [0] * 20 + [10] * 4
    await app.refresh()

    async with Redis(unix_socket_path=str(tmp_path / "store" / "valkey.sock")) as redis:
        keys = [key async for key in redis.scan_iter()]
        held = [await redis.hgetall(key) for key in keys if b":slot:" in key]
        assert await redis.strlen("specroute:v1:segment-key") == 32
    assert held
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"decisions.jsonl", "valkey.log"}
    written = {
        "log": "\n".join(JsonFormatter().format(record) for record in caplog.records),
        "metrics": (await get(app.admin_url, "/metrics")).body.decode(),
        "state": (await get(app.admin_url, "/api/state")).body.decode(),
        "store": repr((keys, held)),
        **{str(path): path.read_bytes().decode("latin-1") for path in files},
    }
    assert [name for name, text in written.items() if CANARY in text] == []
