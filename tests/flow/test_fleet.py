"""Servers of a pool in a whole proxy: who gets requests, who is taken out, who comes and goes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from router.app import Application
from router.cli.main import main
from router.types import ReplicaId
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.clock import ManualClock
from tests.support.flow_backend import (
    Gate,
    ScriptedBackend,
    Step,
    opens,
    scripted_backend,
    send,
    wait,
)
from tests.support.flow_client import Reply, ask, get, raw_client, request_bytes
from tests.support.flow_world import config_of, pool


def replicas(app: Application, index: int = 0) -> list[dict[str, Any]]:
    """What is shown of a pool's servers."""
    shown: list[dict[str, Any]] = app.state()["routes"][0]["pools"][index]["replicas"]
    return shown


def stream_that_waits(running: Gate, go_on: Gate) -> tuple[Step, ...]:
    """An answer that begins, opens a gate, and ends after another one has opened."""
    first, *others = wire.llama_events()
    rest = b"".join(wire.chunk(event) for event in others) + wire.END
    return send(wire.STREAM_HEAD + wire.chunk(first)), opens(running), wait(go_on), send(rest)


async def chat(app: Application, n: int = 1, **fields: Any) -> Counter[str]:
    """Sends requests one after another; what answered them."""
    answers: Counter[str] = Counter()
    for _ in range(n):
        reply = await ask(app.data_url, request_bytes(wire.chat(**fields)))
        assert reply.status == 200
        answers[reply.json["choices"][0]["message"]["content"]] += 1
    return answers


async def post(app: Application, target: str, *headers: str, host: str = "localhost") -> Reply:
    """Sends a change to the admin port."""
    lines = [f"POST {target} HTTP/1.1", f"Host: {host}", "Content-Length: 0", "Connection: close"]
    return await ask(app.admin_url, "\r\n".join([*lines, *headers, "", ""]).encode())


@pytest.fixture
async def app(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> Application:
    """A proxy with one pool of two servers."""
    plain.always(wire.llama_chat("first"))
    fast.always(wire.llama_chat("second"))
    return await start(config_of(pool("plain", plain, fast), folder=tmp_path))


# --- Draining -------------------------------------------------------------------------------------


async def test_a_drained_server_finishes_and_gets_nothing_new(
    app: Application, plain: ScriptedBackend
) -> None:
    """Until that is undone."""
    running, go_on = Gate(), Gate()
    plain.then(*stream_that_waits(running, go_on))
    assert (await post(app, "/api/replicas/plain/1/drain")).json["in_flight"] == 0
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await running.wait()
        assert (await post(app, "/api/replicas/plain/1/undrain")).json["draining"] is False
        reply = await post(app, "/api/replicas/plain/0/drain")
        assert reply.json == {"id": "plain/0", "model": "tiny", "draining": True, "in_flight": 1}
        assert await chat(app, 5) == {"second": 5}
        assert replicas(app)[0]["state"] == "draining"
        go_on.open()
        assert b"[DONE]" in (await client.reply()).body
    assert replicas(app)[0]["in_flight"] == 0
    await post(app, "/api/replicas/plain/0/undrain")
    assert (await chat(app, 200))["first"] > 0


async def test_unknown_servers_and_routes_are_said_to_be_so(app: Application) -> None:
    """Nothing changes."""
    for target in ("plain/7/drain", "fast/0/drain", "plain/0/drain?model=other"):
        reply = await post(app, f"/api/replicas/{target}")
        assert (reply.status, reply.json["error"][:9]) == (404, "no server")
    assert not any(item["draining"] for item in replicas(app))


@pytest.mark.parametrize(
    ("headers", "host"),
    [
        (("Origin: http://evil.example",), "localhost"),
        (("Origin: null",), "localhost"),
        (("Origin: http://localhost:9999",), "localhost:8081"),
        (("Sec-Fetch-Site: cross-site",), "localhost"),
        (("Sec-Fetch-Site: same-site",), "localhost"),
        ((), "evil.example"),
    ],
)
async def test_foreign_pages_change_nothing(
    app: Application, headers: tuple[str, ...], host: str
) -> None:
    """A browser sends their requests here as well as our own."""
    assert (await post(app, "/api/replicas/plain/0/drain", *headers, host=host)).status == 403
    assert not replicas(app)[0]["draining"]


async def test_our_own_page_may_change_things(app: Application) -> None:
    """With the header that no foreign page can set; whoever is no page needs none."""
    headers = ("Origin: http://localhost", "Sec-Fetch-Site: same-origin")
    assert (await post(app, "/api/replicas/plain/0/drain", *headers)).status == 403
    marked = (*headers, "x-specroute-csrf: 1")
    assert (await post(app, "/api/replicas/plain/0/drain", *marked)).status == 200
    assert replicas(app)[0]["draining"]
    assert (await get(app.admin_url, "/api/replicas/plain/0/drain")).status == 405


async def command(
    *arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Runs the program in this process: exit code and what it printed."""

    def run() -> int:
        with pytest.raises(SystemExit) as caught:
            main()
        return int(caught.value.code or 0)

    monkeypatch.setattr(sys, "argv", ["specroute", *arguments])
    code = await asyncio.to_thread(run)
    output = capsys.readouterr()
    return code, output.out + output.err


async def test_the_command_drains(
    app: Application, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And undoes it; what cannot be done is one clear line."""

    async def drain(*arguments: str, url: str = app.admin_url) -> tuple[int, str]:
        words = ("drain", *arguments, "--url", url)
        return await command(*words, monkeypatch=monkeypatch, capsys=capsys)

    assert await drain("plain/0") == (0, "plain/0 is drained: nothing runs there\n")
    assert replicas(app)[0]["draining"]
    code, out = await command(
        "status", "--url", app.admin_url, monkeypatch=monkeypatch, capsys=capsys
    )
    assert (code, "plain/0: draining" in out) == (0, True)
    assert await drain("plain/0", "--undo", "--model", "tiny") == (
        0,
        "plain/0 gets requests again, slowly at first\n",
    )
    assert not replicas(app)[0]["draining"]
    there = "there are plain/0, plain/1"
    assert await drain("plain/9") == (2, f"error: no server is called plain/9; {there}\n")
    assert await drain("plain/0", "--model", "tin") == (
        2,
        "error: no server is called plain/0: no route has the model 'tin'; there are 'tiny'\n",
    )
    assert (await drain("plain"))[1].startswith("error: 'plain' is no server")
    assert (await drain("plain/0", url="ftp://x"))[1].startswith("error: --url")
    assert "no proxy answers" in (await drain("plain/0", url="http://127.0.0.1:1"))[1]
    assert "is --url the admin port" in (await drain("plain/0", url=app.data_url))[1]


# --- Failing, busy, suspect -----------------------------------------------------------------------


async def test_a_failing_server_is_left_alone_and_tried_again(
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Three failures open its breaker, which is logged once; later a request closes that."""
    clock = ManualClock()
    plain.always(wire.whole(b"{}", "500 Internal Server Error"))
    fast.always(wire.llama_chat("second"))
    app = await start(config_of(pool("plain", plain, fast), folder=tmp_path), clock)
    while replicas(app)[0]["breaker"] == "closed":
        await ask(app.data_url, request_bytes(wire.chat()))
        clock.advance(1.1)
    failed = len(plain.requests)
    assert failed == 3
    [line] = [record for record in caplog.records if record.name == "specroute.relay"]
    assert line.getMessage() == "server is taken out by requests that failed"
    assert (vars(line)["replica"], vars(line)["why"]) == ("plain/0", "server_error")
    clock.advance(-0.2)
    assert await chat(app, 5) == {"second": 5}
    text = (await get(app.admin_url, "/metrics")).body.decode()
    assert 'specroute_replica_breaker{model="tiny",pool="plain",replica="plain/0"} 2.0' in text
    clock.advance(1.0)
    plain.always(wire.llama_chat("first"))
    assert await chat(app) == {"first": 1}
    assert replicas(app)[0]["breaker"] == "closed"


async def test_a_busy_server_rests_and_readiness_stays(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """All servers being busy is no reason to take the proxy out."""
    plain.then(send(wire.whole(b"{}", "429 Too Many Requests")))
    plain.always(wire.llama_chat("first"))
    app = await start(config_of(pool("plain", plain), folder=tmp_path), ManualClock())
    assert (await ask(app.data_url, request_bytes(wire.chat()))).status == 429
    assert replicas(app)[0]["state"] == "cooling 1 s"
    assert replicas(app)[0]["breaker"] == "closed"
    assert (await get(app.data_url, "/ready")).status == 200
    assert await chat(app) == {"first": 1}
    assert replicas(app)[0]["state"] == "up"


async def test_a_hung_engine_is_suspect_though_it_looks_healthy(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Its health checks succeed, yet it gets nothing new until it sends something again."""
    clock, go_on, hung = ManualClock(), Gate(), [Gate(), Gate()]
    for gate in hung:
        plain.then(opens(gate), wait(go_on), send(wire.stream(wire.llama_events())))
    plain.always(wire.llama_chat("first"))
    fast.always(wire.llama_chat("second"))
    app = await start(config_of(pool("plain", plain, fast), folder=tmp_path), clock)
    [fleet] = app.fleets().values()
    async with asyncio.TaskGroup() as group:
        fleet.drain(ReplicaId("plain/1"), draining=True)
        asked = request_bytes(wire.chat(stream=True))
        late = [group.create_task(ask(app.data_url, asked)) for _ in hung]
        for gate in hung:
            await gate.wait()
        fleet.drain(ReplicaId("plain/1"), draining=False)
        clock.advance(121.0)
        fleet.watch(clock.monotonic())
        await app.probe()
        assert (replicas(app)[0]["up"], replicas(app)[0]["state"]) == (True, "suspect")
        assert await chat(app, 5) == {"second": 5}
        go_on.open()
    assert [task.result().status for task in late] == [200, 200]
    fleet.watch(clock.monotonic())
    assert not replicas(app)[0]["suspect"]


async def test_a_conversation_stays_with_its_server(app: Application) -> None:
    """Turn after turn, while others are spread."""
    for words in ("llamas", "alpacas", "camels"):
        messages: list[dict[str, str]] = [
            {"role": "system", "content": f"All about {words}. " * 200}
        ]
        answers: Counter[str] = Counter()
        for turn in range(6):
            messages.append({"role": "user", "content": f"Question {turn}"})
            answers += await chat(app, messages=messages)
            messages.append({"role": "assistant", "content": f"Answer {turn}"})
        assert len(answers) == 1


# --- Servers that come and go ---------------------------------------------------------------------


async def test_servers_listed_in_a_file_come_and_go(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """While requests run; a file that is wrong changes nothing and is told of."""
    running, go_on = Gate(), Gate()
    path = tmp_path / "servers.json"
    path.write_text(json.dumps([plain.url]))
    made = pool("plain", discover={"file": str(path)})
    del made["replicas"]
    plain.then(*stream_that_waits(running, go_on))
    fast.always(wire.llama_chat("second"))
    app = await start(config_of(made, folder=tmp_path))
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await running.wait()
        path.write_text(json.dumps([{"url": fast.url, "weight": 2}]))
        await app.probe()
        assert [item["id"] for item in replicas(app)] == ["plain/1"]
        assert await chat(app, 3) == {"second": 3}
        path.write_text("[")
        await app.probe()
        shown = app.state()["routes"][0]["pools"][0]
        assert "not valid YAML or JSON" in shown["discovery_error"]
        assert await chat(app, 3) == {"second": 3}
        go_on.open()
        assert b"[DONE]" in (await client.reply()).body
    path.write_text(json.dumps([plain.url, fast.url]))
    await app.probe()
    assert {item["id"] for item in replicas(app)} == {"plain/0", "plain/1"}
    assert app.state()["routes"][0]["pools"][0]["discovery_error"] is None


async def test_a_pool_without_servers_yet_is_not_ready(start: Start, tmp_path: Path) -> None:
    """The proxy starts all the same, and finds them later."""
    made = pool("plain", discover={"file": str(tmp_path / "later.yaml")})
    del made["replicas"]
    app = await start(config_of(made, folder=tmp_path))
    assert (await get(app.data_url, "/ready")).status == 503
    assert (await ask(app.data_url, request_bytes(wire.chat()))).status >= 500


async def test_what_is_known_of_a_server_outlives_a_reload(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Another server joins the pool; the one that an operator has taken out stays out."""
    app = await start(config_of(pool("plain", plain, fast), folder=tmp_path))
    [fleet] = app.fleets().values()
    fleet.drain(ReplicaId("plain/1"), draining=True)
    async with scripted_backend() as third:
        third.always(wire.llama_chat("third"))
        await app.apply(config_of(pool("plain", plain, fast, third), folder=tmp_path))
        assert [item["state"] == "draining" for item in replicas(app)] == [False, True, False]


async def test_an_order_given_during_a_reload_holds(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """It was answered with 200, so the configuration that comes must know of it."""
    for backend in (plain, fast):
        backend.always(wire.llama_chat(backend.url))
    app = await start(config_of(pool("plain", plain, fast), folder=tmp_path))
    await app.prepare(config_of(pool("plain", plain, fast), folder=tmp_path, hedge_s=5.0))
    assert (await post(app, "/api/replicas/plain/1/drain")).status == 200
    app.commit()
    assert [item["state"] for item in replicas(app)] == ["up", "draining"]
    assert await chat(app, 5) == {plain.url: 5}


async def test_a_busy_server_outlives_a_reload(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """One probe missed about then is one of `down_after`, as at any other time."""
    health = {"down_after": 2}
    app = await start(config_of(pool("plain", plain, health=health), folder=tmp_path))
    plain.health = wire.whole(b"", "503 Service Unavailable")
    await app.apply(config_of(pool("plain", plain, health=health), folder=tmp_path, hedge_s=5.0))
    assert app.not_ready() is None
    await app.probe()
    assert app.not_ready() is None
    await app.probe()
    assert app.not_ready() == "no server of model 'tiny' answers"


async def test_a_reload_that_fails_leaves_nothing_running(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """What it had begun for servers of its own ends with it."""
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    fast.hangs, fast.health = True, b""
    both = pool("plain", plain, fast, health={"timeout_s": 60})
    reload = asyncio.ensure_future(app.prepare(config_of(both, folder=tmp_path)))
    while not fast.connections:  # noqa: ASYNC110 - the engine is in this process
        await asyncio.sleep(0)
    reload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reload
    await fast.all_gone()


async def test_a_proxy_whose_servers_are_all_taken_out_is_not_ready(app: Application) -> None:
    """No request could be served, so traffic should go elsewhere."""
    [fleet] = app.fleets().values()
    every = [
        server["id"] for pool in app.state()["routes"][0]["pools"] for server in pool["replicas"]
    ]
    for replica_id in every:
        fleet.drain(ReplicaId(replica_id), draining=True)
    assert (await get(app.data_url, "/ready")).status == 503
    fleet.drain(ReplicaId(every[0]), draining=False)
    assert (await get(app.data_url, "/ready")).status == 200
