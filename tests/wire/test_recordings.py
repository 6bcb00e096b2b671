"""Bytes of real engines through adapter and harvest: nothing changed, every figure read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.types import SpecUsage
from router.endpoints.table import LLAMA, OPENAI, RESPONSES
from router.engines.base import NOTHING_ASKED, Ask, Reading
from router.engines.streams import with_counted_steps
from router.outputs.copy import StreamCopy
from router.outputs.demand import demand_of
from router.outputs.judge import UNKNOWN, judged
from router.outputs.said import said_by
from router.relay.harvest import Harvest, harvest_for
from router.relay.whole import HeldHarvest
from router.types import ParsedRequest
from tests.support.recordings import OWN, Recording, recordings, shared_folder
from tests.support.splits import SIZES, cut, pieces, points

HERE = recordings(OWN)
SHARED_FOLDER = shared_folder()
ALL = recordings(SHARED_FOLDER) if SHARED_FOLDER else []
OK = 200

BROKEN = {"stream_killed", "stream_terminated", "stream_engine_dies"}
"""The engine died: no figures ever came, and the stream says or shows so."""

MANY_CHOICES = {"chat_n2", "chat_n2_stream"}
"""llama.cpp counts one of the two choices, vLLM sums them and leaves its record out, SGLang has a
record for each."""

CONTRADICTION = "draft-simple-tools"
"""llama.cpp says 2 tokens of which 2 or 6 were accepted drafts: its count of one is wrong."""

NO_RECORD = {"chat_stop"}
"""vLLM leaves its record out when a stop string ended the answer."""

OUTPUT = (
    b'"content":"',
    b'"index":0,"text":"',
    b'"tool_calls":[',
    b".delta\ndata: ",
    b"_block_delta\ndata: ",
)
"""What events with output hold in these recordings."""

own = pytest.mark.parametrize("recording", HERE, ids=lambda recording: recording.name)
shared = pytest.mark.parametrize(
    "recording",
    ALL
    or [
        pytest.param(None, marks=pytest.mark.skip("no recordings in ../shared or SPECROUTE_SHARED"))
    ],
    ids=lambda recording: recording.name if recording else "absent",
)


def harvest(recording: Recording, ask: Ask = NOTHING_ASKED) -> Harvest:
    """What the relay would use."""
    return harvest_for(
        recording.dialect,
        content_type="text/event-stream" if recording.streamed else "application/json",
        content_encoding="",
        markers=recording.adapter.markers,
        ask=ask,
        rule=recording.adapter.step_rule,
    )


def replay(
    recording: Recording, request: ParsedRequest, parts: Iterable[bytes]
) -> tuple[bytes, Harvest, Reading | None]:
    """What the client gets, and what is read, as the relay reads it."""
    watching = harvest(recording, recording.adapter.prepare(request))
    if isinstance(watching, HeldHarvest):
        out = b"".join(map(watching.hold, parts)) + watching.finish()
    else:
        out = b"".join([watching.feed(part, 0.0) for part in parts]) + watching.finish()
    if recording.status != OK or watching.broken:
        return out, watching, None
    answer = watching.answer()
    if answer is None:
        return out, watching, Reading(unread=("answer",))
    return out, watching, recording.adapter.read(request, answer)


def told(recording: Recording, name: str) -> dict[str, object]:
    """The last object under a name in the engine's answer; empty where there is none."""
    found = [item[name] for item in recording.objects if isinstance(item.get(name), dict)]
    return dict(found[-1]) if found else {}


def expected_reading(recording: Recording) -> Reading | None:
    """The engine's own figures, read by a few lines of their own."""
    usage = told(recording, "usage")
    if recording.status != OK or recording.case in BROKEN:
        return None
    if recording.case in MANY_CHOICES:
        return Reading(
            prompt_tokens=number(usage, "prompt_tokens"), cached_tokens=cached(recording)
        )
    if recording.dialect is not OPENAI:
        return _of_newer_dialects(recording, usage)
    if recording.adapter.name == "vllm":
        return _vllm(recording, usage)
    if recording.adapter.name == "sglang":
        return _sglang(recording, usage)
    return _llamacpp(recording, usage)


def _of_newer_dialects(recording: Recording, usage: dict[str, object]) -> Reading:
    """Usage comes unasked; acceptance only from llama.cpp, only where it tells its timings."""
    timings = told(recording, "timings")
    if timings:
        assert recording.dialect in {RESPONSES, LLAMA}
        return _llamacpp(recording, {})
    found = {"output_tokens": 0, **usage}
    for item in recording.objects:
        for holder in (item, item.get("message"), item.get("response")):
            if isinstance(holder, dict) and isinstance(holder.get("usage"), dict):
                found.update(holder["usage"])
    left_out = number(found, "cache_read_input_tokens", 0)
    return Reading(
        number(found, "output_tokens"),
        number(found, "input_tokens") + left_out,
        cached_tokens=cached(recording),
    )


def _vllm(recording: Recording, usage: dict[str, object]) -> Reading:
    if not usage:
        return Reading(unread=("usage.completion_tokens",))
    tokens, prompt = number(usage, "completion_tokens"), number(usage, "prompt_tokens")
    record = told(recording, "metrics").get("speculative_decoding")
    if not isinstance(record, dict):
        assert recording.case in NO_RECORD or recording.path.parent.name == "none"
        return Reading(tokens, prompt, cached_tokens=cached(recording))
    histogram = record["acceptance_histogram"]
    assert sum(j * n for j, n in enumerate(histogram)) == record["num_accepted_draft_tokens"]
    accepted = number(record, "num_accepted_draft_tokens")
    spec = SpecUsage(
        # The end may have cut tokens that had been accepted; every step leaves at least one.
        steps=max(tokens - accepted, 1 + number(record, "num_spec_steps")),
        drafted=number(record, "num_draft_tokens"),
        accepted=accepted,
        accepted_per_step=tuple(histogram),
        num_speculative_tokens=number(record, "num_spec_tokens"),
    )
    return Reading(tokens, prompt, spec, cached_tokens=cached(recording))


def _sglang(recording: Recording, usage: dict[str, object]) -> Reading:
    extension = told(recording, "sglext")
    if not usage and not extension:
        return Reading(unread=("answer",))
    unread = () if usage else ("usage.completion_tokens",)
    tokens = number(usage, "completion_tokens") if usage else None
    prompt = number(usage, "prompt_tokens") if usage else None
    record = extension.get("spec_tokens_details")
    if not isinstance(record, dict):
        # Nobody asked, or nothing drafts here.
        asked = recording.request().fields.get("return_spec_tokens_details")
        assert not asked or recording.path.parent.name == "none"
        return Reading(tokens, prompt, unread=unread, cached_tokens=cached(recording))
    steps, histogram = record["spec_verify_ct"], record["spec_correct_drafts_histogram"]
    assert sum(histogram) == steps
    spec = SpecUsage(
        steps=1 + number(record, "spec_verify_ct"),  # and the one that gave the first token
        drafted=number(record, "spec_num_proposed_drafts"),
        accepted=number(record, "spec_num_correct_drafts"),
        accepted_per_step=tuple(histogram),
        num_speculative_tokens=recording.draft_length,
        exact_drafted=False,
    )
    return Reading(tokens, prompt, spec, unread, cached(recording))


def _llamacpp(recording: Recording, usage: dict[str, object]) -> Reading:
    timings = told(recording, "timings")
    tokens = number(timings, "predicted_n")
    prompt = number(timings, "prompt_n") + number(timings, "cache_n")
    if usage:
        assert (tokens, prompt) == (
            number(usage, "completion_tokens"),
            number(usage, "prompt_tokens"),
        )
    if recording.path.parent.name == CONTRADICTION:
        unread = ("timings.draft_n_accepted",)
        return Reading(tokens, prompt, unread=unread, cached_tokens=cached(recording))
    drafted, accepted = (number(timings, name, 0) for name in ("draft_n", "draft_n_accepted"))
    spec = SpecUsage(steps=tokens - accepted, drafted=drafted, accepted=accepted)
    return Reading(tokens, prompt, spec, cached_tokens=cached(recording))


def cached(recording: Recording) -> int | None:
    """Tokens of the prompt that the engine says it had; None where it says nothing."""
    found = None
    for item in recording.objects:
        for holder in (item, item.get("message"), item.get("response")):
            usage = holder.get("usage") if isinstance(holder, dict) else None
            if not isinstance(usage, dict):
                continue
            details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
            said = details.get("cached_tokens", usage.get("cache_read_input_tokens"))
            found = found if said is None else said
    timings = told(recording, "timings")
    return found if found is not None or not timings else number(timings, "cache_n")


def number(found: dict[str, object], name: str, default: int | None = None) -> int:
    """An integer that must be there."""
    value = found.get(name, default)
    assert isinstance(value, int)
    return value


OWN_EVENTS = (b'"choices":[],"usage":{', b'"choices":[],"usage":null,"sglext":{')
"""What events hold that come because somebody asked for them."""


def without_ours(recording: Recording, ask: Ask) -> bytes:
    """The answer as the client would have got it, had nobody asked for more than it did."""
    if not recording.streamed:
        # The member is the last of the body in all recordings that have it.
        body, found, _ = recording.body.partition(b',"sglext":{')
        return body + b"}" if found and ask.strip_record else recording.body
    ours = (ask.strip_usage, ask.strip_record is not None)
    gone = [what for what, taken in zip(OWN_EVENTS, ours, strict=True) if taken]
    events = recording.body.split(b"\n\n")
    return b"\n\n".join(event for event in events if not any(what in event for what in gone))


def client_asked(recording: Recording) -> ParsedRequest:
    """The request of a client that wants everything which is in the recording."""
    if not recording.streamed:
        asked = True if told(recording, "sglext") else None
        return recording.request(return_spec_tokens_details=asked)
    options = {"include_usage": True} if told(recording, "usage") else None
    asked = True if told(recording, "sglext") else None
    return recording.request(stream_options=options, return_spec_tokens_details=asked)


def client_did_not_ask(recording: Recording) -> tuple[ParsedRequest, bytes]:
    """The request of a client that asked for none of it, and what it must get."""
    request = recording.request(stream_options=None, return_spec_tokens_details=None)
    if recording.case.endswith("continuous_usage"):
        return request, recording.body  # a server that tells everyone
    return request, without_ours(recording, recording.adapter.prepare(request))


def check(recording: Recording, size: int) -> None:
    """Both clients, one split."""
    request = client_asked(recording)
    parts = list(pieces(recording.body, size))
    out, watched, reading = replay(recording, request, parts)
    assert out == recording.body
    assert reading == expected_reading(recording)
    assert watched.broken is (recording.case in BROKEN)

    request, expected = client_did_not_ask(recording)
    out, _, reading = replay(recording, request, parts)
    assert out == expected
    assert reading == expected_reading(recording)


@own
@pytest.mark.parametrize("size", SIZES)
def test_bytes_pass_and_figures_are_the_engine_s_own(recording: Recording, size: int) -> None:
    """Identical where the client asked; exactly our event or member less where it did not."""
    check(recording, size)


@pytest.mark.shared
@shared
@pytest.mark.parametrize("size", [5, 1000, 1 << 30])
def test_the_same_holds_for_every_recording_there_is(recording: Recording, size: int) -> None:
    """All engines' versions, methods and cases."""
    check(recording, size)


@given(st.sampled_from([r for r in HERE if r.streamed]), points(6000))
def test_no_split_of_a_stream_makes_a_difference(recording: Recording, at: list[int]) -> None:
    """Networks cut where they like."""
    request, expected = client_did_not_ask(recording)
    out, _, reading = replay(recording, request, cut(recording.body, at))
    assert (out, reading) == (expected, expected_reading(recording))


@pytest.mark.parametrize(
    "recording", [r for r in HERE if r.streamed], ids=lambda recording: recording.name
)
def test_output_has_times_wherever_there_is_any(recording: Recording) -> None:
    """First and last event with output, found by the position of the event in the stream."""
    watching = harvest(recording, Ask(b"", strip_usage=True))
    with_output = []
    for at, event in enumerate(recording.body.split(b"\n\n")):
        watching.feed(event + b"\n\n", float(at))
        if any(shown in event for shown in OUTPUT):
            with_output.append(at)
    first = next((at for at in with_output if b'"content":""' not in _event(recording, at)), None)
    assert watching.first_content_s == first
    if first is not None:
        assert watching.last_content_s is not None
        assert watching.last_content_s >= with_output[-1]


def _event(recording: Recording, at: int) -> bytes:
    return recording.body.split(b"\n\n")[at]


CUT = {
    "vllm-0.32.0/ngram/chat_code_edit_stream_token_ids": 2,
    "vllm-0.32.0/ngram/chat_json_stream": 5,
    "vllm-0.32.0/ngram/completions_stream": 1,
    "vllm-0.32.0/suffix/chat_json_schema_stream": 1,
}
"""Tokens of the last step that its engine counts as accepted though the answer's end cut them off:
so many steps too few follow from its figures, and the events are right."""

UNCOUNTED = {
    "chat_n2_stream": "choices",
    "chat_tool_result_stream": "tools",
    "chat_tools_auto_stream": "tools",
    "chat_tools_named_stream": "tools",
    "chat_tools_required_stream": "tools",
    "chat_tools_strict_auto_stream": "tools",
    "chat_tools_strict_required_stream": "finish",
}
"""Streams whose events are no steps, or may not be."""

ENDED_BY_A_TOKEN = {"chat_json_schema_stream", "chat_logprobs_stream", "chat_stream"}
ENDED_BY_A_TOKEN |= {"chat_stream_spec_details", "chat_stream_no_usage"}
"""In SGLang's chats nothing tells whether the token that ended the answer had a step of its own."""


def check_steps(recording: Recording) -> str:
    """Steps by events are those by the engine's own figures; returns what came of it."""
    rule = recording.adapter.step_rule
    expected = expected_reading(recording)
    if rule is None or recording.dialect is not OPENAI or not recording.streamed:
        return "none"
    if expected is None or expected.unread == ("answer",):
        return "none"
    watching = harvest(recording)
    watching.feed(recording.body, 0.0)
    watching.finish()
    stream = watching.counted()
    assert stream is not None
    reading = with_counted_steps(
        Reading(expected.tokens),
        recording.request(),
        stream,
        rule,
        draft_length=recording.draft_length,
    )
    if reading.spec is None:
        ended = recording.engine == "sglang" and recording.case in ENDED_BY_A_TOKEN
        due = "last_step" if ended else UNCOUNTED.get(recording.case)
        if expected.tokens is None and recording.case not in MANY_CHOICES:
            due = "tokens"
        assert reading.uncounted == due
        return str(due)
    truth = expected.spec.steps if expected.spec else None
    if truth is None and recording.path.parent.name == "none":
        truth = expected.tokens  # nothing drafts here
    if truth is None:
        return "no truth"
    assert reading.spec.steps == truth + CUT.get(recording.name, 0)
    cut = CUT.get(recording.name)
    if cut is not None:
        record = told(recording, "metrics")["speculative_decoding"]
        assert isinstance(record, dict)
        assert 0 < cut <= record["per_step_accepted"][-1]
    return "counted"


@own
def test_steps_counted_in_a_stream_are_the_engine_s_own(recording: Recording) -> None:
    """To the last one, wherever they are claimed."""
    check_steps(recording)


@pytest.mark.shared
@pytest.mark.skipif(not ALL, reason="no recordings in ../shared or SPECROUTE_SHARED")
def test_the_same_steps_are_found_in_every_recording_there_is() -> None:
    """Of all streams of vLLM and SGLang; most of them are counted."""
    found = Counter(check_steps(recording) for recording in ALL)
    assert set(found) <= {"none", "counted", "no truth", "last_step", "tokens", *UNCOUNTED.values()}
    assert found["counted"] > sum(found[why] for why in ("last_step", "tokens", "tools", "finish"))


def test_own_recordings_cover_what_is_said_of_them() -> None:
    """All engines; whole and streamed; with a draft and without; errors and broken streams."""
    kinds = {
        (r.adapter.name, r.streamed, r.status == OK, r.case in BROKEN, bool(_accepted(r)))
        for r in HERE
    }
    assert kinds >= {
        (engine, streamed, True, False, True)
        for engine in ("llamacpp", "sglang", "vllm")
        for streamed in (True, False)
    }
    assert kinds >= {
        (engine, False, False, False, False) for engine in ("llamacpp", "sglang", "vllm")
    }
    assert kinds >= {(engine, True, True, True, False) for engine in ("llamacpp", "vllm")}


def _accepted(recording: Recording) -> int | None:
    reading = expected_reading(recording)
    return reading.spec.accepted if reading and reading.spec else None


UNSTRUCTURED = {"chat_json_object", "chat_tools_required", "chat_tools_required_stream"}
"""llama.cpp lets its model answer in plain text all the same, unless its template knows tools."""


def check_structure(recording: Recording) -> str:
    """Judges an answer as the relay does; says what was found."""
    if not recording.routed or recording.status != OK or recording.case in BROKEN:
        return "none"
    demand = demand_of(recording.request())
    if demand is None:
        return "none"
    if recording.streamed:
        copy = StreamCopy(recording.dialect)
        for piece in pieces(recording.body, 1000):
            copy.take(piece)
        said = copy.said()
    else:
        said = said_by(recording.dialect, orjson.loads(recording.body))
    assert said is not None
    found = judged(demand, said)
    if found == UNKNOWN:
        assert demand.optional
        return "text"
    if found.truncated:
        return "cut"
    lax = recording.engine == "llamacpp" and recording.path.parent.name != "draft-simple-tools"
    assert found.valid is not (lax and recording.case in UNSTRUCTURED)
    return "valid" if found.valid else "invalid"


@own
def test_structure_is_found_in_what_engines_write(recording: Recording) -> None:
    """Calls and JSON that engines were made to write are valid."""
    check_structure(recording)


@pytest.mark.shared
@pytest.mark.skipif(not ALL, reason="no recordings in ../shared or SPECROUTE_SHARED")
def test_structure_is_found_in_every_recording_there_is() -> None:
    """Of every engine, streamed and whole."""
    found = Counter(check_structure(recording) for recording in ALL)
    assert set(found) == {"none", "text", "cut", "valid", "invalid"}
    assert found["valid"] > found["invalid"]
