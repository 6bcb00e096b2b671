"""What engines tell of themselves: models, versions, slots. A selection of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from router.simfleet.settings import EngineSettings, Kind
from router.simfleet.wire.events import Object

_META = {
    "vocab_type": 2,
    "n_vocab": 49152,
    "n_ctx": 0,
    "n_ctx_train": 32768,
    "n_embd": 576,
    "n_params": 134515008,
    "size": 538060032,
    "ftype": "all F32",
}
_DETAILS = {
    "parent_model": "",
    "format": "gguf",
    "family": "",
    "families": [""],
    "parameter_size": "",
    "quantization_level": "",
}
_ARCHITECTURE_SINCE = (10_500,)
"""llama.cpp tells what goes in and out since a build between b10434 and b11434."""


def models(settings: EngineSettings, created: int, permission: str) -> Object:
    """`/v1/models`."""
    one: Object = {"id": settings.model, "object": "model", "created": created}
    match settings.kind:
        case Kind.VLLM:
            one |= {"owned_by": "vllm", "root": settings.root, "parent": None}
            one["max_model_len"] = settings.context
            one["permission"] = [_permission(created, permission)]
            return {"object": "list", "data": [one]}
        case Kind.SGLANG:
            one |= {"owned_by": "sglang", "root": settings.model, "parent": None}
            one["max_model_len"] = settings.context
            return {"object": "list", "data": [one]}
        case Kind.LLAMACPP:
            return _llama_models(settings, created)


def _permission(created: int, name: str) -> Object:
    return {
        "id": name,
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }


def _llama_models(settings: EngineSettings, created: int) -> Object:
    name = settings.model
    listed = {
        "name": name,
        "model": name,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": ["completion"],
        "parameters": "",
        "details": _DETAILS,
    }
    one: Object = {"id": name, "aliases": [name], "tags": [], "object": "model"}
    if settings.release >= _ARCHITECTURE_SINCE:
        one["architecture"] = {"input_modalities": ["text"], "output_modalities": ["text"]}
    one |= {"created": created, "owned_by": "llamacpp", "meta": _META | {"n_ctx": settings.context}}
    return {"models": [listed], "object": "list", "data": [one]}


def props(settings: EngineSettings) -> Object:
    """llama.cpp's `/props`, which does not tell the method."""
    return {
        "default_generation_settings": {
            "params": {"speculative.types": "none", "timings_per_token": False},
            "n_ctx": settings.context,
        },
        "total_slots": settings.slots,
        "model_alias": settings.model,
        "model_path": f"{settings.root}.gguf",
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": True,
        "build_info": settings.fingerprint,
        "is_sleeping": False,
    }


def slots(settings: EngineSettings, running: int) -> list[Object]:
    """llama.cpp's `/slots`: the first ones are taken."""
    told = []
    for number in range(settings.slots):
        one: Object = {"id": number, "n_ctx": settings.context}
        one |= {"speculative": settings.speculates, "is_processing": number < running}
        if settings.speculates:
            one["params"] = {"speculative.types": f"none,{settings.method}"}
        told.append(one)
    return told


def server_info(settings: EngineSettings) -> Object:
    """SGLang's `/server_info`."""
    k = settings.num_speculative_tokens
    method: Any = settings.method.upper() if settings.speculates else None
    return {
        "model_path": settings.root,
        "served_model_name": settings.model,
        "context_length": settings.context,
        "max_running_requests": settings.slots,
        "max_queued_requests": settings.max_waiting,
        "enable_metrics": True,
        "speculative_algorithm": method,
        "speculative_num_steps": k if settings.speculates else None,
        "speculative_num_draft_tokens": k + 1 if k and settings.speculates else None,
        "version": settings.version,
        "internal_states": [],
    }


def model_info(settings: EngineSettings) -> Object:
    """SGLang's `/model_info`."""
    return {
        "model_path": settings.root,
        "served_model_name": settings.model,
        "tokenizer_path": settings.root,
        "is_generation": True,
        "weight_version": "default",
    }


class Load(Protocol):
    """How busy an engine is."""

    @property
    def running(self) -> int:
        """Requests in the batch."""

    @property
    def inside(self) -> int:
        """Requests that run or wait."""


def pages_of(
    settings: EngineSettings, created: int, load: Load
) -> dict[str, Callable[[], Object | list[Object] | None]]:
    """What can be asked with GET, by path; None for an answer without a body."""

    def listed() -> Object:
        return models(settings, created, f"modelperm-{created:016x}")

    match settings.kind:
        case Kind.VLLM:
            return {
                "/health": lambda: None,
                "/ping": lambda: None,
                "/metrics": lambda: None,
                "/v1/models": listed,
                "/version": lambda: {"version": settings.version},
                "/load": lambda: {"server_load": load.inside},
            }
        case Kind.SGLANG:
            return {
                "/health": lambda: None,
                "/ping": lambda: None,
                "/metrics": lambda: None,
                "/v1/models": listed,
                "/server_info": lambda: server_info(settings),
                "/model_info": lambda: model_info(settings),
            }
        case Kind.LLAMACPP:
            return {
                "/health": lambda: {"status": "ok"},
                "/metrics": lambda: None,
                "/v1/models": listed,
                "/models": listed,
                "/props": lambda: props(settings),
                "/slots": lambda: slots(settings, load.running),
            }
