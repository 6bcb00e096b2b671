"""What servers are, asked when it matters, and compared with what is declared of them."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from router.engines.identity import Engine, EngineIdentity
from router.fleet.fetch import GoneError, LateError, Page
from router.fleet.identify import USER_AGENT, Identifier, ask, differences, mismatches
from router.fleet.state import FleetState
from tests.support.apart import a_moment, over
from tests.support.builders import PLAIN, pool, route_facts
from tests.support.clock import ManualClock
from tests.support.fake_fetch import FakeFetch

URL = "http://plain.test:8000"
FIRST = [f"{URL}/v1/models", f"{URL}/version"]


def models(owner: str) -> Page:
    """A list of one model."""
    return Page(200, orjson.dumps({"data": [{"id": "m", "owned_by": owner}]}))


VLLM = {
    "/v1/models": models("vllm"),
    "/version": Page(200, b'{"version":"0.32.0"}'),
    "/metrics": Page(200, b"vllm:num_requests_running 0\n"),
}


class World:
    """The servers of one pool."""

    def __init__(self, *, replicas: int = 1, **pool_keys: Any) -> None:
        facts = route_facts(pool("plain", replicas=replicas, **{"engine": "vllm", **pool_keys}))
        self.clock = ManualClock()
        self.fleet = FleetState(facts, self.clock)
        self.fetch = FakeFetch()
        self.identifier = Identifier(facts, self.fleet, self.clock, self.fetch, uniform=lambda: 0.5)
        self.replicas = self.fleet.replicas(PLAIN)
        self.serve(VLLM)

    def serve(self, pages: dict[str, Page], number: int = 0) -> None:
        """Has a server answer by these pages."""
        for path, page in pages.items():
            self.fetch.pages[self.replicas[number].url + path] = page

    def labels(self) -> list[str]:
        """What is known, server by server."""
        known = self.identifier.identities
        return [known[item].label if item in known else "?" for item in self.replicas]

    async def run(self, seconds: int) -> int:
        """Lets time pass; returns how many pages were asked for meanwhile."""
        before = len(self.fetch.asked)
        for _ in range(seconds):
            await self.identifier.due()
            await over(self.identifier.apart)
            self.clock.advance(1.0)
        return len(self.fetch.asked) - before


async def test_a_server_is_asked_once_and_seldom_again() -> None:
    """By a name that its log shows, and with our key."""
    world = World(api_key="sk-1")
    assert await world.run(600) == 3
    assert (world.labels(), world.fetch.asked) == (["vllm 0.32.0"], [*FIRST, f"{URL}/metrics"])
    assert world.fetch.headers[0] == {"User-Agent": USER_AGENT, "Authorization": "Bearer sk-1"}
    assert await world.run(1) == 3


async def test_one_that_came_back_is_asked_again() -> None:
    """It may have been started anew, as another version."""
    world = World()
    await world.run(5)
    world.fleet.mark(world.replicas[0], up=False, now=world.clock.monotonic())
    assert await world.run(5) == 0
    assert world.labels() == ["vllm 0.32.0"]
    world.serve({"/version": Page(200, b'{"version":"0.33.0"}')})
    world.fleet.mark(world.replicas[0], up=True, now=world.clock.monotonic())
    assert await world.run(1) == 3
    assert world.labels() == ["vllm 0.33.0"]


@pytest.mark.parametrize("error", [GoneError(), LateError()])
async def test_one_that_does_not_answer_is_asked_again_soon(error: Exception) -> None:
    """And nothing is said of it meanwhile."""
    world = World()
    pages = dict(world.fetch.pages)
    world.fetch.pages = dict.fromkeys(pages, error)
    assert await world.run(30) == 2
    assert (world.labels(), world.fetch.asked) == (["?"], FIRST)
    world.fetch.pages = pages
    await world.run(1)
    assert world.labels() == ["vllm 0.32.0"]


async def test_a_server_that_tells_nothing_is_unknown() -> None:
    """Which is no mistake of anybody's."""
    world = World()
    world.fetch.pages = {}
    await world.run(1)
    assert world.labels() == ["unknown"]


async def test_servers_that_have_gone_are_forgotten() -> None:
    """Another server may get their place."""
    world = World(replicas=2)
    await world.run(1)
    assert len(world.identifier.identities) == 2
    world.fleet.replace(PLAIN, [(URL, 1.0)], world.clock.monotonic())
    await world.run(610)
    assert list(world.identifier.identities) == [world.replicas[0]]


async def test_a_wrong_declaration_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """And again when it has become another one."""
    world = World(engine="llamacpp")
    await world.run(1300)
    assert [record.__dict__["why"] for record in caplog.records] == [
        "engine llamacpp is declared, but it is vllm 0.32.0"
    ]
    caplog.clear()
    world.serve({"/metrics": Page(200, b"vllm:spec_decode_num_drafts_total 3\n")})
    await world.run(600)
    assert [record.__dict__["why"] for record in caplog.records] == [
        "engine llamacpp is declared, but it is vllm 0.32.0",
        "method none is declared, but it speculates (speculation)",
    ]


async def test_servers_of_a_pool_that_differ_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Their times would be mixed."""
    world = World(replicas=2)
    world.serve(VLLM | {"/version": Page(200, b'{"version":"0.33.0"}')}, 1)
    await world.run(1300)
    assert [record.__dict__["why"] for record in caplog.records] == [
        "servers run different engines or versions (plain/0: vllm 0.32.0; plain/1: vllm 0.33.0)"
    ]


def test_what_is_not_known_does_not_differ() -> None:
    """A server without a version is no other version."""
    one, other = World(replicas=2).replicas
    versioned = EngineIdentity(Engine.VLLM, "0.32.0")
    for known in (EngineIdentity(), EngineIdentity(Engine.VLLM)):
        assert differences({one: versioned, other: known}) == ()
    assert len(differences({one: versioned, other: EngineIdentity(Engine.SGLANG)})) == 1


def wrong(identity: EngineIdentity, **pool_keys: Any) -> list[str]:
    """What of a declaration does not hold."""
    facts = route_facts(pool("plain", **{"engine": "vllm", **pool_keys})).pools[PLAIN]
    return [mismatch.what for mismatch in mismatches(facts, identity)]


def told(**more: Any) -> EngineIdentity:
    """What a server of vLLM may have told."""
    return EngineIdentity(Engine.VLLM, **more)


NGRAM = {"speculates": True, "method": "NGRAM", "methods": frozenset(("ngram",))}


def test_declarations_are_compared_with_what_is_told() -> None:
    """Engine, whether it speculates, method, draft length."""
    assert wrong(EngineIdentity(Engine.SGLANG)) == ["engine"]
    assert wrong(EngineIdentity(Engine.SGLANG), engine="generic") == []
    assert wrong(told(**NGRAM)) == ["speculation"]
    assert wrong(told(speculates=False), method="ngram") == ["speculation"]
    assert wrong(told(**NGRAM), method="ngram") == []
    assert wrong(told(**NGRAM), method="eagle3") == ["method"]
    assert wrong(told(**NGRAM), method="my_own") == []
    assert wrong(told(speculates=True), method="eagle3") == []
    five = told(**NGRAM, num_speculative_tokens=5)
    assert wrong(five, method="ngram", num_speculative_tokens=5) == []
    assert wrong(five, method="ngram", num_speculative_tokens=3) == ["draft_length"]
    assert wrong(five, method="ngram") == []
    assert wrong(EngineIdentity(), method="ngram", num_speculative_tokens=3) == []


async def test_a_key_of_the_servers_own_goes_before_any_other() -> None:
    """What clients send is for servers without one."""
    fetch = FakeFetch()
    for key, expected in (("sk-1", "Bearer sk-1"), (None, "Bearer other")):
        replica = route_facts(pool("plain", api_key=key)).pools[PLAIN].replicas[0]
        await ask(fetch, replica, api_key="other")
        assert fetch.headers[-1]["Authorization"] == expected


async def test_a_server_that_hangs_delays_no_other() -> None:
    """What another one is is known at once; that the pool's differ is said once all have told."""
    world = World(replicas=2)
    world.serve(VLLM, 1)
    slow = world.fetch.held[world.replicas[0].url] = asyncio.Event()
    for _ in range(5):
        await world.identifier.due()
        await a_moment()
        world.clock.advance(1.0)
    assert world.labels() == ["?", "vllm 0.32.0"]
    slow.set()
    await over(world.identifier.apart)
    assert world.labels() == ["vllm 0.32.0"] * 2
