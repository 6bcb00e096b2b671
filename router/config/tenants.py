"""Options of tenants: who is known, and what they may."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from router.config.base import HeaderName, Model, Name
from router.config.routes import Policy


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
