"""Priors of methods are given at one draft length and asked at others."""

from __future__ import annotations

import pytest

from policies.priors import ANY_CLASS, MethodPrior
from policies.types import ClassId

PRIOR = MethodPrior(3, {ANY_CLASS: 2.3, ClassId("math"): 2.6}, step=1.3, step_per_token=0.1)


def test_a_class_without_a_prior_takes_that_of_all() -> None:
    """And a method that is told nothing of drafts nothing."""
    assert PRIOR.tau_at(ClassId("math")) == 2.6
    assert PRIOR.tau_at(ClassId("unheard")) == 2.3
    assert MethodPrior(0).tau_at(ClassId("math"), 5) == 1.0


def test_other_draft_lengths_have_more_tokens_and_dearer_steps() -> None:
    """Tau grows less and less with k, and never beyond k + 1."""
    taus = [PRIOR.tau_at(ClassId("math"), k) for k in (1, 2, 3, 5, 9)]
    assert taus == sorted(taus)
    assert taus[2] == 2.6
    assert taus[0] < 2.0
    assert PRIOR.step_at(5) == pytest.approx(1.5)
    assert PRIOR.step_at(0) == pytest.approx(1.0)
    assert MethodPrior(3, {ANY_CLASS: 9.0}).tau_at(ClassId("x"), 4) < 5.0
