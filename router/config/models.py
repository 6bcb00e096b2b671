"""The whole file, put together of its sections; every option is declared once, in their modules.

The annotated file `config/specroute.yaml`, its JSON Schema and `docs/configuration.md` are
generated from the models (`router.config.reference`); a test compares them.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from router.config.base import Model
from router.config.classes import Classify
from router.config.keeping import DecisionLog, Estimates, Reload, Store, Tracing
from router.config.ports import Admin, Admission, Listen
from router.config.routes import Route
from router.config.tenants import Tenants


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
