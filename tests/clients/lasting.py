"""What of an engine's answers stays the same when it is asked again."""

from __future__ import annotations

from typing import Any

DRAWN = {"id", "item_id", "call_id", "tool_call_id"}
TIMES = {"created", "created_at", "completed_at"}
CACHED = {"cached_tokens", "cache_n", "prompt_n", "cache_read"}
"""Depend on which of its two slots the engine takes, and so on what it was asked before."""


def lasting(value: Any) -> Any:
    """What an engine says again when it is asked again: no names, times, speeds or cache hits."""
    if isinstance(value, list):
        # Answers side by side come as the engine gets to them: each in its own order.
        return sorted((lasting(item) for item in value), key=_choice)
    if isinstance(value, dict):
        kept = {
            key: lasting(item)
            for key, item in value.items()
            if key not in DRAWN | TIMES | CACHED and not key.endswith(("_ms", "_per_second"))
        }
        if "cache_read_input_tokens" in kept:
            # Anthropic's dialect counts them apart, not among the others.
            counts = (kept.get("input_tokens"), kept.pop("cache_read_input_tokens"))
            kept["input_tokens"] = sum(count or 0 for count in counts)
        return kept
    # Rounding depends on how the tokens of a prompt are batched.
    return round(value, 3) if isinstance(value, float) else value


def _choice(item: Any) -> int:
    """Which of several answers an event belongs to; -1 for what is no such event."""
    choices = item.get("choices") if isinstance(item, dict) else None
    return int(choices[0].get("index", -1)) if choices else -1
