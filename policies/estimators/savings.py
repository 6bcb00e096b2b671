"""Time saved by answers against what the baseline would have taken. It decides nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.estimators.effects import ArmEffects
from policies.estimators.verdict import TUNED_BLOCKS, TUNED_N, anytime_reach
from policies.types import FloatArray

_MOST_LOG: Final = 20.0


@dataclass(frozen=True, slots=True)
class Range:
    """An estimate and its bounds."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ClassTimes:
    """One class over a stretch of time.

    Attributes:
        effects: Of the arms on log cost over that stretch, estimated with a flat prior.
        time_s: Time of the arms' answers together, in seconds, shape (arms,).
        answers: Answers that it is the time of, shape (arms,).
        tokens: Completion tokens of them; NaN where not all of them told, shape (arms,).
    """

    effects: ArmEffects
    time_s: FloatArray
    answers: FloatArray
    tokens: FloatArray


@dataclass(frozen=True, slots=True)
class Saved:
    """What the arms other than the baseline saved together; negative is time lost.

    Attributes:
        seconds: Of the time of the answers compared; None where data do not bound it.
        gain: The same as a share of what the baseline would have taken.
        tokens_per_s: Tokens per second of answering, more than the baseline would have made; None
            also where an answer did not tell its tokens.
        answers: Answers compared.
        not_compared: Answers of arms and classes that have no concurrent control; in no figure.
        time_s: What the answers compared took.
    """

    seconds: Range | None
    gain: Range | None
    tokens_per_s: Range | None
    answers: int
    not_compared: int
    time_s: float


def saved(classes: Sequence[ClassTimes], level: float = 0.95) -> Saved | None:
    """Add the time saved up over classes and arms.

    With T the time of an arm's answers in a class and d its effect there, the baseline would have
    taken `T exp(-d)`, and all together `B = sum T exp(-d)`; saved are `B - sum T`. To first order
    `log B` is a weighted mean of the `-d`, with weights `p = T exp(-d) / B`, so it is a contrast
    with the variance `sum_c p_c' C_c p_c`, and has the confidence sequence of
    `policies.estimators.verdict.gain_of`. Of one arm in one class the share saved is exactly its
    gain with its interval. Times are taken as they are: what is unsure is what the baseline would
    have taken.

    Args:
        classes: Every class with its arms.
        level: Confidence in (0, 1) that all looks together keep.

    Returns:
        None where no answer of another arm than the baseline has a concurrent control.

    Example:
        >>> effects = ArmEffects(np.array([0.0, -0.5]), np.diag([0.0, 0.006]),
        ...                      np.array([30.0, 58.0]), np.array([0.09, 0.09]),
        ...                      np.array([True, True]), 0)
        >>> times = ClassTimes(effects, np.array([90.0, 60.0]), np.array([50.0, 50.0]),
        ...                    np.array([5e3, 6e3]))
        >>> found = saved([times])
        >>> round(found.seconds.value, 1), round(found.gain.value, 3), round(found.gain.low, 3)
        (38.9, 0.393, 0.222)
        >>> found.answers, round(found.tokens_per_s.value, 1)
        (50, 39.3)
    """
    kept = [_compared(of) for of in classes]
    answers = [float(of.answers[here].sum()) for of, here in zip(classes, kept, strict=True)]
    others = sum(float(of.answers.sum() - of.answers[of.effects.baseline]) for of in classes)
    time_s = sum(float(of.time_s[here].sum()) for of, here in zip(classes, kept, strict=True))
    if not time_s > 0.0:
        return None
    would = [
        of.time_s * np.exp(-np.clip(of.effects.mean, -_MOST_LOG, _MOST_LOG)) * here
        for of, here in zip(classes, kept, strict=True)
    ]
    baseline_s = sum(float(of.sum()) for of in would)
    reach = _reach([of / baseline_s for of in would], classes, level)
    seconds = gain = speed = None
    if reach is not None:
        low, high = baseline_s * math.exp(-reach), baseline_s * math.exp(reach)
        seconds = Range(baseline_s - time_s, low - time_s, high - time_s)
        gain = Range(*(1.0 - time_s / of for of in (baseline_s, low, high)))
        tokens = sum(float(of.tokens[here].sum()) for of, here in zip(classes, kept, strict=True))
        if math.isfinite(tokens):
            speed = Range(*(tokens / time_s - tokens / of for of in (baseline_s, low, high)))
    n = round(sum(answers))
    return Saved(seconds, gain, speed, n, max(round(others) - n, 0), time_s)


def _compared(of: ClassTimes) -> NDArray[np.bool_]:
    """Which arms have a concurrent control, and answers to speak of."""
    here: NDArray[np.bool_] = of.effects.identified & (of.answers > 0.0) & (of.time_s > 0.0)
    here[of.effects.baseline] = False
    return here


def _reach(
    weights: Sequence[FloatArray], classes: Sequence[ClassTimes], level: float
) -> float | None:
    """Half width of the interval of the weighted mean effect; None where there is no bound."""
    variance = unit = shaky = 0.0
    for p, of in zip(weights, classes, strict=True):
        effects, used = of.effects, p > 0.0
        if not used.any():
            continue
        known, base = p[used], effects.baseline
        mine = float(known @ effects.covariance[np.ix_(used, used)] @ known)
        variance += mine
        unit += float((known**2 * effects.noise[used]).sum())
        unit += float(known.sum()) ** 2 * float(effects.noise[base])
        both = float((known**2).sum()) + float(known.sum()) ** 2
        unit += both * effects.shared.variance * TUNED_N / TUNED_BLOCKS
        # Satterthwaite (1946), arms within a class as if they were independent.
        own = known**2 * np.diagonal(effects.covariance)[used]
        parts = float((own**2 / effects.df[used]).sum()) / max(float(own.sum()) ** 2, 1e-300)
        shaky += mine**2 * parts
    if not variance > 0.0:
        return None
    return anytime_reach(variance, variance**2 / shaky, unit, level)
