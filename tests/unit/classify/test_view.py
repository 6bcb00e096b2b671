from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.classify.view import (
    ASIDE_HEAD_CHARS,
    MESSAGES_SEEN,
    NAME_CHARS,
    TOOLS_SEEN,
    TURN_HEAD_CHARS,
    TURN_TAIL_CHARS,
    Excerpt,
    Media,
    RequestView,
    view_request,
)
from router.types import Endpoint, ParsedRequest

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)
FIELDS = (
    "messages",
    "prompt",
    "suffix",
    "tools",
    "functions",
    "tool_choice",
    "response_format",
    "guided_json",
    "structured_outputs",
    "grammar",
)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(("system", "user", "assistant", "tool")) | JSON,
        "content": st.lists(st.fixed_dictionaries({"text": JSON}) | JSON, max_size=3) | JSON,
        "tool_calls": JSON,
    },
)
BODY = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(FIELDS, JSON) | {"messages": st.lists(MESSAGE | JSON) | JSON}
)


def view(**fields: Any) -> RequestView:
    return view_request(ParsedRequest(Endpoint.CHAT, b"", fields, "m", stream=False))


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_conversation_is_told_apart_by_role() -> None:
    """The system prompt, the last user turn and the answer before it are found."""
    seen = view(
        messages=[
            said("system", "Be brief."),
            said("user", "first"),
            said("assistant", "answer"),
            said("user", "second"),
        ]
    )
    assert (seen.system.head, seen.prior.head, seen.turn.head) == ("Be brief.", "answer", "second")
    assert seen.roles == ("system", "user", "assistant", "user")
    assert (seen.message_count, seen.steps_after_turn, seen.prefill) == (4, 0, Excerpt())


def test_parts_are_joined_and_images_passed_over() -> None:
    """Text parts make up the turn; parts without text leave no trace."""
    parts = [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]
    assert view(messages=[said("user", parts)]).turn == Excerpt("a\nb", "", 2)


def test_long_turn_is_cut_to_head_and_tail() -> None:
    """Of a long text only its bounded head and tail are kept."""
    text = "h" * 500_000 + "t" * 500_000
    turn = view(messages=[said("user", text)]).turn
    assert turn == Excerpt("h" * TURN_HEAD_CHARS, "t" * TURN_TAIL_CHARS, 1_000_000)


def test_many_long_parts_are_cut_to_head_and_tail() -> None:
    """The bound holds over parts as it does over one text."""
    turn = view(messages=[said("user", [{"text": "x" * 9_000}] * 100_000)]).turn
    assert (len(turn.head), len(turn.tail)) == (TURN_HEAD_CHARS, TURN_TAIL_CHARS)


def test_running_agent_loop_is_counted() -> None:
    """The task is the last user turn, however many calls and results came after it."""
    loop = [said("assistant", None), said("tool", "ok")] * 100_000
    seen = view(messages=[said("user", "do it"), *loop])
    assert (seen.turn.head, seen.steps_after_turn) == ("do it", 200_000)
    assert len(seen.roles) == MESSAGES_SEEN


def test_prefill_is_the_beginning_of_the_answer() -> None:
    """A last message of the assistant is its answer begun, and no step of a loop."""
    seen = view(messages=[said("user", "go"), said("assistant", '{"a"')])
    assert (seen.prefill.head, seen.steps_after_turn) == ('{"a"', 0)


def test_several_system_messages_are_bounded() -> None:
    """System messages at the beginning are read together, up to the bound."""
    seen = view(messages=[said("system", "a" * 900), said("developer", "b" * 9_000)])
    assert seen.system.head.startswith("a" * 900 + "\nb")
    assert len(seen.system.head) == ASIDE_HEAD_CHARS


@pytest.mark.parametrize(
    ("choice", "count", "forced"),
    [
        (None, 1, False),
        ("auto", 1, False),
        ("none", 0, False),
        ("required", 1, True),
        ({}, 1, True),
    ],
)
def test_tools_follow_the_choice(choice: object, count: int, *, forced: bool) -> None:
    """Tools that may not be called count as none; a demanded call is seen."""
    seen = view(
        messages=[said("user", "x")],
        tools=[{"type": "function", "function": {"name": "look_up"}}],
        tool_choice=choice,
    )
    assert (seen.tool_count, seen.tool_forced) == (count, forced)


def test_tool_names_are_bounded() -> None:
    """Of many tools with long names, a bounded number of bounded names is kept."""
    seen = view(messages=[said("user", "x")], tools=[{"name": "n" * 9_999}] * 5_000)
    assert seen.tool_names == ("n" * NAME_CHARS,) * TOOLS_SEEN
    assert seen.tool_count == 5_000


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({}, ""),
        ({"response_format": {"type": "text"}}, ""),
        ({"response_format": {"type": "json_object"}}, "json"),
        ({"guided_choice": ["a"]}, "choice"),
        ({"guided_regex": "a+"}, "regex"),
        ({"grammar": "root ::= a"}, "grammar"),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, "regex"),
        ({"structured_outputs": {"json": {"type": "object"}}}, "json"),
    ],
)
def test_enforced_forms_are_seen(fields: dict[str, Any], constraint: str) -> None:
    """Every engine's way to demand a form is known; an empty one demands nothing."""
    assert view(messages=[said("user", "x")], **fields).constraint == constraint


@pytest.mark.parametrize(
    ("prompt", "head", "tokens"),
    [
        ("once", "once", False),
        (["once", "twice"], "once", False),
        ([1, 2], "", True),
        ([[1]], "", True),
    ],
)
def test_prompts_of_completions(prompt: object, head: str, *, tokens: bool) -> None:
    """A bare prompt is the turn; a batch stands by its first; token ids hold no text."""
    seen = view(prompt=prompt)
    assert (seen.turn.head, seen.token_prompt, seen.completion) == (head, tokens, True)


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("plain", "latin"),
        ("\u00e9t\u00e9", "latin"),
        ("\u0441\u043b\u043e\u0432\u043e and", "cyrillic"),
        ("\u0633\u0644\u0627\u0645", "arabic"),
        ("\u7ffb\u8bd1\u6210\u82f1\u6587", "han"),
        ("\u6587\u7ae0\u3092\u8981\u7d04\u3057\u3066", "kana"),
        ("\u2026\u2026", "other"),
    ],
)
def test_script_is_that_of_most_letters(text: str, script: str) -> None:
    """The script is judged by the letters at the beginning."""
    assert view(messages=[said("user", text)]).script == script


ONE_OF_EACH = {
    "kana": "\u3042",
    "han": "\u6587",
    "hangul": "\uae00",
    "arabic": "\u0633",
    "cyrillic": "\u0441",
    "devanagari": "\u0915",
    "latin": "e",
}
"""Where two scripts have as many letters, the one that stands first is named."""


@given(st.text(st.sampled_from([*ONE_OF_EACH.values(), " "]), max_size=40))
def test_counting_may_stop_only_when_decided(text: str) -> None:
    """Whatever the mixture, the script is the one that counting all letters names."""
    if text.isascii():
        return
    counts = {script: text.count(letter) for script, letter in ONE_OF_EACH.items()}
    if 4 * counts["kana"] > counts["kana"] + counts["han"]:
        counts["kana"] += counts["han"]
    assert view(messages=[said("user", text)]).script == max(counts, key=counts.__getitem__)


def test_fences_are_counted_at_both_ends() -> None:
    """Fences of code blocks are seen in the head and in the tail."""
    assert view(messages=[said("user", "```\n" + "x" * 30_000 + "\n```")]).fences == 2


@given(BODY)
def test_any_json_is_accepted(body: dict[str, Any]) -> None:
    """No JSON value in any field raises, and the view stays within its bounds."""
    seen = view(**body)
    assert len(seen.turn.head) <= TURN_HEAD_CHARS + TURN_TAIL_CHARS
    assert len(seen.roles) <= MESSAGES_SEEN


def test_anthropic_shape() -> None:
    """System field, blocks, tool results in the user's name and tools without a wrapper."""
    seen = view(
        system=[{"type": "text", "text": "Be brief."}],
        tools=[{"name": "look_up", "input_schema": {}}],
        tool_choice={"type": "any"},
        max_tokens=300,
        messages=[
            said("user", [{"type": "text", "text": "find it"}, {"type": "image", "source": {}}]),
            said("assistant", [{"type": "tool_use", "id": "1", "name": "look_up", "input": {}}]),
            said("user", [{"type": "tool_result", "tool_use_id": "1", "content": "found"}]),
        ],
    )
    assert (seen.dialect, seen.system.head, seen.turn.head) == ("messages", "Be brief.", "find it")
    assert (seen.roles, seen.steps_after_turn) == (("user", "assistant", "tool"), 2)
    assert (seen.tool_names, seen.tool_forced, seen.output_limit) == (("look_up",), True, 300)
    assert seen.media == Media(images=1)


def test_responses_shape() -> None:
    """Instructions, items by type, flat tools and the form under `text`."""
    seen = view(
        instructions="Be brief.",
        input=[
            {"role": "user", "content": [{"type": "input_text", "text": "find it"}]},
            {"type": "function_call", "name": "look_up", "arguments": "{}"},
            {"type": "function_call_output", "output": "found"},
        ],
        tools=[{"type": "function", "name": "look_up"}],
        text={"format": {"type": "json_schema"}},
    )
    assert (seen.dialect, seen.system.head, seen.turn.head) == ("responses", "Be brief.", "find it")
    assert (seen.roles, seen.steps_after_turn) == (("user", "assistant", "tool"), 2)
    assert (seen.tool_names, seen.constraint, seen.prefill) == (("look_up",), "json", Excerpt())


def test_plain_input_of_responses_is_the_turn() -> None:
    """A string stands for one user message."""
    assert view(input="hello").turn.head == "hello"


@pytest.mark.parametrize(
    ("part", "media"),
    [
        ({"type": "image_url"}, Media(images=1)),
        ({"type": "input_audio"}, Media(audio=1)),
        ({"type": "file"}, Media(files=1)),
        ({"type": "text", "text": "x"}, Media()),
    ],
)
def test_parts_without_text_are_counted(part: dict[str, Any], media: Media) -> None:
    """Images, sound and files are known by their type in any dialect."""
    assert view(messages=[said("user", [part])]).media == media


def test_documents_in_plain_text_are_read() -> None:
    """A document handed over as text is text."""
    part = {"type": "document", "source": {"type": "text", "data": "once upon a time"}}
    assert view(messages=[said("user", [part])]).turn.head == "once upon a time"


@pytest.mark.parametrize(
    ("choice", "forced"),
    [({"type": "auto"}, False), ({"type": "tool", "name": "a"}, True), ({"type": "any"}, True)],
)
def test_choices_in_the_form_of_objects(choice: dict[str, str], *, forced: bool) -> None:
    """Only a choice that leaves no way around a call demands one."""
    seen = view(messages=[said("user", "x")], tools=[{"name": "a"}], tool_choice=choice)
    assert seen.tool_forced is forced


def test_a_gap_of_llama_cpp_s_is_seen_as_one() -> None:
    """Its own endpoint has other names for what comes before and after."""
    seen = view(input_prefix="def f(", input_suffix="):\n", n_predict=16)
    assert (seen.turn.head, seen.infill, seen.completion, seen.output_limit) == (
        "def f(",
        True,
        True,
        16,
    )
    assert not view(prompt="x", suffix="").infill
