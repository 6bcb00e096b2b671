"""vLLM: acceptance rides on the usage event, which has to be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.engines.base import Ask, Reading, cached_told, choices_asked, tokens_told
from router.engines.records import vllm_record
from router.engines.rule import StepRule
from router.engines.usage import with_usage
from router.fleet.gauges import ReplicaGauges, vllm_gauges
from router.types import ParsedRequest


class Vllm:
    """Adapter for vLLM's OpenAI server.

    Read in 0.26 to 0.33. `metrics.speculative_decoding` needs the server's flag
    `--per-request-spec-decode-metrics summary`; without it steps are counted in streams.
    """

    name = "vllm"
    health_path = "/health"
    metrics_path = "/metrics"
    scrape_s = 2.0
    markers = (b'"usage":{', b'"finish_reason":"')
    """The record rides on the usage event; a draft of it rode on the one that ends the answer."""
    step_rule = StepRule()

    def prepare(self, request: ParsedRequest) -> Ask:
        """Asks a stream for its usage event unless the client did."""
        asked = with_usage(request, request.body)
        return Ask(request.body) if asked is None else Ask(asked, strip_usage=True)

    def read(self, request: ParsedRequest, answer: Mapping[str, Any]) -> Reading:
        """Tokens from `usage`, acceptance from the record if the server keeps one."""
        tokens, prompt_tokens = tokens_told(answer)
        cached = cached_told(answer)
        if choices_asked(request) > 1:
            return Reading(prompt_tokens=prompt_tokens, cached_tokens=cached)
        if tokens is None:
            unread = ("usage.completion_tokens",)
            return Reading(None, prompt_tokens, unread=unread, cached_tokens=cached)
        found = vllm_record(answer, tokens)
        if found is None:
            return Reading(tokens, prompt_tokens, cached_tokens=cached)
        return Reading(tokens, prompt_tokens, found.spec, found.unread, cached)

    def gauges(self, text: str) -> ReplicaGauges:
        """Requests over all its engines, and the mean use of their caches."""
        return vllm_gauges(text)

    def refusal(self, request: ParsedRequest, *, speculative: bool) -> str | None:
        """It answers 400 to these two while speculation is on."""
        if not speculative:
            return None
        min_p = request.fields.get("min_p")
        if isinstance(min_p, (int, float)) and min_p > 0:
            return "min_p_refused_under_speculation"
        if request.fields.get("logit_bias"):
            return "logit_bias_refused_under_speculation"
        return None
