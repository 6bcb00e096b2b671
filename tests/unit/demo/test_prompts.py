"""The demo's prompts: complete, well-formed, varied."""

from __future__ import annotations

from collections import Counter

import pytest

from router.demo.prompts import DemoPrompt, load_prompts

PROMPTS = load_prompts()


def test_ids_are_unique() -> None:
    """Each prompt can be named."""
    assert len({prompt.id for prompt in PROMPTS}) == len(PROMPTS)


def test_each_kind_has_enough_prompts() -> None:
    """Eight or more of the main kinds, four or more of the others."""
    counts = Counter(prompt.label for prompt in PROMPTS)
    main = {"code_edit", "structured", "chat", "creative"}
    others = {"summarize", "translate", "math", "code_gen", "rag_qa", "text_edit"}
    assert set(counts) == main | others
    assert all(counts[label] >= 8 for label in main)
    assert all(counts[label] >= 4 for label in others)


def test_several_languages_are_spoken() -> None:
    """English is not the only one."""
    assert {prompt.language for prompt in PROMPTS} >= {"en", "de", "fa", "zh"}


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.id)
def test_prompt_is_a_chat_body(prompt: DemoPrompt) -> None:
    """Messages with known roles and text; settings in their ranges and in the body."""
    messages = prompt.body["messages"]
    assert messages[-1]["role"] in {"user", "assistant"}
    assert all(set(message) == {"role", "content"} for message in messages)
    assert all(message["content"].strip() for message in messages)
    assert {"model", "stream"}.isdisjoint(prompt.body)
    assert 48 <= prompt.max_tokens <= 160
    assert prompt.body["max_tokens"] == prompt.max_tokens
    assert prompt.body["temperature"] == prompt.temperature


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.id)
def test_prefilled_answer_ends_inside_a_line(prompt: DemoPrompt) -> None:
    """The chat template strips trailing blanks, after which the model would rather stop."""
    last = prompt.body["messages"][-1]
    if last["role"] == "assistant":
        assert last["content"] == last["content"].rstrip()


def test_temperature_fits_the_kind() -> None:
    """Structured output and edits are greedy, creative writing is sampled at 0.9."""
    greedy = {p.temperature for p in PROMPTS if p.label in {"structured", "code_edit", "text_edit"}}
    assert greedy == {0.0}
    assert {p.temperature for p in PROMPTS if p.label == "creative"} == {0.9}
