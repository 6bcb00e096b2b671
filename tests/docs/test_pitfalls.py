"""The page about pitfalls names all forty, and only tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pitfalls.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if re.match(r"\| \d", line)]
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)))


@cache
def names_in(path: Path) -> frozenset[str]:
    """Names of the tests of a file."""
    found = ast.parse(path.read_text(encoding="utf-8")).body
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(item.name for item in found if isinstance(item, functions))


def test_all_forty_are_there() -> None:
    """Once each, in order."""
    assert [int(row[0]) for row in ROWS] == list(range(1, 41))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_says_what_is_done_and_names_a_test(row: list[str]) -> None:
    """Nothing else stands where the tests do."""
    _, pitfall, done, tests = row
    assert pitfall
    assert done
    assert re.fullmatch(r"(`[\w/]+\.py::test_\w+` ?)+", tests)


@pytest.mark.parametrize(("path", "name"), NAMED, ids="::".join)
def test_every_test_that_is_named_exists(path: str, name: str) -> None:
    """A test that is renamed is renamed on the page."""
    assert name in names_in(ROOT / "tests" / path)


def test_the_client_library_that_poisons_pools_is_excluded() -> None:
    """Two releases of aiohttp left a read timer on idle connections (aio-libs/aiohttp#12953)."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    [line] = re.findall(r'"(aiohttp[^"\[]*)"', text.partition("dependencies")[2].partition("]")[0])
    allowed = Requirement(line).specifier
    assert [allowed.contains(x) for x in ("3.14.0", "3.14.1", "3.14.2")] == [False, False, True]
