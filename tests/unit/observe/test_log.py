"""Log lines."""

from __future__ import annotations

import json
import logging

from router.observe.log import JsonFormatter


def line(record: logging.LogRecord) -> dict[str, object]:
    """The line as a reader sees it."""
    made: dict[str, object] = json.loads(JsonFormatter().format(record))
    return made


def test_a_line_is_one_json_object_with_what_extra_holds() -> None:
    """Line breaks in messages do not break lines."""
    record = logging.makeLogRecord(
        {
            "name": "specroute.x",
            "levelname": "WARNING",
            "msg": "server is %s\n",
            "args": ("down",),
            "created": 1.23456,
            "replica": "fast/0",
            "odd": {1},
        }
    )
    assert "\n" not in JsonFormatter().format(record)
    assert line(record) == {
        "time": 1.235,
        "level": "warning",
        "logger": "specroute.x",
        "message": "server is down\n",
        "replica": "fast/0",
        "odd": "{1}",
    }


def test_an_exception_comes_with_its_trace() -> None:
    """In the same line."""
    error = ValueError("what")
    record = logging.makeLogRecord({"msg": "failed", "exc_info": (ValueError, error, None)})
    assert line(record)["exception"] == "ValueError: what"
