"""Which server has seen the beginning of a request before: its cache may still hold it.

Nothing but hashes is kept: Python's own, whose key is drawn anew in each process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from router.types import ParsedRequest

_BLOCK = 2048
"""Characters of a block; a message ends one too."""
_TOKENS = 512
"""Tokens of a block, where a prompt comes as their numbers."""
_MOST_BLOCKS = 32
"""Told apart by; what follows makes no difference to where a request is best placed."""
_HOLDERS = 4
"""Servers remembered by block. A block that more have seen, such as a common system prompt, says
little about any of them."""


def prefix_of(request: ParsedRequest) -> tuple[int, ...]:
    """Hashes of the beginnings of a conversation, or of another prompt, the longest one last.

    Each stands for everything up to the end of its block. At most the first 64 KiB of text count.
    """
    fields = request.fields
    prefix: list[int] = []
    for key in ("instructions", "system"):
        text = fields.get(key)
        if text:
            _add(prefix, key, text)
    messages = fields.get("messages")
    if messages is None:
        messages = fields.get("input")
    if isinstance(messages, list) and messages and isinstance(messages[0], dict):
        for message in messages:
            if len(prefix) >= _MOST_BLOCKS:
                break
            if isinstance(message, dict):
                role = message.get("role")
                _add(prefix, role if isinstance(role, str) else "", message.get("content"))
    else:
        prompt = fields.get("prompt")
        _add(prefix, "prompt", messages if prompt is None else prompt)
    return tuple(prefix)


def _add(prefix: list[int], role: str, content: Any) -> None:
    """Adds the blocks of one message."""
    if isinstance(content, str):
        _add_blocks(prefix, role, content, _BLOCK, hash)
    elif isinstance(content, list) and content:
        if isinstance(content[0], int):
            _add_blocks(prefix, role, content, _TOKENS, _hash_tokens)
            return
        for part in content[: _MOST_BLOCKS - len(prefix)]:
            _add(prefix, role, _text_of(part))
    elif prefix:
        # A turn without text, such as a call of a tool, still comes between its neighbours.
        prefix.append(hash((prefix[-1], role)))


def _add_blocks(
    prefix: list[int], role: str, content: Any, size: int, hashed: Callable[[Any], int]
) -> None:
    before = hash((prefix[-1] if prefix else 0, role))
    if len(content) <= size:
        prefix.append(hash((before, hashed(content))))
        return
    for start in range(0, min(len(content), size * (_MOST_BLOCKS - len(prefix))), size):
        before = hash((before, hashed(content[start : start + size])))
        prefix.append(before)


def _hash_tokens(tokens: list[Any]) -> int:
    return hash(tuple(token if isinstance(token, int) else 0 for token in tokens))


def _text_of(part: Any) -> Any:
    """What a part of a message says or where it points; tokens where it consists of them."""
    if isinstance(part, str):
        return part
    if isinstance(part, list) and part and isinstance(part[0], int):
        return part
    if not isinstance(part, dict):
        return None
    for key in ("text", "image_url", "input_audio", "source"):
        value = part.get(key)
        if isinstance(value, dict):
            value = value.get("url") or value.get("data")
        if isinstance(value, str):
            return value
    return None


@dataclass(slots=True)
class _Block:
    """Who has seen it, the latest first, and when that was last."""

    holders: tuple[int, ...]
    seen: float


class AffinityTable:
    """The blocks that the servers of one pool have seen, the oldest forgotten first.

    Servers are told apart by their life: a number that a server which comes back, with nothing
    left in its cache, gets anew.

    Args:
        capacity: Most blocks remembered; 0 for none.
        forget_s: Age at which a block is worth nothing any more, falling in a straight line.
    """

    def __init__(self, capacity: int, forget_s: float) -> None:
        self._capacity = capacity
        self._forget_s = forget_s
        self._blocks: dict[int, _Block] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def match(
        self, prefix: tuple[int, ...], alive: Mapping[int, object], now: float
    ) -> tuple[tuple[int, ...], float]:
        """Who of the living has seen most of a prefix, and how much that is worth in [0, 1]."""
        blocks = self._blocks
        for depth in range(len(prefix), 0, -1):
            block = blocks.get(prefix[depth - 1])
            if block is None:
                continue
            fresh = 1.0 - (now - block.seen) / self._forget_s
            if fresh <= 0.0:
                continue
            holders = tuple([life for life in block.holders if life in alive])
            if holders:
                return holders, fresh * depth / len(prefix)
        return (), 0.0

    def keep(self, prefix: tuple[int, ...], life: int, now: float) -> None:
        """A server gets a request with this prefix."""
        blocks = self._blocks
        for key in prefix:
            block = blocks.pop(key, None)
            if block is None:
                block = _Block((life,), now)
            else:
                holders = block.holders
                if holders[0] != life:
                    others = [other for other in holders if other != life]
                    block.holders = (life, *others[: _HOLDERS - 1])
                block.seen = now
            blocks[key] = block
        while len(blocks) > self._capacity:
            del blocks[next(iter(blocks))]
