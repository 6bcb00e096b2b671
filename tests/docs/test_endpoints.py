"""The page about endpoints says what the table says."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.endpoints.anthropic import error_type
from router.endpoints.table import TABLE, EndpointFacts, ModelIn, ServedBy

PAGE = (Path(__file__).parents[2] / "docs" / "endpoints.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| `/")]
SERVED = {ServedBy.POLICY: "policy", ServedBy.BALANCER: "balancer", ServedBy.HERE: "the proxy"}


@pytest.mark.parametrize("facts", TABLE, ids=lambda facts: facts.endpoint.name)
def test_every_path_stands_on_the_page(facts: EndpointFacts) -> None:
    """With who serves it, and whether a model must be named."""
    for path in facts.paths:
        [row] = [row for row in ROWS if f"`{path}`" in row]
        assert f"| {SERVED[facts.served_by]} |" in row
        assert ("body, required" in row) is (facts.model_in is ModelIn.BODY)


def test_no_path_stands_on_the_page_alone() -> None:
    """A path that was taken out of the table is taken off the page."""
    known = {path for facts in TABLE for path in facts.paths}
    told = {part for row in ROWS for part in row.split("|")[1].split("`")[1::2]}
    assert told == known


@pytest.mark.parametrize("status", [401, 403, 404, 413, 429, 503, 504])
def test_anthropic_s_kinds_of_error(status: int) -> None:
    """As the page lists them."""
    assert f"{status} `{error_type(status)}`" in PAGE.replace("\n", " ")
