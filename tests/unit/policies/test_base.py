"""The interface stays small."""

from __future__ import annotations

from policies.base import Policy


def test_a_policy_has_a_name_and_one_method() -> None:
    """No `update` creeps in: what a policy knows is the view."""
    members = {name for name in vars(Policy) if not name.startswith("_")}
    assert {"name", "propose"} == members
