"""What is shown of a class whose applications go to unlike pools."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from policies.estimators.verdict import Verdict
from router.estimates.concerns import concerns
from router.estimates.layout import BLOCK_S
from router.estimates.reader import Past
from router.estimates.snapshot import Snapshot, SnapshotBuilder
from router.estimates.summary import Comparison
from router.types import SegmentId
from tests.support.applications import APART, HEAVY, LIGHT, NOTHING, block
from tests.support.builders import ARMS, CHAT, FAST

FIRST, BLOCKS = 1_000_000, 30
TOGETHER = {HEAVY: 0.5, LIGHT: 0.5}


def build(
    shares: Mapping[SegmentId, float],
    gain: Mapping[SegmentId, float] = NOTHING,
    *,
    named: bool = True,
    seed: int = 0,
) -> Snapshot:
    """An hour of both."""
    rng = np.random.default_rng(seed)
    blocks = {FIRST + b: block(rng, gain, shares, named=named) for b in range(BLOCKS)}
    past = Past(blocks, FIRST + BLOCKS - 1, frozenset(blocks))
    builder = SnapshotBuilder(ARMS, half_life_s=900.0, tail_limit=1.1)
    return builder.build(past, (FIRST + BLOCKS) * BLOCK_S)


def compared(snapshot: Snapshot) -> Comparison:
    """The fast pool with the baseline."""
    found = snapshot.classes[CHAT].cells[FAST].comparison
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(5))
def test_tails_of_other_applications_are_no_loss(seed: int) -> None:
    """Nothing differs between the pools; the slow application is mostly on one."""
    made = build(APART, seed=seed)
    found = compared(made)
    tail = found.tails["tpot_p95"]
    assert tail is not None
    assert tail.low is not None
    assert tail.low > 1.1
    assert not found.alike
    assert found.verdict is not Verdict.LOSS
    assert concerns(made) == ()


def test_nor_do_they_hide_what_is_saved() -> None:
    """A gain for both applications is a gain, whatever the tails look like."""
    found = compared(build(APART, {HEAVY: 0.2, LIGHT: 0.2}))
    assert found.verdict is Verdict.GAIN


def test_a_tail_of_the_same_mix_decides_as_before() -> None:
    """A pool that is slower for a tenth of all, and else quicker, is a loss by its tail."""
    made = build(TOGETHER, {HEAVY: -0.3, LIGHT: 0.4})
    found = compared(made)
    assert found.alike
    assert found.gain is not None
    assert found.gain.high > 0.0
    assert found.verdict is Verdict.LOSS


def test_by_load_nothing_is_said_of_unlike_mixes() -> None:
    """Sums by load are not told apart by application; of a like mix they are shown."""
    assert compared(build(APART)).by_load == {0: None}
    alike = compared(build(TOGETHER)).by_load[0]
    assert alike is not None
    assert alike.low < 0.0 < alike.high


def test_where_applications_are_not_known_nothing_changes() -> None:
    """Nobody can tell then, nor does any policy send them anywhere."""
    found = compared(build(APART, named=False))
    assert found.alike
    assert found.by_load[0] is not None
