"""What a request is known to have met at its server."""

from __future__ import annotations

from pathlib import Path

from router.lifecycle import in_background
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.clock import ManualClock
from tests.support.flow_backend import Gate, ScriptedBackend, opens, send, wait
from tests.support.flow_client import ask, request_bytes
from tests.support.flow_world import config_of, decisions, pool

TEXT = wire.event({"choices": [{"index": 0, "delta": {"content": "word"}}]})
TOLD = {"prompt_tokens": 40, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 32}}


async def test_the_decision_log_tells_load_and_cached_tokens(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Alone it is 1; a queue nobody told of, and a cache, are unknown and not 0."""
    untold = wire.event({"choices": [], "usage": {**TOLD, "prompt_tokens_details": None}})
    for usage in (wire.event({"choices": [], "usage": TOLD}), untold):
        plain.then(send(wire.stream([TEXT, usage, wire.DONE])))
    app = await start(config_of(pool("plain", plain, engine="vllm"), folder=tmp_path))
    for _ in range(2):
        await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    lines = await decisions(app)
    assert [(line["load"], line["waiting"], line["cached_tokens"]) for line in lines] == [
        (1, None, 32),
        (1, None, None),
    ]


async def test_the_decision_log_tells_how_long_the_first_in_line_has_waited(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """Until its answer begins; whoever comes then meets nobody."""
    asked, goes_on = Gate(), Gate()
    answer = wire.stream([TEXT, wire.event({"choices": [], "usage": TOLD}), wire.DONE])
    plain.then(opens(asked), wait(goes_on), send(answer))
    plain.always(answer)
    clock = ManualClock()
    pools = (pool("plain", plain, engine="vllm"),)
    app = await start(config_of(*pools, folder=tmp_path, policy={"name": "net_gain"}), clock)
    stream = request_bytes(wire.chat(stream=True))
    first = in_background(ask(app.data_url, stream))
    await asked.wait()
    clock.advance(2.5)
    await ask(app.data_url, stream)
    goes_on.open()
    await first
    await ask(app.data_url, stream)
    told = [line["moment"]["waited_s"] for line in await decisions(app)]
    assert sorted(told) == [[0.0], [0.0], [2.5]]
