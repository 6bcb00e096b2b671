"""What a route consists of; immutable, built from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from policies.types import Arm, ArmId
from router.config.models import Config
from router.config.routes import Pool, Route
from router.engines.base import EngineAdapter
from router.engines.registry import adapter_for
from router.types import ReplicaId


@dataclass(frozen=True, slots=True)
class Replica:
    """One server, with all that is needed to reach it."""

    replica_id: ReplicaId
    url: str
    connect_s: float
    idle_s: float
    header_s: float = 600.0
    first_content_s: float | None = None
    total_s: float | None = None
    max_stream_bytes: int | None = None
    api_key: str | None = field(repr=False, default=None)
    weight: float = 1.0
    """Share of the pool's load that it should carry, relative to the others."""

    @property
    def place(self) -> tuple[str, str]:
        """Its pool and its address, by which it is known again under another configuration."""
        return self.replica_id.rpartition("/")[0], self.url


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """One arm: its servers and how to talk to them."""

    arm: Arm
    adapter: EngineAdapter
    lossless: bool
    replicas: tuple[Replica, ...]
    """Those that the configuration names; others are found while we run, and `FleetState` knows
    them."""
    settings: Pool

    @property
    def speculative(self) -> bool:
        """Whether the pool drafts at all."""
        return self.arm.method != "none"

    @property
    def has_key(self) -> bool:
        """Whether its servers get a credential of ours instead of the client's."""
        return self.settings.api_key is not None

    def replica(self, number: int, url: str, weight: float = 1.0) -> Replica:
        """One server of the pool, wherever its address comes from."""
        pool = self.settings
        return Replica(
            replica_id=ReplicaId(f"{pool.name}/{number}"),
            url=url,
            connect_s=pool.timeouts.connect_s,
            idle_s=pool.timeouts.idle_s,
            header_s=pool.timeouts.header_s,
            first_content_s=pool.timeouts.first_content_s,
            total_s=pool.timeouts.total_s,
            max_stream_bytes=pool.timeouts.max_stream_bytes,
            api_key=pool.api_key.get_secret_value() if pool.api_key else None,
            weight=weight,
        )


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """One model and the arms that serve it."""

    model: str
    pools: Mapping[ArmId, PoolFacts]
    baseline: ArmId
    allow_lossy: bool
    hedge_s: float | None = None
    """When the baseline is asked too, if the chosen pool has sent nothing yet; None for never."""
    keepalive_s: float | None = None
    """After how long a silence the client of a stream is sent a comment; None for never."""
    aliases: tuple[str, ...] = ()
    """Other names that clients may use."""

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms in the order of the configuration."""
        return tuple(pool.arm for pool in self.pools.values())


def build_routes(config: Config) -> dict[str, RouteFacts]:
    """Routes by model name."""
    return {route.model: _route(route) for route in config.routes}


def _route(route: Route) -> RouteFacts:
    pools = {ArmId(pool.name): _pool(pool, route) for pool in route.pools}
    return RouteFacts(
        model=route.model,
        pools=pools,
        baseline=ArmId(route.baseline),
        allow_lossy=route.allow_lossy,
        hedge_s=route.hedge_s,
        keepalive_s=route.keepalive_comment_s,
        aliases=route.aliases,
    )


def _pool(pool: Pool, route: Route) -> PoolFacts:
    arm = Arm(
        arm_id=ArmId(pool.name),
        method=pool.method,
        num_speculative_tokens=pool.num_speculative_tokens,
        baseline=pool.name == route.baseline,
    )
    bare = PoolFacts(arm, adapter_for(pool.engine), pool.lossless, (), pool)
    return replace(
        bare,
        replicas=tuple(
            bare.replica(number, replica.url, replica.weight)
            for number, replica in enumerate(pool.replicas)
        ),
    )
