"""Plans as people write them."""

from __future__ import annotations

import pytest

from router.experiments.bodies import read_members


def test_off_is_a_member_and_true_a_value() -> None:
    """YAML 1.1 takes `off` for false; then nobody could write that a side does without."""
    assert read_members("{control: {off: true}, on: yes}") == {
        "control": {"off": True},
        "on": "yes",
    }


@pytest.mark.parametrize("text", ["a: [", "a: &x {b: 1}\nc: *x", "[" * 20_000])
def test_what_is_no_plan_is_refused_in_words(text: str) -> None:
    """Broken, made to grow when it is read, or deeper than anything is read."""
    with pytest.raises(ValueError, match="YAML"):
        read_members(text)
