"""How long steps and prefill of each arm take, by load: models beside the sums. Pure."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from policies.estimators.prefill import PrefillModel
from policies.estimators.step_time import StepTime, StepTimeModel
from policies.types import Arm, ArmId, FloatArray
from router.estimates.blocks import Block

REFIT_S = 30.0
"""A model is made anew this often. Judgement: it is of an hour, and half a minute moves little."""


@dataclass(frozen=True, slots=True)
class ArmCosts:
    """What is known of one arm; None where nothing was measured."""

    step: StepTimeModel | None = None
    prefill: PrefillModel | None = None


class Costs:
    """The models of a route."""

    def __init__(self, arms: Sequence[Arm]) -> None:
        self._arms = arms
        self._made_wall: float | None = None
        self._known: dict[ArmId, ArmCosts] = {}

    def look(
        self, blocks: Sequence[Block], weights: FloatArray, wall: float
    ) -> Generator[None, None, Mapping[ArmId, ArmCosts]]:
        """The models at a moment, made anew if it is time, in pieces.

        Args:
            blocks: In their order, the oldest first.
            weights: Of the blocks, by age.
            wall: The moment.
        """
        if self._made_wall is None or not 0.0 <= wall - self._made_wall < REFIT_S:
            self._made_wall = wall
            made: dict[ArmId, ArmCosts] = {}
            for arm in self._arms:
                sums = [
                    (weight, block.common.get(arm.arm_id, {}))
                    for weight, block in zip(weights.tolist(), blocks, strict=True)
                ]
                step = StepTime.fit(sums)
                yield
                made[arm.arm_id] = ArmCosts(step, PrefillModel.of(sums))
                yield
            self._known = made
        return self._known
