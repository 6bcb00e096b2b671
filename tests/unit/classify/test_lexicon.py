from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.classify.features import CueStrengths
from router.classify.lexicon import Cue, Lexicon, built_in
from router.classify.text import normalise

CUES = tuple(Cue)


def found(lexicon: Lexicon, text: str) -> list[tuple[str, int]]:
    """Cues with their places."""
    return [(CUES[cue].value, at) for at, cues in lexicon.scan(normalise(text)) for cue in cues]


@pytest.fixture
def small() -> Lexicon:
    return Lexicon(
        {
            "fix": {"en": "fix, repair*"},
            "code": {"en": "fix point, c++", "zh": "\u4ee3\u7801"},
            "make": {"en": "repair*"},
        }
    )


def test_longest_term_wins(small: Lexicon) -> None:
    """A phrase is preferred to a word that it begins with."""
    assert found(small, "fix point") == [("code", 0)]
    assert found(small, "fix points") == [("fix", 0)]


def test_terms_are_whole_words_unless_starred(small: Lexicon) -> None:
    """Only a star lets a term go on, and none begins inside a word."""
    assert found(small, "prefix fixed repairing") == [("fix", 13), ("make", 13)]


def test_ideographs_do_not_extend_words(small: Lexicon) -> None:
    """Scripts without blanks match anywhere, and leave Latin words beside them whole."""
    assert found(small, "\u5728C++\u4ee3\u7801fix\u4e2d") == [("code", 2), ("code", 7), ("fix", 9)]


def test_longest_term_of_a_place_without_blanks() -> None:
    """A term of one letter is found where no longer one begins, inside others as well."""
    words = {"make": {"zh": "\u5199, \u5199\u8bd7, \u5199\u8bd7\u6b4c"}, "code": {"zh": "\u8bd7"}}
    found_in = found(Lexicon(words), "\u5199\u8bd7\u6b4c\u5199\u5199\u8bd7\u8bd7")
    assert found_in == [
        ("make", 1),
        ("code", 2),
        ("make", 4),
        ("make", 5),
        ("code", 6),
        ("code", 7),
    ]


def test_cues_are_the_fields_of_the_strengths() -> None:
    """Strengths are filled by position, so the order of cues is the order of fields."""
    assert [cue.value for cue in Cue] == list(CueStrengths._fields)


@pytest.mark.parametrize(
    ("text", "cue"),
    [
        ("Please TRANSLATE it", "translate"),
        ("zusammenfassen", "summarize"),
        ("\u062e\u0644\u0627\u0635\u0647 \u0643\u0646", "summarize"),
        ("\u0644\u062e\u0651\u0635", "summarize"),
        ("\u7ffb\u8b6f", "translate"),
        ("\u8981\u7d04\u3057\u3066", "summarize"),
        ("traduccion", "translate"),
    ],
)
def test_built_in_words_are_found(text: str, cue: str) -> None:
    """The package's own words are found in their usual writings."""
    assert cue in [name for name, _ in found(built_in(), text)]


@given(st.text(max_size=300))
def test_places_are_inside_and_rise(text: str) -> None:
    """Hits come from left to right and lie inside the text, whatever it is."""
    folded = normalise(text)
    places = [at for at, _ in built_in().scan(folded)]
    assert places == sorted(set(places))
    assert all(0 <= at <= len(folded) for at in places)


def test_compiling_takes_little_time() -> None:
    """A router starts in a fraction of a second: no term may bring a set of letters of its own."""
    before = time.process_time()
    built_in.__wrapped__()
    # Measured at 0.15; a set for each term took 3.
    assert time.process_time() - before < 1.0
