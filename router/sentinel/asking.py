"""Which requests can be asked again, and how that is done. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from router.endpoints.dialect import DONE, Dialect, json_object
from router.engines.base import choices_asked
from router.outputs.demand import demand_of
from router.outputs.said import Words, hear
from router.relay.sse import EventSplitter, event_data
from router.sentinel.compare import Repeat, Token, tokens_of
from router.types import Endpoint, ParsedRequest

MOST_BODY = 256 * 1024
"""Larger requests are not repeated: what waits is held in memory."""

MOST_ANSWER = 4 * 1024 * 1024
"""Bytes of an answer that is read."""

_ENDPOINTS = frozenset(
    (
        *(Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.MESSAGES, Endpoint.RESPONSES),
        Endpoint.LLAMA_COMPLETION,
    )
)
_LOGPROBS: Mapping[Endpoint, Mapping[str, Any]] = {
    Endpoint.CHAT: {"logprobs": True, "top_logprobs": 2},
    Endpoint.COMPLETIONS: {"logprobs": 2},
}
TELLS_LOGPROBS = frozenset(("vllm", "sglang", "llamacpp"))
"""Engines that are known to take the above."""

_KEPT_ELSEWHERE = ("previous_response_id", "conversation", "background")
"""Members of Responses by which a request reads or changes what its engine keeps."""


def repeatable(request: ParsedRequest) -> bool:
    """Whether asking again would have to give the same answer, and would change nothing.

    Greedy is what says so: an engine's own default is known to nobody here. What an engine does
    by itself besides (a search in the web, code) is not done twice.
    """
    fields = request.fields
    temperature = fields.get("temperature")
    if request.endpoint not in _ENDPOINTS or len(request.body) > MOST_BODY:
        return False
    if isinstance(temperature, bool) or temperature != 0 or choices_asked(request) > 1:
        return False
    if any(fields.get(name) for name in _KEPT_ELSEWHERE):
        return False
    demand = demand_of(request)
    return demand is None or not demand.others


def repeat_body(request: ParsedRequest, *, logprobs: bool) -> bytes | None:
    """The same request to be asked again; None where it cannot be written.

    It stays streamed or whole, since engines write arguments of tools differently in the two.

    Args:
        request: It.
        logprobs: Whether to ask for log probabilities too, where there is a way to.
    """
    fields = dict(request.fields)
    if request.endpoint is Endpoint.RESPONSES:
        fields["store"] = False
    if logprobs:
        fields |= _LOGPROBS.get(request.endpoint, {})
    try:
        return orjson.dumps(fields)
    except TypeError:  # half of a surrogate, or a number beyond all bounds
        return None


def read_repeat(dialect: Dialect, body: bytes, *, streamed: bool) -> Repeat | None:
    """What the baseline answered; None where that cannot be read."""
    words, tokens = Words(), list[Token]()
    for members in _events(body) if streamed else [json_object(body)]:
        if members is None:
            return None
        hear(dialect, words, members)
        choices = members.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
            tokens += tokens_of(choices[0])
    said = words.said()
    return None if said is None or said.finish is None else Repeat(said, tuple(tokens))


def _events(body: bytes) -> list[Mapping[str, Any] | None]:
    datas = map(event_data, EventSplitter(MOST_ANSWER + 2).feed(body + b"\n\n"))
    return [json_object(data) or {} for data in datas if data and data != DONE]
