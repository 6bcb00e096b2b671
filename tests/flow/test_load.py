"""What a request is known to have met at its server."""

from __future__ import annotations

from pathlib import Path

from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import ScriptedBackend, send
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
