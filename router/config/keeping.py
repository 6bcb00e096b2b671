"""Options of what is kept, where, and told to whom: store, estimates, decisions, traces."""

from __future__ import annotations

from pydantic import Field, SecretStr, field_validator

from router.config.base import HeaderName, Model, Name

_STORES = (
    *("embedded:", "memory:", "redis://", "rediss://", "unix://"),
    *("redis+sentinel://", "rediss+sentinel://", "redis+cluster://", "rediss+cluster://"),
)


class Store(Model):
    """Where counters live between processes and restarts."""

    url: str = Field(
        "embedded:",
        repr=False,  # it may hold a password
        description=(
            "`embedded:` starts a private Valkey server; `redis://host:6379/0`, `rediss://…`, "
            "`unix:///path.sock`, `redis+sentinel://host:26379,host:26379/master/0` and "
            "`redis+cluster://host:6379,host:6379` use yours; `memory:` keeps everything in this "
            "process. See stores.md."
        ),
    )
    directory: str = Field(
        ".specroute/store",
        description="Data folder of the embedded server; created when missing.",
    )
    last_known: str | None = Field(
        None,
        description=(
            "Folder for copies of what operators have ordered, such as the kill switch, so that a "
            "process that starts while the store is away knows it; created when missing. Each "
            "store its own."
        ),
    )
    prefix: Name = Field("specroute", description="First part of every key.")
    timeout_s: float = Field(
        1.0,
        gt=0,
        le=30,
        description=(
            "Limit of each call to the store, in seconds; after timeouts, adding and reading sums "
            "may take up to eight times as long."
        ),
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
        if not value.startswith(_STORES):
            raise ValueError(f"must begin with one of {', '.join(_STORES)}")
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


class Tracing(Model):
    """OpenTelemetry traces of requests, without any text of prompts or answers."""

    endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^\s/]+",
        description=(
            "Where traces are sent by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces; "
            "null for none. Needs `pip install 'specroute[otel]'`."
        ),
    )
    headers: dict[HeaderName, SecretStr] = Field(
        default_factory=dict, description="Header lines for it, such as a credential."
    )
    sample_ratio: float = Field(
        1.0,
        ge=0,
        le=1,
        description=(
            "Share of the requests that is traced. Those that come with a `traceparent` go by what "
            "it says."
        ),
    )
    service_name: str = Field(
        "specroute", min_length=1, max_length=256, description="What traces call this proxy."
    )
