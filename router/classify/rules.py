"""Classifies by rules over features; learns nothing and reads no text itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from router.classify.base import (
    CHAT,
    CLASSES,
    CODE_EDIT,
    CODE_GEN,
    CREATIVE,
    MATH,
    OTHER,
    RAG_QA,
    STRUCTURED,
    SUMMARIZE,
    TEXT_EDIT,
    TRANSLATE,
)
from router.classify.features import Features, extract_features
from router.classify.lexicon import built_in
from router.classify.view import view_request
from router.types import Classification

if TYPE_CHECKING:
    from policies.types import ClassId
    from router.types import ParsedRequest

CONFIDENCE_FLOOR: Final = 0.25


@dataclass(frozen=True, slots=True)
class Rule:
    """Evidence: how strongly it is present, and what that adds to the log-score of classes."""

    reason: str
    strength: Callable[[Features], float]
    votes: Mapping[ClassId, float]


def _questioning(f: Features) -> float:
    return min(1.2, 0.6 * f.question_mark + 0.6 * f.asked.question)


def _tied(f: Features) -> float:
    """How far the answer is tied to given text."""
    return 0.7 * min(1.0, f.asked.grounding) * max(f.material, f.context)


def _idle(f: Features) -> float:
    """Tell whether no verb of a task is there."""
    asked = f.asked
    strongest = max(
        asked.summarize, asked.polish, asked.make, asked.explain, asked.extract, asked.question
    )
    return max(0.0, 1.0 - strongest)


RULES: Final[tuple[Rule, ...]] = (
    # Copying: the answer repeats the request.
    Rule(
        "source code beside words of repair or change",
        lambda f: f.code * min(1.5, f.asked.fix + f.asked.change + f.asked.rewrite),
        {CODE_EDIT: 3.0},
    ),
    Rule(
        "source code in the turn",
        lambda f: max(f.code, 0.5 * f.fenced) * (1.0 - 0.6 * min(1.0, f.asked.summarize)),
        {CODE_EDIT: 2.2},
    ),
    Rule(
        "source code beside a question or words of explanation",
        lambda f: (
            f.code
            * min(1.0, f.asked.explain + 0.5 * f.question_mark)
            * (1.0 - min(1.0, f.asked.summarize + 0.7 * (f.asked.fix + f.asked.change)))
        ),
        {CHAT: 2.0},
    ),
    Rule(
        "words of repair or change after an answer with code",
        lambda f: f.prior_code * f.short * min(1.2, f.asked.fix + f.asked.change + f.asked.rewrite),
        {CODE_EDIT: 3.5},
    ),
    Rule(
        "tools that work on files",
        lambda f: f.coding_tools * (0.5 + 0.5 * f.agent),
        {CODE_EDIT: 5.0},
    ),
    Rule(
        "words of a software repository",
        lambda f: min(1.5, f.asked.engineer) * (0.3 + 0.7 * max(f.agent, f.tools, 0.5 * f.prior)),
        {CODE_EDIT: 3.0},
    ),
    Rule("a gap to fill", lambda f: f.infill, {CODE_EDIT: 3.0}),
    Rule(
        "words of rewording beside given text",
        lambda f: f.asked.polish * (0.7 + 0.3 * max(f.material, f.prior)) * (1.0 - f.code),
        {TEXT_EDIT: 3.2},
    ),
    Rule(
        "words of revision beside given text",
        lambda f: (
            f.asked.rewrite
            * (0.3 + 0.7 * max(f.material, f.prior))
            * (1.0 - max(f.code, f.prior_code))
        ),
        {TEXT_EDIT: 2.2},
    ),
    Rule(
        "words of correction beside prose",
        lambda f: f.asked.fix * (1.0 - max(f.code, f.prior_code)),
        {TEXT_EDIT: 1.3},
    ),
    Rule(
        "words of change beside words for a text",
        lambda f: (
            min(1.2, f.asked.change)
            * min(1.0, f.asked.passage)
            * max(f.material, f.prior)
            * (1.0 - max(f.code, f.prior_code))
        ),
        {TEXT_EDIT: 1.6},
    ),
    # Other work on a given text.
    Rule(
        "words of summarising",
        lambda f: f.asked.summarize * (0.5 + 0.5 * max(f.material, f.prior)),
        {SUMMARIZE: 3.4},
    ),
    Rule("words of translation", lambda f: f.asked.translate, {TRANSLATE: 2.6}),
    Rule(
        "words of translation with the name of a language",
        lambda f: min(1.0, f.asked.translate) * min(1.0, f.asked.language),
        {TRANSLATE: 1.6},
    ),
    Rule(
        "a language is named beside text, and nothing else is asked",
        lambda f: min(1.0, f.asked.language) * f.material * _idle(f),
        {TRANSLATE: 2.5},
    ),
    Rule(
        "a question over given text",
        lambda f: f.material * (1.0 - f.code) * (0.6 + 0.4 * f.long) * _questioning(f),
        {RAG_QA: 2.2},
    ),
    Rule(
        "words that tie the answer to given text",
        lambda f: min(1.5, f.asked.grounding) * max(f.material, f.context) * (1.0 - f.code),
        {RAG_QA: 2.4},
    ),
    Rule(
        "a question over text given in the system prompt",
        lambda f: f.context * min(1.0, f.asked.grounding) * _questioning(f),
        {RAG_QA: 2.5},
    ),
    # Structure: the form of the answer is set.
    Rule("the engine enforces a form", lambda f: f.constrained, {STRUCTURED: 4.0}),
    Rule("a tool must be called", lambda f: f.tool_forced, {STRUCTURED: 3.0}),
    Rule("tools are offered", lambda f: f.tools, {STRUCTURED: 3.2}),
    Rule("a data format is named", lambda f: f.asked.format, {STRUCTURED: 1.8}),
    Rule(
        "a data format is asked for",
        lambda f: (
            min(1.2, f.asked.format)
            * min(1.0, f.asked.make + f.asked.change + f.asked.extract)
            * (1.0 - 0.7 * min(1.0, f.asked.code + f.asked.proglang))
        ),
        {STRUCTURED: 1.5},
    ),
    Rule("words of databases", lambda f: min(1.5, f.asked.sql), {STRUCTURED: 3.0}),
    Rule("words of extraction or labelling", lambda f: f.asked.extract, {STRUCTURED: 2.2}),
    Rule("the answer was begun in a form", lambda f: f.prefilled_form, {STRUCTURED: 1.5}),
    # Code from nothing.
    Rule(
        "words of making beside words of programs",
        lambda f: (
            (1.0 - f.code) * min(1.2, f.asked.make) * min(1.2, max(f.asked.code, f.asked.proglang))
        ),
        {CODE_GEN: 2.2},
    ),
    Rule(
        "words of programs without source code",
        lambda f: (1.0 - f.code) * min(1.6, f.asked.code + f.asked.proglang),
        {CODE_GEN: 1.3},
    ),
    Rule(
        "examples of input and output",
        lambda f: f.examples * (1.0 - f.code),
        {CODE_GEN: 3.0},
    ),
    # Reasoning.
    Rule(
        "words of calculation beside numbers or formulas",
        lambda f: (
            f.asked.calculate
            * min(1.0, f.numbers + f.formulas + 0.5 * f.asked.maths)
            * (1.0 - 0.7 * f.long)
            * (1.0 - 0.6 * f.tools)
        ),
        {MATH: 2.4},
    ),
    Rule(
        "words of mathematics",
        lambda f: min(1.5, f.asked.maths) * (1.0 - 0.6 * max(f.long, f.examples)),
        {MATH: 1.2},
    ),
    Rule(
        "words of calculation",
        lambda f: min(1.5, f.asked.calculate) * (1.0 - 0.6 * f.long),
        {MATH: 0.8},
    ),
    Rule("mathematical notation", lambda f: f.formulas * (1.0 - f.code), {MATH: 1.6}),
    Rule(
        "a short question with numbers",
        lambda f: f.numbers * f.question_mark * (1.0 - f.long) * (1.0 - f.tools) * (1.0 - f.code),
        {MATH: 1.0},
    ),
    Rule("lettered answers", lambda f: f.choices * (0.4 + 0.6 * f.numbers), {MATH: 2.2}),
    # Openness: many answers are equally likely.
    Rule(
        "words of making beside kinds of writing",
        lambda f: min(1.2, f.asked.make) * min(1.2, f.asked.creative),
        {CREATIVE: 2.4},
    ),
    Rule("kinds of writing", lambda f: min(1.5, f.asked.creative), {CREATIVE: 1.5}),
    Rule(
        "words of making without a known kind of thing",
        lambda f: (
            min(1.0, f.asked.make)
            * (1.0 - f.code)
            * (1.0 - min(1.0, f.asked.code + f.asked.proglang + f.asked.format + f.asked.sql))
        ),
        {CREATIVE: 1.5, CHAT: 0.4},
    ),
    Rule("a role to play", lambda f: f.asked.persona, {CREATIVE: 1.6, CHAT: 0.6}),
    Rule(
        "words of explanation or advice",
        lambda f: (
            f.asked.explain
            * (1.0 - 0.5 * f.tools)
            * (1.0 - 0.5 * f.long)
            * (1.0 - _tied(f))
            * (1.0 - 0.6 * f.code * min(1.0, f.asked.fix + f.asked.change))
        ),
        {CHAT: 1.5},
    ),
    Rule(
        "a question without given text",
        lambda f: (
            (1.0 - f.material)
            * (1.0 - 0.6 * f.tools)
            * (1.0 - f.context)
            * (1.0 - _tied(f))
            * (1.0 - 0.4 * min(1.0, f.asked.explain))
            * _questioning(f)
        ),
        {CHAT: 1.6},
    ),
    Rule("words of greeting or thanks", lambda f: f.asked.smalltalk * f.short, {CHAT: 2.0}),
    Rule("a short turn", lambda f: f.short, {CHAT: 0.5}),
)

_START: Final[Mapping[ClassId, float]] = {**dict.fromkeys(CLASSES, 0.0), CHAT: 0.5, OTHER: 0.3}
"""Log-scores before any evidence: far too even to name a class, conversation the likeliest."""

_SHARPNESS: Final = 1.2
"""Factor on log-scores at which confidence best fits how often the answer is right."""


class RuleClassifier:
    """Adds up the votes of rules.

    Args:
        floor: Least probability at which a class is named; below it the answer is `OTHER`.
    """

    def __init__(self, floor: float = CONFIDENCE_FLOOR) -> None:
        self._floor = floor
        self._lexicon = built_in()

    def classify(self, request: ParsedRequest) -> Classification:
        """Say what `request` is about."""
        features = extract_features(view_request(request), self._lexicon)
        scores = dict(_START)
        present: list[tuple[Rule, float]] = []
        for rule in RULES:
            strength = rule.strength(features)
            if strength > 0.0:
                present.append((rule, strength))
                for class_id, vote in rule.votes.items():
                    scores[class_id] += vote * strength
        probabilities = _softmax(scores)
        best = max(CLASSES, key=probabilities.__getitem__)
        if probabilities[best] < self._floor:
            best = OTHER
        return Classification(best, probabilities[best], probabilities, _reason(best, present))


def _softmax(scores: Mapping[ClassId, float]) -> dict[ClassId, float]:
    top = max(scores.values())
    weights = {class_id: math.exp(_SHARPNESS * (score - top)) for class_id, score in scores.items()}
    total = sum(weights.values())
    return {class_id: weight / total for class_id, weight in weights.items()}


def _reason(class_id: ClassId, present: list[tuple[Rule, float]]) -> str:
    """Name the two rules that spoke most for a class."""
    if class_id == OTHER:
        return "no class stands out"
    votes = sorted(
        (
            (rule.votes[class_id] * strength, rule.reason)
            for rule, strength in present
            if class_id in rule.votes
        ),
        reverse=True,
    )
    return "; ".join(reason for _, reason in votes[:2]) or "the likeliest without evidence"
