"""Weights of a stretch of time by its age. Ages come in as numbers; no clock is read."""

from __future__ import annotations

import math


def exponential_weight(age_s: float, half_life_s: float) -> float:
    """Weight 2^(-age / half-life) of an observation.

    The discount gamma of Garivier and Moulines (2011, arXiv 0805.3415) in wall time:
    gamma = 2^(-dt/h), applied on reading.

    Args:
        age_s: Age in seconds; the future counts as age 0.
        half_life_s: Seconds in which the weight halves, above 0; infinity never forgets.

    Returns:
        Weight in [0, 1].

    Raises:
        ValueError: The half-life is not above 0, or the age is NaN.

    Example:
        >>> exponential_weight(600.0, 300.0)
        0.25
    """
    if not half_life_s > 0.0:
        raise ValueError(f"half_life_s must be above 0, not {half_life_s}")
    if math.isnan(age_s):
        raise ValueError("age_s must be a number, not NaN")
    age = max(age_s, 0.0)
    if math.isinf(half_life_s):
        return 1.0
    return float(2.0 ** (-age / half_life_s))


def rectangular_weight(age_s: float, window_s: float) -> float:
    """Weight 1 inside the window, 0 outside (sliding window, Garivier and Moulines 2011).

    Args:
        age_s: Age in seconds; the future counts as inside.
        window_s: Length of the window in seconds, above 0.

    Raises:
        ValueError: The window is not above 0, or the age is NaN.

    Example:
        >>> rectangular_weight(10.0, 60.0), rectangular_weight(60.0, 60.0)
        (1.0, 0.0)
    """
    if not window_s > 0.0:
        raise ValueError(f"window_s must be above 0, not {window_s}")
    if math.isnan(age_s):
        raise ValueError("age_s must be a number, not NaN")
    return 1.0 if age_s < window_s else 0.0
