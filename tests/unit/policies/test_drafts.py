"""Tokens per step: measured, pooled over classes, started from what is published."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from policies.checks import example_arms
from policies.context_checks import example_knowledge
from policies.drafts import draw_log_tau, log_tau, of_part
from policies.knowledge import Belief, Drafting, Knowledge, Ratios
from policies.types import ArmView, ClassId, FloatArray

ARMS = example_arms(3)
CHAT, MATH = ClassId("chat"), ClassId("math")


def drafting(n: float, taus: FloatArray) -> Drafting:
    """Requests of 100 tokens, all alike on an arm."""
    counts, steps = np.full(len(taus), n), 100.0 / taus
    one = np.ones(len(taus))
    return Drafting(
        counts, *(counts * x for x in (100.0 * one, steps, 1e4 * one, 100.0 * steps, steps**2))
    )


def knowledge(by_class: dict[ClassId, Drafting], priors: dict[ClassId, FloatArray]) -> Knowledge:
    """A route of which only drafting is known."""
    nothing = Ratios.none(len(ARMS))
    beliefs = {
        (name, ""): Belief(ArmView.empty(name, ARMS), found) for name, found in by_class.items()
    }
    return Knowledge(ARMS, beliefs, nothing, nothing, tau_priors=priors)


def draws(known: Knowledge) -> dict[ClassId, FloatArray]:
    """Draws of tau by class."""
    found = draw_log_tau(known, 2000, np.random.default_rng(0))
    return {name: np.exp(values) for name, values in found.items()}


def test_many_requests_outweigh_what_was_published() -> None:
    """After a hundred requests a wrong prior has no say."""
    priors = {CHAT: np.array([np.nan, 5.0, 5.0])}
    known = knowledge({CHAT: drafting(100.0, np.array([1.0, 1.5, 3.0]))}, priors)
    tau = draws(known)[CHAT]
    assert np.abs(tau.mean(axis=1) - [1.0, 1.5, 3.0]).max() < 0.1
    assert (tau[0] == 1.0).all()


def test_classes_of_an_arm_speak_for_each_other() -> None:
    """An arm that is worse than published in one class is expected to be so in another."""
    priors = {name: np.array([np.nan, 2.0, 3.0]) for name in (CHAT, MATH)}
    known = knowledge({CHAT: drafting(100.0, np.array([1.0, 2.0, 1.5]))}, priors)
    tau = draws(known)[MATH]
    assert tau[1].mean() > 1.9
    assert tau[2].mean() < 2.6
    assert tau[2].std() > 3.0 * draws(known)[CHAT][2].std()


def test_published_numbers_that_prove_wrong_are_let_go_of_for_other_arms_too() -> None:
    """Ten answers of two classes of one arm do away with what is said against another."""
    priors = {name: np.array([np.nan, 1.2, 6.0]) for name in (CHAT, MATH)}
    told = draws(knowledge({}, priors))[CHAT][1]
    assert np.quantile(told, 0.9) < 2.0
    found = drafting(10.0, np.array([1.0, 2.0, 1.3]))
    nothing = replace(found, **{f.name: getattr(found, f.name) * [1, 0, 1] for f in fields(found)})
    wrong = draws(knowledge({CHAT: nothing, MATH: nothing}, priors))[CHAT][1]
    assert wrong.mean() > told.mean() + 0.3
    assert np.quantile(wrong, 0.9) > 2.5
    right = replace(nothing, steps=nothing.tokens / np.array([1.0, 1.0, 5.0]))
    assert np.quantile(draws(knowledge({CHAT: right, MATH: right}, priors))[CHAT][1], 0.9) < 2.0


def test_no_draw_is_beyond_what_a_draft_allows() -> None:
    """Tau lies between one and one more than the draft's length."""
    arms = (ARMS[0], replace(ARMS[1], num_speculative_tokens=2), ARMS[2])
    known = replace(knowledge({}, {CHAT: np.array([np.nan, 2.9, 1.0])}), arms=arms)
    tau = draws(known)[CHAT]
    assert tau[1].max() <= 3.0 + 1e-9
    assert tau.min() >= 1.0


def test_a_part_starts_from_its_class_and_ends_with_itself() -> None:
    """With one request a part is its class; with many it is what was measured of it."""
    parent = np.log(np.array([[1.0], [2.0], [2.0]])) + np.zeros((3, 500))
    rng = np.random.default_rng(0)
    few = of_part(parent, drafting(1.0, np.array([1.0, 3.0, 3.0])), ARMS, rng)
    many = of_part(parent, drafting(200.0, np.array([1.0, 3.0, 3.0])), ARMS, rng)
    assert np.exp(few[1]).mean() < 2.5
    assert abs(np.exp(many[1]).mean() - 3.0) < 0.1
    assert (many[0] == 0.0).all()


def test_sums_of_squares_that_are_missing_leave_the_expected_spread() -> None:
    """Cells of parts do not tell squares; the variance is then that of the prior over requests."""
    known = replace(
        drafting(16.0, np.array([1.0, 2.0, 3.0])), tt=np.zeros(3), ts=np.zeros(3), ss=np.zeros(3)
    )
    value, variance = log_tau(known)
    assert np.allclose(np.exp(value), [1.0, 2.0, 3.0])
    assert (variance > 0.0).all()
    assert np.isfinite(variance).all()


def test_the_example_of_the_checks_is_read_back() -> None:
    """Effects that are of drafts alone come out as ratios of tau."""
    known = example_knowledge(ARMS, [0.0, -0.2, -0.7], n=400.0)
    value, _ = log_tau(known.beliefs[CHAT, ""].drafting)
    assert np.allclose(value, [0.0, 0.2, 0.7])
