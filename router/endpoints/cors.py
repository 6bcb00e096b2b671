"""Leave for pages of other origins to read answers, where the configuration gives it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from router.config.ports import Cors as CorsConfig
from router.types import Headers

_PREFIX = "access-control-"
_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"


@dataclass(frozen=True, slots=True)
class Cors:
    """Answers preflights and adds headers, as `listen.cors` says."""

    origins: frozenset[str]
    """As browsers send them, such as `https://app.example.com`; `*` for any."""
    credentials: bool = False
    max_age_s: int = 600

    @classmethod
    def configured(cls, config: CorsConfig) -> Cors | None:
        """By the configuration; None where nothing is to be added."""
        if not config.origins:
            return None
        return cls(frozenset(config.origins), config.credentials, config.max_age_s)

    def preflight(self, method: str, headers: Headers) -> Headers | None:
        """Headers of the answer 204 to a preflight; None where the request is none.

        A preflight from an origin without leave is answered too, but gives no leave.
        """
        if method != "OPTIONS" or _first(headers, "access-control-request-method") is None:
            return None
        leave = self._leave(headers)
        if not leave:
            return (("Vary", "Origin"),)
        asked = _first(headers, "access-control-request-headers")
        more = [("Access-Control-Allow-Headers", asked)] if asked else []
        return (
            *leave,
            ("Access-Control-Allow-Methods", _METHODS),
            *more,
            ("Access-Control-Max-Age", str(self.max_age_s)),
        )

    def answered(self, request: Headers, answer: Headers) -> Headers:
        """An answer's headers with our leave in place of the engine's."""
        kept = tuple(line for line in answer if not line[0].lower().startswith(_PREFIX))
        leave = self._leave(request)
        if not leave:
            return (*kept, ("Vary", "Origin"))
        return (*kept, *leave, ("Access-Control-Expose-Headers", "*"))

    def _leave(self, headers: Headers) -> Headers:
        origin = _first(headers, "origin")
        if origin is None or not ("*" in self.origins or origin in self.origins):
            return ()
        if self.credentials:
            # With credentials a browser takes no wildcard.
            return (
                ("Access-Control-Allow-Origin", origin),
                ("Access-Control-Allow-Credentials", "true"),
                ("Vary", "Origin"),
            )
        if "*" in self.origins:
            return (("Access-Control-Allow-Origin", "*"),)
        return (("Access-Control-Allow-Origin", origin), ("Vary", "Origin"))


def _first(headers: Headers, name: str) -> str | None:
    return next((value for key, value in headers if key.lower() == name), None)
