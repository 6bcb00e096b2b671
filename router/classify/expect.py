"""Expects how much of an answer repeats the request, and how long it gets; knows no model weights.

No public collection of prompts comes with answers of the served models, so these numbers are
judgements, read off what each kind of answer must contain; the estimates correct them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from router.classify.base import (
    CHAT,
    CODE_EDIT,
    CODE_GEN,
    CREATIVE,
    MATH,
    RAG_QA,
    STRUCTURED,
    SUMMARIZE,
    TEXT_EDIT,
    TRANSLATE,
)

if TYPE_CHECKING:
    from policies.types import ClassId
    from router.classify.features import Features
    from router.classify.view import RequestView
    from router.types import LengthBand

LETTERS_PER_TOKEN: Final = 4.0
LETTERS_PER_TOKEN_DENSE: Final = 1.5
_DENSE: Final = frozenset({"han", "kana", "hangul"})
_BANDS: Final[tuple[tuple[float, LengthBand], ...]] = (
    (64.0, "brief"),
    (256.0, "short"),
    (768.0, "medium"),
)
AGENT_STEP_TOKENS: Final = 160.0
"""A step of an agent is a call with a few lines, not a whole file."""


def copy_ratio(chances: Mapping[ClassId, float], f: Features) -> float:
    """Expect the share of the answer that repeats the request, in [0, 1].

    Args:
        chances: Probability of each class.
        f: What was measured; material to copy from is what most decides.
    """
    given = max(f.material, f.context, f.prior)
    code = max(f.code, f.prior_code, 0.8 * f.fenced)
    mild = min(1.0, f.asked.fix + 0.6 * f.asked.change)
    return min(
        1.0,
        chances[CODE_EDIT] * ((0.35 + 0.45 * max(code, f.infill)) * (1.0 - 0.4 * f.agent))
        + chances[TEXT_EDIT] * (0.35 + 0.35 * given + 0.1 * mild)
        + chances[STRUCTURED] * (0.1 + 0.3 * f.material + 0.15 * max(f.keyed, f.agent))
        + chances[SUMMARIZE] * (0.15 + 0.2 * given)
        + chances[RAG_QA] * (0.15 + 0.25 * given)
        + chances[TRANSLATE] * (0.05 + 0.35 * max(f.keyed, 0.5 * f.code))
        + chances[CODE_GEN] * (0.1 + 0.15 * max(f.code, f.examples, f.prior_code))
        + chances[MATH] * (0.12 + 0.08 * f.choices)
        + chances[CHAT] * (0.05 + 0.1 * code)
        + chances[CREATIVE] * (0.03 + 0.05 * f.material),
    )


def length_band(chances: Mapping[ClassId, float], view: RequestView, f: Features) -> LengthBand:
    """Expect the band of the answer's length; a limit set by the client caps it."""
    letters = LETTERS_PER_TOKEN_DENSE if view.script in _DENSE else LETTERS_PER_TOKEN
    given = max(view.turn.chars, view.prior.chars if f.short else 0) / letters
    code_edit = AGENT_STEP_TOKENS if f.agent or f.coding_tools else 120.0 + min(2000.0, given)
    expected = (
        chances[CODE_EDIT] * code_edit
        + chances[TEXT_EDIT] * (30.0 + min(1500.0, given))
        + chances[TRANSLATE] * (20.0 + min(1500.0, given))
        + chances[STRUCTURED] * (60.0 if f.tools else 80.0 + min(200.0, 0.3 * given))
        + chances[SUMMARIZE] * (60.0 + min(240.0, 0.2 * given))
        + chances[RAG_QA] * 60.0
        + chances[CODE_GEN] * 450.0
        + chances[MATH] * 320.0
        + chances[CHAT] * (60.0 if f.asked.smalltalk > 1.0 - f.short else 350.0)
        + chances[CREATIVE] * 550.0
    )
    if view.output_limit:
        expected = min(expected, float(view.output_limit))
    for bound, band in _BANDS:
        if expected <= bound:
            return band
    return "long"
