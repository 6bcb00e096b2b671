"""A policy that picks the moment for a pool is not put down to the pool."""

from __future__ import annotations

import numpy as np
import pytest

from policies.cost import typical_tokens
from policies.estimators.increments import increments
from policies.estimators.verdict import Gain, Verdict
from policies.proposal import lean_of
from policies.types import Arm, ArmId, ClassId, Status, Trial
from router.estimates.layout import Cells, merge_cells
from router.estimates.reader import Past
from router.estimates.snapshot import ClassSnapshot, SnapshotBuilder
from router.types import POOLED

CHAT = ClassId("chat")
PLAIN, FAST = ArmId("plain"), ArmId("fast")
ARMS = (Arm(PLAIN, "none", baseline=True), Arm(FAST, "eagle3", 3))
SENT = Trial(
    CHAT,
    FAST,
    Status.OK,
    streamed=True,
    propensity=1.0,
    ttft_s=6.0,
    tpot_s=0.02,
    e2e_s=8.0,
    tokens=100,
    compared=False,
)
BLOCKS = 40
FIRST = 1_000_000


def served(
    seed: int, *, gain: float, told: bool, sent: int = 0, by: Trial | None = None
) -> ClassSnapshot:
    """Two pools; three requests in ten are hard, and take half as long again wherever they go.

    The policy sends nine in ten of the hard ones to the baseline, and of the others to the other.
    """
    rng = np.random.default_rng(seed)
    cells: dict[int, Cells] = {}
    for block in range(BLOCKS):
        for _ in range(100):
            hard = rng.random() < 0.3
            p = [0.9, 0.1] if hard else [0.1, 0.9]
            arm = FAST if rng.random() < p[1] else PLAIN
            tpot_s = 0.02 * np.exp(0.2 * rng.standard_normal()) * (1.5 if hard else 1.0)
            tpot_s *= 1.0 - gain if arm == FAST else 1.0
            trial = Trial(
                CHAT,
                arm,
                Status.OK,
                streamed=True,
                propensity=p[arm == FAST],
                ttft_s=tpot_s,
                tpot_s=tpot_s,
                e2e_s=100 * tpot_s,
                tokens=100,
                lean=lean_of([PLAIN, FAST], p) if told else "",
            )
            sums = increments(trial, typical_tokens(CHAT))
            merge_cells(cells.setdefault(FIRST + block, {}), {(arm, CHAT, POOLED): sums})
        for _ in range(sent):  # to one pool, by a tenant that asks for what takes long anywhere
            sums = increments(by or SENT, typical_tokens(CHAT))
            merge_cells(cells[FIRST + block], {(FAST, CHAT, POOLED): sums})
    builder = SnapshotBuilder(ARMS, half_life_s=900.0, tail_limit=3.0)
    past = Past(cells, FIRST + BLOCKS - 1, frozenset(cells))
    return builder.build(past, (FIRST + BLOCKS) * 120.0).classes[CHAT]


def shown(seed: int, *, gain: float, told: bool) -> tuple[Gain, Verdict]:
    """The gain of the fast pool, and what is said of it."""
    compared = served(seed, gain=gain, told=told).cells[FAST].comparison
    assert compared is not None
    assert compared.gain is not None
    return compared.gain, compared.verdict


@pytest.mark.parametrize("seed", range(3))
def test_pools_that_do_not_differ_show_no_gain(seed: int) -> None:
    """Though one of them gets what is hard."""
    gain, verdict = shown(seed, gain=0.0, told=True)
    assert gain.low < 0.0 < gain.high
    assert verdict is not Verdict.GAIN


def test_without_the_lean_the_choice_would_be_one() -> None:
    """The same requests, as if no policy had looked: a gain of a fifth and more."""
    gain, verdict = shown(0, gain=0.0, told=False)
    assert gain.low > 0.2
    assert verdict is Verdict.GAIN


@pytest.mark.parametrize("seed", range(3))
def test_a_gain_that_is_there_is_shown(seed: int) -> None:
    """A fifth, at whatever moment."""
    gain, verdict = shown(seed, gain=0.2, told=True)
    assert gain.low < 0.2 < gain.high
    assert verdict is Verdict.GAIN


def test_who_could_go_nowhere_else_is_put_down_to_no_pool() -> None:
    """Neither what they take nor the tail that it makes; latencies are theirs too."""
    usual, with_them = (served(0, gain=0.2, told=True, sent=sent).cells[FAST] for sent in (0, 20))
    assert usual.comparison is not None
    assert with_them.comparison is not None
    assert with_them.comparison.gain == usual.comparison.gain
    tail = with_them.comparison.tails["ttft_p95"]
    assert tail is not None
    assert tail.low is not None
    assert tail.low > 3.0
    assert (usual.comparison.alike, with_them.comparison.alike) == (True, False)
    assert with_them.comparison.verdict is Verdict.GAIN
    assert with_them.ended[Status.OK] == usual.ended[Status.OK] + 20 * BLOCKS


@pytest.mark.parametrize(("status", "abandoned"), [(Status.FAILED, False), (Status.ABORTED, True)])
def test_nor_is_how_their_requests_end(status: Status, abandoned: bool) -> None:  # noqa: FBT001
    """A third of all fail, or are left, whatever serves them."""
    ended = Trial(
        CHAT, FAST, status, streamed=True, propensity=1.0, abandoned=abandoned, compared=False
    )
    cell = served(0, gain=0.2, told=True, sent=50, by=ended).cells[FAST]
    assert cell.comparison is not None
    assert cell.comparison.verdict is Verdict.GAIN
    assert not cell.comparison.abandoned_more
    assert cell.ended[status] == 50 * BLOCKS


def test_what_policies_see_is_what_it_was() -> None:
    """They weigh all requests of a block together."""
    with_it, without = (served(1, gain=0.1, told=told) for told in (True, False))
    for figure in ("n", "total", "total_sq"):
        assert getattr(with_it.view, figure) == pytest.approx(getattr(without.view, figure))


def test_a_lean_is_an_arm_and_how_clearly() -> None:
    """Two policies that are as sure of the same arm lean alike."""
    names = [PLAIN, FAST]
    assert lean_of(names, [0.01, 0.99]) == lean_of(names, [0.08, 0.92])
    assert (
        len({lean_of(names, [0.5, 0.5]), lean_of(names, [0.3, 0.7]), lean_of(names, [0, 1])}) == 3
    )
    assert lean_of(names, [0.99, 0.01]) != lean_of(names, [0.01, 0.99])
