"""What a steady batch comes to: time per token and speed-up, from the parameters alone."""

from __future__ import annotations

from policies.sim.acceptance import acceptance_of
from policies.sim.spec import EngineSpec
from policies.types import ClassId


def time_per_token(
    spec: EngineSpec, class_id: ClassId, batch: float, context: float, shift: float = 0.0
) -> float:
    """Seconds per token of each of so many requests of a class that decode together.

    Args:
        spec: The engine.
        class_id: The class of all of them.
        batch: How many.
        context: Tokens that each attends to.
        shift: Added to the log odds of acceptance.
    """
    cell = spec.cell(class_id)
    if cell is None:
        return float(spec.cost.seconds(batch, 0.0, batch * context))
    acceptance = acceptance_of(cell)
    tau = acceptance.mean_tau(shift)
    drafted = acceptance.drafted_per_step((tau - 1.0) / spec.k)
    step = spec.cost.seconds(batch * (1.0 + drafted), batch * drafted, batch * context)
    return float(step) / tau


def speedup(
    plain: EngineSpec, spec: EngineSpec, class_id: ClassId, batch: float, context: float
) -> float:
    """How many times faster than plain decoding at the same batch."""
    return time_per_token(plain, class_id, batch, context) / time_per_token(
        spec, class_id, batch, context
    )


def equal_alpha(tau: float, k: int) -> float:
    """The acceptance that, equal at each position, gives so many tokens per step.

    Inverts 1 + a + a^2 + … + a^k (Leviathan et al., 2023, equation 1) by bisection.

    Example:
        >>> round(equal_alpha(3.68928, 5), 4)
        0.8
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        if tau_of(middle, k) < tau:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def tau_of(alpha: float, k: int) -> float:
    """Tokens per step where each of k positions is accepted with the same probability.

    Example:
        >>> round(tau_of(0.8, 5), 2), round(tau_of(0.8, 4), 2)
        (3.69, 3.36)
    """
    total = power = 1.0
    for _ in range(k):
        power *= alpha
        total += power
    return total
