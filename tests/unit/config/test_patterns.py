"""Patterns of an operator."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.config.patterns import check_pattern, name_matcher, pattern_matcher


@pytest.mark.parametrize(
    "pattern",
    ["(abc", "(?<=x)y", r"(a)\1", "a{2000}", "((((a{100}){100}){100}){100})", "\ud800", "", "x" * 2001, "[", "(?P<a"],
)  # fmt: skip
def test_what_cannot_be_matched_in_linear_time_is_refused(pattern: str) -> None:
    """And it is not quoted, for it may hold a secret."""
    with pytest.raises(ValueError, match=r"RE2|characters") as caught:
        check_pattern(pattern)
    assert pattern == "" or pattern not in str(caught.value)


def test_a_pattern_is_searched_for() -> None:
    """Anywhere, Unicode-aware, case counts unless told otherwise."""
    assert pattern_matcher("b.d")("abcde")
    assert pattern_matcher("^b.d$")("bäd")
    assert not pattern_matcher("B")("abc")
    assert pattern_matcher("(?i)B")("abc")
    assert pattern_matcher("b$")("\ud800b")


@given(st.text("ab*", max_size=8), st.text("ab", max_size=10))
def test_a_star_in_a_name_stands_for_any_text(name: str, text: str) -> None:
    """As in the shell."""
    assert name_matcher(name)(text) == (re.match(fnmatch.translate(name), text) is not None)


def test_without_a_star_a_name_is_itself() -> None:
    """Nothing else in it means anything."""
    assert name_matcher("a.b[c]?")("a.b[c]?")
    assert not name_matcher("a.b")("axb")
