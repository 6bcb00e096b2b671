"""Talks to the admin port of a running proxy."""

from __future__ import annotations

import http.client
import os
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import orjson

from router.errors import ConfigError

# The admin port is on this machine: a proxy named in the environment has no business here.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_TIMEOUT_S = 5.0
_ORDER_TIMEOUT_S = 10.0
_RELOAD_TIMEOUT_S = 60.0

TOKEN_VARIABLE = "SPECROUTE_ADMIN_TOKEN"  # noqa: S105 - where it is, not what

WHICH_PORT = "`specroute serve` prints its address after `status`"


def fetch_state(url: str) -> dict[str, Any]:
    """Reads `/api/state` of a running proxy.

    Raises:
        ConfigError: It cannot be reached there.
    """
    address = _address(url, "/api/state")
    _, state = _call(address, "GET", _TIMEOUT_S)
    if not isinstance(state, dict) or "routes" not in state:
        raise ConfigError(f"{address} is not the admin port of specroute; {WHICH_PORT}")
    return state


def ask_reload(url: str) -> dict[str, Any]:
    """Has a running proxy read its configuration again; returns what came of it.

    Raises:
        ConfigError: It cannot be reached there, or it refused what it read.
    """
    address = _address(url, "/api/reload")
    _, done = _call(address, "POST", _RELOAD_TIMEOUT_S)
    if not isinstance(done, dict):
        raise ConfigError(f"{address} is not the admin port of specroute; {WHICH_PORT}")
    if done.get("result") != "applied":
        why = done.get("why") or done.get("error")
        raise ConfigError(f"refused, and the old configuration serves on: {why}")
    return done


def fetch_decision(url: str, request_id: str) -> dict[str, Any]:
    """Reads what a running proxy remembers of one request.

    Raises:
        ConfigError: It cannot be reached there, or remembers no such request.
    """
    address = _address(url, f"/api/decisions/{quote(request_id, safe='')}")
    _, told = _call(address, "GET", _TIMEOUT_S)
    if not isinstance(told, dict) or "propensity" not in told:
        error = told.get("error") if isinstance(told, dict) else None
        raise ConfigError(
            f"{error}; the last decisions are kept in memory, older ones in decision_log.path"
            if error
            else f"{address} is not the admin port of specroute; {WHICH_PORT}"
        )
    return told


def order(url: str, method: str, path: str, body: object | None = None) -> Any:
    """Asks a running proxy for something, or to do something.

    Returns:
        JSON values; a text where the answer is a page.

    Raises:
        ConfigError: It cannot be reached there, or it refused, with its words.
    """
    address = _address(url, path)
    status, answer = _call(address, method, _ORDER_TIMEOUT_S, body)
    if status >= HTTPStatus.BAD_REQUEST:
        raise ConfigError(_said(answer) or _unknown(address, status))
    return answer


def _unknown(address: str, status: int) -> str:
    return f"{address} answered {status}; is --url the admin port of specroute? {WHICH_PORT}"


def _said(answer: object) -> str | None:
    said = answer.get("error") if isinstance(answer, dict) else None
    return said if isinstance(said, str) else None


def _address(url: str, path: str) -> str:
    address = url.rstrip("/") + path
    if not address.startswith(("http://", "https://")):
        raise ConfigError(f"--url: {url!r} must begin with http:// or https://")
    return address


def _call(
    address: str, method: str, timeout_s: float, body: object | None = None
) -> tuple[int, Any]:
    """The one way to the admin port: status and answer, whether it did or refused.

    Raises:
        ConfigError: Nobody answers there, nobody who knows us, or it asks for a token.
    """
    try:
        request = urllib.request.Request(  # noqa: S310 - checked
            address,
            data=None if body is None else orjson.dumps(body),
            method=method,
            headers={**_credentials(), "Content-Type": "application/json"},
        )
        try:
            with _DIRECT.open(request, timeout=timeout_s) as response:
                return response.status, _read(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _refusal(address, error)
    except (OSError, http.client.HTTPException, ValueError) as error:
        # ValueError: the URL is malformed, or the answer is no JSON.
        reason = getattr(error, "reason", error)
        raise ConfigError(
            f"no proxy answers at {address} ({reason}); is `specroute serve` running, and "
            "is --url its admin port?"
        ) from error


def _read(response: http.client.HTTPResponse) -> Any:
    answer = response.read()
    page = response.headers.get_content_type() == "text/markdown"
    return answer.decode() if page else orjson.loads(answer)


def _refusal(address: str, error: urllib.error.HTTPError) -> Any:
    if error.code == HTTPStatus.UNAUTHORIZED:
        raise ConfigError(
            f"{address} asks for a token: set {TOKEN_VARIABLE} to admin.token"
        ) from error
    if error.headers.get_content_type() != "application/json":
        raise ConfigError(_unknown(address, error.code)) from error
    return orjson.loads(error.read())


def _credentials() -> dict[str, str]:
    """Headers that let a request in: the token, if the environment names one."""
    token = os.environ.get(TOKEN_VARIABLE)
    return {"Authorization": f"Bearer {token}"} if token else {}
