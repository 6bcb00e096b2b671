"""Names under which models are served: one for each route, and its aliases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from router.endpoints.table import ModelIn
from router.errors import Reason, RequestError, quoted
from router.types import Headers

_MOST_SHOWN = 16
_EPOCH = "1970-01-01T00:00:00Z"


class ModelNames:
    """The list of models, and which route a name means.

    Args:
        routes: Aliases by the name of the route.
    """

    def __init__(self, routes: Mapping[str, Sequence[str]]) -> None:
        self._routes = tuple(routes)
        self._known = {
            name: route for route, aliases in routes.items() for name in (route, *aliases)
        }

    @property
    def all(self) -> tuple[str, ...]:
        """Every name, in the order of the configuration, aliases after their route."""
        return tuple(self._known)

    def route(self, model: str) -> str:
        """The route that a name means.

        Raises:
            RequestError: There is none.
        """
        route = self._known.get(model)
        if route is None:
            raise self._unknown(model)
        return route

    def meant(self, model: str, model_in: ModelIn) -> str:
        """The route that a request means, which may name none where it need not.

        Raises:
            RequestError: There is none, or nobody could tell which.
        """
        if model or model_in is ModelIn.BODY:
            return self.route(model)
        if len(self._routes) > 1 and model_in is not ModelIn.NOWHERE:
            raise RequestError(
                Reason.INVALID_REQUEST,
                f"`model` must be given. Served: {self._shown()}.",
                param="model",
            )
        return self._routes[0]

    def list_body(self, headers: Headers) -> bytes:
        """What `GET /v1/models` answers, in the shape that the client's headers ask for."""
        if not _for_anthropic(headers):
            data = [_openai(name) for name in self._known]
            return orjson.dumps({"object": "list", "data": data})
        listed = [_anthropic(name) for name in self._known]
        return orjson.dumps(
            {
                "data": listed,
                "has_more": False,
                "first_id": listed[0]["id"] if listed else None,
                "last_id": listed[-1]["id"] if listed else None,
            }
        )

    def one_body(self, name: str, headers: Headers) -> bytes:
        """What `GET /v1/models/{model}` answers.

        Raises:
            RequestError: Nothing is served under this name.
        """
        if name not in self._known:
            raise self._unknown(name)
        return orjson.dumps(_anthropic(name) if _for_anthropic(headers) else _openai(name))

    def _unknown(self, model: str) -> RequestError:
        return RequestError(
            Reason.UNKNOWN_MODEL,
            f"The model {quoted(model)} is not served here. Served: {self._shown()}.",
            param="model",
        )

    def _shown(self) -> str:
        names = [quoted(name) for name in self.all[:_MOST_SHOWN]]
        return ", ".join(names) + (", …" if len(self.all) > _MOST_SHOWN else "")


def _for_anthropic(headers: Headers) -> bool:
    return any(name.lower() == "anthropic-version" for name, _ in headers)


def _openai(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "specroute"}


def _anthropic(name: str) -> dict[str, object]:
    return {"type": "model", "id": name, "display_name": name, "created_at": _EPOCH}
