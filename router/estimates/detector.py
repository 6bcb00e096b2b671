"""Looks at one cell's series of blocks for a jump: between the sums and `drift`. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from policies.estimators import drift
from policies.estimators.series import BlockSum
from policies.values import value


@value
class Found:
    """A jump; see `router.estimates.drifts.Shift`."""

    block: int
    before: float
    after: float


def find_shift(series: Sequence[BlockSum]) -> Found | None:
    """The last jump of a series, as looks at the end of each of its blocks would have found it.

    Args:
        series: Blocks that will not change any more, the oldest first.
    """
    blocks = [_block(of) for of in series]
    last = None
    for last in drift.scan(blocks):  # noqa: B007 - the last one counts
        pass
    if last is None:
        return None
    return Found(series[last.at_block].block, last.before, last.after)


def _block(of: BlockSum) -> drift.Block:
    if not of.n > 0.0:
        return drift.NOTHING
    mean = of.total / of.n
    return drift.Block(of.n, mean, max(of.total_sq - of.total * mean, 0.0), max(of.n - 1.0, 0.0))
