"""Expects how much of an answer repeats the request, and how long it gets; knows no model weights.

No public collection of prompts comes with answers of the served models, so these numbers are
judgements, read off what each kind of answer must contain; the estimates correct them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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


def copy_ratio(chances: Sequence[float], f: Features) -> float:
    """Expect the share of the answer that repeats the request, in [0, 1].

    Args:
        chances: Probability of each of `CLASSES`.
        f: What was measured; material to copy from is what most decides.
    """
    (
        edited, written, calculated, structured, reworded, summarized, answered, translated,
        talked, invented,
    ) = chances  # fmt: skip
    given = max(f.material, f.context, f.prior)
    code = max(f.code, f.prior_code, 0.8 * f.fenced)
    mild = min(1.0, f.asked.fix + 0.6 * f.asked.change)
    return min(
        1.0,
        edited * ((0.35 + 0.45 * max(code, f.infill)) * (1.0 - 0.4 * f.agent))
        + reworded * (0.35 + 0.35 * given + 0.1 * mild)
        + structured * (0.1 + 0.3 * f.material + 0.15 * max(f.keyed, f.agent))
        + summarized * (0.15 + 0.2 * given)
        + answered * (0.15 + 0.25 * given)
        + translated * (0.05 + 0.35 * max(f.keyed, 0.5 * f.code))
        + written * (0.1 + 0.15 * max(f.code, f.examples, f.prior_code))
        + calculated * (0.12 + 0.08 * f.choices)
        + talked * (0.05 + 0.1 * code)
        + invented * (0.03 + 0.05 * f.material),
    )


def length_band(chances: Sequence[float], view: RequestView, f: Features) -> LengthBand:
    """Expect the band of the answer's length; a limit set by the client caps it.

    Args:
        chances: Probability of each of `CLASSES`.
        view: Says how much text there is, and the limit.
        f: What was measured.
    """
    (
        edited, written, calculated, structured, reworded, summarized, answered, translated,
        talked, invented,
    ) = chances  # fmt: skip
    letters = LETTERS_PER_TOKEN_DENSE if view.script in _DENSE else LETTERS_PER_TOKEN
    given = max(view.turn.chars, view.prior.chars if f.short else 0) / letters
    code_edit = AGENT_STEP_TOKENS if f.agent or f.coding_tools else 120.0 + min(2000.0, given)
    expected = (
        edited * code_edit
        + reworded * (30.0 + min(1500.0, given))
        + translated * (20.0 + min(1500.0, given))
        + structured * (60.0 if f.tools else 80.0 + min(200.0, 0.3 * given))
        + summarized * (60.0 + min(240.0, 0.2 * given))
        + answered * 60.0
        + written * 450.0
        + calculated * 320.0
        + talked * (60.0 if f.asked.smalltalk > 1.0 - f.short else 350.0)
        + invented * 550.0
    )
    if view.output_limit:
        expected = min(expected, float(view.output_limit))
    for bound, band in _BANDS:
        if expected <= bound:
            return band
    return "long"
