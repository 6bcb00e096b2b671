"""What one finished request adds."""

from __future__ import annotations

from router.estimates.learned import Learned
from router.types import ANONYMOUS, POOLED
from tests.support.builders import CHAT, FAST


def test_a_request_adds_to_its_class_and_to_nothing_else_unless_told() -> None:
    """Nothing is made up for it."""
    made = Learned("m", FAST, CHAT, {"n": 1})
    assert (made.part, made.also, made.tenant) == (POOLED, (), ANONYMOUS)
    assert (made.ledger, made.made) == (None, None)
