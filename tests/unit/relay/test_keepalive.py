"""When a silent stream is spoken into, and when it is left alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from router.relay.keepalive import COMMENT, KeepAlive, is_plain_stream
from router.relay.sink import Feeder, Unfinished
from router.relay.transfer import Transfer
from router.relay.upstream import UpstreamResponse
from router.types import Headers
from tests.support.clock import ManualClock

AFTER_S = 10.0


@dataclass
class _Sink:
    """Keeps what is written."""

    written: list[bytes] = field(default_factory=list)
    head: tuple[int, str, Headers] | None = None
    held_s: float = 0.0

    @property
    def started(self) -> bool:
        return self.head is not None

    @property
    def takes_events(self) -> bool:
        return True

    def feed_from(self, feeder: Feeder | None) -> None:
        del feeder

    def left_at(self, answer: Unfinished) -> None:
        del answer

    def start(self, status: int, reason: str, headers: Headers) -> None:
        assert self.head is None
        self.head = (status, reason, headers)

    def write(self, data: bytes) -> None:
        self.written.append(data)

    async def close(self) -> None:
        raise AssertionError

    def abort(self) -> None:
        raise AssertionError


@dataclass
class Stage:
    """One client, its time, and what is watched."""

    clock: ManualClock = field(default_factory=ManualClock)
    sink: _Sink = field(default_factory=_Sink)

    def __post_init__(self) -> None:
        self.keep_alive = KeepAlive(
            self.sink, after_s=AFTER_S, extra=(("x-a", "b"),), now=self.clock.monotonic
        )

    def after(self, seconds: float) -> int:
        """Lets time pass, has the timer fire, and counts the comments so far."""
        self.clock.advance(seconds)
        timer = self.keep_alive._timer
        assert timer is not None
        timer.cancel()
        self.keep_alive._look()
        return self.sink.written.count(COMMENT)

    def transfer(self, **harvest: Any) -> SimpleNamespace:
        """The answer has begun now."""
        self.sink.head = (200, "OK", ())
        made = SimpleNamespace(
            lease=SimpleNamespace(touched=self.clock.monotonic()),
            harvest=SimpleNamespace(**{"may_add": True, "complete": False, **harvest}),
        )
        self.keep_alive.transfer = cast("Transfer", made)
        return made


async def test_the_first_word_brings_the_head() -> None:
    """Once; the timer that fires too early only looks."""
    stage = Stage()
    with stage.keep_alive:
        assert (stage.after(9.0), stage.keep_alive.begun) == (0, False)
        assert (stage.after(1.0), stage.keep_alive.begun) == (1, True)
        assert stage.sink.head == (
            200,
            "OK",
            (("Content-Type", "text/event-stream"), ("x-a", "b")),
        )
        assert [stage.after(5.0), stage.after(5.0)] == [1, 2]


async def test_the_time_counts_from_what_came_last() -> None:
    """Whether it was a piece of the answer or a comment."""
    stage = Stage()
    with stage.keep_alive:
        made = stage.transfer()
        stage.clock.advance(6.0)
        made.lease.touched = stage.clock.monotonic()
        assert [stage.after(6.0), stage.after(4.0), stage.after(9.0), stage.after(1.0)] == [
            0,
            1,
            1,
            2,
        ]
        assert not stage.keep_alive.begun


@pytest.mark.parametrize("harvest", [{"may_add": False}, {"complete": True}], ids=str)
async def test_an_event_or_an_end_is_left_alone(harvest: dict[str, bool]) -> None:
    """Inside an event it would be part of it; after the end nobody waits."""
    stage = Stage()
    with stage.keep_alive:
        stage.transfer(**harvest)
        assert stage.after(100.0) == 0


async def test_a_client_that_takes_nothing_is_not_told_more() -> None:
    """It waits for nothing; what is added would hide that it has stopped."""
    stage = Stage()
    with stage.keep_alive:
        stage.transfer()
        stage.sink.held_s = 3.0
        assert stage.after(10.0) == 0
        assert stage.after(10.0) == 1


async def test_what_is_no_stream_finds_no_head() -> None:
    """As long as such an answer is on its way."""
    stage = Stage()
    with stage.keep_alive:
        stage.keep_alive.unfit = 1
        assert (stage.after(10.0), stage.sink.head) == (0, None)
        stage.keep_alive.unfit = 0
        assert stage.after(10.0) == 1


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (200, (("content-type", "Text/Event-Stream; charset=utf-8"),), True),
        (200, (("content-type", "text/event-stream"), ("content-encoding", "identity")), True),
        (200, (("content-type", "text/event-stream"), ("content-encoding", "gzip")), False),
        (200, (("content-type", "application/json"),), False),
        (201, (("content-type", "text/event-stream"),), False),
        (200, (), False),
    ],
)
def test_what_can_follow_a_head_of_ours(status: int, headers: Headers, *, expected: bool) -> None:
    """Events in clear, with the status that has been told."""
    response = cast("UpstreamResponse", SimpleNamespace(status=status, headers=headers))
    assert is_plain_stream(response) is expected
