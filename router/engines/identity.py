"""Which engine answers at an address, by what its pages say: values in, a value out, no I/O.

A page tells by where it stands and what it is made of. `/version` alone names no engine, since
several have it; pages that contradict each other name none either. Read in vLLM 0.32, SGLang 0.5.23
and llama.cpp b10434 (recorded), TensorRT-LLM 1.x, LMDeploy 0.16, TGI 3.3, Ollama 0.33 and LM Studio
(from source and documents).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from router.engines.base import count, member
from router.engines.pages import (
    Engine,
    EngineIdentity,
    Pages,
    ToldPage,
    body_at,
    entries_at,
    json_at,
    text_at,
    word,
)
from router.engines.self_description import FACTS, models_told

__all__ = ["Engine", "EngineIdentity", "Pages", "ToldPage", "further_pages", "identify"]

FIRST_PAGES = ("/v1/models", "/version")
"""What every server is asked; `further_pages` says what next."""

_UNKNOWN_PAGES = (
    ("/props", "/server_info", "/info", "/api/v0/models", "/"),
    # Last, since TensorRT-LLM's page of that name is emptied by reading it.
    ("/metrics",),
)
_PAGES: Mapping[Engine, tuple[tuple[str, ...], ...]] = {
    Engine.UNKNOWN: _UNKNOWN_PAGES,
    Engine.VLLM: (("/metrics",),),
    Engine.SGLANG: (("/server_info", "/metrics"), ("/get_server_info",)),
    # Not its metrics: each reading sets averages back that another reader would miss.
    Engine.LLAMACPP: (("/props", "/slots"),),
    Engine.TENSORRT_LLM: (("/prometheus/metrics",),),
    Engine.LMDEPLOY: (("/metrics",),),
    Engine.TGI: (("/info",),),
    Engine.OLLAMA: (("/api/version",),),
    Engine.LMSTUDIO: (("/api/v0/models",),),
}


def further_pages(pages: Pages) -> tuple[str, ...]:
    """What to ask next, by what is known; nothing when all has been asked that could tell more.

    >>> further_pages({})
    ('/v1/models', '/version')
    >>> told = ToldPage(200, b'{"data":[{"id":"m","owned_by":"vllm"}]}')
    >>> further_pages({"/v1/models": told, "/version": ToldPage(404)})
    ('/metrics',)
    """
    if not all(path in pages for path in FIRST_PAGES):
        return tuple(path for path in FIRST_PAGES if path not in pages)
    engine, _ = _engine(pages)
    for stage in _PAGES[engine]:
        missing = tuple(path for path in stage if path not in pages)
        if missing == ("/get_server_info",) and json_at(pages, "/server_info") is not None:
            continue
        if missing:
            return missing
    return ()


def identify(pages: Pages) -> EngineIdentity:
    """What a server is. Never raises, whatever the pages hold."""
    engine, evidence = _engine(pages)
    found = EngineIdentity(engine, evidence=evidence, **models_told(pages))
    return FACTS[engine](found, pages)


def _engine(pages: Pages) -> tuple[Engine, tuple[str, ...]]:
    votes = list(_votes(pages))
    engines = {engine for engine, _ in votes}
    evidence = tuple(dict.fromkeys(why for _, why in votes))
    return (engines.pop() if len(engines) == 1 else Engine.UNKNOWN), evidence


_OWNERS = {
    "vllm": Engine.VLLM,
    "sglang": Engine.SGLANG,
    "llamacpp": Engine.LLAMACPP,
    "tensorrt_llm": Engine.TENSORRT_LLM,
    "lmdeploy": Engine.LMDEPLOY,
}
_PREFIXES = {
    "vllm:": Engine.VLLM,
    "sglang:": Engine.SGLANG,
    "llamacpp:": Engine.LLAMACPP,
    "trtllm_": Engine.TENSORRT_LLM,
    "lmdeploy:": Engine.LMDEPLOY,
    "tgi_": Engine.TGI,
}
_SAMPLES = {
    prefix: re.compile(
        rf"^{re.escape(prefix)}[a-z][a-z0-9_]*(?:\{{[^\n]*\}})? [^\s]+", re.MULTILINE
    )
    for prefix in _PREFIXES
}
_OLLAMA = b"Ollama is running"
_METRICS_PAGES = ("/metrics", "/prometheus/metrics")


def _votes(pages: Pages) -> Iterator[tuple[Engine, str]]:
    for entry in entries_at(pages, "/v1/models"):
        owner = entry.get("owned_by")
        if isinstance(owner, str) and owner in _OWNERS:
            yield _OWNERS[owner], f"/v1/models: owned_by {owner}"
        if count(member(entry.get("meta"), "n_ctx_train")) is not None:
            yield Engine.LLAMACPP, "/v1/models: meta.n_ctx_train"
    if any(page.server == "llama.cpp" for page in pages.values()):
        yield Engine.LLAMACPP, "header Server: llama.cpp"
    for path in _METRICS_PAGES:
        text = text_at(pages, path)
        for prefix, engine in _PREFIXES.items():
            # Pages are long: that nothing of a name is there is seen faster than by a pattern.
            if prefix in text and _SAMPLES[prefix].search(text):
                yield engine, f"{path}: {prefix}*"
    yield from _shapes(pages)


def _shapes(pages: Pages) -> Iterator[tuple[Engine, str]]:
    props = json_at(pages, "/props")
    settings = member(props, "default_generation_settings")
    if isinstance(settings, Mapping) and count(member(props, "total_slots")) is not None:
        yield Engine.LLAMACPP, "/props: default_generation_settings"
    for path in ("/server_info", "/get_server_info"):
        info = json_at(pages, path)
        if isinstance(info, Mapping) and "speculative_algorithm" in info and "model_path" in info:
            yield Engine.SGLANG, f"{path}: speculative_algorithm"
    info = json_at(pages, "/info")
    if word(member(info, "model_id")) and count(member(info, "max_concurrent_requests")):
        yield Engine.TGI, "/info: max_concurrent_requests"
    if body_at(pages, "/").strip() == _OLLAMA:
        yield Engine.OLLAMA, "/: Ollama is running"
    if any(
        "compatibility_type" in entry and "publisher" in entry
        for entry in entries_at(pages, "/api/v0/models")
    ):
        yield Engine.LMSTUDIO, "/api/v0/models: compatibility_type"
