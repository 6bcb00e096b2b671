"""Changing one member of a JSON object's text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.engines.splice import cut_member, member_text, set_member

SPACE = st.sampled_from(["", "", " ", "\n\t", " \r\n "])
CHARACTERS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
STRINGS = CHARACTERS | st.sampled_from(['"', "\\", '{"', "]}", ",", ":", '\\"', "key"])


@st.composite
def string_texts(draw: st.DrawFn, content: st.SearchStrategy[str] = STRINGS) -> str:
    """Text of a string, written plainly, or with every character escaped by its number."""
    value = draw(content)
    style = draw(st.sampled_from(["plain", "ascii", "escaped"]))
    if style == "escaped" and all(ord(c) < 0x10000 for c in value):
        return '"' + "".join(f"\\u{ord(c):04x}" for c in value) + '"'
    return json.dumps(value, ensure_ascii=style == "ascii")


SCALARS = st.sampled_from(["null", "true", "-1.5e3", "0", "NaN", '"\\ud800"', "1" * 30])
LONE_SURROGATE = st.just('"\\udc00"')


def joined(draw: st.DrawFn, items: list[str], opening: str, closing: str) -> str:
    """Items with commas and any white space."""
    spaced = [draw(SPACE) + item + draw(SPACE) for item in items]
    return opening + (",".join(spaced) or draw(SPACE)) + closing


@st.composite
def containers(draw: st.DrawFn, children: st.SearchStrategy[str]) -> str:
    """Text of an array or object of the given children."""
    items = draw(st.lists(children, max_size=4))
    if draw(st.booleans()):
        return joined(draw, items, "[", "]")
    keys = [draw(string_texts() | LONE_SURROGATE) for _ in items]
    members = [
        key + draw(SPACE) + ":" + draw(SPACE) + item for key, item in zip(keys, items, strict=True)
    ]
    return joined(draw, members, "{", "}")


VALUES = st.recursive(SCALARS | string_texts(), containers, max_leaves=12)


@st.composite
def objects(draw: st.DrawFn) -> tuple[str, str, str]:
    """An object with the member "key", as text before, of and after that member's last value."""
    key = draw(string_texts(st.just("key")))
    others = string_texts(STRINGS.filter(lambda text: text != "key")) | LONE_SURROGATE
    before = [draw(others | string_texts(st.just("key"))) for _ in range(draw(st.integers(0, 3)))]
    after = [draw(others) for _ in range(draw(st.integers(0, 3)))]
    text, head = draw(SPACE) + "{", ""
    for name in before:
        text += (
            draw(SPACE) + name + draw(SPACE) + ":" + draw(SPACE) + draw(VALUES) + draw(SPACE) + ","
        )
    head = text + draw(SPACE) + key + draw(SPACE) + ":" + draw(SPACE)
    value = draw(VALUES)
    tail = draw(SPACE)
    for name in after:
        tail += (
            "," + draw(SPACE) + name + draw(SPACE) + ":" + draw(SPACE) + draw(VALUES) + draw(SPACE)
        )
    return head, value, tail + "}" + draw(SPACE)


def pairs(text: str) -> list[tuple[str, Any]]:
    """Members in their order, duplicates kept."""
    found: list[tuple[str, Any]] = json.loads(text, object_pairs_hook=list, parse_constant=str)
    return found


@given(objects(), VALUES)
def test_a_member_that_is_there_changes_and_nothing_else_does(
    parts: tuple[str, str, str], new: str
) -> None:
    """Of several of the same name it is the last one; every other byte stays where it was."""
    head, old, tail = parts
    body = (head + old + tail).encode("utf-8", "surrogatepass")
    changed = set_member(body, "key", new.encode(), present=True)
    assert changed == (head + new + tail).encode("utf-8", "surrogatepass")
    assert member_text(body, "key") == old.encode()


@given(containers(VALUES).filter(lambda text: text.startswith("{")), VALUES, SPACE)
def test_a_member_that_is_not_there_is_added_in_front(text: str, new: str, space: str) -> None:
    """All that was there follows, byte by byte."""
    added = set_member((space + text).encode(), "nöw", new.encode(), present=False).decode()
    assert pairs(added) == [("nöw", pairs(f'{{"x":{new}}}')[0][1]), *pairs(text)]
    assert added.startswith(space + "{")
    assert added.endswith(text.removeprefix("{"))


@example("[]")
@given(containers(VALUES))
def test_a_member_inside_another_is_not_the_member(text: str) -> None:
    """Only the top level counts."""
    body = f'{{"a": {{"key": {text}}}, "b": [{{"key": 1}}], "c": "key", "key" : 2}}'.encode()
    assert member_text(body, "key") == b"2"


def test_asking_for_a_member_that_is_not_there_is_a_mistake_of_the_caller() -> None:
    """Which is told."""
    with pytest.raises(ValueError, match="no member 'b'"):
        set_member(b'{"a": {"b": 1}}', "b", b"2", present=True)


FILLER = ["x" * 40_000, '"key":' * 8000, "\\" * 20_001, '\n{"key": [' * 4000, "漢字" * 10_000]


@given(
    before=st.sampled_from(FILLER),
    after=st.sampled_from(["", *FILLER]),
    parts=objects(),
    ascii_only=st.booleans(),
)
def test_a_member_of_a_long_body_is_found_wherever_it_stands(
    *, before: str, after: str, parts: tuple[str, str, str], ascii_only: bool
) -> None:
    """Near the end, near the beginning, between long texts that look like it; the last one wins."""
    head, old, tail = parts
    start = head.index("{") + 1
    end = tail.rindex("}")
    filler = json.dumps(before, ensure_ascii=ascii_only)
    trailer = f',"z":{json.dumps(after, ensure_ascii=ascii_only)}' if after else ""
    long_head = f'{head[:start]}"a":{filler},{head[start:]}'
    long_tail = f"{tail[:end]}{trailer}{tail[end:]}"
    body = (long_head + old + long_tail).encode("utf-8", "surrogatepass")
    assert member_text(body, "key") == old.encode()
    changed = set_member(body, "key", b"7", present=True)
    assert changed == (long_head + "7" + long_tail).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("position", ["first", "last", "between"])
def test_nested_members_of_the_same_name_are_told_apart(position: str) -> None:
    """Tools have properties, and those have any name."""
    nested = '{"tools":[' + ",".join(['{"properties":{"model":{"type":"string"}}}'] * 3000) + "]"
    first, last = nested[1:], ""
    if position == "between":
        first, last = nested[1:], "," + nested[1:].replace("tools", "more")
    body = f'{{{first},"model": "m"{last}}}' if position != "first" else f'{{"model": "m",{first}}}'
    assert member_text(body.encode(), "model") == b'"m"'


def test_a_large_text_is_no_burden() -> None:
    """Images come as strings of megabytes; the scan does not back-track over them."""
    image = b"A" * 5_000_000
    body = b'{"messages":[{"content":"' + image + b'\\""}],"stream":true}'
    assert set_member(body, "stream", b"false", present=True) == body.replace(b"true", b"false")


def test_a_string_may_be_as_long_as_an_image() -> None:
    """Escapes inside and at the ends of a long string are stepped over."""
    long = b'"' + b'\\"' + b"A" * 100_000 + b"\\\\" + b"}" * 1000 + b'\\"' + b'"'
    body = b'{"image":' + long + b',"x":1}'
    assert set_member(body, "x", b"2", present=True) == body.replace(b":1}", b":2}")
    assert member_text(body, "image") == long


@given(objects())
def test_a_member_is_cut_out_and_nothing_else_changes(parts: tuple[str, str, str]) -> None:
    """The last of its name; one that is written with escapes may stay."""
    head, value, tail = parts
    body = head + value + tail
    shown = cut_member(body.encode(), "key").decode()
    before = pairs(body)
    at = max(index for index, (key, _) in enumerate(before) if key == "key")
    plain = head.rstrip().removesuffix(":").rstrip().endswith('"key"')
    assert pairs(shown) == (before[:at] + before[at + 1 :] if plain else before)
    assert plain or shown == body
