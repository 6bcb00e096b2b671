"""Configuration → classifier, and the classes that it may answer with."""

from __future__ import annotations

from pathlib import Path

from policies.types import ClassId
from router.classify.base import CLASSES, OTHER, Classifier
from router.classify.class_rules import RuledClassifier
from router.classify.load import default_classifier
from router.classify.model import load
from router.classify.trained import TrainedClassifier
from router.config.classes import Classify
from router.errors import ConfigError

_MAKE = (
    "`specroute classify train` makes weights, and null stands for those that come with Specroute"
)


def class_ids(config: Classify) -> tuple[ClassId, ...]:
    """All classes that a request may get: built-in ones, those of rules, and `OTHER`."""
    own = (ClassId(rule.class_id) for rule in config.rules)
    return tuple(dict.fromkeys((*CLASSES, *own, OTHER)))


def configured_classifier(config: Classify) -> Classifier:
    """What judges a request by itself, rules first.

    Raises:
        ConfigError: The operator's own weights cannot be used.
    """
    if config.weights is None:
        learned = default_classifier()
    else:
        try:
            learned = TrainedClassifier(load(Path(config.weights)))
        except FileNotFoundError:
            raise ConfigError(
                f"classify.weights: {config.weights}: no such file; {_MAKE}"
            ) from None
        except OSError as error:
            why = f"cannot be read: {error.strerror}"
            raise ConfigError(f"classify.weights: {config.weights}: {why}") from error
        except ValueError as error:
            raise ConfigError(f"classify.weights: {error}; {_MAKE}") from error
    return RuledClassifier(learned, config.rules) if config.rules else learned
