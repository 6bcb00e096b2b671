from __future__ import annotations

from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from router.classify.base import CLASSES
from router.classify.grams import BITS
from router.classify.model import Model, Scorer, grained_dense, load, softmax, votes
from router.classify.rules import RULES
from router.classify.vector import NAMES


@pytest.fixture
def model() -> Model:
    generator = np.random.default_rng(1)
    return Model(
        bias=generator.normal(size=len(CLASSES)).astype(np.float32),
        dense=generator.normal(size=(len(NAMES), len(CLASSES))).astype(np.float32).astype(float),
        pieces=generator.normal(size=(len(CLASSES), 2**BITS)).astype(np.float16).astype(np.float32),
        temperature=1.5,
    )


def test_what_is_saved_is_loaded(model: Model, tmp_path: Path) -> None:
    """Weights survive the file, and the same weights give the same bytes."""
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    model.save(first)
    load(first).save(second)
    assert first.read_bytes() == second.read_bytes()
    assert np.array_equal(load(first).dense, model.dense)


def test_weights_of_another_layout_are_refused(model: Model, tmp_path: Path) -> None:
    """Weights mean something only with the inputs they were trained with."""
    path = tmp_path / "w.npz"
    model.save(path)
    with np.load(path) as saved:
        np.savez(path, **{**saved, "layout": np.array("another")})
    with pytest.raises(ValueError, match="another layout"):
        load(path)


@pytest.mark.parametrize("temperature", [0.0, float("nan"), float("inf")])
def test_unusable_numbers_are_refused(model: Model, tmp_path: Path, temperature: float) -> None:
    """A temperature that cannot be divided by is no temperature."""
    replace(model, temperature=temperature).save(tmp_path / "w.npz")
    with pytest.raises(ValueError, match="no numbers"):
        load(tmp_path / "w.npz")


def test_probabilities_are_a_softmax() -> None:
    """Equal scores share evenly, and heat flattens."""
    assert softmax([1.0] * 4, 2.0) == [0.25] * 4
    cold, hot = (softmax([1.0, 0.0], cooling)[0] for cooling in (3.0, 0.3))
    assert hot < cold


def test_scorer_adds_measurements_and_wording(model: Model) -> None:
    """The scores are the bias, the measurements and the mean direction of the pieces."""
    generator = np.random.default_rng(2)
    inputs = generator.normal(size=len(NAMES))
    marks = (generator.random(2**BITS) < 0.1).astype(np.float32)
    scorer = Scorer(model)
    wording = scorer.wording(marks)
    assert wording == pytest.approx(model.pieces @ marks / np.sqrt(marks.sum()), rel=1e-4)
    scores = model.bias + inputs @ model.dense + wording
    expected = softmax(scores.tolist(), 1 / model.temperature)
    assert scorer.probabilities(inputs, wording) == pytest.approx(expected)


def test_rounded_weights_add_up_exactly() -> None:
    """Sums do not depend on the order in which they are formed."""
    generator = np.random.default_rng(3)
    dense = grained_dense(generator.normal(size=(len(NAMES), 10)).astype(np.float32) * 9)
    inputs = np.round(generator.normal(size=len(NAMES)) * 2**10) / 2**10
    order = generator.permutation(len(NAMES))
    assert np.array_equal(inputs @ dense, inputs[order] @ dense[order])


def test_every_rule_starts_with_its_votes() -> None:
    """The rules are where learning starts from."""
    assert np.count_nonzero(votes()) == sum(len(rule.votes) for rule in RULES)


def test_packaged_weights_are_small_and_hold_numbers_only() -> None:
    """No vocabulary is stored: the only text is the layout's fingerprint."""
    path = Path(str(resources.files("router.classify").joinpath("weights.npz")))
    assert path.stat().st_size < 2_000_000
    with np.load(path, allow_pickle=False) as arrays:
        text = {name for name in arrays.files if arrays[name].dtype.kind != "f"}
    assert text == {"layout"}
