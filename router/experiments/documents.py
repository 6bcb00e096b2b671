"""All experiments of a store as one versioned document, and the lines of its audit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from router.experiments.bodies import PlanBody, PlanError, read_plan
from router.experiments.model import Experiment, ExperimentName, Standing, Status
from router.experiments.rollout import Audit, Evidence

MOST_RUNNING = 8
"""At a time: each adds two pseudo-arms to what is read of every stretch of time."""

MOST_KEPT = 200
"""Experiments that are over and still shown."""


@dataclass(frozen=True, slots=True)
class Book:
    """What is tried, and the kill switch.

    Attributes:
        experiments: By name, in the order in which they began.
        off: Whether all requests decode plainly.
    """

    experiments: Mapping[ExperimentName, Experiment] = field(default_factory=dict)
    off: bool = False

    def with_(self, experiment: Experiment) -> Book:
        """The book with an experiment as it is now."""
        kept = {**self.experiments, experiment.plan.name: experiment}
        over = [n for n, e in kept.items() if e.standing.status is Status.ROLLED_BACK]
        for name in over[:-MOST_KEPT]:
            del kept[name]
        return Book(kept, self.off)


def book_key(prefix: str) -> str:
    """Where the document is kept; its log is the audit."""
    return f"{{{prefix}:experiments}}:v1:book"


def look_key(prefix: str, name: ExperimentName) -> str:
    """Where the figures of the last look at an experiment are kept."""
    return f"{{{prefix}:experiments}}:v1:look:{name}"


def as_document(book: Book) -> bytes:
    """The book as it is kept."""
    return orjson.dumps(
        {
            "off": book.off,
            "experiments": [experiment_json(e) for e in book.experiments.values()],
        }
    )


def experiment_json(experiment: Experiment) -> dict[str, Any]:
    """An experiment as JSON values."""
    return {
        "plan": PlanBody.of(experiment.plan).model_dump(mode="json"),
        "standing": asdict(experiment.standing),
    }


def of_document(data: bytes) -> Book:
    """The book as it was kept; experiments that cannot be understood are left out.

    Whether speculation is off must be legible: where it is not, it is off.

    >>> of_document(b"x"), of_document(b'{"off": false, "experiments": [{}]}')
    (Book(experiments={}, off=True), Book(experiments={}, off=False))
    """
    try:
        kept = orjson.loads(data)
        off = kept["off"] is not False
    except (ValueError, LookupError, TypeError):
        return Book(off=True)
    listed = kept.get("experiments")
    if not isinstance(listed, list):
        listed = []
    experiments: dict[ExperimentName, Experiment] = {}
    for entry in listed:
        known = _experiment(entry)
        if known is not None:
            experiments[known.plan.name] = known
    return Book(experiments, off)


def _experiment(entry: Any) -> Experiment | None:
    try:
        plan = read_plan(entry["plan"], draw_salt=False)
        told = entry["standing"]
        stage, epoch = int(told["stage"]), int(told["epoch"])
        standing = Standing(
            Status(told["status"]),
            stage,
            _time(told["since"]),
            str(told["why"]),
            epoch,
            _time(told["began"]),
        )
    except (PlanError, LookupError, TypeError, ValueError):
        return None
    return Experiment(plan, standing) if 0 <= stage < len(plan.stages) else None


def _time(told: Any) -> float | None:
    return None if told is None else float(told)


def audit_entry(name: ExperimentName | None, audit: Audit) -> bytes:
    """A line of the audit.

    Args:
        name: The experiment; None for what is about all traffic.
        audit: What happened.
    """
    return orjson.dumps(
        {
            "at": audit.at,
            "who": audit.who,
            "what": audit.what,
            "why": audit.why,
            "experiment": name,
            "before": asdict(audit.before),
            "after": asdict(audit.after),
            "evidence": None if audit.evidence is None else evidence_json(audit.evidence),
        }
    )


def evidence_json(evidence: Evidence) -> dict[str, Any]:
    """The statistics of a look, as JSON values; None where nothing is known."""
    gain = evidence.gain
    return {
        "control": evidence.control,
        "treatment": evidence.treatment,
        "primary": evidence.primary.value,
        "gain": None if gain is None else dict(zip(("value", "low", "high"), gain, strict=True)),
        "guards": [
            {
                "kind": reading.guard.kind.value,
                "limit": reading.guard.limit,
                "value": reading.value,
                "low": reading.low,
                "high": reading.high,
                "breached": reading.breached,
            }
            for reading in evidence.guards
        ],
        "ratio_alarm": evidence.ratio_alarm,
        "alarm": evidence.alarm,
        "compared": evidence.compared,
    }
