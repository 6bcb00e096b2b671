"""What a request cost: log time, and what it may be compared with. It aggregates nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from policies.types import OK, ClassId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policies.types import Trial

TYPICAL_TOKENS: Mapping[ClassId, int] = {
    ClassId("code_edit"): 400,
    ClassId("code_gen"): 500,
    ClassId("math"): 600,
    ClassId("structured"): 150,
    ClassId("text_edit"): 250,
    ClassId("summarize"): 200,
    ClassId("rag_qa"): 200,
    ClassId("translate"): 200,
    ClassId("chat"): 300,
    ClassId("creative"): 700,
    ClassId("other"): 300,
}
"""Typical completion tokens of a class. Judgements: round numbers near the output lengths of public
chat and benchmark prompts. They only set how TTFT weighs against TPOT, alike for every arm."""

_OTHER_TOKENS = TYPICAL_TOKENS[ClassId("other")]

MIN_STREAM_TOKENS = 16
"""Judgement: below it TPOT rests on a handful of steps, and TTFT dominates."""

MAX_TOKENS = 10_000_000
"""A longer answer is a lie of the engine."""

LOG_COST_RANGE = (math.log(1e-4), math.log(1e5))
"""Log seconds; what lies outside is clipped, so an absurd record moves a mean by a bounded step."""

_LOWEST, _HIGHEST = LOG_COST_RANGE

STREAM_KIND = "s"
MAX_BAND = 20
_WHOLE_KINDS = tuple(f"w{band}" for band in range(MAX_BAND + 1))

KINDS = (STREAM_KIND, *_WHOLE_KINDS)
"""All kinds of strata."""

UNKNOWN_LENGTH = "x"
LENGTH_BANDS = (*(str(band) for band in range(MAX_BAND + 1)), UNKNOWN_LENGTH)
"""Bands of lengths of answers: powers of two, as in the kinds of strata, and what is not known."""


def typical_tokens(class_id: ClassId) -> int:
    """Typical completion tokens of the class; an unknown class takes `other`.

    Example:
        >>> typical_tokens(ClassId("structured"))
        150
    """
    return TYPICAL_TOKENS.get(class_id, _OTHER_TOKENS)


def known_duration(seconds: float | None) -> float | None:
    """Return a duration that can be true: finite and above 0; else None.

    Example:
        >>> known_duration(0.5), known_duration(-1.0), known_duration(float("nan"))
        (0.5, None, None)
    """
    if seconds is None or not 0.0 < seconds < math.inf:
        return None
    return float(seconds)


def known_tokens(trial: Trial) -> int | None:
    """Completion tokens if the number can be true; else None."""
    return trial.tokens if trial.tokens is not None and 0 < trial.tokens <= MAX_TOKENS else None


def length_band(tokens: int | None) -> str:
    """Band of an answer's length: floor(log2(tokens)).

    Example:
        >>> length_band(1), length_band(255), length_band(None)
        ('0', '7', 'x')
    """
    if tokens is None:
        return UNKNOWN_LENGTH
    return LENGTH_BANDS[min(tokens.bit_length() - 1, MAX_BAND)]


def log_cost(trial: Trial, typical_tokens: int) -> tuple[str, float] | None:
    """Log cost of a trial and the kind of stratum it may be compared in.

    A stream of at least 16 tokens has kind `"s"` and
    `y = ln(ttft + (n_c - 1) tpot)`: the time the class's typical answer would have taken. An answer
    that came whole, or a short one, has kind `"w<band>"`, `band = floor(log2(tokens))`, and
    `y = ln(e2e / tokens)`: it is compared only with answers of like length. Lossless speculation
    does not change lengths, so stratifying by length takes nothing from an arm.

    Args:
        trial: A finished request.
        typical_tokens: n_c, the class's typical completion tokens.

    Returns:
        (kind, y in log seconds, clipped to ln 1e-4 .. ln 1e5), or None when the request did not
        end well or a needed figure is missing or cannot be true.

    Example:
        >>> from policies.types import ArmId, Trial
        >>> trial = Trial(ClassId("chat"), ArmId("a"), OK, True, 1.0,
        ...               ttft_s=0.2, tpot_s=0.01, e2e_s=1.2, tokens=101)
        >>> kind, y = log_cost(trial, 101)
        >>> kind, round(math.exp(y), 6)
        ('s', 1.2)
    """
    tokens = known_tokens(trial)
    if trial.status is not OK or tokens is None:
        return None
    ttft, tpot = known_duration(trial.ttft_s), known_duration(trial.tpot_s)
    if trial.streamed and tokens >= MIN_STREAM_TOKENS and ttft is not None and tpot is not None:
        return STREAM_KIND, _clipped_log(ttft + (typical_tokens - 1) * tpot)
    e2e = known_duration(trial.e2e_s)
    if e2e is None:
        return None
    return _WHOLE_KINDS[min(tokens.bit_length() - 1, MAX_BAND)], _clipped_log(e2e / tokens)


def _clipped_log(seconds: float) -> float:
    y = math.log(seconds) if seconds > 0.0 else _LOWEST
    return y if _LOWEST <= y <= _HIGHEST else min(max(y, _LOWEST), _HIGHEST)
