"""Reading answers while their bytes pass."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.endpoints.table import LLAMA
from router.engines.rule import StepRule, StreamCount
from router.relay.harvest import Harvest, StreamHarvest
from router.relay.whole import PassThrough, WholeHarvest
from tests.support.splits import SIZES, cut, pieces, points

MARKERS = (b'"usage":{', b'"metrics":{')

ROLE = b'data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
TEXT = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
FINISH = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = (
    b'data: {"id":"c","choices":[],"usage":{"completion_tokens":2},'
    b'"metrics":{"speculative_decoding":null}}\n\n'
)
DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"
QUOTED = b'data: {"choices":[{"delta":{"content":"\\"usage\\":{\\"choices\\":[]} ,\\"usage\\":null"}}]}\n\n'
NULL_USAGE = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"}}],"usage":null}\n\n'
WITHOUT_NULL = NULL_USAGE.replace(b',"usage":null', b"")
RUNNING = (
    b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"}}],'
    b'"usage":{"completion_tokens":1}}\n\n'
)

EVENTS = st.lists(
    st.sampled_from([ROLE, TEXT, FINISH, USAGE, DONE, COMMENT, QUOTED, NULL_USAGE]), max_size=12
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def run(harvest: Harvest, parts: Sequence[bytes]) -> bytes:
    """Everything that the client gets."""
    out = [harvest.feed(part, float(at)) for at, part in enumerate(parts)]
    return b"".join(out) + harvest.finish()


def stream(*, strip: bool) -> StreamHarvest:
    """A harvest of a stream."""
    return StreamHarvest(MARKERS, strip_usage=strip)


@given(st.binary(max_size=300), points())
def test_nothing_is_changed_when_nothing_was_asked_for(data: bytes, at: list[int]) -> None:
    """Whatever an engine sends reaches the client byte by byte, and without delay."""
    for harvest in (PassThrough(), WholeHarvest(), stream(strip=False)):
        for part in cut(data, at):
            assert harvest.feed(part, 0.0) == part
        assert harvest.finish() == b""


@given(st.binary(max_size=300), points())
def test_bytes_that_are_no_events_pass_even_while_usage_is_taken_out(
    data: bytes, at: list[int]
) -> None:
    """Held back at most until the end."""
    assert run(stream(strip=True), cut(data, at)) == data


@given(EVENTS, ENDS, points(1000))
def test_exactly_the_usage_that_we_asked_for_is_taken_out(
    events: list[bytes], end: bytes, at: list[int]
) -> None:
    """Any split, any line ending: the usage event and announcing nulls go, all else stays."""
    sent = b"".join(events).replace(b"\n", end)
    kept = [e.replace(NULL_USAGE, WITHOUT_NULL) for e in events if e != USAGE]
    assert run(stream(strip=True), cut(sent, at)) == b"".join(kept).replace(b"\n", end)


@given(st.lists(st.sampled_from([TEXT, RUNNING, FINISH]), max_size=6), points(1200))
def test_usage_that_a_server_sends_to_everyone_stays(events: list[bytes], at: list[int]) -> None:
    """Usage beside content was not our doing, so its last event is the client's as well."""
    sent = b"".join([RUNNING, *events, USAGE, DONE])
    assert run(stream(strip=True), cut(sent, at)) == sent


@given(EVENTS, ENDS, points(1000))
def test_figures_do_not_depend_on_the_split(events: list[bytes], end: bytes, at: list[int]) -> None:
    """The same is read from one piece as from many."""
    sent = b"".join(events).replace(b"\n", end)
    whole, split = stream(strip=True), stream(strip=True)
    run(whole, [sent])
    run(split, cut(sent, at))
    assert (split.answer(), split.broken, split.complete) == (
        whole.answer(),
        whole.broken,
        whole.complete,
    )


@pytest.mark.parametrize("strip", [True, False])
def test_times_are_those_of_the_first_and_last_output(*, strip: bool) -> None:
    """The opening role event, comments, the usage event and `[DONE]` carry no output."""
    harvest = stream(strip=strip)
    run(harvest, [ROLE, COMMENT, TEXT, TEXT, COMMENT, USAGE, DONE])
    assert (harvest.first_content_s, harvest.last_content_s) == (2.0, 3.0)


@pytest.mark.parametrize(
    "choice",
    [
        b'{"delta":{"reasoning_content":"hm"}}',
        b'{"delta":{"reasoning":"hm"}}',
        b'{"delta":{"tool_calls":[{"index":0}]}}',
        b'{"delta":{"function_call":{"name":"f"}}}',
        b'{"delta":{"refusal":"no"}}',
        b'{"text":"hi"}',
    ],
)
def test_output_of_every_kind_counts(choice: bytes) -> None:
    """Reasoning, tool calls and plain completions are output like text."""
    harvest = stream(strip=False)
    run(harvest, [ROLE, b'data: {"choices":[' + choice + b"]}\n\n"])
    assert harvest.first_content_s == 1.0


def test_a_stream_without_output_has_no_times() -> None:
    """Missing is None."""
    harvest = stream(strip=False)
    run(harvest, [ROLE, FINISH, DONE])
    assert (harvest.first_content_s, harvest.last_content_s) == (None, None)


def test_later_marked_events_win_and_nulls_say_nothing() -> None:
    """Figures may be spread over the last events of a stream."""
    harvest = stream(strip=False)
    run(
        harvest,
        [
            b'data: {"usage":{"completion_tokens":1},"metrics":{"a":1}}\n\n',
            b'data: {"usage":{"completion_tokens":2},"metrics":null}\n\n',
            DONE,
        ],
    )
    assert harvest.answer() == {"usage": {"completion_tokens": 2}, "metrics": {"a": 1}}


def test_of_many_marked_events_the_last_ones_are_kept() -> None:
    """Running figures of a long answer do not pile up."""
    harvest = stream(strip=False)
    run(harvest, [b'data: {"usage":{"completion_tokens":%d}}\n\n' % n for n in range(1000)])
    assert harvest.answer() == {"usage": {"completion_tokens": 999}}


def test_a_stream_without_figures_has_no_answer() -> None:
    """None is not an empty reading."""
    harvest = stream(strip=False)
    run(harvest, [TEXT, DONE])
    assert harvest.answer() is None


@pytest.mark.parametrize(
    ("parts", "broken"),
    [
        ([TEXT, DONE], False),
        ([TEXT], True),
        ([], True),
        ([TEXT, b"data: [DONE]"], False),
        ([TEXT, b"data: [DONE]\n"], False),
        ([TEXT, b'data: {"error": {"message": "x", "code": 500}}\n\n', DONE], True),
        ([TEXT, b'data: {"object":"error","message":"x"}\n\n', DONE], True),
        ([b'data: {"choices":[{"delta":{"content":"\\"error\\""}}]}\n\n', DONE], False),
        ([b'data: {"choices":[],"error":null}\n\n', DONE], False),
    ],
    ids=["done", "cut", "empty", "no-blank", "no-blank-lf", "error", "flat", "quoted", "null"],
)
@pytest.mark.parametrize("strip", [True, False])
def test_a_stream_is_broken_by_an_error_or_by_a_missing_end(
    *, strip: bool, parts: list[bytes], broken: bool
) -> None:
    """Status 200 was sent long before, so the stream itself has to tell."""
    harvest = stream(strip=strip)
    assert run(harvest, parts) == b"".join(parts)
    assert harvest.broken is broken


def test_the_end_mark_completes_a_stream_before_the_connection_ends() -> None:
    """Clients leave at `[DONE]`; that is no abort."""
    harvest = stream(strip=False)
    harvest.feed(TEXT, 0.0)
    assert not harvest.complete
    harvest.feed(DONE, 1.0)
    assert harvest.complete


@pytest.mark.parametrize("strip", [True, False])
@pytest.mark.parametrize("size", [4096, 1 << 30])
def test_an_event_beyond_all_limits_is_passed_on_unread(*, strip: bool, size: int) -> None:
    """Not a byte is lost, events before it included, and the stream is not called broken."""
    sent = TEXT + b"data: " + b"x" * (9 * 1024 * 1024) + b"\n\n" + TEXT + DONE
    harvest = stream(strip=strip)
    assert run(harvest, list(pieces(sent, size))) == sent
    assert harvest.broken is False


@pytest.mark.parametrize("size", SIZES)
def test_a_whole_answer_is_read_at_its_end(size: int) -> None:
    """It shows no times, and is complete when the connection says so."""
    harvest = WholeHarvest()
    assert run(harvest, list(pieces(b'{"usage":{"completion_tokens":3}}', size)))
    assert harvest.answer() == {"usage": {"completion_tokens": 3}}
    assert (harvest.first_content_s, harvest.complete, harvest.broken) == (None, True, False)


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b"\xff\xfe", b"Internal Server Error"])
def test_a_whole_answer_that_is_no_object_is_unread(body: bytes) -> None:
    """It passes all the same."""
    harvest = WholeHarvest()
    assert run(harvest, [body]) == body
    assert harvest.answer() is None


def test_a_whole_answer_beyond_the_limit_is_unread() -> None:
    """Memory for reading is bounded; forwarding is not."""
    harvest = WholeHarvest(limit=10)
    assert run(harvest, [b'{"a":', b'"0123456789"}']) == b'{"a":"0123456789"}'
    assert harvest.answer() is None


def test_what_cannot_be_read_is_complete_at_its_end() -> None:
    """Compressed content passes and tells nothing."""
    harvest = PassThrough()
    assert run(harvest, [b"\x1f\x8b"]) == b"\x1f\x8b"
    assert (harvest.answer(), harvest.complete) == (None, True)


def test_blanks_after_colons_change_nothing() -> None:
    """Some servers write them: the end mark and the figures are seen all the same."""
    harvest = StreamHarvest((b'"usage":{',), strip_usage=False, dialect=LLAMA)
    events = [
        *(b'data: {"content": "%d", "stop": false}\n\n' % number for number in range(3)),
        b'data: {"content": "", "stop": true, "usage": {"completion_tokens": 3}}\n\n',
    ]
    for event in events:
        harvest.feed(event, 0.0)
    assert harvest.complete
    assert (harvest.answer() or {})["usage"] == {"completion_tokens": 3}


SGLANG_MARKERS = (b'"usage":{', b'"sglext":{')
RECORD = (
    b'data: {"id":"c","choices":[],"usage":null,'
    b'"sglext":{"spec_tokens_details":{"spec_verify_ct":2}}}\n\n'
)
OTHERS_RECORD = (
    b'data: {"id":"c","choices":[],"usage":null,'
    b'"sglext":{"spec_tokens_details":{},"cached_tokens_details":{}}}\n\n'
)
SAYS_RECORD = b'data: {"choices":[{"delta":{"content":"\\"sglext\\":{\\"a\\":1}"}}]}\n\n'


def sglang_stream(*, usage: bool, record: bool) -> StreamHarvest:
    """A harvest of SGLang's stream."""
    return StreamHarvest(
        SGLANG_MARKERS,
        strip_usage=usage,
        strip_record=b"sglext" if record else None,
        strip_nulls=False,
        rule=StepRule(separate_finish=True, skips_empty=True),
    )


KINDS = [ROLE, TEXT, FINISH, RECORD, USAGE, DONE, COMMENT, NULL_USAGE, SAYS_RECORD, OTHERS_RECORD]


@given(
    events=st.lists(st.sampled_from(KINDS), max_size=12),
    end=ENDS,
    at=points(1500),
    usage=st.booleans(),
    record=st.booleans(),
)
def test_exactly_what_we_asked_for_is_taken_out(
    events: list[bytes], end: bytes, at: list[int], *, usage: bool, record: bool
) -> None:
    """Record and usage each by itself, for any split; nulls that the server writes anyway stay."""
    sent = b"".join(events).replace(b"\n", end)
    gone = [USAGE] * usage + [RECORD] * record
    kept = b"".join(event for event in events if event not in gone)
    harvest = sglang_stream(usage=usage, record=record)
    assert run(harvest, cut(sent, at)) == kept.replace(b"\n", end)


@given(points(300), st.sampled_from([RECORD, USAGE]))
def test_a_line_feed_behind_a_carriage_return_goes_with_its_event(
    at: list[int], taken_out: bytes
) -> None:
    """The two are the end of one line, however the network cuts."""
    sent = TEXT + taken_out.replace(b"\n\n", b"\r\r") + b"\n" + DONE
    harvest = sglang_stream(usage=True, record=True)
    assert run(harvest, cut(sent, at)) == TEXT + DONE


@given(st.sampled_from([b"", b"x"]), points(300))
def test_a_record_beside_other_figures_leaves_them(text: bytes, at: list[int]) -> None:
    """Should a version ever write it so, the rest of the event is not lost."""
    beside = (
        b'data: {"choices":[{"delta":{"content":"' + text + b'"}}],'
        b'"sglext":{"spec_tokens_details":{}},"model":"m"}\n\n'
    )
    harvest = sglang_stream(usage=False, record=True)
    expected = beside.replace(b',"sglext":{"spec_tokens_details":{}}', b"")
    assert run(harvest, cut(ROLE + beside + DONE, at)) == ROLE + expected + DONE


SPACED = b'data: {"choices": [{"delta": {"content": "x"}}], "usage": null}\n\n'


def test_nulls_are_taken_out_in_either_spelling() -> None:
    """LMDeploy writes a blank after each colon."""
    sent = [TEXT, SPACED, USAGE, DONE]
    expected = TEXT + SPACED.replace(b', "usage": null', b"") + DONE
    assert run(stream(strip=True), sent) == expected


STEPS = st.lists(
    st.sampled_from([TEXT, COMMENT, NULL_USAGE, QUOTED, b"\n"])
    | st.text('ab\\"é\n{', max_size=5).map(
        lambda text: (
            b'data: {"id":"c","choices":[{"index":0,"delta":{"content":%b}}]}\n\n'
            % json.dumps(text).encode()
        )
    ),
    max_size=20,
)


@given(events=STEPS, end=ENDS, at=points(3000), strip=st.booleans())
def test_events_are_counted_for_any_split(
    events: list[bytes], end: bytes, at: list[int], *, strip: bool
) -> None:
    """Alone, in halves or together, on the fast way and on the slow: the same number."""
    sent = b"".join([ROLE, *events, FINISH, USAGE, DONE]).replace(b"\n", end)
    harvest = StreamHarvest(MARKERS, strip_usage=strip, rule=StepRule())
    run(harvest, cut(sent, at))
    count = 1 + sum(event.startswith(b"data: ") for event in events)
    assert harvest.counted() == StreamCount(count, "stop", finish_empty=True)


def test_an_end_beside_the_last_text_is_seen_as_one_event() -> None:
    """As vLLM writes it."""
    last = b'data: {"choices":[{"index":0,"delta":{"content":"!"},"finish_reason":"length"}]}\n\n'
    harvest = StreamHarvest(MARKERS, strip_usage=True, rule=StepRule())
    run(harvest, [ROLE, TEXT, TEXT, last, USAGE, DONE])
    assert harvest.counted() == StreamCount(3, "length")


@pytest.mark.parametrize("text", ["é".encode(), b"\\u00e9"])
@pytest.mark.parametrize("at", range(3))
def test_text_beyond_ascii_is_noticed_where_it_matters(at: int, text: bytes) -> None:
    """On every way that an event may take, and in either spelling."""
    wide = TEXT.replace(b"hi", text)
    parts = [ROLE, TEXT, TEXT, TEXT, TEXT]
    parts[2 + at] = (wide, TEXT + wide, wide[:20])[at]
    parts.insert(3 + at, wide[20:] if at == 2 else TEXT)
    watching = sglang_stream(usage=False, record=False)
    run(watching, [*parts, FINISH, DONE])
    seen = watching.counted()
    assert seen is not None
    assert not seen.ascii_only
    careless = StreamHarvest(MARKERS, strip_usage=False, rule=StepRule())
    run(careless, [*parts, FINISH, DONE])
    assert careless.counted() == replace(seen, ascii_only=True)


@pytest.mark.parametrize("key", [b"reasoning", b"reasoning_content"])
def test_reasoning_that_is_told_apart_is_noticed_once(key: bytes) -> None:
    """Also when it begins after other output; the rest of it passes quickly."""
    thought = TEXT.replace(b"content", key)
    harvest = StreamHarvest(MARKERS, strip_usage=False, rule=StepRule())
    run(harvest, [ROLE, TEXT, TEXT, *[thought] * 20, TEXT, FINISH, DONE])
    assert harvest.counted() == StreamCount(24, "stop", finish_empty=True, reasoning=True)
    silent = TEXT.replace(b'{"content"', b'{"%b":null,"content"' % key)
    plain = StreamHarvest(MARKERS, strip_usage=False, rule=StepRule())
    run(plain, [ROLE, silent, silent, FINISH, DONE])
    assert plain.counted() == StreamCount(3, "stop", finish_empty=True)


def test_tokens_are_counted_where_each_event_tells_them() -> None:
    """By their ids, or by usage that grows from event to event."""
    ids = [
        TEXT.replace(b'"hi"}', b'"hi"},"token_ids":[%b]' % b",".join([b"1"] * n)) for n in (1, 4)
    ]
    harvest = StreamHarvest(MARKERS, strip_usage=False, rule=StepRule())
    last = FINISH.replace(b'"stop"', b'"stop","token_ids":[2]')
    run(harvest, [ROLE, *ids, last, DONE])
    told = StreamCount(3, "stop", finish_empty=True, told_tokens=6, told_events=3, most_tokens=4)
    assert harvest.counted() == told

    grows = [
        TEXT.replace(b"}]}\n", b'}],"usage":{"completion_tokens":%d}}\n' % n) for n in (1, 5, 6, 6)
    ]
    harvest = StreamHarvest(MARKERS, strip_usage=False, rule=StepRule())
    run(harvest, [ROLE, *grows, FINISH, DONE])
    assert harvest.counted() == replace(told, events=5)


def test_a_stream_that_passed_unread_is_not_counted() -> None:
    """Nor is one of which nobody wants to know."""
    harvest = StreamHarvest(MARKERS, strip_usage=False, rule=StepRule())
    run(harvest, [TEXT, b"data: " + b"x" * (9 * 1024 * 1024), DONE])
    assert harvest.counted() is None
    assert stream(strip=True).counted() is None


def test_a_mean_at_the_last_choice_is_kept_though_a_usage_event_follows() -> None:
    """Whose list of choices is empty."""
    harvest = StreamHarvest((b'"usage":{', b'"finish_reason":"'), strip_usage=False)
    last = FINISH.replace(b'"stop"', b'"stop","avg_decoded_tokens_per_iter":2.5')
    run(harvest, [ROLE, TEXT, last, USAGE, DONE])
    answer = harvest.answer() or {}
    assert answer["choices"][0]["avg_decoded_tokens_per_iter"] == 2.5
    assert answer["usage"] == {"completion_tokens": 2}
