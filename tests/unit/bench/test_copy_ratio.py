"""How the copy ratio is held against what an n-gram pool got."""

from __future__ import annotations

import numpy as np
import pytest

from bench.copy_ratio import Point, classes_alone, correlation, in_circles, spearman, table


def points() -> list[Point]:
    """Two classes, in each of which the order is the wrong way round."""
    return [
        Point("chat", 0.0, 0.1, circles=False),
        Point("chat", 0.1, 0.0, circles=False),
        Point("code_edit", 0.7, 0.9, circles=False),
        Point("code_edit", 0.8, 0.8, circles=False),
    ]


def test_a_class_alone_has_one_copy_ratio() -> None:
    """Its mean; what was accepted stays each prompt's own."""
    flat = classes_alone(points())
    assert [point.expected for point in flat] == pytest.approx([0.05, 0.05, 0.75, 0.75])
    assert [point.accepted for point in flat] == [point.accepted for point in points()]


def test_ties_share_their_mean_rank() -> None:
    """As Spearman's correlation is defined."""
    x, y = np.array([1.0, 1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])
    assert spearman(x, x) == pytest.approx(1.0)
    assert spearman(x, y) == pytest.approx(4.5 / np.sqrt(4.5 * 5.0))


def test_the_table_tells_classes_and_intervals() -> None:
    """And the correlation of classes alone beside that of the prompts."""
    many = points() * 5
    text = table(many)
    assert correlation(many) in text
    assert f"{correlation(classes_alone(many))} with the class's mean" in text
    assert "| chat | 10 | 0 | 0.05 | 0.05 |" in text
    assert "| code_edit | 10 | 0 | 0.75 | 0.85 |" in text


def test_circles_are_told_from_answers() -> None:
    """Three times the same at the end, thirty characters or more."""
    assert in_circles("Sure: " + "so it is, " * 3)
    assert not in_circles("ha ha ha")
