"""What a request asks of its answer's shape, in each dialect and by each engine's fields."""

from __future__ import annotations

from typing import Any

from router.simfleet.answer import Asked, Door
from router.simfleet.settings import Kind

_LIMITS = {
    Door.CHAT: ("max_completion_tokens", "max_tokens", "n_predict"),
    Door.COMPLETIONS: ("max_tokens", "n_predict"),
    Door.RESPONSES: ("max_output_tokens",),
    Door.MESSAGES: ("max_tokens",),
    Door.GENERATE: ("max_new_tokens",),
}
_GRAMMARS = ("json_object", "json_schema")
_FORCED = ("required", "any")


def asked_of(door: Door, body: dict[str, Any], kind: Kind) -> Asked:
    """Reads a body whose members have the right types (see `complaints`)."""
    if door is Door.GENERATE:
        body = body | sampling_of(body)
    options = body.get("stream_options") or {}
    openai = door in (Door.CHAT, Door.COMPLETIONS)
    several = door is Door.CHAT or (openai and kind is not Kind.LLAMACPP)
    temperature = body.get("temperature")
    return Asked(
        door=door,
        model=str(body.get("model") or ""),
        stream=body.get("stream") is True,
        n=max(int(body.get("n") or 1), 1) if several else 1,
        max_tokens=_limit(door, body),
        temperature=None if temperature is None else float(temperature),
        include_usage=options.get("include_usage") is True,
        continuous_usage=options.get("continuous_usage_stats") is True,
        token_ids=kind is Kind.VLLM and body.get("return_token_ids") is True,
        spec_details=kind is Kind.SGLANG and body.get("return_spec_tokens_details") is True,
        meta_info=kind is Kind.SGLANG and body.get("return_meta_info") is True,
        timings_per_token=kind is Kind.LLAMACPP and body.get("timings_per_token") is True,
        grammar=(body.get("response_format") or {}).get("type") in _GRAMMARS,
        offers_tools=bool(body.get("tools")),
        tool=_tool(body) if door is Door.CHAT else None,
    )


def sampling_of(body: dict[str, Any]) -> dict[str, Any]:
    """What `/generate` has in a member of its own, the others beside everything else."""
    given = body.get("sampling_params")
    return given if isinstance(given, dict) else {}


def _limit(door: Door, body: dict[str, Any]) -> int | None:
    for name in _LIMITS[door]:
        value = body.get(name)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _tool(body: dict[str, Any]) -> str | None:
    """The tool that a request makes the model call; with `auto` a simulated model calls none."""
    choice = body.get("tool_choice")
    named = choice.get("function") if isinstance(choice, dict) else None
    if isinstance(named, dict) and isinstance(named.get("name"), str):
        return str(named["name"])
    if choice not in _FORCED:
        return None
    for tool in body.get("tools") or ():
        function = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            return str(function["name"])
    return None
