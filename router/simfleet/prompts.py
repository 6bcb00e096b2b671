"""How a request becomes one for a step machine: its class, its lengths, what of it is cached.

Of prompts only lengths and hashes are kept, and hashes only in this process.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from policies.types import ClassId
from router.simfleet.answer import Asked, Door
from router.simfleet.asking import sampling_of
from router.simfleet.words import digest

CLASS_HEADER = "x-sim-class"
TEMPLATE_HEADER = "x-sim-template"
LANGUAGE_HEADER = "x-sim-language"
TOKENS_HEADER = "x-sim-output-tokens"
"""Hints for rehearsals, for which no real engine would have any use."""

Classify = Callable[[dict[str, Any]], ClassId]

_BYTES_PER_TOKEN = 4
_BLOCK_TOKENS = 16
_BLOCK = _BYTES_PER_TOKEN * _BLOCK_TOKENS
_MOST_BLOCKS = 200_000
_DEFAULT_LENGTH = (150.0, 0.7)
"""Median of an answer's tokens, and the sd of their logarithm."""
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Prompt:
    """What of a request decides how it runs."""

    class_id: ClassId
    language: str
    template: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    ends_by_itself: bool
    greedy: bool
    seed: int


def guess_class(body: dict[str, Any]) -> ClassId:
    """By what stands beside the text, which costs nothing."""
    if body.get("tools"):
        return ClassId("tool_call")
    if (body.get("response_format") or {}).get("type") in ("json_object", "json_schema"):
        return ClassId("structured")
    return ClassId("other")


class PrefixCache:
    """Beginnings of prompts that an engine has seen, in blocks."""

    def __init__(self, blocks: int = _MOST_BLOCKS) -> None:
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._most = blocks

    def seen(self, prompt: bytes) -> int:
        """Tokens of its beginning that were there before; from now on all of it is."""
        known, beginning, chain = 0, True, 0
        for at in range(0, len(prompt) - _BLOCK + 1, _BLOCK):
            chain = hash((chain, prompt[at : at + _BLOCK]))
            if chain in self._blocks:
                self._blocks.move_to_end(chain)
                known += beginning
            else:
                beginning = False
                self._blocks[chain] = None
        while len(self._blocks) > self._most:
            self._blocks.popitem(last=False)
        return known * _BLOCK_TOKENS

    def clear(self) -> None:
        """Forgets everything."""
        self._blocks.clear()


class Prompts:
    """Reads requests for one engine."""

    def __init__(
        self,
        *,
        seed: int = 0,
        classify: Classify = guess_class,
        lengths: Mapping[ClassId, tuple[float, float]] | None = None,
        context: int,
    ) -> None:
        """`lengths` are medians of answers' tokens and the sds of their logarithms, by class."""
        self._rng = np.random.default_rng(seed)
        self._classify = classify
        self._lengths = lengths or {}
        self._context = context
        self._seed = seed << 32
        self._number = 0
        self.cache = PrefixCache()

    def read(
        self,
        asked: Asked,
        body: dict[str, Any],
        headers: Mapping[str, str],
        tokens: int,
        text: bytes,
    ) -> Prompt:
        """One request; `tokens` and `text` are what `prompt_of` says."""
        self._number += 1
        class_id = ClassId(headers.get(CLASS_HEADER, "")) or self._classify(body)
        room = max(self._context - tokens, 1)
        limit = min(asked.max_tokens or _LONGEST, room)
        greedy = not (1.0 if asked.temperature is None else asked.temperature)
        # What is decoded greedily has one answer, whichever server gives it.
        seed = crc32(text) if greedy else self._seed + self._number
        wanted = self._wanted(class_id, body, headers, seed if greedy else None)
        cached = min(self.cache.seen(text), tokens - 1)
        return Prompt(
            class_id=class_id,
            language=headers.get(LANGUAGE_HEADER, ""),
            template=headers.get(TEMPLATE_HEADER) or _template(body),
            prompt_tokens=tokens,
            cached_tokens=max(cached, 0),
            output_tokens=min(wanted or limit, limit),
            ends_by_itself=wanted is not None and wanted <= limit,
            greedy=greedy,
            seed=seed,
        )

    def _wanted(
        self,
        class_id: ClassId,
        body: dict[str, Any],
        headers: Mapping[str, str],
        seed: int | None,
    ) -> int | None:
        """Tokens after which the model would end by itself; None where it may not."""
        if True in (body.get("ignore_eos"), sampling_of(body).get("ignore_eos")):
            return None
        hint = headers.get(TOKENS_HEADER, "")
        if hint.isdigit():
            return max(int(hint), 1)
        median, sd = self._lengths.get(class_id, _DEFAULT_LENGTH)
        rng = self._rng if seed is None else np.random.default_rng(seed)
        return max(round(median * math.exp(sd * rng.standard_normal())), 1)


def prompt_of(door: Door, body: dict[str, Any]) -> tuple[int, bytes]:
    """Tokens of a prompt, about, and its text for the hashes."""
    text = "\n".join(_texts(door, body)).encode()
    return max(-(-len(text) // _BYTES_PER_TOKEN), 1), text


def _texts(door: Door, body: dict[str, Any]) -> Iterator[str]:
    yield from _content(body.get("system") or body.get("instructions"))
    if door in (Door.COMPLETIONS, Door.GENERATE):
        yield from _content(body.get("prompt" if door is Door.COMPLETIONS else "text"))
        return
    given = body.get("input") if door is Door.RESPONSES else body.get("messages")
    if isinstance(given, str):
        yield given
        return
    for message in given or ():
        if isinstance(message, dict):
            yield str(message.get("role", ""))
            yield from _content(message.get("content"))


def _content(given: object) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    for part in given if isinstance(given, list) else ():
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


def _template(body: dict[str, Any]) -> str:
    """Stands for the application: requests of one have their system prompt in common."""
    first = next(iter(body.get("messages") or ()), None)
    system = body.get("system") or body.get("instructions")
    if isinstance(first, dict) and first.get("role") in ("system", "developer"):
        system = first.get("content")
    text = "\n".join(_content(system))
    return digest(text.encode()) if text else ""
