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
    """Cached tokens are a share of the prompt's; what stands in line counts as tokens, and waits."""
    asked = request(messages=[{"role": "user", "content": "x" * 4000}])
    prospects = (Prospect(3), Prospect(0), Prospect(7, 0.5, 400, 1.23456))
    moment = moment_of(asked, CHAT, SegmentId("a1+"), prospects)
    prompt = len(asked.body) // 4
    assert moment == Moment(
        class_id=CHAT,
        part="+/a1",
        load=(3, 0, 7),
        prompt_tokens=prompt,
        cached_tokens=(0, 0, prompt // 2),
        ahead_tokens=(0, 0, 100),
        waited_s=(0.0, 0.0, 1.235),
    )


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
