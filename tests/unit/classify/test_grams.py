from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from router.classify.grams import BITS, presence


def test_repetition_counts_once() -> None:
    """A word said a hundred times marks what it marks said twice."""
    assert np.array_equal(presence("ab " * 100), presence("ab " * 2))


def test_order_of_letters_matters() -> None:
    """Pieces are sequences, not bags of letters."""
    assert not np.array_equal(presence("stop"), presence("post"))


def test_hash_is_fixed() -> None:
    """Weights are stored by bucket, so a piece must fall into the same one on every machine."""
    assert np.flatnonzero(presence("")).tolist() == [408]


@given(st.text(st.characters(codec=None, exclude_categories=()), max_size=200))
def test_any_text_marks_something(text: str) -> None:
    """Any text, lone surrogates included, has at least one piece."""
    marks = presence(text)
    assert marks.shape == (2**BITS,)
    assert marks.sum() >= 1


def test_short_texts_have_pieces_to_their_end() -> None:
    """The last letters are marked as those before them are: "ab" is part of "ab" and of "abc"."""
    ab, abc = (set(np.flatnonzero(presence(text)).tolist()) for text in ("ab", "abc"))
    assert len(ab) == 5
    assert ab & abc
