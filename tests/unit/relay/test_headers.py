"""Which header lines pass."""

from __future__ import annotations

import pytest

from router.relay.headers import header, to_client, to_upstream
from router.types import Headers

KEPT: Headers = (
    ("Accept", "text/event-stream"),
    ("X-Custom", "1"),
    ("x-custom", "2"),
    ("Traceparent", "00-ab-cd-01"),
    ("Cookie", "a=b"),
)


def test_lines_keep_their_order_case_and_duplicates() -> None:
    """What is not ours to change passes as it came."""
    assert to_upstream(KEPT, api_key=None, identity=False) == KEPT
    assert to_client(KEPT, length_changes=False, extra=()) == KEPT


@pytest.mark.parametrize(
    "name",
    [
        "Connection",
        "Keep-Alive",
        "Proxy-Authorization",
        "Proxy-Connection",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "X-Specroute-Class",
    ],
)
def test_lines_of_one_hop_and_our_own_pass_in_neither_direction(name: str) -> None:
    """They speak about a connection that ends here, or to us."""
    assert to_upstream(((name, "x"), *KEPT), api_key=None, identity=False) == KEPT
    assert to_client(((name, "x"), *KEPT), length_changes=False, extra=()) == KEPT


@pytest.mark.parametrize("name", ["Host", "Content-Length", "Expect"])
def test_lines_that_the_client_library_writes_are_left_to_it(name: str) -> None:
    """The body's length may change, and the host is another one."""
    assert to_upstream(((name, "x"), *KEPT), api_key=None, identity=False) == KEPT


def test_lines_named_by_connection_are_dropped_too() -> None:
    """RFC 9110, section 7.6.1; names are compared without case, and several lines add up."""
    lines = (
        ("Connection", "close, X-One"),
        ("connection", "x-two"),
        ("x-one", "1"),
        ("X-Two", "2"),
    )
    assert to_upstream((*lines, *KEPT), api_key=None, identity=False) == KEPT
    assert to_client((*lines, *KEPT), length_changes=False, extra=()) == KEPT


def test_without_a_key_of_the_pool_the_client_s_own_passes() -> None:
    """A pool without `api_key` is asked in the client's name."""
    lines = (("authorization", "Bearer client"), ("X-Api-Key", "client"))
    assert to_upstream(lines, api_key=None, identity=False) == lines


def test_the_key_of_the_pool_replaces_every_key_of_the_client() -> None:
    """The client's credential for us never reaches an engine that has its own."""
    lines = (("authorization", "Bearer client"), ("X-Api-Key", "client"), ("X-Custom", "1"))
    assert to_upstream(lines, api_key="pool", identity=False) == (
        ("X-Custom", "1"),
        ("Authorization", "Bearer pool"),
    )


def test_an_answer_to_be_read_is_asked_for_uncompressed() -> None:
    """Nothing can be taken out of compressed bytes."""
    assert to_upstream((("Accept-Encoding", "gzip"),), api_key=None, identity=True) == (
        ("Accept-Encoding", "identity"),
    )
    assert to_upstream((("Accept-Encoding", "gzip"),), api_key=None, identity=False) == (
        ("Accept-Encoding", "gzip"),
    )


def test_lines_about_the_length_go_when_the_body_may_become_shorter() -> None:
    """A stale length or digest would make clients refuse the answer."""
    about = (
        ("Content-Length", "9"),
        ("ETag", "x"),
        ("Content-Digest", "sha-256=:x:"),
        ("Repr-Digest", "sha-256=:x:"),
    )
    assert to_client((*about, *KEPT), length_changes=True, extra=()) == KEPT
    assert to_client((*about, *KEPT), length_changes=False, extra=()) == (*about, *KEPT)


def test_own_lines_come_last_and_cannot_be_forged_by_an_engine() -> None:
    """What an engine sends under our prefix is dropped."""
    extra = (("x-specroute-pool", "fast"),)
    assert to_client(
        (("X-Specroute-Pool", "forged"), *KEPT), length_changes=False, extra=extra
    ) == (
        *KEPT,
        *extra,
    )


def test_a_header_is_found_without_case_and_the_first_one_counts() -> None:
    """None where there is none."""
    assert header(KEPT, "X-CUSTOM") == "1"
    assert header(KEPT, "Absent") is None


def test_a_shorter_body_is_told_by_its_own_length() -> None:
    """Where the engine told one; digests of the longer one go."""
    told: Headers = (("ETag", "x"), ("content-length", "100"), ("Content-MD5", "y"), *KEPT)
    assert to_client(told, length_changes=False, length=60, extra=()) == (
        ("content-length", "60"),
        *KEPT,
    )
    assert to_client(KEPT, length_changes=False, length=60, extra=()) == KEPT
