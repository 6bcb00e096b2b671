"""A schedule of draft lengths as the flag of an engine; `docs/recommend.md` has the sources."""

from __future__ import annotations

import json
from collections.abc import Sequence

from policies.recommend import Advice, Range

_VLLM_METHODS = frozenset(("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"))
"""Methods whose length vLLM can set by batch size."""

_SGLANG_METHODS = frozenset(("eagle", "eagle3"))


def flags(engine: str, method: str, advice: Advice) -> tuple[str, ...]:
    """Lines to put on the engine's command line or into its file; empty without advice."""
    if advice.overall is None or not advice.schedule:
        return ()
    if engine == "vllm":
        return _vllm(method, advice.schedule, advice.overall.k)
    if engine == "sglang":
        return _sglang(method, advice)
    if engine == "llamacpp":
        return _one("--spec-draft-n-max {k}", "--spec-type none", advice.overall.k)
    if engine == "tensorrt_llm":
        return _tensorrt(advice.schedule)
    if engine == "lmdeploy":
        return _one("--speculative-num-draft-tokens {k}", "", advice.overall.k)
    return (f"drafts of {advice.overall.k} tokens; the engine's flag is not known here",)


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
    return (f"--speculative-config '{json.dumps(config)}'   (beside the keys it has: model, …)",)


def _sglang(method: str, advice: Advice) -> tuple[str, ...]:
    if advice.overall is None:
        return ()
    most = max(of.best.k for of in advice.schedule)
    if most == 0:
        return ("leave --speculative-algorithm out: no drafts",)
    if len(advice.schedule) == 1 or method not in _SGLANG_METHODS:
        steps = max(advice.overall.k, 1)
        return (
            f"--speculative-num-steps {steps} --speculative-eagle-topk 1 "
            f"--speculative-num-draft-tokens {steps + 1}",
        )
    slots = {str(of.low): {"candidate_steps": [of.best.k]} for of in advice.schedule}
    return (
        f"--speculative-num-steps {most} --speculative-eagle-topk 1 "
        f"--speculative-num-draft-tokens {most + 1} --speculative-adaptive "
        "--speculative-adaptive-config FILE",
        f"FILE: {json.dumps(slots)}",
    )


def _tensorrt(schedule: Sequence[Range]) -> tuple[str, ...]:
    most = max(of.best.k for of in schedule)
    if most == 0:
        return ("leave speculative_config out: no drafts",)
    lengths = {of.high: of.best.k for of in schedule}
    inside = ", ".join(f"{high}: {k}" for high, k in lengths.items())
    return (
        f"speculative_config: {{max_draft_len: {most}, draft_len_schedule: {{{inside}}}}}",
        f"(beyond {schedule[-1].high} requests the engine drafts nothing)",
    )


def _one(flag: str, none: str, k: int) -> tuple[str, ...]:
    if k:
        return (flag.format(k=k),)
    return (none or "leave the drafting flags out: no drafts",)
