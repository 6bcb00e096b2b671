"""What looks at an experiment saw, as the document that people are shown. Pure.

The newest look is kept whole; of those before it the effect is kept, so that a chart of it shows
what was seen then, by the same statistics that moved the experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from router.experiments.documents import evidence_json
from router.experiments.evidence import sample_ratio
from router.experiments.figures import figures_json
from router.experiments.model import Experiment
from router.experiments.rollout import Evidence
from router.experiments.seen import Seen

MOST_EFFECTS = 240
"""Looks of the past that are kept at most; the document is written with every look."""

Effect = list[float | int | None]
"""Wall time, stage, requests of control and treatment in it, gain, its lower and upper bound."""


def look_document(
    before: bytes | None,
    experiment: Experiment,
    known: Seen,
    evidence: Evidence,
    *,
    at: float,
    missing_units: int,
) -> bytes:
    """The document after a look.

    Args:
        before: The one that was there; what cannot be understood of it is left out.
        experiment: What is looked at.
        known: Its sums.
        evidence: What the look saw.
        at: Wall time of the look.
        missing_units: Requests that named no unit, in the process that looks.
    """
    gain = evidence.gain or (None, None, None)
    stage = experiment.standing.stage
    newest: Effect = [at, stage, evidence.control, evidence.treatment, *gain]
    return orjson.dumps(
        {
            "at": at,
            "evidence": evidence_json(evidence),
            "sample_ratio": sample_ratio(experiment, evidence.control, evidence.treatment),
            "missing_units": missing_units,
            **figures_json(known, evidence.primary),
            "effects": thinned([*_effects(before), newest]),
        }
    )


def read_look(data: bytes) -> dict[str, Any] | None:
    """A document as it was kept; None where it is none."""
    try:
        told = orjson.loads(data)
    except ValueError:
        return None
    return told if isinstance(told, dict) and "evidence" in told else None


def thinned(effects: Sequence[Effect]) -> list[Effect]:
    """At most `MOST_EFFECTS` of them, evenly in time and always the newest.

    Of every stretch of time the last one stays; stretches are as long as they have to be, a second
    times a power of two, so thinning again takes nothing more out.

    Example:
        >>> day = [[float(at), 0, at, at, 0.1, 0.0, 0.2] for at in range(86_400)]
        >>> len(thinned(day)), thinned(day)[-1][0], thinned(thinned(day)) == thinned(day)
        (169, 86399.0, True)
    """
    if not effects:
        return []
    first, last = _time(effects[0]), _time(effects[-1])
    width = 1.0
    while (last - first) / width > MOST_EFFECTS - 2:
        width *= 2.0
    kept = {_time(effect) // width: effect for effect in effects}
    return list(kept.values())


def _time(effect: Effect) -> float:
    at = effect[0]
    assert at is not None
    return float(at)


def _effects(before: bytes | None) -> list[Effect]:
    """Those of a document, without what cannot be one."""
    told = (read_look(before) or {}).get("effects") if before is not None else None
    length = 7
    return [
        effect
        for effect in (told if isinstance(told, list) else [])
        if isinstance(effect, list)
        and len(effect) == length
        and all(of is None or isinstance(of, int | float) for of in effect)
        and effect[0] is not None
    ]
