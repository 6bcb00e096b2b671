from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from router.classify.base import CLASSES, OTHER, Classifier
from router.classify.grams import BITS
from router.classify.load import default_classifier
from router.classify.model import Model
from router.classify.rules import RULES
from router.classify.trained import TrainedClassifier
from router.classify.vector import NAMES
from router.intake.parse import parse_request
from router.types import Classification, Endpoint, ParsedRequest

PROMPTS: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("prompts.yaml").read_text(encoding="utf-8")
)
WORDS = {"wording common for this class", "the likeliest by shape and size"}
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)
PART = st.fixed_dictionaries(
    {"type": st.sampled_from(("text", "image_url", "tool_result", "document", "tool_use")) | JSON},
    optional={"text": ANY_TEXT | JSON, "source": JSON, "content": JSON},
)
TURN = st.fixed_dictionaries(
    {"role": st.sampled_from(("system", "user", "assistant", "tool")) | JSON},
    optional={"content": st.lists(PART, max_size=3) | JSON, "tool_calls": JSON, "type": JSON},
)
FIELDS = (
    "messages",
    "input",
    "instructions",
    "prompt",
    "system",
    "tools",
    "tool_choice",
    "response_format",
    "text",
    "output_config",
    "max_tokens",
    "structured_outputs",
)
BODY = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(FIELDS, JSON) | dict.fromkeys(("messages", "input"), st.lists(TURN))
)


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return default_classifier()


def classify(classifier: Classifier, fields: dict[str, Any]) -> Classification:
    return classifier.classify(ParsedRequest(Endpoint.CHAT, b"", fields, "m", stream=False))


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def body(prompt: dict[str, Any]) -> dict[str, Any]:
    """Write a prompt of the file as a request body."""
    roles = [role for role in ("system", "user") if role in prompt]
    fields = {"messages": [{"role": role, "content": prompt[role]} for role in roles]}
    if "tools" in prompt:
        fields["tools"] = [
            {"type": "function", "function": {"name": name}} for name in prompt["tools"]
        ]
    return fields | {"response_format": prompt.get("response_format")}


ALL = [
    pytest.param(label, body(prompt), id=f"{label}-{number}")
    for label, prompts in PROMPTS.items()
    for number, prompt in enumerate(prompts)
]


def test_default_is_trained(classifier: Classifier) -> None:
    """The package comes with usable weights."""
    assert isinstance(classifier, TrainedClassifier)


@pytest.mark.parametrize(("label", "fields"), ALL)
def test_plain_requests_get_their_class(
    classifier: Classifier, label: str, fields: dict[str, Any]
) -> None:
    """Requests that say plainly what they want are understood, in many languages."""
    answer = classify(classifier, fields)
    assert answer.class_id == label, answer


@pytest.mark.parametrize(("label", "fields"), ALL)
def test_form_of_the_body_does_not_matter(
    classifier: Classifier, label: str, fields: dict[str, Any]
) -> None:
    """Order of keys, white space and escapes of JSON change nothing at all."""
    fields = {"model": "m", **fields}
    turned = {
        key: [dict(reversed(item.items())) for item in value] if key == "messages" else value
        for key, value in reversed(fields.items())
    }
    written = (orjson.dumps(fields), json.dumps(turned, indent=3).encode())
    first, second = (classifier.classify(parse_request(Endpoint.CHAT, text)) for text in written)
    assert first == second
    assert first.class_id == label


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
@pytest.mark.parametrize(("label", "fields"), ALL)
def test_equivalent_unicode_forms_get_one_class(
    classifier: Classifier, label: str, fields: dict[str, Any], form: Any
) -> None:
    """Composed, decomposed and compatibility forms of a text are the same text."""
    messages = [
        {**message, "content": unicodedata.normalize(form, message["content"])}
        for message in fields["messages"]
    ]
    assert classify(classifier, {**fields, "messages": messages}).class_id == label


ARABIC = str.maketrans("یک۰۱۲۳۴۵۶۷۸۹", "يك٠١٢٣٤٥٦٧٨٩")
PERSIAN = str.maketrans("يك٠١٢٣٤٥٦٧٨٩", "یک۰۱۲۳۴۵۶۷۸۹")
LATIN_DIGITS = str.maketrans("٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹", "01234567890123456789")


@pytest.mark.parametrize("table", [ARABIC, PERSIAN, LATIN_DIGITS], ids=["ar", "fa", "digits"])
@pytest.mark.parametrize(("label", "fields"), ALL)
def test_keyboards_of_one_script_get_one_class(
    classifier: Classifier, label: str, fields: dict[str, Any], table: dict[int, int]
) -> None:
    """Persian and Arabic letters and digits of the same value are the same to us."""
    messages = [
        {**message, "content": message["content"].translate(table)}
        for message in fields["messages"]
    ]
    assert classify(classifier, {**fields, "messages": messages}).class_id == label


def shapes(text: str, system: str) -> list[dict[str, Any]]:
    """Write one request in each dialect."""
    return [
        {"messages": [{"role": "system", "content": system}, {"role": "user", "content": text}]},
        {"system": system, "messages": [{"role": "user", "content": text}]},
        {
            "system": [{"type": "text", "text": system}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}],
        },
        {"instructions": system, "input": text},
        {
            "instructions": system,
            "input": [{"role": "user", "content": [{"type": "input_text", "text": text}]}],
        },
    ]


@pytest.mark.parametrize(("label", "fields"), ALL)
def test_dialects_of_one_request_get_one_answer(
    classifier: Classifier, label: str, fields: dict[str, Any]
) -> None:
    """Chat, Anthropic and Responses bodies that say the same are judged the same."""
    shared = {name: fields[name] for name in ("tools", "response_format") if name in fields}
    system = "Be accurate."
    if len(fields["messages"]) > 1:
        system = fields["messages"][0]["content"]
    text = fields["messages"][-1]["content"]
    answers = [classify(classifier, shared | shape) for shape in shapes(text, system)]
    assert answers == [answers[0]] * len(answers)
    assert answers[0].class_id == label


def deep(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


HOSTILE = {
    "many messages": {"messages": [{"role": "user", "content": "x"}] * 200_000},
    "many parts": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 200_000}]
    },
    "deep content": {"messages": [{"role": "user", "content": deep(10_000)}]},
    "deep field": {"messages": [{"role": "user", "content": "hi"}], "tools": deep(10_000)},
    "one word": said("a" * 10_000_000),
    "one ideograph": said("\u6e2f" * 3_000_000),
    "surrogates": said("Translate \ud800\udfff\udc00" * 3_000),
    "emoji": said("\U0001f600\u200d\U0001f525" * 4_000),
    "marks": said("\u202e\u200f\u2067Summarize this\u2069" * 2_000),
    "combining": said("a" + "\u0301" * 500_000),
    "expanding": said("Translate: " + "\ufdfa" * 30_000),
    "binary": said("".join(map(chr, range(256))) * 1_000),
    "blanks": said(" \n\t" * 100_000),
    "no role": {"messages": [{"content": "Summarize this."}]},
    "no content": {"messages": [{"role": "user"}]},
    "no messages": {"messages": []},
    "odd messages": {"messages": [None, 1, "x", [], {}]},
    "odd input": {"input": [None, 1, "x", [], {"type": []}, {"role": {}}]},
    "many tools": {**said("hi"), "tools": [{"function": {"name": "n" * 9_999}}] * 50_000},
    "empty": {},
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("fields", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_bodies_get_a_class(classifier: Classifier, fields: dict[str, Any]) -> None:
    """Size, depth and odd characters bound the work and leave the answer's form alone."""
    answer = classify(classifier, fields)
    assert answer.class_id in {*CLASSES, OTHER}
    assert sum(answer.probabilities.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("fields", [{}, {"prompt": [1, 2, 3]}, {"messages": []}])
def test_without_text_the_class_is_other(classifier: Classifier, fields: dict[str, Any]) -> None:
    """With nothing to read, no class is named."""
    answer = classify(classifier, fields)
    assert (answer.class_id, answer.confidence) == (OTHER, 1.0)


def untrained(bias: float = 0.0) -> Model:
    classes = len(CLASSES)
    return Model(
        bias=np.array([bias, *[0.0] * (classes - 1)], dtype=np.float32),
        dense=np.zeros((len(NAMES), classes)),
        pieces=np.zeros((classes, 2**BITS), dtype=np.float32),
        temperature=1.0,
    )


def test_floor_decides_between_a_class_and_other() -> None:
    """Below the floor the class is `other`, and the probabilities stay what they were."""
    unsure = classify(TrainedClassifier(untrained()), said("hello"))
    sure = classify(TrainedClassifier(untrained(bias=5.0)), said("hello"))
    assert (unsure.class_id, unsure.reason) == (OTHER, "no class stands out")
    assert (sure.class_id, sure.reason) == (CLASSES[0], "the likeliest by shape and size")
    assert unsure.probabilities[CLASSES[0]] == pytest.approx(0.1)


@pytest.mark.parametrize(("label", "fields"), ALL)
def test_reason_quotes_nothing(classifier: Classifier, label: str, fields: dict[str, Any]) -> None:
    """The reason is made of our own words only."""
    reason = classify(classifier, fields).reason
    assert set(reason.split("; ")) <= {rule.reason for rule in RULES} | WORDS, label


@settings(deadline=None)
@given(BODY)
def test_total_and_deterministic(fields: dict[str, Any]) -> None:
    """Any JSON is classified, twice the same, with a distribution and a share in range."""
    classifier = default_classifier()
    answer = classify(classifier, fields)
    assert answer == classify(classifier, fields)
    assert set(answer.probabilities) == {*CLASSES, OTHER}
    assert sum(answer.probabilities.values()) == pytest.approx(1.0)
    assert answer.confidence == answer.probabilities[answer.class_id]
    assert 0.0 <= answer.copy_ratio <= 1.0
    assert answer.length_band in ("brief", "short", "medium", "long")
