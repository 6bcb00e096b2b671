"""What hurts: that it does, since when, why, and what would be better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from policies.estimators.series import BlockSum
from policies.types import ArmId, ClassId, Status
from router.estimates.concerns import Concern, Harm, concerns
from router.estimates.layout import BLOCK_S, Cells
from router.estimates.snapshot import Snapshot, SnapshotBuilder
from tests.support.builders import ARMS, CHAT, FAST, PLAIN
from tests.unit.estimates.test_snapshot import NOW_BLOCK, WALL, build, builder, past, sums, trial

MATH = ClassId("math")
OTHER = ArmId("other")
THREE = (*ARMS, replace(ARMS[1], arm_id=OTHER))


def block(**tpot_s: float) -> Cells:
    """Twenty answers of each arm, as fast as is said."""
    answers = [
        trial(ArmId(arm), tpot_s=seconds * (1.0 + 0.02 * (i % 5)))
        for arm, seconds in tpot_s.items()
        for i in range(20)
    ]
    return sums(*answers)


def of(snapshot: Snapshot) -> Concern:
    """The only one."""
    [found] = concerns(snapshot)
    return found


def test_all_is_well_where_pools_gain() -> None:
    """And where nothing is known."""
    assert concerns(build({ago: block(plain=0.02, fast=0.01) for ago in range(6)})) == ()
    assert concerns(build({})) == ()


def test_a_pool_that_never_was_any_good_is_a_concern() -> None:
    """No change is needed for that; it says since when it was measured, and what is better."""
    blocks = {ago: block(plain=0.02, fast=0.05) for ago in range(6)}
    found = of(build(blocks))
    assert (found.arm.arm_id, found.class_id, found.harm) == (FAST, CHAT, Harm.LOSS)
    assert found.gain is not None
    assert found.gain.high < 0.0
    assert (found.since, found.measured_since) == (None, (NOW_BLOCK - 5) * BLOCK_S)
    assert (found.instead, found.instead_gain, found.changes) == (PLAIN, None, ())


def test_the_pool_that_gains_most_is_better() -> None:
    """Not only the baseline."""
    blocks = {ago: block(plain=0.02, fast=0.05, other=0.01) for ago in range(6)}
    found = of(builder(THREE).build(past(blocks), WALL))
    assert found.instead == OTHER
    assert found.instead_gain is not None
    assert found.instead_gain.low > 0.0


@dataclass(frozen=True)
class Found:
    """What a detector tells."""

    block: int
    before: float
    after: float


def changed(after_s: float) -> Snapshot:
    """A pool that saved half of the time until three blocks ago."""

    def detect(series: Sequence[BlockSum]) -> Found | None:
        means = [one.total / one.n for one in series]
        return Found(NOW_BLOCK - 3, means[0], means[-1]) if means[0] < means[-1] - 0.2 else None

    watched = SnapshotBuilder(ARMS, half_life_s=900.0, tail_limit=1.1, detect=detect)
    blocks = {ago: block(plain=0.02, fast=after_s if ago <= 3 else 0.01) for ago in range(10)}
    complete = frozenset(NOW_BLOCK - ago for ago in range(1, 10))
    return watched.build(past(blocks, complete=complete), WALL)


@pytest.mark.parametrize(("after_s", "harm"), [(0.05, Harm.LOSS), (0.02, Harm.GAIN_LOST)])
def test_a_pool_that_changed_is_a_concern_since_then(after_s: float, harm: Harm) -> None:
    """Whether it loses now or only gains no more."""
    found = of(changed(after_s))
    assert found.harm is harm
    assert found.since == found.measured_since == (NOW_BLOCK - 3) * BLOCK_S
    [change] = found.changes
    assert (change.figure, change.before < 0.0) == ("cost", True)
    assert change.after > change.before


def test_a_pool_that_still_gains_after_a_change_is_none() -> None:
    """It gains less, and that is told by an event."""
    made = changed(0.0135)
    assert len(made.events) == 1
    assert concerns(made) == ()


def test_a_pool_whose_requests_fail_is_a_concern() -> None:
    """Its few answers are twice as fast, and no tail is worse."""
    well = [trial(FAST, tpot_s=0.01), *[trial(FAST, Status.FAILED)] * 9]
    blocks = {ago: sums(*well * 5, *[trial(PLAIN)] * 50) for ago in range(5)}
    assert of(build(blocks)).harm is Harm.FAILURES
