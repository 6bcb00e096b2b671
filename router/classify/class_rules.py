"""Lets an operator's rules settle the class; what no rule is about, another classifier decides."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policies.types import ClassId
from router.classify.application import header_values, system_head, tool_names
from router.config.classes import ClassRule, When
from router.config.patterns import Matcher, name_matcher, pattern_matcher

if TYPE_CHECKING:
    from router.classify.base import Classifier
    from router.types import Classification, ParsedRequest

SYSTEM_CHARS: Final = 2048

Condition = Callable[["ParsedRequest"], bool]


class RuledClassifier:
    """Applies the first rule that holds.

    Args:
        inner: Decides where none holds; its expectations of copying and length stay in any case.
        rules: In order of precedence.
    """

    def __init__(self, inner: Classifier, rules: Sequence[ClassRule]) -> None:
        self._inner = inner
        self._rules = [(ClassId(rule.class_id), _conditions(rule.when)) for rule in rules]

    def classify(self, request: ParsedRequest) -> Classification:
        """Return the class of the first rule that holds, or what the inner classifier says."""
        own = self._inner.classify(request)
        for number, (class_id, conditions) in enumerate(self._rules, start=1):
            if all(condition(request) for condition in conditions):
                return replace(
                    own,
                    class_id=class_id,
                    confidence=1.0,
                    probabilities={**dict.fromkeys(own.probabilities, 0.0), class_id: 1.0},
                    reason=f"rule {number} of the configuration",
                    rule=number,
                )
        return own


def _conditions(when: When) -> list[Condition]:
    """Compile what must hold, what is cheap to see first."""
    conditions: list[Condition] = []
    if when.model:
        conditions.append(_of_model(name_matcher(when.model)))
    if when.path:
        conditions.append(_of_path(name_matcher(when.path)))
    for name, pattern in when.header.items():
        conditions.append(_of_header(name.lower(), pattern_matcher(pattern)))
    if when.tool:
        conditions.append(_of_tool(name_matcher(when.tool)))
    if when.system_prompt:
        conditions.append(_of_system_prompt(pattern_matcher(when.system_prompt)))
    return conditions


def _of_model(matches: Matcher) -> Condition:
    return lambda request: matches(request.model)


def _of_path(matches: Matcher) -> Condition:
    return lambda request: matches(request.endpoint.value)


def _of_header(name: str, matches: Matcher) -> Condition:
    return lambda request: any(map(matches, header_values(request.headers, name)))


def _of_tool(matches: Matcher) -> Condition:
    return lambda request: any(map(matches, tool_names(request.fields)))


def _of_system_prompt(matches: Matcher) -> Condition:
    return lambda request: matches(
        unicodedata.normalize("NFC", system_head(request.fields, SYSTEM_CHARS))
    )
