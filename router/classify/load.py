"""Chooses the classifier that a router starts with; fails over to the rules, never fails."""

from __future__ import annotations

import logging
from importlib import resources
from pathlib import Path
from typing import Final

from router.classify.base import Classifier
from router.classify.model import load
from router.classify.rules import RuleClassifier
from router.classify.trained import TrainedClassifier

logger = logging.getLogger(__name__)

WEIGHTS: Final = "weights.npz"
WEIGHTS_UNUSABLE: Final = "classifier_weights_unusable"


def default_classifier(weights: Path | None = None) -> Classifier:
    """Return the trained classifier, or the rules with a warning where its weights are unusable.

    Args:
        weights: The operator's own weights; those that come with the package otherwise.
    """
    path = weights or Path(str(resources.files("router.classify").joinpath(WEIGHTS)))
    try:
        return TrainedClassifier(load(path))
    except (OSError, ValueError) as error:
        logger.warning(WEIGHTS_UNUSABLE, extra={"path": str(path), "reason": str(error)})
        return RuleClassifier()
