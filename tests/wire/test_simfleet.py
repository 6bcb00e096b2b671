"""Simulated engines write, byte for byte, what the real ones wrote of the same answer."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from router.simfleet.answer import Door
from router.simfleet.http import Manner
from router.simfleet.meter import Meter, Totals
from router.simfleet.settings import EngineSettings, Kind, Record
from router.simfleet.wire.complaints import complaints_of
from router.simfleet.wire.metrics import Gauges, metrics_text
from tests.support.clock import ManualClock
from tests.support.recordings import OWN, Recording, shared_folder
from tests.support.simfleet_replay import Replay, kind_of
from tests.support.simfleet_world import PushedPace, simulated

ENGINES = ("llamacpp-", "vllm-", "sglang-")
OK = 200

NOT_SIMULATED = {
    "chat_logprobs": "no logprobs",
    "chat_logprobs_stream": "no logprobs",
    "completions_logprobs": "no logprobs",
    "completions_logprobs_stream": "no logprobs",
    "chat_stop": "no stop texts: nothing a simulated engine writes holds one",
    "chat_meta_info": "fewer times than the engine tells",
    "native_generate": "fewer times than the engine tells",
    "native_generate_stream": "fewer times than the engine tells",
    "stream_killed": "broken off; see the faults",
    "stream_terminated": "broken off; see the faults",
    "stream_engine_dies": "broken off; see the faults",
}


def answered(folder: Path) -> list[Recording]:
    """Recordings of answers that simulated engines can give."""
    found = [
        Recording(path)
        for engine in sorted(folder.iterdir())
        if engine.name.startswith(ENGINES)
        for path in sorted(engine.glob("*/*.http"))
        if path.stem not in NOT_SIMULATED
    ]
    doors = {door.value for door in Door}
    return [
        item
        for item in found
        if item._request["method"] == "POST"
        and item._request["path"] in doors
        and item.status == OK
    ]


SHARED = shared_folder()
own = pytest.mark.parametrize("recording", answered(OWN), ids=lambda item: item.name)
shared = pytest.mark.parametrize(
    "recording",
    answered(SHARED)
    if SHARED
    else [pytest.param(None, marks=pytest.mark.skip("no recordings beside the checkout"))],
    ids=lambda item: item.name if item else "absent",
)


def body_of(recording: Recording) -> bytes:
    """The bytes after the head, framing included."""
    return recording.path.read_bytes().partition(b"\r\n\r\n")[2]


def check(recording: Recording) -> None:
    """With the recording's ids, texts and times, the bytes are the recording's."""
    assert Replay(recording).rendered() == body_of(recording), kind_of(recording)


@own
def test_own_recordings(recording: Recording) -> None:
    """An answer given again is the same to the last byte, chunked framing included."""
    check(recording)


@pytest.mark.shared
@shared
def test_shared_recordings(recording: Recording) -> None:
    """An answer given again is the same to the last byte, chunked framing included."""
    check(recording)


def everything(folder: Path) -> list[Recording]:
    """All exchanges, answered or refused, pages included."""
    return [
        Recording(path)
        for engine in sorted(folder.iterdir())
        if engine.name.startswith(ENGINES)
        for path in sorted(engine.glob("*/*.http"))
    ]


ALL = everything(SHARED or OWN)


def served(recording: Recording) -> EngineSettings:
    """The engine that was recorded, as far as errors and pages tell it."""
    engine, _, version = recording.path.parts[-3].partition("-")
    method = recording.path.parts[-2]
    model = "smollm2-135m-instruct"
    keys = {"auth", "ngram-tools"}
    return EngineSettings(
        kind=Kind(engine),
        model=model,
        version=version,
        context=2048,
        root="models/smollm2-hf",
        api_key="secret-key" if method in keys else None,
        method="none" if method == "none" else method,
        num_speculative_tokens=None if method == "none" else 5,
        record=Record.SUMMARY,
    )


def clock_of(recording: Recording) -> ManualClock:
    """Stands still when the answer was given."""
    date = recording._parts[1].get("date")
    return ManualClock(wall=parsedate_to_datetime(date).timestamp() if date else 1.8e9)


@pytest.mark.parametrize("recording", ALL, ids=lambda item: item.name)
def test_heads(recording: Recording) -> None:
    """Status line and headers are the engine's, their order and case included."""
    head = recording.path.read_bytes().partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    headers = recording._parts[1]
    content = headers.get("content-type")
    if recording.case.startswith("metrics") and recording.status == OK:
        plain = content
    else:
        plain = content.partition(";")[0] if content else None
    extra = [
        (n, v)
        for n, v in [line.partition(": ")[::2] for line in head.decode("latin-1").split("\r\n")[1:]]
        if n.lower() in ("allow", "process-start-time-unix")
    ]
    length = headers.get("content-length")
    made = Manner(kind_of(recording), clock_of(recording).wall).head(
        recording.status,
        close=True,
        length=None if length is None else int(length),
        content=plain,
        extra=extra,
        bare=recording.status == 401,
    )
    assert made == head


REFUSED = [
    item
    for item in ALL
    if item.status >= 400
    and "overflow" not in item.case
    and "tools" not in item.case
    and "dead" not in item.case
    and "loading" not in item.case
    and not (item.path.parts[-3] == "llamacpp-b10434" and item.case == "error_bad_json")
]


@pytest.mark.parametrize("recording", REFUSED, ids=lambda item: item.name)
async def test_refusals(recording: Recording) -> None:
    """Asked the same over a socket, an engine refuses it in the same bytes."""
    request: dict[str, Any] = recording._request
    body = request.get("raw_body", request.get("body"))
    sent = body.encode() if isinstance(body, str) else body
    headers = {k: v for k, v in request["headers"].items() if k == "Authorization"}
    async with simulated(served(recording), pace=PushedPace(clock_of(recording))) as world:
        status, told, got = await world.exchange(
            request["path"], sent, method=request["method"], headers=headers
        )
    assert (status, got) == (recording.status, body_of(recording))
    assert told == recording._parts[1]


OVERFLOWS = [item for item in ALL if "overflow" in item.case]


@pytest.mark.parametrize("recording", OVERFLOWS, ids=lambda item: item.name)
def test_too_long_prompts(recording: Recording) -> None:
    """Given the tokenizer's count, the words are the engine's; the stand-in counts bytes."""
    counted = re.search(rb"\((\d+) tokens\)", recording.body)
    made = complaints_of(served(recording)).overflow(int(counted.group(1)) if counted else 0)
    assert (made.status, made.body) == (recording.status, body_of(recording))


PAGES = [item for item in ALL if item.case in ("health", "ping", "version", "load", "models")]


@pytest.mark.parametrize("recording", PAGES, ids=lambda item: item.name)
async def test_pages(recording: Recording) -> None:
    """What an engine tells of itself has the recorded members in the recorded order."""
    async with simulated(served(recording), pace=PushedPace(clock_of(recording))) as world:
        status, _, got = await world.exchange(recording._request["path"])
    numbers = re.compile(rb'modelperm-\w+|"(created|n_ctx_train)":\d+')
    assert status == recording.status
    assert numbers.sub(b"", got) == numbers.sub(b"", body_of(recording))


METRICS = [item for item in ALL if item.case == "metrics"]


@pytest.mark.parametrize("recording", METRICS, ids=lambda item: item.name)
def test_metrics(recording: Recording) -> None:
    """Every name, help text, type and set of labels that is told is one the engine tells."""
    settings = served(recording)
    totals = Meter(settings).totals
    totals = totals if settings.kind is Kind.VLLM else Totals(per_position=[1])
    if settings.kind is Kind.LLAMACPP and b"per_pos_total{" not in recording.body:
        totals.per_position.clear()
    ours = metrics_text(settings, totals, Gauges(0, 0, 0.0)).decode()
    theirs = recording.body.decode()

    def shape(text: str) -> set[str]:
        rows = text.splitlines()
        bare = {re.sub(r'="[^"]*"', "", row.rpartition(" ")[0]) for row in rows if row[0] != "#"}
        return bare | {row for row in rows if row.startswith("#")}

    # A position, a bucket or a way to end is one more value of a label, not another name.
    assert shape(ours) - shape(theirs) == set()
