"""Finds the words that say what is asked for, in many languages; gives them no weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from importlib import resources
from typing import Final, NamedTuple

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


Hit = tuple[tuple[int, ...], int, int]
"""The cues that a word gives, as positions in `Cue`, and where the word begins and ends."""


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


class _Term(NamedTuple):
    cues: tuple[int, ...]
    lead: int
    """Characters between where a match begins and the position that is told."""
    trail: int
    """Characters that must follow and are no part of the term."""


class Lexicon:
    """Terms by cue, all of them looked for in one pass.

    Args:
        words: Cue → language → terms separated by commas.
    """

    def __init__(self, words: Mapping[str, Mapping[str, str]]) -> None:
        cues: dict[str, tuple[int, ...]] = {}
        wholes: set[str] = set()
        for cue, language, term in _entries(words):
            stem = term.removesuffix("*")
            spaced = language not in _UNSPACED
            pattern = f" {stem}" if spaced else stem
            if spaced and stem == term and not term.endswith(":"):
                # Where two lists hold a term, the one that lets it go on wins.
                if pattern not in cues:
                    wholes.add(pattern)
            else:
                wholes.discard(pattern)
            cues[pattern] = tuple(dict.fromkeys((*cues.get(pattern, ()), cue)))
        terms: dict[str, _Term] = {}
        for pattern, found in cues.items():
            # A term of a spaced script begins one blank before its first letter, and so does the
            # text; a term of another script may begin anywhere.
            lead = 0 if pattern[0] == " " else 1
            if pattern in wholes:
                terms[f"{pattern} "] = _Term(found, lead, 1)
                terms.setdefault(f"{pattern}:", _Term(found, lead, 1))
            else:
                terms[pattern] = _Term(found, lead, 0)
        self._terms = list(terms.values())
        self._find = AhoCorasick(list(terms), store_patterns=False).find_matches_as_indexes

    def scan(self, text: str) -> list[Hit]:
        """Return the terms of normalised `text` from left to right, the longest at each place."""
        terms = self._terms
        hits: list[Hit] = []
        last, free = -1, 0
        # Matches come by their ends, all that there are: of those that share letters the one
        # stays that begins first, and of those that begin together the longest.
        for number, start, end in self._find(f" {words_of(text)} ", overlapping=True):
            cues, lead, trail = terms[number]
            place = start - lead
            while place <= last:
                hits.pop()
                last, free = (hits[-1][1], hits[-1][2]) if hits else (-1, 0)
            if start >= free:
                last, free = place, end - trail
                hits.append((cues, place, free))
        return hits


@lru_cache(maxsize=1)
def built_in() -> Lexicon:
    """Load the lexicon that comes with the package."""
    source = resources.files("router.classify").joinpath("lexicon.yaml")
    # The loader in C, where there is one, takes a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return Lexicon(yaml.load(source.read_text(encoding="utf-8"), loader))  # noqa: S506
