"""Errors in each engine's shape and words, as recorded where recordings show them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

import orjson

from router.simfleet.answer import Asked, Door
from router.simfleet.settings import EngineSettings, Kind
from router.simfleet.wire.events import DONE, dump

_CALLED = {
    400: "BadRequestError",
    404: "NotFoundError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
}


@dataclass(frozen=True, slots=True)
class Complaint:
    """One error."""

    status: int
    body: bytes
    extra: tuple[tuple[str, str], ...] = ()
    bare: bool = False
    """Answered before the middleware that adds headers."""


class Complaints(Protocol):
    """What an engine says when it cannot do what was asked."""

    def bad_json(self, body: bytes) -> Complaint:
        """The body is no JSON."""

    def missing(self, name: str, body: dict[str, Any]) -> Complaint:
        """A field that must be there."""

    def no_number(self, name: str, value: object) -> Complaint:
        """A field that must be a number."""

    def overflow(self, prompt_tokens: int) -> Complaint:
        """The prompt is longer than the context."""

    def unauthorized(self) -> Complaint:
        """No key, or a wrong one."""

    def not_found(self) -> Complaint:
        """No such path."""

    def method(self, allowed: str) -> Complaint:
        """Not with this method."""

    def other(self, status: int, message: str) -> Complaint:
        """Any other error."""

    def refused(self, asked: Asked, body: dict[str, Any]) -> Complaint | None:
        """What this engine does not do, if it is asked for."""

    def in_stream(self, message: str) -> bytes:
        """An error after the head of a stream has been sent."""


class _Uvicorn:
    """What vLLM and SGLang have in common."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings

    def unauthorized(self) -> Complaint:
        """See `Complaints`."""
        return Complaint(401, dump({"error": "Unauthorized"}), bare=True)

    def not_found(self) -> Complaint:
        """See `Complaints`."""
        return Complaint(404, dump({"detail": "Not Found"}))

    def method(self, allowed: str) -> Complaint:
        """See `Complaints`."""
        return Complaint(405, dump({"detail": "Method Not Allowed"}), (("allow", allowed),))


class VllmComplaints(_Uvicorn):
    """vLLM's."""

    def _error(self, status: int, message: str, kind: str, param: str | None) -> Complaint:
        told = {"message": message, "type": kind, "param": param, "code": status}
        return Complaint(status, dump({"error": told}))

    def _invalid(self, where: str, detail: str) -> Complaint:
        return self._error(400, f"1 validation error:\n  {detail}", "Bad Request", where)

    def bad_json(self, body: bytes) -> Complaint:
        """See `Complaints`."""
        at, why = _json_error(body)
        return self._invalid(
            f"body.{at}",
            f"{{'type': 'json_invalid', 'loc': 'body.{at}', 'msg': 'JSON decode error', "
            f"'input': '<dict of 0 items>', 'ctx': {{'error': '{why}'}}}}",
        )

    def missing(self, name: str, body: dict[str, Any]) -> Complaint:
        """See `Complaints`."""
        return self._invalid(
            f"body.{name}",
            f"{{'type': 'missing', 'loc': 'body.{name}', 'msg': 'Field required', "
            f"'input': '<dict of {len(body)} items>'}}",
        )

    def no_number(self, name: str, value: object) -> Complaint:
        """See `Complaints`."""
        return self._invalid(
            f"body.{name}",
            f"{{'type': 'float_parsing', 'loc': 'body.{name}', 'msg': 'Input should be a valid "
            f"number, unable to parse string as a number', 'input': {value!r}}}",
        )

    def overflow(self, prompt_tokens: int) -> Complaint:
        """See `Complaints`."""
        del prompt_tokens  # it stops counting once there are too many
        limit = self._settings.context
        message = (
            f"This model's maximum context length is {limit} tokens. However, your prompt contains "
            f"at least {limit + 1} input tokens, which exceeds this limit even without any output "
            "tokens. Please reduce the length of the input prompt. "
            f"(parameter=input_tokens, value={limit + 1})"
        )
        return self._error(400, message, "BadRequestError", "input_tokens")

    def other(self, status: int, message: str) -> Complaint:
        """See `Complaints`."""
        kind = _CALLED.get(status, HTTPStatus(status).phrase)
        return self._error(status, message, kind, None)

    def refused(self, asked: Asked, body: dict[str, Any]) -> Complaint | None:
        """See `Complaints`."""
        model, limit = self._settings.model, self._settings.context
        if asked.model and asked.model != model:
            message = f"The model `{asked.model}` does not exist. Valid aliases: {model}."
            return self._error(404, message, "NotFoundError", "model")
        if asked.max_tokens and asked.max_tokens > limit:
            message = (
                f"max_tokens={asked.max_tokens} cannot be greater than max_model_len={limit}. "
                "Please request fewer output tokens. "
                f"(parameter=max_tokens, value={asked.max_tokens})"
            )
            return self._error(400, message, "BadRequestError", "max_tokens")
        if self._settings.speculates and (body.get("min_p") or body.get("logit_bias")):
            message = (
                "The min_p and logit_bias sampling parameters are not yet supported with "
                "speculative decoding."
            )
            return self._error(400, message, "BadRequestError", None)
        return None

    def in_stream(self, message: str) -> bytes:
        """See `Complaints`. It is written by another library than the rest, with spaces."""
        told = {"message": message, "type": "InternalServerError", "param": None, "code": 500}
        return b"data: " + json.dumps({"error": told}).encode() + b"\n\n"


class SglangComplaints(_Uvicorn):
    """SGLang's: the error is the whole object."""

    def _error(self, status: int, message: str, kind: str) -> Complaint:
        told = {"object": "error", "message": message, "type": kind, "param": None}
        return Complaint(status, dump(told | {"code": status}))

    def _invalid(self, detail: str) -> Complaint:
        message = (
            f"1 validation error:\n  {detail}\n\n"
            '  File "site-packages/sglang/srt/entrypoints/http_server.py", line 1870, in '
            f"openai_v1_chat_completions\n    POST /v1/chat/completions [{detail}]"
        )
        return self._error(400, message, "Bad Request")

    def bad_json(self, body: bytes) -> Complaint:
        """See `Complaints`."""
        at, why = _orjson_error(body)
        return self._invalid(
            f"{{'type': 'json_invalid', 'loc': ('body', {at}), 'msg': 'JSON decode error', "
            f"'input': {{}}, 'ctx': {{'error': '{why}'}}}}"
        )

    def missing(self, name: str, body: dict[str, Any]) -> Complaint:
        """See `Complaints`."""
        told = {**body, "tool_choice": body.get("tool_choice", "none")}
        return self._invalid(
            f"{{'type': 'missing', 'loc': ('body', '{name}'), 'msg': 'Field required', "
            f"'input': {told!r}}}"
        )

    def no_number(self, name: str, value: object) -> Complaint:
        """See `Complaints`."""
        return self._invalid(
            f"{{'type': 'float_parsing', 'loc': ('body', '{name}'), 'msg': 'Input should be a "
            f"valid number, unable to parse string as a number', 'input': {value!r}}}"
        )

    def overflow(self, prompt_tokens: int) -> Complaint:
        """See `Complaints`."""
        limit = self._settings.context
        message = (
            f"The input ({prompt_tokens} tokens) is longer than the model's context length "
            f"({limit} tokens)."
        )
        return self._error(400, message, "BadRequestError")

    def other(self, status: int, message: str) -> Complaint:
        """See `Complaints`."""
        return self._error(status, message, _CALLED.get(status, HTTPStatus(status).phrase))

    def refused(self, asked: Asked, body: dict[str, Any]) -> Complaint | None:
        """See `Complaints`."""
        del body
        if asked.meta_info and asked.stream:
            return self._error(400, "return_meta_info needs stream=false", "BadRequestError")
        return None

    def in_stream(self, message: str) -> bytes:
        """See `Complaints`."""
        told = {"object": "error", "message": message, "type": "InternalServerError"}
        return b"data: " + dump({"error": told | {"param": None, "code": 500}}) + b"\n\n"


class LlamaComplaints:
    """llama.cpp's."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings

    def _error(self, status: int, message: str, kind: str, **more: int) -> Complaint:
        told = {"code": status, "message": message, "type": kind, **more}
        return Complaint(status, dump({"error": told}))

    def _server(self, status: int, message: str, kind: str) -> Complaint:
        """What the HTTP server says itself has its members in another order."""
        return Complaint(
            status, dump({"error": {"message": message, "type": kind, "code": status}})
        )

    def bad_json(self, body: bytes) -> Complaint:
        """See `Complaints`. Only for bodies that end too soon the words are the engine's."""
        message = (
            f"[json.exception.parse_error.101] parse error at line 1, column {len(body) + 1}: "
            "syntax error while parsing object key - unexpected end of input; expected string "
            "literal"
        )
        return self._error(400, message, "invalid_request_error")

    def missing(self, name: str, body: dict[str, Any]) -> Complaint:
        """See `Complaints`."""
        del body
        return self._error(400, f"'{name}' is required", "invalid_request_error")

    def no_number(self, name: str, value: object) -> Complaint:
        """See `Complaints`."""
        called = {str: "string", bool: "boolean", list: "array", dict: "object"}
        kind = called.get(type(value), "null")
        message = (
            f"Field '{name}': [json.exception.type_error.302] type must be number, but is {kind}"
        )
        return self._error(400, message, "invalid_request_error")

    def overflow(self, prompt_tokens: int) -> Complaint:
        """See `Complaints`."""
        limit = self._settings.context
        message = (
            f"request ({prompt_tokens} tokens) exceeds the available context size ({limit} tokens)"
            ", try increasing it"
        )
        more = {"n_prompt_tokens": prompt_tokens, "n_ctx": limit}
        return self._error(400, message, "exceed_context_size_error", **more)

    def unauthorized(self) -> Complaint:
        """See `Complaints`."""
        return self._server(401, "Invalid API Key", "authentication_error")

    def not_found(self) -> Complaint:
        """See `Complaints`."""
        return self._server(404, "File Not Found", "not_found_error")

    def method(self, allowed: str) -> Complaint:
        """See `Complaints`."""
        del allowed
        return self.not_found()

    def other(self, status: int, message: str) -> Complaint:
        """See `Complaints`."""
        kind = "unavailable_error" if status == HTTPStatus.SERVICE_UNAVAILABLE else "server_error"
        return self._server(status, message, kind)

    def refused(self, asked: Asked, body: dict[str, Any]) -> Complaint | None:
        """See `Complaints`. It does all that simulated engines know."""
        del asked, body
        return None

    def in_stream(self, message: str) -> bytes:
        """See `Complaints`."""
        told = {"code": 500, "message": message, "type": "server_error"}
        return b"data: " + dump({"error": told}) + b"\n\n"


def complaints_of(settings: EngineSettings) -> Complaints:
    """Those of the engine's kind."""
    made: dict[Kind, type[VllmComplaints | SglangComplaints | LlamaComplaints]] = {
        Kind.VLLM: VllmComplaints,
        Kind.SGLANG: SglangComplaints,
        Kind.LLAMACPP: LlamaComplaints,
    }
    return made[settings.kind](settings)


def anthropic(complaint: Complaint) -> Complaint:
    """The same error in the shape that Messages has."""
    told = orjson.loads(complaint.body)
    inner = told.get("error", told)
    message = inner.get("message", "") if isinstance(inner, dict) else str(inner)
    kind = "invalid_request_error" if complaint.status < 500 else "api_error"  # noqa: PLR2004
    body = {"type": "error", "error": {"type": kind, "message": message}}
    return Complaint(complaint.status, dump(body), complaint.extra, complaint.bare)


def required(door: Door) -> str:
    """The field without which there is no prompt."""
    named = {Door.COMPLETIONS: "prompt", Door.RESPONSES: "input", Door.GENERATE: "text"}
    return named.get(door, "messages")


def dying_stream(complaints: Complaints) -> list[bytes]:
    """How a stream of vLLM ends when its engine dies."""
    message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
    return [complaints.in_stream(message), DONE]


def _json_error(body: bytes) -> tuple[int, str]:
    try:
        json.loads(body)
    except json.JSONDecodeError as error:
        return error.pos, error.msg
    except UnicodeDecodeError as error:
        return error.start, "invalid utf-8"
    return 0, ""


def _orjson_error(body: bytes) -> tuple[int, str]:
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return error.pos, error.msg.partition(": line ")[0]
    return 0, ""
