"""Classifies by rules over features; learns nothing and reads no text itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

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


class Rule(NamedTuple):
    """What evidence adds to the log-score of classes for each unit of its strength."""

    reason: str
    votes: Mapping[ClassId, float]


RULES: Final[tuple[Rule, ...]] = (
    # Copying: the answer repeats the request.
    Rule("source code beside words of repair or change", {CODE_EDIT: 3.0}),
    Rule("source code in the turn", {CODE_EDIT: 2.2}),
    Rule("source code beside a question or words of explanation", {CHAT: 2.0}),
    Rule("words of repair or change after an answer with code", {CODE_EDIT: 3.5}),
    Rule("tools that work on files", {CODE_EDIT: 5.0}),
    Rule("words of a software repository", {CODE_EDIT: 3.0}),
    Rule("a gap to fill", {CODE_EDIT: 3.0}),
    Rule("words of rewording beside given text", {TEXT_EDIT: 3.2}),
    Rule("words of revision beside given text", {TEXT_EDIT: 2.2}),
    Rule("words of correction beside prose", {TEXT_EDIT: 1.3}),
    Rule("words of change beside words for a text", {TEXT_EDIT: 1.6}),
    # Other work on a given text.
    Rule("words of summarising", {SUMMARIZE: 3.4}),
    Rule("words of translation", {TRANSLATE: 2.6}),
    Rule("words of translation with the name of a language", {TRANSLATE: 1.6}),
    Rule("a language is named beside text, and nothing else is asked", {TRANSLATE: 2.5}),
    Rule("a question over given text", {RAG_QA: 2.2}),
    Rule("words that tie the answer to given text", {RAG_QA: 2.4}),
    Rule("a question over text given in the system prompt", {RAG_QA: 2.5}),
    # Structure: the form of the answer is set.
    Rule("the engine enforces a form", {STRUCTURED: 4.0}),
    Rule("a tool must be called", {STRUCTURED: 3.0}),
    Rule("tools are offered", {STRUCTURED: 3.2}),
    Rule("a data format is named", {STRUCTURED: 1.8}),
    Rule("a data format is asked for", {STRUCTURED: 1.5}),
    Rule("words of databases", {STRUCTURED: 3.0}),
    Rule("words of extraction or labelling", {STRUCTURED: 2.2}),
    Rule("the answer was begun in a form", {STRUCTURED: 1.5}),
    # Code from nothing.
    Rule("words of making beside words of programs", {CODE_GEN: 2.2}),
    Rule("words of programs without source code", {CODE_GEN: 1.3}),
    Rule("examples of input and output", {CODE_GEN: 3.0}),
    # Reasoning.
    Rule("words of calculation beside numbers or formulas", {MATH: 2.4}),
    Rule("words of mathematics", {MATH: 1.2}),
    Rule("words of calculation", {MATH: 0.8}),
    Rule("mathematical notation", {MATH: 1.6}),
    Rule("a short question with numbers", {MATH: 1.0}),
    Rule("lettered answers", {MATH: 2.2}),
    # Openness: many answers are equally likely.
    Rule("words of making beside kinds of writing", {CREATIVE: 2.4}),
    Rule("kinds of writing", {CREATIVE: 1.5}),
    Rule("words of making without a known kind of thing", {CREATIVE: 1.5, CHAT: 0.4}),
    Rule("a role to play", {CREATIVE: 1.6, CHAT: 0.6}),
    Rule("words of explanation or advice", {CHAT: 1.5}),
    Rule("a question without given text", {CHAT: 1.6}),
    Rule("words of greeting or thanks", {CHAT: 2.0}),
    Rule("a short turn", {CHAT: 0.5}),
)


def evidence(f: Features) -> tuple[float, ...]:
    """Return how strongly the evidence of each rule is present, in their order.

    One function with plain names, and no names in what it returns: a function for each rule takes
    twice the time, a dictionary of so many another fifth. `a and a * b` is `a * b`: where words are
    missing, which most are, it spares the rest.
    """
    (
        translate, language, summarize, polish, rewrite, fix, change, make, program, proglang,
        creative, calculate, maths, data_format, sql, extract, question, explain, passage,
        grounding, persona, smalltalk, engineer,
    ) = f.asked  # fmt: skip
    (
        _, material, long, context, short, code, fenced, _, prior_code, prior, numbers, formulas,
        examples, choices, question_mark, tools, tool_forced, coding_tools, constrained, agent,
        prefilled_form, infill, _,
    ) = f  # fmt: skip
    given = max(material, prior)
    plain = 1.0 - code
    without_code = 1.0 - max(code, prior_code)
    grounded = min(1.0, grounding)
    programs = program + proglang
    # How far the answer is tied to given text.
    tied = 0.7 * grounded * max(material, context)
    # Whether no verb of a task is there.
    idle = max(0.0, 1.0 - max(summarize, polish, make, explain, extract, question))
    questioning = min(1.2, 0.6 * question_mark + 0.6 * question)
    return (
        # --- Copying: the answer repeats the request.
        # source code beside words of repair or change
        (code and code * min(1.5, fix + change + rewrite)),
        # source code in the turn
        (max(code, 0.5 * fenced) * (1.0 - 0.6 * min(1.0, summarize))),
        # source code beside a question or words of explanation
        (
            code
            and code
            * min(1.0, explain + 0.5 * question_mark)
            * (1.0 - min(1.0, summarize + 0.7 * (fix + change)))
        ),
        # words of repair or change after an answer with code
        (prior_code and prior_code * short * min(1.2, fix + change + rewrite)),
        # tools that work on files
        (coding_tools * (0.5 + 0.5 * agent)),
        # words of a software repository
        (engineer and min(1.5, engineer) * (0.3 + 0.7 * max(agent, tools, 0.5 * prior))),
        # a gap to fill
        infill,
        # words of rewording beside given text
        (polish and polish * (0.7 + 0.3 * given) * plain),
        # words of revision beside given text
        (rewrite and rewrite * (0.3 + 0.7 * given) * without_code),
        # words of correction beside prose
        (fix * without_code),
        # words of change beside words for a text
        (passage and min(1.2, change) * min(1.0, passage) * given * without_code),
        # --- Other work on a given text.
        # words of summarising
        (summarize and summarize * (0.5 + 0.5 * given)),
        # words of translation
        translate,
        # words of translation with the name of a language
        (translate and min(1.0, translate) * min(1.0, language)),
        # a language is named beside text, and nothing else is asked
        (language and min(1.0, language) * material * idle),
        # a question over given text
        (material * plain * (0.6 + 0.4 * long) * questioning),
        # words that tie the answer to given text
        (grounding and min(1.5, grounding) * max(material, context) * plain),
        # a question over text given in the system prompt
        (context * grounded * questioning),
        # --- Structure: the form of the answer is set.
        # the engine enforces a form
        constrained,
        # a tool must be called
        tool_forced,
        # tools are offered
        tools,
        # a data format is named
        data_format,
        # a data format is asked for
        (
            data_format
            and min(1.2, data_format)
            * min(1.0, make + change + extract)
            * (1.0 - 0.7 * min(1.0, programs))
        ),
        # words of databases
        (sql and min(1.5, sql)),
        # words of extraction or labelling
        extract,
        # the answer was begun in a form
        prefilled_form,
        # --- Code from nothing.
        # words of making beside words of programs
        (programs and plain * min(1.2, make) * min(1.2, max(program, proglang))),
        # words of programs without source code
        (plain * min(1.6, programs)),
        # examples of input and output
        (examples * plain),
        # --- Reasoning.
        # words of calculation beside numbers or formulas
        (
            calculate
            and calculate
            * min(1.0, numbers + formulas + 0.5 * maths)
            * (1.0 - 0.7 * long)
            * (1.0 - 0.6 * tools)
        ),
        # words of mathematics
        (maths and min(1.5, maths) * (1.0 - 0.6 * max(long, examples))),
        # words of calculation
        (calculate and min(1.5, calculate) * (1.0 - 0.6 * long)),
        # mathematical notation
        (formulas * plain),
        # a short question with numbers
        (numbers * question_mark * (1.0 - long) * (1.0 - tools) * plain),
        # lettered answers
        (choices * (0.4 + 0.6 * numbers)),
        # --- Openness: many answers are equally likely.
        # words of making beside kinds of writing
        (creative and min(1.2, make) * min(1.2, creative)),
        # kinds of writing
        (creative and min(1.5, creative)),
        # words of making without a known kind of thing
        (make and min(1.0, make) * plain * (1.0 - min(1.0, programs + data_format + sql))),
        # a role to play
        persona,
        # words of explanation or advice
        (
            explain
            and explain
            * (1.0 - 0.5 * tools)
            * (1.0 - 0.5 * long)
            * (1.0 - tied)
            * (1.0 - 0.6 * code * min(1.0, fix + change))
        ),
        # a question without given text
        (
            (1.0 - material)
            * (1.0 - 0.6 * tools)
            * (1.0 - context)
            * (1.0 - tied)
            * (1.0 - 0.4 * min(1.0, explain))
            * questioning
        ),
        # words of greeting or thanks
        (smalltalk * short),
        # a short turn
        short,
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
        for rule, strength in zip(RULES, evidence(features), strict=True):
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
