"""Reference answers to labelled prompts, and the grammar that makes an engine say one.

``answers.jsonl`` holds for 90 lines of ``dev.jsonl``, nine of each class, the answer that a good
assistant would give: written for this purpose by a language model, before any copy ratio of these
prompts was looked at. The words are under CC0-1.0, except where an answer repeats or translates its
request: that part stays under the request's licence, which is in the line. Prompts are named by id
only. Which prompts was drawn beforehand:

    python -m bench.answers dev.jsonl --per-class 9 --seed 20261130

A grammar that holds the text alone leaves the engine free in how it cuts it, and a model that would
say something else cuts it into other and more tokens than a model that means it; such tokens match
nothing in the prompt. So the grammar names the tokens that the engine's own tokenizer gives.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_FREE = frozenset({"CC0-1.0", "MIT", "Apache-2.0"})
_LONGEST_BODY = 4000


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file of labelled request bodies."""
    # By line breaks alone: texts hold other characters that end a line.
    for line in path.read_text("utf-8").rstrip("\n").split("\n"):
        yield json.loads(line)


def plain(entry: Mapping[str, Any]) -> bool:
    """Whether a request is short, of plain texts, and without tools."""
    request = entry["request"]
    return (
        all(isinstance(message.get("content"), str) for message in request["messages"])
        and "tools" not in request
        and len(json.dumps(request, ensure_ascii=False)) <= _LONGEST_BODY
    )


def choose(
    lines: Iterable[Mapping[str, Any]], per_class: int, seed: int
) -> list[Mapping[str, Any]]:
    """Draws as many plain requests of each class, those under free licences before others."""
    by_class: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for entry in lines:
        if plain(entry):
            by_class[entry["label"]].append(entry)
    rng = random.Random(seed)
    chosen = []
    for _, own in sorted(by_class.items()):
        free = [entry for entry in own if entry["licence"] in _FREE]
        other = [entry for entry in own if entry["licence"] not in _FREE]
        first = rng.sample(free, min(per_class, len(free)))
        chosen += first + rng.sample(other, min(per_class - len(first), len(other)))
    return chosen


def literal(text: str) -> str:
    """A text as a GBNF terminal."""
    return f'"{text.translate(_ESCAPES)}"'


def grammar(tokens: Iterable[Mapping[str, Any]]) -> str:
    """A GBNF that allows one text alone, cut as given.

    Args:
        tokens: What the engine's ``/tokenize`` gives with pieces. A piece is a text, or a list of
            bytes where it is no whole characters; such pieces are spelt out together up to the next
            whole character, since the engine refuses them by number.
    """
    terms = []
    split = b""
    for token in tokens:
        piece = token["piece"]
        if isinstance(piece, str) and not split:
            terms.append(f"<[{token['id']}]>")
            continue
        split += piece.encode() if isinstance(piece, str) else bytes(piece)
        with contextlib.suppress(UnicodeDecodeError):
            terms.append(literal(split.decode()))
            split = b""
    return "root ::= " + " ".join(terms)


def main() -> None:
    """Prints the ids that are drawn, with class, language and licence."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, help="labelled request bodies, JSON lines")
    parser.add_argument("--per-class", type=int, default=9)
    parser.add_argument("--seed", type=int, default=20261130)
    arguments = parser.parse_args()
    for entry in choose(entries(arguments.data), arguments.per_class, arguments.seed):
        print(entry["id"], entry["label"], entry["lang"], entry["licence"], sep="\t")


if __name__ == "__main__":
    main()
