"""Leave for pages of other origins."""

from __future__ import annotations

from router.config.ports import Cors as CorsConfig
from router.endpoints.cors import Cors
from router.types import Headers

APP = "https://app.example.com"
CORS = Cors(frozenset((APP,)))
ANY = Cors(frozenset(("*",)))
PERSONAL = Cors(frozenset((APP,)), credentials=True, max_age_s=5)


def from_origin(origin: str, *more: tuple[str, str]) -> Headers:
    """Headers as a browser sends them."""
    return (("Origin", origin), *more)


def preflight(origin: str) -> Headers:
    """A question before the request itself."""
    return from_origin(
        origin,
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization,content-type"),
    )


def test_nothing_is_configured_by_default() -> None:
    """Off means that engines' own headers pass."""
    assert Cors.configured(CorsConfig()) is None
    assert Cors.configured(CorsConfig(origins=(APP,))) == CORS


def test_a_preflight_is_answered_for_the_origins_that_have_leave() -> None:
    """With what the page asked for, which browsers check."""
    assert CORS.preflight("OPTIONS", preflight(APP)) == (
        ("Access-Control-Allow-Origin", APP),
        ("Vary", "Origin"),
        ("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE"),
        ("Access-Control-Allow-Headers", "authorization,content-type"),
        ("Access-Control-Max-Age", "600"),
    )
    assert ANY.preflight("OPTIONS", preflight("https://b")) == (
        ("Access-Control-Allow-Origin", "*"),
        ("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE"),
        ("Access-Control-Allow-Headers", "authorization,content-type"),
        ("Access-Control-Max-Age", "600"),
    )


def test_another_origin_gets_no_leave() -> None:
    """Its browser will not send the request; caches must not mix the two up."""
    assert CORS.preflight("OPTIONS", preflight("https://evil.example")) == (("Vary", "Origin"),)
    assert CORS.preflight("OPTIONS", preflight(APP + ".evil.example")) == (("Vary", "Origin"),)


def test_what_is_no_preflight_is_left_alone() -> None:
    """An OPTIONS without the browser's question, and every other method."""
    assert CORS.preflight("OPTIONS", from_origin(APP)) is None
    assert CORS.preflight("POST", preflight(APP)) is None


def test_an_answer_carries_our_leave_instead_of_the_engine_s() -> None:
    """Engines say `*` or an empty origin; two lines would be none to a browser."""
    answer = (
        ("Content-Type", "application/json"),
        ("access-control-allow-origin", "*"),
        ("Access-Control-Allow-Credentials", "true"),
    )
    assert CORS.answered(from_origin(APP), answer) == (
        ("Content-Type", "application/json"),
        ("Access-Control-Allow-Origin", APP),
        ("Vary", "Origin"),
        ("Access-Control-Expose-Headers", "*"),
    )
    assert CORS.answered((), answer) == (("Content-Type", "application/json"), ("Vary", "Origin"))


def test_with_credentials_the_origin_is_named() -> None:
    """Browsers refuse a wildcard then."""
    assert PERSONAL.answered(from_origin(APP), ()) == (
        ("Access-Control-Allow-Origin", APP),
        ("Access-Control-Allow-Credentials", "true"),
        ("Vary", "Origin"),
        ("Access-Control-Expose-Headers", "*"),
    )
