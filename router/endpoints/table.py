"""The one table of what a path is. Pure; whoever serves requests looks everything up here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal
from urllib.parse import unquote

from router.endpoints.anthropic import Anthropic
from router.endpoints.dialect import Dialect
from router.endpoints.openai import Llama, OpenAI, Other
from router.endpoints.responses import Responses
from router.errors import Reason, RequestError, quoted
from router.types import Endpoint, Headers

OPENAI = OpenAI()
LLAMA = Llama()
RESPONSES = Responses()
ANTHROPIC = Anthropic()
OTHER = Other()


class ServedBy(StrEnum):
    """Who decides where a request goes."""

    POLICY = "policy"
    """It generates text, so the arm makes a difference."""
    BALANCER = "balancer"
    """Any server of the route's baseline will do."""
    HERE = "here"
    """This process answers it."""


class ModelIn(StrEnum):
    """Where a request names its model."""

    BODY = "body"
    """In the JSON member `model`, which must be there."""
    BODY_IF_ANY = "body_if_any"
    """In the JSON member or the form field `model`; without it the only route is meant."""
    PATH = "path"
    """In the last segment."""
    NOWHERE = "nowhere"
    """The only route is meant, or the first one."""


Body = Literal["json", "multipart", "any", "none"]
"""What a body is; of `any` only what calls itself JSON or a form is looked at."""


@dataclass(frozen=True, slots=True)
class EndpointFacts:
    """What a path is."""

    endpoint: Endpoint
    """Label in metrics and logs."""
    paths: tuple[str, ...]
    """As written, or with one `{name}` for a part of any text."""
    methods: frozenset[str]
    dialect: Dialect
    served_by: ServedBy
    body: Body
    model_in: ModelIn

    @property
    def speculates(self) -> bool:
        """Whether the policy chooses the arm."""
        return self.served_by is ServedBy.POLICY


class MethodNotAllowedError(RequestError):
    """A method that a path does not have."""

    def __init__(self, method: str, path: str, allowed: frozenset[str]) -> None:
        self.allowed = ", ".join(sorted(allowed))
        """Value of the header `Allow`."""
        super().__init__(
            Reason.METHOD_NOT_ALLOWED,
            f"{quoted(method)[1:-1]} is not allowed on {quoted(path)[1:-1]}; "
            f"allowed: {self.allowed}.",
        )


_POST = frozenset(("POST",))
_GET = frozenset(("GET", "HEAD"))
_ANY = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"))


def _generates(endpoint: Endpoint, dialect: Dialect, *paths: str) -> EndpointFacts:
    return EndpointFacts(
        endpoint=endpoint,
        paths=paths or (endpoint.value,),
        methods=_POST,
        dialect=dialect,
        served_by=ServedBy.POLICY,
        body="json",
        model_in=ModelIn.BODY_IF_ANY if dialect is LLAMA else ModelIn.BODY,
    )


def _balanced(
    endpoint: Endpoint,
    *paths: str,
    methods: frozenset[str] = _POST,
    dialect: Dialect = OTHER,
    body: Body = "json",
    model_in: ModelIn = ModelIn.BODY_IF_ANY,
) -> EndpointFacts:
    return EndpointFacts(
        endpoint=endpoint,
        paths=paths or (endpoint.value,),
        methods=methods,
        dialect=dialect,
        served_by=ServedBy.BALANCER,
        body=body,
        model_in=model_in,
    )


def _here(endpoint: Endpoint, model_in: ModelIn = ModelIn.NOWHERE) -> EndpointFacts:
    return EndpointFacts(
        endpoint=endpoint,
        paths=(endpoint.value,),
        methods=_GET,
        dialect=OTHER,
        served_by=ServedBy.HERE,
        body="none",
        model_in=model_in,
    )


_STORED = Endpoint.STORED_RESPONSE.value

TABLE: tuple[EndpointFacts, ...] = (
    _generates(Endpoint.CHAT, OPENAI),
    _generates(Endpoint.COMPLETIONS, OPENAI),
    _generates(Endpoint.RESPONSES, RESPONSES),
    _generates(Endpoint.MESSAGES, ANTHROPIC),
    _generates(Endpoint.LLAMA_COMPLETION, LLAMA, "/completion", "/completions"),
    _generates(Endpoint.LLAMA_INFILL, LLAMA),
    _balanced(
        Endpoint.STORED_RESPONSE,
        _STORED,
        f"{_STORED}/cancel",
        f"{_STORED}/input_items",
        methods=frozenset(("GET", "HEAD", "POST", "DELETE")),
        dialect=RESPONSES,
        body="any",
        model_in=ModelIn.NOWHERE,
    ),
    _balanced(Endpoint.COUNT_TOKENS, dialect=ANTHROPIC, model_in=ModelIn.BODY),
    _balanced(Endpoint.EMBEDDINGS, model_in=ModelIn.BODY),
    _balanced(Endpoint.RERANK, "/v1/rerank", "/rerank", "/v2/rerank", "/v1/reranking"),
    _balanced(Endpoint.SCORE, "/v1/score", "/score"),
    _balanced(Endpoint.POOLING, "/pooling", "/v1/pooling"),
    _balanced(Endpoint.CLASSIFY, "/classify", "/v1/classify"),
    _balanced(Endpoint.TOKENIZE, "/tokenize", "/v1/tokenize"),
    _balanced(Endpoint.DETOKENIZE, "/detokenize", "/v1/detokenize"),
    _balanced(Endpoint.TRANSCRIPTIONS, body="multipart"),
    _balanced(Endpoint.TRANSLATIONS, body="multipart"),
    _balanced(Endpoint.SPEECH),
    _balanced(
        Endpoint.IMAGES,
        "/v1/images/generations",
        "/v1/images/edits",
        "/v1/images/variations",
        body="any",
    ),
    _balanced(Endpoint.MODERATIONS),
    _here(Endpoint.MODELS),
    _here(Endpoint.MODEL, ModelIn.PATH),
    _here(Endpoint.HEALTH),
    _here(Endpoint.READY),
)

_REST = _balanced(Endpoint.OTHER, "/v1/{rest}", methods=_ANY, body="any")

_NOT_FOR_CLIENTS = frozenset(("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/loads"))
"""They show or change one server of a pool, behind the back of whoever runs it."""

_NOT_IN_A_PATH = re.compile(r"[\x00-\x1f\x7f\\]")

_EXACT = {path: facts for facts in TABLE for path in facts.paths if "{" not in path}


def _templates() -> Iterator[tuple[str, str, EndpointFacts]]:
    for facts in TABLE:
        for path in facts.paths:
            before, opening, rest = path.partition("{")
            if opening:
                yield before, rest.partition("}")[2], facts


# Longer endings first: `/cancel` is no part of an id.
_TEMPLATES = tuple(sorted(_templates(), key=lambda template: -len(template[1])))

FACTS: dict[Endpoint, EndpointFacts] = {facts.endpoint: facts for facts in (*TABLE, _REST)}


def look_up(method: str, path: str) -> EndpointFacts:
    """What a request asks for.

    Args:
        method: As in the request line.
        path: As in the request line, without the query.

    Raises:
        RequestError: Nothing is served there, or not by this method.
    """
    facts = _EXACT.get(path) or _find(path)
    if facts is None:
        hint = f" Did you mean /v1{path}? Base URLs end in /v1." if f"/v1{path}" in _EXACT else ""
        raise RequestError(Reason.UNKNOWN_PATH, f"Unknown path: {quoted(path)[1:-1]}.{hint}")
    if method not in facts.methods:
        raise MethodNotAllowedError(method, path, facts.methods)
    return facts


def part_of(facts: EndpointFacts, path: str) -> str:
    """What stands for `{name}` in a path, decoded; empty where there is no such part.

    >>> part_of(FACTS[Endpoint.MODEL], "/v1/models/org%2Fmodel")
    'org/model'
    """
    decoded = unquote(path)
    for before, after, found in _TEMPLATES:
        if found is facts and _fits(decoded, before, after):
            return decoded[len(before) : len(decoded) - len(after)]
    return ""


def dialect_of(path: str, headers: Headers) -> Dialect:
    """The dialect in which a client understands errors, whatever is wrong with its request."""
    facts = _EXACT.get(path) or _find(path)
    if facts is not None and facts.dialect is not OTHER:
        return facts.dialect
    if any(name.lower() == "anthropic-version" for name, _ in headers):
        return ANTHROPIC
    return OTHER


def _find(path: str) -> EndpointFacts | None:
    decoded = unquote(path)
    exact = _EXACT.get(decoded)
    if exact is not None:
        return exact
    if not decoded.startswith("/v1/") or "#" in path or _strays(decoded):
        return None  # servers cut a path off at the first "#", as if it were a page's address
    for before, after, facts in _TEMPLATES:
        if _fits(decoded, before, after) and (
            facts.model_in is ModelIn.PATH or "/" not in decoded[len(before) : -len(after) or None]
        ):
            return facts
    return _REST


def _fits(path: str, before: str, after: str) -> bool:
    return path.startswith(before) and path.endswith(after) and len(path) > len(before) + len(after)


def _strays(path: str) -> bool:
    """Whether a server that tidies paths up could take this one for another than we do."""
    return (
        path.removesuffix("/") in _NOT_FOR_CLIENTS
        # Starlette takes a line end after a path for nothing, others end a text at NUL.
        or _NOT_IN_A_PATH.search(path) is not None
        or any(part in {"", ".", ".."} for part in path.removesuffix("/").split("/")[1:])
        or path == "/v1/"
    )
