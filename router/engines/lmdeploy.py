"""LMDeploy: it tells acceptance of the whole server only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.engines.base import Ask, Reading, cached_told, choices_asked, tokens_told
from router.engines.usage import with_usage
from router.fleet.gauges import ReplicaGauges, any_gauges
from router.types import ParsedRequest


class LmDeploy:
    """Adapter for LMDeploy's API server (read in the source of 0.16; not recorded)."""

    name = "lmdeploy"
    health_path = "/health"
    metrics_path = "/metrics"
    scrape_s = 2.0
    markers = (b'"usage":{',)
    step_rule = None
    """Its parsers hold text back, and nobody has recorded how it ends a stream."""

    def prepare(self, request: ParsedRequest) -> Ask:
        """Asks a stream for its usage event unless the client did."""
        asked = with_usage(request, request.body)
        return Ask(request.body) if asked is None else Ask(asked, strip_usage=True)

    def read(self, request: ParsedRequest, answer: Mapping[str, Any]) -> Reading:
        """Tokens from `usage`; what it knows of a request's drafts stays inside it."""
        tokens, prompt_tokens = tokens_told(answer)
        cached = cached_told(answer)
        if choices_asked(request) > 1:
            return Reading(prompt_tokens=prompt_tokens, cached_tokens=cached)
        unread = ("usage.completion_tokens",) if tokens is None else ()
        return Reading(tokens, prompt_tokens, unread=unread, cached_tokens=cached)

    def gauges(self, text: str) -> ReplicaGauges:
        """As far as its metrics are named as another engine's are."""
        return any_gauges(text)

    def refusal(self, request: ParsedRequest, *, speculative: bool) -> str | None:
        """None is known that depends on speculation."""
        del request, speculative
        return None
