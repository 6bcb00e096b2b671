"""A verdict is told how requests ended at the same time, and what is missing because it was slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest

from policies.cost import typical_tokens
from policies.estimators.cells import increments
from policies.estimators.series import BlockSum
from policies.estimators.verdict import Verdict
from policies.expected import failure_posterior
from policies.types import ArmId, Status, Trial
from router.estimates.detector import Found
from router.estimates.drifts import Detector, never
from router.estimates.layout import BLOCK_S, Cells, merge_cells
from router.estimates.reader import Past
from router.estimates.snapshot import ClassSnapshot, SnapshotBuilder
from router.estimates.summary import Comparison
from router.types import POOLED, SegmentId
from tests.support.builders import ARMS, CHAT, FAST, PLAIN

NOW_BLOCK = 15_000_000
BLOCKS = 20
PER_BLOCK = 60


def served(arm: ArmId, rng: np.random.Generator, *, faster: float) -> Trial:
    """An answer of the one or the other."""
    tpot_s = 0.02 * float(np.exp(0.2 * rng.standard_normal())) * (faster if arm == FAST else 1.0)
    return Trial(
        CHAT,
        arm,
        Status.OK,
        streamed=True,
        propensity=0.5,
        ttft_s=0.2,
        tpot_s=tpot_s,
        e2e_s=0.2 + 199 * tpot_s,
        tokens=200,
    )


def ended(arm: ArmId, status: Status) -> Trial:
    """A request that did not end well."""
    left = status is Status.ABORTED
    return Trial(CHAT, arm, status, streamed=True, propensity=0.5, abandoned=left)


def snapshot(
    blocks: Iterable[Iterable[tuple[Trial, SegmentId]]], detect: Detector = never
) -> ClassSnapshot:
    """Of requests by block, oldest first, each of a part."""
    kept: dict[int, Cells] = {}
    for index, requests in enumerate(blocks):
        cells = kept[NOW_BLOCK - BLOCKS + 1 + index] = {}
        for trial, part in requests:
            sums = increments(trial, typical_tokens(CHAT))
            for into in {POOLED, part}:
                merge_cells(cells, {(trial.arm_id, CHAT, into): sums})
    builder = SnapshotBuilder(ARMS, half_life_s=900.0, tail_limit=1.10, detect=detect)
    built = builder.build(Past(kept, NOW_BLOCK, frozenset(kept)), (NOW_BLOCK + 1.0) * BLOCK_S)
    return built.classes[CHAT]


def compared(known: ClassSnapshot) -> Comparison:
    """The fast arm with the baseline."""
    found = known.cells[FAST].comparison
    assert found is not None
    return found


Draw = Callable[[ArmId, int, np.random.Generator], Trial]


def world(
    seed: int,
    draw: Draw,
    *,
    share: Callable[[int], float] = lambda _: 0.5,
    detect: Detector = never,
) -> ClassSnapshot:
    """Requests that go to the fast arm by a share, block by block."""
    rng = np.random.default_rng(seed)
    blocks = []
    for block in range(BLOCKS):
        arms = [FAST if rng.random() < share(block) else PLAIN for _ in range(PER_BLOCK)]
        blocks.append([(draw(arm, block, rng), POOLED) for arm in arms])
    return snapshot(blocks, detect)


def moved(block: int) -> float:
    """Half way the policy sends most to the fast arm."""
    return 0.1 if block < BLOCKS // 2 else 0.95


def test_an_outage_of_all_is_no_loss_of_the_arm_that_had_the_traffic() -> None:
    """A tenth fails on both alike from the time on when the arm is favoured."""

    def draw(arm: ArmId, block: int, rng: np.random.Generator) -> Trial:
        if block >= BLOCKS // 2 and rng.random() < 0.1:
            return ended(arm, Status.FAILED)
        return served(arm, rng, faster=0.7)

    believed, counted = [], []
    for seed in range(12):
        known = world(seed, draw, share=moved)
        assert compared(known).verdict is Verdict.GAIN
        a, b = failure_posterior(known.view)
        believed.append(a / (a + b))
        cell = known.cells[FAST].ended
        counted.append(cell[Status.FAILED] / (cell[Status.FAILED] + cell[Status.OK]))
    plain, fast = np.mean(believed, axis=0)
    assert np.mean(counted) > 0.08
    assert fast - plain < 0.03


def test_after_a_change_both_sides_count_since_then() -> None:
    """An outage of both began when the arm changed: the baseline's good time before is no bar."""

    def changed(series: Sequence[BlockSum]) -> Found | None:
        since = NOW_BLOCK + 1 - BLOCKS // 2
        return Found(since, 0.0, -0.1) if series[0].block < since else None

    def draw(arm: ArmId, block: int, rng: np.random.Generator) -> Trial:
        if rng.random() < (0.0 if block < BLOCKS // 2 else 0.4):
            return ended(arm, Status.FAILED)
        return served(arm, rng, faster=0.7)

    for seed in range(5):
        known = world(seed, draw, detect=changed)
        fast, plain = known.cells[FAST], known.cells[PLAIN]
        assert fast.since == (NOW_BLOCK + 1 - BLOCKS // 2) * BLOCK_S
        assert fast.ended[Status.OK] < 0.5 * plain.ended[Status.OK]
        assert compared(known).verdict is Verdict.GAIN


def test_an_arm_that_fails_by_itself_is_a_loss() -> None:
    """A tenth of its requests, whoever has the traffic."""

    def draw(arm: ArmId, _: int, rng: np.random.Generator) -> Trial:
        if arm == FAST and rng.random() < 0.1:
            return ended(arm, Status.FAILED)
        return served(arm, rng, faster=0.7)

    assert compared(world(0, draw)).verdict is Verdict.LOSS


@pytest.mark.parametrize(("failing", "expected"), [(0.97, Verdict.LOSS), (0.1, None)])
def test_an_arm_that_never_met_the_baseline_is_a_loss_only_where_it_hardly_answers(
    failing: float, expected: Verdict | None
) -> None:
    """What it fails more than the baseline did at other times may be of those times."""

    def draw(arm: ArmId, _: int, rng: np.random.Generator) -> Trial:
        if arm == FAST and rng.random() < failing:
            return ended(arm, Status.FAILED)
        return served(arm, rng, faster=0.7)

    known = world(1, draw, share=lambda block: float(block >= BLOCKS // 2))
    assert compared(known).verdict is (expected or Verdict.NOT_ENOUGH_DATA)


def test_slow_answers_that_were_abandoned_are_no_gain() -> None:
    """A quarter is never seen; the rest is a tenth faster. A loss stays a loss."""

    def draw(faster: float) -> Draw:
        def of(arm: ArmId, _: int, rng: np.random.Generator) -> Trial:
            if arm == FAST and rng.random() < 0.25:
                return ended(arm, Status.ABORTED)
            return served(arm, rng, faster=faster)

        return of

    for seed in range(5):
        known = world(seed, draw(0.8))
        found = compared(known)
        assert found.gain is not None
        assert found.gain.low > 0.0
        assert (found.verdict, found.abandoned_more) == (Verdict.NOT_ENOUGH_DATA, True)
        assert known.cells[FAST].abandoned == pytest.approx(0.25, abs=0.06)
        assert known.cells[PLAIN].abandoned == 0.0
        a, b = failure_posterior(known.view)
        assert (a / (a + b))[1] > 0.12
    assert compared(world(0, draw(1.5))).verdict is Verdict.LOSS


def test_clients_that_leave_at_random_change_nothing() -> None:
    """The same share on both sides: gains stay gains, and the policy believes nothing else."""

    def draw(arm: ArmId, _: int, rng: np.random.Generator) -> Trial:
        trial, left = served(arm, rng, faster=0.7), rng.random() < 0.2
        return ended(arm, Status.ABORTED) if left else trial

    for seed in range(12):
        for share in (moved, lambda _: 0.5):
            known = world(seed, draw, share=share)
            found = compared(known)
            assert (found.verdict, found.abandoned_more) == (Verdict.GAIN, False)
            assert known.view.failed.tolist() == [0.0, 0.0]


def test_applications_that_are_left_more_often_are_compared_among_themselves() -> None:
    """One is left by a third of its clients, and goes to the arm: that is not the arm."""
    typing, other = SegmentId("typing"), SegmentId("other")
    rng = np.random.default_rng(0)
    blocks = []
    for _ in range(BLOCKS):
        requests = []
        for _ in range(2 * PER_BLOCK):
            part = typing if rng.random() < 0.5 else other
            arm = FAST if rng.random() < (0.8 if part == typing else 0.2) else PLAIN
            left = part == typing and rng.random() < 0.33
            requests.append((
                ended(arm, Status.ABORTED) if left else served(arm, rng, faster=0.7), part
            ))  # fmt: skip
        blocks.append(requests)
    known = snapshot(blocks)
    shares = [known.cells[arm].abandoned or 0.0 for arm in (PLAIN, FAST)]
    assert shares[1] - shares[0] > 0.1
    assert compared(known).abandoned_more is False
    assert compared(known).verdict is Verdict.GAIN


def test_where_nothing_was_answered_the_share_is_unknown() -> None:
    """And not 0."""
    known = snapshot([[(ended(FAST, Status.REJECTED), POOLED)]])
    assert [known.cells[arm].abandoned for arm in (PLAIN, FAST)] == [None, None]
