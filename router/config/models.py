"""Every option, declared once: type, default, limits and description.

The annotated file `config/specroute.yaml`, its JSON Schema and `docs/configuration.md` are
generated from these models (`router.config.reference`); a test compares them.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from router.config.patterns import check_pattern

EngineName = Literal["llamacpp", "vllm", "sglang", "tensorrt_llm", "lmdeploy", "gateway", "generic"]

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
            raise ValueError("credentials: must name the origins, not `*`")
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
            raise ValueError(
                f"max_buffered_bytes ({self.max_buffered_bytes}) must be at least max_body_bytes "
                f"({self.max_body_bytes}), or the largest body could never be read"
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
            raise ValueError(
                f"admin.token: other machines reach {self.host}, so a token is needed; or write "
                "127.0.0.1"
            )
        return self

    @property
    def shown_token(self) -> str | None:
        """The token in clear; None where nobody is asked for one."""
        return self.token.get_secret_value() if self.token is not None else None


_LOOPBACK = ("127.0.0.1", "::1", "localhost")

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
        description="Limit of each call to the store, in seconds; to add and read sums up to eight "
        "times as long after it was silent.",
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


class Replica(Model):
    """One server of a pool."""

    url: str = Field(description="Base URL without /v1, such as http://10.0.0.5:8000.")
    weight: float = Field(
        1.0,
        gt=0,
        le=1000,
        description="Share of the pool's load that it should carry, relative to the others.",
    )

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
    """Limits of one try at a replica: in seconds, and one in bytes."""

    connect_s: float = Field(5.0, gt=0, allow_inf_nan=False, description="To connect.")
    header_s: float = Field(
        600.0,
        gt=0,
        allow_inf_nan=False,
        description="From a request's last byte to its answer's head; whole answers come then.",
    )
    first_content_s: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="From a request's last byte to a stream's first content; null for no limit.",
    )
    idle_s: float = Field(
        600.0,
        gt=0,
        allow_inf_nan=False,
        description="Between two reads of an answer's body.",
    )
    total_s: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="For a whole answer, however well it goes on; null for no limit.",
    )
    max_stream_bytes: int | None = Field(
        None,
        ge=1024,
        description=(
            "Largest body of an answer, in bytes; beyond it a stream ends with an error, any other "
            "answer is cut. null for no limit."
        ),
    )


class DnsDiscovery(Model):
    """Servers behind a name in DNS."""

    name: str = Field(
        min_length=1,
        max_length=253,
        description="Name to look up, such as vllm.default.svc.cluster.local.",
    )
    type: Literal["A", "SRV"] = Field(
        "A", description="A takes all IPv4 and IPv6 addresses; SRV takes hosts, ports and weights."
    )
    port: int | None = Field(
        None, ge=1, le=65535, description="Port of the servers; with SRV the records tell it."
    )
    scheme: Literal["http", "https"] = Field(
        "http", description="https needs SRV, whose records name hosts that certificates can name."
    )

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        if self.type == "A" and self.port is None:
            raise ValueError("port: is required with type A")
        if self.type == "SRV" and self.port is not None:
            raise ValueError("port: must be left out with type SRV, whose records tell it")
        if self.type == "A" and self.scheme == "https":
            raise ValueError("scheme: https needs type SRV: no certificate names an address")
        return self


class Discover(Model):
    """How a pool's servers are found where they are not listed; one of `dns` and `file`."""

    dns: DnsDiscovery | None = Field(None, description="By DNS.")
    file: str | None = Field(
        None,
        min_length=1,
        description="In a file: a YAML or JSON list of URLs, read again whenever it changes.",
    )
    interval_s: float = Field(5.0, gt=0, le=3600, description="Between two looks, in seconds.")
    timeout_s: float = Field(5.0, gt=0, le=60, description="Limit of a look, in seconds.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.dns is None) == (self.file is None):
            raise ValueError("must hold either dns or file")
        return self


class Breaker(Model):
    """When a server that fails is left alone, and for how long."""

    failures: int = Field(
        3, ge=1, le=1000, description="Failed requests in a row that open the breaker."
    )
    failure_ratio: float = Field(
        0.5, gt=0, le=1, description="Share of failed requests over the window that opens it."
    )
    window_s: float = Field(30.0, gt=0, le=3600, description="Length of that window, in seconds.")
    least_requests: int = Field(
        10,
        ge=1,
        le=10_000,
        description="Requests of the window below which the share says nothing.",
    )
    open_s: float = Field(
        1.0,
        gt=0,
        le=3600,
        description="How long it stays open at first, in seconds; twice as long each time again.",
    )
    open_cap_s: float = Field(
        60.0, gt=0, le=3600, description="How long it stays open at most, in seconds."
    )
    probes: int = Field(
        1,
        ge=1,
        le=100,
        description="Requests that then try the server at a time; as many must succeed to close.",
    )


class Health(Model):
    """How it is told that a server should get no requests; see docs/balancing.md."""

    interval_s: float = Field(
        2.0, gt=0, le=3600, description="Between two probes of a server, in seconds."
    )
    timeout_s: float = Field(2.0, gt=0, le=60, description="Limit of a probe, in seconds.")
    down_after: int = Field(
        2,
        ge=1,
        le=100,
        description="Probes failed in a row that take a server out; one refused connection does.",
    )
    up_after: int = Field(
        1, ge=1, le=100, description="Probes in a row that a server must answer to come back."
    )
    stall_s: float = Field(
        120.0,
        gt=0,
        le=86_400,
        description=(
            "A server that sends nothing on any of its streams for so long is suspect, in seconds."
        ),
    )
    stall_requests: int = Field(
        2, ge=1, le=10_000, description="Streams that must have waited that long for it."
    )
    cool_s: float = Field(
        1.0,
        gt=0,
        le=3600,
        description="How long a busy server (429, 503) rests that names no time, in seconds.",
    )
    cool_cap_s: float = Field(
        30.0, gt=0, le=3600, description="How long it rests at most, whatever it says, in seconds."
    )
    breaker: Breaker = Field(
        default_factory=Breaker, description="When a server that fails is left alone."
    )


class Balance(Model):
    """How requests are shared out between the servers of a pool; see docs/balancing.md."""

    queue: float = Field(
        2.0,
        ge=0,
        le=1000,
        description="Requests that one waiting at the engine counts as, beyond its own one.",
    )
    kv: float = Field(
        8.0, ge=0, le=1000, description="Requests that a full key-value cache counts as."
    )
    affinity: float = Field(
        0.5,
        ge=0,
        le=0.9,
        description="Share of a server's cost that a wholly cached prompt saves; 0 for none.",
    )
    affinity_blocks: int = Field(
        32_768,
        ge=0,
        le=4_194_304,
        description="Blocks of prompts remembered, about 250 bytes each; 0 for none.",
    )
    affinity_s: float = Field(
        600.0, gt=0, le=86_400, description="Age at which a block is forgotten, in seconds."
    )
    slow_start_s: float = Field(
        10.0,
        ge=0,
        le=3600,
        description="How long the share of a server grows that has come (back), in seconds.",
    )
    scrape_s: float | None = Field(
        None,
        ge=0,
        le=3600,
        description=(
            "Between two readings of an engine's /metrics, in seconds; 0 for none. null for 2 with "
            "vLLM, none else."
        ),
    )


KNOWN_METHODS = (
    "none",
    "ngram",
    "suffix",
    "draft_model",
    "medusa",
    "eagle",
    "eagle2",
    "eagle3",
    "mtp",
    "dflash",
    "dspark",
)
"""Names to keep to; another one is no error, for methods to come."""


class Pool(Model):
    """Servers that decode in the same way: one arm of the policy."""

    name: Name = Field(description="Name of the pool: shown everywhere, kept in the store.")
    method: Name = Field(
        description=(f"Speculative method: {', '.join(KNOWN_METHODS)}, or a name of your own.")
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
    replicas: tuple[Replica, ...] = Field(
        (), description="Servers of the pool, unless `discover` finds them."
    )
    discover: Discover | None = Field(
        None, description="How its servers are found, instead of `replicas`."
    )
    timeouts: Timeouts = Field(default_factory=Timeouts, description="Limits of one try.")
    health: Health = Field(
        default_factory=Health, description="How it is told that a server should get no requests."
    )
    balance: Balance = Field(
        default_factory=Balance, description="How requests are shared out between its servers."
    )

    @model_validator(mode="after")
    def _servers_from_one_place(self) -> Self:
        if bool(self.replicas) == (self.discover is not None):
            raise ValueError("must name its servers in one way: by replicas, or by discover")
        urls = [replica.url for replica in self.replicas]
        twice = sorted({url for url in urls if urls.count(url) > 1})
        if twice:
            raise ValueError(f"replica listed twice: {', '.join(twice)}")
        return self

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

    name: str = Field(
        "net_gain",
        description=(
            "net_gain, linear, thompson, epsilon_greedy, ucb, exp3, rules or fixed; see "
            "docs/policies.md."
        ),
    )
    parameters: dict[str, object] = Field(
        default_factory=dict, description="Parameters of that policy; see docs/policies.md."
    )


class Sentinel(Model):
    """Whether answers are compared with the baseline's; see docs/quality.md."""

    share: float = Field(
        0.0,
        ge=0,
        le=1,
        description=(
            "Share of the greedy requests (temperature 0) of speculative pools that is asked of "
            "the baseline again, in the background; 0 for none. Their text is kept nowhere."
        ),
    )
    max_cost: float = Field(
        0.02,
        ge=0,
        le=1,
        description="Time that this may take, as a share of the time of all answers of the route.",
    )
    max_load: int = Field(
        2,
        ge=1,
        le=1000,
        description=(
            "Most requests at a server of the baseline, this one included, at which it is asked."
        ),
    )
    quarantine: bool = Field(
        default=True,
        description=(
            "Whether a pool gets no more requests of a class in which its answers are found to be "
            "damaged more often than the baseline's."
        ),
    )
    quarantine_s: float | None = Field(
        86_400.0,
        gt=0,
        le=30 * 86_400,
        description=(
            "How long at first, in seconds; twice as long each time in a row. null for until it "
            "is lifted."
        ),
    )


class Route(Model):
    """One model name, served by several pools."""

    model: str = Field(min_length=1, max_length=256, description="Name clients ask for.")
    aliases: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] = Field(
        (),
        max_length=64,
        description="Other names for it; servers are asked by the route's own one.",
    )
    baseline: Name = Field(description="Pool that decodes plainly: the concurrent control.")
    allow_lossy: bool = Field(
        default=False, description="Whether pools with `lossless: false` may be used."
    )
    hedge_s: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description=(
            "When a speculative pool has sent nothing for so long, in seconds, the baseline is "
            "asked too; who answers first serves, and the other is cancelled. null for never."
        ),
    )
    keepalive_comment_s: float | None = Field(
        None,
        ge=0.05,
        allow_inf_nan=False,
        description=(
            "When the client of a stream has got nothing for so long, in seconds, it is sent a "
            "comment, which settles the status as 200: later errors come as events. null for never."
        ),
    )
    policy: Policy = Field(default_factory=Policy, description="How its traffic is shared out.")
    sentinel: Sentinel = Field(
        default_factory=Sentinel, description="Whether its answers are watched for damage."
    )
    pools: tuple[Pool, ...] = Field(min_length=1, description="Pools that serve the model.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        models = (self.model, *self.aliases)
        repeated = sorted({name for name in models if models.count(name) > 1})
        if repeated:
            raise ValueError(f"name of the model given twice: {', '.join(repeated)}")
        names = [pool.name for pool in self.pools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"pool name used twice: {', '.join(twice)}")
        if self.baseline not in names:
            raise ValueError(
                f"baseline {self.baseline!r} is not one of the pools ({', '.join(names)})"
            )
        return self


class Tenant(Model):
    """Somebody who asks, and what it is entitled to; see docs/tenants.md."""

    id: Name = Field(description="What it is called; `anonymous` is everybody who is not known.")
    group: str = Field(
        "", max_length=64, description="Tenants of one group are addressed together."
    )
    pools: tuple[Name, ...] = Field(
        (), description="Pools it may use besides the baseline; none listed: all."
    )
    methods: tuple[Name, ...] = Field(
        (), description="Speculative methods it may use; none listed: all."
    )
    lossless_only: bool = Field(
        default=False, description="Never a pool with `lossless: false`, whatever its route allows."
    )
    explore: bool = Field(
        default=True,
        description="Whether its requests are drawn; else they go where the policy prefers.",
    )
    policy: Policy | None = Field(None, description="Decides for it instead of the route's.")
    pool: Name | None = Field(None, description="Everything goes to this pool while it can.")
    may_choose: bool = Field(
        default=False,
        description="Whether x-specroute-class and x-specroute-pool of its requests count.",
    )
    max_concurrent: int | None = Field(
        None, ge=1, le=1_000_000, description="Requests served at a time, over all processes."
    )
    tokens_per_minute: int | None = Field(
        None, ge=1, description="Prompt and completion tokens, over all processes."
    )
    holdout: float | None = Field(
        None, ge=0, le=0.5, description="Instead of tenants.holdout; 0 for none."
    )
    sentinel: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Instead of the route's sentinel.share; 0: its requests are never repeated.",
    )

    @field_validator("id")
    @classmethod
    def _not_the_rest(cls, value: str) -> str:
        if value == "other":
            raise ValueError("`other` stands for all tenants that are not told apart")
        return value


class Tenants(Model):
    """Who is known, and who is served; see docs/tenants.md."""

    known: tuple[Tenant, ...] = Field((), max_length=10_000, description="Tenants by name.")
    unknown: Literal["anonymous", "refuse"] = Field(
        "anonymous",
        description=(
            "What becomes of requests without a valid key: `anonymous` serves them, a tenant for "
            "each credential; `refuse` answers 401."
        ),
    )
    header: HeaderName | None = Field(
        None,
        description=(
            "Header in which a gateway in front names the tenant. Only where clients cannot reach "
            "this port past the gateway, and it removes the clients' own such lines. null: none."
        ),
    )
    holdout: float = Field(
        0.005,
        ge=0,
        le=0.5,
        description=(
            "Share of each tenant's sessions that stays on the baseline, by which the gain of the "
            "whole is measured; 0 for none."
        ),
    )

    @field_validator("known")
    @classmethod
    def _told_apart(cls, value: tuple[Tenant, ...]) -> tuple[Tenant, ...]:
        names = [tenant.id for tenant in value]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"tenant listed twice: {', '.join(twice)}")
        return value

    @field_validator("header")
    @classmethod
    def _no_credential(cls, value: str | None) -> str | None:
        if value is not None and value.lower() in ("authorization", "x-api-key"):
            raise ValueError("must not be a header that holds credentials")
        return value


class Config(Model):
    """The whole file."""

    listen: Listen = Field(default_factory=Listen, description="Where clients connect.")
    admin: Admin = Field(default_factory=Admin, description="Where operators connect.")
    admission: Admission = Field(
        default_factory=Admission,
        description="How many requests each process serves at a time.",
    )
    tenants: Tenants = Field(
        default_factory=Tenants, description="Who is known, and who is served."
    )
    speculation: bool = Field(
        default=True,
        description=(
            "false: the kill switch. All requests decode plainly, whatever is written elsewhere."
        ),
    )
    store: Store = Field(default_factory=Store, description="Where what is learned is kept.")
    estimates: Estimates = Field(default_factory=Estimates, description="How the past is weighed.")
    classify: Classify = Field(default_factory=Classify, description="How requests are told apart.")
    decision_log: DecisionLog = Field(
        default_factory=DecisionLog, description="Whether decisions are written to a file."
    )
    tracing: Tracing = Field(
        default_factory=Tracing, description="Whether traces of requests are sent to a collector."
    )
    reload: Reload = Field(default_factory=Reload, description="When this file is read again.")
    routes: tuple[Route, ...] = Field(min_length=1, description="Models and their pools.")

    @model_validator(mode="after")
    def _workers_share_a_store(self) -> Self:
        if self.listen.workers > 1 and self.store.url.startswith("memory:"):
            raise ValueError(
                f"store.url: `memory:` cannot be shared by {self.listen.workers} workers; write "
                "`embedded:` or the URL of a server, or ask for one (listen.workers, --workers)"
            )
        return self

    @model_validator(mode="after")
    def _one_route_a_model(self) -> Self:
        models = [name for route in self.routes for name in (route.model, *route.aliases)]
        twice = sorted({model for model in models if models.count(model) > 1})
        if twice:
            raise ValueError(f"routes: model served by two routes: {', '.join(twice)}")
        return self
