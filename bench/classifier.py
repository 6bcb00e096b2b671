"""Measures the classifiers on labelled requests: quality on sources left out, and cost.

Usage: python -m bench.classifier [FOLDER] [--repeats N] [--only quality|cost]

FOLDER holds `train.jsonl` and `dev.jsonl`, which are not part of this repository. They are pooled
and split by source: every figure of the first part is about lines of sources that took part neither
in fitting nor in choosing settings or temperature. The rules, and so their features, were written
with half of the sources in sight.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import logging
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from router.classify.base import CLASSES, Classifier
from router.classify.features import measure
from router.classify.lexicon import built_in
from router.classify.load import default_classifier
from router.classify.rules import RuleClassifier
from router.classify.train import Examples, folds, read_written, score, train
from router.classify.train import read as read_examples
from router.classify.trained import CONFIDENCE_FLOOR
from router.classify.view import view_request
from router.types import Endpoint, ParsedRequest

FOLDS: Final = 5
DRAWS: Final = 400
FIRST_SEED: Final = 100
DEVELOPED_SEED: Final = 20261129
LANGUAGE_LINES: Final = 200
"""Languages with fewer lines are not quoted."""
CONFIDENT: Final = 0.6
FOLDER: Final = Path("../shared/data/prompts")
ECHO_CHARS: Final = 8
"""Shortest line of an instruction that is looked for in other sources."""

Line = dict[str, Any]
Floats = NDArray[np.float64]


def parse(body: Line) -> ParsedRequest:
    """Wrap a body as the intake would, without its bytes."""
    return ParsedRequest(Endpoint.CHAT, b"", body, "model", stream=False)


def read(path: Path) -> list[Line]:
    """Read labelled lines."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@dataclass(frozen=True, slots=True)
class Truth:
    """What is known about the lines, as arrays of the same length."""

    labels: NDArray[np.intp]
    alternatives: NDArray[np.bool_]
    """Shape (n, classes): other labels that are defensible too."""
    sources: NDArray[np.str_]
    languages: NDArray[np.str_]


def truth_of(lines: Sequence[Line]) -> Truth:
    """Lay out labels and groups."""
    names = list(map(str, CLASSES))
    alternatives = np.zeros((len(lines), len(names)), dtype=np.bool_)
    for row, line in enumerate(lines):
        for name in line.get("alt") or ():
            if name in names:
                alternatives[row, names.index(name)] = True
    return Truth(
        np.array([names.index(line["label"]) for line in lines]),
        alternatives,
        np.array([line["source"] for line in lines]),
        np.array([line["lang"] for line in lines]),
    )


def macro_f1(
    labels: NDArray[np.intp], answers: NDArray[np.intp], weights: Floats | None = None
) -> float:
    """Average the F1 of the classes that occur; answers outside the classes are -1."""
    scores = []
    weights = np.ones(len(labels)) if weights is None else weights
    for label in range(len(CLASSES)):
        wanted, given = labels == label, answers == label
        total = weights[wanted].sum() + weights[given].sum()
        if weights[wanted].sum():
            scores.append(2.0 * weights[wanted & given].sum() / total)
    return float(np.mean(scores))


def lenient(truth: Truth, answers: NDArray[np.intp]) -> NDArray[np.intp]:
    """Replace labels by answers that are defensible too."""
    named = answers >= 0
    defensible = np.zeros(len(answers), dtype=np.bool_)
    defensible[named] = truth.alternatives[np.flatnonzero(named), answers[named]]
    found: NDArray[np.intp] = np.where(defensible, answers, truth.labels)
    return found


def named(chances: Floats, floor: float) -> NDArray[np.intp]:
    """Return the likeliest class, or -1 for `other` below the floor."""
    found: NDArray[np.intp] = np.where(chances.max(axis=1) >= floor, chances.argmax(axis=1), -1)
    return found


def calibration_error(right: NDArray[np.bool_], confidence: Floats, bins: int = 10) -> float:
    """Average the gap between confidence and accuracy over bins of equal width."""
    cell = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [
        abs(right[cell == b].mean() - confidence[cell == b].mean()) * (cell == b).mean()
        for b in range(bins)
        if (cell == b).any()
    ]
    return float(sum(gaps))


Predictor = Callable[[NDArray[np.bool_]], Floats]
"""Takes the rows to learn from, returns the chances of the other rows, shape (others, classes)."""


def trained_predictor(examples: Examples, written: Examples) -> Predictor:
    """Predict as the product's own training does."""

    def predict(learn: NDArray[np.bool_]) -> Floats:
        model, settings = train(examples.take(learn), written)
        print(f"    {settings}, temperature {model.temperature:.2f}", flush=True)
        scores = score(model, examples.take(~learn)) / model.temperature
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares: Floats = (chances / chances.sum(axis=1, keepdims=True)).astype(np.float64)
        return shares

    return predict


def rules_predictor(lines: Sequence[Line]) -> Predictor:
    """Predict by the rules, which learn nothing."""
    classifier = RuleClassifier()
    chances = np.array(
        [
            [answer.probabilities[name] for name in CLASSES]
            for answer in (classifier.classify(parse(line["request"])) for line in lines)
        ]
    )
    return lambda learn: chances[~learn]


def plain_text(body: Line) -> str:
    """Return what the baseline reads: the system prompt and the last user turn."""
    texts = [
        content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        for role in ("system", "user")
        for content in [
            message.get("content") or ""
            for message in body["messages"]
            if message.get("role") == role
        ][-1:]
    ]
    return "\n".join(texts)


def baseline_pipeline() -> Any:
    """Return TF-IDF and logistic regression, or None where scikit-learn is not installed."""
    try:
        text = importlib.import_module("sklearn.feature_extraction.text")
        linear = importlib.import_module("sklearn.linear_model")
        pipeline = importlib.import_module("sklearn.pipeline")
    except ImportError:
        return None
    return pipeline.make_pipeline(
        pipeline.make_union(
            text.TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, max_features=30_000),
            text.TfidfVectorizer(
                analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True, max_features=30_000
            ),
        ),
        linear.LogisticRegression(C=10.0, max_iter=100),
    )


def baseline_predictor(lines: Sequence[Line], pipeline: Any) -> Predictor:
    """Predict by words and pieces of words alone."""
    texts = [plain_text(line["request"])[:4000] for line in lines]
    labels = [CLASSES.index(line["label"]) for line in lines]

    def predict(learn: NDArray[np.bool_]) -> Floats:
        pipeline.fit(_chosen(texts, learn), _chosen(labels, learn))
        chances = np.zeros((int((~learn).sum()), len(CLASSES)))
        chances[:, pipeline.classes_] = pipeline.predict_proba(_chosen(texts, ~learn))
        return chances

    return predict


def _chosen(values: Sequence[Any], mask: NDArray[np.bool_]) -> list[Any]:
    return [value for value, chosen in zip(values, mask.tolist(), strict=True) if chosen]


def left_out(truth: Truth, predictor: Predictor, seed: int) -> Floats:
    """Predict every line from the other folds' sources."""
    fold = folds(truth.sources, FOLDS, seed)
    chances = np.zeros((len(fold), len(CLASSES)))
    for part in range(FOLDS):
        chances[fold == part] = predictor(fold != part)
    return chances


def echoes(lines: Sequence[Line], truth: Truth, seed: int) -> NDArray[np.bool_]:
    """Mark lines a line of whose instruction stands, word for word, in the sources learned from.

    The wrapped sources share lists of phrasings, so a split by source does not part phrasings.
    """
    lexicon = built_in()
    parts = []
    for line in lines:
        instruction = measure(view_request(parse(line["request"])), lexicon).instruction
        parts.append({part.strip(" :.") for part in instruction.split("\n")})
    fold = folds(truth.sources, FOLDS, seed)
    marks = np.zeros(len(lines), dtype=np.bool_)
    for part in range(FOLDS):
        learned = {
            text
            for row in np.flatnonzero(fold != part)
            for text in parts[row]
            if len(text) >= ECHO_CHARS
        }
        for row in np.flatnonzero(fold == part):
            marks[row] = not learned.isdisjoint(parts[row])
    return marks


def intervals(
    truth: Truth, runs: dict[str, list[Floats]], floors: dict[str, float]
) -> dict[str, NDArray[np.float64]]:
    """Draw sources with replacement; return macro-F1 strict and with alt, shape (draws, 2)."""
    generator = np.random.default_rng(FIRST_SEED)
    names, rows = np.unique(truth.sources, return_inverse=True)
    draws = generator.multinomial(len(names), np.full(len(names), 1 / len(names)), size=DRAWS)
    found = {}
    for name, results in runs.items():
        answers = [named(chances, floors[name]) for chances in results]
        found[name] = np.array(
            [
                [
                    np.mean([macro_f1(labels, a, draw[rows].astype(float)) for labels, a in pairs])
                    for pairs in (
                        [(truth.labels, a) for a in answers],
                        [(lenient(truth, a), a) for a in answers],
                    )
                ]
                for draw in draws
            ]
        )
    return found


def quality(lines: Sequence[Line], repeats: int) -> None:
    """Print what each classifier reaches on sources left out."""
    truth = truth_of(lines)
    examples = read_examples((line["request"], line["label"], line["source"]) for line in lines)
    predictors = {
        "trained": trained_predictor(examples, read_written()),
        "rules": rules_predictor(lines),
    }
    pipeline = baseline_pipeline()
    if pipeline is None:
        print("baseline left out: scikit-learn is not installed")
    else:
        predictors["tf-idf + lr"] = baseline_predictor(lines, pipeline)
    floors = {"trained": CONFIDENCE_FLOOR, "rules": CONFIDENCE_FLOOR, "tf-idf + lr": 0.0}
    seeds = range(FIRST_SEED, FIRST_SEED + repeats)
    print(
        f"{len(lines)} lines of {len(set(truth.sources.tolist()))} sources; {repeats} x {FOLDS} "
        "folds by source; settings and temperature chosen inside the training part"
    )
    runs = {
        name: [left_out(truth, predictor, seed) for seed in seeds]
        for name, predictor in predictors.items()
    }
    summary(truth, runs, floors)
    by_class(truth, runs["trained"])
    by_language(truth, runs["trained"])
    by_half(truth, runs["trained"])
    by_half(truth, runs["rules"])
    by_source(truth, runs["trained"])
    echoed(lines, truth, runs["trained"], seeds)


def summary(truth: Truth, runs: dict[str, list[Floats]], floors: dict[str, float]) -> None:
    """Print one line for each classifier, and the differences to the first."""
    drawn = intervals(truth, runs, floors)
    for name, results in runs.items():
        rows = []
        for chances in results:
            answers, confidence = named(chances, floors[name]), chances.max(axis=1)
            right = answers == truth.labels
            sure = confidence >= CONFIDENT
            rows.append(
                (
                    macro_f1(truth.labels, answers),
                    macro_f1(lenient(truth, answers), answers),
                    right.mean(),
                    calibration_error(right, confidence),
                    sure.mean(),
                    right[sure].mean(),
                    (lenient(truth, answers) == answers)[sure].mean(),
                )
            )
        mean, spread = np.mean(rows, axis=0), np.ptp(np.array(rows)[:, 0])
        low, high = np.quantile(drawn[name], (0.025, 0.975), axis=0)
        print(
            f"{name:12} macro-F1 {mean[0]:.3f} [{low[0]:.3f}, {high[0]:.3f}]"
            f"  with alt {mean[1]:.3f} [{low[1]:.3f}, {high[1]:.3f}]  accuracy {mean[2]:.3f}"
            f"  ECE {mean[3]:.3f}  at >= {CONFIDENT}: coverage {mean[4]:.3f}"
            f" accuracy {mean[5]:.3f} (with alt {mean[6]:.3f})  range over repeats {spread:.3f}"
        )
    first = next(iter(runs))
    for name in list(runs)[1:]:
        gap = drawn[first] - drawn[name]
        low, high = np.quantile(gap, (0.025, 0.975), axis=0)
        middle = gap.mean(axis=0)
        print(
            f"{first} - {name}: {middle[0]:+.3f} [{low[0]:+.3f}, {high[0]:+.3f}]"
            f"  with alt {middle[1]:+.3f} [{low[1]:+.3f}, {high[1]:+.3f}]"
        )


def developed_on(sources: NDArray[np.str_]) -> frozenset[str]:
    """Name the half of the sources that the rules and the lexicon were written with."""
    names = sorted(set(sources.tolist()))
    random.Random(DEVELOPED_SEED).shuffle(names)
    return frozenset(names[::2])


def by_half(truth: Truth, results: list[Floats]) -> None:
    """Print macro-F1 where the rules were written with the sources in sight, and where not."""
    seen = np.isin(truth.sources, list(developed_on(truth.sources)))
    with_sight, without = (_macro_f1_on(truth, results, rows) for rows in (seen, ~seen))
    print(
        f"sources the rules were written with: macro-F1 {with_sight:.3f} ({int(seen.sum())} lines);"
        f" the others: {without:.3f} ({int((~seen).sum())} lines)"
    )


def _macro_f1_on(truth: Truth, results: list[Floats], rows: NDArray[np.bool_]) -> float:
    return statistics.fmean(
        macro_f1(truth.labels[rows], named(chances[rows], CONFIDENCE_FLOOR)) for chances in results
    )


def by_class(truth: Truth, results: list[Floats]) -> None:
    """Print the F1 of each class and what is most confused."""
    cells = []
    for label, name in enumerate(CLASSES):
        figures = []
        for chances in results:
            wanted, given = truth.labels == label, named(chances, CONFIDENCE_FLOOR) == label
            figures.append(float(2 * (wanted & given).sum() / (wanted.sum() + given.sum())))
        cells.append(f"{name} {statistics.fmean(figures):.2f}")
    print("F1 by class:", "  ".join(cells))
    answers = named(results[0], CONFIDENCE_FLOOR)
    wrong = np.flatnonzero(answers != truth.labels)
    pairs = Counter(
        (CLASSES[truth.labels[row]], CLASSES[answers[row]] if answers[row] >= 0 else "other")
        for row in wrong
    )
    print("most confused:", ", ".join(f"{a}>{b} {n}" for (a, b), n in pairs.most_common(12)))


def by_language(truth: Truth, results: list[Floats]) -> None:
    """Print macro-F1 by language, over the classes that rest on more than one source there."""
    for language, count in Counter(truth.languages.tolist()).most_common():
        if count < LANGUAGE_LINES:
            continue
        here = truth.languages == language
        single = [
            label
            for label in range(len(CLASSES))
            if len(set(truth.sources[here & (truth.labels == label)].tolist())) == 1
        ]
        kept = here & ~np.isin(truth.labels, single)
        shown, whole = (_macro_f1_on(truth, results, rows) for rows in (kept, here))
        print(
            f"  {language}: macro-F1 {shown:.3f} ({int(kept.sum())} lines"
            + (
                f"; {', '.join(CLASSES[label] for label in single)} on one source, left out; "
                f"with them {whole:.3f}"
                if single
                else ""
            )
            + ")"
        )


def by_source(truth: Truth, results: list[Floats]) -> None:
    """Print the accuracy on the sources with most mistakes."""
    rows = []
    for source in np.unique(truth.sources).tolist():
        here = truth.sources == source
        accuracy = statistics.fmean(
            float((named(chances[here], CONFIDENCE_FLOOR) == truth.labels[here]).mean())
            for chances in results
        )
        rows.append(((1 - accuracy) * here.sum(), source, accuracy, int(here.sum())))
    worst = sorted(rows, reverse=True)[:10]
    print("most mistakes:", "; ".join(f"{s[:34]} {a:.2f} of {n}" for _, s, a, n in worst))


def echoed(
    lines: Sequence[Line], truth: Truth, results: list[Floats], seeds: Sequence[int]
) -> None:
    """Print the figure on lines whose wording of the task the training part did not hold."""
    figures, shares = [], []
    for seed, chances in zip(seeds, results, strict=True):
        fresh = ~echoes(lines, truth, seed)
        answers = named(chances, CONFIDENCE_FLOOR)
        shares.append(fresh.mean())
        figures.append(macro_f1(truth.labels[fresh], answers[fresh]))
    print(
        f"no line of the instruction stands in another fold's source: {np.mean(shares):.2f} of the"
        f" lines, macro-F1 there {np.mean(figures):.3f}"
    )


def cost(lines: Sequence[Line], classifiers: dict[str, Callable[[Line], object]]) -> None:
    """Print the processor time per call for bodies cut or repeated to three sizes.

    Processor time, since on a shared machine the clock shows the neighbours in the tail.
    """
    for size in (2_000, 64_000, 1_000_000):
        bodies = [sized(line["request"], size) for line in lines[:400]]
        # The lines themselves are no part of what is measured, nor is going through them.
        gc.collect()
        gc.freeze()
        for name, classify in classifiers.items():
            taken = []
            for body in bodies if name != "tf-idf + lr" else bodies[:60]:
                start = time.thread_time()
                classify(body)
                taken.append(time.thread_time() - start)
            cuts = statistics.quantiles(taken, n=100)
            print(
                f"{size:>9} bytes  {name:12} p50 {cuts[49] * 1e6:8.0f} us"
                f"  p99 {cuts[98] * 1e6:8.0f} us",
                flush=True,
            )


def sized(body: Line, size: int) -> Line:
    """Cut or repeat the last message's text to about `size` bytes."""
    messages = body["messages"]
    content = messages[-1].get("content")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    width = len(text.encode()) / max(1, len(text))
    wanted = int(size / width)
    text = (text * (wanted // max(1, len(text)) + 1))[:wanted]
    return {**body, "messages": [*messages[:-1], {**messages[-1], "content": text}]}


def calls(classifier: Classifier) -> Callable[[Line], object]:
    """Classify bodies as they come out of the intake."""
    return lambda body: classifier.classify(parse(body))


def costs(lines: Sequence[Line]) -> None:
    """Measure what a call costs beside the baseline's."""
    shuffled = list(lines)
    random.Random(FIRST_SEED).shuffle(shuffled)
    classifiers = {"trained": calls(default_classifier()), "rules": calls(RuleClassifier())}
    pipeline = baseline_pipeline()
    if pipeline is not None:
        pipeline.fit(
            [plain_text(line["request"])[:4000] for line in shuffled[:1500]],
            [line["label"] for line in shuffled[:1500]],
        )
        classifiers["tf-idf + lr"] = lambda body: pipeline.predict_proba([plain_text(body)])
    cost(shuffled, classifiers)


def language_counts(lines: Sequence[Line]) -> Iterator[str]:
    """Name languages that are too thin to quote."""
    for language, count in sorted(Counter(line["lang"] for line in lines).items()):
        if count < LANGUAGE_LINES:
            yield f"{language} {count}"


def main() -> None:
    """Run the measurements."""
    logging.basicConfig()
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--only", choices=("quality", "cost"))
    options = arguments.parse_args()
    files = [options.folder / f"{name}.jsonl" for name in ("train", "dev")]
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None:
        raise SystemExit(
            f"{missing}: no such file; the labelled requests are not part of this repository "
            "(docs/classifier.md says where they are from): name the folder that holds them, or "
            "make bench-classifier PROMPTS=FOLDER"
        )
    lines = [line for file in files for line in read(file)]
    if options.only != "cost":
        quality(lines, options.repeats)
        print("too few lines to quote:", ", ".join(language_counts(lines)))
    if options.only != "quality":
        costs(lines)


if __name__ == "__main__":
    main()
