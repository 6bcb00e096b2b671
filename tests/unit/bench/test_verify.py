"""The page of `make verify` holds each section once, and says where the others stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.verify import SECTIONS, page

DOCS = Path(__file__).parents[3] / "docs"


def words(text: str) -> str:
    """The text whatever its line breaks."""
    return " ".join(text.split())


def test_a_section_written_again_stands_there_once() -> None:
    """Whatever its name is made of; the others stay as they are."""
    made = ""
    for name in SECTIONS:
        made = page(made, {name: f"## {name} 1\n\n"})
    for name in SECTIONS:
        made = page(made, {name: f"## {name} 2\n\n"})
    for name in SECTIONS:
        assert made.count(f"<!-- {name} -->") == 1
        assert made.count(f"## {name} 1\n") == 0
        assert made.count(f"## {name} 2\n") == 1
    assert page(made, {}) == made
    assert "stand elsewhere" not in made


def test_the_page_is_as_it_would_be_written() -> None:
    """Its head says which sections are missing."""
    text = (DOCS / "verification.md").read_text(encoding="utf-8")
    assert page(text, {}) == text


@pytest.mark.parametrize("name", SECTIONS)
def test_what_stands_on_a_page_was_printed_by_the_same_command(name: str) -> None:
    """Or a new run would answer another question."""
    section = SECTIONS[name]
    text = (DOCS / (section.elsewhere or "verification.md")).read_text(encoding="utf-8")
    assert f"`{section.command}`" in words(text)
