"""What a running proxy writes and tells is enough for `replay` and `recommend`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from policies.registry import build_any_policy
from policies.types import Arm, ArmId
from router.cli.admin import fetch_state
from router.recommend.render import recommend, text
from router.replay.lines import read_log
from router.replay.replay import Settings, probabilities, replay
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import ScriptedBackend
from tests.support.flow_client import ask, request_bytes
from tests.support.flow_world import config_of, decisions, pool

NET_GAIN = {"name": "net_gain"}


async def test_the_log_of_a_proxy_can_be_replayed(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Every line is read, with arms and moments; a few requests are too few for an estimate."""
    for backend in (plain, fast):
        backend.always(wire.llama_chat())
    pools = (pool("plain", plain), pool("fast", fast, method="mtp", num_speculative_tokens=3))
    app = await start(config_of(*pools, folder=tmp_path, policy=NET_GAIN))
    for _ in range(6):
        await ask(app.data_url, request_bytes(wire.chat()))
    lines = await decisions(app)
    log = await asyncio.to_thread(read_log, [tmp_path / "decisions.jsonl"])
    assert (len(log.entries), log.unreadable) == (len(lines), 0)
    assert log.arms == (Arm(ArmId("plain"), "none", baseline=True), Arm(ArmId("fast"), "mtp", 3))
    assert all(entry.moment is not None for entry in log.entries)
    found = replay(log, build_any_policy("fixed", {"arm": "fast"}, log.arms), Settings())
    assert found.shares == {"plain": 0.0, "fast": 1.0}
    assert "50 are the least" in found.overall.refused[0]
    again = probabilities(log, build_any_policy("net_gain", {}, log.arms), Settings())
    assert again.sum(axis=1).round(9).tolist() == [1.0] * len(lines)


async def test_a_proxy_that_has_measured_little_is_told_so(
    start: Start, plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path
) -> None:
    """Nothing is recommended of it."""
    for backend in (plain, fast):
        backend.always(wire.llama_chat())
    pools = (pool("plain", plain), pool("fast", fast, method="mtp", num_speculative_tokens=3))
    app = await start(config_of(*pools, folder=tmp_path))
    await ask(app.data_url, request_bytes(wire.chat()))
    await app.flush()
    await app.refresh()
    state = await asyncio.to_thread(fetch_state, app.admin_url)
    said = text(recommend(state))
    assert "## fast: mtp on llamacpp, drafts of 3" in said
    assert "not enough data" in said
    assert "flag:" not in said
