"""The configuration anew: running answers keep the old one, new requests get the new one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from router.cli.main import main
from router.config.models import Config
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import Gate, ScriptedBackend, send, until_gone, wait
from tests.support.flow_client import ask, get, raw_client, request_bytes
from tests.support.flow_process import Serving, outcome, serving, write
from tests.support.flow_world import cell, config_of, pool

FIRST, *REST = wire.llama_events()
REST_SENT = b"".join(wire.chunk(event) for event in REST) + wire.END
WORKERS = pytest.mark.parametrize("workers", [1, 2])


def config(
    backend: ScriptedBackend,
    folder: Path,
    *,
    workers: int = 1,
    poll_s: float = 0,
    **listen: Any,
) -> Config:
    """One route; its file is looked at only when the test says so."""
    made = config_of(
        pool("plain", backend),
        folder=folder,
        listen={"workers": workers, **listen},
        store={"url": "embedded:" if workers > 1 else "memory:"},
    )
    reload = made.reload.model_copy(update={"poll_s": poll_s})
    return made.model_copy(update={"reload": reload})


async def reloaded(proxy: Serving, result: str, n: int = 1) -> dict[str, Any]:
    """Waits until a reload ended in a certain way; all workers serve by the same then."""
    counted = f'specroute_config_reloads_total{{result="{result}"}} {n:.1f}'
    async with asyncio.timeout(30):
        while counted not in (await get(proxy.admin, "/metrics")).body.decode():
            pass
    state = await proxy.state()
    assert {worker["hash"] for worker in state["workers"]} == {state["config"]["hash"]}
    last: dict[str, Any] = state["config"]["last_reload"]
    assert last["result"] == result
    return state


@WORKERS
async def test_running_stream_and_new_request(
    plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path, workers: int
) -> None:
    """SIGHUP: a stream ends where it began, new requests go to the new server, then the old is left."""
    go_on = Gate()
    plain.then(
        send(wire.STREAM_HEAD + wire.chunk(FIRST)), wait(go_on), send(REST_SENT), until_gone()
    )
    fast.always(wire.llama_chat())
    file = write(config(plain, tmp_path, workers=workers), tmp_path / "c.yaml")
    async with serving(file) as proxy, raw_client(proxy.url) as client:
        before = await proxy.state()
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        assert await client.piece() == FIRST
        write(config(fast, tmp_path, workers=workers), file)
        proxy.process.send_signal(signal.SIGHUP)
        state = await reloaded(proxy, "applied")
        assert state["config"]["last_reload"]["trigger"] == "SIGHUP"
        assert state["config"]["hash"] != before["config"]["hash"]
        assert [worker["pid"] for worker in state["workers"]] == [
            worker["pid"] for worker in before["workers"]
        ]
        assert sum(worker["on_earlier_configurations"] for worker in state["workers"]) == 1
        for _ in range(8):
            assert (await ask(proxy.url, request_bytes(wire.chat()))).status == 200
        assert (len(plain.requests), len(fast.requests)) == (1, 8)
        [received] = plain.requests
        assert not received.gone.opened
        go_on.open()
        assert FIRST + await client.rest() == b"".join([FIRST, *REST])
        await received.gone.wait()
        await client.send(request_bytes(wire.chat()))
        assert (await client.reply()).status == 200
        await proxy.until(
            lambda state: (
                not any(worker["on_earlier_configurations"] for worker in state["workers"])
            )
        )
        proxy.process.send_signal(signal.SIGTERM)
        code, _, err = await outcome(proxy.process)
    assert code == 0
    assert "Traceback" not in err
    assert len(fast.requests) == 9


REFUSED = {
    "no YAML": ("routes: [", "not valid YAML"),
    "wrong key": ('{"routs": []}', "routs: unknown key; did you mean `routes`?"),
    "gone": (None, "no such file"),
}


@WORKERS
async def test_file_that_cannot_be_used(
    plain: ScriptedBackend, tmp_path: Path, workers: int
) -> None:
    """The old one serves on, and everywhere it is said why: state, metrics, log, command."""
    plain.always(wire.llama_chat())
    good = config(plain, tmp_path, workers=workers)
    file = write(good, tmp_path / "c.yaml")
    [route] = good.routes
    policy = route.policy.model_copy(update={"parameters": {"arm": "nobody"}})
    wrong = good.model_copy(update={"routes": (route.model_copy(update={"policy": policy}),)})
    elsewhere = config(plain, tmp_path, workers=workers, drain_s=3, port=plain.port)
    cases = [
        *REFUSED.values(),
        (wrong.model_dump_json(exclude_none=True), "routes[0].policy.parameters.arm: "),
        (
            elsewhere.model_dump_json(exclude_none=True),
            "listen.port, listen.drain_s: cannot change while the program runs; restart it",
        ),
    ]
    async with serving(file) as proxy:
        before = (await proxy.state())["config"]
        for n, (text, words) in enumerate(cases, 1):
            file.unlink(missing_ok=True)
            if text is not None:
                file.write_text(text)
            proxy.process.send_signal(signal.SIGHUP)
            state = await reloaded(proxy, "refused", n)
            assert words in state["config"]["last_reload"]["why"]
            assert state["config"]["hash"] == before["hash"]
            assert (await ask(proxy.url, request_bytes(wire.chat()))).status == 200
        proxy.process.send_signal(signal.SIGTERM)
        code, _, err = await outcome(proxy.process)
    assert code == 0
    assert err.count("configuration refused; the old one serves on") == len(cases)
    assert "Traceback" not in err


@WORKERS
async def test_changed_file(
    plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path, workers: int
) -> None:
    """A changed file is applied by itself, a bad one is refused once, and the next good one applied."""
    for backend in (plain, fast):
        backend.always(wire.llama_chat())

    def made(backend: ScriptedBackend) -> Config:
        return config(backend, tmp_path, workers=workers, poll_s=0.05)

    file = write(made(plain), tmp_path / "c.yaml")
    async with serving(file) as proxy:
        write(made(fast), file)
        state = await reloaded(proxy, "applied")
        assert state["config"]["last_reload"]["trigger"] == "changed file"
        await ask(proxy.url, request_bytes(wire.chat()))
        assert (len(plain.requests), len(fast.requests)) == (0, 1)
        file.write_text("routes: [")
        await reloaded(proxy, "refused")
        write(made(plain), file)
        await reloaded(proxy, "applied", 2)
        await ask(proxy.url, request_bytes(wire.chat()))
        assert (len(plain.requests), len(fast.requests)) == (1, 1)
        text = (await get(proxy.admin, "/metrics")).body.decode()
        assert 'specroute_config_reloads_total{result="refused"} 1.0' in text


async def test_worker_that_starts_later(
    plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """A worker that takes another's place after a reload serves by the new configuration."""
    fast.always(wire.llama_chat())
    file = write(config(plain, tmp_path, workers=2), tmp_path / "c.yaml")
    async with serving(file) as proxy:
        write(config(fast, tmp_path, workers=2), file)
        proxy.process.send_signal(signal.SIGHUP)
        state = await reloaded(proxy, "applied")
        file.write_text("routes: [")
        for worker in state["workers"]:
            os.kill(worker["pid"], signal.SIGKILL)
        pids = {worker["pid"] for worker in state["workers"]}
        again = await proxy.until(
            lambda state: all(
                worker["answers"] and worker["pid"] not in pids for worker in state["workers"]
            )
        )
        assert {worker["hash"] for worker in again["workers"]} == {state["config"]["hash"]}
        assert (await ask(proxy.url, request_bytes(wire.chat()))).status == 200
        assert len(fast.requests) == 1


async def test_connections_to_servers_that_are_left(
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are closed when the last request on them has ended, however many reloads later."""
    go_on, closed = Gate(), Gate()
    plain.then(send(wire.STREAM_HEAD + wire.chunk(FIRST)), wait(go_on), send(REST_SENT))
    fast.always(wire.llama_chat())
    app = await start(config(plain, tmp_path))
    upstream = app._current.routes["tiny"].servers.upstream
    close = upstream.close

    async def closing() -> None:
        closed.open()
        await close()

    monkeypatch.setattr(upstream, "close", closing)
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        await client.piece()
        await app.apply(config(fast, tmp_path))
        await app.apply(config(plain, tmp_path))
        await app.apply(config(fast, tmp_path))
        assert (await ask(app.data_url, request_bytes(wire.chat()))).status == 200
        assert not closed.opened
        [worker] = app.state()["workers"]
        assert (worker["in_flight"], worker["on_earlier_configurations"]) == (1, 1)
        go_on.open()
        assert FIRST + await client.rest() == b"".join([FIRST, *REST])
        await closed.wait()
    [worker] = app.state()["workers"]
    assert (worker["in_flight"], worker["requests"]) == (0, 2)


async def test_connections_that_are_kept(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Where the servers are the same, the next request goes over the connection that is there."""
    plain.always(wire.llama_chat())
    app = await start(config(plain, tmp_path))
    for delay_s in (0, 1, 2):
        await app.apply(config(plain, tmp_path, drain_delay_s=delay_s))
        assert (await ask(app.data_url, request_bytes(wire.chat()))).status == 200
    assert {received.connection for received in plain.requests} == {plain.requests[0].connection}


async def test_what_was_learned_before_serves_at_once(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """A new generation knows the store's past before its first request."""
    plain.always(wire.llama_chat())
    app = await start(config(plain, tmp_path))
    for _ in range(3):
        await ask(app.data_url, request_bytes(wire.chat()))
    await app.flush()
    await app.refresh()
    await app.apply(config(fast, tmp_path))
    assert cell(app, "plain")["ok"] == 3


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Runs a command in this process; returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["specroute", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


async def test_command(
    plain: ScriptedBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`specroute reload` tells whether the file could be used; `status` shows the last refusal."""
    file = write(config(plain, tmp_path), tmp_path / "c.yaml")
    async with serving(file) as proxy:
        assert await asyncio.to_thread(run, monkeypatch, "reload", "--url", proxy.admin) == 0
        assert capsys.readouterr().out.startswith("applied: configuration ")
        file.write_text("routes: [")
        assert await asyncio.to_thread(run, monkeypatch, "reload", "--url", proxy.admin) == 2
        err = capsys.readouterr().err
        assert err.startswith("error: refused, and the old configuration serves on: ")
        assert "not valid YAML" in err
        assert await asyncio.to_thread(run, monkeypatch, "status", "--url", proxy.admin) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "(admin port): " in shown
        assert "not valid YAML" in shown


@pytest.mark.parametrize(
    "header",
    ["Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site"],
)
async def test_foreign_pages_give_no_orders(
    start: Start, plain: ScriptedBackend, tmp_path: Path, header: str
) -> None:
    """A web page of others cannot have its reader's browser reload the proxy."""
    app = await start(config(plain, tmp_path))
    order = request_bytes(b"", "/api/reload", headers=(header,))
    assert (await ask(app.admin_url, order)).status == 403


async def test_proxy_without_a_file(start: Start, plain: ScriptedBackend, tmp_path: Path) -> None:
    """Where the configuration came from no file there is nothing to read again."""
    app = await start(config(plain, tmp_path))
    reply = await ask(app.admin_url, request_bytes(b"", "/api/reload"))
    assert (reply.status, "file" in reply.json["error"]) == (409, True)
    assert app.state()["config"] is None
