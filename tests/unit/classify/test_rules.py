from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from router.classify import rules
from router.classify.base import CLASSES, OTHER, Classifier
from router.classify.features import extract_features
from router.classify.lexicon import built_in
from router.classify.rules import RULES, RuleClassifier, evidence
from router.classify.view import RequestView
from router.types import Classification, Endpoint, ParsedRequest

PROMPTS: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("prompts.yaml").read_text(encoding="utf-8")
)
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)
TURN = st.fixed_dictionaries({"role": st.sampled_from(("system", "user", "assistant"))}).flatmap(
    lambda turn: st.builds(lambda content: {**turn, "content": content}, JSON)
)


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return RuleClassifier()


def classify(classifier: Classifier, fields: dict[str, Any]) -> Classification:
    return classifier.classify(ParsedRequest(Endpoint.CHAT, b"", fields, "m", stream=False))


def body(prompt: dict[str, Any]) -> dict[str, Any]:
    """Write a prompt of the file as a request body."""
    roles = [role for role in ("system", "user") if role in prompt]
    fields = {"messages": [{"role": role, "content": prompt[role]} for role in roles]}
    if "tools" in prompt:
        fields["tools"] = [
            {"type": "function", "function": {"name": name}} for name in prompt["tools"]
        ]
    return fields | {"response_format": prompt.get("response_format")}


@pytest.mark.parametrize(
    ("label", "prompt"),
    [
        pytest.param(label, prompt, id=f"{label}-{number}")
        for label, prompts in PROMPTS.items()
        for number, prompt in enumerate(prompts)
    ],
)
def test_plain_requests_get_their_class(
    classifier: Classifier, label: str, prompt: dict[str, Any]
) -> None:
    """Requests that say plainly what they want are understood, in many languages."""
    answer = classify(classifier, body(prompt))
    assert answer.class_id == label, answer


def test_every_class_is_tried() -> None:
    """The table above has requests for each class."""
    assert sorted(PROMPTS) == sorted(CLASSES)


@pytest.mark.parametrize("fields", [{}, {"prompt": [1, 2, 3]}, {"messages": []}])
def test_without_text_the_class_is_other(classifier: Classifier, fields: dict[str, Any]) -> None:
    """With nothing to read, no class is named."""
    answer = classify(classifier, fields)
    assert (answer.class_id, answer.reason) == (OTHER, "no class stands out")


def test_floor_decides_between_a_class_and_other() -> None:
    """Below the floor the class is `other`; the probabilities stay what they were."""
    fields = body(PROMPTS["creative"][0])
    named, unnamed = (classify(RuleClassifier(floor), fields) for floor in (0.0, 1.1))
    assert (named.class_id, unnamed.class_id) == ("creative", OTHER)
    assert named.probabilities == unnamed.probabilities


def test_follow_up_is_read_with_the_answer_before(classifier: Classifier) -> None:
    """A short wish after an answer with code is an edit of that code."""
    messages = [
        {"role": "user", "content": "Write a function that reads a number."},
        {"role": "assistant", "content": "```python\ndef read():\n    return int(input())\n```"},
        {"role": "user", "content": "Add error handling."},
    ]
    assert classify(classifier, {"messages": messages}).class_id == "code_edit"


def test_rules_vote_for_known_classes_with_distinct_reasons() -> None:
    """A reason points to one rule, and no rule votes for a class that does not exist."""
    assert len({rule.reason for rule in RULES}) == len(RULES)
    assert all(set(rule.votes) <= set(CLASSES) for rule in RULES)


def test_reason_quotes_nothing(classifier: Classifier) -> None:
    """The reason is made of the rules' own words only."""
    reason = classify(classifier, body(PROMPTS["translate"][0])).reason
    known = {rule.reason for rule in RULES}
    assert set(reason.split("; ")) <= known


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": "word " * 200_000}]},
        {"messages": [{"role": "user", "content": "x"}] * 200_000},
        {"messages": [{"role": "user", "content": "Translate: " + "\ufdfa" * 30_000}]},
        {"prompt": "\ud800" * 30_000},
    ],
    ids=["megabyte", "messages", "expanding", "surrogates"],
)
def test_large_and_odd_bodies_are_classified(
    classifier: Classifier, fields: dict[str, Any]
) -> None:
    """Size and odd characters change nothing about the form of the answer."""
    answer = classify(classifier, fields)
    assert sum(answer.probabilities.values()) == pytest.approx(1.0)


@given(st.lists(TURN | JSON, max_size=4) | JSON, JSON, JSON)
def test_total_and_deterministic(messages: object, tools: object, form: object) -> None:
    """Any JSON is classified, twice the same, with a distribution over the ten and `other`."""
    classifier = RuleClassifier()
    fields = {"messages": messages, "prompt": messages, "tools": tools, "response_format": form}
    answer = classify(classifier, fields)
    assert answer == classify(classifier, fields)
    assert set(answer.probabilities) == {*CLASSES, OTHER}
    assert sum(answer.probabilities.values()) == pytest.approx(1.0)
    assert answer.confidence == answer.probabilities[answer.class_id]


def test_evidence_is_that_of_the_rules() -> None:
    """Strengths are used by position, so they come in the order of the rules, one for each."""
    reasons = [rule.reason for rule in RULES]
    assert len(evidence(extract_features(RequestView(), built_in()))) == len(reasons)
    # Read from the file: where the module is machine code, that is what it was made of.
    source = Path(rules.__file__).with_name("rules.py").read_text(encoding="utf-8")
    (function,) = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == "evidence"
    )
    lines = source.splitlines()[function.lineno : function.end_lineno]
    comments = [line.strip().removeprefix("# ") for line in lines]
    assert [comment for comment in comments if comment in reasons] == reasons
