"""Trains the model on labelled requests; judges it only by sources that were left out.

Usage: python -m router.classify.train OUT.npz LINES.jsonl [LINES.jsonl ...]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from policies.types import ClassId
from router.classify.base import CHAT, CLASSES
from router.classify.features import measure
from router.classify.grams import presence
from router.classify.lexicon import built_in
from router.classify.model import Floats, Model, grained, grained_dense, votes
from router.classify.vector import vector
from router.classify.view import view_request
from router.classify.written import compose
from router.types import Endpoint, ParsedRequest

SEED: Final = 20261129
INNER_FOLDS: Final = 3
ITERATIONS: Final = 60
SMALLEST_STEP: Final = 1e-3
WRITTEN: Final = "written"
"""Source of the requests that are composed from own phrasings."""
WRITTEN_SHARE: Final = 0.3
"""Of the total weight; of 0.15, 0.3 and 0.5 the middle was best on sources left out."""
CROWDING: Final = 0.5
"""A source's lines of one class weigh their number to the power of one minus this, together."""
CHAT_START: Final = 0.5
"""The rules' head start for conversation."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is chosen by leaving out sources of the training part.

    Attributes:
        decay: L2 penalty on what is learned beyond the rules.
        wording: Factor on pieces of words: the larger, the more they may be trusted.
    """

    decay: float
    wording: float


GRID: Final = (Settings(0.015, 20.0), Settings(0.008, 20.0))


@dataclass(frozen=True, slots=True)
class Examples:
    """Requests as numbers.

    Attributes:
        dense: Shape (n, len(NAMES)).
        pieces: Shape (n, 2 ** BITS); each row has length one.
        labels: Positions in `CLASSES`, shape (n,).
        sources: Where each comes from.
    """

    dense: Floats
    pieces: Floats
    labels: NDArray[np.intp]
    sources: NDArray[np.str_]

    def take(self, chosen: NDArray[np.bool_]) -> Examples:
        """Return the rows that a mask marks."""
        return Examples(
            self.dense[chosen], self.pieces[chosen], self.labels[chosen], self.sources[chosen]
        )


def read(lines: Iterable[tuple[Mapping[str, Any], str, str]]) -> Examples:
    """Measure requests, given as body, label and source."""
    lexicon = built_in()
    dense, pieces, labels, sources = [], [], [], []
    for body, label, source in lines:
        request = ParsedRequest(Endpoint.CHAT, b"", body, "", stream=False)
        view = view_request(request)
        measured = measure(view, lexicon)
        marks = presence(measured.instruction)
        pieces.append(marks / math.sqrt(float(marks.sum())))
        dense.append(vector(view, measured.features))
        labels.append(CLASSES.index(ClassId(label)))
        sources.append(source)
    return Examples(
        np.array(dense, dtype=np.float32), np.array(pieces), np.array(labels), np.array(sources)
    )


def read_written() -> Examples:
    """Measure the requests composed from own phrasings."""
    return read((body, label, WRITTEN) for label, body in compose())


def folds(sources: NDArray[np.str_], count: int, seed: int) -> NDArray[np.intp]:
    """Assign each row a fold, whole sources at a time, folds of about equal size."""
    sizes = Counter(sources.tolist())
    names = sorted(sizes)
    random.Random(seed).shuffle(names)  # noqa: S311 - reproducible, not secret
    # Large ones first, coarsely: the order among similar sizes is chance.
    names.sort(key=lambda name: -sizes[name].bit_length())
    filled = [0] * count
    fold = {}
    for name in names:
        fold[name] = min(range(count), key=filled.__getitem__)
        filled[fold[name]] += sizes[name]
    return np.array([fold[name] for name in sources.tolist()])


def train(examples: Examples, written: Examples, seed: int = SEED) -> tuple[Model, Settings]:
    """Choose settings and temperature on left-out sources, then fit on all."""
    parts = folds(examples.sources, INNER_FOLDS, seed)
    best: tuple[float, Settings, float] | None = None
    for settings in GRID:
        scores = np.empty((len(parts), len(CLASSES)), dtype=np.float32)
        for part in range(INNER_FOLDS):
            model = fit(examples.take(parts != part), written, settings)
            scores[parts == part] = score(model, examples.take(parts == part))
        temperature, loss = _temperature(scores, examples.labels)
        if best is None or loss < best[0]:
            best = loss, settings, temperature
    assert best is not None
    _, settings, temperature = best
    return replace(fit(examples, written, settings), temperature=temperature), settings


def score(model: Model, examples: Examples) -> Floats:
    """Return the scores of each class before the temperature, shape (n, classes)."""
    scores: Floats = model.bias + examples.dense @ model.dense + examples.pieces @ model.pieces.T
    return scores


def _temperature(scores: Floats, labels: NDArray[np.intp]) -> tuple[float, float]:
    """Return the temperature of least log-loss, and that loss."""
    rows = np.arange(len(labels))

    def loss(temperature: float) -> float:
        scaled = scores / temperature
        scaled -= scaled.max(axis=1, keepdims=True)
        return float((np.log(np.exp(scaled).sum(axis=1)) - scaled[rows, labels]).mean())

    best = min(np.geomspace(0.5, 3.0, 73), key=loss)
    return float(best), loss(float(best))


def fit(examples: Examples, written: Examples, settings: Settings) -> Model:
    """Minimise the weighted log-loss of what is added to the rules' scores."""
    mean = examples.dense.mean(axis=0)
    # A feature that hardly ever varies says nothing for sure, so it is not blown up.
    spread = examples.dense.std(axis=0) + np.float32(0.02)
    dense = np.vstack([examples.dense, written.dense])
    rules = dense @ votes()
    rules[:, CLASSES.index(CHAT)] += CHAT_START
    inputs = np.hstack(
        [(dense - mean) / spread, settings.wording * np.vstack([examples.pieces, written.pieces])]
    )
    labels = np.concatenate([examples.labels, written.labels])
    weights = np.concatenate(
        [
            (1.0 - WRITTEN_SHARE) * _balanced(examples),
            WRITTEN_SHARE * _balanced(written),
        ]
    ).astype(np.float32)
    scale, bias, learned = _regress(inputs, rules, labels, weights=weights, decay=settings.decay)
    measures = learned[: dense.shape[1]] / spread[:, np.newaxis]
    bias = bias - mean @ measures
    bias[CLASSES.index(CHAT)] += scale * CHAT_START
    return Model(
        bias=bias.astype(np.float32),
        dense=grained_dense(measures + scale * votes()),
        pieces=grained(np.ascontiguousarray(settings.wording * learned[dense.shape[1] :].T)),
        temperature=1.0,
    )


def _balanced(examples: Examples) -> NDArray[np.float64]:
    """Weigh rows so that classes count alike, and large sources of a class less per line."""
    pairs = list(zip(examples.labels.tolist(), examples.sources.tolist(), strict=True))
    sizes = Counter(pairs)
    weights = np.array([sizes[pair] ** -CROWDING for pair in pairs])
    for label in set(examples.labels.tolist()):
        rows = examples.labels == label
        weights[rows] /= weights[rows].sum()
    balanced: NDArray[np.float64] = weights / weights.sum()
    return balanced


def _regress(
    inputs: Floats, rules: Floats, labels: NDArray[np.intp], *, weights: Floats, decay: float
) -> tuple[float, Floats, Floats]:
    """Fit scale, bias and weights of softmax(scale * rules + bias + inputs @ weights)."""
    count, width = inputs.shape
    classes = rules.shape[1]
    rows = np.arange(count)

    def loss(point: Floats) -> tuple[float, Floats]:
        learned = point[1 + classes :].reshape(width, classes)
        scores = point[0] * rules + point[1 : 1 + classes] + inputs @ learned
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        totals = chances.sum(axis=1, keepdims=True)
        chances /= totals
        fitted = -(weights * (scores[rows, labels] - np.log(totals[:, 0]))).sum()
        penalty = 0.5 * decay * (learned * learned).sum()
        chances[rows, labels] -= 1.0
        chances *= weights[:, np.newaxis]
        slope = inputs.T @ chances + np.float32(decay) * learned
        gradient = np.concatenate(
            [[(chances * rules).sum()], chances.sum(axis=0), slope.ravel()], dtype=np.float32
        )
        return float(fitted + penalty), gradient

    start = np.zeros(1 + classes + width * classes, dtype=np.float32)
    start[0] = 1.0
    point = _descend(loss, start)
    return float(point[0]), point[1 : 1 + classes], point[1 + classes :].reshape(width, classes)


def _descend(
    loss: Callable[[Floats], tuple[float, Floats]], point: Floats, memory: int = 8
) -> Floats:
    """Minimise by limited-memory BFGS with backtracking (Nocedal & Wright 2006, alg. 7.4)."""
    value, gradient = loss(point)
    pairs: list[tuple[Floats, Floats]] = []
    for _ in range(ITERATIONS):
        direction = -_inverse_hessian_times(gradient, pairs)
        slope = float(gradient @ direction)
        step = np.float32(1.0)
        tried = point + direction
        reached, reached_gradient = loss(tried)
        while reached > value + 1e-4 * float(step) * slope and step > SMALLEST_STEP:
            step *= np.float32(0.5)
            tried = point + step * direction
            reached, reached_gradient = loss(tried)
        moved, turned = tried - point, reached_gradient - gradient
        if float(moved @ turned) > 1e-12:  # noqa: PLR2004 - curvature must be positive
            pairs = [*pairs[1 - memory :], (moved, turned)]
        settled = value - reached < 1e-6 * abs(value)
        point, value, gradient = tried, reached, reached_gradient
        if settled:
            break
    return point


def _inverse_hessian_times(gradient: Floats, pairs: Sequence[tuple[Floats, Floats]]) -> Floats:
    product = gradient.copy()
    if not pairs:
        product /= max(1e-12, float(np.linalg.norm(product)))
        return product
    shares = []
    for moved, turned in reversed(pairs):
        share = (moved @ product) / (turned @ moved)
        shares.append(share)
        product -= share * turned
    moved, turned = pairs[-1]
    product *= (moved @ turned) / (turned @ turned)
    for (moved, turned), share in zip(pairs, reversed(shares), strict=True):
        product += moved * (share - (turned @ product) / (turned @ moved))
    return product


def lines_of(paths: Sequence[Path]) -> Iterator[tuple[Mapping[str, Any], str, str]]:
    """Yield body, label and source of the lines of JSONL files that have all three."""
    for path in paths:
        with path.open(encoding="utf-8") as lines:
            for line in map(json.loads, lines):
                yield line["request"], line["label"], line["source"]


def main() -> None:
    """Train on files and write the weights."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("out", type=Path)
    arguments.add_argument("lines", type=Path, nargs="+")
    options = arguments.parse_args()
    examples = read(lines_of(options.lines))
    model, settings = train(examples, read_written())
    model.save(options.out)
    sys.stdout.write(
        f"{len(examples.labels)} lines, {settings}, temperature {model.temperature:.3f}, "
        f"{options.out.stat().st_size} bytes\n"
    )


if __name__ == "__main__":
    main()
