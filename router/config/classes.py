"""Options by which requests are told apart."""

from __future__ import annotations

from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator

from router.config.base import SHORTEST_KEY, HeaderName, Model, Name
from router.config.patterns import check_pattern


class When(Model):
    """What must hold of a request; everything that is given, together."""

    header: dict[HeaderName, str] = Field(
        default_factory=dict,
        max_length=8,
        description="Patterns by header name; one line of that name must contain a match.",
    )
    path: str | None = Field(
        None, description="Path, such as /v1/completions; `*` stands for any text."
    )
    model: str | None = Field(
        None, description="Name of the model asked for; `*` stands for any text."
    )
    system_prompt: str | None = Field(
        None,
        description=(
            "Pattern (RE2 syntax) that the first 2048 characters of the system prompt must contain."
        ),
    )
    tool: str | None = Field(
        None, description="Name of a tool that is offered; `*` stands for any text."
    )

    @field_validator("system_prompt")
    @classmethod
    def _usable_pattern(cls, value: str | None) -> str | None:
        if value is not None:
            check_pattern(value)
        return value

    @field_validator("header")
    @classmethod
    def _usable_patterns(cls, value: dict[str, str]) -> dict[str, str]:
        for name, pattern in value.items():
            try:
                check_pattern(pattern)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return value

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.header and not any((self.path, self.model, self.system_prompt, self.tool)):
            raise ValueError(
                "must hold a condition: header, path, model, system_prompt or tool, and not empty"
            )
        return self


class ClassRule(Model):
    """Puts the requests of which something holds into a class."""

    class_id: Name = Field(
        alias="class", description="Class of the requests: a built-in one, or one of your own."
    )
    when: When = Field(description="What must hold of them, all of it together.")


class Classify(Model):
    """How requests are told apart; see docs/classes.md."""

    rules: tuple[ClassRule, ...] = Field(
        (), max_length=100, description="Rules that settle the class; the first that holds wins."
    )
    weights: str | None = Field(
        None,
        description=(
            "Weights made by `specroute classify train`; null for those that come with Specroute."
        ),
    )
    sessions: int = Field(
        10_000,
        ge=0,
        le=1_000_000,
        description="Sessions whose last class is remembered, in memory only; 0 for none.",
    )
    segments: int = Field(
        64,
        ge=0,
        le=1024,
        description="Applications told apart at a time, for each route; 0 for none.",
    )
    segment_key: SecretStr | None = Field(
        None,
        description=(
            "Key of the hashes that stand for applications; write ${NAME} to take it from the "
            "environment. null for a random one that the store keeps."
        ),
    )

    @field_validator("segment_key")
    @classmethod
    def _hard_to_guess(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < SHORTEST_KEY:
            raise ValueError(f"must have at least {SHORTEST_KEY} characters")
        return value
