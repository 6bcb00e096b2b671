"""Two applications of one class that a policy sends to pools in shares of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from policies.cost import typical_tokens
from policies.estimators.increments import effect_fields, increments
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


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of an application."""

    part: SegmentId
    arm: ArmId
    trial: Trial
    saved_s: float
    """Against what the plain pool would have taken."""


def answers(
    rng: np.random.Generator,
    gain: Mapping[SegmentId, float] = NOTHING,
    shares: Mapping[SegmentId, float] = APART,
    tokens: Mapping[SegmentId, int] = TOKENS,
    requests: int = REQUESTS,
) -> Iterator[Answer]:
    """Two minutes of both applications."""
    for _ in range(requests):
        part = HEAVY if rng.random() < 0.5 else LIGHT
        arm = FAST if rng.random() < shares[part] else PLAIN
        plain_s = 0.02 * LEVEL[part] * float(np.exp(0.2 * rng.standard_normal()))
        tpot_s = plain_s * (1.0 - gain[part]) if arm == FAST else plain_s
        saved_s = (tokens[part] - 1) * (plain_s - tpot_s)
        yield Answer(part, arm, answer(arm, tpot_s, tokens[part]), saved_s)


def block(
    rng: np.random.Generator,
    gain: Mapping[SegmentId, float] = NOTHING,
    shares: Mapping[SegmentId, float] = APART,
    *,
    named: bool = True,
) -> Cells:
    """Their sums, all answered by servers that had nobody else."""
    cells: Cells = {}
    for of in answers(rng, gain, shares):
        sums = increments(of.trial, typical_tokens(CHAT))
        effects = effect_fields(sums)
        merge_cells(cells, {(of.arm, CHAT, POOLED): sums, (of.arm, CHAT, SegmentId("~0")): effects})
        if named:
            merge_cells(cells, {(of.arm, CHAT, of.part): effects})
    return cells
