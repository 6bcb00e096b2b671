"""Classifies by learned weights on top of the rules; learns nothing itself and keeps no text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from router.classify.base import CLASSES, OTHER
from router.classify.expect import copy_ratio, length_band
from router.classify.features import measure
from router.classify.grams import presence
from router.classify.lexicon import built_in
from router.classify.model import Scorer
from router.classify.rules import RULES
from router.classify.vector import FIRST_RULE, vector
from router.classify.view import RequestView, view_request
from router.types import Classification

if TYPE_CHECKING:
    from policies.types import ClassId
    from router.classify.model import Model
    from router.classify.vector import Doubles
    from router.types import ParsedRequest

CONFIDENCE_FLOOR: Final = 0.25
"""Two and a half times as sure as a guess among ten."""
SIDE_REMARK: Final = 0.25
"""Share of the strongest rule's pull below which the wording is not worth naming."""
_RULES: Final = slice(FIRST_RULE, FIRST_RULE + len(RULES))
_NO_TEXT: Final = {**dict.fromkeys(CLASSES, 0.0), OTHER: 1.0}


class TrainedClassifier:
    """Adds what was learned to the votes of the rules.

    Args:
        model: The weights.
        floor: Least probability at which a class is named; below it the answer is `OTHER`.
    """

    def __init__(self, model: Model, floor: float = CONFIDENCE_FLOOR) -> None:
        self._scorer = Scorer(model)
        self._floor = floor
        self._lexicon = built_in()
        # A constant shift of all classes changes no probability, and makes shares comparable.
        ruled = model.dense[_RULES]
        self._pull = np.ascontiguousarray((ruled - ruled.mean(axis=1, keepdims=True)).T)

    def classify(self, request: ParsedRequest) -> Classification:
        """Say what `request` is about."""
        view = view_request(request)
        if not _readable(view):
            return Classification(OTHER, 1.0, _NO_TEXT, "there is no text to read")
        measured = measure(view, self._lexicon)
        inputs = vector(view, measured.features)
        wording = self._scorer.wording(presence(measured.instruction))
        chances = self._scorer.probabilities(inputs, wording)
        top = max(chances)
        best = chances.index(top)
        probabilities: dict[ClassId, float] = dict(zip(CLASSES, chances, strict=True))
        probabilities[OTHER] = 0.0
        if top < self._floor:
            class_id, reason = OTHER, "no class stands out"
        else:
            class_id, reason = CLASSES[best], self._reason(best, inputs, wording)
        return Classification(
            class_id,
            probabilities[class_id],
            probabilities,
            reason,
            copy_ratio(chances, measured.features),
            length_band(chances, view, measured.features),
        )

    def _reason(self, best: int, inputs: Doubles, wording: list[float]) -> str:
        """Name the rule, and the wording, where they speak for a class."""
        shares = inputs[_RULES] * self._pull[best]
        strongest = int(shares.argmax())
        ruled = float(shares[strongest])
        spoken = wording[best] - sum(wording) / len(wording)
        rule = RULES[strongest].reason if ruled > 0.0 else ""
        if spoken <= 0.0 or (rule and spoken < SIDE_REMARK * ruled):
            return rule or "the likeliest by shape and size"
        worded = "wording common for this class"
        if not rule:
            return worded
        pair = (rule, worded) if ruled >= spoken else (worded, rule)
        return "; ".join(pair)


def _readable(view: RequestView) -> bool:
    """Tell whether there is anything to judge by."""
    return bool(view.turn.chars or view.system.chars or view.tool_count or view.constraint)
