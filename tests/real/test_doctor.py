"""The doctor on real engines: what they are, how they draft, and from where acceptance is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from router.clock import SystemClock
from router.config.models import Config
from router.demo.fleet import Fleet
from router.demo.run import route_config
from router.doctor.findings import Level, Report
from router.doctor.run import Doctor, Options
from router.fleet.fetch import AiohttpFetch
from router.relay.wire.upstream import WireUpstream

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(400)]


async def examined(fleet: Fleet, folder: Path, **plain: Any) -> Report:
    """A report on the demo's pools; `plain` changes what is declared of the first."""
    route = route_config(fleet.model, fleet.pools, {"name": "fixed"})
    route["pools"][0] |= plain
    config = Config.model_validate(
        {"store": {"url": "embedded:", "directory": str(folder / "store")}, "routes": [route]}
    )
    fetch, upstream = AiohttpFetch(), WireUpstream()
    try:
        options = Options(page_s=60.0, answer_s=200.0)
        return await Doctor(config, options, SystemClock(), fetch, upstream).examine()
    finally:
        await upstream.close()
        await fetch.close()


async def test_real_engines_are_in_good_health(fleet: Fleet, tmp_path: Path) -> None:
    """Each method is told by its own server, and a greedy answer is the same from all."""
    report = await examined(fleet, tmp_path)
    servers = [server for pool in report.routes[0].pools for server in pool.replicas]
    assert [item for item in report.findings() if item.level is Level.PROBLEM] == []
    assert [server.identity.engine for server in servers] == ["llamacpp"] * 3
    assert [server.acceptance_source for server in servers] == ["request"] * 3
    methods = [server.identity.speculation for server in servers]
    assert methods == ["no speculation", "ngram-simple", "draft-simple"]
    assert [item.check for item in report.routes[0].findings] == ["greedy"]
    assert report.store[0].level is Level.OK


async def test_a_wrong_declaration_of_a_real_engine(fleet: Fleet, tmp_path: Path) -> None:
    """Both the engine and the method are found to be other ones."""
    report = await examined(fleet, tmp_path, engine="vllm", method="eagle3")
    checks = [
        item.text
        for item in report.routes[0].pools[0].replicas[0].findings
        if item.check == "declaration"
    ]
    assert [text.split(",")[0] for text in checks] == [
        "engine vllm is declared",
        "method eagle3 is declared",
    ]
