"""Requests whose sums are audited: made up, written down as a line, worked out from the line."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import orjson

from bench.path import outcome_of
from policies.cost import typical_tokens
from policies.estimators.increments import effect_fields, increments
from policies.types import ArmId, ClassId, SpecUsage, Status, Trial
from router.estimates.layout import LOAD, field_name
from router.estimates.learned import Learned
from router.estimates.made import Made
from router.types import SegmentId, TenantId

MODEL = "audited"
PREFIX = "sums"
_ARMS = tuple(ArmId(name) for name in ("plain", "draft", "eagle"))
_CLASSES = tuple(ClassId(f"class{number}") for number in range(10))
_SEGMENTS = 20
_BANDS = 5
_NO_CLASS = ClassId("*")
_WELL = 0.95
"""Share of requests that end well."""


@dataclass(frozen=True, slots=True)
class Line:
    """One request in an audit log: figures, not sums."""

    number: int
    tenant: str
    arm: str
    class_id: str
    part: str
    band: int
    status: str
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float
    tokens: int
    prompt: int
    spec: tuple[int, int, int, tuple[int, ...], int] | None

    def encoded(self) -> bytes:
        """As it is written."""
        return orjson.dumps(asdict(self), option=orjson.OPT_APPEND_NEWLINE)


def lines_of(data: bytes) -> list[Line]:
    """The lines of a log; one that was being written at the end is none."""
    whole = data[: data.rfind(b"\n") + 1]
    return [Line(**orjson.loads(line)) for line in whole.splitlines()]


def made_up(rng: random.Random, number: int, tenant: str) -> Line:
    """One request; any two processes share its cells."""
    arm = rng.choice(_ARMS)
    outcome = outcome_of(rng, arm)
    spec = outcome.spec
    return Line(
        number=number,
        tenant=tenant,
        arm=arm,
        class_id=rng.choice(_CLASSES),
        part=f"seg{rng.randrange(_SEGMENTS)}" if rng.random() < 0.5 else "",
        band=rng.randrange(_BANDS),
        status=Status.OK.value if rng.random() < _WELL else Status.FAILED.value,
        ttft_s=outcome.ttft_s,
        tpot_s=outcome.tpot_s,
        e2e_s=outcome.e2e_s,
        tokens=outcome.tokens or 0,
        prompt=outcome.prompt_tokens or 0,
        spec=None
        if spec is None
        else (
            spec.steps or 0,
            spec.drafted or 0,
            spec.accepted or 0,
            spec.accepted_per_step or (),
            spec.num_speculative_tokens or 0,
        ),
    )


def learned_of(line: Line, ended_s: float) -> Learned:
    """What a proxy learns from the request.

    Args:
        line: The request.
        ended_s: When it ended, by this host's wall clock.
    """
    arm_id, class_id = ArmId(line.arm), ClassId(line.class_id)
    sums = _sums(line)
    band = SegmentId(f"{LOAD}{line.band}")
    return Learned(
        model=MODEL,
        arm_id=arm_id,
        class_id=class_id,
        sums=sums,
        part=SegmentId(line.part),
        also=(
            ((arm_id, class_id, band), effect_fields(sums)),
            ((arm_id, _NO_CLASS, band), {"n": 1, "tokens": line.tokens}),
        ),
        tenant=TenantId(line.tenant),
        ledger=_ledger(line),
        made=Made(line.tokens, ended_s - line.e2e_s, ended_s),
    )


@dataclass(frozen=True, slots=True)
class Expected:
    """What a store must hold, over all slots, hours and months."""

    slots: dict[str, int]
    hours: dict[str, int]
    months: dict[str, int]
    made: dict[str, int]


def expected(lines: Iterable[Line]) -> Expected:
    """Adds the lines up, knowing nothing of how a writer does it."""
    found = Expected({}, {}, {}, {})

    def count(into: dict[str, int], name: str, value: int) -> None:
        into[name] = into.get(name, 0) + value

    for line in lines:
        arm, class_id = ArmId(line.arm), ClassId(line.class_id)
        sums = _sums(line)
        for name, value in sums.items():
            count(found.slots, field_name(arm, class_id, name), value)
            count(found.hours, field_name(arm, class_id, name), value)
        effects = effect_fields(sums)
        for part in {line.part, f"{LOAD}{line.band}"} - {""}:
            for name, value in effects.items():
                count(found.slots, field_name(arm, class_id, name, SegmentId(part)), value)
        for name, value in (("n", 1), ("tokens", line.tokens)):
            band = SegmentId(f"{LOAD}{line.band}")
            count(found.slots, field_name(arm, _NO_CLASS, name, band), value)
        for name, value in _ledger(line).items():
            count(found.months, f"{line.tenant}|{name}", value)
        count(found.made, f"{arm}|{class_id}", line.tokens)
    return found


def _sums(line: Line) -> dict[str, int]:
    class_id = ClassId(line.class_id)
    trial = Trial(
        class_id=class_id,
        arm_id=ArmId(line.arm),
        status=Status(line.status),
        streamed=True,
        propensity=0.5,
        ttft_s=line.ttft_s,
        tpot_s=line.tpot_s,
        e2e_s=line.e2e_s,
        tokens=line.tokens,
        spec=None
        if line.spec is None
        else SpecUsage(*line.spec[:3], tuple(line.spec[3]), line.spec[4]),
    )
    return increments(trial, typical_tokens(class_id))


def _ledger(line: Line) -> dict[str, int]:
    return {
        "n": 1,
        f"status.{line.status}": 1,
        "tokens": line.tokens,
        "tokens.n": 1,
        "prompt": line.prompt,
        "prompt.n": 1,
    }
