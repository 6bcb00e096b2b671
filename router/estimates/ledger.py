"""What a request adds to its tenant's month. It knows nobody but by the hash of a credential.

=================  ==============================================================================
field              sum of
=================  ==============================================================================
`n`, `status.<s>`  requests, and requests by how they ended for the client
`tokens`, `.n`     completion tokens, and requests that reported them
`prompt`, `.n`     prompt tokens, and requests that reported them
`baseline`         requests that the baseline answered, by choice or in another's place
`out=S.y.s.*`      log costs of streams that were held out: number, sum and sum of squares in
                   millionths, at the share S, in millionths (`router.experiments.cells`)
`out=S.uBB.y.s.*`  number and sum of those whose session is in bucket BB
`rest=S.…`         the same of those that were not held out
=================  ==============================================================================
"""

from __future__ import annotations

from policies.types import ArmId, Status
from router.types import Outcome, TenantId

MAX_TENANTS = 64
"""Tenants of a month that a process tells apart; those that come later are pooled."""

OTHER = TenantId("other")
"""All tenants that are not told apart."""

_STATUS = {status: f"status.{status}" for status in Status}


def ledger_counts(outcome: Outcome, baseline: ArmId | None) -> dict[str, int]:
    """Field to integer; a figure nobody reported has no field.

    Args:
        outcome: Of the request.
        baseline: The route's baseline.
    """
    counts = {"n": 1, _STATUS[outcome.status]: 1}
    if outcome.tokens is not None:
        counts["tokens"] = outcome.tokens
        counts["tokens.n"] = 1
    if outcome.prompt_tokens is not None:
        counts["prompt"] = outcome.prompt_tokens
        counts["prompt.n"] = 1
    if outcome.served_by is not None and outcome.served_by == baseline:
        counts["baseline"] = 1
    return counts
