"""Options of the ports: where clients and operators connect, and how many are served."""

from __future__ import annotations

from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from router.config.base import SHORTEST_KEY, KeyedError, Model


class Cors(Model):
    """Which web pages may call the proxy from a browser."""

    origins: tuple[str, ...] = Field(
        (),
        max_length=256,
        description=(
            "Origins as browsers send them, such as https://app.example.com; `*` for any. With "
            "none, nothing is added and nothing that engines say about it is touched."
        ),
    )
    credentials: bool = Field(
        default=False,
        description="Whether these pages may send cookies and the like; not with `*`.",
    )
    max_age_s: int = Field(
        600, ge=0, le=86_400, description="How long browsers may remember the answer, in seconds."
    )

    @field_validator("origins")
    @classmethod
    def _plain_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            parts = urlsplit(origin)
            plain = parts.scheme and parts.netloc and origin == f"{parts.scheme}://{parts.netloc}"
            if origin != "*" and not (plain and origin.isascii() and origin.isprintable()):
                raise ValueError(f"{origin!r} must be * or scheme://host[:port], without a path")
        return value

    @model_validator(mode="after")
    def _no_credentials_for_all(self) -> Self:
        if self.credentials and "*" in self.origins:
            raise KeyedError("credentials", "the origins must be named then, not `*`")
        return self


class Listen(Model):
    """Where clients connect."""

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 for all.")
    port: int = Field(8080, ge=0, le=65535, description="Port; 0 picks a free one.")
    workers: int = Field(
        1,
        ge=1,
        le=64,
        description=(
            "Processes that share the port, one for each CPU to be used; more than one needs a "
            "store that they share."
        ),
    )
    max_body_bytes: int = Field(
        32 * 1024 * 1024,
        ge=1024,
        description="Largest request body accepted, in bytes; beyond it clients get 413.",
    )
    keepalive_s: float = Field(
        75.0,
        gt=0,
        le=86_400,
        description="After how long an idle client connection is closed, in seconds.",
    )
    max_buffered_bytes: int = Field(
        256 * 1024 * 1024,
        description=(
            "Most bytes of request bodies held in memory, all requests together; beyond it clients "
            "get 503. At least max_body_bytes."
        ),
    )
    drain_s: float = Field(
        30.0,
        ge=0,
        allow_inf_nan=False,
        description="After SIGTERM, how long running answers may take to finish, in seconds.",
    )
    drain_delay_s: float = Field(
        0.0,
        ge=0,
        le=3600,
        description=(
            "After SIGTERM, how long new requests are still taken while /ready says 503, in "
            "seconds; 5 where a load balancer has to notice. Ctrl-C skips it."
        ),
    )
    response_headers: bool = Field(
        default=True,
        description=(
            "Whether replies carry x-specroute-request-id, -pool, -method and -class, and refusals "
            "-reason."
        ),
    )
    cors: Cors = Field(
        default_factory=Cors, description="Which web pages may call the proxy from a browser."
    )

    @model_validator(mode="after")
    def _one_body_fits(self) -> Self:
        if self.max_buffered_bytes < self.max_body_bytes:
            raise KeyedError(
                "max_buffered_bytes",
                f"must be at least max_body_bytes ({self.max_body_bytes}), or the largest body "
                "could never be read",
            )
        return self


class Admission(Model):
    """How many requests each process serves at a time; see docs/admission.md."""

    max_concurrent: int = Field(
        4096,
        ge=1,
        le=1_000_000,
        description="Requests served at a time; the others wait. For each process.",
    )
    max_concurrent_per_tenant: int = Field(
        2048,
        ge=1,
        le=1_000_000,
        description="Requests of one tenant served at a time. For each process.",
    )
    max_waiting: int = Field(
        1024,
        ge=0,
        le=100_000,
        description="Requests that may wait, over all tenants; beyond it clients get 429.",
    )
    max_wait_s: float = Field(
        5.0,
        ge=0,
        le=300,
        description="Longest wait, in seconds; after it clients get 429. 0: nobody waits.",
    )


class Admin(Model):
    """Where operators connect: dashboard, /api/state, /metrics."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        max_length=255,
        description="Address; other machines get in only with a token.",
    )
    port: int = Field(8081, ge=0, le=65535, description="Port; 0 picks a free one.")
    token: SecretStr | None = Field(
        None,
        description=(
            "What everybody has to show, as `Authorization: Bearer …` or on the dashboard's first "
            "page; write ${NAME} to take it from the environment. Needed where host is no "
            "loopback address. Read at the start."
        ),
    )

    @field_validator("token")
    @classmethod
    def _hard_to_guess(cls, value: SecretStr | None) -> SecretStr | None:
        text = value.get_secret_value() if value is not None else "-" * SHORTEST_KEY
        if len(text) < SHORTEST_KEY or not text.isascii() or not text.isprintable() or " " in text:
            raise ValueError(
                f"must have at least {SHORTEST_KEY} characters, printable ASCII without spaces"
            )
        return value

    @model_validator(mode="after")
    def _no_open_door(self) -> Self:
        if self.token is None and self.host not in _LOOPBACK:
            raise KeyedError(
                "token",
                f"other machines reach {self.host}, so a token is needed; or write 127.0.0.1 as "
                "admin.host",
            )
        return self

    @property
    def shown_token(self) -> str | None:
        """The token in clear; None where nobody is asked for one."""
        return self.token.get_secret_value() if self.token is not None else None


_LOOPBACK = ("127.0.0.1", "::1", "localhost")
