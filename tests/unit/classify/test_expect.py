from __future__ import annotations

from typing import Any

import pytest

from router.classify.base import CLASSES
from router.classify.expect import copy_ratio, length_band
from router.classify.features import extract_features
from router.classify.lexicon import built_in
from router.classify.view import Excerpt, RequestView

PROSE = "The harbour was quiet that morning and the boats lay still in the grey water. " * 12
CODE = "def f(x):\n    if x == 1:\n        return f(x - 1)\n    self.x += 1\n" * 6


def sure(name: str) -> list[float]:
    return [float(class_id == name) for class_id in CLASSES]


def seen(text: str, **others: Any) -> RequestView:
    return RequestView(turn=Excerpt(text, "", len(text)), **others)


def ratio(name: str, text: str, **others: Any) -> float:
    return copy_ratio(sure(name), extract_features(seen(text, **others), built_in()))


def band(name: str, text: str, **others: Any) -> str:
    view = seen(text, **others)
    return length_band(sure(name), view, extract_features(view, built_in()))


def test_edits_copy_most_and_stories_least() -> None:
    """The order of the classes is that of how much they must repeat."""
    order = [
        ratio("creative", "a story"),
        ratio("summarize", "Summarize:\n" + PROSE),
        min(
            ratio("text_edit", "Fix the grammar:\n" + PROSE),
            ratio("code_edit", "Fix it:\n" + CODE),
        ),
    ]
    assert order == sorted(order)
    assert all(0.0 <= share <= 1.0 for share in order)


@pytest.mark.parametrize("name", ["text_edit", "rag_qa", "summarize", "structured"])
def test_material_is_what_is_copied_from(name: str) -> None:
    """Without a text to copy from, less is copied."""
    assert ratio(name, "x") < ratio(name, PROSE)


def test_lengths_follow_class_material_and_limit() -> None:
    """Open answers are longer than spans, rewriting is as long as its text, limits cap."""
    assert band("rag_qa", PROSE) == "brief"
    assert band("creative", "a story") == "medium"
    assert (band("text_edit", "short"), band("text_edit", PROSE * 6)) == ("brief", "long")
    assert band("creative", "a story", output_limit=20) == "brief"
