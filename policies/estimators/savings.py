"""Time saved by answers against what the baseline would have taken. It decides nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

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
    """One class, or a part of one with effects of its own, over a stretch of time.

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
        not_compared: Answers of arms and classes, or of parts, that have no concurrent control; in
            no figure.
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
    gain with its interval. Of several, noise in the `d` raises `log B`, to second order by
    `(sum p diag(C) - variance) / 2`, which is taken off: of a class of many small parts it would
    be some hundredths. Times are taken as they are: what is unsure is what the baseline would have
    taken.

    Args:
        classes: Every class with its arms, or its parts, each by itself; all with the same arms.
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
    if not classes:
        return None
    effects = [of.effects for of in classes]
    time_s, answers, tokens = (
        np.stack([getattr(of, name) for of in classes]) for name in ("time_s", "answers", "tokens")
    )
    here = np.stack([of.identified for of in effects]) & (answers > 0.0) & (time_s > 0.0)
    base = effects[0].baseline
    here[:, base] = False
    took = float(time_s[here].sum())
    if not took > 0.0:
        return None
    mean = np.clip(np.stack([of.mean for of in effects]), -_MOST_LOG, _MOST_LOG)
    would = np.where(here, time_s * np.exp(-mean), 0.0)
    share = would / would.sum()
    known = _known(share, effects, level)
    seconds = gain = speed = None
    if known is not None:
        value = float(would.sum()) * math.exp(-known.excess)
        low, high = value * math.exp(-known.reach), value * math.exp(known.reach)
        seconds = Range(value - took, low - took, high - took)
        gain = Range(*(1.0 - took / of for of in (value, low, high)))
        made = float(tokens[here].sum())
        if math.isfinite(made):
            speed = Range(*(made / took - made / of for of in (value, low, high)))
    n = round(float(answers[here].sum()))
    others = round(float(answers.sum() - answers[:, base].sum()))
    return Saved(seconds, gain, speed, n, max(others - n, 0), took)


@dataclass(frozen=True, slots=True)
class _Known:
    """How well the log of what the baseline would have taken is known.

    Attributes:
        reach: Half width of its interval.
        excess: By how much noise raises its estimate.
    """

    reach: float
    excess: float


def _known(share: FloatArray, effects: Sequence[ArmEffects], level: float) -> _Known | None:
    """Of the weighted mean effect, weights of shape (classes, arms); None where it has no bound."""
    used, base = share > 0.0, effects[0].baseline
    covariance = np.where(
        used[:, :, None] & used[:, None, :], np.stack([of.covariance for of in effects]), 0.0
    )
    noise, df = np.stack([of.noise for of in effects]), np.stack([of.df for of in effects])
    apart = np.stack([of.covariance if of.own is None else of.own for of in effects])
    apart = np.where(used[:, :, None] & used[:, None, :], apart, 0.0)
    whole = np.einsum("ca,cab,cb->c", share, covariance, share)
    mine = np.minimum(np.einsum("ca,cab,cb->c", share, apart, share), whole)
    # What answers of a moment share, those of all parts and classes do: it does not average out.
    common = float(np.sqrt(np.maximum(whole - mine, 0.0)).sum()) ** 2
    variance = float(mine.sum()) + common
    if not variance > 0.0:
        return None
    moments = np.sqrt([of.shared.variance * TUNED_N / TUNED_BLOCKS for of in effects])
    by_arm = moments @ share
    unit = float((share**2 * noise).sum() + (share.sum(axis=1) ** 2 * noise[:, base]).sum())
    unit += float((by_arm**2).sum() + by_arm.sum() ** 2)
    # Satterthwaite (1946), arms within a class as if they were independent.
    alone = np.diagonal(covariance, axis1=1, axis2=2)
    own = share**2 * alone
    parts = (own**2 / df).sum(axis=1) / np.maximum(own.sum(axis=1) ** 2, 1e-300)
    moment_df = min((of.shared.df for of in effects if of.shared.variance), default=1.0)
    shaky = float((mine**2 * parts).sum()) + common**2 / moment_df
    reach = anytime_reach(variance, variance**2 / shaky, unit, level)
    if reach is None:
        return None
    return _Known(reach, 0.5 * max(float((share * alone).sum()) - variance, 0.0))
