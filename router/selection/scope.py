"""What is settled about a request before any policy is asked. Values only."""

from __future__ import annotations

from policies.types import ArmId
from policies.values import value
from router.tenants.model import ALL, Rights


@value
class Scope:
    """Within what an arm is chosen."""

    rights: Rights = ALL
    forced: ArmId | None = None
    """The arm it gets if it may use it."""
    why: str = ""
    """Who forced it: stands in the place of a policy's name."""
    plan: str | None = None
    """Key of the plan that decides; None for the route's (`router.tenants.book.plan_key`)."""
    by_lot: bool = False
    """Whether it was drawn for that: it is compared with what the plan's policy sends."""


EVERYTHING = Scope()
"""What holds for a request about which nothing is settled."""
