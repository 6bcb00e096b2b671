"""What a policy is told of a request."""

from __future__ import annotations

from typing import Any

import pytest

from policies.knowledge import Moment
from router.fleet.state import Prospect
from router.selection.moments import moment_of
from router.types import SegmentId
from tests.support.builders import CHAT, request


def test_load_and_cache_of_each_arm() -> None:
    """Cached tokens are a share of the prompt's; prompts before it count as tokens too."""
    asked = request(messages=[{"role": "user", "content": "x" * 4000}])
    prospects = (Prospect(3), Prospect(0), Prospect(7, 0.5, 400))
    moment = moment_of(asked, CHAT, SegmentId("a1+"), prospects)
    prompt = len(asked.body) // 4
    assert moment == Moment(CHAT, "+/a1", (3, 0, 7), prompt, (0, 0, prompt // 2), None, (0, 0, 100))


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"max_tokens": 20}, 20),
        ({"max_completion_tokens": 30, "max_tokens": 20}, 30),
        ({"max_tokens": 0}, None),
        ({"max_tokens": True}, None),
        ({"max_tokens": "20"}, None),
        ({}, None),
    ],
)
def test_the_client_s_limit(fields: dict[str, Any], limit: int | None) -> None:
    """By whichever name; what is no number of tokens is none."""
    moment = moment_of(request(messages=[], **fields), CHAT, SegmentId(""), (Prospect(1),))
    assert moment.output_tokens == limit
