"""Options of servers: where they are, how long they are waited for, and their health."""

from __future__ import annotations

from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from router.config.base import KeyedError, Model
from router.config.hosts import why_no_host


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
        why = why_no_host(parts.hostname)
        if why is not None:
            raise ValueError(why)
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
        description=(
            "From a request's last byte to its answer's head; whole answers come then, whatever "
            "total_s says."
        ),
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
        description=(
            "From a request's last byte to its answer's end, however well it goes on; null for no "
            "limit."
        ),
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

    @field_validator("name")
    @classmethod
    def _can_be_looked_up(cls, value: str) -> str:
        why = why_no_host(value)
        if why is not None:
            raise ValueError(why)
        return value

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        if self.type == "A" and self.port is None:
            raise KeyedError("port", "is required with type A")
        if self.type == "SRV" and self.port is not None:
            raise KeyedError("port", "must be left out with type SRV, whose records tell it")
        if self.type == "A" and self.scheme == "https":
            raise KeyedError("scheme", "https needs type SRV: no certificate names an address")
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
            "vllm, sglang, tensorrt_llm and lmdeploy, none with the others."
        ),
    )
