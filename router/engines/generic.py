"""Any OpenAI server: nothing is asked for; what is known by its place and shape is read."""

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
)
from router.engines.records import Found, any_record, prediction_record
from router.fleet.gauges import ReplicaGauges, any_gauges
from router.types import ParsedRequest


class Generic:
    """Adapter for a server of which nothing is known but the API.

    OpenAI's `accepted_prediction_tokens` are not read: they mean predicted outputs, which the
    client itself sends.
    """

    name = "generic"
    health_path = "/v1/models"
    metrics_path = "/metrics"
    scrape_s = 0.0
    markers = (
        b'"usage":{',
        b'"finish_reason":"',
        b'"metrics":{',
        b'"sglext":{',
        b'"timings":{',
    )
    step_rule = None
    """Nobody knows what one of its events is."""

    def prepare(self, request: ParsedRequest) -> Ask:
        """An unknown server may refuse unknown fields, so nothing is added."""
        return Ask(request.body)

    def read(self, request: ParsedRequest, answer: Mapping[str, Any]) -> Reading:
        """Tokens where the server reports usage, acceptance where it has a record that is known."""
        tokens, prompt_tokens = tokens_told(answer)
        cached = cached_told(answer)
        if choices_asked(request) > 1:
            return Reading(prompt_tokens=prompt_tokens, cached_tokens=cached)
        if tokens is None:
            tokens = count(member(answer.get("timings"), "predicted_n"))
        found = self._record(answer, tokens) or Found()
        return Reading(tokens, prompt_tokens, found.spec, found.unread, cached)

    def _record(self, answer: Mapping[str, Any], tokens: int | None) -> Found | None:
        return any_record(answer, tokens)

    def gauges(self, text: str) -> ReplicaGauges:
        """Whatever a known engine would print."""
        return any_gauges(text)

    def refusal(self, request: ParsedRequest, *, speculative: bool) -> str | None:
        """Nothing is known to be refused."""
        del request, speculative
        return None


class Gateway(Generic):
    """Adapter for a gateway that counts drafts in OpenAI's fields for predicted outputs.

    SMG and TokenSpeed do. That is for the operator to say: the same fields of OpenAI's own service
    tell nothing about speculation.
    """

    name = "gateway"

    def _record(self, answer: Mapping[str, Any], tokens: int | None) -> Found | None:
        return any_record(answer, tokens) or prediction_record(answer, tokens)
