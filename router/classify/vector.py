"""Lays the measurements of a request out as the input of the learned model; weighs nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from router.classify.features import CueStrengths, Features
from router.classify.rules import RULES, evidence

if TYPE_CHECKING:
    from router.classify.view import RequestView

_CUES: Final = CueStrengths._fields
_MEASURES: Final = Features._fields[1:]
"""All but `asked`, which stands first."""
_SCRIPTS: Final = ("latin", "cyrillic", "arabic", "han", "kana")
_ASIDES: Final = ("turn_size", "system_size", "conversation", *_SCRIPTS)

NAMES: Final = (
    *(f"cue:{name}" for name in _CUES),
    *(f"measure:{name}" for name in _MEASURES),
    *(f"rule:{rule.reason}" for rule in RULES),
    *_ASIDES,
)
"""What each position holds; stored beside weights, which fit no other layout."""

FIRST_RULE: Final = len(_CUES) + len(_MEASURES)


def vector(view: RequestView, features: Features) -> list[float]:
    """Return one number for each of `NAMES`.

    The rules' strengths are among them: products of features that a linear model cannot form.
    """
    return [
        *features.asked,
        *features[1:],
        *evidence(features).values(),
        math.log1p(view.turn.chars),
        math.log1p(view.system.chars),
        float("assistant" in view.roles),
        *[float(view.script == script) for script in _SCRIPTS],
    ]
