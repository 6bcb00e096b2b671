"""Two applications of one class that a policy sends to pools in shares of their own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from policies.cost import typical_tokens
from policies.estimators.increments import with_effects
from policies.types import ArmId, Status, Trial
from router.estimates.layout import Cells, merge_cells
from router.types import POOLED, SegmentId
from tests.support.builders import CHAT, FAST, PLAIN

HEAVY, LIGHT = SegmentId("heavy"), SegmentId("light")
TOKENS = {HEAVY: 200, LIGHT: 200}
LEVEL = {HEAVY: 3.0, LIGHT: 1.0}
"""How many times 20 ms a token takes."""
NOTHING = {HEAVY: 0.0, LIGHT: 0.0}
APART = {HEAVY: 0.9, LIGHT: 0.2}
"""Share of the fast pool, by application."""
REQUESTS = 60


def answer(arm: ArmId, tpot_s: float, tokens: int) -> Trial:
    """A stream that ended well."""
    e2e_s = 0.1 + (tokens - 1) * tpot_s
    return Trial(
        CHAT,
        arm,
        Status.OK,
        streamed=True,
        propensity=0.5,
        ttft_s=0.1,
        tpot_s=tpot_s,
        e2e_s=e2e_s,
        tokens=tokens,
    )


def block(
    rng: np.random.Generator,
    gain: Mapping[SegmentId, float] = NOTHING,
    shares: Mapping[SegmentId, float] = APART,
    tokens: Mapping[SegmentId, int] = TOKENS,
    *,
    named: bool = True,
) -> tuple[Cells, float]:
    """Two minutes of both applications, all alone on their servers.

    Returns:
        Their sums, and what the fast pool's answers saved in seconds.
    """
    cells: Cells = {}
    saved_s = 0.0
    for _ in range(REQUESTS):
        part = HEAVY if rng.random() < 0.5 else LIGHT
        arm = FAST if rng.random() < shares[part] else PLAIN
        plain_s = 0.02 * LEVEL[part] * float(np.exp(0.2 * rng.standard_normal()))
        tpot_s = plain_s * (1.0 - gain[part]) if arm == FAST else plain_s
        saved_s += (tokens[part] - 1) * (plain_s - tpot_s)
        sums, effects = with_effects(answer(arm, tpot_s, tokens[part]), typical_tokens(CHAT))
        merge_cells(cells, {(arm, CHAT, POOLED): sums, (arm, CHAT, SegmentId("~0")): effects})
        if named:
            merge_cells(cells, {(arm, CHAT, part): effects})
    return cells, saved_s
