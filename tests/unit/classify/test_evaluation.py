"""Figures about a classifier."""

from __future__ import annotations

import pytest

from policies.types import ClassId
from router.classify.evaluation import (
    Answer,
    Labelled,
    Score,
    accuracy,
    answers,
    calibration_error,
    macro_f1,
    parsed,
    per_class,
)
from router.types import Classification, Endpoint, ParsedRequest


class ByLength:
    """Long prompts are `long`."""

    def classify(self, request: ParsedRequest) -> Classification:
        """As said."""
        class_id = ClassId("long" if len(str(request.fields["prompt"])) > 3 else "short")
        return Classification(class_id, 0.75, {class_id: 0.75}, "length")


LINES = [
    Labelled("long", {"prompt": "xxxx"}, "en"),
    Labelled("long", {"prompt": "xxxxx"}),
    Labelled("short", {"prompt": "xxxx"}),
    Labelled("short", {"prompt": "x"}),
]


def test_every_line_is_answered() -> None:
    """With its label, its language and how sure the answer is."""
    assert answers(ByLength(), LINES[:1]) == [Answer("long", "long", 0.75, "en")]


def test_a_body_is_a_request() -> None:
    """Of the dialect it is written in; a model need not be named."""
    assert parsed({"prompt": "x"}).endpoint is Endpoint.COMPLETIONS
    assert parsed({"messages": [], "model": "m"}).model == "m"
    assert parsed({"messages": [], "model": 5}).model == ""


def test_figures() -> None:
    """Three of four right: precision, recall, F1, and how far certainty was off."""
    given = answers(ByLength(), LINES)
    assert accuracy(given) == 0.75
    assert per_class(given) == {"long": Score(2, 2 / 3, 1.0), "short": Score(2, 1.0, 0.5)}
    assert macro_f1(given) == pytest.approx((0.8 + 2 / 3) / 2)
    assert calibration_error(given) == pytest.approx(0.0)
    assert calibration_error(given[:2]) == pytest.approx(0.25)


def test_a_class_that_is_never_found_scores_nothing() -> None:
    """No division by zero."""
    given = [Answer("a", "b", 1.0)]
    assert per_class(given) == {"a": Score(1, 0.0, 0.0)}
    assert (macro_f1(given), calibration_error(given)) == (0.0, 1.0)
