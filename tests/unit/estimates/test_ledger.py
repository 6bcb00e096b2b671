"""What a request adds to its tenant's month."""

from __future__ import annotations

import pytest

from policies.types import Status
from router.estimates.ledger import ledger_counts
from tests.support.builders import FAST, PLAIN, outcome


def test_a_request_that_ended_well_counts_with_its_tokens() -> None:
    """Whoever served it; what the baseline answered is counted apart."""
    made = outcome(served_by=FAST, tokens=40, prompt_tokens=300)
    counts = {
        "n": 1,
        "status.ok": 1,
        "tokens": 40,
        "tokens.n": 1,
        "prompt": 300,
        "prompt.n": 1,
    }
    assert ledger_counts(made, PLAIN) == counts
    assert ledger_counts(made, FAST) == {**counts, "baseline": 1}


def test_what_nobody_reported_has_no_field() -> None:
    """Missing is never 0."""
    made = outcome(tokens=None, prompt_tokens=None, served_by=FAST)
    assert ledger_counts(made, None) == {"n": 1, "status.ok": 1}


@pytest.mark.parametrize("status", Status)
def test_every_end_is_counted(status: Status) -> None:
    """As the client saw it."""
    made = outcome(status, served_by=None, tokens=None, prompt_tokens=None)
    assert ledger_counts(made, PLAIN) == {"n": 1, f"status.{status}": 1}
