"""From configuration to routes."""

from __future__ import annotations

from policies.types import Arm, ArmId
from router.fleet.model import build_routes
from tests.support.builders import FAST, PLAIN, config, pool, route_facts


def test_a_route_holds_its_arms_in_the_order_of_the_file() -> None:
    """The baseline is the one that the route names."""
    facts = route_facts(
        pool("fast", method="mtp", num_speculative_tokens=4), pool("plain"), baseline="plain"
    )
    assert facts.arms == (Arm(FAST, "mtp", 4), Arm(PLAIN, "none", baseline=True))
    assert (facts.model, facts.baseline, facts.allow_lossy) == ("m", PLAIN, False)


def test_servers_get_names_limits_and_the_key_of_their_pool() -> None:
    """Names count from 0 within the pool."""
    facts = route_facts(
        pool(
            "plain",
            replicas=2,
            api_key="sk-1",
            timeouts={"connect_s": 2, "idle_s": 30},
            engine="vllm",
            lossless=False,
        )
    )
    made = facts.pools[PLAIN]
    assert [(r.replica_id, r.url) for r in made.replicas] == [
        ("plain/0", "http://plain.test:8000"),
        ("plain/1", "http://plain.test:8001"),
    ]
    first = made.replicas[0]
    assert (first.connect_s, first.idle_s, first.api_key) == (2, 30, "sk-1")
    assert (made.adapter.name, made.lossless, made.speculative) == ("vllm", False, False)


def test_a_pool_without_a_key_has_none() -> None:
    """None, not the empty string."""
    assert route_facts(pool("plain")).pools[PLAIN].replicas[0].api_key is None


def test_a_key_is_never_shown() -> None:
    """Not in the representation of anything that holds it."""
    made = config(pool("plain", api_key="sk-secret"))
    routes = build_routes(made)
    assert "sk-secret" not in repr(made)
    assert "sk-secret" not in repr(routes)


def test_any_method_but_none_speculates() -> None:
    """Names of one's own included."""
    facts = route_facts(pool("plain"), pool("own", method="lookahead9"))
    assert facts.pools[ArmId("own")].speculative
    assert not facts.pools[PLAIN].speculative
