"""Several workers behind one port: they serve and learn as one, and each may die."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.config.models import Config
from router.errors import StartError
from router.processes.reload import ConfigFile
from router.processes.supervisor import supervise
from tests.support import flow_wire as wire
from tests.support.flow_backend import Gate, ScriptedBackend, send, until_gone, wait
from tests.support.flow_client import RawClient, ask, get, raw_client, request_bytes
from tests.support.flow_process import SLOW_S, Serving, command, outcome, serving, write
from tests.support.flow_world import config_of, pool

FIRST, *REST = wire.llama_events()
WHOLE = b"".join([FIRST, *REST])
CONNECTIONS = 24
"""The kernel deals them out by a hash: that one of two workers gets none has a chance of 1e-7."""


def config(backend: ScriptedBackend, folder: Path, *, workers: int = 2, **listen: Any) -> Config:
    """Workers that learn from each other within a moment."""
    return config_of(
        pool("plain", backend),
        folder=folder,
        listen={"workers": workers, **listen},
        store={"url": "embedded:", "flush_interval_s": 0.02, "refresh_interval_s": 0.05},
    )


def held(backend: ScriptedBackend, go_on: Gate) -> None:
    """Every answer of the engine stops after its first event until the gate opens."""
    rest = b"".join(wire.chunk(event) for event in REST) + wire.END
    backend.always(lambda _: [send(wire.STREAM_HEAD + wire.chunk(FIRST)), wait(go_on), send(rest)])


async def begun(client: RawClient) -> None:
    """A stream of which the first event is here."""
    await client.send(request_bytes(wire.chat(stream=True)))
    await client.head()
    assert await client.piece() == FIRST


@asynccontextmanager
async def streams(url: str) -> AsyncIterator[list[RawClient]]:
    """Streams that have begun, each on a connection of its own."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(raw_client(url)) for _ in range(CONNECTIONS)]
        await asyncio.gather(*(begun(client) for client in clients))
        yield clients


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does nothing for as long as the block runs."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def answered(state: dict[str, Any]) -> int:
    """Answers that the estimates know of."""
    return sum(cell["ok"] for entry in state["routes"][0]["classes"] for cell in entry["cells"])


async def requests_total(proxy: Serving) -> float:
    """Requests as /metrics counts them."""
    text = (await get(proxy.admin, "/metrics")).body.decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "specroute_requests_total"
    )


async def refuses(url: str) -> None:
    """Waits until nobody listens there."""
    parts = urlsplit(url)

    def refused() -> bool:
        with socket.socket() as sock:
            return sock.connect_ex((parts.hostname, parts.port)) != 0

    async with asyncio.timeout(SLOW_S):
        while not await asyncio.to_thread(refused):
            pass


async def told_whoever_served(proxy: Serving) -> None:
    """Decisions and the past are those of all workers, and each request is found by its id."""
    listed = (await get(proxy.admin, "/api/decisions")).json["decisions"]
    assert len({of["request_id"] for of in listed}) == CONNECTIONS
    for of in listed:
        path = f"/api/decisions/{of['request_id']}"
        assert (await get(proxy.admin, path)).json == of
    async with asyncio.timeout(SLOW_S):
        # The last seconds are not drawn before there is a bit more of them.
        while await requests_drawn(proxy) != CONNECTIONS:
            pass


async def told_by_any(proxy: Serving) -> None:
    """Beliefs, advice and what was saved come from whichever worker answers."""
    [state] = (await get(proxy.admin, "/api/state")).json["routes"]
    [beliefs] = (await get(proxy.admin, "/api/beliefs")).json["routes"]
    assert [of["class"] for of in beliefs["classes"]] == [of["class"] for of in state["classes"]]
    [advice] = (await get(proxy.admin, "/api/recommend")).json["routes"]
    assert advice["model"] == beliefs["model"] == state["model"]
    assert state["saved_today"]["answers"] == 0


async def requests_drawn(proxy: Serving) -> int:
    """Requests of the past that charts show."""
    [route] = (await get(proxy.admin, "/api/history")).json["routes"]
    return sum(route["pools"][0]["requests"])


async def test_they_serve_and_learn_as_one(plain: ScriptedBackend, tmp_path: Path) -> None:
    """Both serve; what one learned the other knows; one that is stuck is shown and waited for by nobody."""
    plain.always(wire.llama_chat())
    async with serving(write(config(plain, tmp_path), tmp_path / "c.yaml")) as proxy:
        for _ in range(CONNECTIONS):
            assert (await ask(proxy.url, request_bytes(wire.chat()))).status == 200
        state = await proxy.until(lambda state: answered(state) == CONNECTIONS)
        one, other = state["workers"]
        assert (one["number"], other["number"]) == (0, 1)
        assert len({one["pid"], other["pid"], proxy.process.pid}) == 3
        assert min(one["requests"], other["requests"]) > 0
        assert one["requests"] + other["requests"] == CONNECTIONS
        assert (state["ready"], state["store"]["url"]) == (True, "embedded:")
        assert await requests_total(proxy) == CONNECTIONS
        await told_whoever_served(proxy)
        await told_by_any(proxy)
        with stopped(one["pid"]):
            # The other one may not have read the last sums yet.
            state = await proxy.until(lambda state: answered(state) == CONNECTIONS)
            assert [worker["answers"] for worker in state["workers"]] == [False, True]
            assert "no answer within" in state["workers"][0]["not_ready"]
            assert state["workers"][1]["requests"] < CONNECTIONS
            assert await requests_total(proxy) == CONNECTIONS
        await proxy.until(lambda state: all(worker["answers"] for worker in state["workers"]))


async def test_killed_worker(plain: ScriptedBackend, tmp_path: Path) -> None:
    """`kill -9` breaks its own streams only, another takes its place, and counters go on."""
    go_on = Gate()
    held(plain, go_on)
    async with serving(write(config(plain, tmp_path), tmp_path / "c.yaml")) as proxy:
        go_on.open()
        for _ in range(CONNECTIONS):
            await ask(proxy.url, request_bytes(wire.chat(stream=True)))
        assert await requests_total(proxy) == CONNECTIONS
        again = Gate()
        held(plain, again)
        async with streams(proxy.url) as clients:
            state = await proxy.state()
            victim, other = state["workers"]
            assert victim["in_flight"] + other["in_flight"] == CONNECTIONS
            shown = [
                item["in_flight"]
                for pool in state["routes"][0]["pools"]
                for item in pool["replicas"]
            ]
            assert shown == [CONNECTIONS]
            os.kill(victim["pid"], signal.SIGKILL)
            back = await proxy.until(
                lambda state: (
                    state["workers"][0]["answers"] and state["workers"][0]["pid"] != victim["pid"]
                )
            )
            again.open()
            ends = await asyncio.gather(
                *(client.rest() for client in clients), return_exceptions=True
            )
        assert sum(isinstance(end, BaseException) for end in ends) == victim["in_flight"]
        assert sum(end == b"".join(REST) for end in ends) == other["in_flight"]
        assert [worker["restarts"] for worker in back["workers"]] == [1, 0]
        assert back["workers"][1]["pid"] == other["pid"]
        for _ in range(CONNECTIONS):
            await ask(proxy.url, request_bytes(wire.chat(stream=True)))
        assert await requests_total(proxy) == 2 * CONNECTIONS + other["in_flight"]
        text = (await get(proxy.admin, "/metrics")).body.decode()
        assert "specroute_worker_restarts_total 1.0" in text
        assert "specroute_workers 2.0" in text


async def test_server_that_is_taken_out(
    plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """In all workers, and in one that takes another's place too; put back it is back in all."""
    for backend in (plain, fast):
        backend.always(wire.llama_chat())
    both = pool("plain", plain, fast, balance={"slow_start_s": 0})
    [route] = config_of(both, folder=tmp_path).routes
    made = config(plain, tmp_path).model_copy(update={"routes": (route,)})

    async def drain(action: str) -> int:
        order = request_bytes(b"", f"/api/replicas/plain/{action}")
        return (await ask(proxy.admin, order)).status

    async def served() -> tuple[int, int]:
        before = len(plain.requests), len(fast.requests)
        for n in range(CONNECTIONS):
            body = wire.chat(prompt=f"{n} bottles")
            assert (await ask(proxy.url, request_bytes(body))).status == 200
        return len(plain.requests) - before[0], len(fast.requests) - before[1]

    async with serving(write(made, tmp_path / "c.yaml")) as proxy:
        assert await drain("0/drain") == 200
        assert await served() == (0, CONNECTIONS)
        victim = (await proxy.state())["workers"][0]["pid"]
        os.kill(victim, signal.SIGKILL)
        await proxy.until(
            lambda state: state["workers"][0]["answers"] and state["workers"][0]["pid"] != victim
        )
        assert await served() == (0, CONNECTIONS)
        assert (await drain("7/drain"), await drain("0/undrain")) == (404, 200)
        await proxy.until(
            lambda state: (
                not any(item["draining"] for item in state["routes"][0]["pools"][0]["replicas"])
            )
        )
        assert (await served())[0] > 0


@pytest.mark.skipif(sys.platform != "linux", reason="children are looked up in /proc")
async def test_killed_store(plain: ScriptedBackend, tmp_path: Path) -> None:
    """The supervisor starts it again; workers serve meanwhile, and no sum is lost."""
    plain.always(wire.llama_chat())
    async with serving(write(config(plain, tmp_path), tmp_path / "c.yaml")) as proxy:
        pid = proxy.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        [store] = [
            child for child in children if "valkey" in Path(f"/proc/{child}/cmdline").read_text()
        ]
        for round_ in range(2):
            for _ in range(8):
                assert (await ask(proxy.url, request_bytes(wire.chat()))).status == 200
            if round_ == 0:
                await proxy.until(lambda state: answered(state) == 8)
                os.kill(int(store), signal.SIGKILL)
        # How it does is known from the next look on.
        await proxy.until(lambda state: answered(state) == 16 and state["store"]["up"])


async def test_worker_that_is_told_to_end(plain: ScriptedBackend, tmp_path: Path) -> None:
    """SIGTERM to one worker finishes its streams, loses no count, and brings another."""
    go_on = Gate()
    held(plain, go_on)
    async with serving(write(config(plain, tmp_path), tmp_path / "c.yaml")) as proxy:
        async with streams(proxy.url) as clients:
            first = (await proxy.state())["workers"][0]
            os.kill(first["pid"], signal.SIGTERM)
            await proxy.until(lambda state: state["workers"][0]["not_ready"] == "draining")
            go_on.open()
            for client in clients:
                assert FIRST + await client.rest() == WHOLE
        await proxy.until(lambda state: state["workers"][0]["pid"] != first["pid"])
        assert await requests_total(proxy) == CONNECTIONS


async def test_killed_supervisor(plain: ScriptedBackend, tmp_path: Path) -> None:
    """Workers whose supervisor is gone finish their streams and leave; the port is free again."""
    go_on = Gate()
    held(plain, go_on)
    file = write(config(plain, tmp_path), tmp_path / "c.yaml")
    async with serving(file) as proxy, streams(proxy.url) as clients:
        proxy.process.kill()
        await refuses(proxy.url)
        go_on.open()
        for client in clients:
            assert FIRST + await client.rest() == WHOLE
            assert await client.ended()


@pytest.mark.parametrize("workers", [1, 2])
async def test_end_that_is_announced(plain: ScriptedBackend, tmp_path: Path, workers: int) -> None:
    """After SIGTERM /ready says 503 while requests are still taken; a second signal ends that."""
    plain.always(wire.llama_chat())
    made = config(plain, tmp_path, workers=workers, drain_delay_s=300)
    async with serving(write(made, tmp_path / "c.yaml")) as proxy:
        proxy.process.send_signal(signal.SIGTERM)
        await proxy.until(lambda state: state["not_ready"] == "draining")
        for _ in range(4):
            ready = await get(proxy.url, "/ready")
            assert (ready.status, ready.json["reason"]) == (503, "draining")
            assert (await ask(proxy.url, request_bytes(wire.chat()))).status == 200
        proxy.process.send_signal(signal.SIGTERM)
        code, _, err = await outcome(proxy.process)
    assert code == 0
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("number", "delay_s"), [(signal.SIGTERM, 0.1), (signal.SIGINT, 300)], ids=["term", "int"]
)
async def test_streams_are_finished(
    plain: ScriptedBackend, tmp_path: Path, number: signal.Signals, delay_s: float
) -> None:
    """When the delay is over, and at once after Ctrl-C, none is taken any more; streams go on."""
    go_on = Gate()
    held(plain, go_on)
    made = config(plain, tmp_path, drain_delay_s=delay_s, drain_s=60)
    async with serving(write(made, tmp_path / "c.yaml")) as proxy, streams(proxy.url) as clients:
        proxy.process.send_signal(number)
        await refuses(proxy.url)
        go_on.open()
        for client in clients:
            assert FIRST + await client.rest() == WHOLE
        code, out, err = await outcome(proxy.process)
    assert (code, out) == (0, "")
    assert "Traceback" not in err
    lines = (tmp_path / "decisions.jsonl").read_text()
    assert lines.count('"status":"ok"') == CONNECTIONS


async def test_streams_that_take_too_long(plain: ScriptedBackend, tmp_path: Path) -> None:
    """At the end of the grace every client is told, in each worker."""
    plain.always(lambda _: [send(wire.STREAM_HEAD + wire.chunk(FIRST)), until_gone()])
    made = config(plain, tmp_path, drain_s=0)
    async with serving(write(made, tmp_path / "c.yaml")) as proxy, streams(proxy.url) as clients:
        proxy.process.send_signal(signal.SIGTERM)
        for client in clients:
            body = await client.rest()
            assert b'"code":"draining"' in body
            assert body.endswith(wire.DONE)
        assert (await outcome(proxy.process))[0] == 0


async def test_option_overrides_the_file(plain: ScriptedBackend, tmp_path: Path) -> None:
    """`--workers` stands in for `listen.workers`, in reloads too."""
    file = write(config(plain, tmp_path, workers=1), tmp_path / "c.yaml")
    async with serving(file, "--workers", "3") as proxy:
        assert [worker["number"] for worker in (await proxy.state())["workers"]] == [0, 1, 2]
        proxy.process.send_signal(signal.SIGHUP)
        state = await proxy.until(lambda state: state["config"]["last_reload"] is not None)
        assert state["config"]["last_reload"]["result"] == "applied"


async def test_what_cannot_start(plain: ScriptedBackend, tmp_path: Path) -> None:
    """One sentence with the key and exit code 2, whoever finds out; nothing is left running."""
    good = config(plain, tmp_path)
    memory = good.model_copy(update={"store": good.store.model_copy(update={"url": "memory:"})})
    busy = good.model_copy(update={"listen": good.listen.model_copy(update={"port": plain.port})})
    [route] = good.routes
    policy = route.policy.model_copy(update={"parameters": {"arm": "nobody"}})
    wrong = good.model_copy(update={"routes": (route.model_copy(update={"policy": policy}),)})
    for made, words in (
        (memory, "store.url: `memory:` cannot be shared by 2 workers"),
        (busy, f"listen.port: cannot listen on 127.0.0.1:{plain.port}: "),
        (wrong, f"error: {tmp_path / 'c.yaml'}: routes[0].policy.parameters.arm: "),
    ):
        process = await command("serve", "-c", write(made, tmp_path / "c.yaml"))
        code, out, err = await outcome(process)
        assert (code, out) == (2, "")
        last = err.strip().rpartition("error: ")
        assert words in "".join(last)
        assert "Traceback" not in err
        assert not (tmp_path / "store" / "valkey.sock").exists()


async def test_workers_that_never_come_up(
    plain: ScriptedBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that ends at once is tried a few times, then the whole is given up and says so."""
    monkeypatch.setattr("router.processes.supervisor._FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    file = ConfigFile(write(config(plain, tmp_path), tmp_path / "c.yaml"))
    loaded = file.parse(file.read())
    with pytest.raises(StartError, match=r"^worker \d ends with code 1; see the log"):
        await supervise(file, loaded, lambda _: None, log_level="info")
