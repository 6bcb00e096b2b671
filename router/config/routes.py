"""Options of routes: pools, policy, and what is watched."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from router.config.base import EngineName, KeyedError, Model, Name
from router.config.servers import Balance, Discover, Health, Replica, Timeouts

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
        description="Other names for it; servers are always sent the route's own name.",
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
            raise KeyedError("baseline", f"must name one of the pools ({', '.join(names)})")
        return self
