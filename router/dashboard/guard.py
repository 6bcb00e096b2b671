"""Who may use the admin port: names of this machine, or whoever has the token; and from where.

Without a token the port is on loopback, and other names for it are refused, by which a foreign web
page could read it. With one every request but those for the pages' own files needs it, as
`Authorization: Bearer …` or as a session that the page got for it. A session is bound to this
process and is no use as a token.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import orjson
from aiohttp import web

from router.clock import Clock
from router.dashboard.pages import static_files

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CSRF_HEADER = "x-specroute-csrf"
"""Sent by our page with every order; a foreign page may not send it without leave."""

LOGIN = "/api/login"
LOGOUT = "/api/logout"
COOKIE = "specroute_session"
SESSION_S = 12 * 3600

_MOST_LOGIN_BYTES = 4096

_READING = ("GET", "HEAD")
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class Guard:
    """Lets requests pass or refuses them.

    Args:
        token: What must be shown; None where the port is on loopback and asks for nothing.
        clock: Time.
    """

    def __init__(self, token: str | None, clock: Clock) -> None:
        self._token = token.encode() if token is not None else None
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._open = frozenset({"/", LOGIN, LOGOUT, *static_files()})

    def install(self, app: web.Application) -> None:
        """Stands before everything that an application serves."""
        app.middlewares.append(self._check)
        app.router.add_post(LOGIN, self._login)
        app.router.add_post(LOGOUT, self._logout)

    @web.middleware
    async def _check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._token is None and _host_name(request) not in _LOOPBACK_NAMES:
            raise web.HTTPForbidden(text="The admin port answers to localhost only.\n")
        if request.method not in _READING:
            _refuse_foreign_pages(request)
        if self._token is not None and request.path not in self._open and not self._known(request):
            return _refusal(HTTPStatus.UNAUTHORIZED, "log in, or send the token (admin.token)")
        return await handler(request)

    def _known(self, request: web.Request) -> bool:
        kind, _, shown = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._right(shown.strip())
        expiry, _, signature = request.cookies.get(COOKIE, "").partition(".")
        if not (expiry.isascii() and expiry.isdecimal()):
            return False
        signed = hmac.compare_digest(
            self._sign(expiry).encode(), signature.encode("utf-8", "surrogatepass")
        )
        return signed and self._clock.wall() < int(expiry)

    def _right(self, shown: str) -> bool:
        assert self._token is not None
        return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), self._token)

    def _sign(self, expiry: str) -> str:
        return hmac.digest(self._key, expiry.encode(), "sha256").hex()

    async def _login(self, request: web.Request) -> web.StreamResponse:
        if self._token is None:
            return _refusal(HTTPStatus.CONFLICT, "there is no token to log in with")
        if (request.content_length or _MOST_LOGIN_BYTES + 1) > _MOST_LOGIN_BYTES:
            return _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "that is no token")
        try:
            body = orjson.loads(await request.read())
        except orjson.JSONDecodeError:
            body = None
        shown = body.get("token") if isinstance(body, dict) else None
        if not isinstance(shown, str) or not self._right(shown):
            return _refusal(HTTPStatus.UNAUTHORIZED, "that is not the token")
        expiry = str(int(self._clock.wall()) + SESSION_S)
        response = web.Response(status=HTTPStatus.NO_CONTENT)
        response.set_cookie(
            COOKIE,
            f"{expiry}.{self._sign(expiry)}",
            max_age=SESSION_S,
            httponly=True,
            samesite="Strict",
            path="/",
        )
        return response

    async def _logout(self, _: web.Request) -> web.StreamResponse:
        response = web.Response(status=HTTPStatus.NO_CONTENT)
        response.del_cookie(COOKIE, path="/", httponly=True, samesite="Strict")
        return response


def _host_name(request: web.Request) -> str:
    host = request.headers.get("Host", "").lower()
    return host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0]


def _refuse_foreign_pages(request: web.Request) -> None:
    """A browser sends what a foreign page asks for, and only hides the answer from it."""
    origin = request.headers.get("Origin")
    host = request.headers.get("Host", "")
    site = request.headers.get("Sec-Fetch-Site")
    if origin not in (None, f"http://{host}", f"https://{host}") or site not in (
        None,
        "none",
        "same-origin",
    ):
        raise web.HTTPForbidden(text="Changes come from this page or from no page at all.\n")
    by_a_browser = origin is not None or site is not None or "Cookie" in request.headers
    if by_a_browser and request.headers.get(CSRF_HEADER) != "1":
        raise web.HTTPForbidden(text=f"From a browser, changes need the header {CSRF_HEADER}: 1\n")


def _refusal(status: HTTPStatus, why: str) -> web.Response:
    return web.Response(
        status=status, body=orjson.dumps({"error": why}), content_type="application/json"
    )
