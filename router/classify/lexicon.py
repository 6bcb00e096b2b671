"""Finds the words that say what is asked for, in many languages; gives them no weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from importlib import resources
from typing import Final

import yaml
from ahocorasick_rs import AhoCorasick

from router.classify.text import normalise, words_of

_UNSPACED: Final = frozenset({"zh", "ja", "ko", "th"})
"""Languages whose words are not set apart by blanks, or take endings without one."""


class Cue(StrEnum):
    """A kind of word, as in `lexicon.yaml`."""

    TRANSLATE = "translate"
    LANGUAGE = "language"
    SUMMARIZE = "summarize"
    POLISH = "polish"
    REWRITE = "rewrite"
    FIX = "fix"
    CHANGE = "change"
    MAKE = "make"
    CODE = "code"
    PROGLANG = "proglang"
    CREATIVE = "creative"
    CALCULATE = "calculate"
    MATHS = "maths"
    FORMAT = "format"
    SQL = "sql"
    EXTRACT = "extract"
    QUESTION = "question"
    EXPLAIN = "explain"
    PASSAGE = "passage"
    GROUNDING = "grounding"
    PERSONA = "persona"
    SMALLTALK = "smalltalk"
    ENGINEER = "engineer"


Hit = tuple[int, bytes]
"""Where a word begins, and the cues that it gives: a byte for each, its position in `Cue`.

The place of a word in a script without blanks is that of its second letter.
"""


def _entries(words: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[int, str, str]]:
    """Yield the position of the cue, the language and the term of each entry."""
    position = {cue.value: index for index, cue in enumerate(Cue)}
    for name, languages in words.items():
        for language, line in languages.items():
            for raw in line.split(","):
                term = normalise(raw).strip()
                star = "*" if term.endswith("*") else ""
                plain = words_of(term).strip()
                if plain:
                    yield position[name], language, plain + star


class Lexicon:
    """Terms by cue, all of them looked for in one pass.

    Args:
        words: Cue → language → terms separated by commas.
    """

    def __init__(self, words: Mapping[str, Mapping[str, str]]) -> None:
        cues: dict[str, bytes] = {}
        wholes: set[str] = set()
        for cue, language, term in _entries(words):
            stem = term.removesuffix("*")
            # A term of a spaced script begins with a blank; of another it may begin anywhere.
            spaced = language not in _UNSPACED
            pattern = f" {stem}" if spaced else stem
            if spaced and stem == term and not term.endswith(":"):
                # Where two lists hold a term, the one that lets it go on wins.
                if pattern not in cues:
                    wholes.add(pattern)
            else:
                wholes.discard(pattern)
            cues[pattern] = bytes(dict.fromkeys((*cues.get(pattern, b""), cue)))
        patterns: dict[str, bytes] = {}
        for pattern, found in cues.items():
            if pattern in wholes:
                patterns[f"{pattern} "] = found
                patterns.setdefault(f"{pattern}:", found)
            else:
                patterns[pattern] = found
        self._cues = list(patterns.values())
        self._find = AhoCorasick(list(patterns), store_patterns=False).find_matches_as_indexes

    def scan(self, text: str) -> list[Hit]:
        """Return the terms of normalised `text` from left to right, the longest at each place."""
        cues = self._cues
        found = self._find(f" {words_of(text)} ", overlapping=True)
        # Matches come by their ends, so the longest of those that begin together comes last.
        return sorted({start: cues[number] for number, start, _ in found}.items())


@lru_cache(maxsize=1)
def built_in() -> Lexicon:
    """Load the lexicon that comes with the package."""
    source = resources.files("router.classify").joinpath("lexicon.yaml")
    # The loader in C, where there is one, takes a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return Lexicon(yaml.load(source.read_text(encoding="utf-8"), loader))  # noqa: S506
