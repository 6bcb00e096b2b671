"""The demo's prompts: what a few applications would ask, labelled by kind.

It knows nothing of pools or proxies; the labels are for the reader, never for the router.
"""

from __future__ import annotations

import importlib.resources
import json
from dataclasses import dataclass
from typing import Any

__all__ = ["DemoPrompt", "load_prompts", "parse_prompts"]


@dataclass(frozen=True, slots=True)
class DemoPrompt:
    """One prompt and the settings it is sent with."""

    id: str
    label: str
    """Kind of prompt, by its author."""
    language: str
    temperature: float
    max_tokens: int
    body: dict[str, Any]
    """An OpenAI chat body without ``model`` and ``stream``.

    Where its last message is the assistant's, the engine continues that message.
    """


def load_prompts() -> tuple[DemoPrompt, ...]:
    """Give all prompts in the order of their file, which is by label."""
    return parse_prompts(
        importlib.resources.files("router.demo").joinpath("prompts.json").read_text("utf-8")
    )


def parse_prompts(text: str) -> tuple[DemoPrompt, ...]:
    """Read prompts from JSON and put their settings into the bodies."""
    return tuple(
        DemoPrompt(
            id=str(entry["id"]),
            label=str(entry["class"]),
            language=str(entry["language"]),
            temperature=float(entry["temperature"]),
            max_tokens=int(entry["max_tokens"]),
            body={
                **entry["body"],
                "temperature": float(entry["temperature"]),
                "max_tokens": int(entry["max_tokens"]),
            },
        )
        for entry in json.loads(text)
    )
