"""What each engine's own pages say of its version, model, places and speculation. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from router.engines.base import count, member
from router.engines.pages import (
    Engine,
    EngineIdentity,
    Pages,
    entries_at,
    is_before,
    json_at,
    refused_at,
    text_at,
    word,
)
from router.fleet.gauges import samples

_TRTLLM_INFO = "trtllm_speculative_config_info"
_EAGLE = frozenset(("eagle", "eagle2"))
_SGLANG_METHODS: Mapping[str, frozenset[str]] = {
    "NGRAM": frozenset(("ngram",)),
    # Its name for native MTP layers too, once it runs.
    "EAGLE": _EAGLE | {"mtp"},
    "EAGLE3": frozenset(("eagle3",)),
    "NEXTN": frozenset(("mtp",)),
    "STANDALONE": frozenset(("draft_model",)),
    "DFLASH": frozenset(("dflash",)),
    "DSPARK": frozenset(("dspark",)),
}
_LLAMACPP_METHODS: Mapping[str, frozenset[str]] = {
    "draft-simple": frozenset(("draft_model",)),
    "draft-eagle3": frozenset(("eagle3",)),
    "draft-mtp": frozenset(("mtp",)),
    "draft-dflash": frozenset(("dflash",)),
    "draft-dspark": frozenset(("dspark",)),
    **{
        f"ngram-{kind}": frozenset(("ngram",))
        for kind in ("simple", "map-k", "map-k4v", "mod", "cache")
    },
}
_TRTLLM_METHODS: Mapping[str, frozenset[str]] = {
    "Eagle": _EAGLE | {"eagle3"},
    "Eagle3": frozenset(("eagle3",)),
    "MTP": frozenset(("mtp",)),
    "DraftTarget": frozenset(("draft_model",)),
    "NGram": frozenset(("ngram",)),
    "SA": frozenset(("suffix",)),
    "DFlash": frozenset(("dflash",)),
    "Medusa": frozenset(("medusa",)),
}


def _method(told: str | None, known: Mapping[str, frozenset[str]]) -> dict[str, Any]:
    return {
        "speculates": True,
        "method": told,
        "methods": known.get(told, frozenset()) if told is not None else frozenset(),
    }


def _with_counters(
    found: EngineIdentity, text: str, prefix: str, *, always: bool
) -> EngineIdentity:
    """What counters of drafts tell.

    Args:
        found: What is known.
        text: Of the metrics.
        prefix: Of their names.
        always: Whether the engine has them without speculation too.
    """
    names = (
        f"{prefix}spec_decode_num_drafts_total",
        f"{prefix}spec_decode_num_accepted_tokens_per_pos_total",
    )
    found_lines = samples(text, names)
    drafts, positions = (found_lines.get(name, []) for name in names)
    drafted = any(line.value > 0 for line in drafts)
    speculates: bool | None = bool(drafts)
    if always:
        speculates = True if drafted else None
    k = len({line.labels["position"] for line in positions if "position" in line.labels})
    return replace(
        found,
        spec_counters=bool(drafts),
        speculates=speculates,
        num_speculative_tokens=k or None if speculates else None,
    )


def models_told(pages: Pages) -> dict[str, Any]:
    """Names, and what is told beside the first of them."""
    entries = [entry for entry in entries_at(pages, "/v1/models") if word(entry.get("id"))]
    told: dict[str, Any] = {"models": tuple(entry["id"] for entry in entries)}
    for entry in entries[:1]:
        context = count(entry.get("max_model_len"))
        told["root"] = word(entry.get("root"))
        told["context_tokens"] = (
            count(member(entry.get("meta"), "n_ctx")) if context is None else context
        )
    return told


def _vllm(found: EngineIdentity, pages: Pages) -> EngineIdentity:
    version = word(member(json_at(pages, "/version"), "version"))
    found = replace(found, version=version)
    if version is not None and is_before(version, (0, 29)):
        found = replace(found, per_request=False)
    text = text_at(pages, "/metrics")
    if "vllm:" not in text:
        return replace(found, metrics=False if refused_at(pages, "/metrics") else None)
    return _with_counters(replace(found, metrics=True), text, "vllm:", always=False)


def _sglang(found: EngineIdentity, pages: Pages) -> EngineIdentity:
    info = json_at(pages, "/server_info") or json_at(pages, "/get_server_info")
    version = word(member(info, "version"))
    metrics = "sglang:" in text_at(pages, "/metrics")
    refused = refused_at(pages, "/metrics")
    found = replace(
        found,
        version=version,
        per_request=None if version is None else not is_before(version, (0, 5, 19)),
        metrics=True if metrics else False if refused else None,
        spec_counters=True if metrics else False if refused else None,
    )
    if not isinstance(info, Mapping):
        return found
    algorithm, running = info.get("speculative_algorithm"), count(info.get("max_running_requests"))
    states = info.get("internal_states")
    if not running and isinstance(states, list) and states:
        running = count(member(states[0], "effective_max_running_requests_per_dp"))
    found = replace(
        found,
        root=word(info.get("model_path")) or found.root,
        context_tokens=count(info.get("context_length")) or found.context_tokens,
        most_running=running or None,
    )
    if "speculative_algorithm" not in info:
        return found
    if algorithm is None:
        return replace(found, speculates=False)
    return replace(
        found, num_speculative_tokens=_sglang_k(info), **_method(word(algorithm), _SGLANG_METHODS)
    )


def _sglang_k(info: Mapping[str, Any]) -> int | None:
    """Most tokens that a step can accept: a chain's or a tree's depth, else all but the root."""
    steps, drafts = (
        count(info.get("speculative_num_steps")),
        count(info.get("speculative_num_draft_tokens")),
    )
    return steps or (drafts - 1 if drafts else None) or None


def _llamacpp(found: EngineIdentity, pages: Pages) -> EngineIdentity:
    props, slots = json_at(pages, "/props"), json_at(pages, "/slots")
    slots = [slot for slot in slots if isinstance(slot, Mapping)] if isinstance(slots, list) else []
    metrics = member(props, "endpoint_metrics")
    metrics = metrics if isinstance(metrics, bool) else None
    if "llamacpp:" in text_at(pages, "/metrics"):
        metrics = True
    context = count(member(member(props, "default_generation_settings"), "n_ctx"))
    found = replace(
        found,
        version=word(member(props, "build_info")),
        root=word(member(props, "model_path")) or found.root,
        context_tokens=found.context_tokens if context is None else context,
        most_running=count(member(props, "total_slots")) or len(slots) or None,
        metrics=metrics,
        spec_counters=metrics,
        per_request=True,
    )
    flags = {slot.get("speculative") for slot in slots if isinstance(slot.get("speculative"), bool)}
    if flags == {False}:
        return replace(found, speculates=False)
    if flags != {True}:
        return found
    types = [
        name
        for slot in slots
        for name in str(member(slot.get("params"), "speculative.types") or "").split(",")
        if name not in {"", "none"}
    ]
    return replace(found, **_method(word(types[0]) if types else None, _LLAMACPP_METHODS))


def _tensorrt_llm(found: EngineIdentity, pages: Pages) -> EngineIdentity:
    text = text_at(pages, "/prometheus/metrics")
    metrics = "trtllm_" in text
    found = replace(
        found,
        version=word(member(json_at(pages, "/version"), "version")),
        metrics=True if metrics else False if refused_at(pages, "/prometheus/metrics") else None,
        spec_counters="trtllm_spec_decode_num_draft_tokens_total" in text if metrics else None,
        per_request=True,
    )
    lines = samples(text, (_TRTLLM_INFO,)).get(_TRTLLM_INFO)
    if not lines:
        return found
    labels = lines[0].labels
    if labels.get("spec_enabled") != "true":
        return replace(found, speculates=False)
    k = labels.get("spec_num_tokens", "")
    return replace(
        found,
        num_speculative_tokens=int(k) or None if k.isdecimal() and len(k) < len("1000") else None,
        **_method(word(labels.get("spec_method")), _TRTLLM_METHODS),
    )


def _lmdeploy(found: EngineIdentity, pages: Pages) -> EngineIdentity:
    text = text_at(pages, "/metrics")
    metrics = "lmdeploy:" in text
    found = replace(
        found,
        metrics=True if metrics else False if refused_at(pages, "/metrics") else None,
        per_request=False,
    )
    # Its counters are there, as 0, without speculation too.
    return _with_counters(found, text, "lmdeploy:", always=True) if metrics else found


def _tgi(found: EngineIdentity, pages: Pages) -> EngineIdentity:
    info = json_at(pages, "/info")
    return replace(
        found,
        version=word(member(info, "version")),
        root=word(member(info, "model_id")) or found.root,
        context_tokens=count(member(info, "max_total_tokens")),
        most_running=count(member(info, "max_concurrent_requests")),
        spec_counters=False,
        per_request=False,
    )


def _ollama(found: EngineIdentity, pages: Pages) -> EngineIdentity:
    version = word(member(json_at(pages, "/api/version"), "version"))
    return replace(found, version=version, metrics=False, spec_counters=False, per_request=False)


def _lmstudio(found: EngineIdentity, pages: Pages) -> EngineIdentity:
    contexts = (
        count(entry.get("loaded_context_length"))
        for entry in entries_at(pages, "/api/v0/models")
        if entry.get("id") in found.models[:1]
    )
    return replace(
        found,
        context_tokens=next(contexts, None),
        metrics=False,
        spec_counters=False,
        per_request=False,
    )


def _unknown(found: EngineIdentity, pages: Pages) -> EngineIdentity:
    del pages
    return found


FACTS: Mapping[Engine, Callable[[EngineIdentity, Pages], EngineIdentity]] = {
    Engine.VLLM: _vllm,
    Engine.SGLANG: _sglang,
    Engine.LLAMACPP: _llamacpp,
    Engine.TENSORRT_LLM: _tensorrt_llm,
    Engine.LMDEPLOY: _lmdeploy,
    Engine.TGI: _tgi,
    Engine.OLLAMA: _ollama,
    Engine.LMSTUDIO: _lmstudio,
    Engine.UNKNOWN: _unknown,
}
