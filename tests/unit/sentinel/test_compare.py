"""Two answers to the same request: whether they part, and what that says."""

from __future__ import annotations

from typing import Any

import pytest

from router.outputs.judge import UNKNOWN, Judged
from router.outputs.said import Call, Said
from router.sentinel.compare import (
    NEAR_TIE,
    Finding,
    Place,
    Repeat,
    Token,
    first_look,
    parting,
    repeat_counts,
    second_look,
    tokens_of,
)

FAR = NEAR_TIE + 0.1
SURE = 9.0


def said(text: str = "", *arguments: str, finish: str = "stop") -> Said:
    """An answer, with calls if any."""
    return Said(text, tuple(Call("look", of) for of in arguments), finish)


def told(answer: Said, *tokens: tuple[str, str, float]) -> Repeat:
    """The baseline's answer with its tokens."""
    return Repeat(answer, tuple(Token(*token) for token in tokens))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (said("abc"), said("abc"), None),
        (said("abc"), said("abd"), Place(0, 2)),
        (said("abc"), said("ab"), Place(0, 2)),
        (said("", '{"a": 1}'), said("", '{"a":1}'), None),
        (said("", '{"a": 1}'), said("", '{"a": 2}'), Place(1, 11)),
        (said("", '{"a": 1'), said("", '{"a": 1}'), Place(1, 12)),
        (said("a", "{}"), said("a", "{}", "{}"), Place(2, 0)),
        (said("a", "{}"), said("b", "[]"), Place(0, 0)),
    ],
)
def test_where_answers_part(one: Said, other: Said, expected: Place | None) -> None:
    """At the first character that differs; JSON is compared as what it means."""
    assert parting(one, other) == expected
    assert parting(other, one) == expected


PARIS = (("Paris", "Rome", SURE), (" is", " was", 0.2), (" big", " old", FAR))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Paris is big", Finding.SAME),
        ("Paris was big", Finding.TIE),
        ("Paris wasn't", Finding.TIE),
        ("Paris", Finding.TIE),
        ("Paris has", None),
        ("Paris is old", None),
        ("Rome", None),
        ("Paris is big and old", Finding.UNREAD),
    ],
)
def test_a_near_tie_explains_a_difference(answer: str, expected: Finding | None) -> None:
    """If the answer goes on with the other token, or ends there; beyond the end nobody knows."""
    assert first_look(said(answer), told(said("Paris is big"), *PARIS)) is expected


def test_without_log_probabilities_nothing_is_explained() -> None:
    """And nothing held against anybody."""
    assert first_look(said("a"), told(said("b"))) is Finding.UNREAD
    unknown = told(said("b"), ("b", "", float("inf")))
    assert first_look(said("a"), unknown) is None


def test_arguments_are_found_among_the_tokens_around_them() -> None:
    """Thoughts come before a text, marks and names before arguments."""
    tokens = (
        *(("hm", "ah", 0.1), ('<call>{"name": "look", "arguments": ', "x", SURE)),
        *(('{"a": ', "x", SURE), ("1", "2", 0.1), ("}", ",", SURE), ("</call>", "x", SURE)),
    )
    repeat = told(said("", '{"a": 1}'), *tokens)
    assert first_look(said("", '{"a": 2}'), repeat) is Finding.TIE
    assert first_look(said("", '{"b": 1}'), repeat) is None
    assert first_look(said("", '{"a": 1,'), repeat) is None
    other = Said("", (Call("find", '{"a": 1}'),), "stop")
    assert first_look(other, repeat) is Finding.UNREAD


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ("The dog runs", Finding.ODD),
        ("The cat runs", Finding.CONTROL),
        ("The dog runs off", Finding.ODD),
        ("The cow runs", Finding.UNSTABLE),
        ("A dog runs", Finding.UNSTABLE),
    ],
)
def test_a_baseline_that_is_asked_once_more(second: str, expected: Finding) -> None:
    """It settles who was the odd one, unless it does not agree with itself even so far."""
    assert second_look(said("The cat runs"), said("The dog runs"), said(second)) is expected


@pytest.mark.parametrize(
    ("mine", "others", "expected"),
    [
        (Judged(False), Judged(True), {"repeat.worse": 1}),  # noqa: FBT003
        (Judged(True), Judged(False), {"repeat.better": 1}),  # noqa: FBT003
        (Judged(False), Judged(False), {}),  # noqa: FBT003
        (Judged(False), UNKNOWN, {}),  # noqa: FBT003
    ],
)
def test_whose_structure_is_damaged(mine: Judged, others: Judged, expected: dict[str, int]) -> None:
    """Only where the other one's is not, in either direction."""
    counts = repeat_counts(said("a"), mine, said("a"), others, Finding.SAME)
    assert counts == {"repeat.n": 1, "repeat.same": 1, **expected}


def test_whose_answer_was_cut() -> None:
    """An answer that finds no end is damaged too."""
    long, short = said("a" * 50, finish="length"), said("a" * 20)
    counts = repeat_counts(long, UNKNOWN, short, UNKNOWN, Finding.ODD)
    assert counts == {"repeat.n": 1, "repeat.odd": 1, "repeat.worse": 1, "repeat.longer": 1}
    counts = repeat_counts(short, UNKNOWN, long, UNKNOWN, Finding.ODD)
    assert counts == {"repeat.n": 1, "repeat.odd": 1, "repeat.better": 1, "repeat.shorter": 1}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, []),
        ({"logprobs": None}, []),
        ({"logprobs": {"content": None, "tokens": 7}}, []),
        (
            {
                "logprobs": {
                    "content": [
                        {
                            "token": "a",
                            "top_logprobs": [
                                {"token": "a", "logprob": -0.25},
                                {"token": "b", "logprob": -1.25},
                            ],
                        },
                        {"token": "c", "top_logprobs": []},
                        "rubbish",
                    ]
                }
            },
            [Token("a", "b", 1.0), Token("c", "", float("inf"))],
        ),
        (
            {
                "logprobs": {
                    "tokens": ["a", "b"],
                    "top_logprobs": [{"a": -0.25, "x": -1.25}, None],
                }
            },
            [Token("a", "x", 1.0), Token("b", "", float("inf"))],
        ),
    ],
)
def test_tokens_are_read_in_both_dialects(choice: dict[str, Any], expected: list[Token]) -> None:
    """Chat and completions; what is missing is unknown."""
    assert tokens_of(choice) == expected
