from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.classify.text import normalise


@pytest.mark.parametrize(
    ("written", "folded"),
    [
        ("TRADUCCI\u00d3N", "traduccion"),
        ("e\u0301te\u0301", "ete"),
        ("\uff33\uff31\uff2c", "sql"),
        ("\u0643\u064a", "\u06a9\u06cc"),
        ("\u0645\u06cc\u200c\u0634\u0648\u062f", "\u0645\u06cc\u0634\u0648\u062f"),
        ("\u0643\u0650\u062a\u0627\u0628", "\u06a9\u062a\u0627\u0628"),
        ("\u06f1\u06f2 \u0663", "12 3"),
        ("\u0401\u0436", "\u0435\u0436"),
        ("a\t b \u00a0c\nd", "a b c\nd"),
        ("don\u2019t", "don't"),
    ],
)
def test_writings_of_one_word_become_one(written: str, folded: str) -> None:
    """Case, accents, width, letter variants, digits and joiners do not tell words apart."""
    assert normalise(written) == folded


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_total_and_stable_over_any_text(text: str) -> None:
    """Any text, lone surrogates included, is folded without error and the same way twice."""
    assert normalise(text) == normalise(text)


def test_many_kinds_of_letters_fold_as_few_do() -> None:
    """How many different letters have to be replaced does not change what they become."""
    letters = "".join(map(chr, (*range(0xC0, 0x250), *range(0x621, 0x64B), *range(0x6F0, 0x6FA))))
    wide = "".join(map(chr, range(0xFF01, 0xFF5F)))
    for text in (letters, wide):
        assert normalise(text) == "".join(map(normalise, text))


def test_long_runs_of_space_are_one_blank() -> None:
    """Blanks, tabs and rarer space of any length are squeezed, line breaks are not."""
    assert normalise("a" + " " * 1001 + "\t\x85\u2028 b \n\n c\u1680") == "a b \n\n c "
