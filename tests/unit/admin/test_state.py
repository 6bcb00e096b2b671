"""What an operator is shown."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson

from policies.estimators.increments import effect_fields, increments
from policies.types import ArmView, ClassId, Proposal, SpecUsage, Status, Trial
from router.admin.state import RouteState, StoreState, admission_json, route_json, store_json
from router.admission.admission import AdmissionState
from router.admission.queue import Limits, TenantLoad
from router.estimates.layout import BLOCK_S, Cells, merge_cells
from router.estimates.reader import Past
from router.estimates.snapshot import SnapshotBuilder
from router.fleet.state import FleetState
from router.selection.plans import make_plan, plan_steps
from router.types import ANONYMOUS, POOLED, SegmentId
from tests.support.builders import ARMS, CHAT, FAST, PLAIN, pool, route_facts

FACTS = route_facts(
    pool("plain", api_key="sk-secret"),
    pool("fast", method="draft_model", num_speculative_tokens=3, replicas=2),
)


class Half:
    """A policy that fails for one class."""

    name = "half"

    def propose(self, view: ArmView, rng: np.random.Generator) -> Proposal:
        """Equal shares."""
        if view.class_id == "math":
            raise ValueError
        return Proposal(np.array([0.5, 0.5]), np.zeros(2))


def state(*trials: Trial) -> RouteState:
    """A route after these requests."""
    cells: Cells = {}
    for item in trials:
        merge_cells(cells, {(item.arm_id, item.class_id, POOLED): increments(item, 100)})
    built = SnapshotBuilder(ARMS, half_life_s=900, tail_limit=1.1).build(
        Past({5: cells}, 5, frozenset()), 6.0 * BLOCK_S
    )
    fleet = FleetState(FACTS)
    fleet.mark(FACTS.pools[FAST].replicas[1], up=False, now=0.0)
    views = {c: ArmView.empty(c, ARMS) for c in (CHAT, ClassId("math"))}
    plan = make_plan(Half(), views, ARMS, version=1, rng=np.random.default_rng(0))
    fleet.lease(PLAIN, now=0.0)
    return RouteState(FACTS, fleet.view(), built, plan)


def shown(*trials: Trial) -> dict[str, Any]:
    """As it goes out."""
    made: dict[str, Any] = json.loads(orjson.dumps(route_json(state(*trials))))
    return made


def ok(**more: Any) -> Trial:
    """A streamed request that went well."""
    fields = {"ttft_s": 0.1, "tpot_s": 0.02, "e2e_s": 2.08, "tokens": 100, **more}
    return Trial(CHAT, FAST, Status.OK, True, 0.5, **fields)  # noqa: FBT003


def test_a_route_shows_its_pools_and_servers() -> None:
    """In the order of the file, with load and health, and without keys."""
    made = shown()
    assert (made["model"], made["baseline"], made["policy"]) == ("m", "plain", "half")
    assert (made["classes"], made["policy_failed_for"]) == ([], ["math"])
    plain, fast = made["pools"]
    assert plain == {
        "name": "plain",
        "method": "none",
        "num_speculative_tokens": None,
        "engine": "llamacpp",
        "lossless": True,
        "baseline": True,
        "discovery_error": None,
        "replicas": [
            {
                "id": "plain/0",
                "url": "http://plain.test:8000",
                "state": "up",
                "up": True,
                "in_flight": 1,
                "breaker": "closed",
                "open_s": None,
                "cooling_s": None,
                "suspect": False,
                "draining": False,
                "share": 1.0,
                "gauges": {"running": None, "waiting": None, "kv_usage": None},
            }
        ],
    }
    assert [(item["id"], item["up"], item["state"]) for item in fast["replicas"]] == [
        ("fast/0", True, "up"),
        ("fast/1", False, "down"),
    ]
    assert "sk-secret" not in json.dumps(made)


def test_a_class_shows_a_cell_for_every_pool() -> None:
    """With what was measured; what was not is null."""
    spec = SpecUsage(steps=40, drafted=150, accepted=60)
    [known] = shown(ok(spec=spec), ok(spec=spec), ok(spec=None))["classes"]
    plain, fast = known["cells"]
    assert (known["class"], known["requests"]) == ("chat", 3)
    assert (plain["pool"], plain["probability"], plain["share"], plain["ok"]) == (
        "plain",
        0.5,
        0,
        0,
    )
    assert (fast["pool"], fast["probability"], fast["share"], fast["ok"]) == ("fast", 0.5, 1, 3)
    names = ("tokens_per_step", "tokens_per_step_interval", "acceptance_source", "gain", "verdict")
    assert [plain[name] for name in names] == [None] * 5
    nothing = {"p50": None, "p95": None, "p99": None}
    assert plain["ttft_s"] == {"n": 0, **nothing, "intervals": nothing}
    assert set(plain["tail_ratios"].values()) == {None}
    assert (fast["tokens"], fast["tokens_per_step"], fast["acceptance_requests"]) == (300, 2.5, 2)
    assert fast["acceptance_sources"] == {"request": 2}
    assert (fast["acceptance_source"], fast["acceptance_tokens"]) == ("request", 200)
    assert fast["tpot_s"]["n"] == 3
    assert fast["verdict"] == "not enough data"


def test_the_store_shows_all_of_its_state() -> None:
    """As it is."""
    made = StoreState("embedded:", False, "gone", None, 3, 0)  # noqa: FBT003
    assert store_json(made) == {
        "url": "embedded:",
        "up": False,
        "error": "gone",
        "snapshot_age_s": None,
        "dropped_increments": 3,
        "refused_increments": 0,
    }


def test_places_and_their_limits_are_shown() -> None:
    """And who has most of them, by hash."""
    load = TenantLoad(ANONYMOUS, in_flight=2, waiting=1)
    made = admission_json(AdmissionState(3, 1, 2, Limits(4, 3, 2, 5.0), (load,)))
    assert json.loads(orjson.dumps(made)) == {
        "in_flight": 3,
        "waiting": 1,
        "tenants": 2,
        "limits": {
            "max_concurrent": 4,
            "max_concurrent_per_tenant": 3,
            "max_waiting": 2,
            "max_wait_s": 5.0,
        },
        "busiest": [{"tenant": "anonymous", "in_flight": 2, "waiting": 1}],
    }


def test_segments_bands_and_events_are_shown() -> None:
    """By hash; gains as measured, probabilities as planned."""
    cells: Cells = {}
    for part, tpot in (("", 0.03), ("a1", 0.01), ("a1+", 0.01)):
        for arm, seconds in ((PLAIN, 0.02), (FAST, tpot)):
            trial = Trial(CHAT, arm, Status.OK, True, 0.5, 0.1, seconds, 1.0, 100)  # noqa: FBT003
            added = {name: 40 * n for name, n in increments(trial, 100).items()}
            merge_cells(cells, {(arm, CHAT, POOLED): added})
            if part:
                merge_cells(cells, {(arm, CHAT, SegmentId(part)): effect_fields(added)})
    built = SnapshotBuilder(ARMS, half_life_s=900, tail_limit=1.1).build(
        Past({5: cells}, 5, frozenset()), 6.0 * BLOCK_S
    )
    *_, plan = plan_steps(Half(), built.views(), ARMS, version=1, rng=np.random.default_rng(0))
    assert plan is not None
    fleet = FleetState(FACTS)
    made = json.loads(orjson.dumps(route_json(RouteState(FACTS, fleet.view(), built, plan))))
    [known] = made["classes"]
    names = {(part["segment"], part["copying"]) for part in known["segments"]}
    assert known["split_by_copying"]
    assert names == {("", True), ("a1", False), ("a1", True)}
    for part in known["segments"]:
        assert [cell["pool"] for cell in part["cells"]] == ["plain", "fast"]
        assert [cell["probability"] for cell in part["cells"]] == [0.5, 0.5]
    assert set(known["bands"]) == {"copying", "free"}
    kinds = {event["kind"] for event in made["events"]}
    assert kinds == {"segment_differs", "class_splits"}
    for event in made["events"]:
        assert event["change"] is None
        ratio = event["time_ratio"]
        assert ratio["low"] < ratio["value"] < ratio["high"]
