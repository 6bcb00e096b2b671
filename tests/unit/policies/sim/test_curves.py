"""Formulas of tokens per step, and that curves say what engines do."""

from __future__ import annotations

import pytest

from policies.sim.curves import equal_alpha, speedup, tau_of, time_per_token
from policies.sim.spec import Cell, EngineSpec, StepCost
from policies.types import ClassId

CHAT = ClassId("chat")
COST = StepCost(0.006, 2e-5, 2e-5)
PLAIN = EngineSpec("none", 0, COST)
EAGLE = EngineSpec(
    "eagle3", 3, StepCost(0.006, 2e-5, 2e-5, draft_s=0.002), {CHAT: Cell(2.4, (0.65,) * 3)}
)


def test_a_speedup_is_tokens_over_steps() -> None:
    """Without a spread tau is the cell's, so the quotient can be done by hand."""
    assert time_per_token(PLAIN, CHAT, 1, 0.0) == pytest.approx(0.00602)
    expected = 2.4 * 0.00602 / (0.008 + 4 * 2e-5)
    assert speedup(PLAIN, EAGLE, CHAT, 1, 0.0) == pytest.approx(expected, rel=1e-3)
    assert speedup(PLAIN, EAGLE, CHAT, 256, 0.0) < 1.0


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("k", [1, 3, 12])
def test_alpha_and_tau_are_each_other_s_inverse(alpha: float, k: int) -> None:
    """Solving for alpha gives back what tau was made of."""
    assert tau_of(alpha, k) == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha))
    assert equal_alpha(tau_of(alpha, k), k) == pytest.approx(alpha, abs=1e-6)
