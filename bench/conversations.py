"""Conversations of a few applications, of any size; without meaning, and the same in every run."""

from __future__ import annotations

import random
from typing import Any, Final

import orjson

from router.types import Headers

MODEL: Final = "assistant-70b"
SEED: Final = 20261129
HEADERS: Final[Headers] = (
    ("Host", "localhost:8080"),
    ("Accept-Encoding", "gzip, deflate"),
    ("Connection", "keep-alive"),
    ("Accept", "application/json"),
    ("Content-Type", "application/json"),
    ("User-Agent", "OpenAI/Python 2.8.1"),
    ("X-Stainless-Lang", "python"),
    ("Authorization", "Bearer sk-0123456789abcdef0123456789abcdef"),
)
_PROSE: Final = (
    "the of and to a in is that for it as was with be by on not he his but at are this have from "
    "or had an they which one you were all her she there would their we him been has when who "
    "will no more if out so up said what its about than into them can only other time new some "
    "could these two may first then do any like my now over such our man me even most made after "
    "also well invoice server function order answer table report please customer value error list "
    "number between document section because request"
)
_WORDS: Final = tuple(_PROSE.split())
_ASKS: Final = (
    "Write a Python function that merges two sorted lists, with tests.",
    "Summarise the text above in five sentences.",
    "Translate the following paragraph into French, keeping the tone.",
    "Solve: if 3x + 7 = 25, what is x? Show each step.",
    "Extract name, date and amount from the invoice as JSON.",
    "Fix the bug in this function and explain it:\n```python\ndef f(x):\n  retrun x\n```",
    "Tell me a story about a lighthouse keeper and a storm.",
    "What does the handbook say about refunds of invoices paid in two parts?",
)
_PARTS: Final = {
    "temperature": 0.7, "max_tokens": 800, "stream": True, "top_p": 0.95,
}  # fmt: skip


def text(rng: random.Random, chars: int) -> str:
    """Prose of a length, without meaning."""
    words: list[str] = []
    left = chars
    while left > 0:
        word = rng.choice(_WORDS)
        words.append(f"{word.capitalize()}" if not words or words[-1].endswith(".") else word)
        if rng.random() < 1 / 14:
            words[-1] += "."
        left -= len(words[-1]) + 1
    return " ".join(words)[:chars]


def tool(rng: random.Random, name: str) -> dict[str, Any]:
    """A tool with two parameters."""
    properties = {
        key: {"type": "string", "description": text(rng, 40)} for key in ("query", "limit")
    }
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": text(rng, 60),
            "parameters": {"type": "object", "properties": properties, "required": ["query"]},
        },
    }


def bodies(size: int, count: int) -> list[bytes]:
    """Conversations of eight applications; every third offers tools."""
    rng = random.Random(SEED)
    systems = [f"You are the assistant of team {name}. " + text(rng, 420) for name in "abcdefgh"]
    made = []
    for number in range(count):
        app = number % len(systems)
        turns = min(3 + number % 4, 3 + size // 1000)
        body: dict[str, Any] = {"model": MODEL, **_PARTS}
        if app % 3 == 0:
            body["tools"] = [tool(rng, f"{systems[app][26]}_{name}") for name in ("find", "book")]
        messages = [{"role": "system", "content": systems[app]}]
        body["messages"] = messages
        left = max(100, size - len(orjson.dumps(body)) - 60 * turns)
        for turn in range(turns):
            role = "user" if (turns - turn) % 2 else "assistant"
            said = text(rng, left // turns)
            if turn == turns - 1:
                said = f"{said}\n\n{rng.choice(_ASKS)}"
            messages.append({"role": role, "content": said})
        made.append(orjson.dumps(body))
    return made
