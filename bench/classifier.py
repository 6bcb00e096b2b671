"""Measures a classifier on labelled request bodies: quality by class and language, and cost.

Usage: python -m bench.classifier PATH.jsonl [--halves]
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Final

from router.classify.base import CLASSES, Classifier
from router.classify.rules import RuleClassifier
from router.types import Endpoint, ParsedRequest

SPLIT_SEED: Final = 20261129

Line = dict[str, Any]


def parse(body: Line) -> ParsedRequest:
    """Wrap a body as the intake would, without its bytes."""
    return ParsedRequest(Endpoint.CHAT, b"", body, "model", stream=False)


def read(path: Path) -> list[Line]:
    """Read labelled lines."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def developed_on(lines: list[Line]) -> frozenset[str]:
    """Name the half of the sources that the rules were written with."""
    sources = sorted({line["source"] for line in lines})
    random.Random(SPLIT_SEED).shuffle(sources)
    return frozenset(sources[::2])


def macro_f1(pairs: list[tuple[str, str]]) -> tuple[float, dict[str, float]]:
    """Average the F1 of the classes that occur; pairs are (label, answer)."""
    scores = {}
    right = Counter(label for label, answer in pairs if label == answer)
    labels, answers = Counter(label for label, _ in pairs), Counter(answer for _, answer in pairs)
    for label in labels:
        scores[label] = 2 * right[label] / (labels[label] + answers[label])
    return statistics.fmean(scores.values()), scores


def report(title: str, lines: list[Line], classifier: Classifier) -> None:
    """Print the quality on `lines`; "alt" counts any defensible label as right."""
    answers = [str(classifier.classify(parse(line["request"])).class_id) for line in lines]
    strict = [(line["label"], answer) for line, answer in zip(lines, answers, strict=True)]
    lenient = [
        (answer if answer in (line.get("alt") or ()) else line["label"], answer)
        for line, answer in zip(lines, answers, strict=True)
    ]
    print(f"\n== {title}: {len(lines)} lines")
    for name, pairs in (("strict", strict), ("with alt", lenient)):
        accuracy = statistics.fmean(label == answer for label, answer in pairs)
        print(f"{name:9} accuracy {accuracy:.3f}  macro-F1 {macro_f1(pairs)[0]:.3f}")
    by_class = macro_f1(strict)[1]
    print("F1  ", "  ".join(f"{name} {by_class.get(name, float('nan')):.2f}" for name in CLASSES))
    by_language = defaultdict(list)
    for line, pair in zip(lines, strict, strict=True):
        by_language[line["lang"]].append(pair)
    print(
        "lang",
        "  ".join(
            f"{lang} {statistics.fmean(a == b for a, b in pairs):.2f}/{macro_f1(pairs)[0]:.2f}"
            f" ({len(pairs)})"
            for lang, pairs in sorted(by_language.items(), key=lambda item: -len(item[1]))
        ),
        " (accuracy/macro-F1)",
    )
    confusion = Counter(pair for pair in strict if pair[0] != pair[1])
    print("most confused", ", ".join(f"{a}→{b} {n}" for (a, b), n in confusion.most_common(14)))


def cost(lines: list[Line], classifier: Classifier) -> None:
    """Print the processor time per call for bodies cut or repeated to three sizes.

    Processor time, since on a shared machine the clock shows the neighbours in the tail.
    """
    for size in (2_000, 64_000, 1_000_000):
        requests = [parse(sized(line["request"], size)) for line in lines[:400]]
        # The lines themselves are no part of what is measured, nor is going through them.
        gc.collect()
        gc.freeze()
        taken = []
        for request in requests:
            start = time.thread_time()
            classifier.classify(request)
            taken.append(time.thread_time() - start)
        cuts = statistics.quantiles(taken, n=100)
        print(f"{size:>9} bytes  p50 {cuts[49] * 1e6:6.0f} µs  p99 {cuts[98] * 1e6:6.0f} µs")


def sized(body: Line, size: int) -> Line:
    """Cut or repeat the last message's text to about `size` bytes."""
    messages = body["messages"]
    content = messages[-1].get("content")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    width = len(text.encode()) / max(1, len(text))
    wanted = int(size / width)
    text = (text * (wanted // max(1, len(text)) + 1))[:wanted]
    return {**body, "messages": [*messages[:-1], {**messages[-1], "content": text}]}


def main() -> None:
    """Run the measurements."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("path", type=Path)
    arguments.add_argument("--halves", action="store_true", help="report by half of the sources")
    options = arguments.parse_args()
    lines = read(options.path)
    classifier = RuleClassifier()
    if options.halves:
        seen = developed_on(lines)
        report("developed on", [line for line in lines if line["source"] in seen], classifier)
        report("unseen", [line for line in lines if line["source"] not in seen], classifier)
    else:
        report(options.path.name, lines, classifier)
    print()
    cost(lines, classifier)


if __name__ == "__main__":
    main()
