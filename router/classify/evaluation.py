"""Measures a classifier on labelled requests; it is the caller's to keep training data apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from router.types import Endpoint, Headers, ParsedRequest

if TYPE_CHECKING:
    from router.classify.base import Classifier

BINS: Final = 15


class Labelled(NamedTuple):
    """A request whose class somebody knows."""

    label: str
    body: Mapping[str, Any]
    language: str | None = None


class Answer(NamedTuple):
    """What was right, what was said, and how sure that was."""

    label: str
    said: str
    confidence: float
    language: str | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """How often requests of one class were found, and named rightly."""

    n: int
    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """Harmonic mean of both."""
        total = self.precision + self.recall
        return 2.0 * self.precision * self.recall / total if total else 0.0


def parsed(body: Mapping[str, Any], headers: Headers = ()) -> ParsedRequest:
    """Wrap a body as the intake would, without its bytes."""
    endpoint = Endpoint.COMPLETIONS if "prompt" in body else Endpoint.CHAT
    model = body.get("model")
    name = model if isinstance(model, str) else ""
    return ParsedRequest(endpoint, b"", body, name, stream=False, headers=headers)


def answers(classifier: Classifier, lines: Iterable[Labelled]) -> list[Answer]:
    """Classify every line."""
    given = []
    for line in lines:
        found = classifier.classify(parsed(line.body))
        given.append(Answer(line.label, found.class_id, found.confidence, line.language))
    return given


def accuracy(given: Sequence[Answer]) -> float:
    """Return the share of right answers."""
    return sum(answer.said == answer.label for answer in given) / len(given)


def per_class(given: Sequence[Answer]) -> dict[str, Score]:
    """Return the score of each class that occurs as a label."""
    scores = {}
    for name in sorted({answer.label for answer in given}):
        n = sum(answer.label == name for answer in given)
        said = sum(answer.said == name for answer in given)
        right = sum(answer.label == answer.said == name for answer in given)
        scores[name] = Score(n, right / said if said else 0.0, right / n)
    return scores


def macro_f1(given: Sequence[Answer]) -> float:
    """Return the mean F1 of the classes that occur as labels."""
    scores = per_class(given)
    return sum(score.f1 for score in scores.values()) / len(scores)


def calibration_error(given: Sequence[Answer]) -> float:
    """Return the expected calibration error over bins of equal width."""
    bins: list[list[Answer]] = [[] for _ in range(BINS)]
    for answer in given:
        bins[min(BINS - 1, int(answer.confidence * BINS))].append(answer)
    gaps = (
        abs(sum((answer.said == answer.label) - answer.confidence for answer in filled))
        for filled in bins
    )
    return sum(gaps) / len(given)
