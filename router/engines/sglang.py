"""SGLang: acceptance has to be asked for, and comes in a member and an event of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.engines.base import Ask, Reading
from router.engines.records import reading_with, sglang_record
from router.engines.rule import StepRule
from router.engines.splice import set_member
from router.engines.usage import USAGE_IS_ASKED_FOR, with_usage
from router.fleet.gauges import ReplicaGauges, sglang_gauges
from router.types import ParsedRequest

_RECORD = "return_spec_tokens_details"
_NEIGHBOURS = ("return_cached_tokens_details", "return_routed_experts")
"""They fill the same member, which could not be taken out whole any more."""


class Sglang:
    """Adapter for SGLang's OpenAI server (read in 0.5.9 to 0.5.23; recorded in 0.5.23).

    Before 0.5.19 it passes over what it is asked for, and steps are counted in streams.
    """

    name = "sglang"
    health_path = "/health"
    metrics_path = "/metrics"
    scrape_s = 2.0
    markers = (b'"usage":{', b'"sglext":{')
    step_rule = StepRule(separate_finish=True, skips_empty=True)

    def prepare(self, request: ParsedRequest) -> Ask:
        """Asks for the record of speculation, and a stream for its usage, unless the client did."""
        body, record = request.body, None
        if request.endpoint in USAGE_IS_ASKED_FOR and self._may_ask(request):
            body = set_member(body, _RECORD, b"true", present=_RECORD in request.fields)
            record = b"sglext"
        asked = with_usage(request, body)
        return Ask(
            body if asked is None else asked,
            strip_usage=asked is not None,
            strip_record=record,
            nulls_are_ours=False,  # it writes them whether usage was asked for or not
        )

    def _may_ask(self, request: ParsedRequest) -> bool:
        fields = request.fields
        return fields.get(_RECORD) in (None, False) and not any(map(fields.get, _NEIGHBOURS))

    def read(self, request: ParsedRequest, answer: Mapping[str, Any]) -> Reading:
        """Tokens from `usage`, acceptance from `sglext` or `meta_info`."""
        return reading_with(sglang_record, request, answer)

    def gauges(self, text: str) -> ReplicaGauges:
        """Requests over all its engines, and the mean use of their caches."""
        return sglang_gauges(text)

    def refusal(self, request: ParsedRequest, *, speculative: bool) -> str | None:
        """It refuses these two while speculation is on."""
        if not speculative:
            return None
        if request.fields.get("use_beam_search"):
            return "beam_search_refused_under_speculation"
        if request.fields.get("return_sampling_mask"):
            return "sampling_mask_refused_under_speculation"
        return None
