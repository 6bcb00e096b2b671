"""Finds the words that say what is asked for, in many languages; gives them no weight."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from importlib import resources
from operator import itemgetter
from typing import Final

import yaml

from router.classify.text import normalise

_UNSPACED: Final = frozenset({"zh", "ja", "ko", "th"})
"""Languages whose words are not set apart by blanks, or take endings without one."""


_THAI: Final = "\u0e00-\u0e7f"
_IDEOGRAPHS: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_UNSPACED_LETTER: Final = re.compile(f"[{_THAI}{_IDEOGRAPHS}]")
_IDEOGRAPH_RUN: Final = re.compile(f"[{_IDEOGRAPHS}]+")
_GOES_ON: Final = r"(?!\w)"
"""What a term that is a whole word must not be followed by."""


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


Hit = tuple[tuple[int, ...], int]
"""The cues that a word gives, as positions in `Cue`, and where the word begins."""


class _Node(dict[str, "_Node"]):
    """A letter of a trie of terms; `ends` holds what may follow a term that ends here."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: str | None = None


def _pattern(node: _Node) -> str:
    """Write a trie as a regular expression that tries the longest term first.

    Nested alternatives differ in their first letter, so a position costs a few comparisons
    however many terms there are.
    """
    branches = [re.escape(letter) + _pattern(child) for letter, child in node.items()]
    if node.ends is not None:
        branches.append(node.ends)
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _trie(terms: Mapping[str, str], before: str) -> str:
    """Write terms, each with what must follow it, as one expression after `before`."""
    if not terms:
        return "(?!)"
    root = _Node()
    for term, ending in terms.items():
        node = root
        for letter in term:
            node = node.setdefault(letter, _Node())
        node.ends = ending
    return f"{before}({_by_script(root, (11, 7))})"


def _by_script(root: _Node, shifts: tuple[int, ...]) -> str:
    """Write a trie grouped by blocks of code points, the large ones first.

    A look at a group's set of first letters spares the comparison with each of its terms: with
    those of other alphabets, and with all but a few of the hundreds of ideographs.
    """
    if not shifts or len(root) == 1:
        return _pattern(root)
    groups: dict[int, _Node] = {}
    for letter, node in root.items():
        groups.setdefault(ord(letter) >> shifts[0], _Node())[letter] = node
    if len(groups) == 1:
        return _by_script(root, shifts[1:])
    branches = (
        f"(?=[{''.join(map(re.escape, group))}]){_by_script(group, shifts[1:])}"
        for group in groups.values()
    )
    return f"(?:{'|'.join(branches)})"


def _entries(words: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[int, str, str]]:
    """Yield the position of the cue, the language and the normalised term of each entry."""
    position = {cue.value: index for index, cue in enumerate(Cue)}
    for name, languages in words.items():
        for language, line in languages.items():
            for raw in line.split(","):
                term = normalise(raw).strip()
                if term.strip("*"):
                    yield position[name], language, term


class Lexicon:
    """Terms by cue, compiled into one expression.

    Args:
        words: Cue → language → terms separated by commas.
    """

    def __init__(self, words: Mapping[str, Mapping[str, str]]) -> None:
        self._cues: dict[str, tuple[int, ...]] = {}
        spaced: dict[str, str] = {}
        unspaced: dict[str, str] = {}
        for cue, language, term in _entries(words):
            stem = term.removesuffix("*")
            whole = stem == term and stem[-1].isalnum()
            target = unspaced if language in _UNSPACED else spaced
            # Where two lists hold a term, the one that lets it go on wins.
            target[stem] = _GOES_ON if whole and target.get(stem) != "" else ""
            self._cues[stem] = tuple(dict.fromkeys((*self._cues.get(stem, ()), cue)))
        ascii_terms = {term: ending for term, ending in spaced.items() if term.isascii()}
        # A set in front lets the search skip to the ends of words, which a look behind does not.
        # Sets beyond this one are dear: the compiler draws a map of 64,000 letters for each.
        self._latin = re.compile(_trie(ascii_terms, r"\W"), re.ASCII)
        self._words = re.compile(_trie(spaced, r"\W"))
        self._first = frozenset(term[0] for term in unspaced)
        self._heads = _by_head(unspaced)

    def scan(self, text: str) -> list[Hit]:
        """Return the terms of normalised `text` from left to right, the longest at each place."""
        cues = self._cues
        # The blank stands for the beginning: every word follows something.
        if text.isascii():
            return [(cues[match[1]], match.start()) for match in self._latin.finditer(f" {text}")]
        mixed = _UNSPACED_LETTER.search(text) is not None
        padded = f" {_IDEOGRAPH_RUN.sub(_gap, text)}" if mixed else f" {text}"
        hits = [(cues[match[1]], match.start()) for match in self._words.finditer(padded)]
        taken = self._find_unspaced(text) if mixed else ()
        if not taken:
            return hits
        # A word inside a longer term of a script without blanks is part of that term.
        kept = [hit for hit in hits if not any(start <= hit[1] < end for start, end in taken)]
        kept.extend((cues[text[start:end]], start) for start, end in taken)
        kept.sort(key=itemgetter(1))
        return kept

    def _find_unspaced(self, text: str) -> list[tuple[int, int]]:
        """Return where terms begin and end that may stand anywhere.

        Hundreds of letters begin a term, and few terms begin alike: a look-up by the first two
        letters is quicker than any expression.
        """
        first, heads = self._first, self._heads
        found = []
        free = 0
        for at in [place for place, letter in enumerate(text) if letter in first]:
            if at < free:
                continue
            for term in heads.get(text[at : at + 2]) or heads.get(text[at], ()):
                if text.startswith(term, at):
                    free = at + len(term)
                    found.append((at, free))
                    break
        return found


def _by_head(terms: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Order terms by their first two letters, the longest first; a term may be one letter."""
    heads: dict[str, tuple[str, ...]] = {}
    for term in sorted(terms, key=len, reverse=True):
        heads[term[:2]] = (*heads.get(term[:2], ()), term)
    return {head: (*found, *heads.get(head[:-1], ())) for head, found in heads.items()}


def _gap(run: re.Match[str]) -> str:
    """Write a run of ideographs as what no term holds and what parts the words around it.

    "Python" is a word in Chinese text too.
    """
    length = run.end() - run.start()
    return f"\0{'_' * (length - 2)}\0"[-length:]


@lru_cache(maxsize=1)
def built_in() -> Lexicon:
    """Load the lexicon that comes with the package."""
    source = resources.files("router.classify").joinpath("lexicon.yaml")
    # The loader in C, where there is one, takes a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return Lexicon(yaml.load(source.read_text(encoding="utf-8"), loader))  # noqa: S506
