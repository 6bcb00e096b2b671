"""From configuration to classifier."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.classify.base import CLASSES, OTHER
from router.classify.class_rules import RuledClassifier
from router.classify.configured import class_ids, configured_classifier
from router.classify.trained import TrainedClassifier
from router.config.classes import Classify
from router.errors import ConfigError
from tests.support.builders import request

RULES = [{"class": name, "when": {"model": "m"}} for name in ("mine", "chat", "mine", "other")]


def test_classes_of_rules_are_classes() -> None:
    """Each once, `other` last."""
    assert class_ids(Classify()) == (*CLASSES, OTHER)
    assert class_ids(Classify.model_validate({"rules": RULES})) == (*CLASSES, "mine", OTHER)


def test_rules_come_before_what_was_learned() -> None:
    """Without any there is nothing to ask."""
    assert isinstance(configured_classifier(Classify()), TrainedClassifier)
    ruled = configured_classifier(Classify.model_validate({"rules": RULES}))
    assert isinstance(ruled, RuledClassifier)
    assert ruled.classify(request()).rule == 1


def test_weights_of_one_s_own_must_be_usable(tmp_path: Path) -> None:
    """Unlike those that come along, nothing stands in for them."""
    for path in (tmp_path / "none.npz", tmp_path):
        with pytest.raises(ConfigError, match=r"classify\.weights: "):
            configured_classifier(Classify(weights=str(path)))
    (tmp_path / "bad.npz").write_bytes(b"no weights")
    with pytest.raises(ConfigError, match=r"classify\.weights: "):
        configured_classifier(Classify(weights=str(tmp_path / "bad.npz")))
