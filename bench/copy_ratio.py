"""Does the classifier's copy ratio tell where n-gram look-up is accepted?

Each prompt goes to a real n-gram pool; the copy ratio that the classifier gave beforehand is set
against the share of tokens that the pool got from accepted drafts (Spearman's rank correlation,
bootstrap interval over prompts). Prompts: the demo's own, and with --data lines of labelled request
bodies. A small model often goes in circles, and circles are drafted perfectly though nothing is
copied; answers that do not are told apart.

    python -m bench.copy_ratio --data dev.jsonl --per-class 12

With --answers the pool is made to say reference answers to labelled prompts, token by token, so
that real drafts from the real context are held against what a good assistant would say. What the
engine does not say word for word is counted as refused and left out.

    python -m bench.copy_ratio --data dev.jsonl --answers bench/answers.jsonl
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from bench.answers import entries, grammar, literal
from bench.demo_fleet import ask
from policies.types import FloatArray
from router.classify.base import Classifier
from router.classify.load import default_classifier
from router.demo.fleet import DEFAULT_POOLS, Fleet, RunningPool
from router.demo.prompts import DemoPrompt, load_prompts
from router.intake.parse import parse_request
from router.types import Endpoint

_TOKENS = 96
_LONGEST_BODY = 4000
"""Longer prompts do not fit the demo model's context together with an answer."""
_ROOM = ("-c", "16384")
"""The most that the demo's model takes, for each of two requests: some answers are 2,000 tokens."""
_RESAMPLES = 2000
_CIRCLES = 30


@dataclass(frozen=True, slots=True)
class Point:
    """One prompt: what was expected of it and what came."""

    label: str
    expected: float
    accepted: float
    circles: bool


def labelled(path: Path, per_class: int, seed: int = 0) -> Iterator[DemoPrompt]:
    """A few bodies of each class from a file of labelled request bodies."""
    by_class: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    # By line breaks alone: texts hold other characters that end a line.
    for line in path.read_text("utf-8").rstrip("\n").split("\n"):
        entry = json.loads(line)
        plain = all(isinstance(m.get("content"), str) for m in entry["request"]["messages"])
        if plain and len(line) <= _LONGEST_BODY and "tools" not in entry["request"]:
            by_class[entry["label"]].append(entry)
    rng = random.Random(seed)
    for label, own in sorted(by_class.items()):
        for entry in rng.sample(own, min(per_class, len(own))):
            body = {"messages": entry["request"]["messages"], "temperature": 0.0}
            body["max_tokens"] = _TOKENS
            yield DemoPrompt(entry["id"], label, entry["lang"], 0.0, _TOKENS, body)


def ranks(values: FloatArray) -> FloatArray:
    """Ranks with ties at their mean."""
    order = np.argsort(values, kind="stable")
    result = np.empty(len(values))
    result[order] = np.arange(len(values), dtype=float)
    for value in np.unique(values):
        same = values == value
        result[same] = result[same].mean()
    return result


def spearman(x: FloatArray, y: FloatArray) -> float:
    """Rank correlation; NaN when one side is constant."""
    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def measure(classifier: Classifier, prompts: list[DemoPrompt]) -> list[Point]:
    """Sends every prompt to the n-gram pool."""
    points = []
    with _pool() as fleet:
        for index, prompt in enumerate(prompts):
            expected = _expected(classifier, prompt.body)
            sample = ask(fleet.pools[0], prompt, seed=index)
            if sample is not None and expected is not None:
                accepted = sample.accepted / sample.tokens
                points.append(Point(prompt.label, expected, accepted, in_circles(sample.text)))
            print(f"{index + 1} of {len(prompts)}", file=sys.stderr)
    return points


def measure_answers(
    classifier: Classifier, data: Path, answers: Path, *, as_text: bool = False
) -> list[Point]:
    """Has the n-gram pool say every reference answer; names what it refused.

    Args:
        classifier: Says what is expected.
        data: Labelled request bodies.
        answers: Reference answers to some of them.
        as_text: Leave the engine free in how it cuts an answer into tokens.
    """
    lines = {entry["id"]: entry for entry in entries(data)}
    points, refused = [], []
    with _pool(_ROOM) as fleet:
        for line in entries(answers):
            entry, answer = lines[line["id"]], line["answer"]
            room = len(answer.encode()) + 1  # A token has a byte at the least.
            text = f"root ::= {literal(answer)}"
            body = {
                "messages": entry["request"]["messages"],
                "temperature": 0.0,
                "max_tokens": room,
                "grammar": text if as_text else grammar(_tokens(fleet.pools[0], answer)),
            }
            prompt = DemoPrompt(entry["id"], entry["label"], entry["lang"], 0.0, room, body)
            expected = _expected(classifier, entry["request"])
            sample = ask(fleet.pools[0], prompt, seed=0, least=1)
            if sample is None or expected is None or sample.text != answer:
                refused.append(prompt.id)
                continue
            accepted = sample.accepted / sample.tokens
            points.append(Point(prompt.label, expected, accepted, in_circles(answer)))
            shown = f"{prompt.id} {prompt.label}: {expected:.2f}, {accepted:.2f} of {sample.tokens}"
            print(shown, file=sys.stderr, flush=True)
    print(f"Not said word for word: {len(refused)} {' '.join(refused)}\n")
    return points


def _pool(flags: tuple[str, ...] = ()) -> Fleet:
    pools = [
        dataclasses.replace(spec, flags=(*spec.flags, *flags))
        for spec in DEFAULT_POOLS
        if spec.method == "ngram"
    ]
    return Fleet(pools=pools, progress=lambda text: print(text, file=sys.stderr))


def _expected(classifier: Classifier, body: dict[str, Any]) -> float | None:
    request = parse_request(Endpoint.CHAT, orjson.dumps({**body, "model": "m", "temperature": 0.0}))
    return classifier.classify(request).copy_ratio


def _tokens(pool: RunningPool, text: str) -> list[dict[str, Any]]:
    body = json.dumps({"content": text, "add_special": False, "with_pieces": True}).encode()
    request = urllib.request.Request(
        f"{pool.url}/tokenize", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return list(json.loads(answer.read())["tokens"])


def in_circles(text: str) -> bool:
    """Whether an answer ends with the same characters three times over, thirty or more in all.

    Example:
        >>> in_circles("Sure: so it is, so it is, so it is,"), in_circles("so it is, and so be it")
        (True, False)
    """
    return any(
        text[-length:] == text[-2 * length : -length] == text[-3 * length : -2 * length]
        for length in range(_CIRCLES // 3, len(text) // 3 + 1)
    )


def correlation(points: list[Point]) -> str:
    """Spearman's, with a 95 % bootstrap interval."""
    x = np.array([point.expected for point in points])
    y = np.array([point.accepted for point in points])
    rng = np.random.default_rng(0)
    picks = [rng.integers(0, len(points), len(points)) for _ in range(_RESAMPLES)]
    low, high = np.nanquantile([spearman(x[pick], y[pick]) for pick in picks], [0.025, 0.975])
    return f"{spearman(x, y):.2f} [{low:.2f}, {high:.2f}] over {len(points)} prompts"


def classes_alone(points: list[Point]) -> list[Point]:
    """The points with their class's mean copy ratio: what knowing the class is worth by itself."""
    own: defaultdict[str, list[float]] = defaultdict(list)
    for point in points:
        own[point.label].append(point.expected)
    return [
        dataclasses.replace(point, expected=float(np.mean(own[point.label]))) for point in points
    ]


def table(points: list[Point]) -> str:
    """The correlation with its interval, and means by class."""
    rows = []
    for label in sorted({point.label for point in points}):
        own = [point for point in points if point.label == label]
        rows.append(
            f"| {label} | {len(own)} | {sum(p.circles for p in own)} | "
            f"{np.mean([p.expected for p in own]):.2f} | {np.mean([p.accepted for p in own]):.2f} |"
        )
    straight = [point for point in points if not point.circles]
    return (
        f"Spearman {correlation(points)}; {correlation(straight)} whose answers do not end in "
        f"circles; {correlation(classes_alone(points))} with the class's mean copy ratio.\n\n"
        "| class | prompts | in circles | copy ratio, mean | tokens from accepted drafts |\n"
        "|---|---:|---:|---:|---:|\n" + "\n".join(rows) + "\n"
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="labelled request bodies, JSON lines")
    parser.add_argument("--per-class", type=int, default=10)
    parser.add_argument("--answers", type=Path, help="reference answers to lines of --data")
    parser.add_argument("--as-text", action="store_true", help="the engine may cut answers itself")
    parser.add_argument("--weights", type=Path, help="the classifier's, other than the package's")
    arguments = parser.parse_args()
    classifier = default_classifier(arguments.weights)
    if arguments.answers:
        if not arguments.data:
            parser.error("--answers needs --data")
        points = measure_answers(
            classifier, arguments.data, arguments.answers, as_text=arguments.as_text
        )
    else:
        prompts = list(load_prompts())
        if arguments.data:
            prompts += labelled(arguments.data, arguments.per_class)
        points = measure(classifier, prompts)
    print(table(points))


if __name__ == "__main__":
    main()
