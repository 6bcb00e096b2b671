"""Who gets into the admin port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from router.dashboard.guard import COOKIE, CSRF_HEADER, LOGIN, LOGOUT, SESSION_S, Guard
from tests.support.clock import ManualClock

TOKEN = "a-token-of-some-length"
Client = TestClient[web.Request, web.Application]


@pytest.fixture
def clock() -> ManualClock:
    """Time that a test moves."""
    return ManualClock()


@pytest.fixture
async def client(clock: ManualClock) -> AsyncIterator[Client]:
    """A port behind a token."""
    async for made in served(TOKEN, clock):
        yield made


async def served(token: str | None, clock: ManualClock) -> AsyncIterator[Client]:
    """An application with something to read and something to order."""

    async def here(_: web.Request) -> web.Response:
        return web.Response(text="here")

    app = web.Application()
    Guard(token, clock).install(app)
    app.router.add_get("/", here)
    app.router.add_get("/api/state", here)
    app.router.add_post("/api/reload", here)
    async with TestClient(TestServer(app)) as made:
        yield made


async def status(client: Client, method: str, path: str, headers: Mapping[str, str]) -> int:
    """Of a reply."""
    async with client.request(method, path, headers=headers) as reply:
        return reply.status


async def log_in(client: Client, token: str = TOKEN) -> int:
    """As the page does."""
    headers = {CSRF_HEADER: "1", "Sec-Fetch-Site": "same-origin"}
    async with client.post(LOGIN, json={"token": token}, headers=headers) as reply:
        return reply.status


async def test_the_token_is_needed_for_data_not_for_the_page(client: Client) -> None:
    """The page's files hold nothing; all else is refused without the token."""
    assert await status(client, "GET", "/", {}) == 200
    assert await status(client, "GET", "/api/state", {}) == 401
    assert await status(client, "POST", "/api/reload", {}) == 401
    assert await status(client, "GET", "/nothing", {}) == 401


@pytest.mark.parametrize("shown", [f"Bearer {TOKEN}", f"bearer  {TOKEN} "])
async def test_a_bearer_gets_in(client: Client, shown: str) -> None:
    """Scrapers and scripts send the token itself, under any name of the host."""
    headers = {"Authorization": shown, "Host": "proxy.example"}
    assert await status(client, "GET", "/api/state", headers) == 200
    assert await status(client, "POST", "/api/reload", headers) == 200


@pytest.mark.parametrize(
    "shown", ["", "Bearer", "Bearer no", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \udcff"]
)
async def test_other_credentials_do_not(client: Client, shown: str) -> None:
    """Neither in part nor in another scheme."""
    assert await status(client, "GET", "/api/state", {"Authorization": shown}) == 401


async def test_a_session_lasts_half_a_day(client: Client, clock: ManualClock) -> None:
    """The cookie is out of reach of scripts and of other sites, and holds no token."""
    assert await log_in(client, "wrong") == 401
    headers = {CSRF_HEADER: "1"}
    async with client.post(LOGIN, json={"token": TOKEN}, headers=headers) as reply:
        cookie = reply.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    assert await status(client, "GET", "/api/state", {}) == 200
    clock.advance(SESSION_S + 1)
    assert await status(client, "GET", "/api/state", {}) == 401


async def test_logging_out_ends_it(client: Client) -> None:
    """The browser forgets the session."""
    await log_in(client)
    assert await status(client, "POST", LOGOUT, {CSRF_HEADER: "1"}) == 204
    assert await status(client, "GET", "/api/state", {}) == 401


@pytest.mark.parametrize(
    "forged", ["", "9999999999.", "9999999999.00", "9999999999.\udcff", "x.y", "٣.00"]
)
async def test_forged_sessions_are_refused(client: Client, forged: str) -> None:
    """Only what this process signed counts."""
    headers = (
        {"Cookie": f'{COOKIE}="{forged}"'}
        if not forged.isascii()
        else {"Cookie": f"{COOKIE}={forged}"}
    )
    assert await status(client, "GET", "/api/state", headers) == 401


@pytest.mark.parametrize(
    "sent",
    [
        {"Origin": "http://evil.example", CSRF_HEADER: "1"},
        {"Sec-Fetch-Site": "cross-site", CSRF_HEADER: "1"},
        {"Sec-Fetch-Site": "same-site", CSRF_HEADER: "1"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Cookie": "a=b"},
        {"Origin": "null", CSRF_HEADER: "1"},
    ],
)
async def test_foreign_pages_order_nothing(client: Client, sent: dict[str, str]) -> None:
    """A browser tells where an order comes from, and only our page sends the header."""
    assert await log_in(client) == 204
    assert await status(client, "POST", "/api/reload", sent) == 403


async def test_our_page_does(client: Client) -> None:
    """Same origin, session, header."""
    assert await log_in(client) == 204
    sent = {"Sec-Fetch-Site": "same-origin", CSRF_HEADER: "1"}
    assert await status(client, "POST", "/api/reload", sent) == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"token": 1}', b"x" * 5000])
async def test_strange_bodies_are_refused(client: Client, body: bytes) -> None:
    """None of them is a token."""
    headers = {CSRF_HEADER: "1"}
    async with client.post(LOGIN, data=body, headers=headers) as reply:
        assert reply.status in (401, 413)


async def test_without_a_token_only_names_of_this_machine(clock: ManualClock) -> None:
    """A web page whose name was pointed at this address reads nothing; there is no login."""
    async for client in served(None, clock):
        assert await status(client, "GET", "/api/state", {"Host": "evil.example"}) == 403
        assert await status(client, "GET", "/api/state", {"Host": "localhost:1"}) == 200
        assert await log_in(client) == 409
