"""vLLM: acceptance rides on the usage event, which has to be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policies.types import SpecUsage
from router.engines.base import Ask, Reading, choices_asked, count, member, tokens_told
from router.engines.splice import member_text, set_member
from router.fleet.gauges import ReplicaGauges, vllm_gauges
from router.types import Endpoint, ParsedRequest

_USAGE_IS_ASKED_FOR = frozenset((Endpoint.CHAT, Endpoint.COMPLETIONS))
"""In the other dialects it comes with every answer."""


class Vllm:
    """Adapter for vLLM's OpenAI server.

    Read in 0.26 to 0.33. `metrics.speculative_decoding` needs the server's flag
    `--per-request-spec-decode-metrics summary`; without it acceptance is unknown.
    """

    name = "vllm"
    health_path = "/health"
    metrics_path = "/metrics"
    scrape_s = 2.0
    markers = (b'"usage":{', b'"metrics":{')

    def prepare(self, request: ParsedRequest) -> Ask:
        """Asks a stream for its usage event unless the client did."""
        if not request.stream or request.endpoint not in _USAGE_IS_ASKED_FOR:
            return Ask(request.body)
        options = request.fields.get("stream_options")
        if options is not None and not isinstance(options, Mapping):
            return Ask(request.body)  # for the engine to refuse
        if member(options, "include_usage") not in (None, False):
            return Ask(request.body)
        if member(options, "continuous_usage_stats"):
            # Without include_usage it is ignored; together, every event would carry usage.
            return Ask(request.body)
        asked = b'{"include_usage":true}'
        if options is not None:
            asked = set_member(
                member_text(request.body, "stream_options"),
                "include_usage",
                b"true",
                present="include_usage" in options,
            )
        body = set_member(
            request.body, "stream_options", asked, present="stream_options" in request.fields
        )
        return Ask(body, strip_usage=True)

    def read(self, request: ParsedRequest, answer: Mapping[str, Any]) -> Reading:
        """Tokens from `usage`, acceptance from `metrics.speculative_decoding`."""
        tokens, prompt_tokens = tokens_told(answer)
        if choices_asked(request) > 1:
            return Reading(prompt_tokens=prompt_tokens)
        record = member(answer.get("metrics"), "speculative_decoding")
        if tokens is None:
            return Reading(None, prompt_tokens, unread=("usage.completion_tokens",))
        if record is None:
            return Reading(tokens, prompt_tokens)
        spec = _spec_usage(tokens, record)
        unread = () if spec else ("metrics.speculative_decoding",)
        return Reading(tokens, prompt_tokens, spec, unread)

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


def _spec_usage(tokens: int, record: object) -> SpecUsage | None:
    drafted = count(member(record, "num_draft_tokens"))
    accepted = count(member(record, "num_accepted_draft_tokens"))
    if drafted is None or accepted is None or accepted > drafted:
        return None
    histogram = member(record, "acceptance_histogram")
    known = isinstance(histogram, list) and all(count(item) is not None for item in histogram)
    return SpecUsage(
        steps=_steps(tokens, accepted, count(member(record, "num_spec_steps"))),
        drafted=drafted,
        accepted=accepted,
        accepted_per_step=tuple(histogram) if known and histogram else None,
        num_speculative_tokens=count(member(record, "num_spec_tokens")) or None,
    )


def _steps(tokens: int, accepted: int, drafted_steps: int | None) -> int | None:
    """All decode steps of an answer.

    `num_spec_steps` leaves out those without a draft, so it is tokens less accepted ones. But
    accepted ones are counted before the answer's end cuts the last step, which makes the
    difference too small; it is never below the steps with a draft and the one that gave the first
    token.
    """
    steps = tokens - accepted
    if drafted_steps:
        steps = max(steps, drafted_steps + 1)
    return steps if 1 <= steps <= tokens else None
