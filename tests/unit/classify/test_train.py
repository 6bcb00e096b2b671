from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from router.classify import train as module
from router.classify.base import CHAT, CLASSES
from router.classify.model import votes
from router.classify.train import CHAT_START, Examples, Settings, fit, folds, read, score
from router.classify.written import compose

SETTINGS = Settings(decay=0.03, wording=20.0)


def some(step: int) -> Iterator[tuple[Any, str, str]]:
    for number, (label, body) in enumerate(compose()[::step]):
        yield body, label, f"source {number % 7}"


@pytest.fixture(scope="module")
def examples() -> Examples:
    return read(some(12))


def test_folds_keep_sources_together_and_even() -> None:
    """A source is in one fold, and folds are of about equal size."""
    sources = np.array([f"s{number}" for number in range(30) for _ in range(number + 1)])
    fold = folds(sources, 3, seed=1)
    assert all(len(set(fold[sources == name])) == 1 for name in set(sources.tolist()))
    assert np.ptp(np.bincount(fold)) < 31
    assert np.array_equal(fold, folds(sources, 3, seed=1))


def test_fitting_twice_gives_the_same_weights(
    examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in training is left to chance."""
    monkeypatch.setattr(module, "ITERATIONS", 5)
    first, second = (fit(examples, examples, SETTINGS) for _ in range(2))
    assert np.array_equal(first.pieces, second.pieces)
    assert np.array_equal(first.dense, second.dense)


def test_without_learning_the_rules_decide(
    examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strong decay leaves the rules' order of classes."""
    monkeypatch.setattr(module, "ITERATIONS", 1)
    held = fit(examples, examples, Settings(decay=1e6, wording=1.0))
    rules = np.matmul(examples.dense, votes())
    rules[:, CLASSES.index(CHAT)] += CHAT_START
    spoken = np.ptp(rules, axis=1) > 1.0
    same = score(held, examples).argmax(axis=1) == rules.argmax(axis=1)
    assert same[spoken].mean() > 0.9


def test_learning_fits_what_it_is_shown(examples: Examples) -> None:
    """A model knows its own examples better than the rules do."""
    learned = score(fit(examples, examples, SETTINGS), examples).argmax(axis=1)
    assert (learned == examples.labels).mean() > 0.95
