"""Lays the measurements of a request out as the input of the learned model; weighs nothing."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from router.classify.features import CueStrengths, Features
from router.classify.rules import RULES, evidence

if TYPE_CHECKING:
    from router.classify.view import RequestView

Doubles = NDArray[np.float64]

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

_NO_MARKS: Final = (0.0,) * len(_SCRIPTS)
_SCRIPT_MARKS: Final = {
    script: tuple(float(script == other) for other in _SCRIPTS) for script in _SCRIPTS
}

FIRST_RULE: Final = len(_CUES) + len(_MEASURES)


_pack: Final = struct.Struct(f"{len(NAMES)}d").pack
_ROUNDER: Final = 1.5 * 2.0**42
"""Doubles of this size are multiples of 2 ** -10: adding it and taking it away rounds."""


def vector(view: RequestView, features: Features) -> Doubles:
    """Return one number for each of `NAMES`, multiples of 2 ** -10.

    The rules' strengths are among them: products of features that a linear model cannot form.
    """
    packed = _pack(
        *features[0],
        *features[1:],
        *evidence(features),
        math.log1p(view.turn.chars),
        math.log1p(view.system.chars),
        "assistant" in view.roles,
        *_SCRIPT_MARKS.get(view.script, _NO_MARKS),
    )
    numbers = np.frombuffer(packed)
    return (numbers + _ROUNDER) - _ROUNDER
