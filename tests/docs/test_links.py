"""Links between documents lead to a file, and to a heading that is there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
FOLDERS = ("*.md", "docs/**/*.md", "config/**/*.md", "requirements/*.md", "bench/*.md")
PAGES = sorted(page for folder in FOLDERS for page in ROOT.glob(folder))


def slug(heading: str) -> str:
    """A heading as GitHub names its anchor.

    Example:
        >>> slug("What `Retry-After` means, and [why](x.md)")
        'what-retry-after-means-and-why'
    """
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    """All anchors of a page; a heading that stands there again gets a number."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    seen: Counter[str] = Counter()
    found = []
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, re.MULTILINE):
        name = slug(heading)
        found.append(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return frozenset(found)


def broken(page: Path) -> Iterator[str]:
    """Links of a page that lead nowhere."""
    for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    """A heading that is renamed takes its links along."""
    assert list(broken(page)) == []


def test_what_leads_nowhere_is_found(tmp_path: Path) -> None:
    """Files and anchors, of this page and of others; code is no link."""
    (tmp_path / "a.md").write_text("# One `two`\n\n# One `two`\n\n```\n# no heading\n```\n")
    page = tmp_path / "b.md"
    page.write_text(
        "# Here\n[a](a.md#one-two) [b](a.md#one-two-1) [c](#here) [d](https://x/#y) `[e](no.md)`\n"
        "[f](a.md#no-heading) [g](#there) [h](no.md)\n"
    )
    assert list(broken(page)) == ["a.md#no-heading", "#there", "no.md"]
