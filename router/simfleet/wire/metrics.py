"""The `/metrics` of each engine: names, labels and help texts as recorded, a selection of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from router.simfleet.meter import Histogram, Totals
from router.simfleet.settings import EngineSettings, Kind

Sample = tuple[str, float]
"""Labels as they are written, and a value."""


class Gauges:
    """What is so at the moment."""

    def __init__(self, running: int, waiting: int, kv_usage: float) -> None:
        self.running = running
        self.waiting = waiting
        self.kv_usage = kv_usage


def metrics_text(settings: EngineSettings, totals: Totals, gauges: Gauges) -> bytes:
    """The whole page."""
    page = {
        Kind.VLLM: _vllm,
        Kind.SGLANG: _sglang,
        Kind.LLAMACPP: _llamacpp,
    }[settings.kind]
    return "".join(page(settings, totals, gauges)).encode()


def _family(
    name: str, kind: str, text: str, samples: Sequence[Sample], *, whole: bool = False
) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        shown = (
            f"{value:g}" if whole and value % 1 else f"{int(value)}" if whole else f"{float(value)}"
        )
        lines.append(f"{name}{labels} {shown}")
    return "\n".join(lines) + "\n"


def _labels(pairs: Iterable[tuple[str, str]]) -> str:
    inner = ",".join(f'{name}="{value}"' for name, value in sorted(pairs))
    return f"{{{inner}}}" if inner else ""


def _histogram(name: str, text: str, labels: dict[str, str], told: Histogram) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} histogram"]
    below = 0
    for bound, count in zip((*told.bounds, None), told.counts, strict=True):
        below += count
        limit = "+Inf" if bound is None else str(float(bound))
        lines.append(f"{name}_bucket{_labels([*labels.items(), ('le', limit)])} {float(below)}")
    plain = _labels(labels.items())
    lines += [f"{name}_count{plain} {float(below)}", f"{name}_sum{plain} {told.total}"]
    return "\n".join(lines) + "\n"


_DECODES = (
    "Total number of llama_decode() calls, excluding speculative decoding and multimodal decoding"
)
_VLLM_ENDS = ("stop", "length", "abort", "error", "repetition")


def _vllm(settings: EngineSettings, totals: Totals, gauges: Gauges) -> Iterable[str]:
    base = {"engine": "0", "model_name": settings.model}
    one = _labels(base.items())

    def counter(name: str, text: str, value: float) -> str:
        return _family(f"vllm:{name}", "counter", text, [(one, value)])

    def gauge(name: str, text: str, value: float) -> str:
        return _family(f"vllm:{name}", "gauge", text, [(one, value)])

    if settings.speculates:
        yield counter(
            "spec_decode_num_drafts_total", "Number of spec decoding drafts.", totals.drafts
        )
        yield counter(
            "spec_decode_num_draft_tokens_total", "Number of draft tokens.", totals.drafted
        )
        yield counter(
            "spec_decode_num_accepted_tokens_total", "Number of accepted tokens.", totals.accepted
        )
        places = [
            (_labels([*base.items(), ("position", str(at))]), count)
            for at, count in enumerate(totals.per_position)
        ]
        yield _family(
            "vllm:spec_decode_num_accepted_tokens_per_pos_total",
            "counter",
            "Accepted tokens per draft position.",
            places,
        )
    yield gauge(
        "num_requests_running",
        "Number of requests in model execution batches.",
        gauges.running,
    )
    yield gauge(
        "num_requests_waiting", "Number of requests waiting to be processed.", gauges.waiting
    )
    yield gauge(
        "kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", gauges.kv_usage
    )
    prompt = totals.prompt.total()
    yield counter(
        "prefix_cache_queries_total",
        "Prefix cache queries, in terms of number of queried tokens.",
        prompt,
    )
    yield counter(
        "prefix_cache_hits_total",
        "Prefix cache hits, in terms of number of cached tokens.",
        totals.cached,
    )
    yield counter("prompt_tokens_total", "Number of prefill tokens processed.", prompt)
    yield counter(
        "generation_tokens_total",
        "Number of generation tokens processed.",
        totals.generated.total(),
    )
    ended = [
        (_labels([*base.items(), ("finished_reason", reason)]), _ended(totals, reason))
        for reason in _VLLM_ENDS
    ]
    yield _family(
        "vllm:request_success_total",
        "counter",
        "Count of successfully processed requests.",
        ended,
    )
    yield _histogram(
        "vllm:time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        base,
        totals.ttft,
    )
    yield _histogram(
        "vllm:e2e_request_latency_seconds",
        "Histogram of e2e request latency in seconds.",
        base,
        totals.e2e,
    )


def _ended(totals: Totals, reason: str) -> int:
    """A call of a tool ends by itself."""
    more = totals.ended["tool_calls"] if reason == "stop" else 0
    return totals.ended[reason] + more


def _sglang(settings: EngineSettings, totals: Totals, gauges: Gauges) -> Iterable[str]:
    base = {"engine_type": "unified", "model_name": settings.model}
    ranks = base | {"moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
    one, ranked = _labels(base.items()), _labels(ranks.items())

    def by_stream(name: str, text: str, values: dict[bool, int]) -> str:
        told = [
            (_labels([*base.items(), ("is_streaming", str(streamed).lower())]), values[streamed])
            for streamed in (False, True)
        ]
        return _family(f"sglang:{name}", "counter", text, told)

    def gauge(name: str, text: str, value: float) -> str:
        return _family(f"sglang:{name}", "gauge", text, [(ranked, value)])

    yield by_stream("prompt_tokens_total", "Number of prefill tokens processed.", totals.prompt)
    yield by_stream(
        "generation_tokens_total", "Number of generation tokens processed.", totals.generated
    )
    if settings.speculates:
        yield _family(
            "sglang:spec_verify_calls_total",
            "counter",
            "Number of speculative decoding verification calls.",
            [(one, totals.verified)],
        )
    yield by_stream("num_requests_total", "Number of requests processed.", totals.requests)
    yield _family(
        "sglang:cached_tokens_total",
        "counter",
        "Number of cached prompt tokens by source (device/host/storage).",
        [(_labels([*base.items(), ("cache_source", "device")]), totals.cached)],
    )
    yield gauge("num_running_reqs", "The number of running requests.", gauges.running)
    yield gauge("num_queue_reqs", "The number of requests in the waiting queue.", gauges.waiting)
    yield gauge("gen_throughput", "The generation throughput (token/s).", totals.throughput)
    yield gauge("token_usage", "The token usage.", gauges.kv_usage)
    length = totals.accept_length if settings.speculates else 0.0
    k = settings.num_speculative_tokens or 0
    yield gauge(
        "spec_accept_length",
        "Mean acceptance length of speculative decoding "
        "(accepted drafts + bonus token per forward).",
        length,
    )
    yield gauge(
        "spec_accept_rate",
        "Speculative acceptance rate (`accepted drafts / proposed drafts` in batch).",
        (length - 1) / k if length and k else 0.0,
    )
    yield gauge(
        "spec_num_draft_tokens",
        "Currently active speculative_num_draft_tokens (decouples from steps under topk>1).",
        k + 1 if settings.speculates else 0,
    )


def _llamacpp(settings: EngineSettings, totals: Totals, gauges: Gauges) -> Iterable[str]:
    del settings
    prompt = totals.prompt.total() - totals.cached
    generated = totals.generated.total()
    rate = prompt / totals.prompt_s if totals.prompt_s else 0.0
    speed = generated / totals.generation_s if totals.generation_s else 0.0
    busy = totals.busy / totals.steps if totals.steps else 0.0
    counters: list[tuple[str, str, float]] = [
        (
            "prompt_tokens_total",
            "Number of prompt tokens processed, excluding cached tokens",
            prompt,
        ),
        (
            "prompt_tokens_cached_total",
            "Number of prompt tokens reused from the cache",
            totals.cached,
        ),
        ("prompt_seconds_total", "Total time spent processing prompts", totals.prompt_s),
        ("tokens_predicted_total", "Number of generation tokens processed", generated),
        (
            "tokens_predicted_seconds_total",
            "Total time spent generating tokens",
            totals.generation_s,
        ),
        (
            "n_decode_total",
            _DECODES,
            totals.steps,
        ),
        (
            "n_tokens_max",
            "Largest observed sequence length (prompt + generation)",
            totals.longest,
        ),
        (
            "spec_decode_num_draft_tokens_total",
            "Speculative: Total draft tokens generated",
            totals.drafted,
        ),
        (
            "spec_decode_num_accepted_tokens_total",
            "Speculative: Total draft tokens accepted by the target model",
            totals.accepted,
        ),
        (
            "spec_decode_num_drafts_total",
            "Speculative: Total speculative decoding verification steps",
            totals.drafts,
        ),
    ]
    for name, text, value in counters:
        yield _family(f"llamacpp:{name}", "counter", text, [("", value)], whole=True)
    told: list[tuple[str, str, float]] = [
        ("prompt_tokens_seconds", "Average prompt throughput in tokens/s", rate),
        ("predicted_tokens_seconds", "Average generation throughput in tokens/s", speed),
        ("requests_processing", "Number of requests processing", gauges.running),
        ("requests_deferred", "Number of requests deferred", gauges.waiting),
        (
            "n_busy_slots_per_decode",
            "Average number of busy slots per llama_decode() call",
            busy,
        ),
    ]
    for name, text, value in told:
        yield _family(f"llamacpp:{name}", "gauge", text, [("", value)], whole=True)
    if totals.per_position:
        places = [(f'{{position="{at}"}}', count) for at, count in enumerate(totals.per_position)]
        yield _family(
            "llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
            "counter",
            "Accepted tokens per draft position",
            places,
            whole=True,
        )
