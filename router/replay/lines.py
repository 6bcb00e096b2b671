"""Reads decision logs back into the values they were written from. It judges nothing."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import orjson

from policies.knowledge import Moment
from policies.types import Arm, ArmId, ClassId, Source, SpecUsage, Status, Trial
from router.errors import ConfigError
from router.estimates.knowing import policy_part
from router.estimates.layout import part_of
from router.observe.recorder import trial_of
from router.types import (
    Attempt,
    AttemptEnd,
    Classification,
    Decision,
    Endpoint,
    Outcome,
    ParsedRequest,
    ReplicaId,
    RequestContext,
    SegmentId,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One logged request.

    Attributes:
        decided: Wall time at which its arm was drawn.
        ended: Wall time at which it was over.
        part: The part of its class that it belongs to.
        arm_id: The arm that was drawn.
        propensity: Its probability; NaN where the line has none.
        probabilities: Of the arms there were.
        excluded: Arms it must not use.
        trial: What the estimates learned of it.
        moment: What a policy of moments would have been asked; None where the line does not tell.
        policy: Who decided.
        arms: The route's arms; empty in lines that do not tell.
        drawn: Whether chance had a part in it; lines that do not tell are taken so.
    """

    decided: float
    ended: float
    part: SegmentId
    arm_id: ArmId
    propensity: float
    probabilities: dict[ArmId, float]
    excluded: tuple[ArmId, ...]
    trial: Trial
    moment: Moment | None
    policy: str
    arms: tuple[Arm, ...]
    drawn: bool = True


@dataclass(frozen=True, slots=True)
class Log:
    """All that was read of one route.

    Attributes:
        model: Its name.
        arms: All arms that the log knows.
        entries: In the order of decisions.
        unreadable: Lines that could not be read.
    """

    model: str
    arms: tuple[Arm, ...]
    entries: tuple[Entry, ...]
    unreadable: int


def read_log(
    paths: Sequence[Path], *, model: str | None = None, baseline: str | None = None
) -> Log:
    """Read one route's decisions.

    Args:
        paths: Files of JSON lines, in any order; a name that ends in `.gz` is decompressed.
        model: The route, where there are several.
        baseline: Plain decoding, where lines do not name it.

    Raises:
        ConfigError: A file cannot be read, or what is asked for is not in it.
    """
    by_model: dict[str, dict[str, Entry]] = {}
    unreadable = 0
    for path in paths:
        for line in _lines(path):
            try:
                fields = orjson.loads(line)
                entry = entry_of(fields)
                name, key = str(fields["model"]), f"{fields['request_id']} {fields['time']}"
            except (ValueError, KeyError, TypeError, AttributeError):
                unreadable += 1
                continue
            by_model.setdefault(name, {})[key] = entry  # once, if rotated files overlap
    if not by_model:
        files = ", ".join(map(str, paths))
        raise ConfigError(f"{files}: no line is a decision; is it the file of decision_log.path?")
    if model is None and len(by_model) > 1:
        raise ConfigError(f"the log has several routes; --model one of: {', '.join(by_model)}")
    chosen = model if model is not None else next(iter(by_model))
    if chosen not in by_model:
        raise ConfigError(f"the log has no route {chosen!r}; it has: {', '.join(by_model)}")
    entries = sorted(by_model[chosen].values(), key=lambda entry: (entry.decided, entry.ended))
    return Log(chosen, _arms(entries, baseline), tuple(entries), unreadable)


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with _opened(path) as file:
            for line in file:
                if line.strip():
                    yield line
    except (OSError, EOFError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _opened(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return path.open("rb")


def _arms(entries: Iterable[Entry], baseline: str | None) -> tuple[Arm, ...]:
    """Arms as the newest lines tell them, and those that only older lines have."""
    known: dict[ArmId, Arm] = {}
    for entry in entries:
        known |= {arm.arm_id: arm for arm in entry.arms}
        for arm_id in (*entry.probabilities, entry.arm_id):
            known.setdefault(arm_id, Arm(arm_id, "unknown"))
    named = [arm.arm_id for arm in known.values() if arm.baseline]
    plain = baseline if baseline is not None else (named[-1] if named else None)
    if plain not in known:
        asked = "its lines do not name the baseline" if plain is None else f"it has no arm {plain}"
        raise ConfigError(f"the log: {asked}; --baseline one of: {', '.join(known)}")
    return tuple(
        Arm(arm.arm_id, arm.method, arm.num_speculative_tokens, baseline=arm.arm_id == plain)
        for arm in known.values()
    )


def entry_of(fields: dict[str, Any]) -> Entry:
    """The values of one line.

    Raises:
        ValueError: Something in it cannot be true.
        KeyError: It lacks what every line has.
        TypeError: It is of another form.
    """
    ended, arm_id = float(fields["time"]), ArmId(str(fields["arm"]))
    probabilities = {ArmId(arm): float(p) for arm, p in (fields["probabilities"] or {}).items()}
    propensity = fields["propensity"]
    outcome = _outcome(fields)
    ctx = _context(fields)
    decision = Decision(
        arm_id=arm_id,
        propensity=math.nan if propensity is None else float(propensity),
        probabilities=probabilities,
        excluded=fields.get("excluded") or {},
        policy=str(fields["policy"]),
        snapshot_version=int(fields.get("snapshot") or 0),
    )
    part = part_of(ctx.segment, ctx.classification.copy_ratio)
    waited = ctx.queue_s + (outcome.overhead_s or 0.0)
    if not math.isfinite(ended):
        raise ValueError("a line without a time")
    baseline = fields.get("baseline")
    return Entry(
        decided=ended - max(outcome.e2e_s - waited, 0.0),
        ended=ended,
        part=part,
        arm_id=arm_id,
        propensity=decision.propensity,
        probabilities=probabilities,
        excluded=tuple(ArmId(arm) for arm in decision.excluded),
        trial=trial_of(ctx, decision, outcome),
        moment=_moment(fields, part, probabilities),
        policy=decision.policy,
        arms=tuple(
            Arm(ArmId(name), str(method), k, baseline=name == baseline)
            for name, method, k in fields.get("arms") or ()
        ),
        drawn=fields.get("drawn") is not False,
    )


def _context(fields: dict[str, Any]) -> RequestContext:
    class_id = ClassId(str(fields["class"]))
    model = str(fields["model"])
    return RequestContext(
        request_id=str(fields["request_id"]),
        request=ParsedRequest(Endpoint(fields["endpoint"]), b"", {}, model, bool(fields["stream"])),
        classification=Classification(
            class_id,
            float(fields.get("confidence") or 0.0),
            {},
            "",
            copy_ratio=float(fields.get("copy_ratio") or 0.0),
        ),
        arrival_s=0.0,
        path_qs="",
        headers=(),
        segment=SegmentId(str(fields.get("segment") or "")),
        queue_s=float(fields.get("queue_s") or 0.0),
    )


def _outcome(fields: dict[str, Any]) -> Outcome:
    served = fields["served_by"]
    return Outcome(
        status=Status(fields["status"]),
        http_status=fields.get("http_status"),
        served_by=None if served is None else ArmId(str(served)),
        attempts=tuple(
            # A replica is called by its arm and a number.
            Attempt(ArmId(str(name).rpartition("/")[0]), ReplicaId(str(name)), AttemptEnd(end))
            for name, end in fields.get("attempts") or ()
        ),
        e2e_s=float(fields.get("e2e_s") or 0.0),
        ttft_s=fields.get("ttft_s"),
        tpot_s=fields.get("tpot_s"),
        tokens=fields.get("tokens"),
        prompt_tokens=fields.get("prompt_tokens"),
        spec=_spec(fields),
        overhead_s=fields.get("overhead_s"),
        load=fields.get("load"),
        waiting=fields.get("waiting"),
        cached_tokens=fields.get("cached_tokens"),
        held=bool(fields.get("held")),
        valid=_flag(fields.get("valid")),
        truncated=_flag(fields.get("truncated")),
    )


def _flag(told: object) -> bool | None:
    return told if isinstance(told, bool) else None


def _spec(fields: dict[str, Any]) -> SpecUsage | None:
    source = fields.get("acceptance_source")
    if source is None:
        return None
    return SpecUsage(
        steps=fields.get("steps"),
        drafted=fields.get("drafted"),
        accepted=fields.get("accepted"),
        source=Source(source),
        exact_drafted=fields.get("drafted_exact") is not False,
    )


def _moment(
    fields: dict[str, Any], part: SegmentId, probabilities: dict[ArmId, float]
) -> Moment | None:
    told, loads = fields.get("moment"), fields.get("loads")
    if not told or not loads or list(loads) != list(probabilities):
        return None
    return Moment(
        class_id=ClassId(str(fields["class"])),
        part=policy_part(part),
        load=tuple(int(load) for load in loads.values()),
        prompt_tokens=int(told["prompt_tokens"]),
        cached_tokens=tuple(int(cached) for cached in told["cached_tokens"]),
        output_tokens=told.get("output_tokens"),
        ahead_tokens=tuple(int(ahead) for ahead in told.get("ahead_tokens", ())),
        waited_s=tuple(float(waited) for waited in told.get("waited_s", ())),
    )
