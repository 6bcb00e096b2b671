"""What would make an engine tell more of its speculation, by its name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """How an engine is made to tell; None where nothing can be done."""

    requests: str | None = None
    """So that answers carry their own acceptance."""
    counters: str | None = None
    """So that its metrics have totals."""


_NOTHING_TOLD = "this engine tells no acceptance; compare it by its times alone, or use another one"

ADVICE = {
    "vllm": Advice(
        "start the server with --per-request-spec-decode-metrics summary (vLLM 0.29 or newer)",
        "start the server without --disable-log-stats",
    ),
    "sglang": Advice(
        "use SGLang 0.5.19 or newer: it tells them when asked, without a flag",
        "start the server with --enable-metrics",
    ),
    "llamacpp": Advice(
        "use a build of 2025-04 or newer: it tells them in `timings`, without a flag",
        "start the server with --metrics, and set balance.scrape_s of the pool",
    ),
    "tensorrt_llm": Advice(
        "use TensorRT-LLM 1.x: it tells tokens for each iteration, without a flag",
        "set return_perf_metrics: true in the server's configuration",
    ),
    "lmdeploy": Advice(None, "start the server with --enable-metrics"),
    "tgi": Advice(_NOTHING_TOLD),
    "ollama": Advice(_NOTHING_TOLD),
    "lmstudio": Advice(_NOTHING_TOLD),
}

_NONE = Advice()

REFUSES_OTHER_MODELS = frozenset(("vllm", "tensorrt_llm", "lmdeploy", "ollama"))
"""Engines that answer 404 to a name that they do not serve; others answer with what they have."""


def advice_for(engine: str) -> Advice:
    """What can be done for an engine."""
    return ADVICE.get(engine, _NONE)
