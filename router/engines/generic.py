"""Any OpenAI server: nothing is asked for, only usage is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.engines.base import Ask, Reading, choices_asked, tokens_told
from router.fleet.gauges import ReplicaGauges, any_gauges
from router.types import ParsedRequest


class Generic:
    """Adapter for a server of which nothing is known but the API."""

    name = "generic"
    health_path = "/v1/models"
    metrics_path = "/metrics"
    scrape_s = 0.0
    markers = (b'"usage":{',)

    def prepare(self, request: ParsedRequest) -> Ask:
        """An unknown server may refuse unknown fields, so nothing is added."""
        return Ask(request.body)

    def read(self, request: ParsedRequest, answer: Mapping[str, Any]) -> Reading:
        """Tokens where the server reports usage; acceptance is unknown."""
        tokens, prompt_tokens = tokens_told(answer)
        return Reading(None if choices_asked(request) > 1 else tokens, prompt_tokens)

    def gauges(self, text: str) -> ReplicaGauges:
        """Whatever a known engine would print."""
        return any_gauges(text)

    def refusal(self, request: ParsedRequest, *, speculative: bool) -> str | None:
        """Nothing is known to be refused."""
        del request, speculative
        return None
