"""Lengths of drafts from what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.estimators.acceptance import tau_from_alpha
from policies.recommend import Acceptance, Bounds, Drawn, Point, Pool, advise, step_at, tau_at
from policies.types import ArmId, ClassId

CHAT, EDIT = ClassId("chat"), ClassId("code_edit")
LOADS = (1, 2, 4, 8, 16, 32, 64, 128)


def near(value: float, share: float = 0.01) -> Bounds:
    """A value known to so much of it."""
    return Bounds(value, value * (1.0 - share), value * (1.0 + share))


def true_step(load: float, k: int, draft_s: float = 0.0007) -> float:
    """A step of a card: weights are read once, tokens are verified, each drafted one costs."""
    return 0.008 + 0.00005 * load * (1 + k) + 0.00001 * load + draft_s * k


def pool(
    k: int, *, method: str = "eagle3", share: float = 0.01, loads: tuple[int, ...] = LOADS
) -> Pool:
    """A pool of two servers, measured at these loads."""
    return Pool(
        ArmId("plain" if k == 0 else f"{method}-{k}"),
        "none" if k == 0 else method,
        k,
        2,
        4.0,
        tuple(Point(float(load), near(true_step(load, k), share)) for load in loads),
        baseline=k == 0,
    )


def accepting(alpha: float, k: int, requests: int = 500, share: float = 0.01) -> Acceptance:
    """Drafts of k of which every position has the same acceptance."""
    return Acceptance(requests, near(tau_from_alpha(alpha, k), share), rates=(alpha,) * k)


def with_classes(made: Pool, **alphas: float) -> Pool:
    """The pool with acceptance by class."""
    known = {ClassId(name): accepting(alpha, made.k) for name, alpha in alphas.items()}
    return replace(made, classes=known)


PLAIN = pool(0)


@pytest.mark.parametrize("k", [0, 1, 3, 5, 8])
def test_tokens_per_step_follow_from_positions(k: int) -> None:
    """Shorter drafts exactly; longer ones as the last position goes on."""
    assert tau_at(accepting(0.7, 5), 5, k) == pytest.approx(tau_from_alpha(0.7, k))


def test_steps_without_a_draft_keep_their_share() -> None:
    """An n-gram drafter that finds something in half of the steps."""
    full = tau_from_alpha(0.8, 4)
    known = Acceptance(100, near(1.0 + 0.5 * (full - 1.0)), rates=(0.8,) * 4)
    assert tau_at(known, 4, 2) == pytest.approx(1.0 + 0.5 * (tau_from_alpha(0.8, 2) - 1.0))


def test_without_positions_acceptance_is_taken_for_equal() -> None:
    """And the advice says so."""
    known = Acceptance(100, near(tau_from_alpha(0.6, 4)), alpha=0.6)
    assert tau_at(known, 4, 2) == pytest.approx(tau_from_alpha(0.6, 2))
    advice = advise(replace(pool(4), classes={CHAT: known}), PLAIN, {CHAT: 1.0})
    assert any("taken for equal" in note for note in advice.notes)


@pytest.mark.parametrize("load", [1.0, 8.0, 32.0, 128.0])
@pytest.mark.parametrize("k", [0, 1, 2, 3, 5])
def test_a_step_with_shorter_drafts_is_found_from_verified_tokens(load: float, k: int) -> None:
    """Within 4 per cent of a card that was run with drafts of five only."""
    drawn, plain = Drawn(pool(5), 0), Drawn(PLAIN, 1)
    assert step_at(drawn, plain, load, k)[0] == pytest.approx(true_step(load, k), rel=0.04)


def test_a_step_is_no_cheaper_than_plain_and_no_dearer_than_a_longer_draft() -> None:
    """In every draw, whatever noise says."""
    drawn, plain = Drawn(pool(5, share=0.3), 0), Drawn(pool(0, share=0.3), 1)
    for load in (1.0, 16.0):
        low, high = plain.step(load), drawn.step(load)
        for k in (1, 3):
            found = step_at(drawn, plain, load, k)
            assert (found >= low - 1e-12).all()
            assert ((found <= high + 1e-12) | (found <= low + 1e-12)).all()


def test_poor_drafts_are_cut_short_and_good_ones_kept() -> None:
    """Each class by itself, and by batch size."""
    made = with_classes(pool(5), chat=0.25, code_edit=0.9)
    advice = advise(made, PLAIN, {CHAT: 1.0, EDIT: 0.0})
    assert advice.classes[EDIT].k == 5
    assert advice.classes[CHAT].k < 5
    assert advice.classes[CHAT].gain.low > 0.0
    assert advice.overall is not None
    assert advice.overall.k == advice.classes[CHAT].k
    assert advice.load == 4.0


def test_a_full_batch_wants_shorter_drafts() -> None:
    """The schedule falls, and its ranges follow each other from 1 on."""
    advice = advise(with_classes(pool(5), chat=0.6), PLAIN, {CHAT: 1.0}, most_running=256)
    lengths = [of.best.k for of in advice.schedule]
    assert len(lengths) > 1
    assert lengths == sorted(lengths, reverse=True)
    assert (advice.schedule[0].low, advice.schedule[-1].high) == (1, 256)
    for one, other in zip(advice.schedule, advice.schedule[1:], strict=False):
        assert other.low == one.high + 1


def test_the_gain_of_a_shorter_draft_holds_the_truth() -> None:
    """What the card would have gained lies in the interval."""
    advice = advise(with_classes(pool(5), chat=0.3), PLAIN, {CHAT: 1.0})
    best = advice.classes[CHAT]
    now, then = (true_step(4, k) / tau_from_alpha(0.3, k) for k in (5, best.k))
    assert best.k < 5
    assert best.gain.low <= 1.0 - then / now <= best.gain.high


def test_what_is_not_beyond_doubt_changes_nothing() -> None:
    """Wide intervals: the length stays, and what looks best is told."""
    made = replace(pool(5, share=0.4), classes={CHAT: accepting(0.45, 5, share=0.3)})
    advice = advise(made, pool(0, share=0.4), {CHAT: 1.0})
    assert advice.overall is not None
    assert advice.overall.k == 5
    assert advice.overall.likeliest < 5
    assert advice.overall.gain == Bounds(0.0, 0.0, 0.0)


def test_longer_drafts_are_told_as_extrapolated() -> None:
    """Apart from the advice; only where steps that verify as much were seen."""
    made = with_classes(pool(3), chat=0.95)
    advice = advise(made, PLAIN, {CHAT: 1.0})
    assert advice.overall is not None
    assert advice.overall.k == 3
    assert advice.longer is not None
    assert advice.longer[0] > 3
    alone = replace(with_classes(pool(3, loads=(1, 2, 4)), chat=0.95), load=4.0)
    assert advise(alone, PLAIN, {CHAT: 1.0}).longer is None


@pytest.mark.parametrize(
    ("made", "plain", "why"),
    [
        (with_classes(replace(pool(3), points=()), chat=0.5), PLAIN, "time of its steps"),
        (with_classes(pool(3), chat=0.5), None, "plain steps was not measured"),
        (pool(3), PLAIN, "no class has"),
        (with_classes(pool(3, loads=(64,)), chat=0.5), pool(0, loads=(1, 2)), "at no load"),
        (replace(pool(3), k=0), PLAIN, "length of its drafts"),
    ],
)
def test_too_little_data_is_said(made: Pool, plain: Pool | None, why: str) -> None:
    """With what lacks, and no advice."""
    advice = advise(made, plain, {CHAT: 1.0})
    assert advice.overall is None
    assert any(why in reason for reason in advice.lacking)


def test_few_requests_are_too_little() -> None:
    """Of a class."""
    made = replace(pool(3), classes={CHAT: accepting(0.5, 3, requests=5)})
    assert advise(made, PLAIN, {CHAT: 1.0}).overall is None
