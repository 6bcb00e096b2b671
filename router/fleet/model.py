"""What a route consists of; immutable, built from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from policies.types import Arm, ArmId
from router.config.models import Config, Pool, Route
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
    api_key: str | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """One arm: its servers and how to talk to them."""

    arm: Arm
    adapter: EngineAdapter
    lossless: bool
    replicas: tuple[Replica, ...]

    @property
    def speculative(self) -> bool:
        """Whether the pool drafts at all."""
        return self.arm.method != "none"

    @property
    def has_key(self) -> bool:
        """Whether its servers get a credential of ours instead of the client's."""
        return self.replicas[0].api_key is not None


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """One model and the arms that serve it."""

    model: str
    pools: Mapping[ArmId, PoolFacts]
    baseline: ArmId
    allow_lossy: bool
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
    return RouteFacts(route.model, pools, ArmId(route.baseline), route.allow_lossy, route.aliases)


def _pool(pool: Pool, route: Route) -> PoolFacts:
    arm = Arm(
        arm_id=ArmId(pool.name),
        method=pool.method,
        num_speculative_tokens=pool.num_speculative_tokens,
        baseline=pool.name == route.baseline,
    )
    replicas = tuple(
        Replica(
            replica_id=ReplicaId(f"{pool.name}/{index}"),
            url=replica.url,
            connect_s=pool.timeouts.connect_s,
            idle_s=pool.timeouts.idle_s,
            api_key=pool.api_key.get_secret_value() if pool.api_key else None,
        )
        for index, replica in enumerate(pool.replicas)
    )
    return PoolFacts(arm, adapter_for(pool.engine), pool.lossless, replicas)
