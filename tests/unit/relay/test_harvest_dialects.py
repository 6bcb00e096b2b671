"""Streams of every dialect: nothing changed, times and ends seen, however the bytes are cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.endpoints.dialect import Dialect
from router.endpoints.table import ANTHROPIC, LLAMA, OPENAI, OTHER, RESPONSES
from router.errors import Reason, RequestError
from router.relay.harvest import Harvest, StreamHarvest, harvest_for
from router.relay.whole import PassThrough, WholeHarvest
from tests.support.splits import cut, points

MARKERS = (b'"usage":{', b'"timings":', b'"metrics":{')
TEXTS = (
    "The",
    " capital",
    "首都",
    "",
    '"quoted" \\ back',
    "😀👩‍👩‍👧",
    "line\nline\r\n",
    '"usage":{',
    "[DONE]",
)


def named(members: dict[str, Any]) -> bytes:
    """An event with its name, as Responses and Messages have them."""
    name: str = members["type"]
    return b"event: " + name.encode() + b"\n" + plain(members)


def plain(members: dict[str, Any], *, spaced: bool = False) -> bytes:
    """An event without a name."""
    separators = None if spaced else (",", ":")
    text = json.dumps(members, ensure_ascii=False, separators=separators)
    return b"data: " + text.encode() + b"\n\n"


@dataclass(frozen=True)
class Form:
    """How one dialect writes the same answer."""

    dialect: Dialect
    opening: tuple[bytes, ...]
    closing: tuple[bytes, ...]
    """Up to the end mark."""
    figures: dict[str, Any]
    """What is read of `usage`."""
    failure: bytes

    def text(self, text: str) -> bytes:
        """An event with output."""
        match self.dialect.name:
            case "openai":
                choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
                return plain({"id": "c", "choices": [choice]})
            case "llamacpp":
                return plain({"index": 0, "content": text, "stop": False})
            case "responses":
                kind = "response.output_text.delta"
                return named({"type": kind, "delta": text, "sequence_number": 4})
            case _:
                delta = {"type": "text_delta", "text": text}
                return named({"type": "content_block_delta", "index": 0, "delta": delta})


CHAT = Form(
    OPENAI,
    (plain({"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}),),
    (
        plain({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        plain({"id": "c", "choices": [], "usage": {"completion_tokens": 3}}),
        b"data: [DONE]\n\n",
    ),
    {"completion_tokens": 3},
    plain({"error": {"message": "x", "code": 500}}, spaced=True),
)
NATIVE = Form(
    LLAMA,
    (),
    (plain({"content": "", "stop": True, "usage": {"a": 1}, "timings": {"predicted_n": 3}}),),
    {"a": 1},
    plain({"error": {"code": 500, "message": "x"}}),
)
NEW = Form(
    RESPONSES,
    (
        named({"type": "response.created", "response": {"usage": None}, "sequence_number": 0}),
        named({"type": "response.output_item.added", "item": {"type": "message"}}),
    ),
    (
        named({"type": "response.output_text.done", "text": "x", "sequence_number": 5}),
        named({"type": "response.completed", "response": {"usage": {"output_tokens": 3}}}),
    ),
    {"output_tokens": 3},
    named({"type": "error", "code": "x", "message": "x", "sequence_number": 5}),
)
MESSAGES = Form(
    ANTHROPIC,
    (
        named({"type": "message_start", "message": {"usage": {"input_tokens": 9, "n": None}}}),
        named({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}),
        named({"type": "ping"}),
    ),
    (
        named({"type": "content_block_stop", "index": 0}),
        named({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 3}}),
        named({"type": "message_stop"}),
    ),
    {"input_tokens": 9, "output_tokens": 3, "n": None},
    named({"type": "error", "error": {"type": "api_error", "message": "x"}}),
)
FORMS = (CHAT, NATIVE, NEW, MESSAGES)
forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.dialect.name)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def stream(form: Form, *, strip: bool = False) -> StreamHarvest:
    """A harvest of the dialect."""
    return StreamHarvest(MARKERS, strip_usage=strip, dialect=form.dialect)


def run(harvest: Harvest, parts: Sequence[bytes]) -> bytes:
    """Everything that the client gets."""
    out = [harvest.feed(part, float(at)) for at, part in enumerate(parts)]
    return b"".join(out) + harvest.finish()


def events_of(form: Form, texts: Sequence[str]) -> list[bytes]:
    """A whole answer."""
    return [*form.opening, *map(form.text, texts), *form.closing]


@forms
def test_times_figures_and_the_end(form: Form) -> None:
    """The first and last event with output; then figures; complete at the end mark, not before."""
    harvest = stream(form)
    events = events_of(form, ["The", " capital", "首都", "😀"])
    first = len(form.opening)
    for at, event in enumerate(events):
        assert harvest.complete is False
        assert harvest.feed(event, float(at)) == event
    assert harvest.complete
    assert harvest.finish() == b""
    assert harvest.first_content_s == first
    assert harvest.last_content_s is not None
    # In OpenAI's older dialects what follows the last text still belongs to a choice.
    trailing = form.dialect in {OPENAI, LLAMA}
    assert harvest.last_content_s == first + 3 + trailing
    answer = harvest.answer()
    assert answer is not None
    assert answer["usage"] == form.figures
    assert not harvest.broken


@forms
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("strip", [True, False])
def test_every_split_point(form: Form, end: bytes, *, strip: bool) -> None:
    """Two pieces, cut anywhere, inside characters and line ends too: the same bytes and figures."""
    events = events_of(form, ["The", "首都😀", '"q\\', "[DONE]"])
    sent = b"".join(events).replace(b"\n", end)
    stripped = strip and form is CHAT
    kept = b"".join(event for event in events if not (stripped and b'"usage":{' in event))
    expected = kept.replace(b"\n", end)
    for at in range(len(sent) + 1):
        harvest = stream(form, strip=strip and form is CHAT)
        assert run(harvest, [sent[:at], sent[at:]]) == expected
        answer = harvest.answer()
        assert answer is not None
        assert (answer["usage"], harvest.complete, harvest.broken) == (form.figures, True, False)


@given(
    form=st.sampled_from(FORMS),
    texts=st.lists(st.sampled_from(TEXTS), max_size=8),
    end=ENDS,
    at=points(1500),
    strip=st.booleans(),
)
def test_any_answer_cut_anywhere(
    *, form: Form, texts: list[str], end: bytes, at: list[int], strip: bool
) -> None:
    """Bytes are those that came, less exactly the usage event; figures do not depend on the cut."""
    events = events_of(form, texts)
    strip = strip and form is CHAT
    sent = b"".join(events).replace(b"\n", end)
    kept = [
        event
        for event in events
        if not (strip and event.startswith(b'data: {"id":"c","choices":[],'))
    ]
    harvest = stream(form, strip=strip)
    assert run(harvest, cut(sent, at)) == b"".join(kept).replace(b"\n", end)
    answer = harvest.answer()
    assert answer is not None
    assert (answer["usage"], harvest.complete, harvest.broken) == (form.figures, True, False)
    assert (harvest.first_content_s is not None) is any(texts)


@forms
def test_an_error_in_the_stream_breaks_it(form: Form) -> None:
    """Status 200 has been sent, so the stream itself has to tell."""
    harvest = stream(form)
    sent = [*form.opening, form.text("x"), form.text("y"), form.failure]
    assert run(harvest, sent) == b"".join(sent)
    assert harvest.broken


@forms
def test_a_stream_without_its_end_mark_is_broken(form: Form) -> None:
    """Whoever cut it."""
    harvest = stream(form)
    run(harvest, [*form.opening, form.text("x"), *form.closing[:-1]])
    assert (harvest.broken, harvest.complete) == (True, False)


@forms
def test_an_end_mark_without_its_blank_line_is_an_end(form: Form) -> None:
    """Nothing follows that could be missed."""
    harvest = stream(form)
    run(harvest, [form.text("x"), form.closing[-1][:-2]])
    assert (harvest.broken, harvest.complete) == (False, True)


@forms
def test_ordinary_events_are_known_again(form: Form) -> None:
    """Many alike, then one that only looks alike: with a quote, an end mark or a figure inside."""
    harvest = stream(form)
    run_in = [form.text(f"t{index}") for index in range(20)]
    for at, event in enumerate(run_in):
        assert harvest.feed(event, float(at)) == event
    assert harvest.last_content_s == 19.0
    odd = form.text('a","usage":{"x":1},"y":"b').replace(b'\\"', b'"')
    assert harvest.feed(odd, 20.0) == odd
    assert harvest.answer() is not None
    assert not harvest.complete
    for event in form.closing:
        harvest.feed(event, 21.0)
    assert harvest.complete


def test_figures_are_taken_out_of_the_middle_of_a_burst() -> None:
    """Many events in one piece, usage among them."""
    events = [CHAT.text("x")] * 50
    burst = b"".join([*events, CHAT.closing[1], *events, CHAT.closing[2]])
    harvest = stream(CHAT, strip=True)
    assert harvest.feed(CHAT.text("x"), 0.0) == CHAT.text("x")
    assert harvest.feed(burst, 1.0) == b"".join([*events, *events, CHAT.closing[2]])
    assert (harvest.last_content_s, harvest.complete) == (1.0, True)


NULL = CHAT.text("x")[:-3] + b',"usage":null}\n\n'


@pytest.mark.parametrize("count", [1, 2, 50])
def test_announcing_nulls_go_out_of_a_burst(count: int) -> None:
    """A server that announces usage does so in every event; texts that quote it stay."""
    quoted = CHAT.text('","usage":null}\n\n')
    harvest = stream(CHAT, strip=True)
    harvest.feed(CHAT.text("x"), 0.0)
    assert harvest.feed(NULL * count, 1.0) == CHAT.text("x") * count
    assert harvest.feed(quoted, 2.0) == quoted
    assert harvest.feed(NULL + quoted, 3.0) == CHAT.text("x") + quoted
    assert harvest.last_content_s == 3.0


def test_blank_lines_are_nobody_s() -> None:
    """Those around a usage event stay, whichever piece they come in."""
    usage = CHAT.closing[1]
    sent = CHAT.text("x") + b"\n\n\n" + usage + b"\n" + usage + b"\n\n\n" + CHAT.closing[2]
    expected = sent.replace(usage, b"")
    for at in range(len(sent) + 1):
        assert run(stream(CHAT, strip=True), [sent[:at], sent[at:]]) == expected


@given(
    st.lists(st.sampled_from([CHAT.text("x"), CHAT.closing[1], b"\n", b"\n\n", b": c\n\n"])),
    points(),
)
def test_blank_lines_do_not_depend_on_the_cut(events: list[bytes], at: list[int]) -> None:
    """One piece or many: the same bytes."""
    sent = b"".join(events)
    assert run(stream(CHAT, strip=True), cut(sent, at)) == run(stream(CHAT, strip=True), [sent])


def test_an_ending_of_ours_has_the_next_number() -> None:
    """Clients of Responses may check that none is missing."""
    harvest = stream(NEW)
    error = RequestError(Reason.UPSTREAM_PROTOCOL, "x")
    assert b'"sequence_number":0' in harvest.ending(error)
    for text in ("a", "b", "c"):
        harvest.feed(NEW.text(text), 0.0)
    assert b'"sequence_number":5' in harvest.ending(error)
    assert harvest.may_add
    assert b'"request_id":"r1"' in stream(MESSAGES).ending(error, "r1")


@pytest.mark.parametrize(
    ("dialect", "content_type", "coding", "kind"),
    [
        (OPENAI, "text/event-stream", "", StreamHarvest),
        (OPENAI, "Text/Event-Stream; charset=utf-8", "identity", StreamHarvest),
        (ANTHROPIC, "text/event-stream", "", StreamHarvest),
        (OPENAI, "text/event-stream", "gzip", PassThrough),
        (OPENAI, "application/json", "", WholeHarvest),
        (RESPONSES, "application/problem+json", "", WholeHarvest),
        (OPENAI, "text/html", "", PassThrough),
        (OPENAI, "", "", PassThrough),
        (OTHER, "audio/mpeg", "", PassThrough),
        (OTHER, "text/event-stream", "", PassThrough),
        (OTHER, "application/json", "", PassThrough),
    ],
)
def test_what_watches_an_answer(
    dialect: Dialect, content_type: str, coding: str, kind: type[object]
) -> None:
    """By what the answer says about itself."""
    harvest = harvest_for(dialect, content_type=content_type, content_encoding=coding)
    assert type(harvest) is kind
    foreign = kind is PassThrough and dialect is not OTHER and not coding
    assert harvest.broken is foreign
    assert harvest.ending(RequestError(Reason.DRAINING, "x")) == b"" or kind is StreamHarvest
