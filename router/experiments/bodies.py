"""Plans as people write them: checked JSON or YAML, to and from values."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Annotated, Any

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from policies.types import ArmId, ClassId
from router.config.base import Name
from router.experiments.cells import HOLDOUT
from router.experiments.model import (
    DEFAULT_GUARDS,
    DEFAULT_STAGES,
    ExperimentName,
    Guard,
    GuardKind,
    Metric,
    Plan,
    Stage,
    Treatment,
    Unit,
)
from router.types import TenantId

Text = Annotated[str, Field(max_length=2000)]


class PlanError(Exception):
    """A plan that cannot be used; the message names the member and the remedy."""


class Body(BaseModel):
    """Base of all: a member nobody knows is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class VariantBody(Body):
    """What one side of an experiment does; exactly one of arm, policy, off and default."""

    arm: Name | None = Field(None, description="A pool: everything eligible goes there.")
    policy: str | None = Field(None, description="Name of a policy that decides.")
    parameters: dict[str, Any] = Field(default_factory=dict, description="Of that policy.")
    off: bool = Field(default=False, description="Plain decoding.")
    default: bool = Field(default=False, description="What the route does anyway.")

    def treatment(self) -> Treatment:
        """As a value."""
        return Treatment(
            ArmId(self.arm) if self.arm else None,
            self.policy,
            self.off,
            self.default,
            tuple(sorted(self.parameters.items())),
        )

    @classmethod
    def of(cls, known: Treatment) -> VariantBody:
        """As people write it."""
        return cls(
            arm=known.arm,
            policy=known.policy,
            parameters=dict(known.parameters),
            off=known.off,
            default=known.default,
        )


class StageBody(Body):
    """A step of the ramp."""

    share: float = Field(description="Of the units, in (0, 1].")
    dwell_s: float = Field(
        3600.0, le=31 * 86400, description="How long it lasts at least, in seconds."
    )
    min_requests: int = Field(
        200, le=1_000_000_000, description="Requests that each side must have had in it."
    )


class GuardBody(Body):
    """A limit whose breach ends the experiment."""

    kind: GuardKind
    limit: float = Field(description="Largest ratio, or largest excess of a share.")


class PlanBody(Body):
    """What is tried, on whom, and when it ends."""

    name: Name
    model: str = Field(min_length=1, max_length=256, description="The route.")
    hypothesis: Text = ""
    treatment: VariantBody
    control: VariantBody = Field(default_factory=lambda: VariantBody(default=True))
    tenants: tuple[Name, ...] = ()
    groups: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    unit: Unit = Unit.SESSION
    stages: tuple[StageBody, ...] = tuple(
        StageBody(share=stage.share, dwell_s=stage.dwell_s, min_requests=stage.min_requests)
        for stage in DEFAULT_STAGES
    )
    primary: Metric = Field(
        Metric.COST, description="What decides: time of the class's typical answer, or one time."
    )
    guards: tuple[GuardBody, ...] = tuple(
        GuardBody(kind=guard.kind, limit=guard.limit) for guard in DEFAULT_GUARDS
    )
    layer: str = Field("", max_length=64)
    layer_range: tuple[float, float] = (0.0, 1.0)
    salt: str = Field("", max_length=64, description="Drawn where none is given.")

    @field_validator("name")
    @classmethod
    def _free(cls, value: str) -> str:
        if value == HOLDOUT:
            raise ValueError(f"{HOLDOUT!r} is what the permanent holdout is called")
        return value

    def plan(self) -> Plan:
        """As a value.

        Raises:
            PlanError: Its members contradict each other.
        """
        try:
            return Plan(
                name=ExperimentName(self.name),
                model=self.model,
                hypothesis=self.hypothesis,
                treatment=self.treatment.treatment(),
                control=self.control.treatment(),
                tenants=tuple(map(TenantId, self.tenants)),
                groups=self.groups,
                classes=tuple(map(ClassId, self.classes)),
                unit=self.unit,
                stages=tuple(Stage(s.share, s.dwell_s, s.min_requests) for s in self.stages),
                primary=self.primary,
                guards=tuple(Guard(guard.kind, guard.limit) for guard in self.guards),
                layer=self.layer,
                layer_range=self.layer_range,
                salt=self.salt,
            )
        except ValueError as error:
            raise PlanError(str(error)) from error

    @classmethod
    def of(cls, plan: Plan) -> PlanBody:
        """As people write it."""
        return cls(
            name=plan.name,
            model=plan.model,
            hypothesis=plan.hypothesis,
            treatment=VariantBody.of(plan.treatment),
            control=VariantBody.of(plan.control),
            tenants=plan.tenants,
            groups=plan.groups,
            classes=plan.classes,
            unit=plan.unit,
            stages=tuple(
                StageBody(share=s.share, dwell_s=s.dwell_s, min_requests=s.min_requests)
                for s in plan.stages
            ),
            primary=plan.primary,
            guards=tuple(GuardBody(kind=g.kind, limit=g.limit) for g in plan.guards),
            layer=plan.layer,
            layer_range=plan.layer_range,
            salt=plan.salt,
        )


class _Loader(yaml.SafeLoader):
    """YAML in which `off` is a name: the one of a side's members would be false in YAML 1.1."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in found if tag != "tag:yaml.org,2002:bool"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


def read_members(text: str) -> object:
    """What somebody wrote as YAML, or as JSON, which is YAML too.

    Raises:
        ValueError: It is neither.

    Example:
        >>> read_members("control: {off: true}")
        {'control': {'off': True}}
    """
    try:
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise ValueError("a plan has no need of YAML's aliases")
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader with fewer words
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"this is no YAML: {error}") from error


def _members(given: object) -> object:
    return read_members(given) if isinstance(given, str) else given


WrittenPlan = Annotated[
    PlanBody, BeforeValidator(_members), Field(description="Or the same as text, in YAML or JSON.")
]
"""A plan as a value or as the text that somebody wrote."""


def read_plan(given: Mapping[str, Any], *, draw_salt: bool = True) -> Plan:
    """A plan out of what somebody wrote.

    Args:
        given: Members by name.
        draw_salt: Whether a missing salt is drawn.

    Raises:
        PlanError: It cannot be used.
    """
    try:
        body = PlanBody.model_validate(given)
    except ValidationError as error:
        told = error.errors(include_url=False)[0]
        place = ".".join(map(str, told["loc"])) or "plan"
        raise PlanError(f"{place}: {told['msg']}") from error
    if draw_salt and not body.salt:
        body = body.model_copy(update={"salt": secrets.token_hex(8)})
    return body.plan()
