"""Brings text of many scripts into one form to match in; knows no words."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

import numpy as np
from numpy.typing import NDArray

_ACCENT: Final = re.compile("[\u0300-\u036f]")
"""Accents that stand beside their letter: dropped, unless the two have a letter of their own."""
_PLANE: Final = 0x10000


def _folding() -> NDArray[np.uint16]:
    """Map what writers of one word differ in: case, width, accents, letter variants, digits.

    Zero stands for what is dropped.
    """
    table = np.arange(_PLANE, dtype=np.uint16)

    def put(variants: str, letter: str) -> None:
        table[list(map(ord, variants))] = ord(letter)

    for code in (*range(0x80, 0x2000), *range(0x2C00, 0x2E00), *range(0xA640, 0xA800)):
        folded = chr(code).casefold()
        if len(folded) == 1 and ord(folded) < _PLANE:
            table[code] = ord(folded)
    # Latin letters lose their accents: they are often left out when typing.
    for code in (*range(0xC0, 0x250), *range(0x1E00, 0x1F00)):
        plain = _ACCENT.sub("", unicodedata.normalize("NFD", chr(code).casefold()))
        if len(plain) == 1:
            table[code] = ord(plain)
    # Full width.
    table[0xFF01:0xFF5F] = [ord(chr(code).lower()) for code in range(0x21, 0x7F)]
    # Arabic and Persian keyboards produce different letters for the same sound.
    put("\u064a\u0649\u06d2\u0626", "\u06cc")
    put("\u0643", "\u06a9")
    put("\u0629\u06c0\u06d5", "\u0647")
    put("\u0623\u0625\u0622\u0671", "\u0627")
    put("\u0624", "\u0648")
    put("\u0401\u0451", "\u0435")
    put("\u0131", "i")
    for zero in (0x660, 0x6F0, 0x966):
        table[zero : zero + 10] = range(ord("0"), ord("9") + 1)
    # Vowel signs, lengthening and joiners are optional in writing.
    table[0x64B:0x656] = 0
    put("\u0670\u0640\u200b\u200c\u200d\ufeff", "\0")
    # Marks say the same in every script.
    put("\u2018\u2019\u02bc\u201b", "'")
    put("\u201c\u201d\u201e\u00ab\u00bb\u300c\u300d\u300e\u300f\u300a\u300b", '"')
    put("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    put("\u060c\u3001", ",")
    put("\u061b", ";")
    put("\u061f", "?")
    put("\u06d4\u3002\u0964\u2026", ".")
    put("\u00bf\u00a1\u2022\u00b7\u30fb\u3010\u3011", " ")
    # Space other than line breaks.
    put("\u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000", " ")
    table[0x2000:0x200B] = ord(" ")
    table[:0x80] = np.frombuffer(_PLAIN[:0x80], dtype=np.uint8)
    return table


_ODD_SPACE: Final = b"\t\r\v\f\x1c\x1d\x1e\x1f"
_PLAIN: Final = bytes(ord(" ") if code in _ODD_SPACE else code for code in range(256)).lower()
"""Lower case and plain space for ASCII."""
_FOLDING: Final = _folding()
_CODE: Final = np.dtype("<u2")

_UNSPACED_LETTER: Final = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_SPACED_WORD: Final = re.compile("([0-9a-z_+#][!-~]*)")


def normalise(text: str, *, unspaced: bool | None = None) -> str:
    """Fold case, width, accents, marks and letter variants, and part words from ideographs.

    Line breaks stay, other space is one blank.

    Args:
        text: Anything.
        unspaced: Whether it is in a script without blanks; looked for where it is not known.
    """
    if text.isascii():
        # By way of bytes: one table does for case and space.
        text = text.encode("ascii").translate(_PLAIN).decode("ascii")
    else:
        text = _fold(text)
        if not unicodedata.is_normalized("NFKC", text):
            text = _fold(_ACCENT.sub("", unicodedata.normalize("NFKC", text)))
        if _UNSPACED_LETTER.search(text) if unspaced is None else unspaced:
            # "Python" is a word in Chinese text too.
            text = " ".join(_SPACED_WORD.split(text))
    # Each round halves the longest run.
    while "  " in text:
        text = text.replace("  ", " ")
    return text


def _fold(text: str) -> str:
    """Replace characters one by one; those beyond the first plane stay."""
    if "\u00df" in text or "\u1e9e" in text:
        text = text.replace("\u00df", "ss").replace("\u1e9e", "ss")
    codes = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), _CODE)
    folded = _FOLDING.take(codes).tobytes().decode("utf-16-le", "surrogatepass")
    return folded.replace("\0", "")


_WORD_MARKS: Final = b"_+#:"
"""Kept beside letters and digits: "C++", "C#" and "Context:" are other words than without."""
_SPACED: Final = bytes(
    code if code > 127 or bytes((code,)).isalnum() or code in _WORD_MARKS else ord(" ")  # noqa: PLR2004
    for code in range(256)
)


def words_of(text: str) -> str:
    """Replace all that belongs to no word of normalised `text` by as many blanks."""
    return text.encode("utf-8", "replace").translate(_SPACED).decode("utf-8")
