"""What a request leaves behind: nothing that the garbage collector would have to look for."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from router.relay.transfer import Transfer
from router.types import ParsedRequest, RequestContext
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import ScriptedBackend
from tests.support.flow_client import raw_client, request_bytes
from tests.support.flow_world import config_of, pool


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_served_request_leaves_no_cycle(
    start: Start, plain: ScriptedBackend, tmp_path: Path, *, streamed: bool
) -> None:
    """A request's body goes with the request, not with some later round of the collector."""
    plain.always(wire.stream(wire.llama_events()) if streamed else wire.llama_chat())
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    async with raw_client(app.data_url) as client:

        async def ask(times: int) -> None:
            for _ in range(times):
                await client.send(request_bytes(wire.chat(stream=streamed)))
                assert (await client.reply()).status == 200

        await ask(3)
        gc.collect()
        gc.disable()
        try:
            await ask(5)
            kinds = (ParsedRequest, RequestContext, Transfer)
            left = [type(found) for found in gc.get_objects() if isinstance(found, kinds)]
        finally:
            gc.enable()
    assert len(left) <= len(kinds)  # of the last one, whose connection has not seen its end yet
