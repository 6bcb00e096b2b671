"""Prints what the classifier says of some hundred bodies, and on the other stream what it runs as."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import yaml

from bench.conversations import bodies
from router.classify import trained
from router.classify.load import default_classifier
from router.intake.parse import parse_request
from router.types import Endpoint

PROMPTS = Path(__file__).parents[1] / "unit" / "classify" / "prompts.yaml"


def asked() -> Iterator[bytes]:
    """Prompts of all classes in many languages, the same with their letters mixed, long ones."""
    mixing = random.Random(20261129)
    for prompts in yaml.safe_load(PROMPTS.read_text(encoding="utf-8")).values():
        for prompt in prompts:
            letters = list(prompt["user"])
            mixing.shuffle(letters)
            for content in (prompt["user"], "".join(letters)):
                turns = [{"role": "user", "content": content}]
                if "system" in prompt:
                    turns.insert(0, {"role": "system", "content": prompt["system"]})
                more = {"tools": prompt["tools"]} if "tools" in prompt else {}
                yield orjson.dumps({"model": "m", "messages": turns, **more})
    for size in (2_000, 64_000):
        yield from bodies(size, 100)


if __name__ == "__main__":
    classifier = default_classifier()
    for body in asked():
        sys.stdout.write(f"{classifier.classify(parse_request(Endpoint.CHAT, body))!r}\n")
    sys.stderr.write(trained.__file__.rpartition(".")[2])
