"""How pages of servers are read."""

from __future__ import annotations

import pytest

from router.engines.pages import (
    MOST_BYTES,
    EngineIdentity,
    ToldPage,
    body_at,
    entries_at,
    is_before,
    json_at,
    refused_at,
    word,
)

PAGES = {"/good": ToldPage(200, b'{"data":[{"id":1},2]}'), "/shut": ToldPage(401, b"{}")}


def test_only_whole_pages_of_success_are_read() -> None:
    """Others are as if they were not there, but a refusal is known to be one."""
    assert body_at(PAGES, "/good")
    assert body_at({"/cut": ToldPage(200, b"x" * MOST_BYTES)}, "/cut") == b""
    assert (json_at(PAGES, "/shut"), json_at(PAGES, "/none")) == (None, None)
    assert (refused_at(PAGES, "/shut"), refused_at(PAGES, "/good")) == (True, False)
    assert not refused_at(PAGES, "/none")


def test_entries_are_the_objects_of_a_list() -> None:
    """Whatever else is in it."""
    assert entries_at(PAGES, "/good") == [{"id": 1}]
    assert entries_at({"/x": ToldPage(200, b'{"data":{}}')}, "/x") == []


@pytest.mark.parametrize("value", ["", "x" * 129, "a\nb", "\x1b[2J", 1, None, ["x"]])
def test_names_that_cannot_be_shown_are_none(value: object) -> None:
    """They would end up in terminals and logs."""
    assert word(value) is None


def test_versions_are_compared_by_their_numbers() -> None:
    """What has none is of no age."""
    assert is_before("0.5.9", (0, 5, 19))
    assert not is_before("0.5.19.post1", (0, 5, 19))
    assert not is_before("main", (0, 5, 19))


def test_speculation_in_words() -> None:
    """Nothing is said where nothing is known."""
    assert EngineIdentity().speculation is None
    assert EngineIdentity(speculates=False).speculation == "no speculation"
    drafting = EngineIdentity(speculates=True, num_speculative_tokens=3)
    assert drafting.speculation == "speculation, k = 3"
