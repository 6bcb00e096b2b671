"""What simulated engines write."""

from __future__ import annotations

import json

import pytest

from policies.types import ClassId
from router.simfleet.words import Words, arguments, digest


def test_a_token_is_a_word() -> None:
    """The first without a space before it, so that the text reads as one."""
    words = Words()
    text = "".join(words.piece(ClassId("chat"), "", 7, place)[0] for place in range(20))
    assert len(text.split()) == 20
    assert text == text.strip()


def test_seed_and_place_decide() -> None:
    """The same twice, and another seed writes something else."""
    words = Words()

    def text(seed: int) -> list[tuple[str, int]]:
        return [words.piece(ClassId("chat"), "", seed, place) for place in range(30)]

    assert text(1) == text(1) != text(2)


def test_classes_and_languages_have_words_of_their_own() -> None:
    """A language goes before the class; one that is not known changes nothing."""
    words = Words()

    def used(class_id: str, language: str = "") -> set[str]:
        pieces = (words.piece(ClassId(class_id), language, 3, place) for place in range(200))
        return {text.strip() for text, _ in pieces}

    assert not used("code") & used("structured")
    assert used("code", "de") == used("chat", "de")
    assert used("code", "xx") == used("code")


@pytest.mark.parametrize("count", [5, 6, 40])
def test_arguments_are_an_object_of_so_many_tokens(count: int) -> None:
    """The last token is the end, which has no text."""
    pieces = arguments(Words(), "city", 1, count)
    assert len(pieces) == count
    assert list(json.loads("".join(pieces))) == ["city"]
    assert pieces[-1] == ""


def test_too_few_tokens_cut_the_arguments() -> None:
    """As a limit of tokens does with a real model."""
    assert [len(arguments(Words(), "city", 1, count)) for count in (1, 2, 3)] == [1, 2, 3]


def test_a_digest_is_not_the_text() -> None:
    """It only stands for it."""
    assert digest(b"secret") == digest(b"secret") != digest(b"other")
    assert "secret" not in digest(b"secret")
