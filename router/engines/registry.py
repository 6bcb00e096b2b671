"""Name in the configuration → adapter."""

from __future__ import annotations

from typing import assert_never

from router.config.base import EngineName
from router.engines.base import EngineAdapter
from router.engines.generic import Gateway, Generic
from router.engines.llamacpp import LlamaCpp
from router.engines.lmdeploy import LmDeploy
from router.engines.sglang import Sglang
from router.engines.tensorrt_llm import TensorRtLlm
from router.engines.vllm import Vllm


def adapter_for(engine: EngineName) -> EngineAdapter:  # noqa: PLR0911 - a table
    """The adapter of an engine."""
    match engine:
        case "llamacpp":
            return LlamaCpp()
        case "vllm":
            return Vllm()
        case "sglang":
            return Sglang()
        case "tensorrt_llm":
            return TensorRtLlm()
        case "lmdeploy":
            return LmDeploy()
        case "gateway":
            return Gateway()
        case "generic":
            return Generic()
        case _:
            assert_never(engine)
