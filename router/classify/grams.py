"""Turns an instruction into hashed pieces of words; keeps none of the words."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

BITS: Final = 12
"""Two to this power is the number of buckets."""
LONGEST: Final = 5
"""Characters of the longest pieces; the shortest have two, which are words in Han script."""

_STEP: Final = np.uint32(0x01000193)
_SPREAD: Final = np.uint32(0x9E3779B1)
_SHIFT: Final = np.uint32(32 - BITS)


def presence(text: str) -> NDArray[np.float32]:
    """Mark the buckets of every piece of two to `LONGEST` characters of normalised `text`.

    A piece counts once however often it stands there, so no repetition outweighs the rest.

    Args:
        text: The instruction, bounded by the caller; its ends count as blanks.

    Returns:
        Ones and zeros of shape (2 ** BITS,); at least one is set.
    """
    letters = f" {text} ".encode("utf-32-le", "surrogatepass")
    # The hash is linear, so what spreads it over the upper bits may as well be multiplied first.
    codes = np.frombuffer(letters, dtype="<u4") * _SPREAD
    marks = np.zeros(2**BITS, dtype=np.float32)
    rolling = codes
    pieces = []
    for length in range(2, min(LONGEST, len(codes)) + 1):
        # Rolling from the last length: the hash so far, moved on by one character.
        rolling = rolling[:-1] * _STEP
        rolling += codes[length - 1 :]
        pieces.append(rolling)
    hashes = np.concatenate(pieces)
    hashes >>= _SHIFT
    # Indices of numpy's own kind spare it a slower conversion.
    marks[hashes.astype(np.intp)] = 1.0
    return marks
