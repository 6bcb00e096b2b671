"""Beliefs of policies as the pages get them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.beliefs import Told
from policies.estimators.increments import increments
from policies.registry import build_any_policy
from policies.types import ArmView, Proposal, Status, Trial
from router.dashboard.policy import AskedPolicy, beliefs_json
from router.estimates.layout import BLOCK_S, Cells, merge_cells
from router.estimates.reader import Past
from router.estimates.snapshot import Snapshot, SnapshotBuilder
from router.selection.plans import Plan
from router.types import POOLED
from tests.support.builders import ARMS, CHAT, FAST, PLAIN


def snapshot() -> Snapshot:
    """`fast` takes half the time."""
    cells: Cells = {}
    for number in range(60):
        for arm_id, usual_s in ((PLAIN, 0.02), (FAST, 0.01)):
            tpot_s = usual_s * (1.0 + 0.01 * (number % 7))
            trial = Trial(
                CHAT,
                arm_id,
                Status.OK,
                streamed=True,
                propensity=0.5,
                ttft_s=0.1,
                tpot_s=tpot_s,
                e2e_s=0.1 + 100 * tpot_s,
                tokens=101,
            )
            merge_cells(cells, {(arm_id, CHAT, POOLED): increments(trial, 300)})
    builder = SnapshotBuilder(ARMS, half_life_s=900, tail_limit=1.1)
    return builder.build(Past({5: cells}, 5, frozenset()), 6.0 * BLOCK_S)


class Broken:
    """A policy of somebody's own that fails when it is asked what it believes."""

    name = "broken"

    def propose(self, view: ArmView, rng: np.random.Generator) -> Proposal:
        """Nothing much."""
        del view, rng
        return Proposal(np.array([1.0, 0.0]), np.zeros(2))

    def told(self, view: ArmView) -> Told:
        """Fails."""
        raise LookupError(view.class_id)


async def told(policy: Any) -> dict[str, Any]:
    """What the pages get of the one class."""
    plan = Plan("p", 1, ARMS, {})
    made = await beliefs_json([AskedPolicy("m", policy, plan, snapshot())], 7.0)
    assert (made["time"], made["routes"][0]["model"]) == (7.0, "m")
    [entry] = made["routes"][0]["classes"]
    found: dict[str, Any] = entry
    return found


async def test_ratios_go_with_their_pools() -> None:
    """Half the time, with an interval and a hill; the baseline is certain of itself."""
    entry = await told(build_any_policy("thompson", {}, ARMS, [CHAT]))
    plain, fast = entry["pools"]
    assert (plain["pool"], plain["time_ratio"]["value"], plain["density"]) == (PLAIN, 1.0, None)
    assert fast["time_ratio"]["value"] == pytest.approx(0.53, abs=0.05)
    assert fast["time_ratio"]["low"] < fast["time_ratio"]["value"] < fast["time_ratio"]["high"]
    assert len(fast["density"]) == len(entry["grid"])
    assert entry["exploring"] is None


@pytest.mark.parametrize("policy", [Broken(), build_any_policy("fixed", {}, ARMS, [CHAT])])
async def test_a_policy_that_tells_nothing_has_no_beliefs(policy: Any) -> None:
    """Whether it has none or fails at telling them."""
    assert await told(policy) == {"class": CHAT, "grid": None, "pools": [], "exploring": None}
