"""llama.cpp's server: `timings` come unasked, steps are never told, one event is one token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policies.types import SpecUsage
from router.engines.base import (
    Ask,
    Reading,
    choices_asked,
    count,
    member,
    tokens_told,
    wants_logprobs,
)
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

    def prepare(self, request: ParsedRequest) -> Ask:
        """Nothing has to be asked for."""
        return Ask(request.body)

    def read(self, request: ParsedRequest, answer: Mapping[str, Any]) -> Reading:
        """Tokens and acceptance from `timings`; for several choices it counts only one of them."""
        timings = answer.get("timings")
        told, prompt_tokens = tokens_told(answer)
        if choices_asked(request) > 1:
            return Reading(prompt_tokens=prompt_tokens)
        predicted = count(member(timings, "predicted_n"))
        tokens = told if predicted is None else predicted
        if not isinstance(timings, Mapping) or tokens is None:
            due = tokens is None or request.endpoint not in _WITHOUT_TIMINGS
            return Reading(tokens, prompt_tokens, unread=("timings",) if due else ())
        if prompt_tokens is None:
            prompt_n, cache_n = count(timings.get("prompt_n")), count(timings.get("cache_n"))
            prompt_tokens = None if prompt_n is None else prompt_n + (cache_n or 0)
        return self._with_drafts(tokens, prompt_tokens, timings)

    def _with_drafts(
        self, tokens: int, prompt_tokens: int | None, timings: Mapping[str, Any]
    ) -> Reading:
        # Both are absent when nothing was drafted in this request: that is a measured zero.
        drafted = count(timings.get("draft_n", 0))
        accepted = count(timings.get("draft_n_accepted", 0))
        if drafted is None or accepted is None or accepted > drafted:
            return Reading(tokens, prompt_tokens, unread=("timings.draft_n",))
        steps = tokens - accepted
        if steps < min(tokens, 1):
            # Accepted drafts are counted before a limit cuts the answer, so on a very short one
            # they can outnumber its tokens. Such a record says nothing about steps.
            return Reading(tokens, prompt_tokens, unread=("timings.draft_n_accepted",))
        return Reading(
            tokens, prompt_tokens, SpecUsage(steps=steps, drafted=drafted, accepted=accepted)
        )

    def gauges(self, text: str) -> ReplicaGauges:
        """Requests in its slots and before them."""
        return llamacpp_gauges(text)

    def refusal(self, request: ParsedRequest, *, speculative: bool) -> str | None:
        """With a drafter it reports logprob 0.0 for every accepted token."""
        if speculative and wants_logprobs(request):
            return "logprobs_wrong_under_speculation"
        return None
