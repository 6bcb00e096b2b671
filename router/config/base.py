"""What all options are declared with: names, keys, and the base of all models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

EngineName = Literal["llamacpp", "vllm", "sglang", "tensorrt_llm", "lmdeploy", "gateway", "generic"]

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]

HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")]

SHORTEST_KEY = 16
"""Characters of a key that cannot be guessed."""


class KeyedError(ValueError):
    """What is wrong with one key, found by a rule about several."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")
        self.key = key
        self.why = why


class Model(BaseModel):
    """Base of all: immutable, and a key nobody knows is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        validate_by_name=False,
        serialize_by_alias=True,
    )
