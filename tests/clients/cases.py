"""What is asked of an engine with each client: directly, and through the proxy.

A case names a method of the client, its arguments, and the answer that the scripted engine gives.
OpenAI's clients for Python and Node take the same cases, word for word.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from router.demo.fleet import MODEL

LLAMA = MODEL
"""The route whose engine is llama.cpp, real or scripted."""
VLLM = "vllm-model"
"""The route whose engine is taken for vLLM, which has to be asked for its figures."""
EMBEDDINGS = "embeddings-model"
"""The route over an engine that embeds."""

HEADER = "x-case"
"""The request header that carries a case's name to the scripted engine and into the recording."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing a user does with a client."""

    name: str
    call: str
    """Dotted path of the method, or a helper that the driver knows."""
    arguments: dict[str, Any]
    answer: str
    """Of the scripted engine: a recording's path, or a name in `answers.WRITTEN`."""
    model: str = LLAMA
    fails: bool = False
    """Whether the client is to raise an error."""
    real: bool = True
    """Whether a real engine is asked too."""

    def for_driver(self) -> dict[str, Any]:
        """What a driver is told."""
        return {
            "name": self.name,
            "call": self.call,
            "model": self.model,
            "arguments": self.arguments,
        }


@dataclass(frozen=True, slots=True)
class _Cases:
    """Collects cases of one client, so that each stands in one line or a few."""

    made: list[Case] = field(default_factory=list)

    def add(
        self, name: str, call: str, answer: str, arguments: dict[str, Any], **more: Any
    ) -> None:
        self.made.append(Case(name, call, arguments, answer, **more))


QUESTION = [{"role": "user", "content": "Name the capital of France in one short sentence."}]
FOREIGN = [{"role": "user", "content": "سلام, 你好 😀: answer with one word."}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["C", "F"]}},
    "required": ["city", "unit"],
}
TOOL = {"name": "get_weather", "description": "Weather of a city.", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": TOOL}]
ANTHROPIC_TOOLS = [
    {"name": "get_weather", "description": "Weather of a city.", "input_schema": PARAMETERS}
]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
    "required": ["city", "country"],
    "additionalProperties": False,
}
JSON_SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "city", "strict": True, "schema": SCHEMA},
}
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJg"
    "gg=="
)
"""A PNG of one pixel."""
PICTURE = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {
                "type": "image_url",
                "image_url": {"url": f"data:image/png;base64,{PIXEL}", "detail": "low"},
            },
        ],
    }
]
TOOL_RESULT = [
    {"role": "user", "content": "What is the weather in Rome?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Rome", "unit": "C"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "21 degrees"},
]
LONG = [{"role": "user", "content": "word " * 5000}]

_LLAMA = "clients/recordings/llamacpp-b10434/ngram-simple"
_EMBED = "clients/recordings/llamacpp-b10434/embeddings"
_DRAFT = "wire/recordings/llamacpp-b10434/draft-simple"
_VLLM = "wire/recordings/vllm-0.32.0/ngram"
_TOOLS_WHOLE = "wire/recordings/llamacpp-b10434/draft-simple-tools/chat_tools_required"
_TOOLS_STREAM = "wire/recordings/vllm-0.32.0/ngram-tools/chat_tools_strict_required_stream"


def openai_cases() -> tuple[Case, ...]:
    """Cases of OpenAI's own clients."""
    cases = _Cases()
    chat: dict[str, Any] = {"messages": QUESTION, "temperature": 0, "max_tokens": 8}
    create = "chat.completions.create"
    cases.add("chat", create, f"{_DRAFT}/chat", chat)
    cases.add("chat_seed", create, f"{_DRAFT}/chat", {**chat, "temperature": 0.8, "seed": 7})
    cases.add("chat_foreign", create, f"{_DRAFT}/chat", {**chat, "messages": FOREIGN})
    cases.add("chat_stream", create, f"{_DRAFT}/chat_stream_no_usage", {**chat, "stream": True})
    with_usage = {**chat, "stream": True, "stream_options": {"include_usage": True}}
    cases.add("chat_stream_usage", create, f"{_DRAFT}/chat_stream", with_usage)
    cases.add("vllm_chat", create, f"{_VLLM}/chat", chat, model=VLLM, real=False)
    stream = {**chat, "stream": True}
    cases.add("vllm_stream", create, f"{_VLLM}/chat_stream", stream, model=VLLM, real=False)
    cases.add(
        "vllm_stream_usage", create, f"{_VLLM}/chat_stream", with_usage, model=VLLM, real=False
    )
    cases.add(
        "vllm_stream_continuous_usage",
        create,
        f"{_VLLM}/chat_stream_continuous_usage",
        {**stream, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        model=VLLM,
        real=False,
    )
    cases.add("stop", create, f"{_VLLM}/chat_stop", {**chat, "stop": ["France"]})
    cases.add("chat_n2", create, f"{_LLAMA}/chat_n2", {**chat, "n": 2})
    cases.add("chat_n2_stream", create, f"{_LLAMA}/chat_n2_stream", {**stream, "n": 2})
    logprobs = {**chat, "max_tokens": 5, "logprobs": True, "top_logprobs": 2}
    cases.add("logprobs", create, f"{_LLAMA}/chat_logprobs", logprobs)
    cases.add(
        "logprobs_stream", create, f"{_LLAMA}/chat_logprobs_stream", {**logprobs, "stream": True}
    )
    _tools(cases, chat)
    _structured(cases, chat)
    cases.add("vision", create, f"{_DRAFT}/chat", {**chat, "messages": PICTURE}, real=False)
    cases.add(
        "vision_stream",
        create,
        f"{_DRAFT}/chat_stream_no_usage",
        {**stream, "messages": PICTURE},
        real=False,
    )
    refused = {**chat, "messages": PICTURE}
    cases.add("vision_refused", create, f"{_LLAMA}/error_image", refused, fails=True)
    _completions(cases)
    _responses(cases)
    _others(cases)
    too_long = {**chat, "messages": LONG}
    cases.add("too_long", create, f"{_LLAMA}/error_context_overflow", too_long, fails=True)
    cases.add(
        "bad_type", create, f"{_LLAMA}/error_bad_type", {**chat, "max_tokens": "many"}, fails=True
    )
    cases.add("limited", create, "rate_limited", chat, fails=True, real=False)
    cases.add("engine_broken", create, "server_error", chat, fails=True, real=False)
    cases.add("error_event", create, "error_event", stream, fails=True, real=False)
    return tuple(cases.made)


def _tools(cases: _Cases, chat: dict[str, Any]) -> None:
    create = "chat.completions.create"
    tools = {**chat, "tools": TOOLS, "tool_choice": "auto"}
    cases.add("tools", create, _TOOLS_WHOLE, tools)
    cases.add("tools_stream", create, _TOOLS_STREAM, {**tools, "stream": True})
    cases.add(
        "vllm_tools_stream",
        create,
        _TOOLS_STREAM,
        {**tools, "stream": True},
        model=VLLM,
        real=False,
    )
    cases.add("tools_stream_helper", "chat.completions.stream", _TOOLS_STREAM, tools, real=False)
    cases.add("tool_result", create, f"{_DRAFT}/chat", {**chat, "messages": TOOL_RESULT})


def _structured(cases: _Cases, chat: dict[str, Any]) -> None:
    create = "chat.completions.create"
    schema = {**chat, "max_tokens": 40, "response_format": JSON_SCHEMA}
    json_object = {**chat, "max_tokens": 24, "response_format": {"type": "json_object"}}
    cases.add("json_object", create, f"{_LLAMA}/chat_json_schema", json_object)
    cases.add("json_schema", create, f"{_LLAMA}/chat_json_schema", schema)
    cases.add(
        "json_schema_stream",
        create,
        f"{_LLAMA}/chat_json_schema_stream",
        {**schema, "stream": True, "stream_options": {"include_usage": True}},
    )
    cases.add("parse", "chat.completions.parse", f"{_LLAMA}/chat_json_schema", schema)
    cases.add(
        "stream_helper", "chat.completions.stream", f"{_LLAMA}/chat_json_schema_stream", schema
    )


def _completions(cases: _Cases) -> None:
    create = "completions.create"
    plain = {"prompt": "One, two, three,", "max_tokens": 8, "temperature": 0}
    recorded = "wire/recordings/llamacpp-b10434/ngram-simple/completions"
    cases.add("completion", create, recorded, plain)
    cases.add(
        "completion_stream", create, f"{_LLAMA}/completions_stream", {**plain, "stream": True}
    )
    logprobs = {**plain, "max_tokens": 4, "logprobs": 2}
    cases.add("completion_logprobs", create, f"{_LLAMA}/completions_logprobs", logprobs)
    cases.add("completion_many", create, recorded, {**plain, "prompt": ["One, two,", "A, B,"]})


def _responses(cases: _Cases) -> None:
    create = "responses.create"
    plain = {"input": "Name the capital of France.", "max_output_tokens": 12, "temperature": 0}
    cases.add("response", create, f"{_LLAMA}/responses", plain)
    cases.add("response_stream", create, f"{_LLAMA}/responses_stream", {**plain, "stream": True})
    tools = {**plain, "tools": [{"type": "function", "strict": False, **TOOL}]}
    cases.add("response_tools", create, "response_tools", tools)
    cases.add(
        "response_tools_stream",
        create,
        "response_tools_stream",
        {**tools, "stream": True},
        real=False,
    )


def _others(cases: _Cases) -> None:
    embed = {"input": ["a", "你好"]}
    cases.add(
        "embeddings",
        "embeddings.create",
        f"{_EMBED}/embeddings",
        {**embed, "encoding_format": "float"},
        model=EMBEDDINGS,
    )
    cases.add(
        "embeddings_default",
        "embeddings.create",
        f"{_EMBED}/embeddings_base64",
        embed,
        model=EMBEDDINGS,
    )
    cases.add(
        "embeddings_refused",
        "embeddings.create",
        "not_supported",
        {**embed, "encoding_format": "float"},
        fails=True,
    )
    cases.add(
        "transcription",
        "audio.transcriptions.create",
        "transcription",
        {"language": "en"},
        real=False,
    )
    cases.add("tokenize", "post", f"{_LLAMA}/tokenize", {"path": "/tokenize", "content": "a b"})
    cases.add(
        "rerank",
        "post",
        "rerank",
        {"path": "/v1/rerank", "query": "a", "documents": ["b", "c"]},
        real=False,
    )


def anthropic_cases() -> tuple[Case, ...]:
    """Cases of Anthropic's client."""
    cases = _Cases()
    create = "messages.create"
    plain: dict[str, Any] = {"messages": QUESTION, "max_tokens": 12, "temperature": 0}
    cases.add("message", create, f"{_LLAMA}/messages", plain)
    cases.add("message_stream", create, f"{_LLAMA}/messages_stream", {**plain, "stream": True})
    system = {**plain, "system": [{"type": "text", "text": "Be brief."}]}
    cases.add("message_system", create, f"{_LLAMA}/messages", system)
    cases.add("message_stream_helper", "messages.stream", f"{_LLAMA}/messages_stream", plain)
    count = {"messages": QUESTION}
    cases.add("count_tokens", "messages.count_tokens", f"{_LLAMA}/messages_count_tokens", count)
    tools = {**plain, "tools": ANTHROPIC_TOOLS}
    cases.add("message_tools", create, "message_tools", tools)
    cases.add(
        "message_tools_stream",
        create,
        "message_tools_stream",
        {**tools, "stream": True},
        real=False,
    )
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    picture = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    cases.add(
        "message_vision", create, f"{_LLAMA}/messages", {**plain, "messages": picture}, real=False
    )
    cases.add("message_overloaded", create, "overloaded", plain, fails=True, real=False)
    cases.add(
        "message_error_event",
        create,
        "anthropic_error_event",
        {**plain, "stream": True},
        fails=True,
        real=False,
    )
    return tuple(cases.made)


def langchain_cases() -> tuple[Case, ...]:
    """Cases of LangChain's `ChatOpenAI` and `OpenAIEmbeddings`.

    `arguments` are those of the model; what it is asked is the driver's.
    """
    cases = _Cases()
    model: dict[str, Any] = {"temperature": 0, "max_tokens": 8}
    cases.add("invoke", "invoke", f"{_DRAFT}/chat", model)
    cases.add("stream", "stream", f"{_DRAFT}/chat_stream", {**model, "stream_usage": True})
    cases.add(
        "stream_no_usage",
        "stream",
        f"{_DRAFT}/chat_stream_no_usage",
        {**model, "stream_usage": False},
    )
    cases.add("vllm_invoke", "invoke", f"{_VLLM}/chat", model, model=VLLM, real=False)
    cases.add(
        "vllm_stream_no_usage",
        "stream",
        f"{_VLLM}/chat_stream",
        {**model, "stream_usage": False},
        model=VLLM,
        real=False,
    )
    cases.add("batch", "batch", f"{_DRAFT}/chat", model, real=False)
    cases.add("tools", "tools", _TOOLS_WHOLE, model)
    cases.add("tools_stream", "tools_stream", _TOOLS_STREAM, model, real=False)
    cases.add("structured", "structured", f"{_LLAMA}/chat_json_schema", {**model, "max_tokens": 40})
    cases.add(
        "logprobs",
        "invoke",
        f"{_LLAMA}/chat_logprobs",
        {**model, "logprobs": True, "top_logprobs": 2},
    )
    cases.add("many", "generate", f"{_LLAMA}/chat_n2", {**model, "n": 2})
    cases.add("vision", "vision", f"{_DRAFT}/chat", model, real=False)
    responses = {"temperature": 0, "max_tokens": 12, "use_responses_api": True}
    cases.add("responses", "invoke", f"{_LLAMA}/responses", responses)
    cases.add("responses_stream", "stream", f"{_LLAMA}/responses_stream", responses)
    cases.add("embeddings", "embed", f"{_EMBED}/embeddings_base64", {}, model=EMBEDDINGS)
    cases.add("limited", "invoke", "rate_limited", model, fails=True, real=False)
    return tuple(cases.made)
