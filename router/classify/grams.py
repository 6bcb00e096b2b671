"""Turns an instruction into hashed pieces of words; keeps none of the words."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

BITS: Final = 12
"""Two to this power is the number of buckets."""
LENGTHS: Final = (2, 4)
"""Characters of the pieces: two are a word in Han script, four the stem of one in an alphabet."""

_LONGEST: Final = max(LENGTHS)
_CODE: Final = np.dtype("<u2")
_STRIDES: Final = (_CODE.itemsize, _CODE.itemsize)
_SHIFT: Final = np.uint16(8 * _CODE.itemsize - BITS)
_FACTORS: Final = (0x9E37, 0x6A95, 0xC2B3, 0x85EB)
"""Odd numbers that spread characters over the upper bits, one for each place in a piece."""
_HASHING: Final = np.array(
    [
        [factor if place < length else 0 for length in LENGTHS]
        for place, factor in enumerate(_FACTORS)
    ],
    dtype=_CODE,
)
_PADDING: Final = "\0" * (_LONGEST - min(LENGTHS))
"""Adds nothing to a hash, so that the end of the text has pieces too."""


def presence(text: str) -> NDArray[np.float32]:
    """Mark the buckets of every piece of normalised `text`.

    A piece counts once however often it stands there, so no repetition outweighs the rest.

    Args:
        text: The instruction, bounded by the caller; its ends count as blanks.

    Returns:
        Ones and zeros of shape (2 ** BITS,); at least one is set.
    """
    letters = f" {text} {_PADDING}".encode("utf-16-le", "surrogatepass")
    count = len(letters) // _CODE.itemsize - _LONGEST + 1
    # Each row is the piece that begins there: one product hashes them all, modulo 2 ** 16.
    pieces = np.ndarray((count, _LONGEST), _CODE, letters, 0, _STRIDES)
    hashes = np.matmul(pieces, _HASHING)
    hashes >>= _SHIFT
    marks = np.zeros(2**BITS, dtype=np.float32)
    # Indices of numpy's own kind spare it a slower conversion.
    marks[hashes.astype(np.intp)] = 1.0
    return marks
