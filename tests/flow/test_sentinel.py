"""Answers of speculative pools, asked of the baseline again: when that happens, and what is kept."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from router.app import Application
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import Gate, ScriptedBackend, opens, send, until_gone, wait
from tests.support.flow_client import ask, get, raw_client, request_bytes
from tests.support.flow_world import always, cell, config_of, in_flight, pool

CANARY = "zyzzyva"
ALL = {"share": 1.0, "max_cost": 1.0}
GREEDY: dict[str, Any] = {"temperature": 0}


async def serve(
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    folder: Path,
    *,
    sentinel: dict[str, Any] | None = None,
    **more: Any,
) -> Application:
    """A proxy whose policy sends everything to the pool that drafts."""
    return await start(
        config_of(
            pool("plain", plain),
            pool("fast", fast, method="draft_model", num_speculative_tokens=3),
            folder=folder,
            policy=always("fast"),
            sentinel=ALL if sentinel is None else sentinel,
            **more,
        )
    )


def logprobs(*tokens: tuple[str, str, float]) -> dict[str, Any]:
    """Tokens, each with the likeliest other one and the distance to it."""
    content = [
        {
            "token": token,
            "logprob": -0.1,
            "top_logprobs": [
                {"token": token, "logprob": -0.1},
                {"token": other, "logprob": -0.1 - gap},
            ],
        }
        for token, other, gap in tokens
    ]
    return {"content": content}


def answer(text: str, told: dict[str, Any] | None = None) -> bytes:
    """A whole answer, with log probabilities if any."""
    body = json.loads(wire.llama_chat(text).partition(b"\r\n\r\n")[2])
    if told is not None:
        body["choices"][0]["logprobs"] = told
    return wire.whole(wire.dump(body))


async def repeats(app: Application) -> dict[str, int]:
    """Findings so far that are not 0, by what the snapshot shows."""
    await app.flush()
    await app.refresh()
    found = cell(app, "fast")["repeats"]
    return {name: count for name, count in found.items() if count}


async def results(app: Application) -> dict[str, float]:
    """What became of answers that were drawn, by the metrics."""
    text = (await get(app.admin_url, "/metrics")).body.decode()
    name = "specroute_repeats_total{"
    lines = [line for line in text.splitlines() if line.startswith(name)]
    return {line.split('result="')[1].split('"')[0]: float(line.split()[-1]) for line in lines}


@pytest.mark.parametrize(
    ("mine", "first", "second", "expected"),
    [
        ("Paris.", answer("Paris."), None, {"n": 1, "same": 1}),
        (
            "Paris!",
            answer("Paris.", logprobs(("Paris", "Rome", 9.0), (".", "!", 0.1))),
            None,
            {"n": 1, "tie": 1},
        ),
        ("Paris!", answer("Paris."), None, {"n": 1, "unread": 1}),
        (
            "Paris!",
            answer("Paris.", logprobs(("Paris", "Rome", 9.0), (".", "!", 5.0))),
            answer("Paris."),
            {"n": 1, "odd": 1},
        ),
        (
            "Paris!",
            answer("Paris.", logprobs(("Paris", "Rome", 9.0), (".", "!", 5.0))),
            answer("Paris!"),
            {"n": 1, "control": 1},
        ),
    ],
)
async def test_an_answer_is_asked_of_the_baseline_again(
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    *,
    mine: str,
    first: bytes,
    second: bytes | None,
    expected: dict[str, int],
) -> None:
    """Once, and once more where only that can tell which of the two was the odd one."""
    fast.always(wire.llama_chat(mine))
    for again in (first, second):
        if again is not None:
            plain.then(send(again))
    app = await serve(start, plain, fast, tmp_path)
    await ask(app.data_url, request_bytes(wire.chat(**GREEDY)))
    assert plain.requests == []
    await app.repeat()
    assert len(plain.requests) == (1 if second is None else 2)
    sent = json.loads(plain.requests[0].body)
    assert (sent["logprobs"], sent["top_logprobs"], sent["temperature"]) == (True, 2, 0)
    assert await repeats(app) == expected
    assert in_flight(app) == 0


async def test_a_stream_is_repeated_as_a_stream(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """What its client gets is the same as without."""
    fast.always(wire.stream(wire.llama_events()))
    plain.always(wire.stream(wire.llama_events(pieces=("The capital", " is Paris."))))
    app = await serve(start, plain, fast, tmp_path)
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True, **GREEDY)))
    assert reply.body == b"".join(wire.llama_events())
    await app.repeat()
    assert await repeats(app) == {"n": 1, "same": 1}


async def test_calls_that_the_baseline_writes_better_are_counted(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """An invalid call beside a valid one is worse, whatever the text."""
    tool = {"type": "function", "function": {"name": "look", "parameters": {}}}

    def call(arguments: str) -> bytes:
        function = {"name": "look", "arguments": arguments}
        return wire.llama_chat("", tool_calls=[{"function": function}])

    fast.always(call('{"word": "a'))
    plain.always(call('{"word": "a"}'))
    app = await serve(start, plain, fast, tmp_path)
    await ask(app.data_url, request_bytes(wire.chat(tools=[tool], **GREEDY)))
    await app.repeat()
    assert await repeats(app) == {"n": 1, "unread": 1, "worse": 1, "shorter": 1}


@pytest.mark.parametrize(
    ("sentinel", "asked"),
    [
        ({"share": 0.0}, GREEDY),
        (ALL, {}),
        (ALL, {"temperature": 0.7}),
        (ALL, {"temperature": 0, "n": 2}),
    ],
)
async def test_who_is_not_asked_again(
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    *,
    sentinel: dict[str, Any],
    asked: dict[str, Any],
) -> None:
    """Those who did not agree, and those whose answer may be another one each time."""
    fast.always(wire.llama_chat())
    app = await serve(start, plain, fast, tmp_path, sentinel=sentinel)
    await ask(app.data_url, request_bytes(wire.chat(**asked)))
    await app.repeat()
    assert plain.requests == []


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (1.0, 1)])
async def test_a_tenant_has_its_own_share(
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    *,
    share: float,
    count: int,
) -> None:
    """Against the route's: more, or none at all."""
    fast.always(wire.llama_chat())
    plain.always(wire.llama_chat())
    tenants = {"known": [{"id": "anonymous", "sentinel": share}]}
    route = {"share": 1.0 - share, "max_cost": 1.0}
    app = await serve(start, plain, fast, tmp_path, sentinel=route, tenants=tenants)
    await ask(app.data_url, request_bytes(wire.chat(**GREEDY)))
    await app.repeat()
    assert len(plain.requests) == count


async def test_nothing_is_repeated_while_the_baseline_has_work(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """At most so many requests at a server, the repeat included."""
    begun, gate = Gate(), Gate()
    fast.then(send(wire.llama_chat()))
    fast.always(wire.whole(b"{}", status="503 Busy"))  # so that the baseline steps in
    plain.then(opens(begun), wait(gate), send(wire.llama_chat()))
    plain.always(wire.llama_chat())
    sentinel = {**ALL, "max_load": 1}
    app = await serve(start, plain, fast, tmp_path, sentinel=sentinel)
    await ask(app.data_url, request_bytes(wire.chat(**GREEDY)))
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat()))
        await begun.wait()
        await app.repeat()
        assert len(plain.requests) == 1
        gate.open()
        await client.reply()
    await app.repeat()
    assert len(plain.requests) == 2


async def test_repeats_take_no_more_time_than_was_earned(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Nothing is earned at a cost of 0."""
    fast.always(wire.llama_chat())
    sentinel = {"share": 1.0, "max_cost": 0.0}
    app = await serve(start, plain, fast, tmp_path, sentinel=sentinel)
    await ask(app.data_url, request_bytes(wire.chat(**GREEDY)))
    await app.repeat()
    assert plain.requests == []


async def test_what_finds_no_room_is_dropped_and_counted(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Sixteen wait; no client is kept waiting for any of them."""
    fast.always(wire.llama_chat())
    plain.always(wire.llama_chat())
    app = await serve(start, plain, fast, tmp_path)
    for _ in range(18):
        await ask(app.data_url, request_bytes(wire.chat(**GREEDY)))
    assert await results(app) == {"dropped": 2.0}
    while len(plain.requests) < 16:
        await app.repeat()
    assert await results(app) == {"dropped": 2.0, "same": 16.0}


@pytest.mark.parametrize(
    "refusal",
    [
        wire.whole(b'{"error":{}}', status="500 Broken"),
        wire.whole(b'{"error":{}}', status="404 Bad"),
        b"",
        wire.whole(b"{"),
    ],
)
async def test_a_baseline_that_fails_is_no_evidence(
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    *,
    refusal: bytes,
) -> None:
    """Against nobody: it is counted, and the next answer is repeated as ever."""
    fast.always(wire.llama_chat())
    plain.then(send(refusal), *(() if refusal else (_hang_up,)))
    plain.always(wire.llama_chat())
    app = await serve(start, plain, fast, tmp_path)
    await ask(app.data_url, request_bytes(wire.chat(**GREEDY)))
    await app.repeat()
    assert await results(app) == {"failed": 1.0}
    assert await repeats(app) == {}
    await ask(app.data_url, request_bytes(wire.chat(**GREEDY)))
    await app.repeat()
    assert await repeats(app) == {"n": 1, "same": 1}


async def test_a_baseline_that_tells_no_log_probabilities_is_asked_without(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Some engines refuse them for some requests."""
    fast.always(wire.llama_chat())
    plain.then(send(wire.whole(b'{"error":{}}', status="400 Bad")))
    plain.then(send(wire.llama_chat()))
    app = await serve(start, plain, fast, tmp_path)
    await ask(app.data_url, request_bytes(wire.chat(**GREEDY)))
    await app.repeat()
    asked = [json.loads(received.body) for received in plain.requests]
    assert ["logprobs" in body for body in asked] == [True, False]
    assert await repeats(app) == {"n": 1, "same": 1}


async def _hang_up(exchange: Any) -> None:
    exchange.writer.close()


async def test_an_answer_whose_client_left_is_not_repeated(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Nobody knows what it would have been."""
    events = b"".join(wire.chunk(event) for event in wire.llama_events()[:3])
    fast.then(send(wire.STREAM_HEAD + events), until_gone())
    app = await serve(start, plain, fast, tmp_path)
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True, **GREEDY)))
        await client.head()
        await client.until(b"capital")
        client.leave()
        await fast.requests[0].gone.wait()
    await app.flush()
    await app.repeat()
    assert plain.requests == []


async def test_nothing_is_repeated_once_speculation_is_off(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """What waited is forgotten: nothing is in question any more."""
    fast.always(wire.llama_chat())
    app = await serve(start, plain, fast, tmp_path)
    await ask(app.data_url, request_bytes(wire.chat(**GREEDY)))
    order = wire.dump({"on": False})
    assert (await ask(app.admin_url, request_bytes(order, "/api/speculation"))).status == 200
    await app.refresh()
    await app.repeat()
    assert plain.requests == []


async def test_nothing_is_repeated_while_the_end_is_near(
    plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path, start: Start
) -> None:
    """What waits is dropped when the drain begins."""
    fast.always(wire.llama_chat())
    config = config_of(
        pool("plain", plain),
        pool("fast", fast, method="draft_model"),
        folder=tmp_path,
        policy=always("fast"),
        sentinel=ALL,
    )
    del start
    app = Application(config, seed=1)
    async with app.running():
        await ask(app.data_url, request_bytes(wire.chat(**GREEDY)))
    await app.repeat()
    assert plain.requests == []


async def test_no_client_waits_for_a_repeat_and_no_end_does(
    monkeypatch: pytest.MonkeyPatch,
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
) -> None:
    """A baseline that never answers it holds nobody up; at the end its connection is cut."""
    begun = Gate()
    fast.always(wire.llama_chat())
    plain.then(opens(begun), until_gone())
    config = config_of(
        pool("plain", plain),
        pool("fast", fast, method="draft_model"),
        folder=tmp_path,
        policy=always("fast"),
        sentinel=ALL,
    )
    del start
    monkeypatch.setattr("router.app.REPEAT_S", 0.01)
    app = Application(config, seed=1)
    async with app.running():
        await ask(app.data_url, request_bytes(wire.chat(**GREEDY)))
        await begun.wait()
        reply = await ask(app.data_url, request_bytes(wire.chat(**GREEDY)))
        assert reply.status == 200
        assert in_flight(app) == 1
    await plain.requests[0].gone.wait()
    assert len(plain.requests) == 1


async def test_no_text_is_kept_anywhere(
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither of requests nor of answers, whatever was found."""
    caplog.set_level(logging.DEBUG)
    fast.always(wire.llama_chat(f"{CANARY} one"))
    plain.always(answer(f"{CANARY} two", logprobs((CANARY, "x", 9.0), (" two", " one", 9.0))))
    store = {"url": "embedded:"}
    app = await serve(start, plain, fast, tmp_path, store=store)
    await ask(app.data_url, request_bytes(wire.chat(prompt=f"{CANARY}?", **GREEDY)))
    await app.repeat()
    assert await repeats(app) == {"n": 1, "odd": 1}
    shown = [
        json.dumps(app.state()).encode(),
        (await get(app.admin_url, "/metrics")).body,
        (await get(app.admin_url, "/api/quarantine")).body,
        caplog.text.encode(),
        *(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()),
    ]
    assert not any(CANARY.encode() in text for text in shown)
    assert all(CANARY not in str(vars(record)) for record in caplog.records)
