"""A pool of a world places as the proxy does."""

from __future__ import annotations

import pytest

from policies.sim.fleet import Fleet
from policies.sim.machine import SimRequest
from policies.sim.replica import Serving
from policies.sim.routing import Ask, Choice
from policies.sim.spec import (
    ClassTraffic,
    EngineSpec,
    PoolSpec,
    StepCost,
    TrafficSpec,
    WorldSpec,
)
from policies.sim.traffic import Arrival
from policies.types import ClassId

CHAT = ClassId("chat")
PLAIN = EngineSpec("none", 0, StepCost(0.01, 0.0, 0.0), jitter_sd=0.0)
TRAFFIC = TrafficSpec(1.0, 10, {CHAT: ClassTraffic(1, (100, 0.5), (100, 0.5))})
WORLD = WorldSpec("test", "", (PoolSpec("plain", "none", "vllm", 0, 3, PLAIN),), TRAFFIC)
HOME, AWAY, FAR = 1, 0, 2


def arrival(index: int, session: int, turn: int = 0, prompt: int = 600) -> Arrival:
    return Arrival(index, 0.0, SimRequest(f"r{index}", CHAT, prompt, 50), CHAT, session, turn, 0)


def occupy(fleet: Fleet, server: int, requests: int, of: int = 0) -> None:
    """Let a server work on so many; the first ends a turn of a conversation."""
    for number in range(requests):
        came = arrival(1000 * server + number + of, session=of or 100 * server + number + 1)
        ask = Ask(came.index, 0.0, CHAT, 600, "", greedy=True, session=0, turn=0, home=None)
        serving = Serving(came, ask, Choice(0), server, 1, 0, 0.0)
        fleet.pools[0][server].submit(fleet.now_s, serving)


@pytest.fixture
def fleet() -> Fleet:
    """Three servers; the one in the middle holds the conversation with the number 7."""
    made = Fleet(WORLD, 1)
    occupy(made, HOME, 1, of=7)
    made.now_s = 10.0
    assert len(list(made.pools[0][HOME].run(made.now_s))) == 1
    return made


@pytest.mark.parametrize(("at_home", "stays"), [(0, True), (3, True), (4, False)])
def test_a_conversation_stays_until_its_server_is_far_busier(
    fleet: Fleet, at_home: int, *, stays: bool
) -> None:
    """With a whole match up to 4 requests more than an idle one (`docs/balancing.md`)."""
    occupy(fleet, HOME, at_home)
    places = {fleet.pick(0, arrival(n, session=7, turn=1)) for n in range(20)}
    assert (HOME in places) is stays


def test_a_short_prompt_does_not_stay_where_others_wait(fleet: Fleet) -> None:
    """It is read sooner anew."""
    occupy(fleet, HOME, 3)
    assert fleet.pick(0, arrival(1, session=7, turn=1, prompt=60)) in {AWAY, FAR}


def test_new_conversations_are_spread_over_idle_servers(fleet: Fleet) -> None:
    """Evenly, and the same for everybody who asks."""
    places = [fleet.pick(0, arrival(n, session=50 + n)) for n in range(300)]
    assert [places.count(n) for n in (AWAY, HOME, FAR)] == pytest.approx([100, 100, 100], abs=10)
    assert places == [fleet.pick(0, arrival(n, session=50 + n)) for n in range(300)]


def test_nobody_is_picked_where_all_are_down(fleet: Fleet) -> None:
    """The pool says so."""
    for replica in fleet.pools[0]:
        replica.fail(fleet.now_s, 60.0)
    assert fleet.pick(0, arrival(1, session=1)) is None


def test_of_servers_nearly_as_good_the_better_ones_get_alike(fleet: Fleet) -> None:
    """Two are drawn, one independent of the other, as in the proxy."""
    for server, requests in ((AWAY, 20), (HOME, 20), (FAR, 21)):
        occupy(fleet, server, requests)
    places = [fleet.pick(0, arrival(n, session=50 + n)) for n in range(300)]
    assert [places.count(n) for n in (AWAY, HOME, FAR)] == pytest.approx([150, 150, 0], abs=10)
