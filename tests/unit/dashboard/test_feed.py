"""What pages are told, piece by piece."""

from __future__ import annotations

import json
from typing import Any

from router.dashboard.feed import Reader


def state(**more: Any) -> dict[str, Any]:
    """A state with one route of two pools and one class."""
    return {
        "time": 1.0,
        "store": {"up": True},
        "routes": [
            {
                "model": "m",
                "policy": "thompson",
                "pools": [{"name": "plain", "n": 0}, {"name": "fast", "n": 0}],
                "classes": [{"class": "chat", "requests": 1}],
            }
        ],
        **more,
    }


def told(message: bytes) -> tuple[str, Any]:
    """Name and data of an event."""
    event, data, *_ = message.decode().split("\n")
    return event.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_first_all_then_what_differs() -> None:
    """The first event is the state; later ones hold the pieces that differ, and the time."""
    reader, now = Reader(), state()
    assert told(reader.message(now)) == ("state", now)
    after = state(time=2.0)
    after["routes"][0]["pools"][1]["n"] = 3
    assert told(reader.message(after)) == (
        "change",
        {
            "time": 2.0,
            "parts": [{"path": ["routes", 0, "pools", 1], "value": {"name": "fast", "n": 3}}],
        },
    )


def test_a_heartbeat_when_nothing_changes() -> None:
    """Time passes by itself: the event then holds no piece."""
    reader = Reader()
    reader.message(state())
    assert told(reader.message(state(time=2.0))) == (
        "change",
        {"time": 2.0, "parts": []},
    )


def test_another_shape_is_told_whole() -> None:
    """A class, pool or route that comes or goes moves the places of others: all is told anew."""
    reader = Reader()
    reader.message(state())
    after = state(time=2.0)
    after["routes"][0]["classes"].insert(0, {"class": "code", "requests": 1})
    assert told(reader.message(after)) == ("state", after)
    assert told(reader.message(after))[0] == "change"
