"""Name in the configuration → adapter."""

from __future__ import annotations

from typing import assert_never

from router.config.models import EngineName
from router.engines.base import EngineAdapter
from router.engines.generic import Generic
from router.engines.llamacpp import LlamaCpp
from router.engines.vllm import Vllm


def adapter_for(engine: EngineName) -> EngineAdapter:
    """The adapter of an engine."""
    match engine:
        case "llamacpp":
            return LlamaCpp()
        case "vllm":
            return Vllm()
        case "generic":
            return Generic()
        case _:
            assert_never(engine)
