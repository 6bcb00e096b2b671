"""TensorRT-LLM: tokens per step come unasked, and every unknown field is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from router.engines.base import Ask, Reading
from router.engines.records import reading_with, tensorrt_record
from router.engines.usage import with_usage
from router.fleet.gauges import UNKNOWN, ReplicaGauges, samples, total
from router.types import ParsedRequest

_RUNNING, _WAITING = "trtllm_num_requests_running", "trtllm_num_requests_waiting"
_CACHE = "trtllm_kv_cache_utilization"


class TensorRtLlm:
    """Adapter for `trtllm-serve` (read in the sources of 1.3 and 1.4; not recorded).

    `/prometheus/metrics` is there with `return_perf_metrics: true` only. Its `/metrics` is JSON
    that every reader takes away from the next one, so it is left alone.
    """

    name = "tensorrt_llm"
    health_path = "/health"
    metrics_path = "/prometheus/metrics"
    scrape_s = 2.0
    markers = (b'"usage":{', b'"finish_reason":"')
    """Its mean stands at the choice of every event, and is that of all the answer in the last."""
    step_rule = None
    """The mean is better than any count."""

    def prepare(self, request: ParsedRequest) -> Ask:
        """Asks a stream for its usage event; nothing that is not OpenAI's own may be added."""
        asked = with_usage(request, request.body)
        return Ask(request.body) if asked is None else Ask(asked, strip_usage=True)

    def read(self, request: ParsedRequest, answer: Mapping[str, Any]) -> Reading:
        """Tokens from `usage`, steps from the mean at the choice."""
        return reading_with(tensorrt_record, request, answer)

    def gauges(self, text: str) -> ReplicaGauges:
        """Requests that run and wait, and the use of its cache."""
        found = samples(text, (_RUNNING, _WAITING, _CACHE))
        cache = [line.value for line in found.get(_CACHE, ()) if 0 <= line.value <= 1]
        gauges = ReplicaGauges(
            total(found, _RUNNING),
            total(found, _WAITING),
            sum(cache) / len(cache) if cache else None,
        )
        return gauges if gauges.known else UNKNOWN

    def refusal(self, request: ParsedRequest, *, speculative: bool) -> str | None:
        """None is known that depends on speculation."""
        del request, speculative
        return None
