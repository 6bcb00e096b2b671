"""What an operator is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest

from policies.estimators.increments import effect_fields, increments
from policies.types import ArmView, ClassId, Proposal, SpecUsage, Status, Trial
from router.admin.state import RouteState, StoreState, admission_json, route_json, store_json
from router.admission.admission import AdmissionState
from router.admission.queue import Limits, TenantLoad
from router.estimates.events import DRIFT, Change, Event
from router.estimates.layout import BLOCK_S, Cells, merge_cells
from router.estimates.reader import Past
from router.estimates.snapshot import SnapshotBuilder
from router.fleet.state import FleetState
from router.selection.plans import make_plan, plan_steps
from router.types import ANONYMOUS, POOLED, SegmentId
from tests.support.builders import ARMS, CHAT, FAST, PLAIN, pool, route_facts
from tests.support.clock import ManualClock

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
    clock = ManualClock()
    fleet = FleetState(FACTS, clock)
    fleet.mark(FACTS.pools[FAST].replicas[1], up=False, now=0.0)
    views = {c: ArmView.empty(c, ARMS) for c in (CHAT, ClassId("math"))}
    plan = make_plan(Half(), views, ARMS, version=1, rng=np.random.default_rng(0))
    fleet.lease(PLAIN, now=clock.monotonic())
    clock.advance(1.5)
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
        "step_time": None,
        "prefill": None,
        "mismatch": [],
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
                "line_s": 1.5,
                "gauges": {"running": None, "waiting": None, "kv_usage": None},
                "detected": None,
                "mismatch": [],
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
    assert (plain["tails_compared"], fast["tails_compared"]) == (None, True)
    assert (fast["tokens"], fast["tokens_per_step"], fast["acceptance_requests"]) == (300, 2.5, 2)
    assert fast["acceptance_sources"] == {"request": 2}
    assert (fast["acceptance_source"], fast["acceptance_tokens"]) == ("request", 200)
    assert fast["tpot_s"]["n"] == 3
    assert fast["verdict"] == "not enough data"


def test_the_share_that_was_abandoned_is_shown() -> None:
    """Null where nothing was answered; that it is more than the baseline's is said apart."""
    left = replace(ok(), status=Status.ABORTED, abandoned=True)
    [known] = shown(ok(), ok(), ok(), left)["classes"]
    cells = [(cell["abandoned_share"], cell["abandoned_more"]) for cell in known["cells"]]
    assert cells == [(None, None), (0.25, False)]


def test_tokens_that_nobody_counted_are_not_zero() -> None:
    """They are null, even where answers went well."""
    [known] = shown(ok(tokens=None))["classes"]
    assert [cell["tokens"] for cell in known["cells"]] == [None, None]


def test_acceptance_is_shown_in_all_its_forms() -> None:
    """Worked example: tau, alpha by position, alpha, the alpha that k equal ones would have."""
    spec = SpecUsage(43, 129, 10, (39, 1, 0, 3), num_speculative_tokens=3)
    [known] = shown(*[ok(spec=spec, tokens=53)] * 6)["classes"]
    fast = known["cells"][1]
    assert round(fast["tokens_per_step"], 2) == 1.23
    assert fast["tokens_per_step_interval"] == [fast["tokens_per_step"]] * 2
    assert fast["tokens_per_step_of_class"] is None
    assert set(fast["tokens_per_step_by_source"]) == {"request"}
    assert (fast["acceptance_rate"], fast["acceptance_form"]) == (0.2, "histogram")
    assert [round(rate, 3) for rate in fast["acceptance_rate_by_position"]] == [0.093, 0.75, 1.0]
    assert round(fast["equal_acceptance_rate"]["value"], 2) == 0.19
    assert round(fast["draft_acceptance_rate"], 3) == 0.078


def test_waits_and_whole_answers_are_shown() -> None:
    """Whole answers by their length; those that clients held are counted."""
    made = shown(
        ok(queue_s=0.0, overhead_s=0.0005),
        ok(held=True, ttft_s=None, tpot_s=None, e2e_s=None),
        replace(ok(), streamed=False),
        replace(ok(tokens=None), streamed=False),
    )
    fast = made["classes"][0]["cells"][1]
    assert (fast["ok"], fast["held"], fast["ttft_s"]["n"]) == (4, 1, 1)
    assert fast["queue_s"]["n"] == fast["overhead_s"]["n"] == 1
    assert fast["overhead_s"]["p50"] == pytest.approx(0.0005, rel=0.02)
    assert fast["e2e_whole_s"]["n"] == 2
    assert list(fast["e2e_whole_s"]["by_tokens"]) == ["64-127", "unknown"]


def test_structure_is_shown_where_it_was_demanded() -> None:
    """Null where nobody demanded any; 0 where all answers had it."""
    made = shown(ok(valid=True, truncated=False), ok(valid=False, truncated=False), ok())
    plain, fast = made["classes"][0]["cells"]
    names = ("checked", "invalid", "finished", "truncated")
    assert plain["structure"] == dict.fromkeys(names)
    assert fast["structure"] == {"checked": 2, "invalid": 1, "finished": 2, "truncated": 0}


def test_a_drift_is_shown_with_what_it_was_before() -> None:
    """Cost as a ratio to the baseline's time, tokens per step as they are."""
    made = state(ok())
    events = tuple(
        Event(9.0, DRIFT, CHAT, POOLED, FAST, change=Change(figure, 5.0, 0.0, 1.0))
        for figure in ("tau", "cost")
    )
    made = replace(made, snapshot=replace(made.snapshot, events=events))
    tau, cost = route_json(made)["events"]
    assert (tau["kind"], tau["time_ratio"], tau["level"]) == ("drift", None, None)
    assert tau["change"] == {"figure": "tau", "since": 5.0, "before": 0.0, "after": 1.0}
    assert cost["change"]["before"] == 1.0
    assert cost["change"]["after"] == pytest.approx(2.718, abs=0.001)


def test_the_store_shows_all_of_its_state() -> None:
    """As it is."""
    made = StoreState("embedded:", False, "gone", None, 3, 0, 1200, 7, None)  # noqa: FBT003
    assert store_json(made) == {
        "url": "embedded:",
        "up": False,
        "error": "gone",
        "snapshot_age_s": None,
        "dropped_increments": 3,
        "refused_increments": 0,
        "waiting_increments": 1200,
        "late_made_tokens": 7,
        "clock_skew_s": None,
        "says": "away: requests are served, and learned from in this process alone; gone; "
        "1,200 sums wait to be added; 3 increments found no room and are lost",
    }


def test_a_clock_that_differs_and_garbage_are_told_in_words() -> None:
    """While the store answers."""
    good = StoreState("embedded:", True, None, 1.0, 0, 0, 0, 0, 0.5)  # noqa: FBT003
    assert good.says == "answers"
    bad = replace(good, refused_increments=2, clock_skew_s=-130.0)
    assert bad.says == (
        "answers; its clock differs from this host's by -130.0 s, which is allowed for; "
        "2 increments were refused, because something else is kept where they belong"
    )


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


def test_bands_of_load_have_names() -> None:
    """As many as there are bands, in their order."""
    assert route_json(state())["load_bands"] == ["1", "2-4", "5-16", "17-48", "49+"]
