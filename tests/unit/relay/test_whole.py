"""Answers that are no streams."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.endpoints.dialect import json_object
from router.relay.whole import HeldHarvest, WholeHarvest, holds_record_alone
from tests.support.splits import cut, points

NAME = b"sglext"
RECORD = {"spec_tokens_details": {"spec_verify_ct": 2, "text": '"sglext":{}'}}
KEYS = st.sampled_from(["a", 'b"', "\\", "usage", "sglext ", "ключ"])
VALUES = st.recursive(
    st.sampled_from([None, 1, "x", '"sglext":{}', "}", ","]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=5,
)


def passed(harvest: HeldHarvest, parts: Sequence[bytes]) -> bytes:
    """What the client gets, the way the relay feeds it."""
    left = iter(parts)
    shown = next((out for out in map(harvest.hold, left) if out), b"")
    return shown + b"".join(harvest.feed(part, 0.0) for part in left) + harvest.finish()


@given(st.dictionaries(KEYS, VALUES, max_size=4), st.integers(0, 4), points())
def test_exactly_the_member_is_cut_out(
    others: dict[str, object], place: int, at: list[int]
) -> None:
    """Wherever it stands and however the network cuts: the other members' bytes stay as they are."""
    texts = [f"{json.dumps(key)}:{json.dumps(value)}" for key, value in others.items()]
    without = "{" + ",".join(texts) + "}"
    texts.insert(place, f'"sglext":{json.dumps(RECORD)}')
    sent = "{" + ",".join(texts) + "}"
    harvest = HeldHarvest(NAME)
    assert passed(harvest, cut(sent.encode(), at)) == without.encode()
    assert harvest.answer() == {**others, "sglext": RECORD}
    assert (harvest.changed, harvest.complete) == (True, True)


@given(st.binary(max_size=200), points())
def test_any_other_body_stays_as_it_is(data: bytes, at: list[int]) -> None:
    """Whatever it is; but for an object it is broken."""
    harvest = HeldHarvest(NAME)
    assert passed(harvest, cut(data, at)) == data
    assert not harvest.changed
    if json_object(data) is not None:  # "{}", say
        assert not harvest.broken
        return
    assert harvest.broken
    assert harvest.complete is (data.strip(b" \t\r\n")[:1] not in {b"", b"{"})


@pytest.mark.parametrize("data", [b"", b"\n ", b"{", b' {"a":1,"sglext":{', b'{"a":{}'])
def test_the_beginning_of_an_object_may_have_been_cut(data: bytes) -> None:
    """Nothing of it is the least of them."""
    harvest = HeldHarvest(NAME)
    assert passed(harvest, [data] if data else []) == data
    assert (harvest.broken, harvest.complete) == (True, False)


@pytest.mark.parametrize("data", [b"\xa0", b"no such thing", b"[1,", b"<html>"])
def test_rubbish_is_rubbish_and_no_cut(data: bytes) -> None:
    """No more bytes would have made an object of it."""
    harvest = HeldHarvest(NAME)
    assert passed(harvest, [data]) == data
    assert (harvest.broken, harvest.complete) == (True, True)


@pytest.mark.parametrize(
    "member",
    [
        '"sglext":null',
        '"sglext":{}',
        '"sglext":{"spec_tokens_details":{},"cached_tokens_details":{}}',
        '"sglext":[1]',
        '"other":{"sglext":{"spec_tokens_details":{}}}',
        '"sgl\\u0065xt":{"spec_tokens_details":{}}',
    ],
)
def test_a_member_that_is_not_ours_alone_stays(member: str) -> None:
    """A server sends it to everyone, or writes it as nobody does."""
    body = f'{{"a":1,{member}}}'.encode()
    harvest = HeldHarvest(NAME)
    assert passed(harvest, [body]) == body
    assert not harvest.changed
    assert harvest.answer() == json.loads(body)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_a_body_beyond_the_limit_is_let_go(size: int) -> None:
    """Not a byte is lost, and it is unread."""
    body = b'{"sglext":{"spec_tokens_details":{}},"a":"' + b"x" * 100 + b'"}'
    harvest = HeldHarvest(NAME, limit=50)
    assert passed(harvest, [body[at : at + size] for at in range(0, len(body), size)]) == body
    assert (harvest.answer(), harvest.complete, harvest.changed) == (None, True, False)


def test_whole_answers_show_no_steps() -> None:
    """They have no events."""
    harvest = WholeHarvest()
    harvest.feed(b"{}", 0.0)
    harvest.finish()
    assert harvest.counted() is None


def test_what_is_no_object_holds_nothing() -> None:
    """As an answer that could not be read."""
    assert not holds_record_alone(None, NAME)
