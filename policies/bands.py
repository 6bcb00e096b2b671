"""Bands of prompts: what answers are kept by, so that they can be given again.

It knows no arm and decides nothing.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from policies.knowledge import Moment

_MOST_TOKENS: Final = 1e7
_MOST_WAIT_S: Final = 1e4
MIDDLES: Final = tuple((np.exp2(np.arange(24 * 8) / 8.0) - 1.0).tolist())
"""Tokens in the middle of each band of prompts, eight to a doubling."""


def prompt_bands(moment: Moment) -> tuple[int, ...]:
    """The band of what each arm has to prefill."""
    prompt, cached = min(max(moment.prompt_tokens, 0), _MOST_TOKENS), moment.cached_tokens
    if any(cached):
        return tuple(
            [round(8.0 * math.log2(1.0 + max(prompt - max(held, 0), 0))) for held in cached]
        )
    return (round(8.0 * math.log2(1.0 + prompt)),) * len(cached)


def ahead_bands(moment: Moment) -> tuple[int, ...]:
    """The band of what is to be prefilled before, on each arm."""
    if any(moment.ahead_tokens):
        tokens = [min(max(ahead, 0), _MOST_TOKENS) for ahead in moment.ahead_tokens]
        return tuple([round(8.0 * math.log2(1.0 + ahead)) for ahead in tokens])
    return (0,) * len(moment.load)


def waited_bands(moment: Moment, long_s: float, prompt_s: float) -> tuple[int, ...]:
    """The band of what the first in line has waited on each arm, in milliseconds.

    Args:
        moment: The moment.
        long_s: What is no longer than this says nothing.
        prompt_s: Seconds of a token of a prompt: nor does what the prompts in line explain.
    """
    waited = moment.waited_s
    if not (waited and max(waited) > long_s):
        return (0,) * len(moment.load)
    ahead = moment.ahead_tokens or (0,) * len(waited)
    return tuple(
        [
            round(8.0 * math.log2(1.0 + 1e3 * min(seconds, _MOST_WAIT_S)))
            if seconds > max(long_s, prompt_s * tokens)
            else 0
            for seconds, tokens in zip(waited, ahead, strict=True)
        ]
    )
