"""Brings text of many scripts into one form to match in; knows no words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final

_ACCENT: Final = re.compile("[\u0300-\u036f]")


def _folding() -> dict[int, str | None]:
    """Map what writers of one word differ in: accents, letter variants, digits, joiners."""
    table: dict[int, str | None] = {}
    # Latin letters lose their accents: they are often left out when typing.
    for code in (*range(0xC0, 0x250), *range(0x1E00, 0x1F00)):
        plain = _ACCENT.sub("", unicodedata.normalize("NFD", chr(code)))
        if plain != chr(code):
            table[code] = plain
    # Arabic and Persian keyboards produce different letters for the same sound.
    for variants, letter in (
        ("\u064a\u0649\u06d2\u0626", "\u06cc"),
        ("\u0643", "\u06a9"),
        ("\u0629\u06c0", "\u0647"),
        ("\u0623\u0625\u0622\u0671", "\u0627"),
        ("\u0624", "\u0648"),
        ("\u0451", "\u0435"),
        ("\u0131", "i"),
    ):
        table.update({ord(variant): letter for variant in variants})
    for zero in (0x660, 0x6F0, 0x966):
        table.update({zero + digit: str(digit) for digit in range(10)})
    # Vowel signs, lengthening and joiners are optional in writing. So is a combining accent.
    optional = (*range(0x64B, 0x656), 0x670, 0x640, 0x200B, 0x200C, 0x200D, 0xFEFF)
    table.update(dict.fromkeys((*optional, *range(0x300, 0x370))))
    table.update({ord(quote): "'" for quote in "\u2018\u2019\u02bc"})
    return table


_FOLDING: Final = _folding()

_FEW: Final = 12
"""Up to so many distinct letters, replacing one after the other is quicker than one pass."""


class _Replacement:
    """Replaces single characters; no replacement holds a character that is replaced.

    Args:
        table: Code point → what stands for it, nothing where it is dropped.
    """

    def __init__(self, table: Mapping[int, str | None]) -> None:
        self._table = table
        self._find = re.compile(f"[{''.join(map(re.escape, map(chr, sorted(table))))}]").findall

    def __call__(self, text: str) -> str:
        found = set(self._find(text))
        if len(found) > _FEW:
            return text.translate(self._table)
        for letter in found:
            text = text.replace(letter, self._table[ord(letter)] or "")
        return text


_fold: Final = _Replacement(_FOLDING)
# What compatibility folding would make of them anyway, many times as slowly.
_narrow: Final = _Replacement(
    {
        code: unicodedata.normalize("NFKC", chr(code))
        for code in (*range(0xFF01, 0xFF5F), 0x3000, 0xA0, 0x2026)
    }
)
_ODD_SPACE: Final = "\t\r\v\f\x1c\x1d\x1e\x1f"
_WIDER_ODD_SPACE: Final = "\x85\u1680\u2028\u2029"
"""Space other than blanks and line breaks; with the above, all that folding leaves."""


def normalise(text: str) -> str:
    """Fold case, width, accents and letter variants; line breaks stay, other space is one blank."""
    if text.isascii():
        text = text.lower()
    else:
        text = _fold(unicodedata.normalize("NFKC", _narrow(text.casefold())))
        for space in _WIDER_ODD_SPACE:
            text = text.replace(space, " ")
    for space in _ODD_SPACE:
        if space in text:
            text = text.replace(space, " ")
    # Each round halves the longest run.
    while "  " in text:
        text = text.replace("  ", " ")
    return text
