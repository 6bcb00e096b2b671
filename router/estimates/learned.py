"""What one finished request adds to all that is kept. It keeps nothing itself."""

from __future__ import annotations

from policies.types import ArmId, ClassId, Counts
from policies.values import value
from router.estimates.layout import CellKey
from router.estimates.made import Made
from router.types import ANONYMOUS, POOLED, SegmentId, TenantId


@value
class Learned:
    """The increments of a request; they count all together or, for want of room, not at all."""

    model: str
    """The route."""
    arm_id: ArmId
    """The arm that was drawn."""
    class_id: ClassId
    sums: Counts
    """What it adds to its class."""
    part: SegmentId = POOLED
    """The part of the class that it counts for as well (`layout.part_of`)."""
    effects: Counts | None = None
    """What it adds to that part: of `sums` what bears on the effects of arms
    (`increments.effect_fields`); None where nobody has looked for it yet."""
    also: tuple[tuple[CellKey, Counts], ...] = ()
    """Further cells that it adds to, as they are: bands of load, what is the arm's and of no class.
    Their names must be few."""
    tenant: TenantId = ANONYMOUS
    ledger: Counts | None = None
    """What it adds to its tenant's month (`ledger.ledger_counts`)."""
    made: Made | None = None
    """When its tokens were made, for who attributes an engine's counters."""
