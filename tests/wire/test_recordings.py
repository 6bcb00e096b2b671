"""Bytes of real engines through adapter and harvest: nothing changed, every figure read."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.types import SpecUsage
from router.endpoints.table import LLAMA, OPENAI, RESPONSES
from router.engines.base import Ask, Reading
from router.relay.harvest import Harvest, StreamHarvest
from router.relay.whole import WholeHarvest
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
"""llama.cpp counts one of the two choices, vLLM sums them and leaves its record out."""

CONTRADICTION = "draft-simple-tools"
"""llama.cpp says 2 tokens of which 2 or 6 were accepted drafts: its count of one is wrong."""

NO_RECORD = {"chat_stop"}
"""vLLM leaves its record out when a stop string ended the answer."""

OUTPUT = (b'"content":"', b'"tool_calls":[', b".delta\ndata: ", b"_block_delta\ndata: ")
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


def harvest(recording: Recording, ask: Ask) -> Harvest:
    """What the relay would use."""
    if recording.streamed:
        return StreamHarvest(
            recording.adapter.markers, strip_usage=ask.strip_usage, dialect=recording.dialect
        )
    return WholeHarvest()


def replay(
    recording: Recording, request: ParsedRequest, parts: Iterable[bytes]
) -> tuple[bytes, Harvest, Reading | None]:
    """What the client gets, and what is read, as the relay reads it."""
    watching = harvest(recording, recording.adapter.prepare(request))
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
        return Reading(prompt_tokens=number(usage, "prompt_tokens"))
    if recording.dialect is not OPENAI:
        return _of_newer_dialects(recording, usage)
    if recording.adapter.name == "vllm":
        return _vllm(recording, usage)
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
    cached = number(found, "cache_read_input_tokens", 0)
    return Reading(number(found, "output_tokens"), number(found, "input_tokens") + cached)


def _vllm(recording: Recording, usage: dict[str, object]) -> Reading:
    if not usage:
        return Reading(unread=("answer",))
    tokens, prompt = number(usage, "completion_tokens"), number(usage, "prompt_tokens")
    record = told(recording, "metrics").get("speculative_decoding")
    if not isinstance(record, dict):
        assert recording.case in NO_RECORD or recording.path.parent.name == "none"
        return Reading(tokens, prompt)
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
    return Reading(tokens, prompt, spec)


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
        return Reading(tokens, prompt, unread=("timings.draft_n_accepted",))
    drafted, accepted = (number(timings, name, 0) for name in ("draft_n", "draft_n_accepted"))
    spec = SpecUsage(steps=tokens - accepted, drafted=drafted, accepted=accepted)
    return Reading(tokens, prompt, spec)


def number(found: dict[str, object], name: str, default: int | None = None) -> int:
    """An integer that must be there."""
    value = found.get(name, default)
    assert isinstance(value, int)
    return value


def without_usage(recording: Recording) -> bytes:
    """The stream as the client would have got it, had nobody asked for usage."""
    events = recording.body.split(b"\n\n")
    injected = [event for event in events if b'"choices":[],"usage":{' in event]
    assert len(injected) == (recording.status == OK and recording.case not in BROKEN)
    return b"\n\n".join(event for event in events if event not in injected)


def client_asked(recording: Recording) -> ParsedRequest:
    """The request of a client that wants everything which is in the recording."""
    if not recording.streamed:
        return recording.request()
    options = {"include_usage": True} if told(recording, "usage") else None
    return recording.request(stream_options=options)


def client_did_not_ask(recording: Recording) -> tuple[ParsedRequest, bytes]:
    """The request of a client that asked for no usage, and what it must get."""
    request = recording.request(stream_options=None)
    ask = recording.adapter.prepare(request)
    continuous = recording.case.endswith("continuous_usage")
    if not ask.strip_usage or not told(recording, "usage") or continuous:
        return request, recording.body  # not ours to take out, or a server that tells everyone
    return request, without_usage(recording)


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
    """Identical where the client asked; exactly our usage event less where it did not."""
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


def test_own_recordings_cover_what_is_said_of_them() -> None:
    """Both engines; whole and streamed; with a draft and without; errors and broken streams."""
    kinds = {
        (r.adapter.name, r.streamed, r.status == OK, r.case in BROKEN, bool(_accepted(r)))
        for r in HERE
    }
    assert kinds >= {
        (engine, streamed, True, False, True)
        for engine in ("llamacpp", "vllm")
        for streamed in (True, False)
    }
    assert kinds >= {(engine, False, False, False, False) for engine in ("llamacpp", "vllm")}
    assert kinds >= {(engine, True, True, True, False) for engine in ("llamacpp", "vllm")}


def _accepted(recording: Recording) -> int | None:
    reading = expected_reading(recording)
    return reading.spec.accepted if reading and reading.spec else None
