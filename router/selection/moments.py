"""What is known of a request at the moment its arm is chosen, and of the arms. No I/O."""

from __future__ import annotations

from functools import lru_cache

from policies.knowledge import Moment
from policies.types import ClassId
from router.estimates.knowing import policy_part
from router.fleet.state import Prospect
from router.types import ParsedRequest, SegmentId

_BYTES_PER_TOKEN = 4
"""Of a body, about; what matters is how prompts compare with each other."""

_policy_part = lru_cache(maxsize=4096)(policy_part)
"""There are few parts, and each request is of one."""

_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens", "n_predict")


def moment_of(
    request: ParsedRequest,
    class_id: ClassId,
    part: SegmentId,
    prospects: tuple[Prospect, ...],
) -> Moment:
    """The moment of a request.

    Args:
        request: It.
        class_id: Its class.
        part: The part of the class that it belongs to (`router.estimates.layout.part_of`).
        prospects: What it would meet on each arm, in the route's order.
    """
    prompt = len(request.body) // _BYTES_PER_TOKEN
    return Moment(
        class_id=class_id,
        part=_policy_part(part),
        load=tuple([prospect.load for prospect in prospects]),
        prompt_tokens=prompt,
        cached_tokens=tuple([int(prompt * prospect.cached) for prospect in prospects]),
        output_tokens=_limit(request),
        ahead_tokens=tuple([prospect.bytes_ahead // _BYTES_PER_TOKEN for prospect in prospects]),
        waited_s=tuple([round(prospect.waited_s, 3) for prospect in prospects]),
    )


def _limit(request: ParsedRequest) -> int | None:
    for name in _LIMITS:
        limit = request.fields.get(name)
        if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
            return limit
    return None
