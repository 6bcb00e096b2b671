"""Two applications of one class, for which the other pool is best: each gets its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from router.app import Application
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.clock import ManualClock
from tests.support.flow_backend import Received, Script, ScriptedBackend, Step, does, send
from tests.support.flow_client import ask, request_bytes
from tests.support.flow_world import config_of, pool

SYSTEMS = {"copying": "You are a careful proofreader of letters.", "free": "You are a merry bard."}


def application(name: str) -> bytes:
    """A request that differs from the other application's by its system prompt alone."""
    messages = [
        {"role": "system", "content": SYSTEMS[name]},
        {"role": "user", "content": "Hello, how are you today?"},
    ]
    return request_bytes(wire.chat(messages=messages))


def timed(clock: ManualClock, seconds: dict[str, float]) -> Script:
    """Answers that take their time by application."""

    def script(received: Received) -> Sequence[Step]:
        [name] = [name for name, text in SYSTEMS.items() if text.encode() in received.body]
        return [does(lambda: clock.advance(seconds[name])), send(wire.llama_chat())]

    return script


async def traffic(app: Application, rounds: int) -> None:
    """Requests of both, one after the other."""
    for _ in range(rounds):
        for name in SYSTEMS:
            await ask(app.data_url, application(name))


async def test_each_application_gets_its_own_pool(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """The class's totals hold both; the segments are told apart, with plans and an event each."""
    clock = ManualClock()
    plain.always(timed(clock, {"copying": 0.6, "free": 0.2}))
    fast.always(timed(clock, {"copying": 0.2, "free": 0.6}))
    pools = (pool("plain", plain), pool("fast", fast, method="draft_model"))
    config = config_of(*pools, folder=tmp_path, policy={"name": "thompson"})
    app = await start(config, clock)
    await app.refresh()
    for _ in range(8):
        await traffic(app, 15)
        await app.flush()
        await app.refresh()

    [route] = app.state()["routes"]
    [known] = [entry for entry in route["classes"] if entry["requests"]]
    assert known["requests"] == 240
    segments = known["segments"]
    assert len(segments) == 2
    chances = sorted(cell["probability"] for part in segments for cell in part["cells"])
    assert max(chances[:2]) <= 0.1
    assert min(chances[2:]) >= 0.9
    best = {max(part["cells"], key=lambda cell: cell["probability"])["pool"] for part in segments}
    assert best == {"plain", "fast"}
    assert {event["segment"] for event in route["events"]} == {part["segment"] for part in segments}
    assert not any(text in str(route) for text in SYSTEMS.values())
