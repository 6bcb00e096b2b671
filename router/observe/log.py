"""Log lines as JSON on standard error. No prompts, no completions, no keys."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

import orjson

_STANDARD = frozenset(vars(logging.makeLogRecord({})))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and whatever `extra` holds."""

    def __init__(self, more: Mapping[str, object] | None = None) -> None:
        """Args: `more` stands in every line."""
        super().__init__()
        self._more = more or {}

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        line: dict[str, object] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._more,
        }
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def configure_logging(level: str, **more: object) -> None:
    """Sends this program's log lines to standard error; `more` stands in every line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(more))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
