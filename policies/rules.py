"""The table engines' users follow today: class to preferred methods. It looks at no data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from policies.parameters import ParameterError, number, parameter, suggestion, table
from policies.proposal import with_floor
from policies.types import ClassId, Proposal

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from policies.types import Arm, ArmView

OTHER = ClassId("other")

METHODS = (
    "none",
    "ngram",
    "suffix",
    "draft_model",
    "medusa",
    "eagle",
    "eagle2",
    "eagle3",
    "mtp",
    "dflash",
    "dspark",
)
"""Methods by the names engines use; operators may add their own on an arm."""

_COPY = ("ngram", "suffix")
_DRAFT = ("eagle3", "mtp", "draft_model")
_BLOCK = ("dflash", "mtp", "eagle3", "draft_model")

DEFAULT_TABLE: Mapping[str, tuple[str, ...]] = {
    "code_edit": (*_COPY, *_BLOCK),
    "text_edit": (*_COPY, *_DRAFT),
    "summarize": (*_COPY, *_DRAFT),
    "rag_qa": (*_COPY, *_DRAFT),
    "structured": _BLOCK,
    "code_gen": _BLOCK,
    "math": _BLOCK,
    "chat": _DRAFT,
    "translate": _DRAFT,
    "creative": ("none",),
    "other": ("eagle3", "mtp", "none"),
}
"""Judgement from the published tables by class; each row is ordered, best first."""


@dataclass(frozen=True, slots=True)
class RulesParameters:
    """What can be set.

    Attributes:
        table: Class to preferred methods or arm ids; a row given here replaces the default row.
        floor: Least probability of every arm.
    """

    table: Mapping[str, Sequence[str]] | None = parameter(None, table)
    floor: float = parameter(0.0, number(0.0, 1.0))


@dataclass(frozen=True, slots=True)
class RulesPolicy:
    """Gives the mass to the first preference of the class that the route has.

    A preference that is an arm id means that arm; one that is a method means the arms of that
    method in equal parts. A class without a row follows the row `other`; when no preference is
    present, the baseline gets the mass.

    Example:
        >>> from policies.types import Arm, ArmId, ArmView, ClassId
        >>> arms = (Arm(ArmId("plain"), "none", baseline=True), Arm(ArmId("fast"), "eagle3"))
        >>> view = ArmView.empty(ClassId("chat"), arms)
        >>> RulesPolicy().propose(view, np.random.default_rng(0)).probabilities
        array([0., 1.])
    """

    table: Mapping[str, Sequence[str]] = field(default_factory=lambda: dict(DEFAULT_TABLE))
    floor: float = 0.0
    name: str = "rules"

    def propose(self, view: ArmView, rng: np.random.Generator) -> Proposal:  # noqa: ARG002
        """Answer the mass of the class's row; scores are ranks in the row, from 0."""
        row = self.table.get(view.class_id) or self.table.get(OTHER, ())
        ranks = np.array([_rank(arm, row) for arm in view.arms], dtype=np.float64)
        best = ranks == ranks.min()
        if not ranks.min() < len(row):
            best = np.arange(len(view.arms)) == view.baseline_index
        p = best / best.sum()
        floor = min(self.floor, 1.0 / len(p))
        return Proposal(with_floor(p, floor), ranks)


def _rank(arm: Arm, row: Sequence[str]) -> int:
    """Position of the first preference that the arm meets; `len(row)` when it meets none."""
    return next((i for i, want in enumerate(row) if want in (arm.arm_id, arm.method)), len(row))


def build_rules(
    parameters: RulesParameters,
    arms: Sequence[Arm],
    classes: Collection[ClassId] | None = None,
) -> RulesPolicy:
    """Build the policy after checking the rows' classes and preferences.

    Args:
        parameters: The decoded parameters.
        arms: The route's arms.
        classes: The classes that exist; None accepts any name.

    Raises:
        ValueError: A class, method or arm is unknown, or the floor is too high for the arms.
    """
    rows = dict(parameters.table or {})
    known_classes = {*DEFAULT_TABLE, *(classes or ())}
    known = {*METHODS, *(arm.method for arm in arms), *(arm.arm_id for arm in arms)}
    for class_id, row in rows.items():
        if classes is not None and class_id not in known_classes:
            hint = suggestion(class_id, known_classes)
            why = f"table has no class {class_id!r}; {hint}"
            raise ParameterError("table", f"policy 'rules': {why}")
        for want in row:
            if want not in known:
                hint = suggestion(want, known)
                why = f"table.{class_id} names {want!r}; {hint}"
                raise ParameterError("table", f"policy 'rules': {why}")
    if parameters.floor * len(arms) > 1.0:
        most = 1 / len(arms)
        raise ParameterError("floor", f"policy 'rules': floor must be within 0..{most:.4g}")
    return RulesPolicy({**DEFAULT_TABLE, **rows}, parameters.floor)
