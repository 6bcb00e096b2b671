"""llama.cpp's server: `timings` come unasked, steps are never told, one event is one token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.engines.base import (
    Ask,
    Reading,
    cached_told,
    choices_asked,
    count,
    member,
    tokens_told,
    wants_logprobs,
)
from router.engines.records import Found, llamacpp_record
from router.fleet.gauges import ReplicaGauges, llamacpp_gauges
from router.types import Endpoint, ParsedRequest

_WITHOUT_TIMINGS = frozenset((Endpoint.MESSAGES, Endpoint.RESPONSES))
"""Anthropic's dialect never carries them, Responses in streams only (read in b10434)."""


class LlamaCpp:
    """Adapter for `llama-server` (read in b10434 and b11434)."""

    name = "llamacpp"
    health_path = "/health"
    metrics_path = "/metrics"
    scrape_s = 0.0
    """Each reading sets its averages back, which another reader of the same page would miss."""
    markers = (b'"timings":', b'"usage":{')
    step_rule = None
    """One event is one token, also when a step gave several."""

    def prepare(self, request: ParsedRequest) -> Ask:
        """Nothing has to be asked for."""
        return Ask(request.body)

    def read(self, request: ParsedRequest, answer: Mapping[str, Any]) -> Reading:
        """Tokens and acceptance from `timings`; for several choices it counts only one of them."""
        timings = answer.get("timings")
        told, prompt_tokens = tokens_told(answer)
        cached = cached_told(answer)
        if choices_asked(request) > 1:
            return Reading(prompt_tokens=prompt_tokens, cached_tokens=cached)
        predicted = count(member(timings, "predicted_n"))
        tokens = told if predicted is None else predicted
        if not isinstance(timings, Mapping) or tokens is None:
            due = tokens is None or request.endpoint not in _WITHOUT_TIMINGS
            unread = ("timings",) if due else ()
            return Reading(tokens, prompt_tokens, unread=unread, cached_tokens=cached)
        if prompt_tokens is None:
            prompt_n = count(timings.get("prompt_n"))
            prompt_tokens = None if prompt_n is None else prompt_n + (cached or 0)
        found = llamacpp_record(answer, tokens) or Found()
        return Reading(tokens, prompt_tokens, found.spec, found.unread, cached)

    def gauges(self, text: str) -> ReplicaGauges:
        """Requests in its slots and before them."""
        return llamacpp_gauges(text)

    def refusal(self, request: ParsedRequest, *, speculative: bool) -> str | None:
        """With a drafter it reports logprob 0.0 for every accepted token."""
        if speculative and wants_logprobs(request):
            return "logprobs_wrong_under_speculation"
        return None
