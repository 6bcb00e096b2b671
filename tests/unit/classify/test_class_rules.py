"""An operator's rules settle the class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policies.types import ClassId
from router.classify.base import CHAT, CODE_EDIT, OTHER
from router.classify.class_rules import RuledClassifier
from router.config.classes import ClassRule
from router.types import Classification, Endpoint, Headers, ParsedRequest
from tests.support.builders import request

OWN = Classification(
    CHAT, 0.6, {CHAT: 0.6, CODE_EDIT: 0.4, OTHER: 0.0}, "why", copy_ratio=0.3, length_band="short"
)


class Inner:
    """Says the same of everything."""

    def classify(self, request: ParsedRequest) -> Classification:
        """Conversation."""
        return OWN


def rule(class_id: str = "mine", **when: Any) -> ClassRule:
    """One rule of a configuration."""
    return ClassRule.model_validate({"class": class_id, "when": when})


def asked(
    system: str = "You are Ada.", *tools: str, headers: Headers = (), **more: Any
) -> ParsedRequest:
    """A request."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "reviewer"}]
    named = [{"type": "function", "function": {"name": name}} for name in tools]
    return replace(request(messages=messages, tools=named, **more), headers=headers)


def applies(each: ParsedRequest, **when: Any) -> bool:
    """Whether a rule holds of a request."""
    return RuledClassifier(Inner(), [rule(**when)]).classify(each).class_id == "mine"


def test_a_rule_settles_the_class_and_leaves_the_rest() -> None:
    """Class, certainty and reason are the rule's; copying and length stay expected."""
    found = RuledClassifier(Inner(), [rule(model="x"), rule(model="m")]).classify(asked())
    assert found == Classification(
        ClassId("mine"),
        1.0,
        {CHAT: 0.0, CODE_EDIT: 0.0, OTHER: 0.0, ClassId("mine"): 1.0},
        "rule 2 of the configuration",
        copy_ratio=0.3,
        length_band="short",
        rule=2,
    )


def test_the_first_rule_that_holds_wins() -> None:
    """Built-in classes may be named too; where none holds, the classifier decides."""
    rules = [rule("code_edit", tool="edit"), rule("mine", model="*")]
    ruled = RuledClassifier(Inner(), rules)
    assert ruled.classify(asked("", "edit")).class_id == CODE_EDIT
    assert ruled.classify(asked("", "other")).class_id == "mine"
    assert RuledClassifier(Inner(), rules[:1]).classify(asked()) is OWN


def test_all_that_a_rule_names_must_hold() -> None:
    """One condition that fails is enough."""
    when = {"model": "m", "tool": "edit", "path": "/v1/chat/*", "system_prompt": "Ada"}
    assert applies(asked("Ada", "edit"), **when)
    for key, other in (("model", "n"), ("tool", "x"), ("path", "/v1/c"), ("system_prompt", "Bob")):
        assert not applies(asked("Ada", "edit"), **{**when, key: other})


def test_the_path_is_the_endpoint_s() -> None:
    """Without its query."""
    each = request(endpoint=Endpoint.COMPLETIONS, prompt="x")
    assert applies(each, path="/v1/completions")
    assert not applies(each, path="/v1/chat/completions")


def test_headers_are_matched_line_by_line() -> None:
    """Whatever the case of their names; a missing one never matches."""
    headers = (("X-App", "shop"), ("x-app", "billing v2"))
    assert applies(asked(headers=headers), header={"x-APP": r"^billing v\d$"})
    assert not applies(asked(headers=headers), header={"X-App": "^v"})
    assert not applies(asked(), header={"X-App": ".*"})
    assert not applies(asked(headers=headers), header={"X-App": "shop", "X-Other": "x"})


@pytest.mark.parametrize(
    ("pattern", "system", "expected"),
    [
        ("(?i)you are a reviewer", "YOU ARE A REVIEWER of code", True),
        ("reviewer", "the user's words do not count", False),
        ("^Ada", "I am Ada", False),
        ("é", "cafe\u0301", True),
        ("دستیار", "تو دستیار هستی", True),
        ("x", "y" * 3000 + "x", False),
        (".", "\ud800", True),
        ("(a*)*b", "a" * 100_000, False),
    ],
)
def test_system_prompts_are_searched_in_a_bounded_head(
    pattern: str, system: str, *, expected: bool
) -> None:
    """For a match anywhere in it, in equivalent Unicode, in linear time."""
    each = asked()
    fields = {"messages": [{"role": "system", "content": system}, *each.fields["messages"][1:]]}
    assert applies(replace(each, fields=fields), system_prompt=pattern) is expected
