from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.classify.text import normalise, words_of


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
        ("\u00abStra\u00dfe\u00bb", '"strasse"'),
        ("\u0686\u0631\u0627\u061f", "\u0686\u0631\u0627?"),
        ("\u5199\u3002", "\u5199."),
        ("\U0001d413o", "to"),
        ("\u0438\u0306", "\u0439"),
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


def test_words_are_set_apart_from_ideographs() -> None:
    """A Latin word in Chinese text is a word of its own, whether the script is known or not."""
    assert normalise("\u7528Python\u5199") == "\u7528 python \u5199"
    assert normalise("\u7528Python\u5199", unspaced=True) == normalise("\u7528Python\u5199")


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_words_stay_where_they_are(text: str) -> None:
    """What belongs to no word becomes a blank, character by character."""
    folded = normalise(text)
    words = words_of(folded)
    assert len(words) == len(folded)
    assert all(word in (letter, " ") for word, letter in zip(words, folded, strict=True))


def test_marks_that_make_another_word_are_kept() -> None:
    """C++ is not C, and a word before a colon is a label."""
    assert words_of("c++, c# (context: a_b)") == "c++  c#  context: a_b "
