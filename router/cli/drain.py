"""`specroute drain`: takes one server of a running proxy out, or puts it back."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from router.cli.admin import WHICH_PORT, order
from router.errors import ConfigError


def drain_server(url: str, replica: str, *, undo: bool, model: str | None) -> str:
    """Drains a server or ends that; returns what to tell the operator.

    Raises:
        ConfigError: The proxy cannot be reached, or has no such server.
    """
    pool, slash, number = replica.rpartition("/")
    if not slash or not number.isdecimal():
        raise ConfigError(
            f"{replica!r} is no server; they are called POOL/N, such as plain/0, the pool's first"
        )
    answer = order(
        url,
        "POST",
        f"/api/replicas/{quote(pool, safe='')}/{number}/"
        + ("undrain" if undo else "drain")
        + (f"?{urlencode({'model': model})}" if model else ""),
        {},
    )
    if not isinstance(answer, dict) or "in_flight" not in answer:
        raise ConfigError(f"{url} is not the admin port of specroute; {WHICH_PORT}")
    if undo:
        return f"{replica} gets requests again, slowly at first"
    running = answer["in_flight"]
    if not running:
        return f"{replica} is drained: nothing runs there"
    return f"{replica} gets nothing new; requests still running there: {running}"
