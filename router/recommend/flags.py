"""A schedule of draft lengths as the flag of an engine; `docs/recommend.md` has the sources."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from policies.recommend import Advice, Range

_VLLM_METHODS = frozenset(("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"))
"""Methods whose length vLLM can set by batch size."""

_SGLANG_METHODS = frozenset(("eagle", "eagle3"))


def flags(engine: str, method: str, advice: Advice) -> tuple[str, ...]:
    """Lines to put on the engine's command line or into its file; empty where nothing changes.

    A line in parentheses is a remark; one that begins with `FILE: ` is the content of a file.
    """
    if advice.overall is None or not advice.schedule:
        return ()
    if all(best.k == advice.k for best in (advice.overall, *(of.best for of in advice.schedule))):
        return ()
    write = _WRITERS.get(engine)
    if write is None:
        return (f"drafts of {advice.overall.k} tokens; the engine's flag is not known here",)
    return write(method, advice.schedule, advice.overall.k)


def _vllm(method: str, schedule: Sequence[Range], k: int) -> tuple[str, ...]:
    most = max(of.best.k for of in schedule)
    if most == 0:
        return ("leave --speculative-config out: no drafts",)
    config: dict[str, object] = {"method": method, "num_speculative_tokens": most}
    if len(schedule) > 1 and method in _VLLM_METHODS:
        config["num_speculative_tokens_per_batch_size"] = [
            [of.low, of.high, of.best.k] for of in schedule
        ]
    elif len(schedule) > 1:
        config["num_speculative_tokens"] = max(k, 1)
    return (f"--speculative-config '{json.dumps(config)}'", "(beside the keys it has: model, …)")


def _sglang(method: str, schedule: Sequence[Range], k: int) -> tuple[str, ...]:
    most = max(of.best.k for of in schedule)
    if most == 0:
        return ("leave --speculative-algorithm out: no drafts",)
    if len(schedule) == 1 or method not in _SGLANG_METHODS:
        return (_sglang_length(max(k, 1)),)
    slots = {str(of.low): {"candidate_steps": [of.best.k]} for of in schedule}
    adaptive = "--speculative-adaptive --speculative-adaptive-config FILE"
    return (f"{_sglang_length(most)} {adaptive}", f"FILE: {json.dumps(slots)}")


def _sglang_length(steps: int) -> str:
    """One token a step, and the one before the draft is counted with it."""
    tokens = f"--speculative-num-draft-tokens {steps + 1}"
    return f"--speculative-num-steps {steps} --speculative-eagle-topk 1 {tokens}"


def _tensorrt(_: str, schedule: Sequence[Range], __: int) -> tuple[str, ...]:
    most = max(of.best.k for of in schedule)
    if most == 0:
        return ("leave speculative_config out: no drafts",)
    lengths = {of.high: of.best.k for of in schedule}
    inside = ", ".join(f"{high}: {k}" for high, k in lengths.items())
    return (
        f"speculative_config: {{max_draft_len: {most}, draft_len_schedule: {{{inside}}}}}",
        f"(beyond {schedule[-1].high} requests the engine drafts nothing)",
    )


def _llamacpp(_: str, __: Sequence[Range], k: int) -> tuple[str, ...]:
    return (f"--spec-draft-n-max {k}" if k else "--spec-type none",)


def _lmdeploy(_: str, __: Sequence[Range], k: int) -> tuple[str, ...]:
    none = "leave --speculative-algorithm out: no drafts"
    return (f"--speculative-num-draft-tokens {k}" if k else none,)


_WRITERS: Mapping[str, Callable[[str, Sequence[Range], int], tuple[str, ...]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llamacpp": _llamacpp,
    "tensorrt_llm": _tensorrt,
    "lmdeploy": _lmdeploy,
}
"""By name of the engine's adapter."""
