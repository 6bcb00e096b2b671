"""Reads what routing needs from a request to any endpoint, and renames its model."""

from __future__ import annotations

from dataclasses import replace

import orjson

from router.endpoints.dialect import json_object
from router.endpoints.table import EndpointFacts, ModelIn, part_of
from router.engines.splice import set_member
from router.errors import Reason, RequestError, quoted
from router.intake.form import field_span, field_text
from router.intake.parse import parse_request
from router.types import Headers, ParsedRequest

NO_MODEL = ""
"""The request names none: the only route is meant."""

_FORM = "multipart/form-data"
_LARGEST_LOOK = 4 * 1024 * 1024
"""JSON of an unknown endpoint beyond this size is passed on without a look for its model."""


def read_request(
    facts: EndpointFacts, body: bytes, headers: Headers = (), *, path: str = ""
) -> ParsedRequest:
    """A typed view of a request; its bytes stay what is forwarded.

    Args:
        facts: What its path is.
        body: As it came, in no content coding.
        headers: As they came.
        path: As it came, without the query; needed where the model stands in it.

    Raises:
        RequestError: The body is no JSON object where one is due, or names no model where it must.
    """
    if facts.body == "json":
        try:
            return parse_request(
                facts.endpoint, body, headers, model_required=facts.model_in is ModelIn.BODY
            )
        except RequestError as error:
            coding = _value(headers, "content-encoding")
            if coding.strip().lower() in {"", "identity"}:
                raise
            raise RequestError(
                Reason.INVALID_REQUEST,
                f"The request body's content coding {quoted(coding)} cannot be undone here.",
            ) from error
    model = NO_MODEL
    if facts.model_in is ModelIn.PATH:
        model = part_of(facts, path)
    elif facts.model_in is ModelIn.BODY_IF_ANY:
        model = _model_in(body, _content_type(headers))
    return ParsedRequest(
        endpoint=facts.endpoint, body=body, fields={}, model=model, stream=False, headers=headers
    )


def with_model(request: ParsedRequest, model: str) -> ParsedRequest:
    """The same request under the name that servers know; every other byte stays where it was.

    A request that names no model stays without one.
    """
    if request.model == NO_MODEL or not request.body:
        return replace(request, model=model)
    body, fields = request.body, request.fields
    content_type = _content_type(request.headers)
    span = field_span(body, content_type, "model") if _kind(content_type) == _FORM else None
    if span is not None:
        body = b"".join((body[: span[0]], model.encode(), body[span[1] :]))
    else:
        body = set_member(body, "model", orjson.dumps(model), present=True)
        fields = {**fields, "model": model} if fields else fields
    return replace(request, body=body, fields=fields, model=model)


def _model_in(body: bytes, content_type: str) -> str:
    kind = _kind(content_type)
    if kind == _FORM:
        return field_text(body, content_type, "model") or NO_MODEL
    if kind == "application/json" or kind.endswith("+json"):
        members = json_object(body) if len(body) <= _LARGEST_LOOK else None
        model = members.get("model") if members else None
        return model if isinstance(model, str) else NO_MODEL
    return NO_MODEL


def _kind(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _content_type(headers: Headers) -> str:
    return _value(headers, "content-type")


def _value(headers: Headers, wanted: str) -> str:
    return next((value for name, value in headers if name.lower() == wanted), "")
