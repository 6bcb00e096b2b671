"""What a proxy tells, as advice is made of it."""

from __future__ import annotations

from policies.recommend import Acceptance, Bounds, Point
from policies.types import ArmId, ClassId
from router.recommend.read import measured
from tests.support.measured_state import cell, pool, route

CHAT, DRAFT = ClassId("chat"), ArmId("draft")


def test_a_route_is_read() -> None:
    """Pools with curves and acceptance, and the mix of tokens."""
    known = measured(
        route(
            [
                pool("plain", "none", None, baseline=True),
                pool("draft", "eagle3", 3, in_flight=(2, 6)),
            ],
            chat={"plain": cell(tokens=100), "draft": cell(2.0, tokens=300)},
        )
    )
    assert known.mix == {CHAT: 400.0}
    draft = known.pools[1]
    assert (draft.pool, draft.method, draft.k, draft.replicas, draft.load) == (
        "draft", "eagle3", 3, 2, 4.0,
    )  # fmt: skip
    assert draft.points[0] == Point(1.0, Bounds(0.01, 0.0099, 0.0101))
    assert draft.classes == {CHAT: Acceptance(200, Bounds(2.0, 1.95, 2.05), (0.6, 0.5, 0.4), 0.5)}
    assert known.plain is not None
    assert known.plain.baseline
    assert known.plain.classes == {}


def test_points_that_were_not_seen_are_left_out() -> None:
    """And those without an interval, or with one that says nothing."""
    made = pool("draft", "eagle3", 3)
    made["step_time"]["points"][0]["low_s"] = None
    made["step_time"]["points"][-1]["extrapolated"] = True
    made["step_time"]["points"][1]["high_s"] = 0.05
    loads = [point.load for point in measured(route([made])).pools[0].points]
    assert loads == [4.0, 8.0]


def test_what_was_not_measured_is_left_out() -> None:
    """No curve, no tokens per step, no interval: None is not 0."""
    made = pool("draft", "eagle3", 3) | {"step_time": None}
    cells = {"draft": cell(2.0) | {"tokens_per_step_interval": None}}
    known = measured(route([made], chat=cells, math={"draft": cell() | {"tokens": None}}))
    assert known.pools[0].points == ()
    assert known.pools[0].classes == {}
    assert known.plain is None


def test_servers_that_are_away_do_not_count() -> None:
    """Nor those that are being drained."""
    made = pool("draft", "eagle3", 3, in_flight=(2, 4, 9))
    made["replicas"][1]["up"] = False
    made["replicas"][2]["draining"] = True
    found = measured(route([made])).pools[0]
    assert (found.replicas, found.load) == (1, 2.0)


def test_the_least_room_of_a_pool_counts() -> None:
    """Where servers told how many requests they run."""
    made = pool("draft", "eagle3", 3, in_flight=(2, 4))
    made["replicas"][0]["detected"] = {"most_running": 256}
    made["replicas"][1]["detected"] = {"most_running": 128}
    assert measured(route([made])).most_running == {DRAFT: 128}


def test_positions_that_no_draft_reached_are_unknown() -> None:
    """Those before them stand."""
    cells = {"draft": cell(2.0) | {"acceptance_rate_by_position": [0.1, None, None]}}
    known = measured(route([pool("draft", "eagle3", 3)], chat=cells))
    assert known.pools[0].classes[CHAT].rates == (0.1,)
