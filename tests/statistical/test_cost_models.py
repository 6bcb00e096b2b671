"""Intervals of the cost models hold the truth as often as they say.

The small form of `bench/verify_models.py`, whose worlds and measures it uses. Seeds are fixed, so
every figure is reproducible; each tolerance says what it allows for.
"""

from __future__ import annotations

import numpy as np
import pytest

from bench.verify_models import (
    PREFILL_TRAFFIC,
    Curve,
    Prompts,
    Traffic,
    bend,
    flat,
    line,
    prefill_coverage,
    stairs,
    step_coverage,
)


@pytest.mark.parametrize("curve", [line, flat, bend])
def test_step_times_at_loads_that_were_seen_are_covered(curve: Curve) -> None:
    """At 95 %, less two standard errors: loads of a seed share their blocks, so a seed counts once.

    60 seeds, 2 sqrt(0.05 * 0.95 / 60): 5.6 points. Five hundred seeds are in the bench.
    """
    found = step_coverage(curve, Traffic(), 60)
    assert np.nanmean(found.held) >= 0.95 - 0.056
    assert found.beyond.mean() >= 0.95 - 0.056
    assert np.nanmean(found.reach) < 0.12


def test_a_curve_that_is_right_is_seldom_called_a_misfit_and_stairs_always_are() -> None:
    """At most 5 % of fits, with two standard errors of 60 seeds above."""
    assert step_coverage(line, Traffic(), 60).misfit.mean() <= 0.05 + 0.056
    assert step_coverage(stairs, Traffic(), 12).misfit.all()


def test_more_in_common_between_requests_widens_the_interval() -> None:
    """Blocks that are slow as a whole count as one, about, however many requests they have."""
    alike = step_coverage(line, Traffic(factor_sd=0.0), 12)
    apart = step_coverage(line, Traffic(factor_sd=0.1), 12)
    assert np.nanmean(apart.reach) > 2 * np.nanmean(alike.reach)


def test_coefficients_of_the_prefill_are_covered() -> None:
    """Each at 95 %, less two standard errors of 60 seeds and what five figures add to one of them.

    2.6 sqrt(0.05 * 0.95 / 60): 7.3 points.
    """
    found = prefill_coverage(Prompts(), PREFILL_TRAFFIC, 60)
    assert (found.held.mean(axis=0) >= 0.95 - 0.073).all()
    assert found.misfit.mean() <= 0.05 + 0.056


def test_a_prefill_that_grows_with_the_square_is_called_a_misfit() -> None:
    """So that nobody believes its intervals, which then miss."""
    found = prefill_coverage(Prompts(square=1.2e-8), PREFILL_TRAFFIC, 12)
    assert found.misfit.all()
