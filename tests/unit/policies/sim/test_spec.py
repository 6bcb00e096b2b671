"""Worlds are built from plain values, and what does not fit together is refused by name."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from policies.sim.spec import ANY_CLASS, Cell, StepCost, WorldSpec, fingerprint
from policies.types import ClassId

CHAT, MATH = ClassId("chat"), ClassId("math")
GIVEN: dict[str, Any] = {
    "name": "small",
    "about": "A small world.",
    "box": {
        "cost": {"base_s": 0.006, "per_token_s": 2e-5, "prefill_per_token_s": 2e-5},
        "server": {"slots": 8},
        "arms": {
            "plain": {"method": "none"},
            "eagle": {
                "method": "eagle3",
                "k": 2,
                "draft": {"draft_s": 0.002},
                "drafting": {"alphas": [0.7, 0.6], "tau_sd": 0.2},
                "classes": {"chat": {"tau": 2.1}, "*": {"tau": 1.9}},
            },
        },
    },
    "pools": [{"arm": "plain"}, {"name": "fast", "arm": "eagle", "replicas": 3}],
    "traffic": {
        "rate": 2,
        "requests": 100,
        "classes": {"chat": {"weight": 1, "prompt": [100, 0.5], "output": [200, 0.5]}},
    },
    "events": [
        {"at_request": 5, "kind": "drift", "pool": "fast", "class_id": "chat", "factor": 0.5},
        {"at_request": 9, "kind": "fail", "pool": "fast", "replica": 1},
    ],
}


def world(**changes: object) -> WorldSpec:
    return WorldSpec.from_mapping(copy.deepcopy(GIVEN) | changes)


def test_a_world_is_what_its_file_says() -> None:
    """Arms take the cost of the box and add their own; a class takes what its arm says for all."""
    spec = world()
    assert spec.plain.name == "plain"
    fast = spec.pools[1]
    assert (fast.name, fast.method, fast.k, fast.replicas) == ("fast", "eagle3", 2, 3)
    assert fast.spec.cost.draft_s == 0.002
    assert fast.spec.slots == 8
    assert fast.spec.cell(CHAT) == Cell(2.1, (0.7, 0.6), 0.2)
    assert fast.spec.cell(MATH) == Cell(1.9, (0.7, 0.6), 0.2)
    assert spec.plain.spec.cell(CHAT) is None
    assert spec.replicas == 4


def test_the_digest_tells_worlds_apart_and_nothing_else() -> None:
    """Order of keys does not matter, a value does."""
    turned = dict(reversed(list(GIVEN.items())))
    assert WorldSpec.from_mapping(turned).digest == world().digest
    assert world(about="Another.").digest != world().digest
    assert fingerprint({"a": 1.0}) != fingerprint({"a": 2.0})


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("pools", [{"arm": "eagle"}], "exactly one pool with k 0"),
        ("pools", [{"arm": "plain"}, {"arm": "plain"}], "pools of one name"),
        ("pools", [{"arm": "mtp"}], "the box has no arm 'mtp'"),
        ("pools", [{"arm": "plain", "replicas": -1}], "number of servers"),
        ("pools", {}, "pools must be a list"),
        ("events", [{"at_request": 1, "kind": "drift", "pool": "x"}], "unknown pool 'x'"),
        ("events", [{"at_request": 1, "kind": "flood"}], "kind must be one of drift, fail, mix"),
        ("traffic", {"rate": 1}, "traffic needs requests"),
        ("weather", 1, "world knows no weather"),
        ("box", {"arms": {}}, "box.cost must be a mapping"),
        ("priors", {"mtp": {"chat": float("inf")}}, "holds a value that is no number"),
    ],
)
def test_what_does_not_fit_is_named(path: str, value: object, message: str) -> None:
    """The message says what to change."""
    with pytest.raises(ValueError, match=message):
        world(**{path: value})


def test_a_tau_beyond_what_is_drafted_is_refused() -> None:
    """Two drafted tokens cannot make three and more a step."""
    given = copy.deepcopy(GIVEN)
    given["box"]["arms"]["eagle"]["classes"]["chat"]["tau"] = 3.0
    with pytest.raises(ValueError, match=r"eagle\.classes\.chat: tau and alphas do not fit k"):
        WorldSpec.from_mapping(given)


def test_merged_servers_keep_their_number_and_their_failures() -> None:
    """All servers become one pool; a failure hits the server it hit before."""
    merged = world().merged("plain")
    assert [pool.replicas for pool in merged.pools] == [4, 0]
    assert [(e.kind, e.pool, e.replica) for e in merged.events] == [("fail", "plain", 2)]
    drifting = world().merged("fast")
    assert [event.kind for event in drifting.events] == ["drift", "fail"]


def test_drift_scales_what_is_accepted() -> None:
    """A factor is of accepted tokens, for one class or all, and never beyond what is drafted."""
    spec = world().pools[1].spec
    halved = spec.scaled(CHAT, 0.5)
    assert halved.cells[CHAT].tau == pytest.approx(1.55)
    assert halved.cells[ANY_CLASS] == spec.cells[ANY_CLASS]
    assert spec.scaled(MATH, 0.5).cells[MATH].tau == pytest.approx(1.45)
    everything = spec.scaled(ANY_CLASS, 9.0)
    assert {cell.tau for cell in everything.cells.values()} == {1.0 + 0.98 * 2}


def test_a_step_bends_at_its_knee_and_nowhere_else() -> None:
    """Below the knee one slope, above it the other, without a jump."""
    cost = StepCost(0.01, 1e-4, 1e-4, knee_tokens=50, beyond_s=3e-4, draft_ratio=0.1)
    times = cost.seconds(np.array([49.0, 50.0, 51.0]), 0.0, 0.0)
    assert np.diff(times) == pytest.approx([1.1e-4, 3.3e-4])
