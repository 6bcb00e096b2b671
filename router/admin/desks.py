"""Desks over a store and a configuration that may change."""

from __future__ import annotations

from collections.abc import Callable

from router.admin.orders import Desks
from router.config.models import Config
from router.experiments.checks import check_plan
from router.experiments.desk import ExperimentDesk
from router.experiments.holdout import month_of_all
from router.sentinel.desk import QuarantineDesk
from router.stores.base import SharedStore
from router.tenants.keyring import KeyDesk


def desks_of(
    store: SharedStore, prefix: str, wall: Callable[[], float], config: Callable[[], Config]
) -> Desks:
    """Who carries orders out.

    Args:
        store: Where documents are kept.
        prefix: First part of their keys.
        wall: Seconds since the epoch.
        config: What holds now.
    """
    return Desks(
        KeyDesk(store, prefix, wall),
        ExperimentDesk(store, prefix, wall, lambda plan: check_plan(plan, config())),
        lambda: frozenset(tenant.id for tenant in config().tenants.known),
        QuarantineDesk(store, prefix, wall, lambda: [route.model for route in config().routes]),
        lambda month: month_of_all(
            store, prefix, [route.model for route in config().routes], month
        ),
        wall,
    )
