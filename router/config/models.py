"""Every option, declared once: type, default, limits and description.

The annotated file `config/specroute.yaml`, its JSON Schema and `docs/configuration.md` are
generated from these models (`router.config.reference`); a test compares them.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from router.config.patterns import check_pattern

EngineName = Literal["llamacpp", "vllm", "generic"]

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]

HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")]

SHORTEST_KEY = 16
"""Characters of a key that cannot be guessed."""


class Model(BaseModel):
    """Base of all: immutable, and a key nobody knows is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        validate_by_name=False,
        serialize_by_alias=True,
    )


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
        description="Whether replies carry x-specroute-request-id, -pool, -method and -class.",
    )


class Admin(Model):
    """Where operators connect: status page, /api/state, /metrics."""

    host: Literal["127.0.0.1", "::1", "localhost"] = Field(
        "127.0.0.1", description="Loopback only: the admin port has no authentication yet."
    )
    port: int = Field(8081, ge=0, le=65535, description="Port; 0 picks a free one.")


class Store(Model):
    """Where counters live between processes and restarts."""

    url: str = Field(
        "embedded:",
        repr=False,  # it may hold a password
        description=(
            "`embedded:` starts a private Valkey server; `redis://host:6379/0`, `rediss://…` and "
            "`unix:///path.sock` use yours; `memory:` keeps everything in this process."
        ),
    )
    directory: str = Field(
        ".specroute/store",
        description="Data folder of the embedded server; created when missing.",
    )
    prefix: Name = Field("specroute", description="First part of every key.")
    timeout_s: float = Field(
        1.0, gt=0, le=30, description="Limit of each call to the store, in seconds."
    )
    flush_interval_s: float = Field(
        0.25, gt=0, le=10, description="How often finished requests are added, in seconds."
    )
    refresh_interval_s: float = Field(
        1.0, gt=0, le=60, description="How often estimates are read back, in seconds."
    )

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        known = ("embedded:", "memory:", "redis://", "rediss://", "unix://")
        if not value.startswith(known):
            raise ValueError(f"must begin with one of {', '.join(known)}")
        return value

    @property
    def shown_url(self) -> str:
        """The URL without user, password and options: what may be displayed."""
        scheme, separator, rest = self.url.partition("://")
        return scheme + separator + rest.partition("?")[0].rpartition("@")[2]


class Estimates(Model):
    """How the past is weighed."""

    window_s: int = Field(
        3600, ge=60, le=86_400, description="How far back estimates look, in seconds."
    )
    half_life_s: float = Field(
        900.0,
        gt=0,
        description="Age at which an observation counts half for the policy, in seconds.",
    )
    tail_limit: float = Field(
        1.10,
        ge=1,
        description="Largest p95 ratio to the baseline that still counts as no harm to the tail.",
    )


class When(Model):
    """What must hold of a request; everything that is given, together."""

    header: dict[HeaderName, str] = Field(
        default_factory=dict,
        max_length=8,
        description="Patterns by header name; one line of that name must contain a match.",
    )
    path: str | None = Field(
        None, description="Path, such as /v1/completions; `*` stands for any text."
    )
    model: str | None = Field(
        None, description="Name of the model asked for; `*` stands for any text."
    )
    system_prompt: str | None = Field(
        None,
        description=(
            "Pattern (RE2 syntax) that the first 2048 characters of the system prompt must contain."
        ),
    )
    tool: str | None = Field(
        None, description="Name of a tool that is offered; `*` stands for any text."
    )

    @field_validator("system_prompt")
    @classmethod
    def _usable_pattern(cls, value: str | None) -> str | None:
        if value is not None:
            check_pattern(value)
        return value

    @field_validator("header")
    @classmethod
    def _usable_patterns(cls, value: dict[str, str]) -> dict[str, str]:
        for name, pattern in value.items():
            try:
                check_pattern(pattern)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return value

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.header and not any((self.path, self.model, self.system_prompt, self.tool)):
            raise ValueError(
                "must hold a condition: header, path, model, system_prompt or tool, and not empty"
            )
        return self


class ClassRule(Model):
    """Puts the requests of which something holds into a class."""

    class_id: Name = Field(
        alias="class", description="Class of the requests: a built-in one, or one of your own."
    )
    when: When = Field(description="What must hold of them, all of it together.")


class Classify(Model):
    """How requests are told apart; see docs/classes.md."""

    rules: tuple[ClassRule, ...] = Field(
        (), max_length=100, description="Rules that settle the class; the first that holds wins."
    )
    weights: str | None = Field(
        None,
        description=(
            "Weights made by `specroute classify train`; null for those that come with Specroute."
        ),
    )
    sessions: int = Field(
        10_000,
        ge=0,
        le=1_000_000,
        description="Sessions whose last class is remembered, in memory only; 0 for none.",
    )
    segments: int = Field(
        64,
        ge=0,
        le=1024,
        description="Applications told apart at a time, for each route; 0 for none.",
    )
    segment_key: SecretStr | None = Field(
        None,
        description=(
            "Key of the hashes that stand for applications; write ${NAME} to take it from the "
            "environment. null for a random one that the store keeps."
        ),
    )

    @field_validator("segment_key")
    @classmethod
    def _hard_to_guess(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < SHORTEST_KEY:
            raise ValueError(f"must have at least {SHORTEST_KEY} characters")
        return value


class Reload(Model):
    """When this file is read again; SIGHUP and `specroute reload` ask for it at any time."""

    poll_s: float = Field(
        2.0,
        ge=0,
        le=3600,
        description=(
            "How often this file is looked at, in seconds; a change is applied once the file has "
            "been still for so long. 0 for never."
        ),
    )


class DecisionLog(Model):
    """One JSON line per decision, without any text of prompts or answers."""

    path: str | None = Field(
        None, description="File to append to; null for none. It is created with mode 0600."
    )


class Replica(Model):
    """One server of a pool."""

    url: str = Field(description="Base URL without /v1, such as http://10.0.0.5:8000.")

    @field_validator("url")
    @classmethod
    def _plain_base(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        if value.rstrip("/").endswith("/v1"):
            raise ValueError("must not end in /v1: the path of the request is added to it")
        parts = urlsplit(value)
        if not parts.hostname or parts.port == 0:
            raise ValueError("must name a host, and a port above 0 if any")
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError("must not hold a user, a query or a fragment; keys go into api_key")
        return value.rstrip("/")


class Timeouts(Model):
    """Limits of one try at a replica, in seconds."""

    connect_s: float = Field(5.0, gt=0, allow_inf_nan=False, description="To connect.")
    idle_s: float = Field(
        600.0,
        gt=0,
        allow_inf_nan=False,
        description="Between two reads from the engine, the first one included.",
    )


class Pool(Model):
    """Servers that decode in the same way: one arm of the policy."""

    name: Name = Field(description="Name of the pool: shown everywhere, kept in the store.")
    method: Name = Field(
        description=(
            "Speculative method: none, ngram, suffix, draft_model, medusa, eagle, eagle2, eagle3, "
            "mtp, dflash, dspark, or a name of your own."
        )
    )
    engine: EngineName = Field(
        "generic",
        description="Engine behind it; decides what can be asked and read about acceptance.",
    )
    num_speculative_tokens: int | None = Field(
        None, ge=1, le=256, description="Configured draft length k, where there is one."
    )
    lossless: bool = Field(
        default=True,
        description="False when the pool's settings may change the text (typical acceptance …).",
    )
    api_key: SecretStr | None = Field(
        None,
        description=(
            "Sent as `Authorization: Bearer …` instead of the client's own; write ${NAME} to take "
            "it from the environment."
        ),
    )
    replicas: tuple[Replica, ...] = Field(min_length=1, description="Servers of the pool.")
    timeouts: Timeouts = Field(default_factory=Timeouts, description="Limits of one try.")

    @field_validator("api_key")
    @classmethod
    def _one_header_line(cls, value: SecretStr | None) -> SecretStr | None:
        text = value.get_secret_value() if value is not None else "-"
        if not text or not text.isascii() or not text.isprintable() or text != text.strip():
            raise ValueError(
                "must be printable ASCII, not empty, without spaces or line ends around it"
            )
        return value


class Policy(Model):
    """How traffic is shared out."""

    name: str = Field("thompson", description="fixed, rules or thompson.")
    parameters: dict[str, object] = Field(
        default_factory=dict, description="Parameters of that policy; see docs/policies.md."
    )


class Route(Model):
    """One model name, served by several pools."""

    model: str = Field(min_length=1, max_length=256, description="Name clients ask for.")
    baseline: Name = Field(description="Pool that decodes plainly: the concurrent control.")
    allow_lossy: bool = Field(
        default=False, description="Whether pools with `lossless: false` may be used."
    )
    policy: Policy = Field(default_factory=Policy, description="How its traffic is shared out.")
    pools: tuple[Pool, ...] = Field(min_length=1, description="Pools that serve the model.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [pool.name for pool in self.pools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"pool name used twice: {', '.join(twice)}")
        if self.baseline not in names:
            raise ValueError(
                f"baseline {self.baseline!r} is not one of the pools ({', '.join(names)})"
            )
        return self


class Config(Model):
    """The whole file."""

    listen: Listen = Field(default_factory=Listen, description="Where clients connect.")
    admin: Admin = Field(default_factory=Admin, description="Where operators connect.")
    store: Store = Field(default_factory=Store, description="Where what is learned is kept.")
    estimates: Estimates = Field(default_factory=Estimates, description="How the past is weighed.")
    classify: Classify = Field(default_factory=Classify, description="How requests are told apart.")
    decision_log: DecisionLog = Field(
        default_factory=DecisionLog, description="Whether decisions are written to a file."
    )
    reload: Reload = Field(default_factory=Reload, description="When this file is read again.")
    routes: tuple[Route, ...] = Field(min_length=1, description="Models and their pools.")

    @model_validator(mode="after")
    def _workers_share_a_store(self) -> Self:
        if self.listen.workers > 1 and self.store.url.startswith("memory:"):
            raise ValueError(
                f"store.url: `memory:` cannot be shared by {self.listen.workers} workers; write "
                "`embedded:` or the URL of a server, or set listen.workers to 1"
            )
        return self

    @model_validator(mode="after")
    def _one_route_a_model(self) -> Self:
        models = [route.model for route in self.routes]
        twice = sorted({model for model in models if models.count(model) > 1})
        if twice:
            raise ValueError(f"model served by two routes: {', '.join(twice)}")
        return self
