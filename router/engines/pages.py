"""What a server shows of itself: its pages, how they are read, and what is made of them. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from router.engines.base import member

_OK = 200
_LONGEST_WORD = 128
_MOST_NAMES = 64
MOST_BYTES = 4 * 1024 * 1024
"""Of a page; one that is longer was cut, and what is absent from it may be there."""


class Engine(StrEnum):
    """Servers that can be told apart; values are their names in a configuration that has them."""

    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    TENSORRT_LLM = "tensorrt_llm"
    LMDEPLOY = "lmdeploy"
    TGI = "tgi"
    OLLAMA = "ollama"
    LMSTUDIO = "lmstudio"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ToldPage:
    """One page of a server."""

    status: int
    body: bytes = b""
    server: str = ""
    """Header `Server`."""


Pages = Mapping[str, ToldPage]
"""By path."""


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """What a server is, as far as its pages told; None where they did not."""

    engine: Engine = Engine.UNKNOWN
    version: str | None = None
    evidence: tuple[str, ...] = ()
    """What said so: page and member."""
    models: tuple[str, ...] = ()
    """Names that it serves."""
    root: str | None = None
    """What it has loaded, by its own name or path."""
    context_tokens: int | None = None
    most_running: int | None = None
    """Requests that it works on at a time."""
    speculates: bool | None = None
    method: str | None = None
    """Its speculative method, as the engine calls it."""
    methods: frozenset[str] = frozenset()
    """What a configuration may call that."""
    num_speculative_tokens: int | None = None
    metrics: bool | None = None
    """Whether Prometheus could read it."""
    spec_counters: bool | None = None
    """Whether its metrics tell of speculation in totals."""
    per_request: bool | None = None
    """Whether answers can tell of their own acceptance; None where only an answer shows it."""

    @property
    def label(self) -> str:
        """Engine and version for a reader.

        >>> EngineIdentity(Engine.VLLM, "0.32.0").label
        'vllm 0.32.0'
        """
        return f"{self.engine.value} {self.version}" if self.version else self.engine.value

    @property
    def speculation(self) -> str | None:
        """What it says of speculation, for a reader; None where it says nothing."""
        if self.speculates is None:
            return None
        if not self.speculates:
            return "no speculation"
        k = self.num_speculative_tokens
        return (self.method or "speculation") + (f", k = {k}" if k else "")


def body_at(pages: Pages, path: str) -> bytes:
    """The body of a page, empty unless its status is 200 and it is whole."""
    page = pages.get(path)
    whole = page is not None and page.status == _OK and len(page.body) < MOST_BYTES
    return page.body if page is not None and whole else b""


def refused_at(pages: Pages, path: str) -> bool:
    """Whether it has no such page, or keeps it closed."""
    page = pages.get(path)
    return page is not None and page.status != _OK


def text_at(pages: Pages, path: str) -> str:
    """A page as text."""
    return body_at(pages, path).decode("utf-8", "replace")


def json_at(pages: Pages, path: str) -> Any:
    """A page as JSON; None for anything else."""
    body = body_at(pages, path)
    if not body:
        return None
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def entries_at(pages: Pages, path: str) -> list[Mapping[str, Any]]:
    """The objects of the list `data`."""
    data = member(json_at(pages, path), "data")
    if not isinstance(data, list):
        return []
    return [entry for entry in data[:_MOST_NAMES] if isinstance(entry, Mapping)]


def word(value: object) -> str | None:
    """A name that can be shown: pages may hold anything, escapes for terminals too."""
    if isinstance(value, str) and 0 < len(value) <= _LONGEST_WORD and value.isprintable():
        return value
    return None


def is_before(version: str, wanted: tuple[int, ...]) -> bool:
    """Whether a version is older; one without numbers is not.

    >>> is_before("0.28.1", (0, 29)), is_before("0.29.0rc1", (0, 29))
    (True, False)
    >>> is_before("0.1.dev7+g4ba787ec9", (0, 29))  # built by hand, of whatever age
    False
    """
    if ".dev" in version:
        return False
    numbers = tuple(int(part) for part in re.findall(r"\d{1,9}", version)[: len(wanted)])
    return bool(numbers) and numbers < wanted
