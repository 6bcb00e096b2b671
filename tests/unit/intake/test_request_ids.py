"""Names for requests."""

from __future__ import annotations

import re
from itertools import islice

from router.intake.request_ids import request_ids


def test_names_are_alike_in_form_and_never_twice() -> None:
    """However many are drawn, and whoever draws them."""
    drawn = [*islice(request_ids(), 2000), *islice(request_ids(), 2000)]
    assert len(set(drawn)) == len(drawn)
    assert all(re.fullmatch("[0-9a-f]{16}", name) for name in drawn)
