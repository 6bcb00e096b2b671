"""`specroute drain`: takes one server of a running proxy out, or puts it back."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from router.cli.admin import WHICH_PORT, credentials
from router.errors import ConfigError

# The admin port is on this machine: a proxy named in the environment has no business here.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_TIMEOUT_S = 5.0


def drain_server(url: str, replica: str, *, undo: bool, model: str | None) -> str:
    """Drains a server or ends that; returns what to tell the operator.

    Raises:
        ConfigError: The proxy cannot be reached, or has no such server.
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url: {url!r} must begin with http:// or https://")
    pool, slash, number = replica.rpartition("/")
    if not slash or not number.isdecimal():
        raise ConfigError(
            f"{replica!r} is no server; they are called POOL/N, such as plain/0, the pool's first"
        )
    answer = _post(
        f"{url.rstrip('/')}/api/replicas/{quote(pool, safe='')}/{number}/"
        + ("undrain" if undo else "drain")
        + (f"?{urlencode({'model': model})}" if model else "")
    )
    if undo:
        return f"{replica} gets requests again, slowly at first"
    running = answer["in_flight"]
    if not running:
        return f"{replica} is drained: nothing runs there"
    return f"{replica} gets nothing new; requests still running there: {running}"


def _post(address: str) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 - checked
        address, data=b"", method="POST", headers=credentials()
    )
    try:
        with _DIRECT.open(request, timeout=_TIMEOUT_S) as response:
            answer = orjson.loads(response.read())
    except urllib.error.HTTPError as error:
        raise ConfigError(_reason(error)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ConfigError(
            f"no proxy answers at {address} ({reason}); is `specroute serve` running, and is --url "
            "its admin port?"
        ) from error
    if not isinstance(answer, dict) or "in_flight" not in answer:
        raise ConfigError(f"{address} is not the admin port of specroute; {WHICH_PORT}")
    return answer


def _reason(error: urllib.error.HTTPError) -> str:
    with error:
        try:
            said = orjson.loads(error.read())["error"]
        except (OSError, ValueError, LookupError, TypeError):
            said = None
    if isinstance(said, str):
        return said
    return f"{error.url} answered {error.code}; is --url the admin port of specroute? {WHICH_PORT}"
