"""What structure a request demands of its answer, in the spellings of all engines. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from policies.values import value
from router.engines.base import choices_asked
from router.types import Endpoint, ParsedRequest

_DEMANDING = frozenset(
    (
        *("tools", "functions", "response_format", "text"),
        *("structured_outputs", "guided_json", "guided_choice", "guided_regex", "guided_grammar"),
        *("json_schema", "regex", "ebnf", "grammar"),
        *("output_config", "output_format"),
    )
)
"""Members one of which every demand has."""

_JSON_FORMATS = ("json_object", "json_schema", "json")
_NEVER = ("none",)
_ALWAYS = ("required", "any")
_NAMED = ("function", "tool", "custom")


@value
class Demand:
    """What an answer has to be."""

    json: bool = False
    """Its text is JSON."""
    object_only: bool = False
    """And an object."""
    required: tuple[str, ...] = ()
    """With these members."""
    choices: tuple[str, ...] = ()
    """Its text is one of these."""
    tools: Mapping[str, tuple[str, ...]] | None = None
    """Members that a call's arguments must have, by the tool's name; None where none is offered."""
    others: bool = False
    """Tools are offered of which nothing is known."""
    must_call: bool = False
    only: str | None = None
    """The one tool that must be called."""

    @property
    def optional(self) -> bool:
        """Whether plain text would do as well: tools are offered, and that is all."""
        offered = self.tools is not None or self.others
        return offered and not (self.must_call or self.json or self.choices)


def demands_structure(request: ParsedRequest) -> bool:
    """Whether its answer may be worth a look: cheap, for every request."""
    return not _DEMANDING.isdisjoint(request.fields)


def demand_of(request: ParsedRequest) -> Demand | None:
    """What a request demands; None where that is no structure, or several answers.

    What grammars and regular expressions demand is not looked at: to check it costs more than it
    tells, and an expression that a client wrote can take for ever.
    """
    if not demands_structure(request) or choices_asked(request) > 1:
        return None
    fields = request.fields
    tools, others, must_call, only = _tools(fields)
    schema = _schema(request)
    choices = _choices(fields)
    unchecked = any(fields.get(key) for key in ("guided_regex", "guided_grammar", "regex", "ebnf"))
    if tools is None and not others and schema is None and not choices:
        structured = fields.get("structured_outputs")
        other = unchecked or bool(fields.get("grammar")) or bool(structured)
        return Demand() if other or _kind(fields.get("response_format")) else None
    return Demand(
        json=schema is not None,
        object_only=schema is not None and schema.get("type") == "object",
        required=() if schema is None else _required(schema),
        choices=choices,
        tools=tools,
        others=others,
        must_call=must_call,
        only=only,
    )


# --- Text ----------------------------------------------------------------------------------------


def _schema(request: ParsedRequest) -> Mapping[str, Any] | None:
    """The schema of JSON that is demanded as text; an empty one where any will do."""
    fields = request.fields
    if request.endpoint is Endpoint.RESPONSES:
        text = fields.get("text")
        return _of_format(text.get("format")) if isinstance(text, Mapping) else None
    if request.endpoint is Endpoint.MESSAGES:
        config = fields.get("output_config")
        inner = config.get("format") if isinstance(config, Mapping) else None
        return _of_format(inner if inner is not None else fields.get("output_format"))
    found = _of_format(fields.get("response_format"))
    return _guided(fields) if found is None else found


def _guided(fields: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The same in the spellings that are an engine's own."""
    structured = fields.get("structured_outputs")
    if isinstance(structured, Mapping):
        if structured.get("json") is not None:
            return _as_schema(structured["json"])
        return {"type": "object"} if structured.get("json_object") is True else None
    for key in ("guided_json", "json_schema"):
        if fields.get(key) is not None:
            return _as_schema(fields[key])
    return None


def _kind(form: object) -> str | None:
    kind = form.get("type") if isinstance(form, Mapping) else None
    return kind if isinstance(kind, str) and kind != "text" else None


def _of_format(form: object) -> Mapping[str, Any] | None:
    kind = _kind(form)
    if kind not in _JSON_FORMATS or not isinstance(form, Mapping):
        return None
    inner = form.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, Mapping) else form.get("schema")
    if schema is None and kind == "json_object":
        return {"type": "object"}
    return _as_schema(schema)


def _as_schema(schema: object) -> Mapping[str, Any]:
    """A schema that is written as text, or that is none, says nothing but that it is JSON."""
    return schema if isinstance(schema, Mapping) else {}


def _required(schema: Mapping[str, Any]) -> tuple[str, ...]:
    names = schema.get("required")
    if schema.get("type") != "object" or not isinstance(names, list):
        return ()
    return tuple(name for name in names if isinstance(name, str))


def _choices(fields: Mapping[str, Any]) -> tuple[str, ...]:
    structured = fields.get("structured_outputs")
    found = structured.get("choice") if isinstance(structured, Mapping) else None
    if found is None:
        found = fields.get("guided_choice")
    return tuple(item for item in found if isinstance(item, str)) if isinstance(found, list) else ()


# --- Calls ---------------------------------------------------------------------------------------


def _tools(
    fields: Mapping[str, Any],
) -> tuple[Mapping[str, tuple[str, ...]] | None, bool, bool, str | None]:
    """Tools with what their arguments must have, whether others are there, and what must be."""
    choice = fields.get("tool_choice", fields.get("function_call"))
    kind = choice.get("type") if isinstance(choice, Mapping) else choice
    if kind in _NEVER:
        return None, False, False, None
    known: dict[str, tuple[str, ...]] = {}
    others = False
    for name, schema in _offered(fields):
        if name is None:
            others = True
        else:
            known[name] = _required(schema)
    only = _only(choice) if isinstance(choice, Mapping) else None
    offered = bool(known) or others
    return (known or None), others, offered and (kind in _ALWAYS or only is not None), only


def _offered(fields: Mapping[str, Any]) -> Iterator[tuple[str | None, Mapping[str, Any]]]:
    """Names of tools, None for those of which nothing is known, and schemas of their arguments."""
    for tool in _list(fields.get("tools")):
        if not isinstance(tool, Mapping):
            continue
        inner = tool.get("function")
        of = inner if isinstance(inner, Mapping) else tool
        name = of.get("name")
        schema = next(
            (of[key] for key in ("parameters", "input_schema") if isinstance(of.get(key), Mapping)),
            None,
        )
        plain = tool.get("type") == "function" or schema is not None
        yield (name, schema or {}) if plain and isinstance(name, str) else (None, {})
    for function in _list(fields.get("functions")):
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            yield function["name"], _as_schema(function.get("parameters"))


def _only(choice: Mapping[str, Any]) -> str | None:
    if choice.get("type") not in (*_NAMED, None):
        return None
    inner = choice.get("function")
    name = inner.get("name") if isinstance(inner, Mapping) else choice.get("name")
    return name if isinstance(name, str) else None


def _list(values: object) -> list[Any]:
    return values if isinstance(values, list) else []
