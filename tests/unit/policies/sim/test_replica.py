"""A server's clock goes on in steps, and its prefix cache is bounded."""

from __future__ import annotations

import numpy as np
import pytest

from policies.sim.machine import SimRequest
from policies.sim.replica import PrefixCache, Replica, Serving
from policies.sim.routing import Ask, Choice
from policies.sim.spec import EngineSpec, StepCost
from policies.sim.traffic import Arrival
from policies.types import ClassId

CHAT = ClassId("chat")
SPEC = EngineSpec("none", 0, StepCost(0.01, 0.0, 0.0), jitter_sd=0.0)


def serving(index: int, at_s: float, output: int = 3, turn: int = 0) -> Serving:
    request = SimRequest(f"r{index}", CHAT, 100, output, "app")
    arrival = Arrival(index, at_s, request, CHAT, 1, turn, 40)
    ask = Ask(index, at_s, CHAT, 100, "app", greedy=True, session=1, turn=turn, home=None)
    return Serving(arrival, ask, Choice(0), 0, 1, 0, at_s)


def test_what_arrives_in_a_step_waits_for_its_end() -> None:
    """Steps are 10 ms: who comes at 4 ms has a first token at 20 ms, not at 14."""
    replica = Replica(SPEC, np.random.default_rng(0))
    replica.submit(0.0, serving(1, 0.0))
    replica.submit(0.004, serving(2, 0.004))
    done = list(replica.run(1.0))
    assert [item.arrival.index for item, _ in done] == [1, 2]
    assert [at_s for _, at_s in done] == pytest.approx([0.03, 0.04])
    assert [item.first_s for item, _ in done] == pytest.approx([0.01, 0.02])
    assert replica.next_s == np.inf


def test_nothing_is_done_before_its_time() -> None:
    """A run until a moment ends no request that ends later."""
    replica = Replica(SPEC, np.random.default_rng(0))
    replica.submit(0.0, serving(1, 0.0))
    assert list(replica.run(0.029)) == []
    assert (replica.requests, replica.running, replica.waiting) == (1, 1, 0)
    assert len(list(replica.run(0.031))) == 1


def test_it_holds_what_it_served_until_it_fails() -> None:
    """A later turn finds the conversation, a first one the beginning of its application's prompts."""
    replica = Replica(SPEC, np.random.default_rng(0))
    assert replica.cached_tokens(serving(2, 0.0, turn=1).arrival) == 0
    replica.submit(0.0, serving(1, 0.0))
    list(replica.run(1.0))
    assert replica.cached_tokens(serving(2, 1.0).arrival) == 40
    assert replica.cached_tokens(serving(2, 1.0, turn=1).arrival) == 99
    replica.submit(1.0, serving(3, 1.0))
    assert [item.arrival.index for item in replica.fail(1.005, 5.0)] == [3]
    assert not replica.up(2.0)
    assert replica.up(6.1)
    assert replica.cached_tokens(serving(4, 6.2, turn=1).arrival) == 0
    assert list(replica.run(10.0)) == []


def test_the_prefix_cache_forgets_the_least_recently_used() -> None:
    """Tokens held never exceed the capacity, unless one entry alone does."""
    cache = PrefixCache(100)
    cache.put("a", 60)
    cache.put("b", 30)
    cache.put("a", 70)
    cache.put("c", 20)
    assert [cache.tokens(key) for key in "abc"] == [70, 0, 20]
    cache.clear()
    assert cache.tokens("a") == 0
