"""Simulated engines write, byte for byte, what the real ones wrote of the same answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.simfleet.answer import Door
from tests.support.recordings import OWN, Recording, shared_folder
from tests.support.simfleet_replay import Replay, kind_of

ENGINES = ("llamacpp-", "vllm-", "sglang-")
OK = 200

NOT_SIMULATED = {
    "chat_logprobs": "no logprobs",
    "chat_logprobs_stream": "no logprobs",
    "completions_logprobs": "no logprobs",
    "completions_logprobs_stream": "no logprobs",
    "chat_stop": "no stop texts: nothing a simulated engine writes holds one",
    "chat_meta_info": "fewer times than the engine tells",
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
