"""Values that nobody changes."""

from __future__ import annotations

from dataclasses import fields, replace

from policies.types import ArmId, ClassId, SpecUsage, Status, Trial
from policies.values import value


@value
class Pair:
    """Two numbers."""

    a: int
    b: int = 2


def test_a_value_is_compared_hashed_and_replaced_as_a_whole() -> None:
    """As a frozen dataclass is."""
    assert (Pair(1), hash(Pair(1))) == (Pair(1, 2), hash(Pair(1, 2)))
    assert replace(Pair(1), b=3) == Pair(1, 3)
    assert [field.name for field in fields(Trial)][:2] == ["class_id", "arm_id"]
    assert not hasattr(Pair(1), "__dict__")


def test_the_type_checker_forbids_to_change_a_value() -> None:
    """Where it did not, the comments that silence it would be reported as unused."""
    pair = Pair(1)
    pair.a = 2  # type: ignore[misc]
    trial = Trial(ClassId("c"), ArmId("a"), Status.OK, streamed=True, propensity=1.0)
    trial.spec = SpecUsage()  # type: ignore[misc]
