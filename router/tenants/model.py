"""Who asks, and what it may: values only."""

from __future__ import annotations

from policies.types import ArmId, ClassId
from policies.values import value
from router.types import ANONYMOUS, TenantId


@value
class Rights:
    """What a tenant's requests may use. They take arms away, and never the baseline."""

    pools: frozenset[ArmId] | None = None
    """None for all."""
    methods: frozenset[str] | None = None
    """Speculative methods; None for all."""
    lossless_only: bool = False
    """Whatever the route allows."""
    explore: bool = True
    """Else always the arm that the policy prefers."""
    policy: str | None = None
    """Key of the plan that decides instead of the route's (`router.selection.scope`)."""
    pool: ArmId | None = None
    """Everything goes there while it can."""
    may_choose: bool = False
    """Whether `x-specroute-class` and `x-specroute-pool` of its requests count."""


ALL = Rights()
"""What everybody has who was given nothing else."""


@value
class Tenant:
    """Whose request it is."""

    id: TenantId = ANONYMOUS
    group: str = ""
    known: bool = False
    """Whether an operator named it; else its id is a hash of its credential, or `anonymous`."""
    rights: Rights = ALL
    holdout: float = 0.0
    """Share of its requests that stay on the baseline."""
    sentinel: float | None = None
    """Share of its greedy requests that may be repeated; None for the route's."""
    limited_as: TenantId | None = None
    """Whose limits its requests count against; None for its own, where it has any."""


@value
class Wish:
    """What a request asks of the router in headers of ours; it counts only for who may ask."""

    class_id: ClassId | None = None
    pool: ArmId | None = None


NO_WISH = Wish()
